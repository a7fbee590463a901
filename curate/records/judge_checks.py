"""Checks of a run's judge from its own scores: how often it contradicts itself, and known failure modes."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from curate.dialogue import Frozen


class Rate(Frozen):
    """How often something happened, out of how many times it could have."""

    count: int = Field(description="Times it happened.")
    of: int = Field(description="Times it could have happened.")

    @property
    def described(self) -> str:
        """Return `3 of 20 (15 %)`; without a percentage if it could never have happened."""
        share = f" ({self.count / self.of:.0%})" if self.of else ""
        return f"{self.count:,} of {self.of:,}{share}"


class WindowSeams(Frozen):
    """Differences between the scores of turns that two windows of the same size scored."""

    window_turns: int = Field(
        description="Number of scored turns of the dialogue's largest window."
    )
    dialogues: int = Field(description="Number of dialogues.")
    turns: int = Field(description="Number of turns scored more than once.")
    difference: float = Field(
        description="Mean absolute difference between the scores of such a turn, 0-4."
    )


FailureModeName = Literal[
    "aggregation_bias",
    "repair_false_na",
    "persona_collapse",
    "length_favouritism",
    "verdict_mismatch",
    "flat_long_dialogues",
]


CheckStatus = Annotated[
    Literal["pass", "warn", "not_enough_data", "not_run"],
    Field(description="`pass`; `warn`: above the threshold; `not_enough_data`; `not_run`."),
]


class FailureMode(Frozen):
    """One known failure mode of dialogue judges, measured over a run and compared with a threshold."""

    name: FailureModeName = Field(description="Name of the failure mode.")
    status: CheckStatus
    figure: float | None = Field(None, description="The figure; null if there is too little data.")
    threshold: float = Field(description="A figure above this value warns.")
    n: int = Field(
        0, description="Number of dialogues (for length favouritism: turns) it was measured on."
    )
    detail: str = Field("", description="What was measured, or why nothing was.")
    behind: int = Field(0, description="Number of dialogues that cause the figure.")
    dialogues: tuple[str, ...] = Field((), description="Ids of the first of these dialogues.")


class JudgeChecks(Frozen):
    """Checks of a run's rubric judge. Equal dialogues count once."""

    verdict_mismatch: Rate = Field(
        description="Dialogues whose verdict by the judge differs from the one its scores give by the "
        "rule, out of those with a verdict by the judge."
    )
    weakest_mismatch: Rate = Field(
        description="Dialogues whose weakest turn according to the judge differs from the one its scores "
        "give by the rule, out of those where the judge was asked."
    )
    window_seams: tuple[WindowSeams, ...] = Field(
        (), description="Dialogues scored in overlapping windows, by the size of the windows."
    )
    failure_modes: tuple[FailureMode, ...] = Field(
        (), description="Known failure modes of dialogue judges."
    )
