"""Checks of a run's score table: which dialogues are unscored, which groups verdicts favour, which scores are all alike."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

import polars as pl

from curate.records import GOOD_VERDICTS, AuditCheck, ScoringStage
from curate.trust.audit.audit_figures import SHOWN, Behind, gap_check, not_run, share_check

UNSCORED_GAP, VERDICT_GAP, COLLAPSED = 0.1, 0.2, 0.9
NEAR = 0.05
"""Scores within this share of their scale about the median count as one."""
SCALES: Mapping[str, float] = {
    "mean_score": 4.0,
    "p_good": 1.0,
    "adherence": 1.0,
    "overall_score": 100.0,
    "factual_precision": 1.0,
}
"""Continuous scores by column, with the width of their scales."""
GROUPS = ("language", "role", "source")
_FOURTHS = ("the shortest fourth", "the second fourth", "the third fourth", "the longest fourth")


def unscored_checks(
    table: pl.DataFrame, stages: Sequence[ScoringStage], data_reasons: Sequence[str]
) -> list[AuditCheck]:
    """Check whether unscored dialogues are of one length, or of one language.

    Args:
        table: as `scores.parquet`, one row a distinct dialogue.
        stages: those of the run.
        data_reasons: codes of dialogues that a stage was not asked about; they are left out.
    """
    checks = []
    for stage in stages:
        reason = pl.col(f"{stage}_unscored")
        attempted = table.filter(reason.is_null() | ~reason.is_in(list(data_reasons)))
        for name, group in (("length", _fourth()), ("language", pl.col("language"))):
            rows = attempted.select("id", group=group, shows=reason.is_not_null())
            check = gap_check(
                "unscored",
                name,
                rows,
                threshold=UNSCORED_GAP,
                of=f"dialogues of stage {stage}",
                detail="not scored",
            )
            checks.append(check.model_copy(update={"name": f"{stage} by {name}"}))
    return checks


def _fourth() -> pl.Expr:
    """Return an expression for the fourth of the dialogues, by characters, that a row is in; equal lengths share one."""
    number = (pl.col("characters").rank("min") - 1) * 4 // pl.len()
    return number.cast(pl.Int32).replace_strict(dict(enumerate(_FOURTHS)), return_dtype=pl.String)


def verdict_checks(table: pl.DataFrame) -> list[AuditCheck]:
    """Check whether good verdicts depend on language, role or source.

    Args:
        table: as `scores.parquet`, one row a distinct dialogue.
    """
    judged = table.filter(pl.col("verdict").is_not_null())
    good = pl.col("verdict").cast(pl.String).is_in([*GOOD_VERDICTS])
    return [
        gap_check(
            "verdicts by group",
            name,
            judged.select("id", group=pl.col(name), shows=good),
            threshold=VERDICT_GAP,
            of="judged dialogues",
            detail="good or excellent",
        )
        for name in GROUPS
    ]


def collapse_checks(table: pl.DataFrame) -> list[AuditCheck]:
    """Check which continuous scores, and which metrics, are nearly the same for all dialogues.

    Args:
        table: as `scores.parquet`, one row a distinct dialogue. Columns without any score are left out.
    """
    columns = [name for name in SCALES if name in table.columns and table[name].count()]
    metrics = [
        name
        for name, dtype in table.schema.items()
        if name.startswith("metric_") and dtype.is_integer() and table[name].count()
    ]
    return [
        *(_collapse(table, name, NEAR * SCALES[name]) for name in columns),
        *(_collapse(table, name, 0.0) for name in metrics),
    ]


def _collapse(table: pl.DataFrame, name: str, width: float) -> AuditCheck:
    """Return the share of dialogues within a band about the median; without a width, of the commonest value."""
    known = table.select("id", value=pl.col(name).cast(pl.Float64)).drop_nulls("value")
    # The commonest value, or the lowest of several.
    middle = known["value"].median() if width else known["value"].mode().min()
    centre = cast("float", middle)
    near = known.filter((pl.col("value") - centre).abs() <= width / 2 + 1e-9)
    detail = f"within {width / 2:g} of the median, {centre:.3g}" if width else f"it is {centre:g}"
    return share_check(
        "collapsed scores",
        name,
        Behind(near.height, near["id"].head(SHOWN).to_list()),
        known.height,
        threshold=COLLAPSED,
        of="dialogues",
        detail=detail,
    )


def no_judge_checks() -> list[AuditCheck]:
    """Return checks that were not run, for a run without judgments."""
    return [
        not_run("verdicts by group", name, VERDICT_GAP, 0, "no rubric judge") for name in GROUPS
    ]
