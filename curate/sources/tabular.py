"""Rows of Parquet and Arrow files, Hub datasets and anything else made of columns, as plain JSON values."""

from __future__ import annotations

import base64
import math
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from curate.errors import SourceError

BATCH = 1_000


def arrow_rows(path: Path, kind: str) -> Iterator[dict[str, Any]]:
    """The rows of a Parquet or Arrow file, a batch in memory at a time.

    Arrow files in the stream format, which `datasets` writes, are read whole: they have no index.

    Raises:
        SourceError: the file is not what its name says.
    """
    try:
        frame = pl.scan_parquet(path) if kind == ".parquet" else _arrow_frame(path)
        batches = frame.collect_batches(chunk_size=BATCH, maintain_order=True)
        for batch in batches:
            for row in batch.iter_rows(named=True):
                yield plain_row(row)
    except (pl.exceptions.PolarsError, OSError) as problem:
        raise SourceError(
            f"{path} cannot be read as {kind[1:]}", got=problem, fix="check the file"
        ) from None


def _arrow_frame(path: Path) -> pl.LazyFrame:
    with path.open("rb") as file:
        indexed = file.read(6) == b"ARROW1"
    return pl.scan_ipc(path) if indexed else pl.read_ipc_stream(path).lazy()


def plain_row(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row of columns as JSON values, without nulls inside objects.

    A table gives every object all the fields that any of them has; the missing ones come as nulls.
    """
    return {str(key): plain(value) for key, value in row.items()}


def plain(value: Any) -> Any:
    """A value as JSON can hold it: bytes as base64, dates as ISO text, NaN as null."""
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items() if item is not None}
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, np.generic):
        return plain(value.item())
    if isinstance(value, Iterable):
        return [plain(item) for item in value]
    if hasattr(value, "isoformat"):
        return value.isoformat()
    return str(value)
