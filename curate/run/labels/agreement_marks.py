"""Apply a report of agreement to a run: warnings about conditions, and a file beside its exports.

A dimension that is not for use still stands in every row, so whoever filters by it, or trains on the result, has to
know.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import polars as pl

from curate.recipe import Recipe
from curate.records import Agreement, TrustKind
from curate.run.trust_reports import current_report, write_mark
from curate.selection.columns import dimensions_of_column
from curate.selection.expressions import columns_of, parse
from curate.selection.rules import filters, narrowed, questions

MARKS = "agreement.json"
"""File beside the trainers' folders."""
_DIRECT: Final = frozenset({"verdict", "good"})


def current_agreement(run: Path, fingerprints: Mapping[str, str]) -> Agreement | None:
    """Return the run's report of agreement if it is about rows with these fingerprints, else None.

    Raises:
        CurateError: the report is damaged.
    """
    return current_report(run, Agreement, TrustKind.AGREEMENT, fingerprints)


def filter_warnings(report: Agreement, conditions: Mapping[str, str]) -> Iterator[str]:
    """Yield a sentence for each condition that uses a dimension that is not for use.

    Args:
        report: of the run.
        conditions: SQL by its place in the recipe.
    """
    not_for_use = report.not_for_use
    for place, sql in conditions.items():
        reasons: dict[str, str] = {}
        for column in sorted(columns_of(parse(sql, place))):
            names = dimensions_of_column(column)
            # Where people judged verdicts, these say it; what they are made of does not matter then.
            direct = [name for name in names if name in _DIRECT and name in report.dimensions]
            reasons |= {name: not_for_use[name] for name in direct or names if name in not_for_use}
        if reasons:
            why = "; ".join(f"{name} ({reason})" for name, reason in reasons.items())
            yield f"{place} uses what `curate agreement` marks as not for use: {why}."


def mark_warnings(recipe: Recipe, report: Agreement, table: pl.LazyFrame) -> Iterator[str]:
    """Yield a sentence for each part of a recipe that uses a dimension that is not for use.

    Args:
        report: of the run.
        table: its score table.
    """
    conditions: dict[str, str] = {}
    if recipe.select:
        conditions |= filters(narrowed(table, questions(recipe.select)), recipe.select)
    if recipe.fork:
        conditions["fork.where"] = recipe.fork.where
    if recipe.export:
        parts = {"salvage": recipe.export.salvage, "kto_turns": recipe.export.kto_turns}
        conditions |= {
            f"export.{name}.where": section.where for name, section in parts.items() if section
        }
    yield from filter_warnings(report, conditions)
    warning = pair_warning(report)
    if warning is not None and (recipe.fork or recipe.natural.verification is not None):
        yield warning


def pair_warning(report: Agreement) -> str | None:
    """Return the warning about pairs passed by the judge's preference, if that is not for use; else None."""
    why = report.not_for_use.get("preference")
    if why is None:
        return None
    return f"Pairs are passed by the judge's preference, marked not for use by `curate agreement`: {why}."


def write_marks(run: Path, report: Agreement | None) -> None:
    """Write `agreement.json` beside the exports, if there are any; remove that of an earlier report."""
    mark = report and {
        "sentence": report.sentence,
        "made": report.made,
        "not_for_use": report.not_for_use,
        "shares": [share.model_dump(mode="json") for share in report.shares],
    }
    write_mark(run, MARKS, mark)
