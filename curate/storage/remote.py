"""Run folders on an object store, or any other place that fsspec can reach.

Object stores cannot append, and a reply must be safe the moment it arrives. So a run works in a folder on this machine
(the working copy, found again by the URL) that is synchronised with the URL: at the start the working copy is brought
up to date, then copied out every `interval` seconds and at the end. A kill loses nothing on this machine; another
machine that resumes the run misses at most what came since the last copy.

    <url>/…                          files of the run folder
    <url>/.replies/<time>-<copy>.parquet     the replies, in parts that are written once and stay
    <url>/.sync.json                 which files belong together; written last
    <url>/.lock.json                 who writes; see `remote_place.Lock`

Replies are copied as parts because their store grows all the time, and because parts of two machines add up: restoring
reads all of them, so no reply is lost when two working copies have continued from the same state. Other stores (rows
of a running stage, embeddings) are copied only at the end: they grow as well, and their content can be made again
without model calls.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import re
import secrets
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

import orjson

from curate.errors import CurateError, RunLockedError
from curate.records import RUN_FORMAT
from curate.storage.remote_place import Lock, RemotePlace
from curate.storage.run_folder import REPLIES, RunFolder, check_format, refuse_format
from curate.storage.store import Store
from curate.storage.whole_files import write_atomically

_INTERVAL = 60.0
_PART_REPLIES = 20_000
_GROUP = 100
_STATE = ".remote.json"


def is_url(place: str | Path) -> bool:
    """Return whether a place is a URL, such as `s3://…`, `gs://…` or `memory://…`, and not a local folder."""
    return "://" in str(place)


def working_copy(url: str) -> Path:
    """Return the local folder that mirrors a URL, below `CURATE_CACHE` or else the user's cache."""
    root = os.environ.get("CURATE_CACHE")
    if root is None:
        base = os.environ.get("XDG_CACHE_HOME")
        root = str((Path(base) if base else Path.home() / ".cache") / "curate")
    plain = url.rstrip("/")
    name = re.sub(r"[^\w.-]+", "-", plain.partition("://")[2])[-60:].strip("-")
    digest = hashlib.blake2b(plain.encode(), digest_size=6).hexdigest()
    return Path(root) / "runs" / f"{name}-{digest}"


def local_folder(place: str | Path) -> Path:
    """Return the folder on this machine: the place itself, or the working copy of a URL."""
    return working_copy(str(place)) if is_url(place) else Path(place)


@contextlib.contextmanager
def open_run_folder(place: str | Path, *, interval: float = _INTERVAL) -> Iterator[RunFolder]:
    """Open and lock a run folder for writing, wherever it is.

    Args:
        interval: seconds between copies to a URL; longer when copying itself takes long.

    Raises:
        RunLockedError: another process or machine is writing it.
        UsageError: a package for that kind of URL is missing.
        CurateError: the place cannot be read, or at the end not written; the working copy is kept.
    """
    if not is_url(place):
        with RunFolder(Path(place)) as folder:
            yield folder
        return
    with RunFolder(working_copy(str(place))) as folder:
        remote = RemoteFolder(str(place), folder.path, interval)
        remote.lock.take()
        copier: _Copier | None = None
        try:
            remote.restore()
            check_format(folder.path)
            copier = _Copier(remote, interval)
            yield folder
        except BaseException as error:
            if copier is not None:
                try:
                    copier.finish()
                except CurateError as second:
                    error.add_note(str(second))
            raise
        else:
            copier.finish()
        finally:
            remote.lock.release()


class _Copier:
    """Copies in a thread of its own until it is told to finish; the last copy has everything."""

    def __init__(self, remote: RemoteFolder, interval: float) -> None:
        self._remote = remote
        self._interval = interval
        self._ended = threading.Event()
        self._failure: CurateError | None = None
        self._thread = threading.Thread(target=self._copy, name="remote-copy", daemon=True)
        self._thread.start()

    def finish(self) -> None:
        """Copy everything; raise CurateError if that fails."""
        self._ended.set()
        self._thread.join()
        if isinstance(self._failure, RunLockedError):
            raise self._failure
        self._remote.copy_out(everything=True)

    def _copy(self) -> None:
        pause = self._interval
        while not self._ended.wait(pause):
            began = time.monotonic()
            try:
                self._remote.copy_out()
            except RunLockedError as error:
                self._failure = error
                return
            except CurateError:
                pass  # the place may be back for the next copy; the last one raises
            # Copying takes at most a tenth of the time.
            pause = max(self._interval, 10 * (time.monotonic() - began))


class RemoteFolder:
    """A URL and its working copy.

    Args:
        path: the working copy, locked by this process.
    """

    def __init__(self, url: str, path: Path, interval: float = _INTERVAL) -> None:
        self.path = path
        self._place = RemotePlace(url, path)
        self._state = self._load_state()
        self.lock = Lock(self._place, self._state["copy"], interval)

    # -- in

    def restore(self) -> None:
        """Update the working copy from the URL; its own replies are kept too."""
        with self._place.explained("read"):
            there = self._place.read_json(".sync.json")
            if there is None:
                # Nothing there, or not any more: copy out the whole working copy.
                self._state = _new_state(self._state["copy"])
            else:
                refuse_format(self._place.url, there.get("format", 1))
            if there is not None and there["generation"] != self._state["generation"]:
                self._fetch_files(there["files"])
                self._state["generation"] = there["generation"]
            self._fetch_replies()
            self._save_state()

    def _fetch_files(self, digests: dict[str, str]) -> None:
        for name in self._state["files"].keys() - digests.keys():
            (self.path / name).unlink(missing_ok=True)
        files: dict[str, list[Any]] = {}
        for name, digest in digests.items():
            target = self._local(name)
            if not target.is_file() or _digest(target) != digest:
                self._place.fetch(name, target)
            files[name] = [*_signature(target), digest]
        self._state["files"] = files

    def _fetch_replies(self) -> None:
        names = self._place.names(".replies")
        fresh = [name for name in names if name not in self._state["parts"]]
        if not fresh:
            return
        with Store(self.path / REPLIES) as replies:
            is_copied = not any(replies.items(self._state["row"], 1))
            for name in fresh:
                replies.put(_read_part(self._place.read(f".replies/{name}")))
            if is_copied:  # then what was just read need not be copied out either
                for number, _, _ in replies.items(self._state["row"]):
                    self._state["row"] = number
        self._state["parts"].extend(fresh)

    # -- out

    def copy_out(self, *, everything: bool = False) -> None:
        """Copy what has changed.

        Args:
            everything: also rows that are not compacted yet; for the end of a run.

        Raises:
            RunLockedError: another process has taken the folder over.
            CurateError: the place cannot be written.
        """
        with self._place.explained("write"):
            self.lock.renew()
            self._copy_replies()
            if self._copy_files(everything) or not self._state["generation"]:
                generation = secrets.token_hex(8)
                files = {name: entry[2] for name, entry in self._state["files"].items()}
                sync = {"format": RUN_FORMAT, "generation": generation, "files": files}
                self._place.write(".sync.json", orjson.dumps(sync))
                self._state["generation"] = generation
            self._save_state()

    def _copy_replies(self) -> None:
        """Copy out new replies, in parts of limited size."""
        if not (self.path / REPLIES).exists():
            return
        with Store(self.path / REPLIES) as replies:
            while batch := list(replies.items(self._state["row"], _PART_REPLIES)):
                # Names in order of time, so that reading all of them ends with the newest reply to a request.
                name = f"{time.time_ns():020d}-{self._state['copy']}.parquet"
                self._place.write(f".replies/{name}", _part([row[1:] for row in batch]))
                self._state["parts"].append(name)
                self._state["row"] = batch[-1][0]
                self._save_state()

    def _copy_files(self, everything: bool) -> bool:
        """Copy files that changed, remove those that no longer exist; return whether anything was done."""
        files: dict[str, list[Any]] = self._state["files"]
        there = dict(self._files(everything))
        changed = False
        for name, path in there.items():
            before = files.get(name)
            try:
                signature = _signature(path)
                if before is not None and before[:2] == signature:
                    continue
                digest = _digest(path)
                if before is None or before[2] != digest:
                    self._place.store(name, path)
                    changed = True
            except FileNotFoundError:
                continue  # compacted or replaced just now: the next copy has the new file
            files[name] = [*signature, digest]
        gone = [name for name in files if name not in there and not (self.path / name).exists()]
        for name in gone:
            self._place.remove(name)
            del files[name]
        return changed or bool(gone)

    def _files(self, everything: bool) -> Iterator[tuple[str, Path]]:
        for path in sorted(self.path.rglob("*")):
            name = path.relative_to(self.path)
            is_hidden = any(part.startswith(".") for part in name.parts)
            is_replies = name.parts[0].startswith(REPLIES)
            is_open = path.suffix == ".part" or ".sqlite" in path.name
            if is_hidden or is_replies or not path.is_file() or (is_open and not everything):
                continue
            yield name.as_posix(), path

    # -- both

    def _local(self, name: str) -> Path:
        """Return the local path of a file from the URL; never outside the working copy."""
        path = PurePosixPath(name)
        if path.is_absolute() or ".." in path.parts:
            raise CurateError(
                f"{self._place.url}/.sync.json names a file outside the run folder",
                got=name,
                fix="find out who wrote it before you use anything from there",
            )
        return self.path / path

    def _load_state(self) -> dict[str, Any]:
        try:
            state: dict[str, Any] = orjson.loads((self.path / _STATE).read_bytes())
        except (FileNotFoundError, orjson.JSONDecodeError):
            return _new_state(secrets.token_hex(6))
        return state

    def _save_state(self) -> None:
        write_atomically(self.path / _STATE, orjson.dumps(self._state))


def _new_state(copy: str) -> dict[str, Any]:
    """Return the initial state of a working copy.

    `copy`: its name; `generation`: that of the `.sync.json` it last read or wrote; `files`: name to size, modification
    time in ns and digest, as last copied; `row`: number of the newest reply copied out; `parts`: parts of the replies that
    it wrote or has read.
    """
    return {"copy": copy, "generation": "", "files": {}, "row": 0, "parts": []}


def _part(replies: Sequence[tuple[str, bytes]]) -> bytes:
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema = pa.schema([("key", pa.string()), ("reply", pa.binary())])
    table = pa.table([list(column) for column in zip(*replies, strict=True)], schema=schema)
    file = io.BytesIO()
    # Small groups, so that damage costs few replies.
    pq.write_table(table, file, compression="zstd", write_page_checksum=True, row_group_size=_GROUP)
    return file.getvalue()


def _read_part(data: bytes) -> Iterator[tuple[str, bytes]]:
    """Yield the replies of a part; those in a damaged group are skipped, and are asked for again."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    broken = (pa.ArrowException, OSError, ValueError)
    try:
        file = pq.ParquetFile(io.BytesIO(data), page_checksum_verification=True)
    except broken:
        return
    for group in range(file.num_row_groups):
        try:
            table = file.read_row_group(group)
            rows = list(zip(*(table[name].to_pylist() for name in ("key", "reply")), strict=True))
        except broken:
            continue
        yield from rows


def _signature(path: Path) -> list[int]:
    stat = path.stat()
    return [stat.st_size, stat.st_mtime_ns]


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=16)).hexdigest()
