"""Make the score table of a run, and select its dialogues."""

from __future__ import annotations

from collections import Counter

import polars as pl

from curate.records import SelectionReport
from curate.run.cleaning_inputs import CleaningInputs
from curate.run.outputs import rejections, set_fingerprint, write_scores, write_selection
from curate.run.review_answers import Reviews, with_reviews
from curate.run.scoring import ScoreRows
from curate.run.staging import Job
from curate.selection.rules import decide, narrowed, questions
from curate.selection.table import mixed_identities
from curate.storage.whole_files import make_folder


def tabulate(job: Job, scores: ScoreRows) -> pl.LazyFrame:
    """Write the score table; return it as a lazy frame."""
    judge, role = job.recipe.judge, job.recipe.adherence
    metrics = job.recipe.metrics
    calibration = judge.calibration if judge else None
    with job.log.timed("table"):
        table = write_scores(
            job.path,
            scores.judgments,
            scores.adherence,
            scores.metrics,
            scores.factuality,
            judged_share=judge.min_scored_share if judge else None,
            adherence_share=role.min_scored_share if role else None,
            good=None if calibration is None else calibration.good,
            metric_names=[*metrics.chosen] if metrics else [],
        )
        for stage, keys in mixed_identities(table).items():
            job.log.warn(
                f"{stage} scores come from several judges and do not compare: {', '.join(keys)}."
            )
    return table


def select_dialogues(
    job: Job, table: pl.LazyFrame, cleaning: CleaningInputs | None, reviews: Reviews
) -> pl.DataFrame | None:
    """Select dialogues by the rules, and by people's reviews in their place; write decisions and sets.

    Returns:
        The decisions, as `decide` gives them; None where the recipe selects nothing.
    """
    config = job.recipe.select
    if not config:
        return None
    with job.log.timed("select"):
        columns = narrowed(table, questions(config))
        if cleaning is None:
            decided = decide(columns, config)
        else:
            folder = job.path / "select"
            make_folder(folder)
            with cleaning.open(job.dialogues, folder) as cleaner:
                decided = decide(columns, config, cleaner)
        decided = with_reviews(decided, reviews)
        sets = write_selection(job.path, decided)
    selected = decided["reasons"].list.len() == 0
    job.log.sets["select"] = set_fingerprint(decided["content_hash"].filter(selected))
    first, every = rejections(decided)
    job.log.parts.append(
        SelectionReport(
            selected=sets.get("sft", 0), sets=sets, rejections=first, rejection_reasons=every
        )
    )
    if decided.height and not sets.get("sft"):
        reasons = Counter(every).most_common(3)
        why = ", ".join(f"{name} {count:,}" for name, count in reasons)
        job.log.warn(f"No dialogue is in the SFT set; most of them fail: {why}.")
    return decided
