"""Where the recipes and the sample data lie that come with curate: in the installed package, or in `recipes/` of a checkout."""

from __future__ import annotations

from pathlib import Path

import orjson

from curate.errors import UsageError

_PACKAGE = Path(__file__).parents[1]
SAMPLE_CHATS = ("support.jsonl", "dialogues.jsonl")
"""Files of dialogues; half of these have a known flaw, named in their metadata as `flaw`."""


def recipes_folder() -> Path:
    """Return the folder of the recipes that come with curate; the sample data lies in `sample`, hub recipes in `hub`.

    Raises:
        UsageError: neither the package nor its checkout holds it.
    """
    for folder in (_PACKAGE / "recipes", _PACKAGE.parent / "recipes"):
        if (folder / "sample").is_dir():
            return folder
    raise UsageError(
        "the recipes and the sample data are missing",
        got=_PACKAGE,
        fix="install curate again, or from a whole checkout",
    )


def sample_chats() -> tuple[Path, ...]:
    """Return the files of sample dialogues.

    Raises:
        UsageError: as `recipes_folder`.
    """
    return tuple(recipes_folder() / "sample" / name for name in SAMPLE_CHATS)


def sample_rewordings() -> tuple[dict[str, str], dict[str, str]]:
    """Return replies of the sample with the same in other words, and scenarios with the same in another language.

    Raises:
        UsageError: as `recipes_folder`.
    """
    file = recipes_folder() / "sample" / "rewordings.jsonl"
    rows = [orjson.loads(line) for line in file.open("rb")]
    return (
        {row["text"]: row["reworded"] for row in rows if row["kind"] == "reply"},
        {row["text"]: row["translated"] for row in rows if row["kind"] == "scenario"},
    )
