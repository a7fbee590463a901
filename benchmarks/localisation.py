"""Which turn has the flaw? The probe's localisation beside deepeval's conversational metrics, on the same planted cases.

    pip install deepeval        # beside curate; nothing else of the project needs it
    python benchmarks/localisation.py recipe.yaml --limit 13 --replies replies.sqlite

The cases are those of `curate probe RECIPE --limit N`, the judge is the recipe's for both sides, and every reply is kept,
so the same command goes on where it stopped (`--minutes` stops it by itself). deepeval's metrics are asked as it does, at
temperature 0, their replies held to the schema that it gives, without the reason in words that no figure reads. What
came back unreadable gives no score and is counted.

- detection: the untouched twin scores higher; a tie is half.
- weakest turn, within one: the turn that is blamed has the flaw, or is next to it. Of several that a metric blames one is
  drawn, and where it blames none any turn is: both in expectation. Turn relevancy, role adherence and knowledge retention
  give verdicts of single turns; conversation completeness gives none, so its turn is chance.
- "all of them" blames the turns that most of the metrics blame, and scores by the mean of their scores.

deepeval's turns are text: tool calls and results stand in it in brackets, or its metrics could not see them. Intervals are
those of the card: clustered by dialogue.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import fmean
from types import SimpleNamespace
from typing import Any

from asking import planted_parser, table

from curate.dialogue import Dialogue, Message
from curate.engines.accounting import Accounting, Budget
from curate.engines.base import Ask, Completion, Request
from curate.engines.layout import Chat
from curate.recipe import Recipe, load_recipe
from curate.records import Judgment, ProbeOutcome
from curate.run.probe_asking import rubric_of
from curate.run.probe_plan import draw_cases
from curate.stages import WorkItem, model_pool, rubric_stage
from curate.trust.probe_card import clustered, compare_lines
from curate.trust.probe_cases import ProbeCase
from curate.trust.probe_outcomes import JudgmentReading, Readings, higher, outcomes_of

LINES = ("detection", "weakest_turn", "within_one")
METRICS = ("RoleAdherence", "TurnRelevancy", "KnowledgeRetention", "ConversationCompleteness")
ALL = "all of them"


@dataclass(frozen=True)
class Score:
    """What a metric says of a dialogue: its score, 0-1, and how often it blames each turn."""

    value: float
    blamed: Mapping[int, int]


def turn_text(messages: Sequence[Message]) -> str:
    """What the assistant and its tools said in a turn, as one text."""
    lines = []
    for message in messages:
        if message.role == "tool":
            lines.append(f"[result: {message.content}]")
        elif message.role == "assistant":
            lines += [message.content] if message.content else []
            lines += [f"[calls {c.name}({json.dumps(c.arguments)})]" for c in message.tool_calls]
    return "\n".join(lines)


def chat_of(dialogue: Dialogue) -> list[tuple[int, str, str]]:
    """Turn number, role and text of what deepeval is shown: user and assistant by turns."""
    chat = []
    for turn in dialogue.turns:
        if turn.in_rubric:
            asked = "\n".join(m.content for m in turn.messages if m.role == "user")
            chat += [
                (turn.number, "user", asked),
                (turn.number, "assistant", turn_text(turn.messages)),
            ]
    return chat


def blamed(name: str, metric: Any, numbers: Sequence[int]) -> Counter[int]:
    """The turns that a metric's verdicts blame.

    Args:
        name: of the metric.
        metric: measured.
        numbers: the turn of each message of the chat.
    """

    def says(verdict: Any, word: str) -> bool:
        return verdict is not None and str(verdict.verdict).strip().lower() == word

    turns = list(dict.fromkeys(numbers))
    if name == "RoleAdherence":
        places = (verdict.index for verdict in metric.out_of_character_verdicts.verdicts)
        # An index that names no message blames nothing.
        return Counter({numbers[at] for at in places if 0 <= at < len(numbers)})
    if name == "TurnRelevancy":
        verdicts = zip(turns, metric.verdicts, strict=True)
        return Counter(turn for turn, verdict in verdicts if says(verdict, "no"))
    if name == "KnowledgeRetention":
        known = [bool(held is not None and held.data) for held in metric.knowledges]
        asked = [numbers[at] for at in range(1, len(numbers), 2) if any(known[:at])]
        verdicts = zip(asked, metric.verdicts, strict=True)
        return Counter(turn for turn, verdict in verdicts if says(verdict, "yes"))
    return Counter()


def outcomes(cases: Sequence[ProbeCase], scores: Mapping[str, Score]) -> list[ProbeOutcome]:
    """The lines that the card has of a judge, of a metric's scores by content hash."""
    made = []
    for case in cases:
        untouched, planted = (
            scores.get(held.content_hash) for held in (case.untouched, case.planted)
        )
        if planted is None:
            continue
        turns = [turn.number for turn in case.planted.turns if turn.in_rubric]
        near = [turn for turn in turns if abs(turn - case.turn) <= 1]
        most = max(planted.blamed.values(), default=0)
        drawn = [turn for turn, count in planted.blamed.items() if count == most] or turns
        lines: dict[str, tuple[float, float]] = {}
        if untouched is not None:
            lines["detection"] = higher(untouched.value - planted.value), 0.5
        if len(turns) > 1:
            lines["weakest_turn"] = (case.turn in drawn) / len(drawn), 1 / len(turns)
        if len(turns) > 1 and len(near) < len(turns):
            hits = sum(turn in near for turn in drawn)
            lines["within_one"] = hits / len(drawn), len(near) / len(turns)
        made += [
            ProbeOutcome(line=name, case=case.key, group=case.group, value=value, against=against)
            for name, (value, against) in lines.items()
        ]
    return made


def all_of_them(by_metric: Mapping[str, Mapping[str, Score]]) -> dict[str, Score]:
    """The metrics that scored a dialogue taken together, of the dialogues that all of them scored."""
    shared = set.intersection(*(set(scores) for scores in by_metric.values()))
    return {
        key: Score(
            fmean(scores[key].value for scores in by_metric.values()),
            sum((Counter(scores[key].blamed) for scores in by_metric.values()), Counter()),
        )
        for key in shared
    }


SCORE = re.compile(r'"score"\s*:\s*(?=\d)')
"""Ends where the number begins."""


def without_reason(schema: dict[str, Any]) -> dict[str, Any]:
    """Return a schema without an optional reason that comes last.

    It is written after the verdict, which is greedy, so the verdict is the same without it, and no figure reads it.
    """
    properties = schema.get("properties", {})
    last = next(reversed(properties), None)
    if last != "reason" or len(properties) < 2 or last in schema.get("required", ()):
        return schema
    kept = {name: field for name, field in properties.items() if name != last}
    return {**schema, "properties": kept, "additionalProperties": False}


def deepeval_judge(ask: Ask, max_tokens: int) -> Any:
    """A model of deepeval's that asks through `ask`, each reply held to the schema that it gives.

    Where deepeval weighs a score by its log-probabilities, it is given those of the number's first token: the reply is
    made without them, and then asked to go on where its number stands.
    """
    os.environ.setdefault("DEEPEVAL_TELEMETRY_OPT_OUT", "YES")
    from deepeval.models import DeepEvalBaseLLM

    async def replied(prompt: str, **asked: Any) -> Completion:
        message = {"role": "user", "content": prompt}
        request = Request(
            Chat((message,)), **{"max_tokens": max_tokens, **asked}, purpose="deepeval.metric"
        )
        (reply,) = await ask([request])
        if reply.fault is not None:
            raise ValueError(reply.fault.kind)
        return reply

    class Judge(DeepEvalBaseLLM):  # type: ignore[misc]
        def load_model(self) -> None:
            return None

        def get_model_name(self) -> str:
            return "the recipe's judge"

        def generate(self, *_: Any, **__: Any) -> Any:
            raise NotImplementedError

        async def a_generate(self, prompt: str, schema: Any = None) -> Any:
            bound = None if schema is None else without_reason(schema.model_json_schema())
            text = (await replied(prompt, schema=bound)).text
            return text if schema is None else schema.model_validate_json(text)

        async def a_generate_raw_response(self, prompt: str, top_logprobs: int) -> Any:
            text = (await replied(prompt)).text
            number = SCORE.search(text)
            if number is None:
                raise ValueError("no score")
            begun = text[: number.end()]
            first = await replied(prompt, max_tokens=1, prefill=begun, labels=tuple("0123456789"))
            return chat_completion(text, first.first_token[:top_logprobs]), 0.0

    return Judge()


def chat_completion(text: str, likely: Sequence[tuple[str, float]]) -> Any:
    """A reply in OpenAI's form, of whose tokens only the likeliest one of a place is known, with its alternatives."""
    tops = [SimpleNamespace(token=token, logprob=logprob) for token, logprob in likely]
    place = SimpleNamespace(token=tops[0].token, logprob=tops[0].logprob, top_logprobs=tops)
    said = SimpleNamespace(content=text)
    choice = SimpleNamespace(message=said, logprobs=SimpleNamespace(content=[place]))
    return SimpleNamespace(choices=[choice])


def deepeval_metrics(
    ask: Ask, names: Sequence[str], max_tokens: int
) -> dict[str, Callable[[], Any]]:
    """deepeval's metrics by name, asking through `ask`."""
    judge = deepeval_judge(ask, max_tokens)
    from deepeval import metrics

    kinds = {name: getattr(metrics, f"{name}Metric") for name in names}
    return {name: partial(of, model=judge, include_reason=False) for name, of in kinds.items()}


async def score(name: str, metric: Any, dialogue: Dialogue) -> Score | str:
    """What a metric says of a dialogue; why it says nothing, where it does not."""
    from deepeval.test_case import ConversationalTestCase, Turn

    if name == "RoleAdherence" and not dialogue.role_definition:
        return "no role"
    chat = chat_of(dialogue)
    case = ConversationalTestCase(
        turns=[Turn(role=role, content=text) for _, role, text in chat],
        chatbot_role=dialogue.role_definition or None,
        scenario=dialogue.scenario or None,
    )
    try:
        value = await metric.a_measure(case, _show_indicator=False)
        return Score(float(value), blamed(name, metric, [number for number, *_ in chat]))
    except (ValueError, TypeError, AttributeError, KeyError, ZeroDivisionError) as error:
        return type(error).__name__


async def ask_both(
    recipe: Recipe, cases: Sequence[ProbeCase], args: argparse.Namespace
) -> tuple[dict[str, JudgmentReading], dict[str, dict[str, Score]], Counter[str]]:
    """The judge's readings and every metric's scores by content hash, and what has none, by metric and reason."""
    end = time.monotonic() + 60 * args.minutes
    dialogues = {d.content_hash: d for case in cases for d in (case.untouched, case.planted)}
    readings: dict[str, JudgmentReading] = {}
    by_metric: dict[str, dict[str, Score]] = {name: {} for name in args.metrics}
    without: Counter[str] = Counter()
    async with (
        model_pool(recipe) as models,
        models.asking(args.replies, Accounting(), Budget()) as asks,
    ):
        stage = rubric_stage(rubric_of(recipe), models.judges, recipe.models.cascade)

        async def each(name: str, work: Callable[[Dialogue], Awaitable[str | None]]) -> None:
            for at, dialogue in enumerate(dialogues.values()):
                print(f"\r{name} {at}/{len(dialogues)}", end="", flush=True)
                reason = "no time" if time.monotonic() > end else await work(dialogue)
                if reason is not None:
                    without[f"{name}: {reason}"] += 1
            print()

        async def judge(dialogue: Dialogue) -> str | None:
            row = await stage.run(WorkItem(dialogue), asks)
            if not isinstance(row, Judgment):
                return str(row.reason)
            readings[dialogue.content_hash] = JudgmentReading.of(row)
            return None

        await each("curate", judge)
        for name, metric in deepeval_metrics(asks.judge, args.metrics, args.max_tokens).items():

            async def measure(
                dialogue: Dialogue, name: str = name, metric: Callable[[], Any] = metric
            ) -> str | None:
                said = await score(name, metric(), dialogue)
                if isinstance(said, str):
                    return said
                by_metric[name][dialogue.content_hash] = said
                return None

            await each(name, measure)
    return readings, by_metric, without


def report(
    cases: Sequence[ProbeCase],
    readings: Mapping[str, JudgmentReading],
    by_metric: Mapping[str, Mapping[str, Score]],
) -> str:
    """A row a metric and line: both sides over the cases that both have, and the difference."""
    ours = [
        held
        for held in outcomes_of(cases, (), Readings(readings, {}, {}, {}, {}))
        if held.line in LINES
    ]
    scored = {name: scores for name, scores in by_metric.items() if scores}
    if len(scored) > 1:
        scored[ALL] = all_of_them(scored)
    rows = []
    for name, scores in scored.items():
        theirs = outcomes(cases, scores)
        for line in compare_lines(ours, theirs):
            same = {held.case for held in theirs if held.line == line.name}
            chance = clustered([h for h in ours if h.line == line.name and h.case in same], "share")
            ends = (
                "too few" if line.interval is None else "{:+.2f} to {:+.2f}".format(*line.interval)
            )
            rows.append(
                (
                    name,
                    line.name.replace("_", " "),
                    f"{line.n}, {line.dialogues}",
                    f"{line.first:.2f}",
                    f"{line.second:.2f}",
                    "" if chance is None else f"{chance.against:.2f}",
                    f"{line.difference:+.2f} ({ends})",
                )
            )
    heads = ("deepeval's metric", "line", "cases, dialogues", "curate", "deepeval", "chance", "difference")  # fmt: skip
    return table(heads, rows)


def main() -> None:
    parser = planted_parser(__doc__, limit=13)
    parser.add_argument(
        "--metrics", nargs="+", choices=METRICS, default=METRICS, help="of deepeval's"
    )
    parser.add_argument("--max-tokens", type=int, default=200, help="of one of deepeval's replies")
    args = parser.parse_args()
    recipe = load_recipe(args.recipe)
    cases = draw_cases(recipe, limit=args.limit, seed=args.seed).cases
    readings, by_metric, without = asyncio.run(ask_both(recipe, cases, args))
    print(report(cases, readings, by_metric))
    for what, count in sorted(without.items()):
        print(f"without a score, {what}: {count} dialogues")


if __name__ == "__main__":
    main()
