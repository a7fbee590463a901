"""A folder at a URL that fsspec can reach, and the lock that says who writes there.

The lock is best effort. An object store has no locks; two runs that start within the same second may both believe they
hold it, and a holder that is silent for three intervals is considered dead. Each run checks the lock before it copies,
and stops if it finds another's name in it.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import socket
import time
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any

import orjson

from curate.errors import CurateError, RunLockedError, UsageError
from curate.storage.whole_files import make_file, make_folder

_LOCK = ".lock.json"
_SILENT = 3


class RemotePlace:
    """Files below a URL, by their names below it.

    Args:
        kept_in: the folder on this machine that has everything, named in errors.

    Raises:
        UsageError: a package for that kind of URL is missing.
    """

    def __init__(self, url: str, kept_in: Path) -> None:
        self.url = url.rstrip("/")
        self._kept_in = kept_in
        self._fs, self._root = _open(self.url)

    @contextlib.contextmanager
    def explained(self, verb: str) -> Iterator[None]:
        """Turn errors of the file system in the block into CurateErrors that say what could not be done."""
        try:
            yield
        except CurateError:
            raise
        except Exception as error:
            # Each kind of file system raises its own library's errors.
            raise CurateError(
                f"cannot {verb} {self.url}",
                got=f"{type(error).__name__}: {error}",
                fix=f"fix that and run again; everything is kept in {self._kept_in}",
            ) from error

    def names(self, folder: str) -> list[str]:
        """Return the names of the files in a folder, sorted; empty if there is no such folder."""
        if not self._fs.exists(self._at(folder)):
            return []
        paths = self._fs.ls(self._at(folder), detail=False)
        return sorted(PurePosixPath(str(path)).name for path in paths)

    def read(self, name: str) -> bytes:
        """Return the bytes of a file."""
        data: bytes = self._fs.cat_file(self._at(name))
        return data

    def read_json(self, name: str) -> dict[str, Any] | None:
        """Return the object in a file; None if there is none."""
        try:
            value = orjson.loads(self.read(name))
        except FileNotFoundError:
            return None
        except orjson.JSONDecodeError:
            # A partial file, whose writer died: it counts as missing.
            return None
        return value if isinstance(value, dict) else None

    def write(self, name: str, data: bytes) -> None:
        """Write a file as a whole."""
        self._make_folder(name)
        self._fs.pipe_file(self._at(name), data)

    def fetch(self, name: str, to: Path) -> None:
        """Copy a file to this machine; a partial copy never has its name."""
        make_folder(to.parent)
        part = to.with_name(f".{to.name}.part")
        make_file(part)
        self._fs.get_file(self._at(name), str(part))
        part.replace(to)

    def store(self, name: str, path: Path) -> None:
        """Copy a file from this machine."""
        self._make_folder(name)
        self._fs.put_file(str(path), self._at(name))

    def remove(self, name: str) -> None:
        """Remove a file, if it exists."""
        if self._fs.exists(self._at(name)):
            self._fs.rm_file(self._at(name))

    def _at(self, name: str) -> str:
        return f"{self._root}/{name}"

    def _make_folder(self, name: str) -> None:
        """Create the folder of a file; on object stores, which have no folders, this does nothing."""
        self._fs.makedirs(self._at(name).rpartition("/")[0], exist_ok=True)


class Lock:
    """The lock of a remote run folder.

    Args:
        copy: name of the working copy that is written from.
        interval: seconds between renewals; a lock older than three of them is considered dead.
    """

    def __init__(self, place: RemotePlace, copy: str, interval: float) -> None:
        self._place = place
        self._copy = copy
        self._interval = interval
        self._me = secrets.token_hex(8)

    def take(self) -> None:
        """Take the lock for this process.

        Raises:
            RunLockedError: another process holds it and has renewed it lately.
        """
        with self._place.explained("read"):
            holder = self._place.read_json(_LOCK)
            if holder is not None and not self._is_dead(holder):
                raise self._is_locked(holder)
            self._write()
            holder = self._place.read_json(_LOCK) or {}
            if holder.get("holder") != self._me:
                raise self._is_locked(holder)

    def renew(self) -> None:
        """Renew the lock.

        Raises:
            RunLockedError: another process has taken it.
        """
        holder = self._place.read_json(_LOCK)
        if holder is not None and holder.get("holder") != self._me:
            raise self._is_locked(holder)
        self._write()

    def release(self) -> None:
        """Remove the lock if this process holds it; failing to is harmless, since the lock soon counts as dead."""
        with contextlib.suppress(CurateError), self._place.explained("write"):
            if (self._place.read_json(_LOCK) or {}).get("holder") == self._me:
                self._place.remove(_LOCK)

    def _is_dead(self, holder: dict[str, Any]) -> bool:
        # This process holds the lock of the working copy's folder, so its earlier user has ended.
        if holder.get("copy") == self._copy:
            return True
        return bool(time.time() - holder.get("time", 0) > _SILENT * holder.get("interval", 0))

    def _is_locked(self, holder: dict[str, Any]) -> RunLockedError:
        heard = max(0.0, time.time() - holder.get("time", 0))
        return RunLockedError(
            f"another process is writing {self._place.url}",
            got=f"process {holder.get('process')} on {holder.get('host')}, last heard from {heard:.0f} s ago",
            expected="one writer per run folder",
            fix=f"wait for it to end; if you are sure that it has ended, remove {self._place.url}/{_LOCK}",
        )

    def _write(self) -> None:
        lock = {
            "holder": self._me,
            "copy": self._copy,
            "host": socket.gethostname(),
            "process": os.getpid(),
            "time": time.time(),
            "interval": self._interval,
        }
        self._place.write(_LOCK, orjson.dumps(lock))


def _open(url: str) -> tuple[Any, str]:
    import fsspec

    try:
        fs, root = fsspec.core.url_to_fs(url)
    except (ImportError, ValueError) as error:
        raise UsageError(
            f"{url} cannot be reached",
            got=str(error),
            expected="a URL of a kind that fsspec supports, with the package for it installed",
            fix="pip install s3fs for s3://, gcsfs for gs://, adlfs for abfs://",
        ) from error
    return fs, str(root).rstrip("/")
