"""Exit codes of the commands."""

from __future__ import annotations

from typing import Final

DONE: Final = 0
FAILED: Final = 1
"""The run failed or stopped; a check found something; an engine cannot be used."""
BAD_USAGE: Final = 2
"""Wrong options, recipe or source."""
OVER_UNSCORED: Final = 3
"""Finished, over the allowed share of unscored dialogues."""
INTERRUPTED: Final = 130
"""What typer ends with on Ctrl-C or SIGTERM, outside of what `resumable` covers; becomes `FAILED`."""


def of_run(status: str) -> int:
    """Return the exit code of a run by its manifest's status."""
    return {"done": DONE, "unscored": OVER_UNSCORED}.get(status, FAILED)
