"""Fit a judge's pair curve by asking it about pairs of which it is known which side is better: planted twins, or labelled ones.

The statistics are `trust.pair_curve`, the flaws `trust.twins`, the questions those of verification. Here they are
joined to a recipe's source and its judge. Cheapest first: the comparisons are asked of all pairs, and
a judge whose preference tells nothing is not asked for the scores, which cost several times as much.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from statistics import fmean
from typing import Literal

import polars as pl

from curate.dialogue import Dialogue, Message
from curate.engines.accounting import Accounting, Budget
from curate.engines.base import Capability, EngineIdentity
from curate.engines.model_pool import EngineFacts
from curate.engines.stand_in import StandIn, settled
from curate.errors import UsageError
from curate.executors.local import for_each
from curate.executors.loop import run as run_in_loop
from curate.judging.config import RubricConfig
from curate.pairs.config import VerifyConfig
from curate.pairs.judge_functions import JudgeAsks
from curate.pairs.natural import gather_groups, natural_candidates
from curate.pairs.prefix import with_messages
from curate.pairs.verification import Sides, compare_orders, cut_after, score_side
from curate.planning.metering import BY_CHARACTERS, Load, Meter
from curate.recipe import Recipe, parse_source
from curate.records import JudgeIdentity, PairCheck, PairCurve, Unscored
from curate.run.outputs import SCORES
from curate.run.sample_dialogues import sample_dialogues
from curate.sources import open_source
from curate.sources.unit_result import RowCounts
from curate.stages import bind_judge, bind_verifier, model_pool, pair_identity, scorers
from curate.statistics import sigmoid
from curate.storage.parquet_files import readable
from curate.trust.label_rows import Unused
from curate.trust.pair_curve import LEAST_PAIRS, KnownPair, check_signal, fit_pair_curve
from curate.trust.twins import Twin, plant_twins
from curate.wording import plural

_POOL = 50
"""Most dialogues read for each twin: some have no place for a flaw, and each kind should be as frequent as the others."""


@dataclass(frozen=True, slots=True)
class KnownSides:
    """Two replies to one prompt, of which it is known which is better.

    Attributes:
        prompt: the dialogue with exactly the messages before both.
        turn: number of the turn that both are part of.
        kind: what is wrong with the worse one; for a labelled pair, what says that it is worse.
        group: content hash of the whole dialogue.
    """

    prompt: Dialogue
    better: Message
    worse: Message
    turn: int
    kind: str
    group: str

    @classmethod
    def of_twin(cls, twin: Twin) -> KnownSides:
        """Return the original and its degraded copy as sides."""
        return cls(
            with_messages(twin.dialogue, twin.prompt),
            twin.original,
            twin.degraded,
            twin.turn,
            twin.kind,
            twin.dialogue.content_hash,
        )


@dataclass(frozen=True, slots=True)
class PairPlan:
    """The pairs to ask a judge about, and what that takes.

    Attributes:
        pairs: of which it is known which side is better.
        fitted_on: what says which side is better.
        load: of all of them, tokens counted at 4 characters each.
        cost: at the recipe's prices and without a prefix cache; None where the judge has none.
        chosen_from: which dialogues the twins are planted in, in words, or the file of labelled pairs.
        unused: the rows of the file that give no pair.
    """

    pairs: tuple[KnownSides, ...]
    fitted_on: Literal["labels", "twins"]
    load: Load
    cost: float | None
    chosen_from: str
    unused: Unused = field(default_factory=Unused)

    @property
    def kinds(self) -> Counter[str]:
        """Pairs by kind."""
        return Counter(pair.kind for pair in self.pairs)

    @property
    def dialogues(self) -> int:
        """Number of dialogues that the pairs are from."""
        return len({pair.group for pair in self.pairs})


def plan_twins(recipe: Recipe, number: int, run: Path | None = None) -> PairPlan:
    """Plant twins in the recipe's own dialogues, or in the sample's where these are too few; no model calls.

    Args:
        recipe: its sources are read from the start, as far as needed.
        number: how many twins to plant.
        run: a run folder of the recipe; where it has scores, twins are planted in its best dialogues by mean
            score, half of them or `number` where that is more, because the planted flaw should be a dialogue's
            only one. Without scores, in all dialogues.

    Raises:
        UsageError: no judge is named; there are fewer twins than a curve needs.
    """
    _check_judge(recipe)
    best = None if run is None else _best_hashes(run, number)
    dialogues: list[Dialogue] = []
    for source in recipe.source:
        units = open_source(source).read(recipe.role, recipe.scenario, recipe.role_from)
        for dialogue in (dialogue for unit in units for dialogue in unit.dialogues):
            if best is None or dialogue.content_hash in best:
                dialogues.append(dialogue)
            if len(dialogues) >= _POOL * number:
                break
    chosen_from = "dialogues whose quality is not known"
    if best is not None:
        chosen_from = f"the {len(best)} best dialogues of {run}, by mean score"
    twins = plant_twins(dialogues, number) if dialogues else []
    if number >= LEAST_PAIRS > len(twins):
        chosen_from = f"curate's sample dialogues, since the recipe's {len(dialogues):,} have room for {len(twins)}"
        twins = plant_twins(sample_dialogues(recipe), number)
    if len(twins) < LEAST_PAIRS:
        raise UsageError(
            "too few twins to fit a curve to",
            got=f"{plural(len(twins), 'twin')}, {number} requested",
            expected=f"at least {LEAST_PAIRS}",
        )
    return _plan(recipe, list(map(KnownSides.of_twin, twins)), "twins", chosen_from)


def plan_labelled(recipe: Recipe, gold: Path) -> PairPlan:
    """Read labelled pairs from a file of their own; no model calls.

    Args:
        recipe: names the judge; its role and scenario are those of pairs that carry none.
        gold: JSONL, CSV or Parquet in any shape that gives natural pairs, as rows of prompt, chosen and rejected.

    Raises:
        UsageError: no judge is named; the file cannot be read or holds too few pairs.
    """
    _check_judge(recipe)
    opened = open_source(parse_source({"path": str(gold)}))
    tally, unused = RowCounts(), Unused()
    dialogues: list[Dialogue] = []
    for unit in opened.read(recipe.role, recipe.scenario, recipe.role_from):
        tally.add(unit)
        dialogues += unit.dialogues
        for row in unit.quarantined:
            unused.add(f"cannot be read: {row.reason}", f"{gold.name}, row {row.row}")
    opened.check_read(tally)
    for dialogue in dialogues:
        if dialogue.group is None:
            unused.add("no other reply to compare it with", f"dialogue {dialogue.id}")
    pairs: list[KnownSides] = []
    config = recipe.natural.model_copy(update={"enabled": True})
    for pair, dialogue in natural_candidates(gather_groups(dialogues), config):
        if pair.drop_reason is not None or pair.chosen is None or pair.turn is None:
            unused.add(f"dropped: {pair.drop_reason or 'no_reply'}", f"dialogue {pair.dialogue_id}")
            continue
        prompt = with_messages(dialogue, pair.prompt)
        key = dialogue.group or dialogue.content_hash
        pairs.append(KnownSides(prompt, pair.chosen, pair.rejected, pair.turn, pair.basis, key))
    if len(pairs) < LEAST_PAIRS:
        reasons = "; ".join(f"{number} {reason}" for reason, number in unused.counts.items())
        raise UsageError(
            "too few labelled pairs to fit a curve to",
            got=f"{plural(len(pairs), 'pair')} in {gold}"
            + (f"; not used: {reasons}" if reasons else ""),
            expected=f"at least {LEAST_PAIRS}: rows of prompt, chosen and rejected",
        )
    return replace(_plan(recipe, pairs, "labels", gold.name), unused=unused)


def _check_judge(recipe: Recipe) -> None:
    if recipe.models.lead is None:
        raise UsageError("no judge is named", expected="models.judge")


def _plan(
    recipe: Recipe,
    pairs: Sequence[KnownSides],
    fitted_on: Literal["labels", "twins"],
    chosen_from: str,
) -> PairPlan:
    load = _expected_load(pairs, recipe)
    cost = load.cost(recipe.models.lead.prices if recipe.models.lead else None)
    return PairPlan(tuple(pairs), fitted_on, load, cost, chosen_from)


def _expected_load(pairs: Sequence[KnownSides], recipe: Recipe) -> Load:
    """Return what asking about the pairs takes of a judge that gives log-probabilities; no other gets a curve."""
    rubric = recipe.judge or RubricConfig()
    if rubric.mode == "auto":
        rubric = rubric.model_copy(update={"mode": "tokens"})
    stand_in = StandIn()
    capabilities = frozenset({Capability.LABEL_LOGPROBS})
    engine = EngineFacts(EngineIdentity(engine="", model=""), capabilities, 1)
    asks = bind_judge(stand_in, rubric, engine)
    for pair in pairs:
        settled(_preference(pair, asks, _verification(recipe)))
        settled(_margin(pair, asks, _verification(recipe)))
    judges = 1 if recipe.models.cascade else len(recipe.models.judges_by_role)
    return Meter(BY_CHARACTERS).load(stand_in.calls).times(max(1, judges))


def fit_by_asking(
    recipe: Recipe,
    plan: PairPlan,
    replies: Path,
    *,
    precision: float = 0.9,
    progress: Callable[[int, int], None] | None = None,
) -> PairCurve:
    """Ask the recipe's judge about pairs of which it is known which side is better, and fit its curve.

    Args:
        recipe: names the judge and how it scores; prices, budget and redaction hold as in a run.
        plan: of the same recipe.
        replies: file that keeps the replies, so that none is asked for twice.
        precision: share of truly better pairs that is required among those that pass.
        progress: called with steps done and all steps, two a pair: its comparison, then its scores.

    Raises:
        UsageError: as `fit_pair_curve`; a judge without log-probabilities, or one that answers too seldom.
        EngineError: the judge cannot be reached or used.
    """
    recipe = recipe.checked().model_copy(update={"fork": False})

    async def ask_all() -> tuple[JudgeIdentity, list[KnownPair]]:
        async with model_pool(recipe) as models:
            rubric = recipe.judge or RubricConfig()
            verifier = bind_verifier(rubric, scorers(models, recipe.models.cascade))
            budget = Budget(**recipe.budget.model_dump())
            async with models.asking(replies, Accounting(), budget) as asks:
                judging = verifier.asks(asks)
                if any(one.judge_mode == "json" for one in judging.jury or (judging,)):
                    raise _no_logprobs()
                reader = _Reader(
                    plan, judging, _verification(recipe), models.judge.open_dialogues, progress
                )
                return pair_identity(verifier.identity), await reader.read()

    identity, pairs = run_in_loop(ask_all())
    return fit_pair_curve(
        pairs,
        identity,
        fitted_on=plan.fitted_on,
        source=plan.chosen_from if plan.fitted_on == "labels" else recipe.name,
        precision=precision,
    )


@dataclass(slots=True)
class _Reader:
    """Asks the judge about a plan's pairs: first the comparison of each, then, if its preference tells anything, the scores."""

    plan: PairPlan
    asks: JudgeAsks
    config: VerifyConfig
    open_at_once: int
    progress: Callable[[int, int], None] | None
    unscored: Counter[str] = field(default_factory=Counter)
    _steps: Iterator[int] = field(default_factory=lambda: count(1))

    async def read(self) -> list[KnownPair]:
        """Return the readings of all pairs that the judge could answer about.

        Raises:
            UsageError: there are too few, or its preference does not tell the sides apart.
        """
        pairs = self.plan.pairs
        preferences = await self._answers(_preference, range(len(pairs)))
        by_preference = sorted((pairs[n].group, pairs[n].kind, p) for n, p in preferences.items())
        check_signal(
            [KnownPair(preference, 0.0, group, kind) for group, kind, preference in by_preference],
            [sigmoid(preference) for *_, preference in by_preference],
            self.plan.fitted_on,
        )
        margins = await self._answers(_margin, list(preferences))
        known = [
            KnownPair(preferences[n], margin, pairs[n].group, pairs[n].kind)
            for n, margin in margins.items()
        ]
        # Replies come back in any order; the fit must not depend on it.
        return sorted(known, key=lambda pair: (pair.group, pair.kind, pair.preference, pair.margin))

    async def _answers(
        self,
        question: Callable[[KnownSides, JudgeAsks, VerifyConfig], Awaitable[float | str]],
        numbers: Sequence[int],
    ) -> dict[int, float]:
        """Ask a question about the pairs of these numbers; return the answers, and count the reasons where there is none.

        Raises:
            UsageError: there are too few answers.
        """
        answers: dict[int, float] = {}

        async def ask(number: int) -> float | str:
            return await question(self.plan.pairs[number], self.asks, self.config)

        def take(number: int, answer: float | str) -> None:
            if isinstance(answer, str):
                self.unscored[answer] += 1
            else:
                answers[number] = answer
            if self.progress is not None:
                self.progress(next(self._steps), 2 * len(self.plan.pairs))

        await for_each(numbers, ask, take, open_at_once=self.open_at_once)
        if len(answers) < LEAST_PAIRS:
            reasons = ", ".join(f"{why} {times}" for why, times in self.unscored.most_common())
            raise UsageError(
                "the judge answered about too few pairs",
                got=f"{len(answers)} of {len(self.plan.pairs)}; unscored: {reasons}",
                expected=f"at least {LEAST_PAIRS}",
            )
        return answers


def _verification(recipe: Recipe) -> VerifyConfig:
    return recipe.fork or recipe.natural.verification or VerifyConfig()


def _best_hashes(run: Path, least: int) -> frozenset[str] | None:
    """Return the content hashes of a run's better-scored half, or of `least` where that is more; None without scores."""
    if not (run / SCORES).is_file():
        return None
    with readable(run / SCORES):
        scores = pl.read_parquet(run / SCORES, columns=["content_hash", "mean_score"]).drop_nulls()
    if scores.is_empty():
        return None
    best = scores.sort("mean_score", descending=True, maintain_order=True)
    return frozenset(best["content_hash"].head(max(least, len(scores) // 2)))


async def _preference(pair: KnownSides, asks: JudgeAsks, config: VerifyConfig) -> float | str:
    """Return how far the judge prefers the better side, or the code of `records.Unscored` that says why it could not say."""
    sides = Sides(pair.prompt, pair.better, pair.worse, pair.turn)
    check = (await compare_orders(sides, PairCheck(), asks, config)).check
    if check.unscored is not None:
        return check.unscored
    if check.preference is None:
        raise _no_logprobs()
    return check.preference


async def _margin(pair: KnownSides, asks: JudgeAsks, config: VerifyConfig) -> float | str:
    """Return by how much the judge scores the better side higher, or the code of why it could not."""
    compared = []
    for side in (pair.better, pair.worse):
        scores = await score_side(cut_after(pair.prompt, side), pair.turn, asks, config.wordings)
        if isinstance(scores, Unscored):
            return scores.reason
        compared.append(scores.compared)
    return fmean(better - worse for better, worse in zip(*compared, strict=True))


def _no_logprobs() -> UsageError:
    return UsageError(
        "a curve needs a judge that gives log-probabilities",
        got="only letters",
        fix="use an engine that gives them",
    )
