"""The weighted metric judge: one dialogue in, one `MetricsScore` or `Unscored` out.

Every metric is asked of the whole dialogue on one trunk. In mode `json` one reply holds all scores and diagnoses, and
of what cannot be used each metric is asked again by itself; in mode `tokens` each score is read from the first token of
an answer in a fresh context, and one more call asks for the diagnoses of the poor ones. A metric that the dialogue makes
n/a is not asked. A score that could not be had leaves the dialogue unscored: no call that fails counts as 0.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from curate.dialogue import Dialogue
from curate.engines.bad_replies import ask_until_read
from curate.engines.base import Ask, Completion, Request
from curate.engines.layout import Trunk
from curate.errors import UsageError
from curate.judging.metrics.call_comparison import compare_calls
from curate.judging.metrics.catalogue import Metric
from curate.judging.metrics.config import MetricsConfig
from curate.judging.metrics.metric_prompts import (
    BINARY_LABELS,
    DIAGNOSIS,
    LABELS,
    PURPOSE,
    WORDINGS,
    diagnosis_question,
    item_of,
    joint_question,
    metrics_trunk,
    reply_schema,
    reply_tokens,
)
from curate.judging.metrics.metric_reply import (
    Diagnosis,
    Entry,
    part_of,
    read_diagnosis,
    read_entry,
)
from curate.judging.metrics.weighing import (
    not_applicable,
    overall,
    overall_range,
    shares,
    weights_key,
)
from curate.judging.session import (
    CUT_REPLY,
    BadReplyError,
    Failure,
    fault_of,
    reply_object,
)
from curate.judging.tokens_mode import (
    LOW_COVERAGE,
    NA_LABEL,
    NAMES,
    ItemReading,
    label_reading,
    read_item,
    request_of,
)
from curate.records import JudgeIdentity, LabelReading, StageName, Unscored, UnscoredReason
from curate.records.metrics import MetricScore, MetricsScore, NoMetricReason, is_poor

STAGE: Final = StageName.METRICS
RETRY_PREFIX = "Score: ("
"""Forced start instead, where the labels of the first answer held too little of the mass."""
_UNDIAGNOSED = Diagnosis(flags=("failure_code_missing", "turns_missing"))
_VALUES: Mapping[str, int] = {
    **{label: int(label) for label in LABELS["scored"]},
    **dict(zip(BINARY_LABELS, (1, 0), strict=True)),
}
_LABEL_NAMES = {**NAMES, **dict(zip(BINARY_LABELS, ("pass", "fail"), strict=True))}


@dataclass(slots=True)
class _Scoring:
    """One dialogue being scored.

    Attributes:
        turns: numbers of the turns that a diagnosis may name.
        entries: what was read of each metric.
        readings: the labels' distribution of each, in mode `tokens`.
        failures: why a metric has no entry.
    """

    trunk: Trunk
    turns: list[int]
    ask: Ask
    config: MetricsConfig
    requests: int = 0
    entries: dict[str, Entry] = field(default_factory=dict)
    readings: dict[str, LabelReading] = field(default_factory=dict)
    failures: dict[str, Failure] = field(default_factory=dict)

    async def send(self, requests: Sequence[Request]) -> list[Completion]:
        self.requests += len(requests)
        return await self.ask(requests)


async def score_metrics(
    dialogue: Dialogue, ask: Ask, config: MetricsConfig, identity: JudgeIdentity
) -> MetricsScore | Unscored:
    """Score one dialogue by the chosen metrics.

    Args:
        dialogue: with an assistant message.
        config: with `mode` resolved.

    Returns:
        The scores; or `Unscored` with reason no_assistant_turn, nothing_applies (every metric that has a weight
        is n/a), context_overflow, bad_reply, reply_cut, low_coverage or engine_error.

    Raises:
        UsageError: `config.mode` is still `auto`.
    """
    if config.mode == "auto":
        raise UsageError("the scoring mode is not resolved", got="auto", fix="resolve it first")
    turns = [turn.number for turn in dialogue.turns if turn.has_assistant]
    if not turns:
        failure = Failure(UnscoredReason.NO_ASSISTANT_TURN, "there is nothing to score")
        return failure.unscored(dialogue, STAGE)
    na: dict[str, NoMetricReason] = {
        name: why for name, why in not_applicable(dialogue).items() if name in config.chosen
    }
    if shares(config.weights, [*na]) is None:
        failure = Failure(UnscoredReason.NOTHING_APPLIES, f"n/a: {', '.join(na)}")
        return failure.unscored(dialogue, STAGE)
    calls = compare_calls(dialogue)
    scoring = _Scoring(metrics_trunk(dialogue, config, calls), turns, ask, config)
    metrics = [metric for metric in config.chosen.values() if metric.name not in na]
    await (_ask_json if config.mode == "json" else _ask_tokens)(scoring, metrics)
    if scoring.failures:
        name, failure = next(iter(scoring.failures.items()))
        detail = f"{len(scoring.failures)} of {len(metrics)} metrics: {name}: {failure.detail}"
        return replace(failure, detail=detail).unscored(dialogue, STAGE, scoring.requests)
    na |= {name: "judge" for name, entry in scoring.entries.items() if entry.score is None}
    parts = shares(config.weights, [*na])
    if parts is None:
        failure = Failure(UnscoredReason.NOTHING_APPLIES, f"n/a: {', '.join(na)}")
        return failure.unscored(dialogue, STAGE, scoring.requests)
    scores = [
        _metric_score(metric, config.weights[name], parts[name], na.get(name), scoring)
        for name, metric in config.chosen.items()
    ]
    total = overall(scores)
    return MetricsScore(
        dialogue_id=dialogue.id,
        content_hash=dialogue.content_hash,
        identity=identity,
        metrics=tuple(scores),
        overall_score=total,
        pass_threshold=config.pass_threshold,
        passed=total >= config.pass_threshold,
        weights_key=weights_key(config.weights),
        overall_range=overall_range(scores),
        calls=calls,
        neutralised=scoring.trunk.neutralised,
        requests=scoring.requests,
    )


def _metric_score(
    metric: Metric, weight: float, share: float, na: NoMetricReason | None, scoring: _Scoring
) -> MetricScore:
    entry = scoring.entries.get(metric.name, Entry(None))
    return MetricScore(
        name=metric.name,
        tier=metric.tier,
        scale=metric.scale,
        weight=weight,
        share=share,
        score=entry.score,
        na=na,
        failure_code=entry.diagnosis.failure_code,
        turns=entry.diagnosis.turns,
        flags=entry.diagnosis.flags,
        reading=scoring.readings.get(metric.name),
    )


async def _ask_json(scoring: _Scoring, metrics: Sequence[Metric]) -> None:
    """Ask for one reply about all metrics; then again, one by one, for each that cannot be used, with the reason."""
    by_name = {metric.name: metric for metric in metrics}

    def request(group: Sequence[Metric], problem: str | None) -> Request:
        return Request(
            scoring.trunk,
            joint_question(group, scoring.turns, problem),
            max_tokens=reply_tokens(len(group), len(scoring.turns)),
            schema=reply_schema(group, scoring.turns),
            purpose=PURPOSE,
        )

    (reply,) = await scoring.send([request(metrics, None)])
    problems = _take_entries(scoring, metrics, reply)

    def request_alone(name: str, problem: str | None) -> Request:
        return replace(request([by_name[name]], problem or problems[name]), sample=1)

    def read(name: str, completion: Completion) -> tuple[None, str | None]:
        return None, _take_entries(scoring, [by_name[name]], completion).get(name)

    names = [name for name in by_name if name in problems]
    await ask_until_read(names, request_alone, read, scoring.send, scoring.config.retries - 1)


def _take_entries(
    scoring: _Scoring, group: Sequence[Metric], completion: Completion
) -> dict[str, str]:
    """Keep what can be used of a reply; why each of the other metrics is to be asked again.

    A fault is not asked again: the client below has done so already.
    """
    reply, problem = _read_object(completion)
    if not isinstance(reply, Failure):
        return _take_reply(scoring, group, reply)
    for metric in group:
        if metric.name not in scoring.entries:
            scoring.failures[metric.name] = reply
    return {} if problem is None else {metric.name: problem for metric in group}


def _read_object(completion: Completion) -> tuple[dict[str, Any] | Failure, str | None]:
    """Return the object of a reply; or why there is none, and what the judge is told where it is asked again."""
    fault = fault_of(completion)
    if fault is not None:
        return fault, None
    if completion.finish == "length":
        return Failure(UnscoredReason.REPLY_CUT, "the reply was cut by its limit"), CUT_REPLY
    try:
        return reply_object(completion.text), None
    except BadReplyError as error:
        return Failure(UnscoredReason.BAD_REPLY, str(error)), str(error)


def _take_reply(
    scoring: _Scoring, group: Sequence[Metric], reply: Mapping[str, object]
) -> dict[str, str]:
    problems: dict[str, str] = {}
    for metric in group:
        try:
            entry = read_entry(reply, metric, scoring.turns)
        except BadReplyError as error:
            problems[metric.name] = str(error)
            if metric.name not in scoring.entries:
                scoring.failures[metric.name] = Failure(UnscoredReason.BAD_REPLY, str(error))
            continue
        scoring.entries[metric.name] = entry
        scoring.failures.pop(metric.name, None)
        if entry.problem is not None:
            problems[metric.name] = entry.problem
    return problems


async def _ask_tokens(scoring: _Scoring, metrics: Sequence[Metric]) -> None:
    """Ask all scores in one call, those with too little label mass again; then what is wrong in the poor ones."""
    config = scoring.config
    due = [*metrics]
    for wording in range(min(WORDINGS, config.retries + 1)):
        prefix = RETRY_PREFIX if wording else config.answer_prefix
        items = [item_of(metric, wording) for metric in due]
        completions = await scoring.send(
            [request_of(item, scoring.trunk, prefix) for item in items] if items else []
        )
        retried: list[Metric] = []
        for metric, item, completion in zip(due, items, completions, strict=True):
            reading = read_item([completion], item, config.min_coverage)
            if isinstance(reading, ItemReading):
                _take_reading(scoring, metric, reading)
                continue
            scoring.failures[metric.name] = reading
            if reading.reason == LOW_COVERAGE:
                retried.append(metric)
        due = retried
        if not due:
            break
    if not scoring.failures:
        await _diagnose(scoring, metrics)


def _take_reading(scoring: _Scoring, metric: Metric, reading: ItemReading) -> None:
    values = {label: _VALUES[label] for label in LABELS[metric.scale]}
    scoring.readings[metric.name] = label_reading(reading.mass, values, _LABEL_NAMES)
    score = None if reading.best == NA_LABEL else _VALUES[reading.best]
    scoring.entries[metric.name] = Entry(score)
    scoring.failures.pop(metric.name, None)


async def _diagnose(scoring: _Scoring, metrics: Sequence[Metric]) -> None:
    """Ask what is wrong in the poor metrics; a call that fails costs the diagnosis, no score."""
    due = {
        metric.name: metric
        for metric in metrics
        if is_poor(scoring.entries[metric.name].score, metric.scale)
    }
    for name in due:
        scoring.entries[name] = replace(scoring.entries[name], diagnosis=_UNDIAGNOSED)

    def request(_: str, problem: str | None) -> Request:
        scores = {
            name: "fail" if metric.scale == "binary" else str(scoring.entries[name].score)
            for name, metric in due.items()
        }
        return Request(
            scoring.trunk,
            diagnosis_question(scores, scoring.turns, problem),
            max_tokens=reply_tokens(len(due), len(scoring.turns)),
            schema=reply_schema(due.values(), scoring.turns, with_scores=False),
            purpose=DIAGNOSIS,
        )

    def read(_: str, completion: Completion) -> tuple[None, str | None]:
        reply, problem = _read_object(completion)
        if isinstance(reply, Failure):
            return None, problem
        problems: dict[str, str] = {}
        for name, metric in [*due.items()]:
            entry, part = scoring.entries[name], part_of(reply, name)
            diagnosis, wrong_part = read_diagnosis(part, metric, entry.score, scoring.turns)
            if part:  # else what an earlier reply said stands
                scoring.entries[name] = replace(entry, diagnosis=diagnosis)
            if wrong_part is None:
                del due[name]
            else:
                problems[name] = wrong_part
        return None, "; ".join(problems.values()) or None

    if due:
        await ask_until_read([DIAGNOSIS], request, read, scoring.send, scoring.config.retries)
