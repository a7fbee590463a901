"""The errors a user can expect to meet.

Each says what was given, what was expected and what to do about it, because it is printed without a traceback.
The hierarchy is flat: a class exists only where a caller treats it differently.
"""

from __future__ import annotations

import json
import re
from functools import cache
from importlib.metadata import PackageNotFoundError, distribution, version
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

if TYPE_CHECKING:
    from pydantic import ValidationError

PACKAGE = "curate-dialogues"
"""Name of the distribution."""


class CurateError(Exception):
    """A run failed for a known reason.

    Args:
        problem: what is wrong, in one line.
        got: what was given.
        expected: what would have been right.
        fix: what the user can do next.
    """

    def __init__(
        self,
        problem: str,
        *,
        got: object = None,
        expected: object = None,
        fix: str | None = None,
    ) -> None:
        self.problem = problem
        self.got = got
        self.expected = expected
        self.fix = fix
        super().__init__(str(self))

    def __str__(self) -> str:
        details = {"got": self.got, "expected": self.expected, "do": self.fix}
        lines = (f"  {name}: {text}" for name, text in details.items() if text is not None)
        return "\n".join((self.problem, *lines))


class UsageError(CurateError):
    """The command line, the recipe or an argument of the Python API is wrong; nothing was run."""


class SourceError(CurateError):
    """A source cannot be read at all (single bad rows are quarantined instead)."""


class EngineError(CurateError):
    """A model cannot be reached or used at all (single failed calls are data, not errors)."""


class RunLockedError(CurateError):
    """Another process is writing the run folder."""


class BudgetReached(CurateError):
    """The recipe's budget is used up; what was done is kept and a later run resumes."""


def missing_extra(package: str, extra: str) -> UsageError:
    """Return the error for an optional dependency that is not installed, with the command that installs it."""
    return UsageError(
        f"the package '{package}' is needed here but not installed",
        fix=f"pip install '{requirement(extra)}'",
    )


@cache
def installed_version(package: str) -> str | None:
    """Return a package's version; None where it is not installed.

    Cached because a manifest is written twice a run and each look-up takes ten milliseconds.
    """
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def installed_from() -> tuple[str, bool]:
    """Return where this installation came from, and whether that is a folder (usually a clone).

    The origin is a folder, a URL, or "" for a package index. It is read from what pip and uv store beside an installation
    (PyPA's direct URL data structure, PEP 610).
    """
    try:
        stored = distribution(PACKAGE).read_text("direct_url.json")
    except PackageNotFoundError:
        stored = None
    if stored is None:
        return "", False
    origin = json.loads(stored)
    url: str = origin["url"]
    if "dir_info" in origin:
        return unquote(urlsplit(url).path), True
    vcs = origin.get("vcs_info")
    return (f"{vcs['vcs']}+{url}@{vcs['commit_id']}" if vcs else url), False


def requirement(extra: str = "") -> str:
    """Return what to give pip to install curate again from the same place, with an extra."""
    origin, is_folder = installed_from()
    extras = f"[{extra}]" if extra else ""
    if is_folder:
        return origin + extras
    return f"{PACKAGE}{extras} @ {origin}" if origin else PACKAGE + extras


def first_line(error: BaseException) -> str:
    """Return a library's error in one line: its type, and the first line of its message."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__


def first_misfit(error: ValidationError) -> str:
    """Return the first problem of a value that does not fit a model: its place, and what is wrong there."""
    problem = error.errors()[0]
    place = ".".join(map(str, problem["loc"]))
    message = re.sub(r"<\w+\.\w+: ('[^']*')>", r"\1", problem["msg"])  # members of an enumeration
    return f"{place}: {message}" if place else message
