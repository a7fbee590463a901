"""A judge's rate in tokens a second: as given, of an earlier run, or measured with a few calls."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Sequence
from dataclasses import astuple, dataclass, replace

from curate.dialogue import Dialogue
from curate.engines.base import Engine, Request, Usage
from curate.engines.layout import Trunk
from curate.engines.model_pool import ModelPool
from curate.engines.stand_in import plain_text
from curate.errors import EngineError, UsageError
from curate.recipe import Recipe
from curate.records import SCORING, Manifest, Rates
from curate.stages import bind_stages

_COUNTED = 64
_COUNT = "Count from 1 to 200, in figures separated by commas. Write nothing else."


def parse_rates(text: str) -> Rates:
    """Parse rates like `prefill=2000,decode=80`, in tokens a second.

    Raises:
        UsageError: anything else.
    """
    try:
        parts = dict(part.split("=", 1) for part in text.split(","))
        values = {key.strip(): float(value) for key, value in parts.items()}
    except ValueError:
        values = {}
    if values.keys() != {"prefill", "decode"} or not all(value > 0 for value in values.values()):
        raise UsageError(
            "the rates cannot be read",
            got=text,
            expected="prefill=2000,decode=80 (tokens per second)",
        )
    source = "rates as given: {prefill:g} tokens/s prefilled, {decode:g} generated".format(**values)
    return Rates(**values, source=source)


def rates_of(manifest: Manifest, name: str) -> Rates | None:
    """Return one rate for all tokens that an earlier run prefilled and generated; None if it made no calls.

    A manifest knows the time of a stage, not what of it went into which kind of token. For a recipe of
    the same modes the mixture is the same, and so is the rate.
    """
    stages = {
        stage: counts for stage, counts in manifest.stages.items() if counts.requests_sent > 0
    }
    seconds = sum(manifest.seconds_by_stage.get(stage, 0.0) for stage in stages)
    done = sum(
        counts.prompt_tokens - counts.cached_tokens + counts.completion_tokens
        for counts in stages.values()
    )
    if not done or seconds <= 0:
        return None
    rate = done / seconds
    source = f"{rate:,.0f} tokens/s, prefilled and generated together, as in {name}"
    return Rates(prefill=rate, decode=rate, source=source)


@dataclass(frozen=True, slots=True)
class MeasuredRates:
    """Rates measured by real calls, and what these calls took."""

    rates: Rates
    calls: int
    usage: Usage


async def measure_rates(
    recipe: Recipe, sample: Sequence[Dialogue], engine: Engine
) -> MeasuredRates:
    """Measure rates by a few real questions to the judge, as many at once as a run would send (2 to 8).

    First the longest prompt of each dialogue, for one token, which is all prefill. Then as many short
    prompts that call for a long reply.

    Args:
        recipe: says what the prompts are.
        sample: dialogues; as many are used as are asked at once.
        engine: the opened judge.

    Raises:
        EngineError: a call failed, or the engine reports no token counts.
    """
    number = min(max(2, min(engine.open_dialogues, 8)), len(sample))
    prompts = [_longest_prompt(recipe, dialogue, engine) for dialogue in sample[:number]]
    first = [replace(prompt, max_tokens=1, schema=None) for prompt in prompts]
    more = [Request(Trunk(_COUNT), max_tokens=_COUNTED, sample=index) for index in range(number)]
    filled, prefill_seconds = await _timed(engine, first)
    decoded, decode_seconds = await _timed(engine, more)
    done, out = filled.prompt_tokens - filled.cached_tokens, decoded.completion_tokens
    if not done or not out:
        raise EngineError(
            "the rates cannot be measured",
            got="an engine that reports no token counts",
            fix="give them with --rate prefill=...,decode=...",
        )
    prefill, decode = done / prefill_seconds, out / decode_seconds
    source = (
        f"measured with {2 * number} calls: {prefill:,.0f} tokens/s prefilled, "
        f"{decode:,.0f} generated"
    )
    rates = Rates(prefill=prefill, decode=decode, source=source)
    return MeasuredRates(rates, 2 * number, _summed([filled, decoded]))


def _longest_prompt(recipe: Recipe, dialogue: Dialogue, engine: Engine) -> Request:
    stages = bind_stages(recipe, ModelPool(engine))
    requests = [
        call.request
        for stage in stages
        if stage.name in SCORING
        for call in stage.expected_load(dialogue)
        if not call.request.tools
    ]
    if not requests:
        raise UsageError(
            "the rates cannot be measured",
            got=f"dialogue {dialogue.id}, for which no model is called",
            expected="dialogues with a scenario or a role",
        )
    return max(requests, key=lambda request: len(plain_text(request)))


async def _timed(engine: Engine, requests: Sequence[Request]) -> tuple[Usage, float]:
    started = time.perf_counter()
    replies = await asyncio.gather(*(engine.complete([request]) for request in requests))
    seconds = time.perf_counter() - started
    for [completion] in replies:
        if completion.fault is not None:
            raise EngineError(
                "a call to measure the rates failed",
                got=f"{completion.fault.kind}: {completion.fault.detail}",
                fix="give the rates with --rate prefill=...,decode=...",
            )
    return _summed(completion.usage for [completion] in replies), seconds


def _summed(usages: Iterable[Usage]) -> Usage:
    return Usage(*map(sum, zip(*map(astuple, usages), strict=True)))
