"""The errors that a room's tests cause, as their user reads them, compared with `tests/errors/ROOM.txt`.

What an error says is half of what it is for, and a test that looks for one word of it notices no change of the others. So each
error that is made in a test must stand in its room's file, whole. `CURATE_REWRITE=1 pytest tests/ROOM` adds those that do not; read
the difference before you commit it. To take out what no test causes any more, delete the file before.

Not compared are property tests, whose errors are as many as their examples, and any test where `CURATE_LIBRARIES=other` says that the
installed libraries are not those that are pinned: some errors quote a library's.
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from filelock import FileLock

from curate.errors import CurateError

FOLDER = Path(__file__).parent / "errors"
_BETWEEN = "\n\n"
_OTHER_PROCESSES = {"benchmarks", "browser", "docs", "trainers", "vllm"}
"""Folders of tests whose errors are made in another process, or follow from what the machine has."""
_LONGEST = 300  # characters of a line: some errors quote the text they are about
AT_RANDOM = {"test_damage", "test_faults", "test_mutation"}
"""Modules of tests with damaged input: an error quotes the damage."""
_CHANGING = (
    (re.compile(r"(?<=pip install ')[^'\[]+(?=[\['])"), "CURATE"),
    (re.compile(re.escape(sys.executable)), "PYTHON"),
    (re.compile(re.escape(str(Path(__file__).parent.parent))), "CHECKOUT"),
    (re.compile(r"(?:file://)?" + re.escape(tempfile.gettempdir()) + r"/[^\s'\"`,;:)\]]*"), "FOLDER"),
    (re.compile(r"\b(127\.0\.0\.1|localhost|\[::1\])(:|', )\d+"), r"\1\2PORT"),
    (re.compile(r"(?<![.\w])(?=[0-9a-f]*\d)(?:[0-9a-f]{8}){1,8}\b"), "HASH"),
    (re.compile(r"\bat 0x[0-9a-f]+"), "at ADDRESS"),
    (re.compile(r"\bpid \d+|\bprocess \d+"), "process NUMBER"),
    (re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d(?:\.\d+)?)?(?:\+00:00|Z)?"), "TIME"),
    (re.compile(r"columns:\n(?: +\w.*\n?)+"), "columns: those of the score table\n"),
    (re.compile(r"\b\d+(?:\.\d+)? (?:seconds?|s|ms|MiB|GiB|GB)\b"), "AMOUNT"),
)  # fmt: skip
"""What differs from machine to machine and from run to run."""


@contextmanager
def recorded_errors() -> Iterator[list[CurateError]]:
    """Record each error of this package that is made meanwhile, caught or not."""
    made: list[CurateError] = []
    init: Callable[..., None] = CurateError.__init__

    def recording(error: CurateError, *args: object, **kwargs: object) -> None:
        init(error, *args, **kwargs)
        made.append(error)

    CurateError.__init__ = recording  # type: ignore[method-assign,assignment]
    try:
        yield made
    finally:
        CurateError.__init__ = init  # type: ignore[method-assign]


def check_errors(errors: list[CurateError], item: pytest.Item) -> None:
    """Assert that a test's errors stand in its room's file."""
    room = item.path.relative_to(Path(__file__).parent).parts[0].removesuffix(".py")
    if (
        not errors
        or room in _OTHER_PROCESSES
        or item.path.stem in AT_RANDOM
        or os.environ.get("CURATE_LIBRARIES") == "other"
        or getattr(getattr(item, "obj", None), "is_hypothesis_test", False)
    ):
        return
    texts = {_shown(error) for error in errors}
    file = FOLDER / f"{room}.txt"
    if os.environ.get("CURATE_REWRITE"):
        with FileLock(Path(tempfile.gettempdir()) / f"curate-errors-{room}.lock"):
            whole = sorted(texts | _stored(file))
            file.parent.mkdir(exist_ok=True)
            file.write_text(_BETWEEN.join(whole) + "\n", encoding="utf-8")
        return
    unknown = texts - _stored(file)
    assert not unknown, (
        f"errors that are not in {file}; if they are as they should be, run this test with CURATE_REWRITE=1:\n\n"
        + _BETWEEN.join(sorted(unknown))
    )


def _stored(file: Path) -> set[str]:
    return (
        set(file.read_text(encoding="utf-8").rstrip("\n").split(_BETWEEN))
        if file.is_file()
        else set()
    )


def _shown(error: CurateError) -> str:
    """The error's type and text in printable lines, none of them empty."""
    text = f"{type(error).__name__}: {error}"
    for pattern, word in _CHANGING:
        text = pattern.sub(word, text)
    lines = [line.rstrip()[:_LONGEST] for line in text.splitlines() if line.strip()]
    return (
        re.sub(r"[^\n -~\u00a0-\U0010ffff]", "?", "\n".join(lines))
        .encode("utf-8", "backslashreplace")
        .decode()
    )
