"""What labels are to certify: which set, how many bad ones it may bear, how surely."""

from __future__ import annotations

from dataclasses import dataclass

from curate.errors import UsageError
from curate.records import CertificateTest


@dataclass(frozen=True, slots=True)
class Question:
    """What is to be certified.

    Attributes:
        bad: rule of what is bad, see `trust.bad_rule`; None for what reviewers reject.
        risk: share of bad ones that may be borne.
        confidence: of the certificate.
        of: the set, see `populations.read_members`; None for what the labels were drawn from, where that was to
            certify, of pairs or for a threshold; else for what was selected.
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
        """Raise a UsageError where no certificate could answer it."""
        if not 0 < self.risk < 1:
            raise UsageError(
                "--risk is the share of bad ones that may be borne",
                got=self.risk,
                expected="above 0 and below 1: that none at all is bad only labels of all can show",
            )
        if not 0.5 < self.confidence < 1:
            raise UsageError(
                "--confidence is how sure the certificate is to be",
                got=self.confidence,
                expected="above 0.5 and below 1, as 0.9",
            )
        if self.may_stop and self.column is not None:
            raise UsageError(
                "a threshold cannot be certified while labels come in",
                got=f"--anytime --column {self.column}",
                fix="leave out one of them",
            )

    @property
    def test(self) -> CertificateTest:
        """Which of the three tests answers it."""
        return "threshold" if self.column else "anytime" if self.may_stop else "audit"

    @property
    def error(self) -> float:
        """Share of such certificates that may be wrong."""
        return 1 - self.confidence
