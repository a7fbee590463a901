"""SQL conditions over the score table: parsing, checks against its columns, evaluation.

Conditions are polars SQL expressions (`pl.sql_expr`). They are checked on an empty table before a run starts, so a
misspelt column is found before any model call.
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
    """Return SQL as a polars expression.

    Raises:
        UsageError: it is not an SQL expression; `where` names its place in the recipe.
    """
    try:
        return pl.sql_expr(sql)
    except PolarsError as error:
        raise UsageError(
            f"{where} is not an SQL expression",
            got=f"{sql!r} ({_first_line(error)})",
            expected="for example: verdict >= 'good' AND min_safety = 5",
            fix="write one expression, without SELECT or WHERE, and put text in single quotes",
        ) from error


def columns_of(expression: pl.Expr) -> frozenset[str]:
    """Return the names of the columns that an expression reads."""
    return frozenset(expression.meta.root_names())


def stages_of(names: Iterable[str], ran: Collection[ScoringStage] = ()) -> frozenset[ScoringStage]:
    """Return the stages whose scores the named columns need.

    A column computed from several stages needs only those in `ran`.
    """
    stages_by_column = (stages_of_column(name) for name in names)
    return frozenset(
        stage for stages in stages_by_column for stage in stages if len(stages) == 1 or stage in ran
    )


def check_condition(sql: str, where: str) -> frozenset[str]:
    """Check that SQL is true or false for each row of the table.

    Args:
        where: its place in the recipe, for the error.

    Returns:
        The columns it reads.

    Raises:
        UsageError: bad SQL, an unknown column (the message suggests the nearest ones), text that is not a verdict,
            a comparison of text with numbers, or a result that is neither true nor false.
    """
    dtype, names = _check(sql, where)
    check_truth(dtype, sql, where)
    return names


def check_truth(dtype: pl.DataType, sql: str, where: str) -> None:
    """Check that what SQL gives is true or false (or null).

    Raises:
        UsageError: it is anything else.
    """
    if not isinstance(dtype, (pl.Boolean, pl.Null)):
        raise UsageError(
            f"{where} is not a condition",
            got=f"{sql!r}, which gives {dtype}",
            expected="an expression that is true or false",
            fix=f"compare it with something, for example: {sql} >= 3",
        )


def check_ranking(sql: str, where: str) -> frozenset[str]:
    """Check that SQL gives values to sort by (numbers or verdicts); otherwise as `check_condition`."""
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

    Label and metric columns depend on the data and the recipe; unless `labels_known`, any of them is accepted.
    """
    for name in sorted(names):
        if name in schema or (name.startswith((LABEL_PREFIX, METRIC_PREFIX)) and not labels_known):
            continue
        close = difflib.get_close_matches(name.lower(), schema, n=3)
        all_columns = textwrap.fill(
            ", ".join(schema), 76, initial_indent="    ", subsequent_indent="    "
        )
        raise UsageError(
            f"{where} reads a column that the score table does not have",
            got=name,
            expected=f"did you mean {' or '.join(close)}?" if close else "a column of that table",
            fix=f"put text in single quotes: '{name}'; a label's column is {LABEL_PREFIX}<name>\n"
            + (
                "  columns: docs/selecting.md lists them all"
                if close
                else f"  columns:\n{all_columns}"
            ),
        )


def evaluate(table: pl.DataFrame, sql: str, where: str) -> pl.Series:
    """Return the expression's value for every row of a table.

    Raises:
        UsageError: bad SQL, an unknown column, or values for which the expression fails, such as a cast.
    """
    expression = parse(sql, where)
    check_columns(columns_of(expression), where, table.schema, labels_known=True)
    try:
        # with_columns, because a constant or an aggregate must fill as many rows as there are
        return table.with_columns(expression.alias("value"))["value"]
    except PolarsError as error:
        raise _unfit(sql, where, error) from error


def evaluate_condition(table: pl.DataFrame, sql: str, where: str) -> pl.Series:
    """Return for every row of a table whether a condition is true, or null; a label's 1 is true, its 0 false.

    Raises:
        UsageError: as `evaluate`; or a value that is neither true nor false.
    """
    value = evaluate(table, sql, where)
    is_binary = value.dtype.is_numeric() and ((value == 0) | (value == 1)).all()
    check_truth(pl.Boolean() if is_binary else value.dtype, sql, where)
    return value.cast(pl.Boolean)


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
    schema = SCHEMA | metrics
    unknown = {name: pl.Null() for name in names - set(schema)}
    try:
        empty = pl.DataFrame(schema={**schema, **unknown})
        return empty.select(expression.alias("value")).schema["value"], names
    except PolarsError as error:
        if unknown:
            # the types of labels are known only once the data is read; `evaluate` reports a mismatch then
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
