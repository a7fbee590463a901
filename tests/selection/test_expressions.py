"""What a user is told of SQL that cannot be asked."""

from __future__ import annotations

import pytest

from curate.errors import UsageError
from curate.selection.columns import SCHEMA
from curate.selection.expressions import check_condition


def refusal(sql: str) -> list[str]:
    with pytest.raises(UsageError) as raised:
        check_condition(sql, "select.where.kind_enough")
    return str(raised.value).splitlines()


@pytest.mark.parametrize(
    ("written", "meant"),
    [("mean_scor", "mean_score"), ("adherance", "adherence"), ("Min_Safety", "min_safety")],
)
def test_the_nearest_columns_come_before_anything_long(written: str, meant: str) -> None:
    problem, got, expected, *rest = refusal(f"{written} > 3")
    assert got == f"  got: {written}"
    assert expected.startswith(f"  expected: did you mean {meant}")
    assert len(rest) == 2
    assert all(len(line) <= 80 for line in (problem, expected, *rest))


def test_where_nothing_is_near_the_columns_stand_last_and_fit_a_terminal() -> None:
    _, _, expected, advice, heading, *columns = refusal("zzz > 3")
    assert expected == "  expected: a column of that table"
    assert "'zzz'" in advice
    assert heading == "  columns:"
    assert ", ".join(line.strip().removesuffix(",") for line in columns) == ", ".join(SCHEMA)
    assert all(len(line) <= 80 for line in columns)
