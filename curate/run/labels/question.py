"""The question that labels answer: which set, how many bad members are allowed, and with what confidence."""

from __future__ import annotations

from dataclasses import dataclass

from curate.errors import UsageError
from curate.records import CertificateTest
from curate.selection.columns import HIGHER_IS_WORSE


@dataclass(frozen=True, slots=True)
class Question:
    """The set to certify, and the guarantee that the certificate should give.

    Attributes:
        bad: rule of what is bad, see `trust.bad_rule`; None for what reviewers reject.
        risk: allowed share of bad members.
        confidence: of the certificate.
        of: the set, see `populations.read_members`. None: the set that the labels were drawn from, where they were drawn
            to certify, from pairs or for a threshold; else the selected set.
        column: score to find a threshold on; None certifies the set as it is.
        may_stop: the labels were looked at while they came in.
        hold_out: share of the labelled dialogues that chose no prompt, as `curate agreement --hold-out` left them out;
            the other labelled ones are set apart. 0 where no label chose anything.
    """

    bad: str | None = None
    risk: float = 0.1
    confidence: float = 0.9
    of: str | None = None
    column: str | None = None
    may_stop: bool = False
    hold_out: float = 0.0

    def check(self) -> None:
        """Raise a UsageError where no certificate could answer the question."""
        if not 0 < self.risk < 1:
            raise UsageError(
                "--risk is the share of bad ones that is allowed",
                got=self.risk,
                expected="above 0 and below 1: only labels of all of them could show that none is bad",
            )
        if not 0.5 < self.confidence < 1:
            raise UsageError(
                "--confidence is how sure the certificate must be",
                got=self.confidence,
                expected="above 0.5 and below 1, such as 0.9",
            )
        if self.column in HIGHER_IS_WORSE:
            raise UsageError(
                "a threshold keeps what is at or above it, and this column is high where a dialogue is in doubt or at fault",
                got=f"--column {self.column}",
                expected="a column that is high for good dialogues, such as mean_score, adherence or p_good",
                fix=f"to certify the dialogues with a low one as they are: --of '{self.column} <= ...', without --column",
            )
        if self.may_stop and self.column is not None:
            raise UsageError(
                "a threshold cannot be certified while labels come in",
                got=f"--anytime --column {self.column}",
                fix="leave out one of them",
            )

    @property
    def test(self) -> CertificateTest:
        """The one of the three tests that answers the question."""
        return "threshold" if self.column else "anytime" if self.may_stop else "audit"

    @property
    def error(self) -> float:
        """Share of such certificates that may be wrong, 0-1."""
        return 1 - self.confidence
