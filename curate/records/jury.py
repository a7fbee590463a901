"""What several judges of one run came to: a jury's disagreement, a cascade's savings, and the file that fits one."""

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
    """One value of several judges' expectations or probabilities: their median, the lowest, or of a vote their mean."""
    if rule == "median":
        return statistics.median(values)
    return min(values) if rule == "minimum" else statistics.fmean(values)


Doubt = Literal["spread", "margin"]
"""How unsure a judge is: by the spread of its readings, or by the lead of their likeliest level."""


class JuryMember(Frozen):
    """One judge of a jury beside the others."""

    judge: str
    apart: float = Field(
        description="Mean absolute difference of its scores from the other judges', 0-4."
    )


class JuryReport(Frozen):
    """How far the judges of a run agree with each other. Whether they are right is not known from it."""

    dialogues: int = Field(description="Dialogues that all of them scored.")
    disagreement: float = Field(
        description="Mean over dialogues of the mean absolute difference between two judges' scores, 0-4."
    )
    same_verdict: int = Field(description="Dialogues to which all of them gave one verdict.")
    members: tuple[JuryMember, ...]
    sentence: str


class CascadeReport(Frozen):
    """What a cascade asked of its second judge, what that saved, and what it cost in agreement."""

    judges: tuple[str, str]
    dialogues: int = Field(description="Dialogues that have a judgment.")
    escalated: int = Field(description="Those of them that the second judge decided.")
    share: float = Field(description="Escalated over dialogues, 0-1.")
    checked: int = Field(
        description="Dialogues that the first judge was sure of and both scored all the same, drawn by their hash."
    )
    lost: int = Field(description="Of these, the ones to which the second gave another verdict.")
    lost_share: float | None = Field(
        description="Share of all dialogues whose verdict the second judge would have changed, estimated from "
        "those; null where none was checked and not all were escalated."
    )
    lost_interval: tuple[float, float] | None = Field(None, description="95 %, Wilson.")
    tokens: tuple[int, int] = Field(description="Of each judge's replies, in and out.")
    tokens_saved: int | None = Field(
        description="Of the second judge, on the dialogues it was not asked about: the first judge's tokens on "
        "them, times the second's for each of the first's where both were asked. Null where that is not known."
    )
    cost: float | None = Field(None, description="Of both, at the recipe's prices.")
    cost_alone: float | None = Field(
        None, description="Of the second judge alone on all dialogues, estimated so."
    )
    sentence: str


class CascadeFit(Frozen):
    """The doubt above which a cascade's second judge is asked, fitted to dialogues that both scored."""

    kind: Literal["cascade_fit"] = "cascade_fit"
    made: str = Field(description="When, ISO 8601 in UTC.")
    judges: tuple[JudgeIdentity, JudgeIdentity] = Field(
        description="Those it holds for, and no others."
    )
    doubt: Doubt
    threshold: float = Field(ge=0, le=1, description="Above it the second judge is asked.")
    truth: Literal["second judge", "people"] = Field(
        description="What the first judge's verdicts were held against."
    )
    risk: float = Field(
        gt=0, lt=1, description="Largest share of all dialogues that may be lost, as asked for."
    )
    confidence: float = Field(gt=0, lt=1, description="With which no more are.")
    dialogues: int = Field(description="Dialogues it was fitted to.")
    kept: int = Field(description="Those of them that the first judge settles.")
    lost: int = Field(description="Of these, the ones that it gets wrong and the second right.")
    lost_at_most: float = Field(
        description="Upper bound of the share of all dialogues that are lost, at that confidence."
    )
    labelled: tuple[str, ...] = Field(
        (),
        description="Content hashes of the dialogues whose labels were used: these may not certify what the cascade "
        "selects.",
    )
    sentence: str
