"""Where the sample data lies that comes with curate: in the installed package, or in `recipes/` of a checkout."""

from __future__ import annotations

from pathlib import Path

from curate.errors import UsageError

_PACKAGE = Path(__file__).parents[1]
SAMPLE_CHATS = ("support.jsonl", "dialogues.jsonl")
"""Files of dialogues; half of these have a known flaw, named in their metadata as `flaw`."""


def sample_chats() -> tuple[Path, ...]:
    """Return the files of sample dialogues.

    Raises:
        UsageError: neither the package nor its checkout holds them.
    """
    for folder in (_PACKAGE / "sample", _PACKAGE.parent / "recipes" / "sample"):
        if folder.is_dir():
            return tuple(folder / name for name in SAMPLE_CHATS)
    raise UsageError(
        "the sample data is missing",
        got=_PACKAGE,
        fix="install curate again, or from a whole checkout",
    )
