"""Tokens generated a dialogue when scores are read from the first token, beside a reply in JSON.

    python benchmarks/slot_reads.py [--json] [--dialogues 3]

The same dialogues, the same model, the same rubric in both modes, one request at a time in llama.cpp. Text (issues,
notes, the basis of the decision) is off in both for the ratio, so that it is the scores alone that are compared; what
mode `json` generates as it comes, text included, stands beside it. The agreement of the two modes says whether the cheaper
reading says the same; with a model this small neither says much.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from typing import Literal

from material import MODEL, ROOT, Capture, figure, parser, report, small_gguf

from curate.dialogue import Dialogue
from curate.engines.base import Engine
from curate.engines.config import LlamaCppConfig
from curate.engines.model_pool import Asks
from curate.engines.open import open_engine
from curate.judging.config import RubricConfig
from curate.records import TURN_DIMENSIONS, Judgment
from curate.sources import open_source
from curate.sources.config import SourceConfig
from curate.stages import WorkItem, judge_stage

SAMPLE = ROOT / "recipes" / "sample" / "support.jsonl"


@dataclass
class Outcome:
    """What a mode came to over all dialogues."""

    judgments: dict[str, Judgment] = field(default_factory=dict)
    requests: int = 0
    prefilled: int = 0
    generated: int = 0
    seconds: float = 0.0


async def judge(
    engine: Engine,
    dialogues: list[Dialogue],
    mode: Literal["json", "tokens"],
    text: Literal["off", "all"],
) -> Outcome:
    """Judge all dialogues in one mode."""
    step = judge_stage(RubricConfig(mode=mode, text=text), engine)
    outcome = Outcome()
    for dialogue in dialogues:
        capture = Capture(engine)
        started = time.perf_counter()
        record = await step.run(WorkItem(dialogue), Asks.of(capture))
        outcome.seconds += time.perf_counter() - started
        if isinstance(record, Judgment):
            outcome.judgments[dialogue.id] = record
        for _, reply in capture.calls:
            outcome.requests += 1
            outcome.prefilled += reply.usage.prompt_tokens - reply.usage.cached_tokens
            outcome.generated += reply.usage.completion_tokens
    return outcome


def agreement(first: Outcome, second: Outcome) -> tuple[float, float, int]:
    """Of dialogues both modes scored: share of equal turn scores, mean distance, and how many scores."""
    pairs: list[tuple[int, int]] = []
    for key in first.judgments.keys() & second.judgments.keys():
        for one, other in zip(
            first.judgments[key].per_turn, second.judgments[key].per_turn, strict=True
        ):
            pairs += [
                (getattr(one.scores, name), getattr(other.scores, name)) for name in TURN_DIMENSIONS
            ]
    if not pairs:
        return 0.0, 0.0, 0
    equal = sum(one == other for one, other in pairs) / len(pairs)
    return equal, sum(abs(one - other) for one, other in pairs) / len(pairs), len(pairs)


async def measure(number: int) -> list[dict[str, object]]:
    source = open_source(SourceConfig(path=str(SAMPLE)))
    dialogues = [dialogue for unit in source.read() for dialogue in unit.dialogues][:number]
    engine = await open_engine(LlamaCppConfig(model=str(small_gguf()), context=8192))
    try:
        tokens = await judge(engine, dialogues, "tokens", "off")
        bare = await judge(engine, dialogues, "json", "off")
        whole = await judge(engine, dialogues, "json", "all")
    finally:
        await engine.close()
    ratio = bare.generated / tokens.generated
    equal, distance, scores = agreement(tokens, bare)

    def each(outcome: Outcome) -> str:
        return (
            f"{outcome.generated / number:.0f} generated, {outcome.prefilled / number:,.0f} prefilled, "
            f"{outcome.requests / number:.0f} requests, {outcome.seconds / number:.1f} s a dialogue, "
            f"{len(outcome.judgments)} of {number} scored"
        )

    return [
        figure(
            "tokens generated, json / tokens, scores only",
            ratio,
            unit="x",
            target=">= 5x",
            met=ratio >= 5,
            beside=f"tokens: {each(tokens)}; json: {each(bare)}",
        ),
        figure(
            "tokens generated, json with text / tokens",
            whole.generated / tokens.generated,
            unit="x",
            beside=f"json with text: {each(whole)}",
        ),
        figure(
            "wall time, json / tokens, scores only",
            bare.seconds / tokens.seconds,
            unit="x",
            target=">= 1",
            met=tokens.seconds <= bare.seconds,
            beside="both with the prefix cache",
        ),
        figure(
            "equal turn scores in both modes",
            equal,
            beside=f"{scores} scores, {distance:.2f} points apart in the mean",
        ),
    ]


def main() -> None:
    arguments = parser(__doc__)
    arguments.add_argument("--dialogues", type=int, default=3)
    given = arguments.parse_args()
    rows = asyncio.run(measure(given.dialogues))
    how = (
        f"The first {given.dialogues} dialogues of recipes/sample/support.jsonl, {MODEL} in llama.cpp, one "
        "request at a time. A repeated reply (a bad one asked again) counts. Agreement with people is another "
        "matter: see docs/judging.md."
    )
    report(2, "Slot reads instead of JSON decoding", rows, how, as_json=given.json)


if __name__ == "__main__":
    main()
