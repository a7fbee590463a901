"""Numbers that cost a model, kept on disk by the hash of what they were computed from.

One SQLite file (or memory, where no path is given) for vectors of texts and scores of pairs. A key covers
the model's identity, so a file can be shared by methods and runs; an entry is never changed, only added.
"""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from curate.errors import CurateError
from curate.storage.files import make_file, make_folder

_LOOKUP = 500


def key_of(*parts: str) -> bytes:
    """128-bit key of what an entry was computed from; the parts cannot run into each other."""
    digest = hashlib.blake2b(digest_size=16)
    for part in parts:
        data = part.encode("utf-8", "surrogatepass")
        digest.update(len(data).to_bytes(8, "big") + data)
    return digest.digest()


class BlobStore:
    """Bytes by key. Not shared between threads.

    Args:
        path: the file, made when missing; None keeps everything in memory.

    Raises:
        CurateError: the file is not a database, or cannot be written.
    """

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        try:
            if path is not None:
                make_folder(path.parent)
                make_file(path)
            self._base = sqlite3.connect(path or ":memory:", check_same_thread=False, timeout=60)
            self._base.execute("PRAGMA journal_mode=WAL")
            self._base.execute("PRAGMA synchronous=NORMAL")
            self._base.execute(
                "CREATE TABLE IF NOT EXISTS blobs (key BLOB PRIMARY KEY, value BLOB) WITHOUT ROWID"
            )
        except (sqlite3.Error, OSError) as error:
            raise self._explained(error) from error

    def get(self, keys: Sequence[bytes]) -> dict[bytes, bytes]:
        """The entries that are there."""
        found: dict[bytes, bytes] = {}
        for start in range(0, len(keys), _LOOKUP):
            part = keys[start : start + _LOOKUP]
            marks = ",".join("?" * len(part))
            found.update(self._select(f"SELECT key, value FROM blobs WHERE key IN ({marks})", part))
        return found

    def missing(self, keys: Iterable[bytes]) -> set[bytes]:
        """Keys without an entry."""
        wanted = list(dict.fromkeys(keys))
        there: set[bytes] = set()
        for start in range(0, len(wanted), _LOOKUP):
            part = wanted[start : start + _LOOKUP]
            marks = ",".join("?" * len(part))
            rows = self._select(f"SELECT key FROM blobs WHERE key IN ({marks})", part)
            there.update(key for (key,) in rows)
        return set(wanted) - there

    def put(self, entries: Mapping[bytes, bytes]) -> None:
        """Add entries in one transaction; one that is there stays."""
        try:
            with self._base:
                self._base.executemany("INSERT OR IGNORE INTO blobs VALUES (?, ?)", entries.items())
        except sqlite3.Error as error:
            raise self._explained(error) from error

    def _select(self, query: str, keys: Sequence[bytes]) -> list[Any]:
        try:
            return self._base.execute(query, keys).fetchall()
        except sqlite3.Error as error:
            raise self._explained(error) from error

    def _explained(self, error: Exception) -> CurateError:
        return CurateError(
            "the store of embeddings cannot be used",
            got=f"{self._path}: {error}",
            fix="delete the file; what it held is computed again",
        )

    def close(self) -> None:
        """Release the file."""
        self._base.close()
