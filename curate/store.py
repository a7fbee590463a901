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
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Generic, TypeVar

import filelock
import orjson
import polars as pl

from curate.errors import CurateError, RunLockedError

R = TypeVar("R")

_PARQUET_SCHEMA = pl.Schema({"key": pl.String, "record": pl.String})


def fingerprint(*parts: object) -> str:
    """64-bit hash (16 hex digits) of JSON-able parts; names a stage's folder."""
    return hashlib.blake2b(
        orjson.dumps(parts, option=orjson.OPT_SORT_KEYS), digest_size=8
    ).hexdigest()


def write_atomically(path: Path, data: bytes) -> None:
    """Replace a file whole, or leave it as it was."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        temporary.write_bytes(data)
        temporary.replace(path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise _disk_error(path, error) from error


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


class StageRows(Generic[R]):
    """The rows of one stage under one fingerprint.

    Args:
        folder: `<run>/<stage>/<fingerprint>`.
        dump: record to JSON bytes.
        load: JSON bytes to record.
        check: raises CurateError for JSON bytes that do not fit the record's schema; called once for each
            row that an earlier process left.

    Each process appends to a part file of its own. `keys` are the rows that are done.
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
        self.keys: set[str] = set()
        for key, record in self._stored():
            check(record.encode())
            self.keys.add(key)

    def __contains__(self, key: str) -> bool:
        return key in self.keys

    def append(self, key: str, record: R) -> None:
        """Keep a row; it is on its way to disk when this returns."""
        if self._part is None:
            self._part = LineFile(self.folder / f"part-{_free_part_number(self.folder):04d}.jsonl")
        self._part.append(
            b'{"key":%b,"record":%b}'
            % (orjson.dumps(key), orjson.dumps(self._dump(record).decode()))
        )
        self.keys.add(key)

    def forget(self, keys: Iterable[str]) -> None:
        """Owe these rows again. The old ones stay until a new row with the same key replaces them."""
        self.keys.difference_update(keys)

    def read(self) -> Iterator[tuple[str, R]]:
        """All rows, the newest of each key."""
        latest = self._latest()
        for key, record in latest.items():
            yield key, self._load(record.encode())

    def compact(self, order: Iterable[str] = ()) -> None:
        """Merge all parts into `rows.parquet`, in the given order of keys, then remove the parts."""
        if self._part is not None:
            self._part.close()
            self._part = None
        parts = sorted(self.folder.glob("part-*.jsonl"))
        if not parts:
            return
        latest = self._latest()
        ordered = dict.fromkeys(key for key in order if key in latest)
        ordered.update(dict.fromkeys(sorted(latest.keys() - ordered.keys())))
        frame = pl.DataFrame(
            {"key": list(ordered), "record": [latest[key] for key in ordered]},
            schema=_PARQUET_SCHEMA,
        )
        target = self.folder / "rows.parquet"
        temporary = self.folder / f".rows.parquet.{os.getpid()}"
        try:
            frame.write_parquet(temporary, compression="zstd")
            temporary.replace(target)
        except OSError as error:
            temporary.unlink(missing_ok=True)
            raise _disk_error(target, error) from error
        for part in parts:
            part.unlink()

    def close(self) -> None:
        """Close the part file without compacting."""
        if self._part is not None:
            self._part.close()
            self._part = None

    def _latest(self) -> dict[str, str]:
        return dict(self._stored())

    def _stored(self) -> Iterator[tuple[str, str]]:
        """Parquet first, then parts in order: what comes later replaces what came before."""
        compacted = self.folder / "rows.parquet"
        if compacted.exists():
            for batch in pl.read_parquet(compacted).iter_slices(10_000):
                yield from batch.iter_rows()
        for part in sorted(self.folder.glob("part-*.jsonl")):
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


def _free_part_number(folder: Path) -> int:
    taken = [int(part.stem.removeprefix("part-")) for part in folder.glob("part-*.jsonl")]
    return max(taken, default=0) + 1


def _disk_error(path: Path, error: OSError) -> CurateError:
    return CurateError(
        f"cannot write {path}",
        got=error.strerror or str(error),
        fix="free some room, mend the permissions or name another folder with --out; "
        "the same command goes on where it stopped",
    )
