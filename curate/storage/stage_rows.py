"""The rows of a stage: which are done, which are pending, and all of them in the order of the dialogues.

    <run>/<stage>/<fingerprint>/rows.sqlite     rows as they arrive, in a `Store`
    <run>/<stage>/<fingerprint>/rows.parquet    all rows, in the order of the dialogues, once a stage is done

A stage's fingerprint covers everything that determines its rows except the dialogue; a row is keyed by the dialogue's
content hash. So a new dialogue or a changed threshold recomputes only what it must, and rows of an older fingerprint
stay where they are. Rows are written in batches, since they can be made again from cached replies without a call: a
kill costs the last few. A row that a disk or an editor has damaged is pending again too: rows and pages have
checksums, and rows that fail them are skipped and reported (`StageRows.damage`).
"""

from __future__ import annotations

import hashlib
import os
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import compress, islice
from pathlib import Path
from typing import Any, Generic, TypeVar

import orjson
import polars as pl

from curate.errors import CurateError
from curate.storage.store import Store, delete_store
from curate.storage.whole_files import damaged, replacing

R = TypeVar("R")

_TABLE, _FRESH = "rows.parquet", "rows.sqlite"
_BATCH = 1_000  # rows held at once while they are written or read
_SECONDS = 1.0  # after which rows are written though there are fewer
_GROUP = 5_000  # rows of a row group
_KEYS = 10_000  # keys that are Python objects before they become a column


def fingerprint(*parts: object) -> str:
    """Return a 64-bit hash (16 hex digits) of JSON-able parts; it names a stage's folder."""
    return hashlib.blake2b(
        orjson.dumps(parts, option=orjson.OPT_SORT_KEYS), digest_size=8
    ).hexdigest()


class KeyLog:
    """Keys in order of arrival, held as a column: about 50 bytes each, a tenth of a list and a set."""

    def __init__(self, keys: pl.Series | None = None) -> None:
        self._chunks = [pl.Series("key", [] if keys is None else keys, dtype=pl.String)]
        self._tail: list[str] = []

    def append(self, key: str) -> None:
        """Add a key at the end."""
        self._tail.append(key)
        if len(self._tail) >= _KEYS:
            self._settle()

    def column(self) -> pl.Series:
        """Return all keys in order."""
        self._settle()
        if len(self._chunks) > 1:
            self._chunks = [pl.concat(self._chunks)]
        return self._chunks[0]

    def _settle(self) -> None:
        if self._tail:
            self._chunks.append(pl.Series("key", self._tail, dtype=pl.String))
            self._tail = []


class StageRows(Generic[R]):
    """The rows of one stage under one fingerprint.

    Args:
        folder: `<run>/<stage>/<fingerprint>`.
        dump: converts a record to JSON bytes.
        load: converts JSON bytes to a record.
        check: raises CurateError or ValueError for JSON bytes that are not a record; called once for each row that an
            earlier process left.
        is_settled: returns False for the JSON text of a row that is pending again whenever the rows are opened.

    Attributes:
        damage: places of rows that could not be read back, with the reason; those rows are pending again.

    Only the keys (see `KeyLog`) and one batch of rows are held in memory.
    """

    def __init__(
        self,
        folder: Path,
        *,
        dump: Callable[[R], bytes],
        load: Callable[[bytes], R],
        check: Callable[[bytes], object] = lambda _: None,
        is_settled: Callable[[str], bool] = lambda _: True,
    ) -> None:
        self.folder = folder
        self._dump = dump
        self._load = load
        self._store: Store | None = None
        self._batch: list[tuple[str, bytes]] = []
        self._since = 0.0
        self._forgotten: set[str] = set()
        self.damage: list[str] = []
        # Keys of the sound rows in the table, and in the store in order of arrival; the store's are newer.
        self._table, self._unsound_table = self._sound_keys(
            _table_rows(folder / _TABLE, self.damage.append), check, is_settled
        )
        self._fresh, self._unsound_fresh = KeyLog(), set[str]()
        self._is_broken = False
        try:
            if (folder / _FRESH).exists():
                self._open().check()
                fresh = self._sound_keys(self._fresh_rows(), check, is_settled)
                self._fresh, self._unsound_fresh = fresh
        except CurateError as error:
            if not os.access(folder / _FRESH, os.R_OK | os.W_OK):
                raise
            self._is_broken = True
            self.damage.append(f"{_FRESH}: {_in_a_line(error)}")
        if not self._is_broken and self._store is not None and self._store.damaged:
            self.damage.append(f"{_FRESH}: {self._store.damaged} rows do not match their checksums")

    @property
    def damage_note(self) -> str | None:
        """Return the damage in one sentence; None if there is none."""
        if not self.damage:
            return None
        more = f", and {len(self.damage) - 3} more places" if len(self.damage) > 3 else ""
        return f"{self.folder} is damaged: {'; '.join(self.damage[:3])}{more}."

    def done(self) -> pl.Series:
        """Return the keys of the rows that are done, each once."""
        keys = self._held().unique()
        if self._forgotten:
            keys = keys.filter(~keys.is_in(list(self._forgotten)))
        return keys

    def append(self, key: str, record: R) -> None:
        """Add a row; it is written with others that arrive within a second."""
        self._append(key, self._dump(record))

    def adopt(self, other: StageRows[R], keys: pl.Series) -> None:
        """Copy another folder's rows for `keys` where this one has none; pending rows are not copied."""
        missing = keys.filter(
            keys.is_in(other.done().implode()) & ~keys.is_in(self.done().implode())
        )
        for key, record in other.stored(missing):
            self._append(key, record)

    def stored(self, keys: pl.Series) -> Iterator[tuple[str, bytes]]:
        """Yield the rows of `keys` as JSON, in the order of the files."""
        stored_keys = self._held()
        return self._stored(stored_keys.is_last_distinct() & stored_keys.is_in(keys.implode()))

    def forget(self, keys: Iterable[str]) -> None:
        """Mark rows as pending. The old ones stay until a new row with the same key replaces them."""
        self._forgotten.update(keys)

    def forget_where(self, condition: Callable[[R], bool]) -> frozenset[str]:
        """Mark the rows as pending for which the condition holds; return their keys."""
        keys = frozenset(key for key, row in self.read() if condition(row))
        self.forget(keys)
        return keys

    def read(self) -> Iterator[tuple[str, R]]:
        """Yield all rows, the newest of each key, in the order of the files."""
        for key, record in self._stored(self._held().is_last_distinct()):
            yield key, self._load(record)

    def get(self, key: str) -> R | None:
        """Return the row of one key; None if there is none."""
        record = stored_record(self.folder, key)
        return None if record is None else self._load(record)

    def aligned(self, keys: pl.Series, mask: pl.Series | None = None) -> Iterator[R | None]:
        """Yield the row of each of `keys`, None where there is none; one pass over the files.

        Args:
            keys: in the order that `compact` was last called with; a key may occur several times.
            mask: where it is false, nothing is yielded for that key.
        """
        has_row = keys.is_in(self._held().implode())
        mask = pl.Series([True]).new_from_index(0, len(keys)) if mask is None else mask
        marks = (has_row, keys.is_first_distinct(), keys.is_last_distinct(), mask)
        rows = self._stored(self._held().is_last_distinct())
        later: dict[str, bytes] = {}
        for key, is_there, is_first, is_last, is_wanted in zip(keys, *marks, strict=True):
            if not is_there:
                if is_wanted:
                    yield None
                continue
            if is_first:
                stored_key, record = next(rows)
                if stored_key != key:
                    raise ValueError(f"the rows in {self.folder} are in another order")
                if not is_last:
                    # Compressed, since it may be needed again only much later.
                    later[key] = zlib.compress(record, 1)
            elif is_wanted or is_last:
                record = zlib.decompress(later.pop(key) if is_last else later[key])
            if is_wanted:
                yield self._load(record)

    def compact(self, order: pl.Series | Sequence[str] = ()) -> None:
        """Write all rows to `rows.parquet`, in the given order of keys; the others follow by name.

        Memory does not grow with the rows: if the table is in another order, its rows are put into the store, which is read
        by key.
        """
        self._flush()
        keys = _ordered(self._held().unique(), pl.Series("key", order, dtype=pl.String))
        has_fresh = (self.folder / _FRESH).exists()
        if not has_fresh and keys.equals(self._table.column()) and not self.damage:
            self.close()
            return
        store = self._open()
        for batch in _batches(self._from_table(self._held().is_last_distinct())):
            store.put(batch)
        with replacing(self.folder / _TABLE) as temporary:
            _write_table(temporary, store, keys)
        self._table, self._fresh = KeyLog(keys), KeyLog()
        self._unsound_table, self._unsound_fresh = set(), set()
        store.delete()
        self._store = None

    def close(self) -> None:
        """Write pending batches, without compacting."""
        self._flush()
        if self._store is not None:
            self._store.close()
            self._store = None

    # -- the files

    def _open(self) -> Store:
        if self._store is None or self._is_broken:
            if self._is_broken:
                delete_store(self.folder / _FRESH)
                self._is_broken = False
            self._store = Store(self.folder / _FRESH)
        return self._store

    def _append(self, key: str, record: bytes) -> None:
        if not self._batch:
            self._since = time.monotonic()
        self._batch.append((key, record))
        self._fresh.append(key)
        self._unsound_fresh.discard(key)
        self._forgotten.discard(key)
        if len(self._batch) >= _BATCH or time.monotonic() - self._since > _SECONDS:
            self._flush()

    def _flush(self) -> None:
        if self._batch:
            self._open().put(self._batch)
            self._batch = []

    def _held(self) -> pl.Series:
        """Return the keys of all sound rows, those of the table first; the last of several is the newest."""
        return pl.concat([self._table.column(), self._fresh.column()])

    def _stored(self, mask: pl.Series) -> Iterator[tuple[str, bytes]]:
        """Yield the rows marked in `mask` (aligned with `_held`), which are the newest of their keys."""
        yield from self._from_table(mask)
        self._flush()
        # The store has the newest row of each key alone.
        newest = mask[len(self._table.column()) :].filter(self._fresh.column().is_last_distinct())
        sound = (row for row in self._fresh_rows() if row[0] not in self._unsound_fresh)
        yield from compress(sound, newest)

    def _from_table(self, mask: pl.Series) -> Iterator[tuple[str, bytes]]:
        rows = _table_rows(self.folder / _TABLE, lambda _: None)
        sound = (row for row in rows if row[0] not in self._unsound_table)
        return compress(sound, mask[: len(self._table.column())])

    def _fresh_rows(self) -> Iterator[tuple[str, bytes]]:
        if (self.folder / _FRESH).exists() and not self._is_broken:
            for _, key, record in self._open().items():
                yield key, record

    def _sound_keys(
        self,
        rows: Iterable[tuple[str, bytes]],
        check: Callable[[bytes], object],
        is_settled: Callable[[str], bool],
    ) -> tuple[KeyLog, set[str]]:
        """Return the keys of the rows that are valid records, and of those that are not."""
        keys, unsound = KeyLog(), set()
        for key, record in rows:
            try:
                check(record)
            except (CurateError, ValueError) as error:
                unsound.add(key)
                self.damage.append(f"{self.folder.name}, row {key}: {_in_a_line(error)}")
                continue
            keys.append(key)
            if is_settled(record.decode()):
                self._forgotten.discard(key)
            else:
                self._forgotten.add(key)
        return keys, unsound


def stored_record(folder: Path, key: str) -> bytes | None:
    """Return the JSON of one row of a stage, the newest; None if there is none.

    Raises:
        CurateError: there is none, and a damaged row may have been it.
    """
    fresh, table = folder / _FRESH, folder / _TABLE
    if fresh.exists():
        with Store(fresh) as store:
            records = store.get([key])
            if records:
                return records[key]
            if store.damaged:
                raise damaged(fresh, "a row does not match its checksum")
    return _table_record(table, key) if table.exists() else None


def _ordered(keys: pl.Series, order: pl.Series) -> pl.Series:
    """Return the keys in an order; those that are not in it follow by name."""
    ordered = order.unique(maintain_order=True)
    first = ordered.filter(ordered.is_in(keys.implode()))
    rest = keys.filter(~keys.is_in(ordered.implode())).sort()
    return pl.concat([first, rest])


def _in_a_line(error: BaseException) -> str:
    message = getattr(error, "got", None) or str(error) or type(error).__name__
    return " ".join(str(message).split())[:200]


def _batches(rows: Iterator[tuple[str, bytes]]) -> Iterator[list[tuple[str, bytes]]]:
    while batch := list(islice(rows, _BATCH)):
        yield batch


# -- the table


def _write_table(path: Path, store: Store, keys: pl.Series) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema = pa.schema([("key", pa.string()), ("record", pa.string())])
    options: dict[str, Any] = {"compression": "zstd", "write_page_checksum": True}
    with pq.ParquetWriter(path, schema, **options) as writer:
        for start in range(0, len(keys), _GROUP):
            group = keys.slice(start, _GROUP).to_list()
            stored = store.get(group)
            records = [stored[key].decode() for key in group]
            writer.write_table(pa.table([group, records], schema=schema))


def _table_rows(path: Path, note: Callable[[str], None]) -> Iterator[tuple[str, bytes]]:
    """Yield the rows of the table; in each row group, up to the first page that cannot be read.

    Args:
        note: called with each place that cannot be read, and why.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    # OSError: pages that cannot be unpacked; KeyError: a missing column
    broken = (pa.ArrowException, OSError, ValueError, KeyError)

    def report(error: BaseException, place: str = "") -> None:
        if isinstance(error, OSError) and error.errno is not None:
            raise error  # no permission, no disk: the file itself may be fine
        note(f"{path.name}{place}: {_in_a_line(error)}")

    if not path.exists():
        return
    try:
        file = pq.ParquetFile(path, page_checksum_verification=True)
    except broken as error:
        return report(error)
    with file:
        for group in range(file.num_row_groups):
            batches = file.iter_batches(_BATCH, row_groups=[group], columns=["key", "record"])
            while True:
                try:
                    batch = next(batches, None)
                    if batch is None:
                        break
                    keys, records = batch["key"].to_pylist(), batch["record"].to_pylist()
                    if not all(isinstance(value, str) for value in (*keys, *records)):
                        raise ValueError("a row without key or record")
                except broken as error:
                    report(error, f", row group {group + 1}")
                    break
                yield from zip(keys, map(str.encode, records), strict=True)


def _table_record(path: Path, key: str) -> bytes | None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        table = pq.read_table(
            path,
            columns=["record"],
            filters=[("key", "=", key)],
            page_checksum_verification=True,
        )
        return table["record"][0].as_py().encode() if table.num_rows else None
    except (pa.ArrowException, OSError, ValueError, KeyError) as error:
        raise damaged(path, error) from error
