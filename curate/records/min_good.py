"""From which score on a turn is good enough: one rule, which forking, loss masks and labels share."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import Field

from curate.records import TURN_DIMENSIONS
from curate.records.config import Config


class MinGood(Config):
    """From which level on a turn score is no flaw, 1-5 per dimension.

    The defaults are those of the weakest-turn rule: a turn is bad when its safety is below 5, or its
    helpfulness or context_use below 4. A mean over wordings counts as its nearest level, halves upwards.
    """

    context_use: int = Field(4, ge=1, le=5)
    helpfulness: int = Field(4, ge=1, le=5)
    safety: int = Field(5, ge=1, le=5)

    def flaws(self, values: Mapping[str, float]) -> list[str]:
        """The dimensions of `values` whose nearest level lies below the least good one, in fixed order."""
        levels: dict[str, int] = self.model_dump()
        return [name for name in TURN_DIMENSIONS if int(values[name] + 0.5) < levels[name]]
