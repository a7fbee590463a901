"""Progress of a run and of single steps: bars on a terminal, lines in a log."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.text import Text

from curate.cli.console import ERR
from curate.cli.printing import duration


@contextmanager
def one_bar(name: str, *, hidden: bool) -> Iterator[Callable[[int, int], None]]:
    """Show a bar that goes away at its end; yield the function that moves it: (steps done, steps in all)."""
    with Progress(console=ERR, transient=True, disable=hidden) as bars:
        task = bars.add_task(name, total=None)
        yield lambda done, total: bars.update(task, completed=done, total=total)


class _RateColumn(ProgressColumn):
    def render(self, task: Task) -> Text:
        return Text(f"{task.speed:.1f}/s" if task.speed else "", style="progress.data.speed")


class RunProgress:
    """Progress of a run: one bar for each stage on a terminal, lines at intervals in a log.

    Call it with (stage, rows done, rows in all).

    Args:
        bars: console for the bars, if it is a terminal.
        logs: consoles for the lines; the first that is no terminal gets them.
        every: seconds between two lines of a stage.
    """

    def __init__(self, bars: Console, *logs: Console, every: float = 15.0) -> None:
        self._bars = Progress(
            TextColumn("{task.description:<9}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            _RateColumn(),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            console=bars,
            disable=not bars.is_terminal,
        )
        self._tasks: dict[str, TaskID] = {}
        log = next((console for console in (*logs, bars) if not console.is_terminal), None)
        self._lines = None if log is None else _ProgressLines(log, every)

    def __call__(self, stage: str, done: int, total: int) -> None:
        """Move a stage's bar."""
        if stage not in self._tasks:
            self._tasks[stage] = self._bars.add_task(stage, total=total)
        self._bars.update(self._tasks[stage], completed=done, total=total)
        if self._lines is not None:
            self._lines.move(stage, done, total)

    def __enter__(self) -> RunProgress:
        self._bars.start()
        if self._lines is not None:
            self._lines.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bars.stop()
        if self._lines is not None:
            self._lines.stop()


class _ProgressLines:
    """Lines for a log: when a stage begins and ends, and at intervals between, whether or not a row is done."""

    def __init__(self, console: Console, every: float) -> None:
        self._console = console
        self._every = every
        self._guard = threading.Lock()
        self._stopped = threading.Event()
        self._clock = threading.Thread(target=self._tick, name="progress", daemon=True)
        self._began = self._printed_at = time.monotonic()
        self._stage: str | None = None
        self._first = self._done = self._total = 0

    def start(self) -> None:
        self._clock.start()

    def stop(self) -> None:
        self._stopped.set()
        self._clock.join()
        self._end_stage()

    def move(self, stage: str, done: int, total: int) -> None:
        with self._guard:
            is_new = stage != self._stage
            if is_new:
                self._end_stage()
                self._stage, self._first, self._began = stage, done, time.monotonic()
            self._done, self._total = done, total
            if (is_new and done < total) or time.monotonic() - self._printed_at >= self._every:
                self._print(self._line())

    def _tick(self) -> None:
        while not self._stopped.wait(self._every):
            with self._guard:
                if time.monotonic() - self._printed_at >= self._every:
                    self._print(self._line())

    def _line(self) -> str:
        spent = time.monotonic() - self._began
        if self._stage is None:
            return f"starting for {duration(spent)}"
        if self._done >= self._total:
            return f"{self._stage}: {self._done:,} done; still working after {duration(spent)}"
        line = f"{self._stage}: {self._done:,} of {self._total:,} ({self._done / self._total:.0%})"
        rate = (self._done - self._first) / spent if spent else 0.0
        if not rate:
            return line
        return f"{line}, {rate:.2g}/s, {duration((self._total - self._done) / rate)} left"

    def _end_stage(self) -> None:
        if self._stage is not None:
            spent = duration(time.monotonic() - self._began)
            self._print(f"{self._stage}: {self._done:,} of {self._total:,} done in {spent}")

    def _print(self, line: str) -> None:
        self._printed_at = time.monotonic()
        self._console.print(line, soft_wrap=True)
