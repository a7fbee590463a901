"""The command line in processes of their own that start at once: forked from one that has imported its packages.

Importing them takes two seconds of computing, and the suite starts the command some two hundred times. Each
imports `curate.cli` itself, which reads the environment. A few tests of test_cli start the command cold.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from multiprocessing.process import BaseProcess
from pathlib import Path
from subprocess import CompletedProcess

LIMIT = 600.0  # seconds for a command that takes one or two
_FORKS = multiprocessing.get_context("forkserver")
_FORKS.set_forkserver_preload(
    [
        "curate.run.pipeline",
        "curate.run.labels.calibrate",
        "curate.run.plan",
        "curate.publishing.push",
        "curate.cli.run",
        "curate.engines.openai",
        "jinja2",
        "pandas",  # pyarrow asks for it where it is installed
        "pyarrow",
        "rich.live",
        "scipy.stats",
        "uvloop",
    ]
)


@dataclass(frozen=True)
class Running:
    """A command at work; what it prints goes to two files."""

    process: BaseProcess
    printed: tempfile.TemporaryDirectory[str]

    def wait(self) -> CompletedProcess[str]:
        """Its exit code (minus the signal that ended it) and what it printed."""
        self.process.join(LIMIT)
        assert self.process.exitcode is not None, f"still at work after {LIMIT} s"
        said = [Path(self.printed.name, name).read_text() for name in ("stdout", "stderr")]
        return CompletedProcess([], self.process.exitcode, *said)


def start(
    *arguments: str | Path,
    env: Mapping[str, str] = os.environ,
    cwd: Path | None = None,
    before: Callable[[], None] | None = None,
) -> Running:
    """Start `curate` with these arguments, in this environment; `before` (it pickles) is called in its process first."""
    printed = tempfile.TemporaryDirectory()
    given = [*map(str, arguments)], dict(env), cwd or Path.cwd(), Path(printed.name), before
    process = _FORKS.Process(target=_main, args=given, daemon=True)
    process.start()
    return Running(process, printed)


def curate(
    *arguments: str | Path, env: Mapping[str, str] | None = None, cwd: Path | None = None
) -> CompletedProcess[str]:
    """Run `curate` on a terminal of 80 columns, with these variables as well."""
    terminal = {"COLUMNS": "80", "TERM": "dumb"}
    return start(*arguments, env=os.environ | terminal | (env or {}), cwd=cwd).wait()


def _main(
    arguments: list[str],
    env: dict[str, str],
    cwd: Path,
    printed: Path,
    before: Callable[[], None] | None,
) -> None:
    for number, name in ((1, "stdout"), (2, "stderr")):
        os.dup2(os.open(printed / name, os.O_WRONLY | os.O_CREAT), number)
    os.environ.clear()
    os.environ.update(env)
    os.chdir(cwd)
    sys.argv = ["curate", *arguments]
    from curate.cli import main

    if before is not None:
        before()
    main()
