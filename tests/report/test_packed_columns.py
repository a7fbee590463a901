"""Columns of the page: what is read back is what was given."""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from curate.report.packed_columns import column_kind, encoded

VALUES = st.one_of(
    st.none(),
    st.text(max_size=5),
    st.booleans(),
    st.lists(st.sampled_from(["sft", "review", "rejected"]), max_size=3),
)


def decoded(column: dict[str, Any]) -> list[Any]:
    """As the page reads it."""
    if "v" in column:
        return list(column["v"])
    return [None if code < 0 else column["d"][code] for code in column["c"]]


def as_list(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


@pytest.mark.hypothesis
@given(st.lists(VALUES, max_size=40))
def test_values_come_back(values: list[Any]) -> None:
    shown = [as_list(value) for value in decoded(encoded(values))]
    assert shown == values
    # True and 1 are equal, and are not the same.
    assert [type(value) for value in shown] == [type(value) for value in values]


def test_values_that_repeat_are_kept_once() -> None:
    assert encoded(["de", "en", "de", "de", None]) == {"d": ["de", "en"], "c": [0, 1, 0, 0, -1]}


def test_numbers_are_rounded_and_none_is_no_number() -> None:
    assert encoded([0.123456, None, 3]) == {"v": [0.1235, None, 3]}


@pytest.mark.parametrize(
    ("dtype", "kind"),
    [
        (pl.Int8(), "number"),
        (pl.Float64(), "number"),
        (pl.Boolean(), "boolean"),
        (pl.List(pl.String), "list"),
        (pl.Enum(["poor", "good"]), "text"),
        (pl.String(), "text"),
    ],
)
def test_kinds(dtype: pl.DataType, kind: str) -> None:
    assert column_kind(dtype) == kind
