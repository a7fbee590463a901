"""Cells of tables as JSON can hold them."""

from __future__ import annotations

import math
from datetime import date, datetime, timedelta
from decimal import Decimal

import numpy as np
import pytest

from curate.sources.tabular import plain, plain_row


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, None), (True, True), (3, 3), ("a", "a"), (1.5, 1.5), (math.nan, None), (math.inf, None),
        (b"ab", "YWI="), (date(2026, 3, 5), "2026-03-05"), (datetime(2026, 3, 5, 1, 2), "2026-03-05T01:02:00"),
        (np.int8(3), 3), (np.float32(math.nan), None), (np.array([1, 2]), [1, 2]), ((1, b"ab"), [1, "YWI="]),
        ({1: None, "b": {"c": None, "d": math.nan}}, {"b": {"d": None}}), (Decimal("1.50"), "1.50"),
        (timedelta(seconds=1), "0:00:01"),
    ],
)  # fmt: skip
def test_a_cell(value: object, expected: object) -> None:
    assert plain(value) == expected


def test_a_row_keeps_its_nulls_and_an_object_within_does_not() -> None:
    assert plain_row({1: None, "a": {"b": None}}) == {"1": None, "a": {}}
