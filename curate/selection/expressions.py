"""SQL conditions over the score table: parsed, checked against the columns there are, evaluated.

Conditions are polars SQL expressions (`pl.sql_expr`). They are checked on an empty table before anything
runs, so that a misspelt column costs no model call.
"""

from __future__ import annotations

import difflib
import re
import textwrap
from collections.abc import Collection, Iterable, Mapping

import polars as pl
from polars.exceptions import PolarsError

from curate.errors import UsageError
from curate.records import VERDICTS, ScoringStage
from curate.selection.columns import (
    LABEL_PREFIX,
    METRIC_PREFIX,
    SCHEMA,
    metric_type,
    stages_of_column,
)

_TEXT = re.compile(r"'((?:[^']|'')*)'")
_VERDICT_COLUMNS = frozenset({"verdict", "judge_verdict"})


def parse(sql: str, where: str) -> pl.Expr:
    """The expression of a piece of SQL; `where` names it in the error."""
    try:
        return pl.sql_expr(sql)
    except PolarsError as error:
        raise UsageError(
            f"{where} is not an SQL expression",
            got=f"{sql!r} ({_first_line(error)})",
            expected="for example: verdict >= 'good' AND min_safety = 5",
            fix="text stands in single quotes; one expression, without SELECT or WHERE",
        ) from error


def columns_of(expression: pl.Expr) -> frozenset[str]:
    """Names of the columns an expression reads."""
    return frozenset(expression.meta.root_names())


def stages_of(names: Iterable[str], ran: Collection[ScoringStage] = ()) -> frozenset[ScoringStage]:
    """The stages whose scores the named columns need.

    A column made of several stages' scores needs those of them that `ran`.
    """
    needed = (stages_of_column(name) for name in names)
    return frozenset(
        stage for stages in needed for stage in stages if len(stages) == 1 or stage in ran
    )


def check_condition(sql: str, where: str) -> frozenset[str]:
    """Check that SQL is a yes-or-no question about one row of the table.

    Args:
        where: its place in the recipe, for the error.

    Returns:
        The columns it reads.

    Raises:
        UsageError: bad SQL, an unknown column (with the nearest known one), text that is no verdict, a
            comparison of text with numbers, or a result that is neither true nor false.
    """
    dtype, names = _check(sql, where)
    if not isinstance(dtype, (pl.Boolean, pl.Null)):
        raise UsageError(
            f"{where} is not a condition",
            got=f"{sql!r}, which gives {dtype}",
            expected="an expression that is true or false",
            fix=f"compare it with something, for example: {sql} >= 3",
        )
    return names


def check_ranking(sql: str, where: str) -> frozenset[str]:
    """Check that SQL gives something to sort by (numbers, or verdicts); otherwise as `check_condition`."""
    dtype, names = _check(sql, where)
    if not (dtype.is_numeric() or isinstance(dtype, (pl.Boolean, pl.Enum, pl.Null))):
        raise UsageError(
            f"{where} cannot be ranked",
            got=f"{sql!r}, which gives {dtype}",
            expected="numbers, for example: mean_score",
        )
    return names


def check_columns(
    names: Iterable[str],
    where: str,
    schema: Mapping[str, pl.DataType] = SCHEMA,
    *,
    labels_known: bool = False,
) -> None:
    """Raise a UsageError that names the first column the table does not have.

    Which label columns there are is known once the data is read, and which metrics once the recipe is; before, any
    is let through.
    """
    for name in sorted(names):
        if name in schema or (name.startswith((LABEL_PREFIX, METRIC_PREFIX)) and not labels_known):
            continue
        close = difflib.get_close_matches(name.lower(), schema, n=3)
        listed = textwrap.fill(
            ", ".join(schema), 76, initial_indent="    ", subsequent_indent="    "
        )
        raise UsageError(
            f"{where} reads a column that the score table does not have",
            got=name,
            expected=f"did you mean {' or '.join(close)}?" if close else "a column of that table",
            fix=f"text stands in single quotes: '{name}'; labels are {LABEL_PREFIX}<name>\n"
            + ("  columns: docs/selecting.md lists them all" if close else f"  columns:\n{listed}"),
        )


def evaluate(table: pl.DataFrame, sql: str, where: str) -> pl.Series:
    """The expression's value for every row of a table.

    Raises:
        UsageError: as `check_condition`, or a value that the data does not allow, as a cast that fails.
    """
    expression = parse(sql, where)
    check_columns(columns_of(expression), where, table.schema, labels_known=True)
    try:
        # with_columns, because a constant or an aggregate must fill as many rows as there are
        return table.with_columns(expression.alias("value"))["value"]
    except PolarsError as error:
        raise _unfit(sql, where, error) from error


def _check(sql: str, where: str) -> tuple[pl.DataType, frozenset[str]]:
    expression = parse(sql, where)
    names = columns_of(expression)
    check_columns(names, where)
    if names and names <= _VERDICT_COLUMNS:
        for text in _TEXT.findall(sql):
            if text not in VERDICTS:
                raise UsageError(
                    f"{where} compares with a verdict that does not exist",
                    got=repr(text),
                    expected="one of " + ", ".join(VERDICTS),
                )
    metrics = {name: dtype for name in names if (dtype := metric_type(name)) is not None}
    known = SCHEMA | metrics
    unknown = {name: pl.Null() for name in names - set(known)}
    try:
        empty = pl.DataFrame(schema={**known, **unknown})
        return empty.select(expression.alias("value")).schema["value"], names
    except PolarsError as error:
        if unknown:
            # The type of a label is known once the data is read; what it does not suit is said then.
            return pl.Null(), names
        raise _unfit(sql, where, error) from error


def _unfit(sql: str, where: str, error: PolarsError) -> UsageError:
    return UsageError(
        f"{where} does not fit the score table",
        got=f"{sql!r} ({_first_line(error)})",
        expected="columns compared with values of their own type; docs/selecting.md lists them",
    )


def _first_line(error: PolarsError) -> str:
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
