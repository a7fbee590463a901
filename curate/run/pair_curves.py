"""Fit a judge's pair curve: to planted twins that it is asked about, or to the labelled pairs of a run.

The statistics are `trust.pair_curve`, the flaws `trust.twins`, the questions those of verification. Here they are
joined to a recipe's source, its judge and a run folder.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

import orjson
import polars as pl

from curate.dialogue import Dialogue
from curate.engines.accounting import Accounting, Budget, cost_of
from curate.engines.base import EngineIdentity, Usage
from curate.engines.cache import ReplyCache
from curate.errors import UsageError
from curate.executors.local import for_each
from curate.executors.loop import run as run_in_loop
from curate.judging.config import RubricConfig
from curate.models import Asks, EngineFacts, open_models
from curate.pairs.asks import JudgeAsks
from curate.pairs.config import VerifyConfig
from curate.pairs.prefix import with_messages
from curate.pairs.verify import compare_orders, cut_after, score_side
from curate.planning.metering import CHARACTERS_PER_TOKEN, Load, Meter, TokenCounter, plain_text
from curate.recipe import Recipe
from curate.records import JudgeIdentity, PairCheck, PairCurve, PreferencePair, Unscored
from curate.run.outputs import NATURAL_PAIRS, REFUSED_PAIRS, SCORES, read_pairs
from curate.run.read_back import read_manifest
from curate.sources import open_source
from curate.steps import bind_judge, judge_step, pair_identity
from curate.storage.files import atomic_file
from curate.trust.pair_curve import LEAST_PAIRS, KnownPair, fit_pair_curve
from curate.trust.twins import Twin, plant_twins

_POOL = 50
"""Dialogues read for each twin wanted, at most: some have no place for a flaw, the kinds are to come out even."""


@dataclass(frozen=True, slots=True)
class TwinPlan:
    """The twins of a recipe and what asking about them takes.

    Attributes:
        twins: at most one of a dialogue.
        load: of all of them, tokens counted at 4 characters each.
        cost: at the recipe's prices and without a prefix cache; None where the judge has none.
        chosen_from: what is known of the dialogues they are planted in.
    """

    twins: tuple[Twin, ...]
    load: Load
    cost: float | None
    chosen_from: str

    @property
    def kinds(self) -> Counter[str]:
        """Twins by kind."""
        return Counter(twin.kind for twin in self.twins)


def plan_twins(recipe: Recipe, count: int, run: Path | None = None, seed: int = 42) -> TwinPlan:
    """Plant twins in the recipe's own dialogues; no model is asked.

    Args:
        recipe: its sources are read from the start, as far as needed.
        count: twins wanted.
        run: a run folder of the recipe; where it has scores, twins are planted in its best dialogues by mean
            score, half of them or as many as are wanted, for a flaw is to be a dialogue's only one. Without, in
            all dialogues.
        seed: of the draws.

    Raises:
        UsageError: no judge is named; too few twins for a curve.
    """
    if recipe.models.judge is None:
        raise UsageError("no judge is named", expected="models.judge")
    good = None if run is None else _best(run, count)
    dialogues: list[Dialogue] = []
    for source in recipe.source:
        read = open_source(source).read(recipe.role, recipe.scenario, recipe.role_from)
        for dialogue in (held for unit in read for held in unit.dialogues):
            if good is None or dialogue.content_hash in good:
                dialogues.append(dialogue)
            if len(dialogues) >= _POOL * count:
                break
    twins = plant_twins(dialogues, count, seed=seed) if dialogues else []
    chosen_from = "dialogues whose quality is not known"
    if good is not None:
        chosen_from = f"the {len(good)} best dialogues of {run}, by mean score"
    if len(twins) < LEAST_PAIRS:
        raise UsageError(
            "too few twins to fit a curve to",
            got=f"{len(twins)} twins, {count} wanted, in {len(dialogues)} dialogues",
            expected=f"at least {LEAST_PAIRS}, one a dialogue, in assistant replies of 60 characters or more",
        )
    load = run_in_loop(_measured(twins, recipe))
    prices = recipe.models.judge.prices
    cost = None
    if prices is not None:
        usage = Usage(prompt_tokens=round(load.prompt), completion_tokens=round(load.completion))
        cost = cost_of(usage, prices)
    return TwinPlan(tuple(twins), load, cost, chosen_from)


async def _measured(twins: Sequence[Twin], recipe: Recipe) -> Load:
    """What is asked about the twins, of a judge that gives log-probabilities; no other gets a curve."""
    rubric = (recipe.judge or RubricConfig()).model_copy(update={"mode": "tokens"})
    meter = Meter(TokenCounter(plain_text, lambda text: len(text) / CHARACTERS_PER_TOKEN, ""))
    nobody = EngineFacts(EngineIdentity(engine="", model=""), frozenset(), 1)
    asks = bind_judge(meter, rubric, nobody)
    for twin in twins:
        await _read_twin(twin, asks, _verification(recipe))
    return meter.take()


def fit_from_twins(
    recipe: Recipe,
    plan: TwinPlan,
    replies: Path,
    *,
    precision: float = 0.9,
    progress: Callable[[int, int], None] | None = None,
) -> PairCurve:
    """Ask the recipe's judge about planted twins and fit its curve.

    Args:
        recipe: names the judge and how it scores; prices, budget and redaction hold as in a run.
        plan: of the same recipe.
        replies: file that keeps the replies, so that none is asked for twice.
        precision: share of truly better pairs asked for among those that pass.
        progress: told twins done and all twins.

    Raises:
        UsageError: as `fit_pair_curve`; a judge without log-probabilities, or one that answers too seldom.
        EngineError: the judge cannot be reached or used.
    """
    asked = recipe.checked().model_copy(update={"fork": False})
    known: list[KnownPair] = []
    unread: Counter[str] = Counter()

    async def ask_all() -> JudgeIdentity:
        async with open_models(asked) as models:
            rubric = asked.judge or RubricConfig()
            step = judge_step(rubric, models.judge)
            if step.mode == "json":
                raise _letters_alone()
            resolved = rubric.model_copy(update={"mode": step.mode})
            budget = Budget(**asked.budget.model_dump())
            with ReplyCache(replies) as cache:
                ask = Asks(asked, models, cache, Accounting(), budget).judge
                config = _verification(asked)
                judging = bind_judge(ask, resolved, models.judge)

                async def one(twin: Twin) -> KnownPair | str:
                    return await _read_twin(twin, judging, config)

                def done(_: Twin, read: KnownPair | str) -> None:
                    if isinstance(read, KnownPair):
                        known.append(read)
                    else:
                        unread[read] += 1
                    if progress is not None:
                        progress(len(known) + unread.total(), len(plan.twins))

                await for_each(plan.twins, one, done, open_at_once=models.judge.open_dialogues)
            return pair_identity(step.identity)

    identity = run_in_loop(ask_all())
    if len(known) < LEAST_PAIRS:
        said = ", ".join(f"{reason} {number}" for reason, number in unread.most_common())
        raise UsageError(
            "the judge could answer about too few twins",
            got=f"{len(known)} of {len(plan.twins)}; unscored: {said}",
            expected=f"at least {LEAST_PAIRS}",
        )
    # Replies come back in any order; the fit must not depend on it.
    known.sort(key=lambda pair: (pair.group, pair.kind))
    return fit_pair_curve(known, identity, fitted_on="twins", precision=precision)


def fit_from_run(run: Path, *, precision: float = 0.9) -> PairCurve:
    """Fit the curve to the natural pairs of a run that its judge compared; no model is asked.

    Raises:
        UsageError: no finished run folder; no natural pair was compared; as `fit_pair_curve`.
    """
    manifest = read_manifest(run)
    pairs = [
        known
        for name in (NATURAL_PAIRS, REFUSED_PAIRS)
        for pair in read_pairs(run, name)
        if (known := _known(pair)) is not None
    ]
    if not pairs:
        raise UsageError(
            "the run has no labelled pair that its judge compared",
            got=run,
            expected="natural pairs and log-probabilities",
            fix="set natural.verify in the recipe and run it again",
        )
    identity = manifest.identities.get("natural")
    if identity is None:
        raise UsageError("the run does not say which judge compared its pairs", got=run)
    return fit_pair_curve(pairs, identity, fitted_on="labels", precision=precision)


def write_curve(path: Path, curve: PairCurve) -> None:
    """Write the file that a recipe names as `fork.curve` or `natural.verify.curve`."""
    with atomic_file(path) as out:
        out.write(
            orjson.dumps(
                curve.model_dump(mode="json"),
                option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE,
            )
        )


def _verification(recipe: Recipe) -> VerifyConfig:
    return recipe.fork or recipe.natural.verification or VerifyConfig()


def _best(run: Path, count: int) -> frozenset[str] | None:
    """Content hashes of the better-scored half of a run, or of `count` where that is more; None without scores."""
    if not (run / SCORES).is_file():
        return None
    scores = pl.read_parquet(run / SCORES, columns=["content_hash", "mean_score"]).drop_nulls()
    if scores.is_empty():
        return None
    best = scores.sort("mean_score", descending=True, maintain_order=True)
    return frozenset(best["content_hash"].head(max(count, len(scores) // 2)))


async def _read_twin(twin: Twin, asks: JudgeAsks, config: VerifyConfig) -> KnownPair | str:
    """The judge's readings of a twin; where it could not answer why, a code of `records.Unscored`."""
    prompt = with_messages(twin.dialogue, twin.prompt)
    sides = []
    for side in (twin.original, twin.degraded):
        scores = await score_side(cut_after(prompt, side), twin.turn, asks, config.wordings)
        if isinstance(scores, Unscored):
            return scores.reason
        sides.append(scores)
    finding = await compare_orders(prompt, twin.original, twin.degraded, PairCheck(), asks, config)
    if finding.check.unscored is not None:
        return finding.check.unscored
    if finding.check.preference is None:
        raise _letters_alone()
    better, worse = sides
    return KnownPair(
        preference=finding.check.preference,
        margin=fmean(a - b for a, b in zip(better.compared, worse.compared, strict=True)),
        group=twin.dialogue.content_hash,
        kind=twin.kind,
    )


def _letters_alone() -> UsageError:
    return UsageError(
        "a curve needs a judge that gives log-probabilities",
        got="letters alone",
        fix="use an engine that gives them, and judge.mode: auto or tokens",
    )


def _known(pair: PreferencePair) -> KnownPair | None:
    """What a natural pair says; None of a forked one, and where the judge gave no log-odds."""
    check = pair.check
    if pair.basis == "judge" or check is None or check.preference is None or check.margin is None:
        return None
    return KnownPair(check.preference, check.margin, group=pair.content_hash, kind=pair.basis)
