"""Problems of a run that `curate audit` finds without people's labels."""

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
    """One figure of a run, compared with a threshold."""

    part: AuditPart = Field(description="Part of the audit.")
    name: str = Field(description="What was checked, within the part.")
    status: CheckStatus
    figure: float | None = Field(None, description="The figure; null if there is too little data.")
    interval: tuple[float, float] | None = Field(
        None, description="95 % interval of the figure, if there is one."
    )
    threshold: float = Field(
        description="A figure above it warns. If a share is compared with chance or with another group, it"
        " warns only if the interval also excludes 0. Pairs: a figure further from 0.5 than "
        "this, in either direction."
    )
    n: int = Field(0, description="Number of rows it was measured on.")
    detail: str = Field("", description="What was measured, or why nothing was.")
    behind: int = Field(0, description="Number of rows that cause the figure.")
    ids: tuple[str, ...] = Field(
        (), description="Ids of the first of these rows: dialogues, or pairs in the part `pairs`."
    )


class AuditReport(TrustReport):
    """Problems of a run that can be found without labels. Equal dialogues count once."""

    kind: Literal[TrustKind.AUDIT] = TrustKind.AUDIT
    checks: tuple[AuditCheck, ...] = Field(description="The checks.")
    weakest_fifths: tuple[float, ...] = Field(
        (),
        description="Share of the weakest turns in each fifth of the dialogue's scored turns, first to "
        "last; 0.2 each if position did not matter. Empty if no dialogue has a weakest turn.",
    )
    asked_again: int = Field(0, description="Dialogues judged a second time.")
