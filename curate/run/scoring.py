"""The scores of a run's dialogues: asked of a judge, compared with references, or taken over from another run.

All three ways give the rows of a stage in the run folder, compacted in the order of the dialogues, and the stage's report.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import orjson
import polars as pl

from curate.adherence.config import AdherenceConfig, describe_threshold
from curate.adherence.decay import AdherenceTally
from curate.adherence.reference_config import EVALUATION_ONLY
from curate.engines.config import Prices
from curate.executors.local import WithoutModels
from curate.executors.opening import Runner
from curate.judging.calibrated_levels import (
    check_adherence,
    check_good_metrics,
    describe_levels,
)
from curate.judging.factuality.factuality_tally import FactualityTally
from curate.judging.metrics.metrics_tally import MetricsTally
from curate.judging.panel_tally import CascadeTally, JuryTally, drift_warning
from curate.records import (
    SCORING,
    AdherenceScore,
    FactualityScore,
    JudgeIdentity,
    Judgment,
    MetricsScore,
    StageName,
    Unscored,
    UnscoredReason,
)
from curate.records.judgment import unscored_reason
from curate.run.read_back import read_manifest
from curate.run.staging import Job, calibrated_rows, scored_rows
from curate.stages import (
    Calibrated,
    Stage,
    Stages,
    WorkItem,
    calibrate_judge,
    calibrate_metrics,
    reference_stage,
)
from curate.storage.stage_rows import StageRows
from curate.wording import plural


@dataclass(frozen=True, slots=True)
class ScoreRows:
    """The rows of the scoring stages on disk, compacted in the order of the dialogues; None without the stage.

    Attributes:
        rejudged: content hashes of the dialogues that were judged or measured again for `--retry unscored`.
    """

    judgments: StageRows[Judgment | Unscored] | None = None
    adherence: StageRows[AdherenceScore | Unscored] | None = None
    metrics: StageRows[MetricsScore | Unscored] | None = None
    factuality: StageRows[FactualityScore | Unscored] | None = None
    rejudged: frozenset[str] = frozenset()


async def ask_for_scores(job: Job, stages: Stages, runner: Runner) -> ScoreRows:
    """Make the scores of a run with a judge; adherence may be compared with references instead."""
    rows: dict[StageName, StageRows[Any]] = {}
    rejudged = frozenset[str]()
    for name in SCORING:
        stage = stages.named(name)
        if stage is not None:
            with job.log.timed(name):
                rows[name], again = await _ask(job, stage, runner)
            if name in (StageName.JUDGE, StageName.METRICS):  # those that a fork reads
                rejudged |= again
        elif name is StageName.ADHERENCE and job.recipe.compared_adherence:
            rows[name] = await _compare(job, job.recipe.compared_adherence)
    return ScoreRows(
        rows.get(StageName.JUDGE),
        rows.get(StageName.ADHERENCE),
        rows.get(StageName.METRICS),
        rows.get(StageName.FACTUALITY),
        rejudged,
    )


async def scores_without_a_judge(job: Job) -> ScoreRows:
    """Make the scores of a run without model calls: another run's rows as they are, or comparison with references."""
    recipe = job.recipe
    judgments = adherence = metrics = factuality = None
    if recipe.judge:
        judgments = _take_over(job, StageName.JUDGE, partial(calibrate_judge, recipe.judge))
    if recipe.judged_adherence:
        adherence = _take_over(job, StageName.ADHERENCE)
    elif recipe.compared_adherence:
        adherence = await _compare(job, recipe.compared_adherence)
    if recipe.metrics:
        metrics = _take_over(job, StageName.METRICS, partial(calibrate_metrics, recipe.metrics))
    if recipe.factuality:
        factuality = _take_over(job, StageName.FACTUALITY)
    if recipe.judge:
        role_judge = job.log.stage(StageName.ADHERENCE).identity if adherence else None
        check_adherence(recipe.judge.calibration, role_judge)
        metrics_judge = job.log.stage(StageName.METRICS).identity if metrics else None
        check_good_metrics(
            recipe.judge.calibration, metrics_judge.uncalibrated() if metrics_judge else None
        )
    return ScoreRows(judgments, adherence, metrics, factuality)


async def _ask(
    job: Job, stage: Stage[Any], runner: Runner
) -> tuple[StageRows[Any], frozenset[str]]:
    """Run a stage on every dialogue that has no row yet; equal dialogues share one.

    Returns:
        The rows, and the content hashes of those that were asked for again.
    """
    job.log.warn(stage.warning)
    rows = scored_rows(job.path, stage.name, stage.fingerprint)
    hashes = job.hashes()
    if job.recipe.reuse is not None:
        reused = scored_rows(job.recipe.reuse.run, stage.name, stage.fingerprint)
        _adopt(job, rows, reused, hashes)
    again = _forget_unscored(rows) if job.retry_unscored else {}
    missing = hashes.is_first_distinct() & ~hashes.is_in(rows.done().implode())
    items = (
        WorkItem(
            dialogue,
            again=dialogue.content_hash in again,
            turns=again.get(dialogue.content_hash, frozenset()),
        )
        for dialogue in job.dialogues(missing)
    )
    job.log.stage(stage.name).identity = stage.identity
    await job.make_rows(stage, rows, hashes, items, runner)
    return _finish(job, stage.name, rows, stage.calibrated), frozenset(again)


def _forget_unscored(rows: StageRows[Any]) -> dict[str, frozenset[int]]:
    """Forget the rows of dialogues that are unscored in whole or in part, so that they are made again.

    Returns:
        By content hash the turns to ask for again; none where the whole dialogue is unscored.
    """
    again = {
        key: frozenset() if isinstance(record, Unscored) else record.missing_turns
        for key, record in rows.read()
        if isinstance(record, Unscored) or record.missing_turns
    }
    rows.forget(again)
    return again


async def _compare(job: Job, config: AdherenceConfig) -> StageRows[Any]:
    """Score adherence by comparison with references; no model calls."""
    if config.scoring_method in EVALUATION_ONLY and job.recipe.filters_on_adherence:
        job.log.warn(
            f"adherence: {config.scoring_method} is for evaluation only, and this recipe filters on "
            "it: it does not tell adherent turns from others. Choose another scoring_method."
        )
    with job.log.timed(StageName.ADHERENCE):
        stage = reference_stage(config, job.dialogues, job.path / "embeddings.sqlite")
        rows, _ = await _ask(job, stage, WithoutModels())
    return rows


def _take_over(
    job: Job,
    name: StageName,
    bind: Callable[[JudgeIdentity, str], Calibrated[Any] | None] = lambda *_: None,
) -> StageRows[Any] | None:
    """Return the rows of another run, without model calls; None where it has none.

    `bind` gives the calibration of rows by a judge with this identity and fingerprint; None without one.
    """
    run = job.recipe.reused_run
    if run is None:
        return None
    manifest = read_manifest(run)
    fingerprint = manifest.fingerprints.get(name)
    if fingerprint is None:
        job.log.warn(f"{run} has no {name} rows to take over.")
        return None
    report = job.log.stage(name)
    report.fingerprint, report.identity = fingerprint, manifest.identities[name]
    rows, hashes = scored_rows(job.path, name, fingerprint), job.hashes()
    _adopt(job, rows, scored_rows(run, name, fingerprint), hashes)
    rows.compact(hashes)
    has_row = hashes.is_in(rows.done().implode())
    report.reused = hashes.filter(has_row).n_unique()
    if missing := hashes.filter(~has_row).n_unique():
        job.log.warn(
            f"{plural(missing, 'dialogue')} without a {name} row in {run} {'fails' if missing == 1 else 'fail'} every filter."
        )
    calibrated = bind(report.identity.uncalibrated(), fingerprint)
    return _finish(job, name, rows, calibrated)


def _adopt(job: Job, rows: StageRows[Any], reused: StageRows[Any], hashes: pl.Series) -> None:
    if reused.damage_note:
        job.log.warn(f"{reused.damage_note} Those rows are not taken over.")
    rows.adopt(reused, hashes)


def _finish(
    job: Job, name: StageName, rows: StageRows[Any], calibrated: Calibrated[Any] | None
) -> StageRows[Any]:
    """Calibrate and count a stage's rows; return them as all later steps read them."""
    hashes, report = job.hashes(), job.log.stage(name)
    if calibrated is not None:
        rows = calibrated_rows(job.path, name, rows, calibrated, hashes)
        report.fingerprint, report.identity = calibrated.fingerprint, calibrated.identity
    if name is StageName.JUDGE and job.recipe.judge and report.identity is not None:
        levels = describe_levels(job.recipe.judge.calibration, report.identity)
        report.figures["levels"] = levels
    if name is StageName.ADHERENCE and job.recipe.adherence and report.identity is not None:
        threshold = describe_threshold(job.recipe.adherence, report.identity)
        report.figures["role_threshold"] = threshold
    _count(job, name, rows, hashes)
    return rows


def _count(job: Job, name: StageName, rows: StageRows[Any], hashes: pl.Series) -> None:
    """Count a stage's rows into its report, and warn of what they lack."""
    report = job.log.stage(name)
    adherence, metrics, factuality = AdherenceTally(), MetricsTally(), FactualityTally()
    jury, cascade = JuryTally(), CascadeTally(_judge_prices(job))
    verdicts: Counter[str] = Counter()
    turns = in_part = 0
    for key, line in rows.stored(hashes):
        record = orjson.loads(line)
        reason = unscored_reason(record)
        report.count([reason])
        if reason is not None:
            if reason != UnscoredReason.SKIPPED:
                job.log.unscored.add(key)
            continue
        if name is StageName.JUDGE:
            if record.get("verdict") is not None:
                verdicts[record["verdict"]] += 1
                if record["identity"]["engine"] == "jury":
                    jury.add(record)
                elif record["identity"]["engine"] == "cascade":
                    cascade.add(record)
            missing = len(record.get("unscored_turns", ()))
        elif name is StageName.METRICS:
            metrics.add(record)
            missing = 0
        elif name is StageName.FACTUALITY:
            factuality.add(record)
            missing = 0
        else:
            adherence.add(record)
            missing = sum(turn["score"] is None for turn in record.get("per_turn", ()))
        turns += missing
        in_part += missing > 0
    if name is StageName.JUDGE:
        saved = cascade.report()
        report.figures |= {"verdicts": dict(verdicts), "jury": jury.report(), "cascade": saved}
        if saved is not None and job.recipe.models.cascade is not None:
            job.log.warn(drift_warning(saved, job.recipe.models.cascade.fit))
    job.log.warn_about_data(name)
    if turns:
        job.log.warn(
            f"{name}: {plural(turns, 'turn')} of {plural(in_part, 'dialogue')} with other scores could not be scored; "
            "--retry unscored asks for these turns again."
        )
    if name is StageName.METRICS:
        report.figures["metrics"] = metrics.report()
    if name is StageName.FACTUALITY:
        report.figures["factuality"] = factuality.report()
    if name is StageName.ADHERENCE:
        report.figures["adherence"] = adherence.decay()
        for warning in adherence.warnings():
            job.log.warn(warning)


def _judge_prices(job: Job) -> tuple[Prices | None, Prices | None]:
    """Return the prices of the two judges of a cascade; twice None without a cascade."""
    cascade = job.recipe.models.cascade
    if cascade is None:
        return None, None
    first, second = cascade.cascade
    return first.prices, second.prices
