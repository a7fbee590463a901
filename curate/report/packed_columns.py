"""Columns as the page holds them: small as JSON, and read without unpacking.

A column is `{"v": values}`, or where few values come again and again `{"d": distinct values, "c": place in d or -1}`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import polars as pl

_DIGITS = 4
CONTENT_SIGNS = 8
"""First characters of a content hash: enough to see that a dialogue is not as it was reviewed."""


def encoded(values: Sequence[Any]) -> dict[str, Any]:
    """Return a column for the page; floats are rounded to four digits after the point, lists are values as a whole."""
    if not values or all(isinstance(value, (int, float, type(None))) for value in values):
        return {"v": [rounded(value) for value in values]}
    places: dict[Any, int] = {}
    codes = []
    for value in values:
        if value is None:
            codes.append(-1)
            continue
        key = tuple(value) if isinstance(value, (list, tuple)) else value
        codes.append(places.setdefault(key, len(places)))
    if 2 * len(places) > len(values):
        return {"v": list(values)}
    return {"d": list(places), "c": codes}


def column_kind(dtype: pl.DataType) -> str:
    """Return how the page filters and sorts a column: number, boolean, list or text."""
    if dtype == pl.Boolean:
        return "boolean"
    if dtype.is_numeric():
        return "number"
    return "list" if isinstance(dtype, pl.List) else "text"


def rounded(value: Any) -> Any:
    """Return a number as a column has it."""
    return round(value, _DIGITS) if isinstance(value, float) else value
