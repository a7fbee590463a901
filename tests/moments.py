"""What happens to a command at a moment of one of its stages: done in its own process, by `tests.processes.start(before=...)`.

A stage is one that `RunLog.timed` names (`judge`, `select`, `export`, …), or a step of another command (`STEPS`).
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import importlib
import itertools
import multiprocessing.util
import os
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, tzinfo
from pathlib import Path
from typing import Any

from curate.run.runlog import RunLog

STEPS = {
    "calibrate": ("curate.run.labels.calibrate", "calibrate_with_gold"),
    "write_calibration": ("curate.storage.whole_files", "write_record"),
    "prepare_push": ("curate.publishing.push", "prepare_push"),
    "send": ("curate.publishing.push", "send"),
}
"""Steps of the commands besides `run`: module and function."""


class AtStages:
    """Told of each stage as it begins and ends, once it is called in the command's process."""

    def begin(self, stage: str) -> None:
        """A stage begins."""

    def end(self, stage: str, seconds: float) -> None:
        """It ended, after so many seconds."""

    def __call__(self) -> None:
        RunLog.timed = self._told(RunLog.timed, lambda _, stage: str(stage))  # type: ignore[method-assign]
        for step, (module, name) in STEPS.items():
            # Imported when the command is there, so that it costs what it costs without this.
            found = importlib.import_module(module)
            setattr(found, name, self._told_of(step, getattr(found, name)))

    def _told(self, timed: Any, stage_of: Callable[..., str]) -> Any:
        @contextlib.contextmanager
        def told(*arguments: Any) -> Any:
            stage, began = stage_of(*arguments), time.monotonic()
            self.begin(stage)
            with timed(*arguments):
                yield
            self.end(stage, time.monotonic() - began)

        return told

    def _told_of(self, step: str, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def told(*arguments: Any, **options: Any) -> Any:
            began = time.monotonic()
            self.begin(step)
            result = function(*arguments, **options)
            self.end(step, time.monotonic() - began)
            return result

        return told


@dataclass(frozen=True)
class Durations(AtStages):
    """Writes how long each stage took, a line each."""

    path: Path

    def end(self, stage: str, seconds: float) -> None:
        with self.path.open("a") as out:
            out.write(f"{stage} {seconds}\n")

    def read(self) -> dict[str, float]:
        """Seconds by stage."""
        lines = [line.split() for line in self.path.read_text().splitlines()]
        return {stage: float(seconds) for stage, seconds in lines}


@dataclass(frozen=True)
class Killed(AtStages):
    """The kernel ends the process so many seconds into a stage, wherever it is, in C code too, and nothing of it runs any more.

    A stage that ends before ends the process, too: none is met after its end.
    """

    stage: str
    seconds: float

    def begin(self, stage: str) -> None:
        if stage == self.stage:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.setitimer(signal.ITIMER_REAL, max(self.seconds, 1e-6))

    def end(self, stage: str, seconds: float) -> None:
        if stage == self.stage:
            os.kill(os.getpid(), signal.SIGKILL)


@dataclass(frozen=True)
class ReadOnly(AtStages):
    """Somebody takes the right to write in a folder away, so many seconds into a stage, or where it ends before."""

    folder: Path
    stage: str
    seconds: float

    def __call__(self) -> None:
        _obey_permissions()
        super().__call__()

    def begin(self, stage: str) -> None:
        if stage == self.stage:
            threading.Timer(self.seconds, set_writable, (self.folder, False)).start()

    def end(self, stage: str, seconds: float) -> None:
        if stage == self.stage:
            set_writable(self.folder, False)


def set_writable(folder: Path, writable: bool) -> None:
    """Give or take the right to write, of all folders within and all files but those that SQLite has open."""
    for path in (folder, *folder.rglob("*")):
        bits = 0o700 if path.is_dir() else 0o600
        with contextlib.suppress(FileNotFoundError):
            path.chmod(bits if writable else bits & 0o555)


def _obey_permissions() -> None:
    """Root may write anywhere: without the capabilities to, it is like everybody."""
    if os.geteuid() == 0:
        libc = ctypes.CDLL(None, use_errno=True)
        header = (ctypes.c_uint32 * 2)(0x20080522, 0)  # version 3, this thread
        held = (ctypes.c_uint32 * 6)()
        assert libc.capget(header, held) == 0
        for at in (0, 1):  # effective, permitted
            held[at] &= ~0b110  # CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH
        assert libc.capset(header, held) == 0


@dataclass(frozen=True)
class SmallDisk:
    """A folder is a file system of so many KiB, real for every library; what is in it is there before and after."""

    folder: Path
    kib: int

    def __call__(self) -> None:
        _mount_privately()
        below = f"/proc/self/fd/{os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY)}"
        _mount(b"none", bytes(self.folder), b"tmpfs", 0, f"size={self.kib}k".encode())
        _copy(below, self.folder)
        multiprocessing.util.Finalize(None, _copy, (self.folder, below), exitpriority=1)


def _copy(source: str | Path, target: str | Path) -> None:
    shutil.copytree(source, target, dirs_exist_ok=True)


def may_mount() -> bool:
    """Whether a process here may mount a file system for itself."""
    process = multiprocessing.get_context("forkserver").Process(target=_mount_privately)
    process.start()
    process.join()
    return process.exitcode == 0


def _mount_privately() -> None:
    """What this process mounts from now on, it alone sees."""
    new_user, new_mounts, private = 0x10000000, 0x00020000, 1 << 18
    user, group = os.getuid(), os.getgid()
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(new_mounts) != 0:
        if libc.unshare(new_user | new_mounts) != 0:
            raise OSError(ctypes.get_errno(), "unshare")
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"{user} {user} 1")
        Path("/proc/self/gid_map").write_text(f"{group} {group} 1")
    _mount(b"none", b"/", None, private | 1 << 14, None)  # and what is below


def _mount(*arguments: Any) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    source, target, kind, flags, data = arguments
    if libc.mount(source, target, kind, ctypes.c_ulong(flags), data) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), target)


@dataclass(frozen=True)
class Refused:
    """The n-th time that something whose path has a part is opened, renamed, removed or made, the disk refuses it; once, or from then on.

    Only what Python does itself is seen (`sys.addaudithook`).
    """

    part: str
    at: int
    error: int
    lasts: bool

    def __call__(self) -> None:
        counted = itertools.count(1)

        def look(event: str, arguments: tuple[Any, ...]) -> None:
            if event in _AUDITED and self.part in str(arguments[:2]):
                number = next(counted)
                if number == self.at or (self.lasts and number > self.at):
                    raise OSError(self.error, os.strerror(self.error), str(arguments[0]))

        sys.addaudithook(look)


_AUDITED = {"open", "os.rename", "os.remove", "os.mkdir", "os.chmod", "sqlite3.connect"}


@dataclass(frozen=True)
class Jumping(AtStages):
    """The clock of the day jumps by some hours as each stage begins, forward and back; the monotonic one goes on."""

    hours: tuple[float, ...]

    def __call__(self) -> None:
        super().__call__()
        seconds, offset = time.time, 0.0
        jumps = itertools.cycle(self.hours)

        def jump(_: str) -> None:
            nonlocal offset
            offset += 3600 * next(jumps)

        object.__setattr__(self, "begin", jump)

        class Shifted(datetime):
            @classmethod
            def now(cls, tz: tzinfo | None = None) -> Shifted:
                return cls.fromtimestamp(seconds() + offset, tz)

        time.time = lambda: seconds() + offset
        for name, module in list(sys.modules.items()):
            if name.startswith("curate.") and getattr(module, "datetime", None) is datetime:
                module.datetime = Shifted  # type: ignore[attr-defined]
