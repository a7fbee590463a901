"""Prompts of the weighted metrics: the shared start of a dialogue's questions, and each question.

Everything that does not depend on the dialogue stands first, then what dialogues of one role share (role, tools),
so that a prefix cache holds both.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import orjson

from curate.dialogue import Dialogue, function_tool
from curate.engines.layout import Trunk, defuse, lay_out, render_turns, rendered_call
from curate.engines.prompt_files import fill, prompt_file, prompt_sections
from curate.engines.structured import closed_object
from curate.judging.metrics.call_comparison import describe_comparison
from curate.judging.metrics.catalogue import LEVELS, Metric
from curate.judging.metrics.config import MetricsConfig
from curate.judging.tokens_mode import NA_LABEL, LabelQuestion
from curate.records.metrics import CallComparison, MetricScale
from curate.wording import joined

BINARY_LABELS = ("P", "F")
LABELS: Mapping[MetricScale, tuple[str, ...]] = {
    "scored": LEVELS["scored"],
    "binary": BINARY_LABELS,
}
"""The single-token answers of each scale, best first."""
WORDINGS = 2
"""How many wordings a question about one score has."""
PURPOSE = "metrics.scores"
DIAGNOSIS = "metrics.diagnosis"


def prompt_version(config: MetricsConfig) -> str:
    """Return the version of a config's texts; for the judge's identity and the stage's fingerprint."""
    content = [
        prompt_file("judging", "metric_instructions"),
        prompt_file("judging", "metric_questions"),
        [metric.text for metric in config.chosen.values()],
        config.emphasis,
        config.answer_prefix,
    ]
    return f"metrics-1-{hashlib.blake2b(orjson.dumps(content), digest_size=4).hexdigest()}"


def metrics_trunk(dialogue: Dialogue, config: MetricsConfig, calls: CallComparison | None) -> Trunk:
    """Return the shared start of every question about a dialogue."""
    texts = "\n\n".join(metric.text for metric in config.chosen.values())
    rubric = fill(prompt_file("judging", "metric_instructions"), metrics=texts)
    tools = "\n".join(
        orjson.dumps(function_tool(tool)["function"]).decode() for tool in dialogue.tools
    )
    parts = [
        ("role", dialogue.role_definition),
        ("tools", tools),
        ("scenario", dialogue.scenario),
        ("emphasis", dialogue.emphasis or config.emphasis),
        ("evidence", "\n\n".join(dialogue.evidence)),
        ("expected_outcomes", "\n".join(dialogue.expected_outcomes)),
        ("expected_calls", "\n".join(rendered_call(call) for call in dialogue.expected_tools)),
        ("calls_compared", None if calls is None else describe_comparison(calls)),
    ]
    turns = render_turns(dialogue.turns, show_reasoning=config.show_reasoning, show_ids=True)
    return lay_out(rubric, parts, turns)


def item_of(metric: Metric, wording: int = 0) -> LabelQuestion:
    """Return the question for one metric's score, answered by one label (tokens mode)."""
    or_na = _text("or_na", na=metric.na) if metric.na else ""
    text = _text(f"{metric.scale}.{wording}", metric=metric.name, asks=metric.asks, or_na=or_na)
    labels = LABELS[metric.scale] + ((NA_LABEL,) if metric.na else ())
    return LabelQuestion(metric.name, None, text, labels, PURPOSE)


def joint_question(
    metrics: Sequence[Metric], turns: Sequence[int], problem: str | None = None
) -> str:
    """Return the question for scores and diagnoses of some metrics in one JSON reply (json mode).

    Args:
        turns: numbers of the turns that a diagnosis may name.
        problem: why the last reply could not be used.
    """
    form = {
        metric.name: {"score": "#", "failure_code": "...", "turns": ["#"]} for metric in metrics
    }
    lines = [_text("json", metrics=_names(metrics)), _form(form)]
    by_scale = {scale: [metric for metric in metrics if metric.scale == scale] for scale in LEVELS}
    lines += [_text(f"json.{scale}", metrics=_names(of)) for scale, of in by_scale.items() if of]
    lines += [_text("json.na", metric=metric.name, na=metric.na) for metric in metrics if metric.na]
    lines.append(_text("json.diagnosis", turns=joined(turns)))
    return "\n".join([*lines, *_again(problem)])


def diagnosis_question(
    scores: Mapping[str, str], turns: Sequence[int], problem: str | None = None
) -> str:
    """Return the question for the diagnoses of poor metrics (tokens mode).

    Args:
        scores: of each poor metric, as its level is called.
        turns, problem: as for `joint_question`.
    """
    told_scores = ", ".join(f"{name} {score}" for name, score in scores.items())
    form = {name: {"failure_code": "...", "turns": ["#"]} for name in scores}
    text = _text("diagnose", scores=told_scores, turns=joined(turns))
    return "\n".join([text, _form(form), *_again(problem)])


def reply_schema(
    metrics: Iterable[Metric], turns: Sequence[int], *, with_scores: bool = True
) -> dict[str, Any]:
    """Return the JSON schema of a reply: an object with one required key a metric."""
    label = {"type": "string", "pattern": "^[a-z]{1,18}(_[a-z0-9]{1,18}){0,3}$"}
    code = {"anyOf": [{"type": "null"}, label]} if with_scores else label
    number = {"type": "integer", "enum": list(turns)}
    where = {"type": "array", "items": number, "maxItems": len(turns)}
    diagnosis = {"failure_code": code, "turns": where}
    return closed_object(
        {
            metric.name: closed_object(
                ({"score": _score_schema(metric)} if with_scores else {}) | diagnosis
            )
            for metric in metrics
        }
    )


def reply_tokens(metrics: int, turns: int) -> int:
    """Return the bound of a JSON reply, each metric of which may name all turns; about twice its compact form."""
    return 128 + metrics * (60 + 4 * turns)


def _score_schema(metric: Metric) -> dict[str, Any]:
    levels: list[dict[str, Any]] = (
        [{"type": "integer", "enum": [int(level) for level in LEVELS["scored"]]}]
        if metric.scale == "scored"
        else [{"type": "string", "enum": list(LEVELS["binary"])}]
    )
    if metric.na:
        levels.append({"type": "string", "enum": ["n/a"]})
    return levels[0] if len(levels) == 1 else {"anyOf": levels}


def _form(form: Mapping[str, Any]) -> str:
    # Unquoted, because a model that no schema binds copies the quotes and writes "2" for 2.
    return json.dumps(form).replace('"#"', "#")


def _names(metrics: Sequence[Metric]) -> str:
    return joined([metric.name for metric in metrics])


def _again(problem: str | None) -> list[str]:
    return [] if problem is None else [_text("retry", reason=defuse(problem).text)]


def _text(name: str, **values: object) -> str:
    return fill(prompt_sections("judging", "metric_questions")[name], **values)
