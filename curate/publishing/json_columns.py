"""Columns of Arrow's JSON type, for messages that do not fit one struct type."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import orjson


def is_json(kind: Any) -> bool:
    """Return True if a type, or the type of its lists' items, is Arrow's JSON."""
    import pyarrow as pa

    inner = getattr(kind, "value_type", kind)
    return isinstance(inner, pa.JsonType)


def as_json(rows: Sequence[Sequence[Any]], kind: Any) -> Any:
    """Return lists of values as an array of lists of Arrow's JSON type."""
    import pyarrow as pa

    items = [orjson.dumps(item).decode() for row in rows for item in row]
    stops = [0]
    for row in rows:
        stops.append(stops[-1] + len(row))
    values = pa.ExtensionArray.from_storage(kind.value_type, pa.array(items, pa.string()))
    return pa.ListArray.from_arrays(pa.array(stops, pa.int32()), values, type=kind)
