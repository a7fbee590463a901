"""Reports about several judges: a jury's disagreement, a cascade's savings, and the file with a cascade's threshold."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Literal

from pydantic import Field

from curate.dialogue import Frozen
from curate.records.judgment import JudgeIdentity

JuryRule = Literal["median", "minimum", "vote"]
"""How the scores of several judges become one."""


def of_several(values: Sequence[float], rule: JuryRule) -> float:
    """Return the combined value of several judges' expectations or probabilities: median, minimum, or for a vote the mean."""
    if rule == "median":
        return statistics.median(values)
    return min(values) if rule == "minimum" else statistics.fmean(values)


Doubt = Literal["spread", "margin"]
"""Measure of a judge's doubt: the spread of its readings, or the lead of their most likely level."""


class JuryMember(Frozen):
    """One judge of a jury compared with the others."""

    judge: str = Field(description="Engine, model and revision.")
    apart: float = Field(
        description="Mean absolute difference (0-4) of its scores from the other judges'."
    )


class JuryReport(Frozen):
    """How far the judges of a run agree with each other. It does not tell whether they are right."""

    dialogues: int = Field(description="Dialogues that all judges scored.")
    disagreement: float = Field(
        description="Mean over dialogues of the mean absolute difference between two judges' scores, 0-4."
    )
    same_verdict: int = Field(description="Dialogues on which all judges have the same verdict.")
    members: tuple[JuryMember, ...] = Field(description="Each judge compared with the others.")
    sentence: str = Field(description="The finding in one sentence.")


class CascadeReport(Frozen):
    """What a cascade asked its second judge, what it saved, and what it lost in agreement."""

    judges: tuple[str, str] = Field(
        description="First and second judge: engine, model and revision."
    )
    dialogues: int = Field(description="Dialogues with a judgment.")
    escalated: int = Field(description="Dialogues that the second judge decided.")
    share: float = Field(description="Escalated divided by dialogues, 0-1.")
    checked: int = Field(
        description="Dialogues that the first judge was sure of and that both scored for checking, drawn "
        "by hash."
    )
    lost: int = Field(
        description="Checked dialogues to which the second judge gave another verdict."
    )
    lost_share: float | None = Field(
        description="Estimated share of all dialogues whose verdict the second judge would have changed, "
        "0-1; null if none was checked and not all were escalated."
    )
    lost_interval: tuple[float, float] | None = Field(
        None, description="95 % Wilson interval of `lost_share`."
    )
    tokens: tuple[int, int] = Field(description="Tokens of each judge's replies, in and out.")
    tokens_saved: int | None = Field(
        description="Estimated tokens of the second judge saved on the dialogues it was not asked about: "
        "the first judge's tokens on them, scaled by the ratio of the two where both were "
        "asked. null if that is unknown."
    )
    cost: float | None = Field(None, description="Cost of both judges, at the recipe's prices.")
    cost_alone: float | None = Field(
        None, description="Estimated cost of the second judge alone on all dialogues."
    )
    sentence: str = Field(description="The finding in one sentence.")


class CascadeFit(Frozen):
    """The doubt above which a cascade's second judge is asked, fitted to dialogues that both judges scored."""

    kind: Literal["cascade_fit"] = "cascade_fit"
    made: str = Field(description="Time in UTC, ISO 8601.")
    judges: tuple[JudgeIdentity, JudgeIdentity] = Field(
        description="The two judges it was fitted to; it holds for no others."
    )
    doubt: Doubt = Field(description="Measure of the first judge's doubt.")
    threshold: float = Field(
        ge=0, le=1, description="The second judge is asked where the doubt is above this value."
    )
    truth: Literal["second judge", "people"] = Field(
        description="What the first judge's verdicts were compared with."
    )
    risk: float = Field(
        gt=0, lt=1, description="Largest share of all dialogues that may be lost, as requested."
    )
    confidence: float = Field(
        gt=0, lt=1, description="Confidence that no more are lost, as requested."
    )
    dialogues: int = Field(description="Number of dialogues it was fitted to.")
    kept: int = Field(description="Number of these that the first judge decides.")
    lost: int = Field(
        description="Number of these that the first judge gets wrong and the second right."
    )
    lost_at_most: float = Field(
        description="Upper bound of the share of all dialogues that are lost (0-1), with that confidence."
    )
    labelled: tuple[str, ...] = Field(
        (),
        description="Content hashes of the dialogues whose labels were used. They cannot certify what the "
        "cascade selects.",
    )
    sentence: str = Field(description="The finding in one sentence.")
