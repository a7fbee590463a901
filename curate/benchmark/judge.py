"""Scores by a judge model, through the code that a run uses.

Each dialogue is scored as in a run (every assistant turn, with the turns before it) and the last turn's
score is taken. Replies are kept in a reply log, so that a benchmark that was stopped asks only for the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from curate.adherence.config import AdherenceConfig
from curate.benchmark.labelled_turns import LabelledTurn
from curate.benchmark.methods import Method, MethodScores
from curate.engines.pool import Asks, ModelPool, trust_warning
from curate.errors import UsageError
from curate.executors.local import for_each
from curate.recipe import Recipe
from curate.records import AdherenceScore, JudgeIdentity, Unscored
from curate.run.runlog import RunLog
from curate.stages import WorkItem, adherence_stage, make_row, model_pool

Progress = Callable[[str, int, int], None]
"""Told a method's name, how many turns it has scored, and how many there are."""

_ANY_SHARE = 1e-9


def require_judge(recipe: Recipe | None, methods: Sequence[Method]) -> None:
    """Refuse judge methods where no judge is named; no model is asked silently."""
    named = [method.name for method in methods if method.is_judge]
    if named and (recipe is None or recipe.models.lead is None):
        raise UsageError(
            f"{named[0]} needs a judge, and no model is asked silently",
            expected="a recipe with a section models.judge",
            fix="--judge RECIPE names it",
        )


async def judge_turns(
    methods: Sequence[Method],
    turns: Sequence[LabelledTurn],
    recipe: Recipe,
    replies: Path,
    progress: Progress = lambda *_: None,
) -> tuple[list[MethodScores], list[str]]:
    """Scores of the turns by each judge method, and warnings that a reader must hear.

    Args:
        methods: judge methods alone; each has a config of its own, the judge is the same.
        turns: what to score.
        recipe: names the judge.
        replies: reply log; a reply in it is not asked for again.
        progress: told how far each method is.

    Raises:
        UsageError: the judge cannot serve what is asked of it.
        EngineError: it cannot be reached or loaded.
        BudgetReached: the recipe's budget; replies so far are kept.
    """
    log = RunLog(recipe)
    async with model_pool(recipe) as models:
        log.warn(trust_warning(models.judge.identity))
        async with models.asking(replies, log.accounting, log.budget) as asks:
            found = [await _score(method, turns, models, asks, log, progress) for method in methods]
    return found, list(log.warnings)


async def _score(
    method: Method,
    turns: Sequence[LabelledTurn],
    models: ModelPool,
    asks: Asks,
    log: RunLog,
    progress: Progress,
) -> MethodScores:
    config = _for_one_turn(method.config)
    stage = adherence_stage(config, models.judge)
    log.warn(stage.warning)
    rows: dict[int, tuple[float | None, str | None]] = {}

    async def work(at: int) -> tuple[float | None, str | None]:
        return _last_turn(await make_row(stage, WorkItem(turns[at].dialogue), asks))

    def done(at: int, row: tuple[float | None, str | None]) -> None:
        rows[at] = row
        progress(method.name, len(rows), len(turns))

    await for_each(range(len(turns)), work, done, open_at_once=models.judge.open_dialogues)
    ordered = [rows[at] for at in range(len(turns))]
    return MethodScores(
        name=method.name,
        scores=tuple(score for score, _ in ordered),
        origin="run here",
        needs_references=False,
        model=stage.identity.model,
        detail=_described(stage.identity, config),
        reasons=tuple(reason for _, reason in ordered),
    )


def _for_one_turn(config: AdherenceConfig) -> AdherenceConfig:
    """Only the last turn counts here: an earlier one without a score must not cost it."""
    return config.model_copy(
        update={"min_scored_share": _ANY_SHARE, "weights": None, "strict_mode": False}
    )


def _last_turn(row: object) -> tuple[float | None, str | None]:
    if isinstance(row, Unscored):
        return None, row.reason
    assert isinstance(row, AdherenceScore)
    if row.evaluation_granularity == "conversation":
        return row.session_score, None
    last = row.per_turn[-1]
    return last.score, last.unscored if last.score is None else None


def _described(identity: JudgeIdentity, config: AdherenceConfig) -> str:
    return f"{identity.engine}, {identity.mode}, {config.definition}, {identity.prompt_version}"
