"""The score card of `curate probe` (a judge on planted flaws), and the comparison of two cards."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from curate.dialogue import Frozen
from curate.records.judgment import JudgeIdentity
from curate.records.trust_report import TrustKind, TrustReport

ProbeSection = Literal["finding", "kinds", "steadiness", "hidden"]
"""Are flaws found; which kinds; do scores stay the same where nothing relevant changes; does text hidden in a dialogue
change them."""
ProbeUnit = Literal["share", "net", "points"]
"""A share (0-1); the share in one direction minus the other (-1 to 1); points of a score from 1 to 5."""
ProbeState = Literal["pass", "fail", "unclear", "not_run"]

IntervalEnds = tuple[float, float]


class ProbeOutcome(Frozen):
    """The result of one case on one line, kept beside the card so that two cards can be compared."""

    line: str = Field(description="Name of the card's line.")
    case: str = Field(
        description="Name of the case; the same whenever it is made from the same dialogue."
    )
    group: str = Field(description="Content hash of the clean dialogue.")
    value: float = Field(description="The result, in the line's unit.")
    against: float = Field(description="The result expected by chance, or 0.")


class ProbeLine(Frozen):
    """One figure of the card, compared with chance or zero."""

    name: str = Field(description="Name of the line.")
    section: ProbeSection = Field(
        description="`finding`: are flaws found; `kinds`: which kinds; `steadiness`: do scores stay the "
        "same where nothing relevant changes; `hidden`: does text hidden in a dialogue change "
        "them."
    )
    unit: ProbeUnit = Field(
        description="`share`: 0-1. `net`: the share in one direction minus the share in the other, -1 to "
        "1. `points`: points of a score from 1 to 5."
    )
    meaning: str = Field(description="What the line measures, in words.")
    state: ProbeState = Field(
        description="`pass`: above chance, or within the tolerance of it. `fail`: not, although it would "
        "have been seen. `unclear`: too few cases to tell. `not_run`: no cases."
    )
    n: int = Field(0, description="Number of cases.")
    dialogues: int = Field(
        0, description="Number of clean dialogues they are made from (the clusters)."
    )
    value: float | None = Field(None, description="Mean over the cases.")
    interval: IntervalEnds | None = Field(None, description="95 % interval, clustered by dialogue.")
    against: float | None = Field(None, description="Mean expected by chance, or 0.")
    p_value: float | None = Field(None, description="Two-sided p-value, clustered by dialogue.")
    q_value: float | None = Field(
        None, description="p-value adjusted over the card (Benjamini-Hochberg)."
    )
    detectable: float | None = Field(
        None, description="Smallest distance from `against` that is detected with 80 % power."
    )
    tolerance: float | None = Field(
        None,
        description="Distance from `against` that is still acceptable, for lines that should stay there.",
    )
    detail: str = Field("", description="Details for people.")


class ProbeReport(TrustReport):
    """The score card of a judge on planted flaws."""

    kind: Literal[TrustKind.PROBE] = TrustKind.PROBE
    identity: JudgeIdentity = Field(description="The judge that was tested.")
    source: str = Field(description="The dialogues that flaws were planted in.")
    seed: int = Field(description="Random seed.")
    cases: int = Field(description="Number of planted flaws.")
    dialogues: int = Field(description="Number of clean dialogues that they were planted in.")
    kinds: dict[str, int] = Field(description="Planted flaws by kind.")
    planted_by: dict[str, int] = Field(description="Planted flaws by how they were made.")
    changed: float = Field(description="Median share (0-1) of a message that a flaw changes.")
    changed_harmlessly: float | None = Field(
        None, description="Median share (0-1) of a message that its harmless edit changes."
    )
    not_planted: dict[str, int] = Field(
        default_factory=dict,
        description="Flaws requested from a policy model but not used, by reason.",
    )
    without_harmless: int = Field(
        0, description="Flaws without a harmless edit, because there is none for their language."
    )
    asked: int = Field(description="Number of dialogues and questions given to the judge.")
    unscored: dict[str, int] = Field(
        default_factory=dict, description="Number of these without a score, by reason."
    )
    lines: tuple[ProbeLine, ...] = Field(description="The lines of the card.")

    def line(self, name: str) -> ProbeLine:
        """Return the line with this name."""
        return next(line for line in self.lines if line.name == name)


class ComparedLine(Frozen):
    """One line of two cards, compared on the same cases."""

    name: str = Field(description="Name of the line.")
    section: ProbeSection = Field(description="Section of the card, as in `ProbeLine`.")
    unit: ProbeUnit = Field(description="Unit, as in `ProbeLine`.")
    n: int = Field(description="Number of cases that both cards have.")
    dialogues: int = Field(description="Number of clean dialogues they are made from.")
    first: float = Field(description="Mean of the first card.")
    second: float = Field(description="Mean of the second card.")
    difference: float = Field(description="First minus second, over the same cases.")
    interval: IntervalEnds | None = Field(
        None, description="95 % interval of the difference, clustered by dialogue."
    )
    p_value: float | None = Field(None, description="Two-sided p-value, clustered by dialogue.")
    q_value: float | None = Field(
        None, description="p-value adjusted over the lines (Benjamini-Hochberg)."
    )
    detectable: float | None = Field(
        None, description="Smallest difference that is detected with 80 % power."
    )
    better: Literal["first", "second", "neither"] = Field(
        description="Which of the two is better, if the difference is not chance."
    )


class ProbeComparison(Frozen):
    """Two judges, prompts or modes compared on the same cases."""

    first: JudgeIdentity = Field(description="The first judge.")
    second: JudgeIdentity = Field(description="The second judge.")
    sentence: str = Field(description="The finding in one sentence.")
    lines: tuple[ComparedLine, ...] = Field(description="The compared lines.")
    only_first: int = Field(description="Outcomes that only the first card has.")
    only_second: int = Field(description="Outcomes that only the second card has.")
