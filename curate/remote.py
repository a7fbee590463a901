"""Run folders on an object store, or any other place that fsspec can reach.

Object stores cannot append, and a reply must be safe the moment it arrives. So a run works in a folder on
this machine (the working copy, found again by the URL) and the URL follows: at the start the working copy
is brought up to date, then copied out every `interval` seconds and at the end. A kill loses nothing on this
machine; another machine that goes on misses at most what came since the last copy.

    <url>/…                          files of the run folder, as they are
    <url>/.replies/<time>-<copy>.jsonl.zst   the reply log, in parts that are written once and stay
    <url>/.sync.json                 which files belong together; written last
    <url>/.lock.json                 who writes

Replies are copied as parts because the reply log grows all the time, and because parts of two machines
add up: whoever restores takes all of them, so no reply is lost when two working copies have gone on from
the same state. Rows that are not compacted yet (`part-*`) are copied at the end only: they grow as well,
and are made again from replies without asking anybody.

The lock is best effort. An object store has no lock; two runs that begin within the same second may both
believe they hold it, and one that is silent for three intervals is taken for dead. Each looks at it before
it copies, and the one that finds another's name in it stops.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import secrets
import socket
import threading
import time
import zlib
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any

import orjson
import zstandard

from curate.engines.cache import ReplyCache, replies_since
from curate.engines.replies import completion_from_json
from curate.errors import CurateError, RunLockedError, UsageError, missing_extra
from curate.files import write_atomically
from curate.store import RunFolder

_INTERVAL = 60.0
_SILENT = 3
_PART_REPLIES = 20_000
_REPLIES = "replies.sqlite"
_STATE = ".remote.json"


def is_url(place: str | Path) -> bool:
    """True for what names another place than a folder here: `s3://…`, `gs://…`, `memory://…`."""
    return "://" in str(place)


def working_copy(url: str) -> Path:
    """The folder on this machine that stands for a URL; below `CURATE_CACHE`, else the user's cache."""
    root = os.environ.get("CURATE_CACHE")
    if root is None:
        base = os.environ.get("XDG_CACHE_HOME")
        root = str((Path(base) if base else Path.home() / ".cache") / "curate")
    plain = url.rstrip("/")
    name = re.sub(r"[^\w.-]+", "-", plain.partition("://")[2])[-60:].strip("-")
    digest = hashlib.blake2b(plain.encode(), digest_size=6).hexdigest()
    return Path(root) / "runs" / f"{name}-{digest}"


def local_folder(place: str | Path) -> Path:
    """The folder on this machine: the place itself, or the working copy of a URL."""
    return working_copy(str(place)) if is_url(place) else Path(place)


@contextlib.contextmanager
def open_run_folder(place: str | Path, *, interval: float = _INTERVAL) -> Iterator[RunFolder]:
    """Hold a run folder for writing, wherever it is.

    Args:
        place: a folder, or a URL that fsspec knows.
        interval: seconds between copies to a URL; longer when copying itself takes long.

    Raises:
        RunLockedError: another process or machine writes it.
        UsageError: a package for that kind of URL is missing.
        CurateError: the place cannot be read, or at the end not written; the working copy is kept.
    """
    if not is_url(place):
        with RunFolder(Path(place)) as folder:
            yield folder
        return
    with RunFolder(working_copy(str(place))) as folder:
        remote = RemoteFolder(str(place), folder.path, interval)
        remote.lock()
        copier: _Copier | None = None
        try:
            remote.restore()
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
            remote.unlock()


class _Copier:
    """Copies in a thread of its own, until it is told to finish; the last copy holds everything."""

    def __init__(self, remote: RemoteFolder, interval: float) -> None:
        self._remote = remote
        self._interval = interval
        self._ended = threading.Event()
        self._failure: CurateError | None = None
        self._thread = threading.Thread(target=self._copy, name="remote-copy", daemon=True)
        self._thread.start()

    def finish(self) -> None:
        """Copy everything; raises CurateError when it cannot be."""
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
                pass  # the place may be back in time for the next copy; the last one raises
            # Never more than a tenth of the time is spent on copying.
            pause = max(self._interval, 10 * (time.monotonic() - began))


class RemoteFolder:
    """A URL and the working copy that stands for it.

    Args:
        url: any URL that fsspec knows.
        path: the working copy, held by this process.
        interval: seconds between copies; a lock that is three of them old is taken for a dead one's.
    """

    def __init__(self, url: str, path: Path, interval: float = _INTERVAL) -> None:
        self.url = url.rstrip("/")
        self.path = path
        self._interval = interval
        self._fs, self._root = _open(self.url)
        self._me = secrets.token_hex(8)
        self._state = self._load_state()

    # -- lock

    def lock(self) -> None:
        """Write this process's name into the lock, or say who holds it.

        Raises:
            RunLockedError: another one does, and was heard of lately.
        """
        with self._explained("read"):
            holder = self._read_json(".lock.json")
            if holder is not None and not self._is_dead(holder):
                raise self._is_locked(holder)
            self._write_lock()
            holder = self._read_json(".lock.json") or {}
            if holder.get("holder") != self._me:
                raise self._is_locked(holder)

    def unlock(self) -> None:
        """Remove the lock if it is this process's; that it cannot be removed harms nobody for long."""
        with contextlib.suppress(CurateError), self._explained("write"):
            if (self._read_json(".lock.json") or {}).get("holder") == self._me:
                self._fs.rm_file(self._at(".lock.json"))

    def _is_dead(self, holder: dict[str, Any]) -> bool:
        # Whoever used this working copy before is gone: this process holds the lock of its folder.
        if holder.get("copy") == self._state["copy"]:
            return True
        return bool(time.time() - holder.get("time", 0) > _SILENT * holder.get("interval", 0))

    def _is_locked(self, holder: dict[str, Any]) -> RunLockedError:
        heard = time.time() - holder.get("time", 0)
        return RunLockedError(
            f"another process is writing {self.url}",
            got=f"process {holder.get('process')} on {holder.get('host')}, heard of {heard:.0f} s ago",
            expected="one writer a run folder",
            fix=f"wait for it to end; if it is gone for sure, remove {self.url}/.lock.json",
        )

    def _write_lock(self) -> None:
        lock = {
            "holder": self._me,
            "copy": self._state["copy"],
            "host": socket.gethostname(),
            "process": os.getpid(),
            "time": time.time(),
            "interval": self._interval,
        }
        self._put(".lock.json", orjson.dumps(lock))

    # -- in

    def restore(self) -> None:
        """Bring the working copy up to what lies at the URL; its own replies are kept besides."""
        with self._explained("read"):
            there = self._read_json(".sync.json")
            if there is None:
                # Nothing there (any more): all of the working copy is to be copied out.
                self._state = _new_state(self._state["copy"])
            elif there["generation"] != self._state["generation"]:
                self._fetch_files(there["files"])
                self._state["generation"] = there["generation"]
            self._fetch_replies()
            self._save_state()

    def _fetch_files(self, files: dict[str, str]) -> None:
        for name in self._state["files"].keys() - files.keys():
            (self.path / name).unlink(missing_ok=True)
        known: dict[str, list[Any]] = {}
        for name, digest in files.items():
            target = self._local(name)
            if not target.is_file() or _digest(target) != digest:
                target.parent.mkdir(parents=True, exist_ok=True)
                part = target.with_name(f".{target.name}.part")
                self._fs.get_file(self._at(name), str(part))
                part.replace(target)
            known[name] = [*_signature(target), digest]
        self._state["files"] = known

    def _fetch_replies(self) -> None:
        folder = self._at(".replies")
        if not self._fs.exists(folder):
            return
        names = sorted(PurePosixPath(str(path)).name for path in self._fs.ls(folder, detail=False))
        fresh = [name for name in names if name not in self._state["parts"]]
        if not fresh:
            return
        is_copied = _newest(self.path / _REPLIES, self._state["row"]) == self._state["row"]
        with ReplyCache(self.path / _REPLIES) as cache:
            for name in fresh:
                data = zstandard.ZstdDecompressor().stream_reader(
                    self._fs.cat_file(f"{folder}/{name}")
                )
                for line in data.read().splitlines():
                    key, reply = orjson.loads(line)
                    cache.put(key, completion_from_json(reply))
        self._state["parts"].extend(fresh)
        if is_copied:  # then what was just taken in need not be copied out either
            self._state["row"] = _newest(self.path / _REPLIES, self._state["row"])

    # -- out

    def copy_out(self, *, everything: bool = False) -> None:
        """Copy what has changed.

        Args:
            everything: rows that are not compacted too; for the end of a run.

        Raises:
            RunLockedError: another process has taken the folder over.
            CurateError: the place cannot be written.
        """
        with self._explained("write"):
            holder = self._read_json(".lock.json")
            if holder is not None and holder.get("holder") != self._me:
                raise self._is_locked(holder)
            self._write_lock()
            self._copy_replies()
            if self._copy_files(everything) or not self._state["generation"]:
                generation = secrets.token_hex(8)
                files = {name: entry[2] for name, entry in self._state["files"].items()}
                sync = {"format": 1, "generation": generation, "files": files}
                self._fs.pipe_file(self._at(".sync.json"), orjson.dumps(sync))
                self._state["generation"] = generation
            self._save_state()

    def _copy_replies(self) -> None:
        """Copy out what came since, in parts of bounded size."""
        while True:
            first = self._state["row"]
            # From the last row that is known: it may have been replaced in place.
            rows = replies_since(self.path / _REPLIES, max(first, 1), _PART_REPLIES)
            lines = [b'["%b",%b]' % (key.encode(), reply) for _, key, reply in rows]
            if first and lines and rows[0][0] == first and _crc(lines[0]) == self._state["last"]:
                del lines[0]
            if not lines:
                return
            # In order of time, so that whoever reads them all ends with the newest reply to a question.
            name = f"{time.time_ns():020d}-{self._state['copy']}.jsonl.zst"
            data = zstandard.ZstdCompressor().compress(b"\n".join(lines) + b"\n")
            self._put(f".replies/{name}", data)
            self._state["parts"].append(name)
            self._state["row"], self._state["last"] = rows[-1][0], _crc(lines[-1])
            self._save_state()

    def _copy_files(self, everything: bool) -> bool:
        """Copy files that changed, remove those that are gone; True when there was anything to do."""
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
                    self._make_folder(name)
                    self._fs.put_file(str(path), self._at(name))
                    changed = True
            except FileNotFoundError:
                continue  # compacted, or replaced, this very moment: the next copy has what came of it
            files[name] = [*signature, digest]
        gone = [name for name in files if name not in there and not (self.path / name).exists()]
        for name in gone:
            if self._fs.exists(self._at(name)):
                self._fs.rm_file(self._at(name))
            del files[name]
        return changed or bool(gone)

    def _files(self, everything: bool) -> Iterator[tuple[str, Path]]:
        for path in sorted(self.path.rglob("*")):
            name = path.relative_to(self.path)
            is_hidden = any(part.startswith(".") for part in name.parts)
            is_replies = name.parts[0].startswith(_REPLIES)
            is_open = path.suffix == ".part" or path.name.startswith("part-")
            if is_hidden or is_replies or not path.is_file() or (is_open and not everything):
                continue
            yield name.as_posix(), path

    # -- both

    def _at(self, name: str) -> str:
        return f"{self._root}/{name}"

    def _local(self, name: str) -> Path:
        """Where a file from the URL goes; never outside of the working copy."""
        path = PurePosixPath(name)
        if path.is_absolute() or ".." in path.parts:
            raise CurateError(
                f"{self.url}/.sync.json names a file outside of the run folder",
                got=name,
                fix="find out who wrote it before you use anything there",
            )
        return self.path / path

    def _make_folder(self, name: str) -> None:
        """Only file systems that have folders need them made; for an object store this does nothing."""
        self._fs.makedirs(self._at(name).rpartition("/")[0], exist_ok=True)

    def _put(self, name: str, data: bytes) -> None:
        self._make_folder(name)
        self._fs.pipe_file(self._at(name), data)

    def _read_json(self, name: str) -> dict[str, Any] | None:
        try:
            value = orjson.loads(self._fs.cat_file(self._at(name)))
        except FileNotFoundError:
            return None
        except orjson.JSONDecodeError:
            # Half a file: its writer died over it. As a lock it holds nobody, as a list it lists nothing.
            return None
        return value if isinstance(value, dict) else None

    def _load_state(self) -> dict[str, Any]:
        try:
            state: dict[str, Any] = orjson.loads((self.path / _STATE).read_bytes())
        except (FileNotFoundError, orjson.JSONDecodeError):
            return _new_state(secrets.token_hex(6))
        return state

    def _save_state(self) -> None:
        write_atomically(self.path / _STATE, orjson.dumps(self._state))

    @contextlib.contextmanager
    def _explained(self, verb: str) -> Iterator[None]:
        try:
            yield
        except CurateError:
            raise
        except Exception as error:
            # Each kind of file system raises errors of its own library.
            raise CurateError(
                f"cannot {verb} {self.url}",
                got=f"{type(error).__name__}: {error}",
                fix=f"mend that and run again; everything is kept in {self.path}",
            ) from error


def _open(url: str) -> tuple[Any, str]:
    try:
        import fsspec
    except ModuleNotFoundError as error:
        raise missing_extra("fsspec", "remote") from error
    try:
        fs, root = fsspec.core.url_to_fs(url)
    except (ImportError, ValueError) as error:
        raise UsageError(
            f"{url} cannot be reached",
            got=str(error),
            expected="a URL whose kind fsspec knows, and the package for it",
            fix="pip install s3fs for s3://, gcsfs for gs://, adlfs for abfs://",
        ) from error
    return fs, str(root).rstrip("/")


def _new_state(copy: str) -> dict[str, Any]:
    """What a working copy knows of its URL.

    `copy`: its own name; `generation`: of the `.sync.json` it last read or wrote; `files`: name to size,
    modification time in ns and digest, as last copied; `row`, `last`: the newest reply copied out and its
    checksum; `parts`: parts of the reply log that it wrote or has read.
    """
    return {"copy": copy, "generation": "", "files": {}, "row": 0, "last": 0, "parts": []}


def _newest(replies: Path, row: int) -> int:
    while rows := replies_since(replies, row + 1, _PART_REPLIES):
        row = rows[-1][0]
    return row


def _signature(path: Path) -> list[int]:
    stat = path.stat()
    return [stat.st_size, stat.st_mtime_ns]


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=16)).hexdigest()


def _crc(line: bytes) -> int:
    return zlib.crc32(line)
