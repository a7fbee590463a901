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
import os
import shutil
import tempfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import compress
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Generic, TypeVar

import filelock
import orjson
import polars as pl

from curate.errors import CurateError, RunLockedError

R = TypeVar("R")

_BATCH = 1_000  # rows of a file held at once while it is read
_SORTED = 5_000  # rows sorted at once
_KEYS = 10_000  # keys that are Python objects before they become a column
_ROW_GROUP = 10_000  # rows of a row group in a table
_BUCKETS = 200  # files open at once while many rows are sorted


def fingerprint(*parts: object) -> str:
    """64-bit hash (16 hex digits) of JSON-able parts; names a stage's folder."""
    return hashlib.blake2b(
        orjson.dumps(parts, option=orjson.OPT_SORT_KEYS), digest_size=8
    ).hexdigest()


def write_atomically(path: Path, data: bytes) -> None:
    """Replace a file whole, or leave it as it was."""
    with _replacing(path) as temporary:
        temporary.write_bytes(data)


@contextmanager
def atomic_file(path: Path) -> Iterator[IO[bytes]]:
    """A file to write bit by bit; it takes its place when the block ends, else the old one stands."""
    with _replacing(path) as temporary, temporary.open("wb") as file:
        yield file


@contextmanager
def _replacing(path: Path) -> Iterator[Path]:
    """Where to write what is to become `path`; it does when the block ends without an error."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield temporary
        temporary.replace(path)
    except OSError as error:
        raise _disk_error(path, error) from error
    finally:
        temporary.unlink(missing_ok=True)


class LineFile:
    """An append-only JSON Lines file; each line is one `write`, so a kill tears at most the last."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path = path
        try:
            self._descriptor: int | None = os.open(
                path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644
            )
        except OSError as error:
            raise _disk_error(path, error) from error

    def append(self, value: bytes) -> None:
        """Write one JSON value as a line."""
        if self._descriptor is None:
            raise ValueError("the file is closed")
        line = value + b"\n"
        try:
            while line:
                line = line[os.write(self._descriptor, line) :]
        except OSError as error:
            raise _disk_error(self.path, error) from error

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
    """Whole lines of a file; a torn last line (no newline, after a kill) is left out."""
    with path.open("rb") as lines:
        for line in lines:
            if line.endswith(b"\n") and line.strip():
                yield line


class FrameFile:
    """A Parquet file made of frames that come one after the other; a context manager.

    The frames share their columns but for some that not all of them have, or have in another type: what a
    chunk of the data holds decides about its labels. So each frame is a file of its own until all are there;
    then they become one, in the types that hold them all, without ever being in memory together.

    Args:
        path: replaced whole when the block ends without an error; else it stays as it was.
        first: columns that come first, in this order; the others follow by name.
    """

    def __init__(self, path: Path, first: Sequence[str] = ()) -> None:
        self.path = path
        self._first = tuple(first)
        self._parts = path.with_name(f".{path.name}.parts")
        self._columns: set[str] = set()
        self._count = 0

    def append(self, frame: pl.DataFrame) -> None:
        """Add rows."""
        try:
            frame.write_parquet(self._part(self._count), compression="lz4")
        except OSError as error:
            raise _disk_error(self.path, error) from error
        self._columns |= set(frame.columns)
        self._count += 1

    def _part(self, number: int) -> Path:
        return self._parts / f"{number:06d}.parquet"

    def __enter__(self) -> FrameFile:
        shutil.rmtree(self._parts, ignore_errors=True)
        try:
            self._parts.mkdir(parents=True)
        except OSError as error:
            raise _disk_error(self.path, error) from error
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            if error is None and self._count:
                with _replacing(self.path) as temporary:
                    self._whole().sink_parquet(temporary, row_group_size=_ROW_GROUP)
        finally:
            shutil.rmtree(self._parts, ignore_errors=True)

    def _whole(self) -> pl.LazyFrame:
        columns = [*self._first, *sorted(self._columns - set(self._first))]
        parts = [pl.scan_parquet(self._part(number)) for number in range(self._count)]
        whole = pl.concat(parts, how="diagonal_relaxed") if len(parts) > 1 else parts[0]
        return whole.select(columns)


def read_frames(path: Path, rows: int) -> Iterator[pl.DataFrame]:
    """A Parquet file, so many rows at a time."""
    whole = pl.scan_parquet(path)
    for start in range(0, whole.select(pl.len()).collect().item(), rows):
        yield whole.slice(start, rows).collect()


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
        with _replacing(self.folder / "rows.parquet") as temporary:
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
        for part in _parts(self.folder):
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


def stored_record(folder: Path, key: str) -> bytes | None:
    """The JSON of one row of a stage, the newest; None where there is none."""
    newest: str | None = None
    for part in _parts(folder):
        for line in read_lines(part):
            row = orjson.loads(line)
            if row["key"] == key:
                newest = row["record"]
    compacted = folder / "rows.parquet"
    if newest is None and compacted.exists():
        found = pl.scan_parquet(compacted).filter(pl.col("key") == key).collect()
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
            raise _disk_error(self.path, error) from error
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
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


def _parquet_rows(path: Path) -> Iterator[tuple[str, str]]:
    import pyarrow.parquet as pq

    with pq.ParquetFile(path) as file:
        for batch in file.iter_batches(_BATCH, columns=["key", "record"]):
            yield from zip(batch["key"].to_pylist(), batch["record"].to_pylist(), strict=True)


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


def _disk_error(path: Path, error: OSError) -> CurateError:
    return CurateError(
        f"cannot write {path}",
        got=error.strerror or str(error),
        fix="free some room, mend the permissions or name another folder with --out; "
        "the same command goes on where it stopped",
    )
