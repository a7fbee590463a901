"""What `curate audit` found wrong with a run, without any labels of people."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from curate.dialogue import Frozen
from curate.records.judge_checks import CheckStatus
from curate.records.trust_report import TrustKind, TrustReport

AuditPart = Literal[
    "known failures",
    "window seams",
    "weakest turns",
    "collapsed scores",
    "unscored",
    "verdicts by group",
    "equal scores",
    "asked again",
    "pairs",
]


class AuditCheck(Frozen):
    """One figure of a run held against a threshold."""

    part: AuditPart
    name: str = Field(description="What was looked at, within the part.")
    status: CheckStatus
    figure: float | None = Field(None, description="None where there is too little to tell.")
    interval: tuple[float, float] | None = Field(
        None, description="95 %, of the figure, where one can be had."
    )
    threshold: float = Field(
        description="A figure above it warns; where a share is held against what chance or another group "
        "gives, only if the interval leaves 0 out as well. Pairs: a figure further from .5, either way."
    )
    n: int = Field(0, description="Of the rows that it was measured on.")
    detail: str = Field("", description="What was measured, or why nothing could be.")
    behind: int = Field(0, description="Rows that make the figure what it is.")
    ids: tuple[str, ...] = Field(
        (), description="The first of them: ids of dialogues, in the part `pairs` of pairs."
    )


class AuditReport(TrustReport):
    """What is wrong with a run as far as it can be seen without labels. Equal dialogues count once."""

    kind: Literal[TrustKind.AUDIT] = TrustKind.AUDIT
    checks: tuple[AuditCheck, ...]
    weakest_fifths: tuple[float, ...] = Field(
        (),
        description="Share of the weakest turns in each fifth of their dialogue's scored turns, first to last; "
        "0.2 each if a turn's place said nothing. Empty where no turn is weakest.",
    )
    asked_again: int = Field(0, description="Dialogues judged a second time.")
