"""Rows of Parquet and Arrow files, Hub datasets and anything else made of columns, as plain JSON values."""

from __future__ import annotations

import base64
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from curate.errors import SourceError
from curate.sources.unit_result import RawRow
from curate.storage.parquet_files import readable

BATCH = 1_000
_BAD_CELL = (ValueError, OverflowError, KeyError)
"""What Arrow raises on a cell that is no value of Python: a damaged text, a time out of range, a key twice in a map."""


def arrow_rows(path: Path, kind: str) -> Iterator[RawRow]:
    """Yield the rows of a Parquet or Arrow file, a batch in memory at a time.

    A row with a cell that cannot be read, such as a damaged text or a date after the year 9999, has a fault.

    Raises:
        SourceError: the file is not what its name says, or is damaged where no single row can be told.
    """
    number = 0
    with readable(path, partial(_unreadable, kind=kind)):
        for batch in _parquet_batches(path) if kind == ".parquet" else _arrow_batches(path):
            for row in _batch_rows(batch):
                number += 1
                yield replace(row, number=number)


def _unreadable(path: Path, problem: BaseException, kind: str) -> SourceError:
    return SourceError(f"{path} cannot be read as {kind[1:]}", got=problem, fix="check the file")


def _parquet_batches(path: Path) -> Iterator[Any]:
    import pyarrow.parquet as pq

    with pq.ParquetFile(path) as file:
        yield from file.iter_batches(BATCH)


def _arrow_batches(path: Path) -> Iterator[Any]:
    """Yield the batches of an Arrow file, or of a stream, which `datasets` writes."""
    from pyarrow import ipc

    with path.open("rb") as file:
        indexed = file.read(6) == b"ARROW1"
        file.seek(0)
        reader = ipc.open_file(file) if indexed else ipc.open_stream(file)
        with reader:
            batches = map(reader.get_batch, range(reader.num_record_batches)) if indexed else reader
            for batch in batches:
                # Its offsets are taken from the file as they are: a damaged one would read other memory.
                batch.validate(full=True)
                for start in range(0, batch.num_rows, BATCH):
                    yield batch.slice(start, BATCH)


def _batch_rows(batch: Any) -> Iterator[RawRow]:
    try:
        rows = batch.to_pylist(maps_as_pydicts="strict")
    except _BAD_CELL:
        for at in range(batch.num_rows):
            yield _cell_by_cell(batch.slice(at, 1))
    else:
        for row in rows:
            yield RawRow(0, plain_row(row))


def _cell_by_cell(batch: Any) -> RawRow:
    """Return the one row of a batch; of one that cannot be read, the cells that can, and the first fault."""
    row: dict[str, Any] = {}
    fault, detail = None, ""
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        try:
            [row[name]] = column.to_pylist(maps_as_pydicts="strict")
        except _BAD_CELL as problem:
            row[name] = None
            if fault is None:
                fault = "bad_encoding" if isinstance(problem, UnicodeError) else "unreadable"
                detail = f"column {name}: {problem}"
    return RawRow(0, plain_row(row), fault, detail)


def plain_row(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row of columns as JSON values, without nulls inside objects.

    A table gives every object all the fields that any of them has; the missing ones come as nulls.
    """
    return {str(key): plain(value) for key, value in row.items()}


def plain(value: Any) -> Any:
    """Return a value as JSON represents it: bytes as base64, dates as ISO text, NaN as null."""
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
