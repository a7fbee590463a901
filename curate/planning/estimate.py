"""What a run will ask for, before it asks: requests, tokens, time and money, scaled up from a sample.

The stage functions themselves are run over a sample drawn evenly from the whole source (`Reservoir`)
against `metering.Meter`, which answers at once and counts. The spread over the sample gives a 95 % interval
of each total: mean +- t * s / sqrt(n), with the correction for a finite source. The interval is of the
sampling alone; what is assumed beside it is listed in `Estimate.assumptions`.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import fmean, stdev
from typing import Protocol

import polars as pl

from curate.dialogue import Dialogue
from curate.engines.accounting import Accounting, Budget, cost_of
from curate.engines.base import Ask, Capability, Completion, EngineIdentity, Request, Usage
from curate.engines.cache import ReplyCache
from curate.errors import CurateError
from curate.models import Asks, ForkModels, ModelFacts
from curate.pairs.config import ForkConfig
from curate.pairs.prefix import with_messages
from curate.planning.metering import (
    FREE_REPLY_TOKENS,
    Load,
    Meter,
    TokenCounter,
    plain_text,
    token_counter,
)
from curate.recipe import Recipe
from curate.records import (
    Estimate,
    Judgment,
    PreferencePair,
    Rates,
    RubricScores,
    StageEstimate,
)
from curate.run.read_back import last_manifest
from curate.selection.rules import matches
from curate.statistics import student_t
from curate.steps import NaturalWork, adherence_step, fork_step, judge_step, natural_step
from curate.storage.files import readable

SAMPLE = 50
ASSUMED_FORK_SHARE = 0.25
"""Share of dialogues that are forked, where no earlier run tells."""
_MARK = "granted"
"""Tells the side that is to win, where a pair is made up."""

Loads = Mapping[str, Load]
"""What one dialogue asks in one stage, by model role."""


class Reservoir:
    """An even sample of dialogues of which the number is not known yet (Vitter's algorithm R).

    Every dialogue has the same chance; the seed is fixed, so the same source gives the same sample.
    """

    def __init__(self, size: int = SAMPLE) -> None:
        self.size = size
        self.seen = 0
        self.kept: list[Dialogue] = []
        self._random = random.Random(0)

    def add(self, dialogue: Dialogue) -> None:
        """Take a dialogue, or pass it over."""
        self.seen += 1
        if len(self.kept) < self.size:
            self.kept.append(dialogue)
        elif (place := self._random.randrange(self.seen)) < self.size:
            self.kept[place] = dialogue


@dataclass(frozen=True, slots=True)
class ForkShare:
    """Share of the dialogues that are forked, in [0, 1], and where that is known from."""

    value: float = ASSUMED_FORK_SHARE
    source: str = "assumed; no earlier run tells"


@dataclass(frozen=True, slots=True)
class PairShare:
    """Natural pairs to verify for each dialogue, and where that is known from."""

    value: float = 0.5
    source: str = "assumed, as chosen/rejected rows give them; no earlier run tells"


def last_pair_share(folder: Path) -> PairShare:
    """The share that the last run of a folder verified."""
    manifest = last_manifest(folder)
    natural = None if manifest is None else manifest.stages.get("natural")
    if manifest is None or natural is None or not manifest.dialogues:
        return PairShare()
    return PairShare(natural.rows / manifest.dialogues, f"as in the last run of {folder}")


def last_fork_share(recipe: Recipe, folder: Path) -> ForkShare:
    """The share of dialogues that `fork.where` admits in the scores an earlier run left in the folder."""
    scores = folder / "scores.parquet"
    if not recipe.fork or not scores.is_file():
        return ForkShare()
    try:
        with readable(scores):
            table = pl.read_parquet(scores)
    except CurateError:
        return ForkShare(source=f"assumed; {scores} is damaged, and is made anew by a run")
    if not len(table):
        return ForkShare()
    admitted = matches(table, recipe.fork.where)
    share = table["content_hash"].is_in(list(admitted)).mean()
    return ForkShare(float(share), f"as in the last scores of {folder}")  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True)
class Owed:
    """What of a stage has no row yet.

    Attributes:
        count: how many rows; a fraction where a share is assumed.
        missing: content hashes of the dialogues that have none, where a row is a dialogue's.
    """

    count: float
    missing: pl.Series


class Kept(Protocol):
    """What is there before a run starts; `curate.run.owed.KeptRows`."""

    @property
    def replies(self) -> Path | None:
        """The kept replies; None where there are none."""
        ...

    def owed(self, stage: str, print_: str) -> Owed:
        """What of a stage, by its fingerprint, has no row yet."""
        ...


async def estimate(
    recipe: Recipe,
    sample: Sequence[Dialogue],
    total: int,
    models: ForkModels | ModelFacts,
    *,
    rates: Rates | None = None,
    fork_share: ForkShare | None = None,
    pair_share: PairShare | None = None,
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
    fork_share, pair_share = fork_share or ForkShare(), pair_share or PairShare()
    shares = {"fork": fork_share.value, "natural": pair_share.value}
    assumptions = [f"tokens are counted by {counter.described}"]
    stages: dict[str, list[Loads]] = {}
    for stage in _stages(recipe, models, counter):
        loads = await stage.measure(sample)
        share = shares.get(stage.name, 1.0)
        stages[stage.name] = [
            {role: load.times(share) for role, load in of.items()} for of in loads
        ]
    if "fork" in stages:
        assumptions.append(
            f"{fork_share.value:.0%} of the dialogues are forked ({fork_share.source})"
        )
        assumptions.append(
            "of a fork's candidates each is scored and compared, the best two with each other, and one passes"
        )
    if "natural" in stages:
        assumptions.append(
            f"{pair_share.value:.2f} natural pairs a dialogue are verified ({pair_share.source}), each to the end"
        )
    assumptions.append(
        f"replies in words take {FREE_REPLY_TOKENS} tokens, or their limit; no call is repeated"
    )
    return _scaled_up(recipe, stages, len(sample), total, rates, assumptions)


async def estimate_left(
    recipe: Recipe,
    sample: Sequence[Dialogue],
    total: int,
    models: ForkModels | ModelFacts,
    kept: Kept,
    *,
    rates: Rates | None = None,
) -> Estimate:
    """Estimate what of it is left to do: the rows that are not there, without the calls whose replies are kept.

    How many rows that is, is counted; what one of them asks is measured on those of the sample that are among
    them, or on all of it. Replies kept for a fork or a natural pair without a row are not taken off.

    Args:
        kept: tells what is there.
        models: opened, or what is known of them, in each role; not asked.

    The other arguments are as for `estimate`.
    """
    counter = token_counter(models.judge)
    parts: dict[str, tuple[_Scale, list[Loads]]] = {}
    with ExitStack() as opened:
        found = None if kept.replies is None else opened.enter_context(ReplyCache(kept.replies))
        for stage in _stages(recipe, models, counter, found):
            owed = kept.owed(stage.name, stage.print_)
            missing = frozenset(
                owed.missing.filter(owed.missing.is_in([d.content_hash for d in sample]))
            )
            some = [dialogue for dialogue in sample if dialogue.content_hash in missing] or sample
            loads = await stage.measure(some) if owed.count else []
            parts[stage.name] = _Scale(len(loads), owed.count), loads
    stages = {
        name: scale.stage([sum(of.values(), Load()) for of in loads])
        for name, (scale, loads) in parts.items()
    }

    def over_stages(with_cache: bool) -> float | None:
        if not any(recipe.prices.values()):
            return None
        return sum(
            scale.total(_costs(recipe, {name: loads}, len(loads), with_cache=with_cache))
            for name, (scale, loads) in parts.items()
        )

    columns = ("requests", "prompt_tokens", "prefilled_tokens", "completion_tokens")
    whole = StageEstimate(
        **{name: sum(getattr(stage, name) for stage in stages.values()) for name in columns}
    )
    seconds = None
    if rates is not None:
        seconds = whole.prefilled_tokens / rates.prefill + whole.completion_tokens / rates.decode
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


@dataclass(frozen=True, slots=True)
class _Stage:
    """A stage that asks: its name, its fingerprint, and what each of some dialogues asks in it."""

    name: str
    print_: str
    measure: Callable[[Sequence[Dialogue]], Awaitable[list[Loads]]]


def _stages(
    recipe: Recipe,
    models: ForkModels | ModelFacts,
    counter: TokenCounter,
    kept: ReplyCache | None = None,
) -> Iterator[_Stage]:
    """The stages that ask models, in order; with `kept` replies, those of judge and adherence are not counted."""
    judged = judge_step(recipe.judge, models.judge) if recipe.judge else None
    ask_first = None if kept is None else partial(_kept_first, recipe, models, kept)
    if judged is not None:
        measure = partial(_loads, work=judged.work, counter=counter, ask_first=ask_first)
        yield _Stage("judge", judged.fingerprint, measure)
    if recipe.judged_adherence:
        step = adherence_step(recipe.judged_adherence, models.judge)
        measure = partial(_loads, work=step.work, counter=counter, ask_first=ask_first)
        yield _Stage("adherence", step.fingerprint, measure)
    if recipe.fork and recipe.judge and judged is not None:
        _, print_ = fork_step(recipe.fork, recipe.judge, judged, models, recipe.judged_adherence)
        # The stand-in calls no tools, so a fork at a call would find no candidate.
        config = recipe.fork.model_copy(update={"tool_turns": "last_text"})
        work, _ = fork_step(config, recipe.judge, judged, models, recipe.judged_adherence)

        async def fork(dialogue: Dialogue, at: int, meters: Mapping[str, Meter]) -> None:
            found = await judged.work(dialogue, Meter(counter))
            if isinstance(found, Judgment) and found.per_turn:
                await work(dialogue, _flawed(found, at, config), *meters.values())

        forks = partial(_fork_loads, fork=fork, config=config, counter=counter)
        yield _Stage("fork", print_, forks)
    if recipe.natural.verification is not None:
        verify, print_ = natural_step(
            recipe.natural, recipe.judge, models.judge, recipe.judged_adherence
        )
        pairs = partial(_verify_loads, verify=verify, counter=counter)
        yield _Stage("natural", print_, pairs)


def _scaled_up(
    recipe: Recipe,
    stages: Mapping[str, list[Loads]],
    sampled: int,
    total: int,
    rates: Rates | None,
    assumptions: list[str],
) -> Estimate:
    each = [
        [sum(loads.values(), Load()) for loads in per_dialogue] for per_dialogue in stages.values()
    ]
    whole = [sum(loads, Load()) for loads in zip(*each, strict=True)]
    scale = _Scale(sampled, total)
    cached, uncached = (
        _costs(recipe, stages, sampled, with_cache=with_cache) for with_cache in (True, False)
    )
    seconds = None
    if rates is not None:
        assumptions.append(f"{rates.source}; the machine does nothing else")
        seconds = [
            load.prefilled / rates.prefill + load.completion / rates.decode for load in whole
        ]
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
    """From a value a sampled dialogue to the total over the source, with its 95 % interval."""

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
        columns = {
            "requests": [load.requests for load in loads],
            "prompt_tokens": [load.prompt for load in loads],
            "prefilled_tokens": [load.prefilled for load in loads],
            "completion_tokens": [load.completion for load in loads],
        }
        return StageEstimate(
            **{name: round(self.total(values)) for name, values in columns.items()},
            intervals={
                name: tuple(round(end) for end in self.interval(values))
                for name, values in columns.items()
            },
        )


async def _loads(
    sample: Sequence[Dialogue],
    work: Callable[[Dialogue, Ask], Awaitable[object]],
    counter: TokenCounter,
    ask_first: Callable[[Meter], Ask] | None = None,
) -> list[Loads]:
    """The judge's load a dialogue. What all dialogues share is in the cache from the start.

    Args:
        ask_first: who is asked before the meter is, if anybody.
    """
    meter = Meter(counter)
    ask: Ask = meter if ask_first is None else ask_first(meter)
    loads: list[Loads] = []
    for dialogue in [*sample[-1:], *sample]:
        await work(dialogue, ask)
        loads.append({"judge": meter.take()})
    return loads[1:]


def _kept_first(
    recipe: Recipe, models: ForkModels | ModelFacts, kept: ReplyCache, meter: Meter
) -> Ask:
    """The judge as a run asks it, kept replies first; but what they do not hold is put to the meter."""
    engine = _Metered(models.judge.identity, meter)
    roles = ForkModels(engine, engine, engine)
    return Asks(recipe, roles, _Unchanged(kept), Accounting(), Budget()).judge


@dataclass(frozen=True, slots=True)
class _Metered:
    """A meter in the place of an engine."""

    identity: EngineIdentity
    meter: Meter
    capabilities: frozenset[Capability] = frozenset()
    open_dialogues: int = 1
    context_tokens: int | None = None

    async def complete(self, requests: Sequence[Request]) -> list[Completion]:
        return await self.meter(requests)

    async def close(self) -> None:
        return None


@dataclass(frozen=True, slots=True)
class _Unchanged:
    """Kept replies that a stand-in's are not added to."""

    kept: ReplyCache

    def get_many(self, keys: Sequence[str]) -> dict[str, Completion]:
        return self.kept.get_many(keys)

    def put(self, *_: object) -> None:
        return None


async def _fork_loads(
    sample: Sequence[Dialogue],
    fork: Callable[[Dialogue, int, Mapping[str, Meter]], Awaitable[None]],
    config: ForkConfig,
    counter: TokenCounter,
) -> list[Loads]:
    """What each role is asked when the original is bad and every candidate good; with `early_stop` only the last."""
    meters = {role: Meter(counter) for role in ("judge", "policy", "reviser")}
    judge, is_mended = meters["judge"], False
    asked: Counter[str] = Counter()
    losing = (config.resamples + config.guided_revision - 1) * config.early_stop

    def mend(_: Request) -> None:
        nonlocal is_mended
        is_mended = True

    def steer(request: Request) -> None:
        judge.scores_high = is_mended
        step = request.purpose.removeprefix("fork.")
        if step in ("compare", "suffices"):
            # What is to win is the first letter of the first order, and the last of the second.
            asked[step] += 1
            wins = step == "suffices" or asked[step] > 2 * losing
            judge.scores_high = (asked[step] % 2 == 1) != wins

    meters["policy"].on_request = meters["reviser"].on_request = mend
    judge.on_request = steer
    loads: list[Loads] = []
    for at, dialogue in enumerate([*sample[-1:], *sample]):
        is_mended = False
        asked.clear()
        await fork(dialogue, at, meters)
        loads.append({role: meter.take() for role, meter in meters.items()})
    return loads[1:]


async def _verify_loads(
    sample: Sequence[Dialogue], verify: NaturalWork, counter: TokenCounter
) -> list[Loads]:
    """The judge's load for a pair like the last answer of each dialogue, when the pair passes."""
    judge, compared = Meter(counter), 0

    def side_with_chosen(request: Request) -> None:
        nonlocal compared
        if request.purpose == "natural.compare":
            # chosen is A first, then B
            compared += 1
            judge.scores_high = compared % 2 == 0
        else:
            judge.scores_high = _MARK in plain_text(request)

    judge.on_request = side_with_chosen
    loads: list[Loads] = []
    for dialogue in [*sample[-1:], *sample]:
        turn = next((turn for turn in reversed(dialogue.turns) if turn.in_rubric), None)
        place = None if turn is None else turn.last_assistant_text
        if turn is not None and place is not None:
            said = dialogue.messages[place]
            prompt = with_messages(dialogue, dialogue.messages[:place])
            pair = PreferencePair(
                pair_id="",
                dialogue_id=dialogue.id,
                content_hash=dialogue.content_hash,
                source="natural",
                basis="preference",
                turn=turn.number,
                prompt=prompt.messages,
                chosen=said.model_copy(update={"content": f"{said.content} {_MARK}"}),
                rejected=said,
            )
            await verify(pair, prompt, judge)
        loads.append({"judge": judge.take()})
    return loads[1:]


def _flawed(judgment: Judgment, at: int, config: ForkConfig) -> Judgment:
    """A judgment whose weakest turn is one of the dialogue's, another for each `at`, and the rest fine.

    With `at: earliest` the turns after it are bad too, since it is asked whether they follow from it.
    """
    fine = RubricScores(context_use=5, helpfulness=5, safety=5)
    bad = RubricScores(context_use=2, helpfulness=2, safety=5)
    weakest = at % len(judgment.per_turn)
    last_bad = len(judgment.per_turn) if config.at == "earliest" else weakest
    turns = [
        turn.model_copy(
            update={"scores": bad if weakest <= place <= last_bad else fine, "readings": {}}
        )
        for place, turn in enumerate(judgment.per_turn)
    ]
    return judgment.model_copy(
        update={
            "per_turn": tuple(turns),
            "weakest_turn": turns[weakest].turn,
            "weakest_probabilities": {},
        }
    )


def _costs(
    recipe: Recipe, stages: Mapping[str, list[Loads]], sampled: int, *, with_cache: bool
) -> list[float]:
    """Money a sampled dialogue over all stages, for the models that have prices; empty where none has."""
    given = recipe.prices
    if not any(given.values()):
        return []
    costs = [0.0] * sampled
    for per_dialogue in stages.values():
        for index, loads in enumerate(per_dialogue):
            for role, load in loads.items():
                prices = given.get(role)
                if prices is None:
                    continue
                usage = Usage(
                    prompt_tokens=round(load.prompt * 1000),
                    cached_tokens=round((load.prompt - load.prefilled) * 1000) * with_cache,
                    completion_tokens=round(load.completion * 1000),
                )
                costs[index] += cost_of(usage, prices) / 1000
    return costs
