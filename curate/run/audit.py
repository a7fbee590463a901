"""`curate audit`: pass a run's score table, judgments and pairs to the checks of `trust.audit`; no labels needed.

On request some dialogues are judged a second time by the run's own judge. Those replies are kept in a store of their
own (`trust/again.sqlite`), since the run's store would only return the first ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from math import ceil
from pathlib import Path
from typing import get_args

import polars as pl

from curate.engines.accounting import Accounting, Budget
from curate.errors import UsageError
from curate.executors.first_rows import FirstRows
from curate.executors.local import for_each
from curate.executors.loop import run as run_in_loop
from curate.judging.config import RubricConfig
from curate.recipe import parse_recipe
from curate.records import (
    AuditCheck,
    AuditPart,
    AuditReport,
    Judgment,
    Manifest,
    ScoringStage,
    StageName,
)
from curate.run.ingest import read_dialogues, read_index
from curate.run.labels.run_scores import stored_rows
from curate.run.outputs import pair_readers, read_scores
from curate.run.read_back import read_manifest
from curate.run.runlog import NOT_COUNTED
from curate.selection.columns import NOT_SCORED, SCORE_OF, UNSCORED_OF
from curate.stages import Judged, WorkItem, model_pool, rubric_stage
from curate.trust.audit.audit_figures import audit_sentence, no_failure_modes, of_failure_mode
from curate.trust.audit.judgment_audit import JudgmentAudit, repeat_checks
from curate.trust.audit.pair_audit import no_pair_checks, pair_checks
from curate.trust.audit.table_audit import (
    collapse_checks,
    no_judge_checks,
    unscored_checks,
    verdict_checks,
)

LEAST_AGAIN = 20
"""Least number of dialogues to judge again, if the run has so many: fewer say nothing."""
_NOT_ASKED = "not asked for (`--again 0.05` judges a twentieth of the dialogues a second time)"

_PARTS: tuple[AuditPart, ...] = get_args(AuditPart)


@dataclass(frozen=True, slots=True)
class SecondJudging:
    """A sample of a run's judged dialogues to be judged again.

    Attributes:
        keys: content hashes of the sample.
        judged: dialogues with scores, equal ones once.
        requests: calls that the sample took the first time.
    """

    keys: frozenset[str]
    judged: int
    requests: int


def audit_run(
    run: Path,
    again: SecondJudging | None = None,
    progress: Callable[[int, int], None] = lambda *_: None,
) -> AuditReport:
    """Look for what is wrong with a run, without labels.

    Args:
        run: the run folder.
        again: dialogues to judge a second time, as `plan_second_judging` gives them; None: no calls.
        progress: called with how many dialogues were judged again, and how many will be.

    Raises:
        UsageError: no run, or one without scores; the judge that would be asked again is another.
        EngineError: the judge cannot be reached or used.
        CurateError: a file of the run is damaged.
    """
    manifest, distinct = read_manifest(run), _distinct(run)
    audit = JudgmentAudit()
    second = {} if again is None else _judge_again(run, manifest, again, progress)
    repeated = []
    for dialogue_id, record in _judgments(run, manifest, distinct):
        audit.add(dialogue_id, record)
        twice = second.get(record.content_hash)
        if twice is not None:
            repeated.append((dialogue_id, record, twice))
    stages: list[ScoringStage] = [
        stage
        for stage in get_args(ScoringStage)
        if distinct[SCORE_OF[stage]].count() or distinct[UNSCORED_OF[stage]].count()
    ]
    has_judge = "judge" in stages
    modes = manifest.judge_checks.failure_modes if manifest.judge_checks is not None else ()
    checks = [
        *map(of_failure_mode, modes),
        *([no_failure_modes()] if has_judge and not modes else []),
        *(audit.checks() if has_judge else ()),
        *collapse_checks(distinct),
        *unscored_checks(distinct, stages, [*map(str, NOT_COUNTED), NOT_SCORED]),
        *(verdict_checks(distinct) if has_judge else no_judge_checks()),
        *(repeat_checks(repeated, _NOT_ASKED if again is None else "") if has_judge else ()),
        *_pair_checks(run, manifest),
    ]
    checks.sort(key=lambda check: _PARTS.index(check.part))
    return AuditReport(
        sentence=audit_sentence(checks),
        made=datetime.now(UTC).isoformat(timespec="seconds"),
        fingerprints=dict(manifest.fingerprints),
        checks=tuple(checks),
        weakest_fifths=audit.weakest_fifths,
        asked_again=len(second),
    )


def plan_second_judging(run: Path, share: float) -> SecondJudging:
    """Draw the dialogues to judge again: the same ones whenever the run is the same.

    Args:
        run: the run folder.
        share: of its judged dialogues, above 0 and at most 1.

    Raises:
        UsageError: the share is none, or the run has no judgments.
    """
    if not 0 < share <= 1:
        raise UsageError("not a share of dialogues", got=share, expected="above 0 and at most 1")
    manifest, distinct = read_manifest(run), _distinct(run)
    judged = distinct.filter(pl.col("verdict").is_not_null())
    if judged.is_empty():
        raise UsageError(
            "the run has no judgments to repeat", got=run, fix="run its recipe with the judge first"
        )
    # The hashes are even, so the smallest are a random sample that grows with the data without changing.
    sample = judged.sort("content_hash").head(max(LEAST_AGAIN, ceil(share * judged.height)))
    requests = sum(record.requests for _, record in _judgments(run, manifest, sample))
    return SecondJudging(frozenset(sample["content_hash"]), judged.height, requests)


def _distinct(run: Path) -> pl.DataFrame:
    """Return the score table with the first of equal dialogues only."""
    return read_scores(run).unique("content_hash", keep="first", maintain_order=True)


def _judgments(
    run: Path, manifest: Manifest, distinct: pl.DataFrame
) -> Iterator[tuple[str, Judgment]]:
    """Yield id and judgment of each dialogue that has a verdict."""
    rows = stored_rows(run, manifest, StageName.JUDGE)
    if rows is None:
        return
    judged = distinct.filter(pl.col("verdict").is_not_null())
    ids = dict(judged.select("content_hash", "id").iter_rows())
    for key, row in rows.stored(judged["content_hash"]):
        yield ids[key], Judgment.model_validate_json(row)


def _judge_again(
    run: Path, manifest: Manifest, again: SecondJudging, progress: Callable[[int, int], None]
) -> dict[str, Judged]:
    recipe = parse_recipe(manifest.recipe).model_copy(update={"fork": False, "metrics": False})
    replies = run / "trust" / "again.sqlite"
    replies.parent.mkdir(exist_ok=True)
    judgments: dict[str, Judged] = {}

    async def ask() -> None:
        async with model_pool(recipe) as models:
            rubric, cascade = recipe.judge or RubricConfig(), recipe.models.cascade
            stage = rubric_stage(rubric, models.judges, cascade)
            calibrated = stage.calibrated
            now = stage.fingerprint if calibrated is None else calibrated.fingerprint
            if now != manifest.fingerprints[StageName.JUDGE]:
                raise UsageError(
                    "the judge or its prompts have changed since the run was made",
                    got=f"fingerprint {now}",
                    expected=manifest.fingerprints[StageName.JUDGE],
                    fix="run the recipe again, then audit it",
                )
            budget = Budget(**recipe.budget.model_dump())
            first = FirstRows(StageName.JUDGE)
            async with models.asking(replies, Accounting(), budget) as asks:

                async def judge(item: WorkItem) -> Judged:
                    row = await stage.run(item, asks)
                    return row if calibrated is None else calibrated.apply(row)

                def done(item: WorkItem, row: Judged) -> None:
                    judgments[item.key] = row
                    first.see(row)
                    progress(len(judgments), len(again.keys))

                await for_each(
                    items, judge, done, open_at_once=models.facts.open_dialogues(stage.name)
                )

    hashes = read_index(run, "content_hash").to_series()
    is_sampled = hashes.is_in(list(again.keys)) & hashes.is_first_distinct()
    items = (WorkItem(dialogue) for dialogue in read_dialogues(run, is_sampled))
    run_in_loop(ask())
    return judgments


def _pair_checks(run: Path, manifest: Manifest) -> list[AuditCheck]:
    readers = pair_readers(run)
    checks = [
        check
        for kind, report in manifest.pair_checks.items()
        for check in pair_checks(kind, report, readers[kind])
    ]
    return checks or no_pair_checks()
