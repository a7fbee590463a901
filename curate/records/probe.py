"""What a judge shows on planted flaws: the score card of `curate probe`, and of two judges held against each other."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from curate.dialogue import Frozen
from curate.records.judgment import JudgeIdentity
from curate.records.trust_report import TrustKind, TrustReport

ProbeSection = Literal["finding", "kinds", "steadiness", "hidden"]
"""Whether flaws are found, which kinds, whether scores stay where nothing that matters changes, and whether what is
hidden in a dialogue moves them."""
ProbeUnit = Literal["share", "net", "points"]
"""A share 0-1; a share of one way less that of the other, -1 to 1; points of a score from 1 to 5."""
ProbeState = Literal["pass", "fail", "unclear", "not_run"]

Interval = tuple[float, float]


class ProbeOutcome(Frozen):
    """One case under one line, as it is kept beside the card so that two cards can be compared."""

    line: str
    case: str = Field(
        description="Names the case; equal wherever it is made from the same dialogue."
    )
    group: str = Field(description="Content hash of the clean dialogue.")
    value: float
    against: float = Field(description="What chance would give, or 0.")


class ProbeLine(Frozen):
    """One figure of the card, held against chance or zero."""

    name: str
    section: ProbeSection
    unit: ProbeUnit
    meaning: str
    state: ProbeState = Field(
        description="`pass`: above chance, or within the tolerance of it; `fail`: not so, though it would have been "
        "seen; `unclear`: this many cases cannot tell; `not_run`: none."
    )
    n: int = Field(0, description="Cases.")
    dialogues: int = Field(0, description="Clean dialogues they are made from: the clusters.")
    value: float | None = Field(None, description="Mean over the cases.")
    interval: Interval | None = Field(None, description="95 %, clustered by dialogue.")
    against: float | None = Field(None, description="Mean of what chance would give, or 0.")
    p_value: float | None = Field(None, description="Two-sided, clustered by dialogue.")
    q_value: float | None = Field(None, description="The same by Benjamini-Hochberg over the card.")
    detectable: float | None = Field(
        None, description="Smallest distance from `against` that is seen with 80 % power."
    )
    tolerance: float | None = Field(
        None, description="How far from `against` does not matter, of lines that should stay there."
    )
    detail: str = ""


class ProbeReport(TrustReport):
    """The score card of a judge on planted flaws."""

    kind: Literal[TrustKind.PROBE] = TrustKind.PROBE
    identity: JudgeIdentity
    source: str = Field(description="Which dialogues the flaws were planted in.")
    seed: int
    cases: int = Field(description="Planted flaws.")
    dialogues: int = Field(description="Clean dialogues they were planted in.")
    kinds: dict[str, int] = Field(description="Planted flaws by kind.")
    planted_by: dict[str, int] = Field(description="Planted flaws by who planted them.")
    changed: float = Field(description="Median share of a message that a flaw changes.")
    changed_harmlessly: float | None = Field(
        None, description="Median share of a message that its harmless edit changes."
    )
    not_planted: dict[str, int] = Field(
        default_factory=dict, description="Asked of a policy and not used, by reason."
    )
    without_harmless: int = Field(
        0, description="Flaws without a harmless edit, for want of one in their language."
    )
    asked: int = Field(description="Dialogues and questions put to the judge.")
    unscored: dict[str, int] = Field(default_factory=dict, description="Of those, by reason.")
    lines: tuple[ProbeLine, ...]

    def line(self, name: str) -> ProbeLine:
        """The line of a name."""
        return next(line for line in self.lines if line.name == name)


class ComparedLine(Frozen):
    """One line of two cards on the same cases."""

    name: str
    section: ProbeSection
    unit: ProbeUnit
    n: int = Field(description="Cases that both have.")
    dialogues: int
    first: float
    second: float
    difference: float = Field(description="First less second, over the same cases.")
    interval: Interval | None = Field(None, description="95 %, clustered by dialogue.")
    p_value: float | None = None
    q_value: float | None = Field(None, description="Benjamini-Hochberg over the lines.")
    detectable: float | None = Field(None, description="Smallest difference seen with 80 % power.")
    better: Literal["first", "second", "neither"] = Field(
        description="Who does better where the difference is not chance."
    )


class ProbeComparison(Frozen):
    """Two judges, prompts or modes on the same cases."""

    first: JudgeIdentity
    second: JudgeIdentity
    sentence: str
    lines: tuple[ComparedLine, ...]
    only_first: int = Field(description="Outcomes that the second has not.")
    only_second: int = Field(description="Outcomes that the first has not.")
