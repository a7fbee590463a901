"""Folders and files that are written as a whole: private to their owner, and never visible half-written.

Content is written beside its destination and moved there at the end. Errors of the disk become a CurateError that
says what to do.

Only the owner can read and write what is created here (folders 0700, files 0600): a run contains people's chats. A
folder that exists keeps its mode.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

import orjson
from pydantic import BaseModel, ValidationError

from curate.errors import CurateError, first_misfit

_BUFFER = 1 << 18  # bytes written at once


def make_folder(path: Path) -> None:
    """Create a folder and its missing parents, for the owner only; an existing one is left unchanged."""
    missing = [folder for folder in (path, *path.parents) if not folder.exists()]
    for folder in reversed(missing):
        folder.mkdir(mode=0o700, exist_ok=True)
    path.mkdir(mode=0o700, exist_ok=True)  # raises where a file is in the way


def make_file(path: Path) -> None:
    """Create an empty file for the owner only, for a library to write; an existing one is left unchanged."""
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600))


def write_atomically(path: Path, data: bytes) -> None:
    """Replace a file as a whole, or leave it as it was."""
    with replacing(path) as temporary:
        temporary.write_bytes(data)


def write_record(path: Path, record: BaseModel) -> None:
    """Replace a file by one record, as indented JSON."""
    options = orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE
    write_atomically(path, orjson.dumps(record.model_dump(mode="json"), option=options))


@contextmanager
def atomic_file(path: Path) -> Iterator[IO[bytes]]:
    """Yield a file to write; it replaces `path` when the block ends without an error."""
    with replacing(path) as temporary, temporary.open("wb", buffering=_BUFFER) as file:
        yield file


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary path to write to; it replaces `path` when the block ends without an error.

    Leftovers of killed processes for the same file are removed.
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
        with suppress(OSError):  # in a folder that became read-only it stays until the next write
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
    except PermissionError:  # it belongs to another user
        pass
    return True


def file_hash(path: Path) -> str:
    """Return the SHA-256 of a file in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def damaged(place: Path | str, error: BaseException | str) -> CurateError:
    """Return the error for a file of a run, or a line of it, that cannot be read back."""
    text = first_misfit(error) if isinstance(error, ValidationError) else str(error)
    message = text.strip() or type(error).__name__
    return CurateError(
        f"{place} is damaged",
        got=message.splitlines()[0][:300],
        fix="move it away and run the recipe again, which rebuilds it from cached replies",
    )


def disk_error(path: Path, error: OSError) -> CurateError:
    """Return the error for a file that cannot be written."""
    got, expected, fix = error.strerror or str(error), None, "name another one with --out"
    if isinstance(error, FileExistsError | NotADirectoryError):
        got, expected = "a file at this path or at a folder above it", "a folder"
    elif isinstance(error, IsADirectoryError):
        got, expected = "a folder at this path", "a file"
    else:
        fix = (
            "free some space, fix the permissions or name another folder with --out; "
            "the same command continues where it stopped"
        )
    return CurateError(f"cannot write {path}", got=got, expected=expected, fix=fix)
