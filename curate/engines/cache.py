"""The reply log: a reply that was received is never asked for again, also after kill -9.

Two places, so that neither safety nor speed is given up. `put` writes one line to an append-only log
of this process, with one system call, before it returns: from then on the reply outlives the process.
A thread moves replies to SQLite in large transactions, where they are looked up. What a killed process
left in its logs is moved when the cache is next opened.

    replies.sqlite            key -> reply, checksum; engine -> name under which its model first replied
    replies.sqlite.logs/      <owner>.lock, <owner>.<n>.log; a log goes when all of it is in SQLite

A reply has the checksum that its line got (see `replies.to_line`) for as long as it is kept: one that is torn
or damaged, in a log or in SQLite, is passed over and owed again, and costs no other. The process may be killed at any moment; a power cut can cost the last moments, since lines
are not forced to the disk one by one.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import secrets
import sqlite3
import threading
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Self

import orjson
from filelock import FileLock, Timeout

from curate.engines.base import Completion
from curate.engines.replies import (
    checksum,
    completion_to_json,
    from_line,
    read_reply,
    to_line,
)
from curate.errors import CurateError
from curate.storage.files import make_file, make_folder

_ROWS = 1000
_STATEMENT_ROWS = (128, 32, 8, 1)
_SECONDS = 0.2
_SEGMENT_BYTES = 32 * 2**20
_LOOKUP = 500
_FORMAT = 2  # 1 had no checksums
_PENDING = 20_000  # replies on their way to SQLite; who is faster than the disk waits for it


class _Record(NamedTuple):
    key: str
    reply: bytes
    segment: int


class ReplyCache:
    """Replies by request key. Used by one event loop; safe beside other processes.

    Args:
        path: the SQLite file, on a local disk; made when missing.

    Attributes:
        torn: unfinished last lines of a killed process's logs; their replies never counted as kept.

    Raises:
        CurateError: the file is damaged, is something else, or cannot be written.
    """

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        self.torn = 0
        self._damaged_lines = 0
        self._damaged_keys: set[str] = set()
        self._folder = self.path.with_name(f"{self.path.name}.logs")
        self._pending: dict[str, bytes] = {}
        self._guard = threading.Lock()
        self._room = threading.Condition(self._guard)
        # Records for the writer. It is woken by the first one, sleeps while a batch gathers, and is woken
        # again when that is full: waking it for each record costs more than writing one.
        self._fresh: list[_Record] = []
        self._has_some = threading.Event()
        self._is_full = threading.Event()
        self._failure: BaseException | None = None
        self._closed = False
        try:
            make_folder(self._folder)
            make_file(self.path)
            self._reader = self._connect()
            self._prepare()
            # The lock tells other processes that these logs have a living owner.
            self._owner = f"{os.getpid()}-{secrets.token_hex(4)}"
            self._lock = FileLock(self._folder / f"{self._owner}.lock", mode=0o600, blocking=False)
            self._lock.acquire()
            self._ingest_leftovers()
            self._segment = 0
            self._log = self._open_segment()
            self._log_size = 0
        except (OSError, sqlite3.Error) as error:
            raise self._explain(error) from error
        self._writer = threading.Thread(target=self._write, name="reply-cache", daemon=True)
        self._writer.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def damaged(self) -> int:
        """Kept replies that were met and could not be read; they count as never received."""
        return self._damaged_lines + len(self._damaged_keys)

    def put(self, key: str, completion: Completion) -> None:
        """Keep a reply. It outlives this process from the moment this returns.

        Args:
            key: 32 hex digits; an earlier reply under it is replaced.
            completion: the reply, as received.

        Raises:
            CurateError: the disk is full or the database cannot be written. What was kept stays whole.
        """
        if self._closed:
            raise ValueError("the reply cache is closed")
        if len(self._pending) >= _PENDING:
            # Blocks the event loop, and means to: memory would fill with what the disk cannot take.
            with self._room:
                while len(self._pending) >= _PENDING and self._failure is None:
                    self._room.wait()
        if self._failure is not None:
            raise self._explain(self._failure) from self._failure
        reply = orjson.dumps(completion_to_json(completion))
        self._append(to_line(key, reply) + b"\n")
        with self._guard:
            self._pending[key] = reply
            self._fresh.append(_Record(key, reply, self._segment))
            count = len(self._fresh)
        if count == 1:
            self._has_some.set()
        elif count == _ROWS:
            self._is_full.set()

    def get_many(self, keys: Sequence[str]) -> dict[str, Completion]:
        """The replies that are there, of those asked for; a damaged one is not (see `damaged`).

        Raises:
            CurateError: the database as a whole is damaged.
        """
        found: dict[str, Completion] = {}
        with self._guard:
            pending = {key: self._pending[key] for key in keys if key in self._pending}
        for key, reply in pending.items():
            self._take(key, reply, found)
        wanted = [bytes.fromhex(key) for key in dict.fromkeys(keys) if key not in found]
        try:
            for start in range(0, len(wanted), _LOOKUP):
                some = wanted[start : start + _LOOKUP]
                marks = ",".join("?" * len(some))
                rows = self._reader.execute(
                    f"SELECT key, reply, checksum FROM replies WHERE key IN ({marks})", some
                )
                for binary, reply, expected in rows:
                    self._take(binary.hex(), reply, found, expected or 0)
        except sqlite3.Error as error:
            raise self._explain(error) from error
        return found

    def _take(
        self,
        key: str,
        reply: Any,
        found: dict[str, Completion],
        expected: int | None = None,
    ) -> None:
        """Add a reply to what was found, if it is what was once received."""
        is_whole = expected is None or expected == _checksum(bytes.fromhex(key), reply)
        completion = read_reply(reply) if is_whole else None
        if completion is None:
            self._damaged_keys.add(key)
        else:
            found[key] = completion

    def first_served(self, identity: str, served: str) -> str:
        """The name under which a model first replied, of those whose replies are kept here.

        Args:
            identity: key of the engine's identity.
            served: the name it has now; it is remembered where there was none.

        Raises:
            CurateError: the database is damaged or cannot be written.
        """
        try:
            self._reader.execute(
                "CREATE TABLE IF NOT EXISTS served (identity BLOB PRIMARY KEY, model BLOB NOT NULL)"
            )
            self._reader.execute(
                "INSERT OR IGNORE INTO served VALUES (?, ?)", (identity, served.encode())
            )
            row = self._reader.execute("SELECT model FROM served WHERE identity = ?", (identity,))
            return bytes(row.fetchone()[0]).decode()
        except sqlite3.Error as error:
            raise self._explain(error) from error

    def close(self) -> None:
        """Move everything to SQLite and remove the logs. Calling it twice is harmless.

        Raises:
            CurateError: not everything could be moved; the logs keep it for the next time.
        """
        if self._closed:
            return
        with self._guard:  # or the writer, about to sleep, could miss it
            self._closed = True
        self._has_some.set()
        self._is_full.set()
        self._writer.join()
        os.close(self._log)
        try:
            if self._failure is not None:
                raise self._explain(self._failure) from self._failure
            # Forces the database to the disk; only then are the logs not needed any more.
            self._reader.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            for segment in range(self._segment + 1):
                self._segment_path(segment).unlink(missing_ok=True)
        finally:
            self._reader.close()
            self._lock.release()
            if not any(self._folder.glob(f"{self._owner}.*.log")):
                Path(self._lock.lock_file).unlink(missing_ok=True)

    # -- SQLite

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self.path, timeout=60, check_same_thread=False)
        connection.isolation_level = None
        connection.text_factory = bytes  # of a damaged row; there is no text in a sound one
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=NORMAL")
        return connection

    def _prepare(self) -> None:
        version = self._reader.execute("PRAGMA user_version").fetchone()[0]
        if version not in (0, 1, _FORMAT):
            raise CurateError(
                f"the reply cache {self.path} has a format this version does not know",
                got=version,
                expected=_FORMAT,
                fix="upgrade curate, or name another cache",
            )
        if version == _FORMAT:
            return
        self._reader.create_function("checksum", 2, _checksum, deterministic=True)
        self._reader.execute("BEGIN IMMEDIATE")
        try:
            self._reader.execute(
                "CREATE TABLE IF NOT EXISTS replies (key BLOB PRIMARY KEY, reply BLOB NOT NULL)"
            )
            # Asked again, since another process may have been faster.
            columns = [
                row[1].decode() for row in self._reader.execute("PRAGMA table_info(replies)")
            ]
            if "checksum" not in columns:
                # Replies of format 1 are taken as they stand: what happened to them before cannot be told.
                self._reader.execute(
                    "ALTER TABLE replies ADD COLUMN checksum INTEGER NOT NULL DEFAULT 0"
                )
                self._reader.execute("UPDATE replies SET checksum = checksum(key, reply)")
            self._reader.execute(f"PRAGMA user_version={_FORMAT}")
            self._reader.execute("COMMIT")
        except BaseException:
            if self._reader.in_transaction:
                self._reader.execute("ROLLBACK")
            raise

    def _write(self) -> None:
        try:
            connection = self._connect()
            try:
                self._write_all(connection)
            finally:
                connection.close()
        # Whatever it is, the thread must hand it over: the next `put` or `close` raises it.
        except BaseException as error:
            with self._room:
                self._failure = error
                self._room.notify_all()

    def _write_all(self, connection: sqlite3.Connection) -> None:
        oldest = 0
        while True:
            # Read before the batch is taken: whatever was put before closing is in this one.
            is_last = self._closed
            batch = self._take_batch()
            if not batch:
                if is_last:
                    return
                self._has_some.wait()
                self._is_full.wait(_SECONDS)
                continue
            for start in range(0, len(batch), _ROWS):
                some = batch[start : start + _ROWS]
                _insert(connection, ((record.key, record.reply) for record in some))
                with self._guard:
                    for record in some:
                        # A newer reply under the same key may be on its way.
                        if self._pending.get(record.key) is record.reply:
                            del self._pending[record.key]
                    self._room.notify_all()
            if batch[-1].segment > oldest:
                connection.execute("PRAGMA wal_checkpoint(PASSIVE)")
                for segment in range(oldest, batch[-1].segment):
                    self._segment_path(segment).unlink(missing_ok=True)
                oldest = batch[-1].segment

    def _take_batch(self) -> list[_Record]:
        with self._guard:
            batch, self._fresh = self._fresh, []
            if not self._closed:
                self._has_some.clear()
                self._is_full.clear()
        return batch

    # -- logs

    def _segment_path(self, segment: int) -> Path:
        return self._folder / f"{self._owner}.{segment}.log"

    def _open_segment(self) -> int:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND
        return os.open(self._segment_path(self._segment), flags, 0o600)

    def _append(self, line: bytes) -> None:
        try:
            if self._log_size > _SEGMENT_BYTES:
                os.close(self._log)
                self._segment += 1
                self._log = self._open_segment()
                self._log_size = 0
            written = os.write(self._log, line)
            if written < len(line):
                # A full disk may take part of a line; taken back, so that later lines stay readable.
                os.ftruncate(self._log, self._log_size)
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError as error:
            raise self._explain(error) from error
        self._log_size += written

    def _ingest_leftovers(self) -> None:
        for lock_file in sorted(self._folder.glob("*.lock")):
            if lock_file.stem == self._owner:
                continue
            lock = FileLock(lock_file, blocking=False)
            try:
                lock.acquire()
            except Timeout:
                continue  # its process is alive and will move its own
            logs = sorted(
                self._folder.glob(f"{lock_file.stem}.*.log"),
                key=lambda log: int(log.suffixes[-2].lstrip(".")),
            )
            records = itertools.chain.from_iterable(map(self._read_log, logs))
            while batch := list(itertools.islice(records, _ROWS)):
                _insert(self._reader, batch)
            self._reader.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            for log in logs:
                log.unlink(missing_ok=True)
            lock.release()
            lock_file.unlink(missing_ok=True)

    def _read_log(self, path: Path) -> Iterator[tuple[str, bytes]]:
        with path.open("rb") as file:
            for line in file:
                record = from_line(line) if line.endswith(b"\n") else None
                if record is not None:
                    yield record
                elif line.endswith(b"\n"):
                    self._damaged_lines += 1
                else:
                    self.torn += 1

    def _explain(self, error: BaseException) -> CurateError:
        if isinstance(error, CurateError):
            return error
        full = isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)
        if full or "disk is full" in str(error):
            return CurateError(
                f"the disk is full: replies cannot be written to {self.path.parent}",
                fix="free some space and run again; what was received before is kept",
            )
        is_damaged = isinstance(error, sqlite3.DatabaseError) and not isinstance(
            error, sqlite3.OperationalError
        )
        if is_damaged:
            return CurateError(
                f"the reply cache {self.path} is damaged or is another kind of file",
                got=str(error),
                fix="move it away and run again; the replies in it will be asked for again",
            )
        return CurateError(
            f"the reply cache {self.path} cannot be used",
            got=str(error),
            fix="check that its folder is on a local disk and writable",
        )


def _insert(connection: sqlite3.Connection, records: Iterable[tuple[str, bytes]]) -> None:
    """Insert in one transaction, many rows a statement.

    Each step of a statement gives up the interpreter's lock and takes it back, and where the event loop
    wants it as well both threads pay a switch for it: row by row that costs more than the writing.
    """
    rows = [(bytes.fromhex(key), reply, checksum(key, reply)) for key, reply in records]
    connection.execute("BEGIN IMMEDIATE")
    try:
        start = 0
        for size in _STATEMENT_ROWS:
            statement = f"INSERT OR REPLACE INTO replies VALUES {','.join(['(?,?,?)'] * size)}"
            while len(rows) - start >= size:
                values = itertools.chain.from_iterable(rows[start : start + size])
                connection.execute(statement, tuple(values))
                start += size
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _checksum(key: Any, reply: Any) -> int:
    """The checksum of a row as it lies in SQLite, where damage may have changed types; -1 is nobody's."""
    are_bytes = isinstance(key, bytes) and isinstance(reply, bytes)
    return checksum(key.hex(), reply) if are_bytes else -1


def replies_since(path: Path, row: int, limit: int) -> list[tuple[int, str, bytes]]:
    """Replies in the order they came into SQLite, for copying them elsewhere while a run goes on.

    Args:
        path: the SQLite file; a missing one has none.
        row: number of the first row wanted, from 1.
        limit: at most so many.

    Returns:
        (row, key, reply) with rising rows; damaged replies are left out. A reply that replaced another stands under a new row, or under
        the same one if that was the last: ask from the last row you know, not from the one after it.
    """
    if not path.exists():
        return []
    with contextlib.closing(sqlite3.connect(path, timeout=60)) as connection:
        connection.text_factory = bytes
        connection.create_function("checksum", 2, _checksum, deterministic=True)
        return [
            (number, key.hex(), reply)
            for number, key, reply in connection.execute(
                "SELECT rowid, key, reply FROM replies WHERE rowid >= ? "
                "AND checksum = checksum(key, reply) ORDER BY rowid LIMIT ?",
                (row, limit),
            )
        ]
