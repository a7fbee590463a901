"""Parquet files of a run: written as one stream or frame by frame, and read in chunks of rows."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import accumulate
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfoNotFoundError

import orjson
import polars as pl

from curate.errors import CurateError
from curate.storage.whole_files import damaged, disk_error, make_file, make_folder, replacing

_ROW_GROUP = 10_000  # rows of a row group in a table


def write_table(table: pl.DataFrame | pl.LazyFrame, path: Path, **options: Any) -> None:
    """Write a Parquet file, streaming.

    Args:
        options: options of `polars.LazyFrame.sink_parquet`.

    Raises:
        OSError: the disk refuses it. (polars raises its own error for it, which also has other causes.)
    """
    try:
        make_file(path)
        table.lazy().sink_parquet(path, **options)
    except pl.exceptions.ComputeError as error:
        refused = re.search(r"os error (\d+)", str(error))
        if refused is None:
            raise
        number = int(refused[1])
        raise OSError(number, os.strerror(number), str(path)) from error


class FrameFile:
    """A Parquet file made of frames that arrive one after the other; a context manager.

    Frames may lack some columns or have them in another type, since the labels in a chunk of data decide its columns. So
    each frame is written to a file of its own, and at the end they are joined, in types that fit all of them, without
    ever being in memory together.

    Args:
        path: replaced as a whole when the block ends without an error; else it stays as it was.
        first: columns that come first, in this order; the others follow by name.
    """

    def __init__(self, path: Path, first: Sequence[str] = ()) -> None:
        self.path = path
        self._first = tuple(first)
        self._parts = path.with_name(f".{path.name}.parts")
        self._columns: set[str] = set()
        self._count = 0

    def append(self, frame: pl.DataFrame) -> None:
        """Add rows."""
        try:
            write_table(frame, self._part(self._count), compression="lz4")
        except OSError as error:
            raise disk_error(self.path, error) from error
        self._columns |= set(frame.columns)
        self._count += 1

    def _part(self, number: int) -> Path:
        return self._parts / f"{number:06d}.parquet"

    def __enter__(self) -> FrameFile:
        shutil.rmtree(self._parts, ignore_errors=True)
        try:
            make_folder(self._parts)
        except OSError as error:
            raise disk_error(self.path, error) from error
        return self

    def __exit__(self, *error: object) -> None:
        try:
            if error[1] is None and self._count:
                with replacing(self.path) as temporary:
                    write_table(self._whole(), temporary, row_group_size=_ROW_GROUP)
        finally:
            # No later write removes the parts, so try again if the disk refuses once.
            for _ in range(2):
                shutil.rmtree(self._parts, ignore_errors=True)

    def _whole(self) -> pl.LazyFrame:
        columns = [*self._first, *sorted(self._columns - set(self._first))]
        parts = [pl.scan_parquet(self._part(number)) for number in range(self._count)]
        whole = pl.concat(parts, how="diagonal_relaxed") if len(parts) > 1 else parts[0]
        return whole.select(columns)


def row_count(path: Path) -> int:
    """Return the number of rows of a Parquet file without reading them."""
    with readable(path):
        return int(pl.scan_parquet(path).select(pl.len()).collect().item())


def read_frames(path: Path, rows: int) -> Iterator[pl.DataFrame]:
    """Yield a Parquet file in frames of this many rows."""
    for start in range(0, row_count(path), rows):
        with readable(path):
            frame = pl.scan_parquet(path).slice(start, rows).collect()
        yield frame


@contextmanager
def readable(
    path: Path, refusal: Callable[[Path, BaseException], CurateError] = damaged
) -> Iterator[None]:
    """Turn errors of reading a Parquet or Arrow file in the block into an error that names the file.

    Args:
        refusal: makes the error.

    Raises:
        CurateError: the file, or a cell of it, cannot be read.
        OSError: the file cannot be opened; its content may be fine.
    """
    import pyarrow as pa

    try:
        yield
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, pa.ArrowException) as error:
        raise refusal(path, error) from error
    # Text that is not UTF-8, a time out of range, a zone that nobody knows.
    except (ValueError, OverflowError, ZoneInfoNotFoundError) as error:
        raise refusal(path, error) from error
    except OSError as error:
        if error.errno is not None:
            raise  # no permission, no disk: the file itself may be fine
        raise refusal(path, error) from error


def is_json(kind: Any) -> bool:
    """Return True if an Arrow type, or that of its lists' items, is JSON: messages that do not fit one struct type."""
    import pyarrow as pa

    return isinstance(getattr(kind, "value_type", kind), pa.JsonType)


def json_array(values: Sequence[Any], kind: Any) -> Any:
    """Return values as an array of Arrow's JSON type, or lists of values as an array of its lists."""
    import pyarrow as pa

    if isinstance(kind, pa.JsonType):
        texts = [orjson.dumps(value).decode() for value in values]
        return pa.ExtensionArray.from_storage(kind, pa.array(texts, pa.string()))
    stops = [0, *accumulate(map(len, values))]
    items = json_array([item for row in values for item in row], kind.value_type)
    return pa.ListArray.from_arrays(pa.array(stops, pa.int32()), items, type=kind)
