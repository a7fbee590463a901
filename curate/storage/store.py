"""The durable store: values by key in a SQLite file; each is stored completely or not at all.

It holds replies of models, replies on their way from a worker, embeddings, and the rows of a running stage, in one file
each. `put` is one transaction of a write-ahead log: once it returns, killing the process loses nothing of it, and
SQLite discards torn writes when the file is next opened. A transaction costs more than what is stored, so `put_soon`
shares one among everything that arrives in the same round of the event loop. A power cut can cost the last moments,
since transactions are not forced to the disk one by one. Each value is stored with a checksum of it and its key: a
damaged value is skipped and counted (`Store.damaged`), as if it had never been stored, and affects no other.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import hashlib
import sqlite3
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Self

from curate.errors import CurateError
from curate.storage.whole_files import make_file, make_folder

_FORMAT = 3  # 1 and 2 held only replies, beside line logs
_LOOKUP = 500
_TABLE = """
CREATE TABLE IF NOT EXISTS kept
(number INTEGER PRIMARY KEY, key BLOB NOT NULL UNIQUE, value BLOB NOT NULL, checksum INTEGER NOT NULL)
"""
_PUT = "INSERT OR REPLACE INTO kept VALUES (NULL, ?, ?, ?)"  # NULL: one above the highest number


class Store:
    """Bytes by key. Used by one thread at a time; safe beside other processes.

    Args:
        path: the file, on a local disk; created when missing. None keeps everything in memory.

    Raises:
        CurateError: the file is damaged, is something else, or cannot be written. The same for every method.
    """

    def __init__(self, path: Path | None = None) -> None:
        self.path = path
        self._damaged: set[bytes] = set()
        self._arrived: list[tuple[str, bytes]] = []
        self._waiting: list[asyncio.Future[None]] = []
        with self._explained():
            if path is not None:
                make_folder(path.parent)
                make_file(path)
            self._base = sqlite3.connect(path or ":memory:", timeout=60, check_same_thread=False)
            self._base.isolation_level = None
            self._base.text_factory = bytes  # for damaged rows; intact ones have no text
            self._base.execute("PRAGMA journal_mode=WAL")
            self._base.execute("PRAGMA synchronous=NORMAL")
            # In pages, 40 MB: copying the log into the file forces the disk, and `put` waits for it.
            self._base.execute("PRAGMA wal_autocheckpoint=10000")
            self._prepare()

    def _prepare(self) -> None:
        [version] = self._base.execute("PRAGMA user_version").fetchone()
        if version not in (0, _FORMAT):
            raise CurateError(
                f"{self.path} has a format that this version of curate does not read",
                got=version,
                expected=_FORMAT,
                fix="name another folder, or read it with the version that wrote it",
            )
        if version == 0:
            self._base.execute(_TABLE)
            self._base.execute(f"PRAGMA user_version={_FORMAT}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def damaged(self) -> int:
        """Return the number of values read so far that did not match their checksums."""
        return len(self._damaged)

    def put(self, entries: Iterable[tuple[str, bytes]]) -> None:
        """Store values, all or none; once this returns they survive this process.

        Args:
            entries: keys and values; an earlier value under a key is replaced.
        """
        rows = [
            (key.encode(), value, zlib.crc32(value, zlib.crc32(key.encode())))
            for key, value in entries
        ]
        with self._explained():
            if len(rows) == 1:
                self._base.execute(_PUT, rows[0])
                return
            self._base.execute("BEGIN IMMEDIATE")
            try:
                self._base.executemany(_PUT, rows)
                self._base.execute("COMMIT")
            finally:
                if self._base.in_transaction:
                    self._base.execute("ROLLBACK")

    def put_soon(self, entries: Iterable[tuple[str, bytes]]) -> asyncio.Future[None]:
        """Store values together with everything else that arrives in this round of the event loop.

        Returns:
            A future that is done when the values are stored as by `put`, or has its error. They are stored even if nobody
            waits for it.
        """
        stored = asyncio.get_running_loop().create_future()
        if not self._waiting:
            stored.get_loop().call_soon(self._put_arrived)
        self._waiting.append(stored)
        self._arrived += entries
        return stored

    def _put_arrived(self) -> None:
        arrived, self._arrived = self._arrived, []
        waiting, self._waiting = self._waiting, []
        error: CurateError | None = None
        try:
            self.put(arrived)
        except CurateError as raised:
            error = raised
        for stored in waiting:
            if stored.done():
                continue  # its waiter was cancelled
            if error is None:
                stored.set_result(None)
            else:
                stored.set_exception(error)

    def get(self, keys: Iterable[str]) -> dict[str, bytes]:
        """Return the values that exist for these keys."""
        values: dict[str, bytes] = {}
        encoded = [key.encode() for key in dict.fromkeys(keys)]
        for start in range(0, len(encoded), _LOOKUP):
            chunk = encoded[start : start + _LOOKUP]
            marks = ",".join("?" * len(chunk))
            query = f"SELECT number, key, value, checksum FROM kept WHERE key IN ({marks})"
            with self._explained():
                rows = self._base.execute(query, chunk).fetchall()
            values.update((key, value) for _, key, value in self._sound(rows))
        return values

    def missing(self, keys: Iterable[str]) -> set[str]:
        """Return the keys that have no value."""
        unique = set(keys)
        return unique - self.get(unique).keys()

    def items(self, after: int = 0, most: int | None = None) -> Iterator[tuple[int, str, bytes]]:
        """Yield number, key and value of everything stored, in order; a replaced value has a new number.

        Args:
            after: only values with a higher number.
            most: at most this many.
        """
        query = (
            "SELECT number, key, value, checksum FROM kept WHERE number > ? ORDER BY number LIMIT ?"
        )
        left = most
        while left is None or left > 0:
            size = _LOOKUP if left is None else min(left, _LOOKUP)
            with self._explained():
                rows = self._base.execute(query, (after, size)).fetchall()
            if not rows:
                return
            yield from self._sound(rows)
            after = rows[-1][0]
            left = None if left is None else left - len(rows)

    def check(self) -> None:
        """Read everything and compare tables with indexes.

        Raises:
            CurateError: something other than single values is damaged.
        """
        with self._explained():
            [result] = self._base.execute("PRAGMA integrity_check(1)").fetchone()
            if result != b"ok":
                raise sqlite3.DatabaseError(result.decode(errors="replace"))

    def close(self) -> None:
        """Close the file; closing twice is harmless."""
        if self._waiting:
            self._put_arrived()
        with self._explained():
            self._base.close()

    def delete(self) -> None:
        """Close and remove the file."""
        self.close()
        if self.path is not None:
            delete_store(self.path)

    def _sound(self, rows: Iterable[tuple[int, Any, Any, Any]]) -> Iterator[tuple[int, str, bytes]]:
        """Yield the rows that match their checksums; damage may have changed their types too."""
        for number, key, value, checksum in rows:
            are_bytes = isinstance(key, bytes) and isinstance(value, bytes)
            if are_bytes and zlib.crc32(value, zlib.crc32(key)) == checksum:
                yield number, key.decode(), value
            else:
                self._damaged.add(b"%d" % number)

    @contextlib.contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except (OSError, sqlite3.Error) as error:
            if isinstance(error, sqlite3.ProgrammingError):
                raise  # used after it was closed
            raise _explanation(self.path, error) from error


def delete_store(path: Path) -> None:
    """Remove the file of a store that no process has open, and SQLite's files beside it."""
    for name in (path.name, f"{path.name}-wal", f"{path.name}-shm"):
        path.with_name(name).unlink(missing_ok=True)


def _explanation(path: Path | None, error: OSError | sqlite3.Error) -> CurateError:
    if isinstance(error, OSError):
        is_full = error.errno in (errno.ENOSPC, errno.EDQUOT)
    else:
        is_full = getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_FULL
    if is_full:
        return CurateError(
            f"the disk is full: {path} cannot be written",
            fix="free some space and run again; replies received so far are kept",
        )
    if isinstance(error, sqlite3.DatabaseError) and not isinstance(error, sqlite3.OperationalError):
        return CurateError(
            f"{path} is damaged or another kind of file",
            got=str(error),
            fix="move it away and run again; its content is requested or computed again",
        )
    return CurateError(
        f"{path} cannot be used",
        got=str(error),
        fix="check that its folder is on a local disk and writable",
    )


def key_of(*parts: str) -> str:
    """Return a key (32 hex digits) of what a value was computed from; parts cannot run into each other."""
    digest = hashlib.blake2b(digest_size=16)
    for part in parts:
        data = part.encode("utf-8", "surrogatepass")
        digest.update(len(data).to_bytes(8, "big") + data)
    return digest.hexdigest()
