"""A run from source to export: a list of stages, each of which reads rows, writes rows and leaves a report.

    ingest > find natural pairs > judge > adherence > persona check > metrics > table > fork > verify natural pairs > select > pairs > export

The models are open from the judge to the last verification, and closed before selection begins. Each stage reads rows
and appends rows to the run folder, so a run that ends early (kill, Ctrl-C, budget, an unreachable server) is resumed by
running it again: rows that are there are reused, replies that were received are not asked for twice.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import polars as pl

from curate.engines.model_pool import ModelFacts, trust_warning
from curate.errors import BudgetReached, CurateError
from curate.executors.loop import run as run_in_loop
from curate.executors.opening import Executor, open_executor
from curate.notebook import progress_bars
from curate.planning.estimate import (
    PAIR_SHARE,
    AssumedShare,
    Reservoir,
    estimate,
    estimate_left,
)
from curate.planning.rates import rates_of
from curate.recipe import Recipe, as_recipe
from curate.records import Agreement, Rates, StageName
from curate.run.cleaning_inputs import CleaningInputs, prepare_cleaning
from curate.run.export import export_run
from curate.run.ingest import read_index, read_sources, sum_reports
from curate.run.judge_checks import Swapped, check_judge_scores, judge_swapped
from curate.run.labels.agreement_marks import (
    current_agreement,
    mark_warnings,
    write_marks,
)
from curate.run.labels.certificates import (
    check_scores,
    check_source,
    check_stages,
    settle_certificates,
    write_certificate_marks,
)
from curate.run.pairs import Pairing
from curate.run.read_back import last_manifest
from curate.run.result import RunResult
from curate.run.review_answers import kept_answers, passed_pairs, review_report, reviews_of
from curate.run.rows_left import (
    KeptRows,
    Reused,
    gap_warnings,
    last_fork_share,
    reuse_gaps,
    taken_over_gaps,
)
from curate.run.runlog import RunLog, Status
from curate.run.scoring import ScoreRows, ask_for_scores, scores_without_a_judge
from curate.run.select import select_dialogues, tabulate
from curate.run.staging import Job, Progress
from curate.run.trust_reports import trust_sentences
from curate.sources import Source, open_source
from curate.stages import bind_stages
from curate.storage.remote import open_run_folder


def run_recipe(
    recipe: Recipe | Mapping[str, Any] | str | Path,
    *,
    out: str | Path | None = None,
    limit: int | None = None,
    retry_unscored: bool = False,
    keep_going: bool = False,
    progress: Progress | None = None,
    notify: Callable[[str], None] | None = None,
) -> RunResult:
    """Run a recipe from source to export, or resume it.

    Args:
        recipe: what to do: the path of a recipe file, the same as a mapping, or what `load_recipe` gives.
        out: run folder, or the URL of one (see `curate.storage.remote`); `runs/<recipe name>` by default.
        limit: read only the first rows (conversations, where one spans several rows) of each source.
        retry_unscored: ask again for dialogues that an earlier run could not score.
        keep_going: go through all dialogues even where the first 50 of a stage all fail for one reason.
        progress: called with how far each stage is (name, rows done, rows in all); in a notebook bars by default.
        notify: called with each message that the user should read before a model is asked, a sentence at a time; the
            manifest's warnings have them, too.

    Returns:
        The result; its `exit_code` is what the command line exits with.

    Raises:
        UsageError: the recipe cannot be read, or cannot run as it is (no judge, unreadable source, missing extra,
            judgments that `reuse.required` asks for).
        EngineError: a model cannot be reached or used at all, or a stage's first 50 dialogues all failed.
        RunLockedError: another process writes the folder.
        CurateError: any other known problem, such as a full disk. What was done is kept.
    """
    recipe = as_recipe(recipe).checked()
    sources = open_sources(recipe, limit)
    place = out if out is not None else Path("runs") / recipe.name
    with progress_bars() as bars, open_run_folder(place) as folder:
        job = Job(
            recipe,
            folder,
            RunLog(recipe),
            retry_unscored=retry_unscored,
            keep_going=keep_going,
            progress=progress or bars,
            notify=notify or (lambda _: None),
        )
        return run_in_loop(_run(job, sources))


def open_sources(recipe: Recipe, limit: int | None = None) -> list[Source]:
    """Open every source of a recipe: find its files and detect their shapes."""
    update = {} if limit is None else {"limit": limit}
    return [open_source(source.model_copy(update=update)) for source in recipe.source]


async def _run(job: Job, sources: list[Source]) -> RunResult:
    """Run all stages; the manifest is written at the start and however the run ends."""
    rates = _earlier_rates(job)
    write_manifest(job, "running")
    try:
        await _stages(job, sources, rates)
    except BudgetReached as reached:
        job.log.warn(str(reached))
        return write_manifest(job, "budget")
    except BaseException as error:
        if isinstance(error, CurateError):
            job.log.warn(str(error))
        write_manifest(job, "failed")
        raise
    over = job.log.is_over(job.recipe.max_unscored)
    return write_manifest(job, "unscored" if over else "done")


async def _stages(job: Job, sources: list[Source], rates: Rates | None) -> None:
    """Run the stages in order."""
    recipe, log = job.recipe, job.log
    cleaning = cleaning_of(job)
    sample = _ingest(job, sources)

    def before_calls(pairs: Pairing, models: ModelFacts) -> None:
        _estimate(job, pairs, sample, rates, models)

    opening = open_executor(recipe, job.path, log.accounting, log.budget)
    await after_ingest(job, cleaning, opening, before_calls)


async def after_ingest(
    job: Job,
    cleaning: CleaningInputs | None,
    opening: AbstractAsyncContextManager[Executor],
    before_calls: Callable[[Pairing, ModelFacts], None] = lambda *_: None,
) -> None:
    """Run all stages that follow once the dialogues are in the run folder.

    Args:
        job: its folder holds dialogues and their index.
        cleaning: as `cleaning_of` gives it.
        opening: opens the executor that asks the recipe's models; entered only where the recipe asks some.
        before_calls: called with the models before any is asked.
    """
    recipe, log = job.recipe, job.log
    check_source(job)
    pairs = Pairing(job, cleaning)
    if recipe.asks_models:
        if recipe.natural.verification is not None:
            pairs.find_natural()
        async with opening as executor:
            table, scores, swapped = await _ask(job, pairs, executor, before_calls)
    else:
        _require_reused(job)
        swapped = None
        scores = await scores_without_a_judge(job)
        table = tabulate(job, scores)
    if scores.judgments is not None:
        check_judge_scores(job, scores.judgments, swapped)
    agreement = _agreement(job)
    if agreement is not None:
        for warning in mark_warnings(recipe, agreement, table):
            log.warn(warning)
    check_scores(job)
    reviews = reviews_of(kept_answers(job.path))
    decided = select_dialogues(job, table, cleaning, reviews)
    with log.timed("pairs"):
        pairs.write(decided)
    settle_certificates(job)
    if recipe.export:
        with log.timed("export"):
            log.exports.update(export_run(job.path, recipe.export, table, decided, scores, reviews))
    log.review = review_report(decided, reviews, passed_pairs(job.path))
    write_marks(job.path, agreement)
    write_certificate_marks(job.path, log.fingerprints)


def _agreement(job: Job) -> Agreement | None:
    """Return the agreement of this run's scores with people's labels; None where it was not measured on them."""
    fingerprints = {name.value: report.fingerprint for name, report in job.log.stages.items()}
    return current_agreement(job.path, fingerprints)


async def _ask(
    job: Job,
    pairs: Pairing,
    executor: Executor,
    before_calls: Callable[[Pairing, ModelFacts], None],
) -> tuple[pl.LazyFrame, ScoreRows, Swapped | None]:
    """Run the stages that ask models."""
    recipe, models = job.recipe, executor.models
    job.log.engines = models.records(recipe.models.judges_by_role)
    _warn_about(job, models)
    stages = bind_stages(recipe, models)
    check_stages(job, stages)
    before_calls(pairs, models)
    scores = await ask_for_scores(job, stages, executor)
    swapped = None
    if stages.persona is not None:
        with job.log.timed(StageName.PERSONA):
            swapped = await judge_swapped(job, stages.persona, executor)
    table = tabulate(job, scores)
    if recipe.fork and stages.fork is not None:
        with job.log.timed(StageName.FORK):
            await pairs.fork(recipe.fork, stages.fork, table, scores, executor)
    if stages.natural is not None:
        with job.log.timed(StageName.NATURAL):
            await pairs.verify_natural(stages.natural, executor)
    return table, scores, swapped


def _earlier_rates(job: Job) -> Rates | None:
    """Return the rates of an earlier run in the folder; warn where that run cannot be read or is of another recipe."""
    earlier = last_manifest(job.path)
    if earlier is None:
        if job.folder.manifest_path.exists():
            job.log.warn(f"{job.folder.manifest_path} could not be read back; it is made again.")
        return None
    if (name := earlier.recipe.get("name")) != job.recipe.name:
        job.log.warn(
            f"The folder held the run of another recipe, {name!r}: its sets, pairs, exports and manifest "
            "are replaced by those of this one. Its scores are kept: run that recipe again, and there are no model calls."
        )
    return rates_of(earlier, str(job.path))


def cleaning_of(job: Job) -> CleaningInputs | None:
    """Return the inputs of the selection's cleaning; eval sets are read before any model is asked."""
    cleaning = prepare_cleaning(job.recipe.select) if job.recipe.select else None
    for warning in cleaning.warnings if cleaning else ():
        job.log.warn(warning)
    return cleaning


def _ingest(job: Job, sources: list[Source]) -> Reservoir:
    """Read the sources; return an even sample of their dialogues."""
    recipe, sample = job.recipe, Reservoir()
    with job.log.timed("ingest"):
        reports = read_sources(
            sources,
            job.path,
            role=recipe.role,
            scenario=recipe.scenario,
            role_from=recipe.role_from,
            mix_seed=recipe.mix_seed,
            progress=lambda rows: job.progress("ingest", rows, rows),
            see=sample.add,
        )
    job.log.parts.append(sum_reports(reports, job.path))
    return sample


def _warn_about(job: Job, models: ModelFacts) -> None:
    for warning in models.warnings:
        job.log.warn(warning)
    for judge in models.judges:
        job.log.warn(trust_warning(judge.identity))
    if job.recipe.metrics:
        job.log.warn(trust_warning(models.metrics.identity))
    if job.recipe.fork and models.judge.identity.key == models.policy.identity.key:
        job.log.warn(
            "Judge and policy are the same model: it judges its own writing, and favours it."
        )


def _estimate(
    job: Job, pairs: Pairing, sample: Reservoir, rates: Rates | None, models: ModelFacts
) -> None:
    """Estimate the run from the sample that ingestion drew; warn of what `reuse` does not find, before any call."""
    recipe, log = job.recipe, job.log
    share = PAIR_SHARE
    if pairs.natural is not None:
        share = AssumedShare(len(pairs.natural.keys) / max(1, sample.seen), "counted")
    try:
        log.estimate = estimate(
            recipe,
            sample.dialogues,
            sample.seen,
            models,
            rates=rates,
            fork_share=last_fork_share(recipe, job.path),
            pair_share=share,
        )
    except CurateError:
        raise
    except Exception as error:
        # The stages' own code runs here; a failure of it must fail one dialogue later, not the run now.
        log.warn(f"no estimate could be made: {type(error).__name__}: {error}")
    if recipe.reused_run is None:
        return
    kept_rows = _kept(job, pairs)
    gaps = reuse_gaps(recipe, models, kept_rows, Reused.of(recipe.reused_run))
    left = None
    if gaps and log.estimate is not None:
        left = estimate_left(recipe, sample.dialogues, sample.seen, models, kept_rows)
    for warning in gap_warnings(recipe, gaps, left):
        log.warn(f"{warning}.")
        job.notify(f"{warning}.")


def _require_reused(job: Job) -> None:
    """Refuse to go on where `reuse.required` asks for judgments that are not there."""
    recipe = job.recipe
    if recipe.reuse is not None and recipe.reuse.required:
        gaps = taken_over_gaps(recipe, _kept(job), Reused.of(recipe.reuse.run))
        gap_warnings(recipe, gaps, None)


def _kept(job: Job, pairs: Pairing | None = None) -> KeptRows:
    dialogues = read_index(job.path, "id", "content_hash")
    natural_ids = None if pairs is None or pairs.natural is None else pairs.natural.keys
    return KeptRows.of(job.recipe, job.path, dialogues, natural_ids)


def write_manifest(job: Job, status: Status) -> RunResult:
    """Write the manifest of the run as it is now; return the run's result."""
    manifest = job.log.manifest(status)
    trust = trust_sentences(job.path, manifest.fingerprints)
    manifest = manifest.model_copy(update={"trust": trust})
    job.folder.write_manifest(manifest.model_dump(mode="json"))
    return RunResult(job.path, manifest)
