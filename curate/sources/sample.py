"""Where the sample data lies that comes with curate: in the installed package, or in `recipes/` of a checkout."""

from __future__ import annotations

from pathlib import Path

import orjson

from curate.errors import UsageError

_PACKAGE = Path(__file__).parents[1]
SAMPLE_CHATS = ("support.jsonl", "dialogues.jsonl")
"""Files of dialogues; half of these have a known flaw, named in their metadata as `flaw`."""


def sample_chats() -> tuple[Path, ...]:
    """Return the files of sample dialogues.

    Raises:
        UsageError: neither the package nor its checkout holds them.
    """
    return tuple(_folder() / name for name in SAMPLE_CHATS)


def sample_rewordings() -> tuple[dict[str, str], dict[str, str]]:
    """Return replies of the sample with the same in other words, and scenarios with the same in another language.

    Raises:
        UsageError: as `sample_chats`.
    """
    rows = [orjson.loads(line) for line in (_folder() / "rewordings.jsonl").open("rb")]
    return (
        {row["text"]: row["reworded"] for row in rows if row["kind"] == "reply"},
        {row["text"]: row["translated"] for row in rows if row["kind"] == "scenario"},
    )


def _folder() -> Path:
    for folder in (_PACKAGE / "sample", _PACKAGE.parent / "recipes" / "sample"):
        if folder.is_dir():
            return folder
    raise UsageError(
        "the sample data is missing",
        got=_PACKAGE,
        fix="install curate again, or from a whole checkout",
    )
