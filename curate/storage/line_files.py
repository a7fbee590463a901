"""Append-only JSON Lines files: a kill can tear only the last line, which readers skip."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

from curate.storage.whole_files import damaged, disk_error, make_folder

T = TypeVar("T")

_BUFFER = 1 << 18  # bytes read at once


class LineFile:
    """An append-only JSON Lines file; each line is one `write`, so a kill can tear only the last."""

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
    """Yield the complete lines of a file; a torn last line (without a newline, after a kill) is skipped."""
    with path.open("rb", buffering=_BUFFER) as lines:
        for line in lines:
            if line.endswith(b"\n") and not line.isspace():
                yield line


def read_records(path: Path, load: Callable[[bytes], T]) -> Iterator[T]:
    """Yield each line of a run's file as `load` converts it.

    Raises:
        CurateError: a line for which `load` raises ValueError; names file and line.
    """
    for number, line in enumerate(read_lines(path), start=1):
        try:
            record = load(line)
        except ValueError as error:
            raise damaged(f"{path}:{number}", error) from error
        yield record
