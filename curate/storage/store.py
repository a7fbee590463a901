"""The run folder: what is written where, what is still owed, and who may write.

    <run>/manifest.json                 what the run was and what came of it
    <run>/dialogues.jsonl               the normalised input of this run
    <run>/quarantine.jsonl              rows that could not be read
    <run>/<stage>/<fingerprint>/        rows of a stage: part files, compacted to rows.parquet
    <run>/export/<trainer>/             what trainers take

A stage's fingerprint covers everything that shapes its rows except the dialogue; a row is keyed by the
dialogue's content hash. So a new dialogue or a changed threshold redoes only what it must, and rows of an
older fingerprint stay where they are. A row is one line, written with one system call: after a kill the
last line may be torn, and that row is owed again. So is a row that a disk or an editor has damaged: lines and
pages carry checksums, and what fails them is passed over and named (`StageRows.damage`).
"""

from __future__ import annotations

import hashlib
import tempfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from itertools import compress
from pathlib import Path
from typing import Any, Generic, TypeVar

import filelock
import orjson
import polars as pl

from curate.errors import CurateError, RunLockedError
from curate.storage.files import (
    LineFile,
    damaged,
    disk_error,
    make_folder,
    read_lines,
    replacing,
    write_atomically,
)

R = TypeVar("R")

_BATCH = 1_000  # rows of a file held at once while it is read
_SORTED = 5_000  # rows sorted at once
_KEYS = 10_000  # keys that are Python objects before they become a column
_BUCKETS = 200  # files open at once while many rows are sorted


def fingerprint(*parts: object) -> str:
    """64-bit hash (16 hex digits) of JSON-able parts; names a stage's folder."""
    return hashlib.blake2b(
        orjson.dumps(parts, option=orjson.OPT_SORT_KEYS), digest_size=8
    ).hexdigest()


class KeyLog:
    """Keys in the order they came, held as a column: about 50 bytes each, a tenth of what a list and a set take."""

    def __init__(self, keys: pl.Series | None = None) -> None:
        self._chunks = [pl.Series("key", [] if keys is None else keys, dtype=pl.String)]
        self._tail: list[str] = []

    def append(self, key: str) -> None:
        """Add a key at the end."""
        self._tail.append(key)
        if len(self._tail) >= _KEYS:
            self._settle()

    def column(self) -> pl.Series:
        """All keys, in order."""
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
        dump: record to JSON bytes.
        load: JSON bytes to record.
        check: raises CurateError or ValueError for JSON bytes that are no record; called once for each row
            that an earlier process left.
        is_settled: False for the JSON text of a row that is owed again whenever the rows are opened.

    Attributes:
        damage: where rows were that could not be read back, and why; those rows are owed again.

    Each process appends to a part file of its own. In memory are the keys (see `KeyLog`), never the rows.
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
        self._part: LineFile | None = None
        self._forgotten: set[str] = set()
        self.damage: list[str] = []
        self._unsound: set[int] = set()
        """Places, among the rows that can be read, of those that are no records."""
        self._keys = KeyLog()
        """One for each sound row in the files, in their order, replaced rows too."""
        for place, (key, record) in enumerate(_rows(folder, self.damage.append)):
            try:
                check(record.encode())
            except (CurateError, ValueError) as error:
                self._unsound.add(place)
                self.damage.append(f"{folder.name}, row {key}: {_in_a_line(error)}")
            else:
                self._keys.append(key)
                if is_settled(record):
                    self._forgotten.discard(key)
                else:
                    self._forgotten.add(key)

    @property
    def damage_note(self) -> str | None:
        """The damage in one sentence; None where there is none."""
        if not self.damage:
            return None
        more = f", and {len(self.damage) - 3} more places" if len(self.damage) > 3 else ""
        return f"{self.folder} is damaged: {'; '.join(self.damage[:3])}{more}."

    @property
    def keys(self) -> set[str]:
        """Keys of the rows that are done; made anew with each look, `done` is the column."""
        return set(self.done())

    def done(self) -> pl.Series:
        """Keys of the rows that are done, each once."""
        keys = self._keys.column().unique()
        if self._forgotten:
            keys = keys.filter(~keys.is_in(list(self._forgotten)))
        return keys

    def append(self, key: str, record: R) -> None:
        """Keep a row; it is on its way to disk when this returns."""
        self._append(key, self._dump(record).decode())

    def adopt(self, other: StageRows[R], keys: pl.Series) -> None:
        """Copy another folder's rows of `keys`, as they are, where this one has none; not what it owes."""
        missing = keys.filter(
            keys.is_in(other.done().implode()) & ~keys.is_in(self.done().implode())
        )
        for key, record in other.stored(missing):
            self._append(key, record)

    def stored(self, keys: pl.Series) -> Iterator[tuple[str, str]]:
        """The rows of those of `keys` that have one, as JSON text, as they lie in the files."""
        held = self._keys.column()
        wanted = held.is_last_distinct() & held.is_in(keys.implode())
        return compress(self._stored(), wanted)

    def _append(self, key: str, record: str) -> None:
        if self._part is None:
            self._part = LineFile(self.folder / f"part-{_free_part_number(self.folder):04d}.jsonl")
        fields = orjson.dumps(key), orjson.dumps(record), _checksum(key, record)
        self._part.append(b'{"key":%b,"record":%b,"crc":%d}' % fields)
        self._keys.append(key)
        self._forgotten.discard(key)

    def forget(self, keys: Iterable[str]) -> None:
        """Owe these rows again. The old ones stay until a new row with the same key replaces them."""
        self._forgotten.update(keys)

    def forget_where(self, condition: Callable[[R], bool]) -> frozenset[str]:
        """Owe the rows again that the condition holds for; returns their keys."""
        keys = frozenset(key for key, row in self.read() if condition(row))
        self.forget(keys)
        return keys

    def read(self) -> Iterator[tuple[str, R]]:
        """All rows, the newest of each key, as they lie in the files."""
        for key, record in compress(self._stored(), self._keys.column().is_last_distinct()):
            yield key, self._load(record.encode())

    def aligned(self, keys: pl.Series, wanted: pl.Series | None = None) -> Iterator[R | None]:
        """The row of each of `keys`, None where there is none; one pass over the files.

        Args:
            keys: in the order that `compact` was last called with; a key may come several times.
            wanted: where false, nothing is given for that key.
        """
        has_row = keys.is_in(self._keys.column().implode())
        wanted = pl.Series([True]).new_from_index(0, len(keys)) if wanted is None else wanted
        marks = (has_row, keys.is_first_distinct(), keys.is_last_distinct(), wanted)
        rows = self._stored()
        later: dict[str, bytes] = {}
        for key, is_there, is_first, is_last, is_wanted in zip(keys, *marks, strict=True):
            if not is_there:
                if is_wanted:
                    yield None
                continue
            if is_first:
                found, record = next(rows)
                if found != key:
                    raise ValueError(f"the rows in {self.folder} are in another order")
                if not is_last:
                    # Compressed, since what comes again may come again much later.
                    later[key] = zlib.compress(record.encode(), 1)
            elif is_wanted or is_last:
                packed = later.pop(key) if is_last else later[key]
                record = zlib.decompress(packed).decode()
            if is_wanted:
                yield self._load(record.encode())

    def compact(self, order: Iterable[str] = ()) -> None:
        """Merge all parts into `rows.parquet`, in the given order of keys, then remove the parts.

        Keys that are not in `order` follow by name. Memory does not grow with the rows: they are dealt into
        buckets on disk, and sorted one bucket at a time.
        """
        self.close()
        parts = _parts(self.folder)
        held = self._keys.column()
        places = _places(held, order)
        in_order = places.equals(pl.Series(range(len(held)), dtype=places.dtype))
        if not parts and in_order and not self.damage:
            return
        rank = pl.DataFrame({"at": places}).with_row_index("rank").sort("at")["rank"]
        rows = compress(self._stored(), held.is_last_distinct())
        with replacing(self.folder / "rows.parquet") as temporary:
            _write_sorted(temporary, zip(rank, rows, strict=True), len(rank))
        self._keys = KeyLog(held.gather(places))
        for part in parts:
            part.unlink()
        self._unsound = set()

    def close(self) -> None:
        """Close the part file without compacting."""
        if self._part is not None:
            self._part.close()
            self._part = None

    def _stored(self) -> Iterator[tuple[str, str]]:
        """The sound rows; what comes later replaces what came before."""
        rows = _rows(self.folder, lambda _: None)
        if not self._unsound:
            return rows
        return (row for place, row in enumerate(rows) if place not in self._unsound)


def stored_record(folder: Path, key: str) -> bytes | None:
    """The JSON of one row of a stage, the newest; None where there is none.

    Raises:
        CurateError: there is none, and something is damaged that may have held it.
    """
    newest: str | None = None
    damage: list[str] = []
    for part in _parts(folder):
        for found_key, record in _part_rows(part, damage.append):
            if found_key == key:
                newest = record
    compacted = folder / "rows.parquet"
    if newest is None and compacted.exists():
        newest = _parquet_record(compacted, key)
    if newest is None and damage:
        raise damaged(folder / damage[0].partition(": ")[0], damage[0])
    return None if newest is None else newest.encode()


class RunFolder:
    """One run's folder, held by one writing process."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = filelock.FileLock(path / ".lock", mode=0o600)

    def __enter__(self) -> RunFolder:
        try:
            make_folder(self.path)
            self._lock.acquire(timeout=0)
        except filelock.Timeout as error:
            raise RunLockedError(
                f"another process is writing {self.path}",
                expected="one writer a run folder",
                fix="wait for it to end, or name another folder with --out",
            ) from error
        except OSError as error:
            raise disk_error(self.path, error) from error
        return self

    def __exit__(self, *_: object) -> None:
        self._lock.release()

    @property
    def manifest_path(self) -> Path:
        """Where the manifest lies."""
        return self.path / "manifest.json"

    def write_manifest(self, manifest: dict[str, Any]) -> None:
        """Replace the manifest whole."""
        write_atomically(
            self.manifest_path, orjson.dumps(manifest, option=orjson.OPT_INDENT_2) + b"\n"
        )


def _parts(folder: Path) -> list[Path]:
    return sorted(folder.glob("part-*.jsonl"), key=_part_number)


def _part_number(part: Path) -> int:
    return int(part.stem.removeprefix("part-"))


def _free_part_number(folder: Path) -> int:
    return max(map(_part_number, _parts(folder)), default=0) + 1


def _places(held: pl.Series, order: Iterable[str]) -> pl.Series:
    """Where, among the stored rows, the newest row of each key lies; in the order they are to have."""
    column = order if isinstance(order, pl.Series) else pl.Series(list(order), dtype=pl.String)
    wanted = pl.DataFrame({"key": column.unique(maintain_order=True)}).with_row_index("place")
    newest = (
        pl.DataFrame({"key": held}).with_row_index("at").filter(pl.col("key").is_last_distinct())
    )
    return newest.join(wanted, on="key", how="left").sort("place", "key", nulls_last=True)["at"]


def _rows(folder: Path, note: Callable[[str], None]) -> Iterator[tuple[str, str]]:
    """The rows of a folder that can be read back: Parquet first, then parts in order.

    Args:
        note: told each place that cannot, and why.
    """
    compacted = folder / "rows.parquet"
    if compacted.exists():
        yield from _parquet_rows(compacted, note)
    for part in _parts(folder):
        yield from _part_rows(part, note)


def _part_rows(part: Path, note: Callable[[str], None]) -> Iterator[tuple[str, str]]:
    for number, line in enumerate(read_lines(part), start=1):
        try:
            row = orjson.loads(line)
            key, record = row["key"], row["record"]
            if not (isinstance(key, str) and isinstance(record, str)):
                raise TypeError("key and record are to be text")
            if row.get("crc", _checksum(key, record)) != _checksum(key, record):
                raise ValueError("it does not fit its checksum")
        except (ValueError, KeyError, TypeError) as error:
            note(f"{part.name}:{number}: {_in_a_line(error)}")
        else:
            yield key, record


def _checksum(key: str, record: str) -> int:
    return zlib.crc32(record.encode(), zlib.crc32(key.encode()))


def _in_a_line(error: BaseException) -> str:
    said = getattr(error, "got", None) or str(error) or type(error).__name__
    return " ".join(str(said).split())[:200]


def _parquet_rows(path: Path, note: Callable[[str], None]) -> Iterator[tuple[str, str]]:
    """The rows of every page up to the first, in each group of rows, that cannot be read."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    # pages that cannot be unpacked are an OSError; a KeyError is a column that is not there
    broken = (pa.ArrowException, OSError, ValueError, KeyError)

    def tell(error: BaseException, place: str = "") -> None:
        if isinstance(error, OSError) and error.errno is not None:
            raise error  # no permission, no disk: nothing is wrong with the file
        note(f"{path.name}{place}: {_in_a_line(error)}")

    try:
        file = pq.ParquetFile(path, page_checksum_verification=True)
    except broken as error:
        return tell(error)
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
                    tell(error, f", row group {group + 1}")
                    break
                yield from zip(keys, records, strict=True)


def _parquet_record(path: Path, key: str) -> str | None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        found = pq.read_table(
            path,
            columns=["record"],
            filters=[("key", "=", key)],
            page_checksum_verification=True,
        )
        return found["record"][0].as_py() if found.num_rows else None
    except (pa.ArrowException, OSError, ValueError, KeyError) as error:
        raise damaged(path, error) from error


def _write_sorted(path: Path, ranked: Iterable[tuple[int, tuple[str, str]]], count: int) -> None:
    """Rows as Parquet in the order of their ranks, which are 0 to `count` - 1."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema = pa.schema([("key", pa.string()), ("record", pa.string())])
    options: dict[str, Any] = {"compression": "zstd", "write_page_checksum": True}
    with pq.ParquetWriter(path, schema, **options) as writer:
        for rows in _dealt(ranked, count, path.parent):
            rows.sort()
            arrays = [pa.array([row[place] for row in rows], pa.string()) for place in (1, 2)]
            writer.write_table(pa.Table.from_arrays(arrays, schema=schema))


def _dealt(
    ranked: Iterable[tuple[int, tuple[str, str]]], count: int, folder: Path
) -> Iterator[list[tuple[int, str, str]]]:
    """Buckets of neighbouring ranks, in order, each a list; all but one of them on disk."""
    size = max(_SORTED, -(-count // _BUCKETS))
    if count <= size:
        yield [(rank, *row) for rank, row in ranked]
        return
    with tempfile.TemporaryDirectory(prefix=".sort-", dir=folder) as spilled, ExitStack() as opened:
        buckets = [
            opened.enter_context((Path(spilled) / str(number)).open("w+b"))
            for number in range(-(-count // size))
        ]
        for rank, row in ranked:
            buckets[rank // size].write(orjson.dumps((rank, *row)) + b"\n")
        for bucket in buckets:
            bucket.seek(0)
            yield [orjson.loads(line) for line in bucket]
            bucket.truncate(0)
