"""The run folder: what is written where, what is still owed, and who may write.

    <run>/manifest.json                 what the run was and what came of it
    <run>/dialogues.jsonl               the normalised input of this run
    <run>/quarantine.jsonl              rows that could not be read
    <run>/<stage>/<fingerprint>/        rows of a stage: part files, compacted to rows.parquet
    <run>/export/<trainer>/             what trainers take

A stage's fingerprint covers everything that shapes its rows except the dialogue; a row is keyed by the
dialogue's content hash. So a new dialogue or a changed threshold redoes only what it must, and rows of an
older fingerprint stay where they are. A row is one line, written with one system call: after a kill the
last line may be torn, and that row is owed again.
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
from curate.files import LineFile, damaged, disk_error, read_lines, replacing, write_atomically

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
        check: raises CurateError for JSON bytes that do not fit the record's schema; called once for each
            row that an earlier process left.

    Each process appends to a part file of its own. In memory are the keys (see `KeyLog`), never the rows.
    """

    def __init__(
        self,
        folder: Path,
        *,
        dump: Callable[[R], bytes],
        load: Callable[[bytes], R],
        check: Callable[[bytes], None] = lambda _: None,
    ) -> None:
        self.folder = folder
        self._dump = dump
        self._load = load
        self._part: LineFile | None = None
        self._forgotten: set[str] = set()
        self._keys = KeyLog()
        """One for each row in the files, in their order, replaced rows too."""
        for key, record in self._stored():
            check(record.encode())
            self._keys.append(key)

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
        """Copy another folder's rows of `keys`, as they are, where this one has none."""
        missing = keys.filter(~keys.is_in(self.done().implode()))
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
        self._part.append(b'{"key":%b,"record":%b}' % (orjson.dumps(key), orjson.dumps(record)))
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
        if not parts and places.equals(pl.Series(range(len(held)), dtype=places.dtype)):
            return
        rank = pl.DataFrame({"at": places}).with_row_index("rank").sort("at")["rank"]
        rows = compress(self._stored(), held.is_last_distinct())
        with replacing(self.folder / "rows.parquet") as temporary:
            _write_sorted(temporary, zip(rank, rows, strict=True), len(rank))
        self._keys = KeyLog(held.gather(places))
        for part in parts:
            part.unlink()

    def close(self) -> None:
        """Close the part file without compacting."""
        if self._part is not None:
            self._part.close()
            self._part = None

    def _stored(self) -> Iterator[tuple[str, str]]:
        """Parquet first, then parts in order: what comes later replaces what came before."""
        compacted = self.folder / "rows.parquet"
        if compacted.exists():
            yield from _parquet_rows(compacted)
        yield from _part_rows(self.folder)


def stored_record(folder: Path, key: str) -> bytes | None:
    """The JSON of one row of a stage, the newest; None where there is none."""
    newest: str | None = None
    for found_key, record in _part_rows(folder):
        if found_key == key:
            newest = record
    compacted = folder / "rows.parquet"
    if newest is None and compacted.exists():
        try:
            found = pl.scan_parquet(compacted).filter(pl.col("key") == key).collect()
        except pl.exceptions.PolarsError as error:
            raise damaged(compacted, error) from error
        newest = found["record"][0] if found.height else None
    return None if newest is None else newest.encode()


class RunFolder:
    """One run's folder, held by one writing process."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = filelock.FileLock(path / ".lock")

    def __enter__(self) -> RunFolder:
        try:
            self.path.mkdir(parents=True, exist_ok=True)
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


def _part_rows(folder: Path) -> Iterator[tuple[str, str]]:
    for part in _parts(folder):
        for number, line in enumerate(read_lines(part), start=1):
            try:
                row = orjson.loads(line)
                yield row["key"], row["record"]
            except (orjson.JSONDecodeError, KeyError, TypeError) as error:
                raise CurateError(
                    f"a row of an earlier run cannot be read back: {part}:{number}",
                    got=str(error),
                    expected='{"key": …, "record": …}',
                    fix="delete that line; the row will be made again from kept replies",
                ) from error


def _parquet_rows(path: Path) -> Iterator[tuple[str, str]]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(path) as file:
            for batch in file.iter_batches(_BATCH, columns=["key", "record"]):
                yield from zip(batch["key"].to_pylist(), batch["record"].to_pylist(), strict=True)
    except (pa.ArrowException, OSError) as error:  # pages that cannot be unpacked are an OSError
        raise damaged(path, error) from error


def _write_sorted(path: Path, ranked: Iterable[tuple[int, tuple[str, str]]], count: int) -> None:
    """Rows as Parquet in the order of their ranks, which are 0 to `count` - 1."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema = pa.schema([("key", pa.string()), ("record", pa.string())])
    with pq.ParquetWriter(path, schema, compression="zstd") as writer:
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
