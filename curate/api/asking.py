"""Steps that call models: scoring dialogues, forking pairs, drafting a metric."""

from __future__ import annotations

import warnings
from collections.abc import Awaitable, Callable, Iterable, Sequence
from pathlib import Path
from typing import TypeVar

from curate.adherence.config import AdherenceConfig
from curate.adherence.decay import AdherenceTally
from curate.adherence.reference.scorer import ReferenceScorer, check_scorer
from curate.api.arguments import (
    Bounds,
    CallModels,
    Given,
    Judges,
    Model,
    RedactKinds,
    jury_rules,
    section,
)
from curate.dialogue import Dialogue
from curate.engines.model_pool import ModelPool
from curate.errors import UsageError
from curate.executors.first_rows import FirstRows
from curate.executors.local import for_each
from curate.executors.loop import run as run_in_loop
from curate.judging.config import RubricConfig
from curate.judging.factuality import FactualityConfig
from curate.judging.metrics import MetricsConfig, OwnMetric
from curate.judging.metrics import draft as drafting
from curate.notebook import progress_bars
from curate.pairs.config import ForkConfig
from curate.pairs.settle import settle_pair, survey
from curate.records import (
    AdherenceScore,
    FactualityScore,
    Judgment,
    MetricsScore,
    PreferencePair,
    StageName,
    Unscored,
)
from curate.stages import (
    Stage,
    WorkItem,
    adherence_by,
    factuality_stage,
    fork_stage,
    metrics_by,
    rubric_stage,
    scorers,
)

R = TypeVar("R")


def judge_dialogues(
    dialogues: Iterable[Dialogue],
    model: Judges,
    config: RubricConfig | Given = None,
    *,
    replies: str | Path | None = None,
    redact: RedactKinds = None,
    budget: Bounds = None,
    keep_going: bool = False,
) -> list[Judgment | Unscored]:
    """Judge dialogues turn by turn; return one record per dialogue, in order.

    Args:
        dialogues: the dialogues to judge.
        model: the judge, a jury or a cascade.
        config: as the recipe's section `judge`.
        replies: folder of a response cache; a reply in it is not asked for again.
        redact: kinds of personal data removed from what is sent to a hosted model, as a recipe's `redact`; None: those
            of the recipe that `model` names, if it names one.
        budget: as a recipe's section `budget`, for this call; None: that of the recipe that `model` names.
        keep_going: do not stop when the first 50 dialogues all fail for the same reason.

    Raises:
        UsageError: a key is wrong, or the engine does not support the scoring mode.
        EngineError: the model cannot be reached or used, or the first 50 dialogues all failed.
        BudgetReached: a limit is reached; what was received is in `replies`.
    """
    rubric = section(RubricConfig, config, "judge")
    models = CallModels.of(redact, budget, judge=model)
    return _score(
        dialogues,
        models,
        lambda pool: rubric_stage(rubric, pool.judges, models.cascade),
        replies,
        FirstRows(StageName.JUDGE, keep_going=keep_going),
    )


def score_adherence(
    dialogues: Iterable[Dialogue],
    model: Judges | None = None,
    config: AdherenceConfig | Given = None,
    *,
    replies: str | Path | None = None,
    redact: RedactKinds = None,
    budget: Bounds = None,
    embeddings: str | Path | None = None,
    keep_going: bool = False,
) -> list[AdherenceScore | Unscored]:
    """Score how well the assistant keeps to its role; errors as in `judge_dialogues`.

    What a run would write into its manifest (falling back to binary, a calibration that does not apply, scores
    imputed because yes and no had too little probability) is issued as a Python warning, each once.

    Args:
        dialogues: the dialogues to score.
        model: the judge, or a jury; not needed where `scoring_method` compares with references.
        config: as the recipe's section `adherence`.
        replies: folder of a response cache; a reply in it is not asked for again.
        redact, budget: as in `judge_dialogues`.
        embeddings: file for the embeddings of reference methods; by default they are kept in memory.
        keep_going: as in `judge_dialogues`.
    """
    chosen = section(AdherenceConfig, config, "adherence")
    if chosen.scoring_method != "llm_judge":
        check_scorer(chosen)
        listed = list(dialogues)
        scorer = ReferenceScorer(
            chosen, lambda: listed, None if embeddings is None else Path(embeddings)
        )
        if scorer.warning:
            warnings.warn(scorer.warning, stacklevel=2)
        return [scorer.score(dialogue) for dialogue in listed]
    if model is None:
        raise UsageError("scoring_method llm_judge needs a judge", expected="the argument `model`")
    judge = CallModels.of(redact, budget, judge=model)
    rule = jury_rules(config)["adherence"]
    first = FirstRows(StageName.ADHERENCE, keep_going=keep_going)
    scores = _score(
        dialogues,
        judge,
        lambda pool: adherence_by(chosen, scorers(pool, judge.cascade), rule),
        replies,
        first,
    )
    tally = AdherenceTally()
    if chosen.on_missing == "half" or chosen.include_reason:
        for record in scores:
            if isinstance(record, AdherenceScore):
                tally.add(record.model_dump())
    for warning in tally.warnings():
        warnings.warn(warning, stacklevel=2)
    return scores


def score_metrics(
    dialogues: Iterable[Dialogue],
    model: Judges,
    config: MetricsConfig | Given = None,
    *,
    replies: str | Path | None = None,
    redact: RedactKinds = None,
    budget: Bounds = None,
    keep_going: bool = False,
) -> list[MetricsScore | Unscored]:
    """Score whole dialogues by weighted metrics; return one record per dialogue, in order.

    Args:
        dialogues: the dialogues to score.
        model: the judge.
        config: as the recipe's section `metrics`; None: the eight default metrics.
        replies, redact, budget, keep_going: as in `judge_dialogues`.

    Raises:
        UsageError, EngineError, BudgetReached: as `judge_dialogues`.
    """
    chosen = section(MetricsConfig, config, "metrics")
    models, rule = CallModels.of(redact, budget, judge=model), jury_rules(config)["metrics"]
    return _score(
        dialogues,
        models,
        lambda pool: metrics_by(chosen, scorers(pool, models.cascade), rule),
        replies,
        FirstRows(StageName.METRICS, keep_going=keep_going),
    )


def draft_metric(wish: str, model: Model, *, budget: Bounds = None) -> OwnMetric:
    """Draft a metric for a recipe's `metrics.own`, to be edited before it is used.

    Args:
        wish: one sentence that says what it should measure.
        model: the judge.
        budget: as in `judge_dialogues`.

    Raises:
        EngineError: the model cannot be reached, or its reply is not a metric.
    """

    async def run() -> OwnMetric:
        async with CallModels.of((), budget, judge=model).asking(None) as (_, asks):
            return await drafting.draft_metric(wish, asks.judge)

    return run_in_loop(run())


def score_factuality(
    dialogues: Iterable[Dialogue],
    model: Model,
    config: FactualityConfig | Given = None,
    *,
    replies: str | Path | None = None,
    redact: RedactKinds = None,
    budget: Bounds = None,
    keep_going: bool = False,
) -> list[FactualityScore | Unscored]:
    """Label the claims of every assistant turn; one record a dialogue, in order.

    Args:
        dialogues: what to look at.
        model: the judge.
        config: as the recipe's section `factuality`.
        replies, redact, budget, keep_going: as in `judge_dialogues`.

    Raises:
        UsageError, EngineError, BudgetReached: as `judge_dialogues`.
    """
    chosen = section(FactualityConfig, config, "factuality")
    return _score(
        dialogues,
        CallModels.of(redact, budget, judge=model),
        lambda pool: factuality_stage(chosen, pool.judge),
        replies,
        FirstRows(StageName.FACTUALITY, keep_going=keep_going),
    )


def fork_pairs(
    dialogues: Iterable[Dialogue],
    judgments: Iterable[Judgment | Unscored],
    *,
    judge: Judges,
    policy: Model,
    reviser: Model | None = None,
    config: ForkConfig | Given = None,
    judging: RubricConfig | Given = None,
    adherence: AdherenceConfig | Given = None,
    replies: str | Path | None = None,
    redact: RedactKinds = None,
    budget: Bounds = None,
    keep_going: bool = False,
) -> list[PreferencePair]:
    """Fork every judged dialogue; dropped pairs are returned too, with their `drop_reason`.

    Args:
        dialogues: candidates; those whose judgment is unscored are left out.
        judgments: judgments of these dialogues, by the same judge.
        judge: verifies both sides of each pair.
        policy: writes the resamples.
        reviser: writes the guided revision; None: the policy.
        config: as the recipe's section `fork`; `where` is not applied here, choose the dialogues yourself.
        judging: the recipe's section `judge` that the judgments were made with.
        adherence: the recipe's section `adherence`, to score role adherence of both sides; None: the role is not
            checked.
        replies: folder of a response cache.
        redact, budget: as in `judge_dialogues`; if models are named by several recipes, everything that any of them
            redacts, and the first one's budget.
        keep_going: as in `judge_dialogues`.
    """
    scored = {record.content_hash: record for record in judgments if isinstance(record, Judgment)}
    rubric, fork = section(RubricConfig, judging, "judge"), section(ForkConfig, config, "fork")
    role = None if adherence is None else section(AdherenceConfig, adherence, "adherence")
    writers = {"policy": policy} | ({} if reviser is None else {"reviser": reviser})
    models = CallModels.of(redact, budget, judge=judge, **writers)

    async def run() -> list[PreferencePair]:
        async with models.asking(replies) as (pool, asks):
            judged = rubric_stage(rubric, pool.judges, models.cascade)
            alone = rubric if not judged.judges else rubric.model_copy(update={"calibration": None})
            stage = fork_stage(fork, alone, judged, pool, role or False, cascade=models.cascade)

            async def one(dialogue: Dialogue) -> list[PreferencePair]:
                return await stage.run(WorkItem(dialogue, scored[dialogue.content_hash]), asks)

            chosen = [dialogue for dialogue in dialogues if dialogue.content_hash in scored]
            first = FirstRows(StageName.FORK, keep_going=keep_going)
            forks = await _in_order(chosen, one, pool.judge.open_dialogues, first)
        pairs = [pair for row in forks for pair in row]
        overview = survey(pairs)
        return [settle_pair(pair, overview, fork) for pair in pairs]

    return run_in_loop(run())


def _score(
    dialogues: Iterable[Dialogue],
    models: CallModels,
    bind: Callable[[ModelPool], Stage[R]],
    replies: str | Path | None,
    first: FirstRows,
) -> list[R]:
    async def run() -> list[R]:
        async with models.asking(replies) as (pool, asks):
            stage = bind(pool)
            if stage.warning:
                warnings.warn(stage.warning, stacklevel=2)
            rows = await _in_order(
                list(dialogues),
                lambda dialogue: stage.run(WorkItem(dialogue), asks),
                pool.facts.open_dialogues(stage.name),
                first,
            )
            return (
                rows if stage.calibrated is None else [stage.calibrated.apply(row) for row in rows]
            )

    return run_in_loop(run())


async def _in_order(
    dialogues: Sequence[Dialogue],
    work: Callable[[Dialogue], Awaitable[R]],
    open_at_once: int,
    first: FirstRows,
) -> list[R]:
    results: dict[int, R] = {}

    async def numbered(item: tuple[int, Dialogue]) -> R:
        return await work(item[1])

    with progress_bars() as show:

        def done(item: tuple[int, Dialogue], result: R) -> None:
            results[item[0]] = result
            show(first.stage, len(results), len(dialogues))
            first.see(result)

        await for_each(enumerate(dialogues), numbered, done, open_at_once=open_at_once)
    return [results[index] for index in range(len(dialogues))]
