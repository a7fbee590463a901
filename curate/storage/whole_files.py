"""Folders and files that are written whole: private to their owner, and never met half-written.

What a file is to hold is written beside its place and moved there at the end. Whatever a disk refuses comes out as a
CurateError that says what to do.

What is made here only its owner can read and write (folders 0700, files 0600): a run holds people's chats. A
folder that was there keeps its mode.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

import orjson
from pydantic import BaseModel

from curate.errors import CurateError

_BUFFER = 1 << 18  # bytes written at once


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
