"""What a run will ask for, before it asks: requests and tokens, scaled up from a sample.

The stage functions themselves are run on the sample, against an engine that gives the shortest valid
reply to everything, so the count follows windows, ledgers and question wordings by construction. Tokens
are characters divided by 4, a rule of thumb; retries and forks of dialogues not yet judged are not known
before the run and left out.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import orjson

from curate.dialogue import Dialogue
from curate.engines.base import Ask, Completion, Engine, Request
from curate.engines.config import EngineConfig
from curate.recipe import Recipe
from curate.steps import adherence_step, judge_step

CHARACTERS_PER_TOKEN = 4.0
SAMPLE = 50

Work = Callable[[Dialogue, Ask], Awaitable[object]]


@dataclass(frozen=True, slots=True)
class StageEstimate:
    """Expected load of one stage over the whole source."""

    requests: int
    prompt_tokens: int
    prefilled_tokens: int
    """Prompt tokens left after each request shares its start with the one before it."""
    completion_tokens: int


@dataclass(frozen=True, slots=True)
class Estimate:
    """Per stage, from `sampled` of `dialogues`."""

    dialogues: int
    sampled: int
    stages: Mapping[str, StageEstimate]
    cost: float | None


async def estimate(
    recipe: Recipe, dialogues: Iterable[Dialogue], total: int, engine: Engine
) -> Estimate:
    """Estimate a recipe's judging stages.

    Args:
        recipe: with a judge named.
        dialogues: the first `SAMPLE` of them are used.
        total: how many dialogues there are.
        engine: the opened judge; gives the capabilities that resolve the modes and is not asked.
    """
    sample = list(islice(dialogues, SAMPLE))
    scale = total / len(sample) if sample else 0.0
    stages: dict[str, StageEstimate] = {}
    works: dict[str, Work] = {}
    if recipe.judge:
        works["judge"] = judge_step(recipe.judge, engine).work
    if recipe.adherence:
        works["adherence"] = adherence_step(recipe.adherence, engine).work
    for name, work in works.items():
        meter = _Meter()
        for dialogue in sample:
            await work(dialogue, meter.ask)
        stages[name] = meter.scaled(scale)
    return Estimate(total, len(sample), stages, _cost(recipe.models.judge, stages.values()))


def _cost(config: EngineConfig | None, stages: Iterable[StageEstimate]) -> float | None:
    if config is None or config.prices is None:
        return None
    return sum(
        (config.prices.input * stage.prompt_tokens + config.prices.output * stage.completion_tokens)
        / 1e6
        for stage in stages
    )


@dataclass(slots=True)
class _Meter:
    """Answers every request with the shortest reply that is valid, and counts."""

    requests: int = 0
    prompt: int = 0
    prefilled: int = 0
    completion: int = 0
    last: str = field(default="")

    async def ask(self, requests: Sequence[Request]) -> list[Completion]:
        return [self._answer(request) for request in requests]

    def _answer(self, request: Request) -> Completion:
        text = "".join(str(message["content"]) for message in request.messages) + request.prefill
        shared = len(os.path.commonprefix((text, self.last)))  # noqa: RUF071 (characters are meant)
        self.last = text
        self.requests += 1
        self.prompt += len(text)
        self.prefilled += len(text) - shared
        if request.labels:
            self.completion += int(CHARACTERS_PER_TOKEN)
            return Completion(
                text=request.labels[0],
                first_token=tuple((label, -1.0) for label in request.labels),
            )
        if request.schema is None:
            reply = "x" * int(min(request.max_tokens, 100) * CHARACTERS_PER_TOKEN)
        else:
            reply = orjson.dumps(shortest_instance(request.schema)).decode()
        self.completion += len(reply)
        return Completion(text=reply)

    def scaled(self, factor: float) -> StageEstimate:
        def tokens(characters: int) -> int:
            return round(characters / CHARACTERS_PER_TOKEN * factor)

        return StageEstimate(
            round(self.requests * factor),
            tokens(self.prompt),
            tokens(self.prefilled),
            tokens(self.completion),
        )


def shortest_instance(schema: Mapping[str, Any]) -> Any:
    """A small value that the schema allows; covers the keywords that our own schemas use."""
    if "const" in schema:
        return schema["const"]
    if "enum" in schema:
        return schema["enum"][0]
    for union in ("anyOf", "oneOf"):
        if union in schema:
            return shortest_instance(schema[union][0])
    kind = schema.get("type")
    match kind[0] if isinstance(kind, list) else kind:
        case "object":
            properties = schema.get("properties", {})
            return {key: shortest_instance(properties[key]) for key in schema.get("required", ())}
        case "array":
            return [shortest_instance(schema["items"]) for _ in range(schema.get("minItems", 0))]
        case "integer" | "number":
            return schema.get("minimum", 0)
        case "boolean":
            return False
        case "null":
            return None
        case _:
            return "x"
