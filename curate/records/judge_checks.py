"""What the scores of a run say about its judge: how often it disagrees with itself, and how it is known to fail."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from curate.dialogue import Frozen


class Rate(Frozen):
    """How often something happened, of the times it could have."""

    count: int
    of: int

    @property
    def described(self) -> str:
        """`3 of 20 (15 %)`; without a share where it could never have happened."""
        share = f" ({self.count / self.of:.0%})" if self.of else ""
        return f"{self.count:,} of {self.of:,}{share}"


class WindowSeams(Frozen):
    """How far the scores of turns lie apart that two windows of one size scored."""

    window_turns: int = Field(description="Scored turns of the dialogue's largest window.")
    dialogues: int
    turns: int = Field(description="Turns scored more than once.")
    difference: float = Field(
        description="Mean absolute difference of the scores of such a turn, 0-4."
    )


FailureModeName = Literal[
    "aggregation_bias",
    "repair_false_na",
    "persona_collapse",
    "length_favouritism",
    "verdict_mismatch",
    "flat_long_dialogues",
]


CheckStatus = Literal["pass", "warn", "not_enough_data", "not_run"]


class FailureMode(Frozen):
    """One way in which judges of dialogues are known to fail, as a figure over a run held against a threshold."""

    name: FailureModeName
    status: CheckStatus
    figure: float | None = Field(None, description="None where there is too little to tell.")
    threshold: float = Field(description="A figure above it warns.")
    n: int = Field(0, description="Dialogues (of length favouritism: turns) it was measured on.")
    detail: str = Field("", description="What was measured, or why nothing could be.")
    behind: int = Field(0, description="Dialogues that make the figure what it is.")
    dialogues: tuple[str, ...] = Field((), description="Ids of the first of them.")


class JudgeChecks(Frozen):
    """The rubric judge of a run held against itself. Equal dialogues count once."""

    verdict_mismatch: Rate = Field(
        description="Dialogues whose verdict by the judge is another than its scores give by the rule, of "
        "those that the judge gave one."
    )
    weakest_mismatch: Rate = Field(
        description="Dialogues whose weakest turn by the judge is another than its scores give by the rule, of "
        "those that the judge was asked about."
    )
    window_seams: tuple[WindowSeams, ...] = Field(
        (), description="Of dialogues scored in overlapping windows, by the windows' size."
    )
    failure_modes: tuple[FailureMode, ...] = ()
