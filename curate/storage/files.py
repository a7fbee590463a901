"""The kinds of file a run writes: lines that outlive a kill, tables made of chunks, files replaced whole.

A reader never meets a half-written file: what is not appended line by line is written beside its place and
moved there at the end. Whatever a disk refuses comes out as a CurateError that says what to do.

What is made here only its owner can read and write (folders 0700, files 0600): a run holds people's chats. A
folder that was there keeps its mode.
"""

from __future__ import annotations

import csv
import os
import re
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any, TypeVar

import orjson
import polars as pl
from pydantic import BaseModel

from curate.errors import CurateError

T = TypeVar("T")

ROW_GROUP = 10_000  # rows of a row group in a table
_BUFFER = 1 << 18  # bytes read or written at once


def make_folder(path: Path) -> None:
    """Make a folder and the missing ones above it, for their owner alone; one that is there stays as it is."""
    missing = [folder for folder in (path, *path.parents) if not folder.exists()]
    for folder in reversed(missing):
        folder.mkdir(mode=0o700, exist_ok=True)
    path.mkdir(mode=0o700, exist_ok=True)  # raises where a file is in the way


def make_file(path: Path) -> None:
    """Make an empty file for its owner alone, for a library to write; one that is there stays as it is."""
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600))


def write_atomically(path: Path, data: bytes) -> None:
    """Replace a file whole, or leave it as it was."""
    with replacing(path) as temporary:
        temporary.write_bytes(data)


def write_record(path: Path, record: BaseModel) -> None:
    """Replace a file by one record, as JSON that people can read."""
    options = orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE
    write_atomically(path, orjson.dumps(record.model_dump(mode="json"), option=options))


@contextmanager
def atomic_file(path: Path) -> Iterator[IO[bytes]]:
    """A file to write bit by bit; it takes its place when the block ends, else the old one stands."""
    with replacing(path) as temporary, temporary.open("wb", buffering=_BUFFER) as file:
        yield file


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield the path to write what is to become `path`; it does when the block ends without an error.

    What a killed process left of the same file is removed.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        make_folder(path.parent)
        _remove_leftovers(path)
        make_file(temporary)
        yield temporary
        temporary.replace(path)
    except OSError as error:
        raise disk_error(path, error) from error
    finally:
        with suppress(OSError):  # a folder that has become read-only keeps it until the next write
            temporary.unlink(missing_ok=True)


def _remove_leftovers(path: Path) -> None:
    start = f".{path.name}."
    for name in os.listdir(path.parent):
        process = name.removeprefix(start)
        if process != name and process.isdecimal() and not _is_running(int(process)):
            path.with_name(name).unlink(missing_ok=True)


def _is_running(process: int) -> bool:
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:  # it is another user's
        pass
    return True


def write_table(table: pl.DataFrame | pl.LazyFrame, path: Path, **options: Any) -> None:
    """Write a Parquet file, streaming.

    Args:
        options: those of `polars.LazyFrame.sink_parquet`.

    Raises:
        OSError: the disk refuses it. (polars says so by an error of its own, which also stands for more.)
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


class LineFile:
    """An append-only JSON Lines file; each line is one `write`, so a kill tears at most the last."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            make_folder(path.parent)
            self._descriptor: int | None = os.open(
                path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600
            )
        except OSError as error:
            raise disk_error(path, error) from error

    def append(self, value: bytes) -> None:
        """Write one JSON value as a line."""
        if self._descriptor is None:
            raise ValueError("the file is closed")
        line = value + b"\n"
        try:
            while line:
                line = line[os.write(self._descriptor, line) :]
        except OSError as error:
            raise disk_error(self.path, error) from error

    def close(self) -> None:
        """Close the file; closing twice is harmless."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def __enter__(self) -> LineFile:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def read_lines(path: Path) -> Iterator[bytes]:
    """Whole lines of a file; a torn last line (no newline, after a kill) is left out."""
    with path.open("rb", buffering=_BUFFER) as lines:
        for line in lines:
            if line.endswith(b"\n") and not line.isspace():
                yield line


def read_records(path: Path, load: Callable[[bytes], T]) -> Iterator[T]:
    """Each line of a file of a run as `load` makes it.

    Raises:
        CurateError: a line that `load` finds no sense in (ValueError); names file and line.
    """
    for number, line in enumerate(read_lines(path), start=1):
        try:
            record = load(line)
        except ValueError as error:
            raise damaged(f"{path}:{number}", error) from error
        yield record


class FrameFile:
    """A Parquet file made of frames that come one after the other; a context manager.

    The frames share their columns but for some that not all of them have, or have in another type: what a
    chunk of the data holds decides about its labels. So each frame is a file of its own until all are there;
    then they become one, in the types that hold them all, without ever being in memory together.

    Args:
        path: replaced whole when the block ends without an error; else it stays as it was.
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
                    write_table(self._whole(), temporary, row_group_size=ROW_GROUP)
        finally:
            shutil.rmtree(self._parts, ignore_errors=True)

    def _whole(self) -> pl.LazyFrame:
        columns = [*self._first, *sorted(self._columns - set(self._first))]
        parts = [pl.scan_parquet(self._part(number)) for number in range(self._count)]
        whole = pl.concat(parts, how="diagonal_relaxed") if len(parts) > 1 else parts[0]
        return whole.select(columns)


def csv_delimiter(header: str) -> str:
    """What parts the columns of a CSV file with this first line: `;` or a tab where `,` leaves one column.

    Excel writes semicolons wherever the decimal sign is a comma, and tabs in its "Unicode text".
    """
    columns = {sign: len(next(csv.reader([header], delimiter=sign), [])) for sign in ",;\t"}
    return "," if columns[","] > 1 else max(columns, key=lambda sign: columns[sign])


def read_frames(path: Path, rows: int) -> Iterator[pl.DataFrame]:
    """A Parquet file, so many rows at a time."""
    with readable(path):
        whole = pl.scan_parquet(path)
        count = whole.select(pl.len()).collect().item()
    for start in range(0, count, rows):
        with readable(path):
            frame = whole.slice(start, rows).collect()
        yield frame


@contextmanager
def readable(path: Path) -> Iterator[None]:
    """A Parquet file is read within; what polars or Arrow can make nothing of is a CurateError that names it."""
    import pyarrow as pa

    try:
        yield
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, pa.ArrowException) as error:
        raise damaged(path, error) from error
    except OSError as error:
        if error.errno is not None:
            raise  # no permission, no disk: nothing is wrong with the file
        raise damaged(path, error) from error


def damaged(place: Path | str, error: BaseException | str) -> CurateError:
    """Make the error for a file of a run, or a line of it, that cannot be read back."""
    said = str(error).strip() or type(error).__name__
    return CurateError(
        f"{place} is damaged",
        got=said.splitlines()[0][:300],
        fix="move it away and run the recipe again: it is made anew, from kept replies where it holds scores",
    )


def disk_error(path: Path, error: OSError) -> CurateError:
    """Make the error for a file that cannot be written."""
    if isinstance(error, FileExistsError | NotADirectoryError):
        return CurateError(
            f"cannot write {path}",
            got="a file, there or above it",
            expected="a folder",
            fix="name another one with --out",
        )
    return CurateError(
        f"cannot write {path}",
        got=error.strerror or str(error),
        fix="free some room, fix the permissions or name another folder with --out; "
        "the same command goes on where it stopped",
    )
