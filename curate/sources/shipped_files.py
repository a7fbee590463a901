"""Paths of the recipes and sample data that come with curate, in the installed package or in `recipes/` of a checkout."""

from __future__ import annotations

from pathlib import Path

import orjson

from curate.errors import UsageError

_PACKAGE = Path(__file__).parents[1]
SAMPLE_CHATS = ("support.jsonl", "dialogues.jsonl")
"""Files of sample dialogues; half of the dialogues have a known flaw, named as `flaw` in their metadata."""


def recipes_folder() -> Path:
    """Return the folder of the recipes that come with curate, with the sample data in `sample` and hub recipes in `hub`.

    Raises:
        UsageError: neither the package nor its checkout has the folder.
    """
    for folder in (_PACKAGE / "recipes", _PACKAGE.parent / "recipes"):
        if (folder / "sample").is_dir():
            return folder
    raise UsageError(
        "the recipes and the sample data are missing",
        got=_PACKAGE,
        fix="install curate again; where from a checkout, from a complete one",
    )


def sample_chats() -> tuple[Path, ...]:
    """Return the files of sample dialogues.

    Raises:
        UsageError: as `recipes_folder`.
    """
    return tuple(recipes_folder() / "sample" / name for name in SAMPLE_CHATS)


def sample_rewordings() -> tuple[dict[str, str], dict[str, str]]:
    """Return the sample's replies with their rewordings, and its scenarios with their translations.

    Raises:
        UsageError: as `recipes_folder`.
    """
    file = recipes_folder() / "sample" / "rewordings.jsonl"
    rows = [orjson.loads(line) for line in file.open("rb")]
    return (
        {row["text"]: row["reworded"] for row in rows if row["kind"] == "reply"},
        {row["text"]: row["translated"] for row in rows if row["kind"] == "scenario"},
    )
