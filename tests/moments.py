"""What happens to a command at a moment of one of its stages: done in its own process, by `tests.processes.start(before=...)`.

A stage is one that `RunLog.timed` names (`judge`, `select`, `export`, …), or a step of another command (`STEPS`).
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from curate.run.runlog import RunLog

STEPS = {
    "calibrate": ("curate.run.calibrate", "calibrate_with_gold"),
    "write_calibration": ("curate.run.calibrate", "write_calibration"),
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
    """The kernel ends the process so many seconds into a stage, wherever it is, in C code too, and nothing of it runs any more."""

    stage: str
    seconds: float

    def begin(self, stage: str) -> None:
        if stage == self.stage:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.setitimer(signal.ITIMER_REAL, max(self.seconds, 1e-6))
