"""Estimate what a run will ask for: requests, tokens, time and money, scaled up from a sample.

Each stage says what it is expected to ask about a dialogue (`Stage.expected_load`); that is counted over a sample
drawn evenly from the whole source (`Reservoir`). The spread over the sample gives a 95 % interval
of each total: mean +- t * s / sqrt(n), with the correction for a finite source. The interval is of the
sampling alone; what is assumed beside it is listed in `Estimate.assumptions`.
"""

from __future__ import annotations

import math
import random
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import fmean, stdev
from typing import Any, Protocol

import polars as pl

from curate.dialogue import Dialogue
from curate.engines.accounting import cost_of
from curate.engines.base import Completion, EngineIdentity, Request, Usage
from curate.engines.cache import ReplyCache
from curate.engines.model_pool import Described, ModelsByRole
from curate.engines.redaction import Redact, redact_request, redactor
from curate.engines.stand_in import FREE_REPLY_TOKENS, Expected, LookUp, nothing_kept
from curate.planning.metering import Load, Meter, TokenCounter, sum_loads, token_counter
from curate.recipe import Recipe
from curate.records import (
    Estimate,
    Rates,
    StageEstimate,
    StageName,
)
from curate.stages import Stage, bind_stages
from curate.statistics import student_t

SAMPLE = 50
"""Dialogues that an estimate is made from."""

_COLUMNS = ("requests", "prompt_tokens", "prefilled_tokens", "completion_tokens")
"""Fields of a stage's estimate, in the order of those of a `Load`."""

Loads = Mapping[str, Load]
"""What one dialogue asks in one stage, by model role."""


class Reservoir:
    """An even sample of a stream of dialogues of unknown length (Vitter's algorithm R).

    Every dialogue has the same chance; the seed is fixed, so the same source gives the same sample.
    """

    def __init__(self, size: int | None = None) -> None:
        self.size = size or SAMPLE
        self.seen = 0
        self.dialogues: list[Dialogue] = []
        self._random = random.Random(0)

    def add(self, dialogue: Dialogue) -> None:
        """Take a dialogue into the sample, or skip it."""
        self.seen += 1
        if len(self.dialogues) < self.size:
            self.dialogues.append(dialogue)
        elif (place := self._random.randrange(self.seen)) < self.size:
            self.dialogues[place] = dialogue


@dataclass(frozen=True, slots=True)
class AssumedShare:
    """Number of rows for each dialogue (forks, or natural pairs to verify), and where it is known from."""

    value: float
    source: str


FORK_SHARE = AssumedShare(0.25, "assumed; no earlier run tells")
PAIR_SHARE = AssumedShare(0.5, "assumed, as chosen/rejected rows give them; no earlier run tells")


@dataclass(frozen=True, slots=True)
class Owed:
    """The rows of a stage that are still to be made.

    Attributes:
        count: how many rows; a fraction where a share is assumed.
        missing: content hashes of the dialogues that have none, where a row is a dialogue's.
    """

    count: float
    missing: pl.Series


class Kept(Protocol):
    """The rows and replies that are there before a run starts; see `curate.run.rows_left.KeptRows`."""

    @property
    def replies(self) -> Path | None:
        """Return the kept replies; None if there are none."""
        ...

    def owed(self, stage: StageName, fingerprint: str) -> Owed:
        """Return the part of a stage, by its fingerprint, that has no row yet."""
        ...


def estimate(
    recipe: Recipe,
    sample: Sequence[Dialogue],
    total: int,
    models: ModelsByRole,
    *,
    rates: Rates | None = None,
    fork_share: AssumedShare = FORK_SHARE,
    pair_share: AssumedShare = PAIR_SHARE,
) -> Estimate:
    """Estimate the stages that ask models.

    Args:
        recipe: with a judge named.
        sample: drawn evenly from the source.
        total: how many dialogues there are.
        models: opened, or what is known of them; give the capabilities that resolve the modes, and are not asked.
        rates: tokens a second; without them there is no time.
        fork_share: share of the dialogues that are forked, if the recipe forks.
        pair_share: natural pairs to verify for each dialogue, if the recipe verifies them.
    """
    counter = token_counter(models.judge)
    persona = min(1.0, recipe.judge.persona_check / total) if recipe.judge and total else 0.0
    shares = {
        StageName.PERSONA: persona,
        StageName.FORK: fork_share.value,
        StageName.NATURAL: pair_share.value,
    }
    assumptions = [f"tokens are counted by {counter.described}"]
    stages: dict[str, list[Loads]] = {}
    for stage in bind_stages(recipe, models):
        share = shares.get(stage.name, 1.0)
        stages[stage.name.value] = [
            {role: load.times(share) for role, load in loads.items()}
            for loads in _loads(stage, sample, counter)
        ]
    if StageName.FORK in stages:
        assumptions.append(
            f"{fork_share.value:.0%} of the dialogues are forked ({fork_share.source})"
        )
        assumptions.append(
            "of a fork's candidates each is scored and compared, the best two with each other, and one passes"
        )
    if StageName.NATURAL in stages:
        assumptions.append(
            f"{pair_share.value:.2f} natural pairs a dialogue are verified ({pair_share.source}), each to the end"
        )
    cascade = recipe.models.cascade
    if recipe.judge and cascade is not None:
        source = "by its fit" if cascade.fit else "no fit says how many"
        assumptions.append(
            f"the cascade's second judge is asked about {cascade.expected_share:.0%} of the dialogues ({source}), and "
            "alone for whatever else is scored: a cascade divides the rubric"
        )
    if recipe.judge and recipe.judge.text == "auto":
        assumptions.append("words are asked for about every dialogue, as if none were excellent")
    assumptions.append(
        f"replies in words take {FREE_REPLY_TOKENS} tokens, or their limit; no call is repeated"
    )
    return _scaled_up(recipe, stages, len(sample), total, rates, assumptions)


def estimate_left(
    recipe: Recipe,
    sample: Sequence[Dialogue],
    total: int,
    models: ModelsByRole,
    kept_rows: Kept,
    *,
    rates: Rates | None = None,
) -> Estimate:
    """Estimate what is left to do: the rows that are missing, without the calls whose replies are kept.

    How many rows that is, is counted; what one of them asks is measured on those of the sample that are among
    them, or on all of it. Replies kept for a fork or a natural pair without a row are not taken off.

    Args:
        kept_rows: the rows and replies that there are.
        models: opened, or what is known of them, in each role; not asked.

    The other arguments are as for `estimate`.
    """
    parts = _parts_left(recipe, sample, models, kept_rows)
    stages = {
        name: scale.stage([sum_loads(of.values()) for of in loads])
        for name, (scale, loads) in parts.items()
    }

    def over_stages(with_cache: bool) -> float | None:
        if not any(recipe.prices.values()):
            return None
        return sum(
            scale.total(_costs(recipe, {name: loads}, len(loads), with_cache=with_cache))
            for name, (scale, loads) in parts.items()
        )

    whole = StageEstimate(
        **{name: sum(getattr(stage, name) for stage in stages.values()) for name in _COLUMNS}
    )
    seconds = None
    if rates is not None:
        seconds = rates.seconds(whole.prefilled_tokens, whole.completion_tokens)
    return Estimate(
        dialogues=total,
        sampled=len(sample),
        stages=stages,
        total=whole,
        rates=rates,
        seconds=seconds,
        cost=over_stages(with_cache=True),
        cost_without_cache=over_stages(with_cache=False),
        unpriced=recipe.unpriced,
    )


def _parts_left(
    recipe: Recipe, sample: Sequence[Dialogue], models: ModelsByRole, kept_rows: Kept
) -> dict[str, tuple[_Scale, list[Loads]]]:
    """Return by stage what dialogues without a row ask, and how it scales up to all missing rows."""
    counter = token_counter(models.judge)
    parts = {}
    with ExitStack() as opened:
        look_up = nothing_kept
        if kept_rows.replies is not None:
            cache = opened.enter_context(ReplyCache(kept_rows.replies))
            look_up = partial(_kept_reply, cache, _senders(recipe, models))
        for stage in bind_stages(recipe, models):
            owed = kept_rows.owed(stage.name, stage.fingerprint)
            missing = frozenset(
                owed.missing.filter(owed.missing.is_in([d.content_hash for d in sample]))
            )
            some = [dialogue for dialogue in sample if dialogue.content_hash in missing] or sample
            loads = _loads(stage, some, counter, look_up) if owed.count else []
            parts[stage.name.value] = _Scale(len(loads), owed.count), loads
    return parts


def _scaled_up(
    recipe: Recipe,
    stages: Mapping[str, list[Loads]],
    sampled: int,
    total: int,
    rates: Rates | None,
    assumptions: list[str],
) -> Estimate:
    each = [
        [sum_loads(loads.values()) for loads in per_dialogue] for per_dialogue in stages.values()
    ]
    whole = [sum_loads(loads) for loads in zip(*each, strict=True)]
    scale = _Scale(sampled, total)
    cached, uncached = (
        _costs(recipe, stages, sampled, with_cache=with_cache) for with_cache in (True, False)
    )
    seconds = None
    if rates is not None:
        assumptions.append(f"{rates.source}; the machine does nothing else")
        seconds = [rates.seconds(load.prefilled, load.completion) for load in whole]
    return Estimate(
        dialogues=total,
        sampled=sampled,
        stages={
            name: scale.stage(loads) for name, loads in zip(stages, each, strict=True) if loads
        },
        total=scale.stage(whole),
        rates=rates,
        seconds=scale.total(seconds) if seconds else None,
        seconds_interval=scale.interval(seconds) if seconds else None,
        cost=scale.total(cached) if cached else None,
        cost_interval=scale.interval(cached) if cached else None,
        cost_without_cache=scale.total(uncached) if uncached else None,
        unpriced=recipe.unpriced,
        assumptions=tuple(assumptions),
    )


@dataclass(frozen=True, slots=True)
class _Scale:
    """Scales values of sampled dialogues up to the total over the source, with its 95 % interval."""

    sampled: int
    total_dialogues: float

    def total(self, values: Sequence[float]) -> float:
        return fmean(values) * self.total_dialogues if values else 0.0

    def interval(self, values: Sequence[float]) -> tuple[float, float]:
        middle = self.total(values)
        if len(values) < 2 or self.sampled >= self.total_dialogues:
            return middle, middle
        unseen = 1 - self.sampled / self.total_dialogues
        half = student_t(len(values) - 1) * stdev(values) * math.sqrt(unseen / len(values))
        half *= self.total_dialogues
        # What the sample itself asks is certain.
        return max(sum(values), middle - half), middle + half

    def stage(self, loads: Sequence[Load]) -> StageEstimate:
        columns = {name: [load[at] for load in loads] for at, name in enumerate(_COLUMNS)}
        return StageEstimate(
            **{name: round(self.total(values)) for name, values in columns.items()},
            intervals={
                name: tuple(round(end) for end in self.interval(values))
                for name, values in columns.items()
            },
        )


def _loads(
    stage: Stage[Any],
    sample: Sequence[Dialogue],
    counter: TokenCounter,
    look_up: LookUp = nothing_kept,
) -> list[Loads]:
    """Return the calls of each dialogue in a stage. What all dialogues share is in the cache from the start."""
    meters: dict[str, Meter] = defaultdict(lambda: Meter(counter))
    loads: list[Loads] = []
    for at, dialogue in enumerate([*sample[-1:], *sample]):
        calls: dict[str, list[Expected]] = defaultdict(list)
        for call in stage.expected_load(dialogue, at=at, look_up=look_up):
            calls[call.role].append(call)
        loads.append({role: meters[role].load(role_calls) for role, role_calls in calls.items()})
    return loads[1:]


_Senders = Mapping[str, tuple[EngineIdentity, Redact | None]]
"""By role the model that is asked, and what is removed from what is sent to it."""


def _senders(recipe: Recipe, models: ModelsByRole) -> _Senders:
    judges: Sequence[Described] = models.judges
    by_role = dict(zip(recipe.models.judges_by_role, judges, strict=True))
    by_role |= {"judge": models.judge, "metrics": models.metrics}

    def redaction(role: str) -> Redact | None:
        config = recipe.models.of_role(role)
        return redactor(recipe.redact) if config is not None and config.is_hosted else None

    return {role: (model.identity, redaction(role)) for role, model in by_role.items()}


def _kept_reply(
    cache: ReplyCache,
    by_role: _Senders,
    role: str,
    request: Request,
) -> tuple[Request, Completion | None]:
    """Return a request as it is sent to the model of a role, and its kept reply."""
    identity, redact = by_role[role]
    if redact is not None:
        request = redact_request(request, redact)
    key = request.key(identity)
    return request, cache.get_many([key]).get(key)


def _costs(
    recipe: Recipe, stages: Mapping[str, list[Loads]], sampled: int, *, with_cache: bool
) -> list[float]:
    """Return the cost of each sampled dialogue over all stages, of models with prices; empty if none has."""
    prices_by_role = recipe.prices
    if not any(prices_by_role.values()):
        return []
    costs = [0.0] * sampled
    for per_dialogue in stages.values():
        for index, loads in enumerate(per_dialogue):
            for role, load in loads.items():
                prices = prices_by_role.get(role)
                if prices is None:
                    continue
                usage = Usage(
                    prompt_tokens=round(load.prompt * 1000),
                    cached_tokens=round((load.prompt - load.prefilled) * 1000) * with_cache,
                    completion_tokens=round(load.completion * 1000),
                )
                costs[index] += cost_of(usage, prices) / 1000
    return costs
