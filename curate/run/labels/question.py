"""The question that labels answer: which set, how many bad members are allowed, and with what confidence.

A run keeps the questions that its certificates answered (`trust/questions.jsonl`): each has a chance of a wrong answer.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from curate.errors import UsageError
from curate.records import Certificate, CertificateTest
from curate.selection.columns import HIGHER_IS_WORSE
from curate.storage.line_files import read_records

QUESTIONS = "trust/questions.jsonl"
_QUESTION: TypeAdapter[dict[str, Any]] = TypeAdapter(dict[str, Any])


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
                "--risk must be the allowed share of bad members",
                got=self.risk,
                expected="above 0 and below 1: only labels of all members could show that none is bad",
            )
        if not 0.5 < self.confidence < 1:
            raise UsageError(
                "--confidence must be the certainty of the certificate",
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


def question_of(certificate: Certificate) -> Question:
    """Return the question that a certificate answers."""
    return Question(
        certificate.labels.rule,
        certificate.risk,
        certificate.confidence,
        certificate.certified.of,
        certificate.certified.column,
        certificate.test == "anytime",
        certificate.labels.hold_out,
    )


def asked_question(certificate: Certificate) -> dict[str, Any]:
    """Return the question of a certificate as `trust/questions.jsonl` has it."""
    certified = certificate.certified
    question: dict[str, Any] = {
        "bad": certificate.bad,
        "kind": certificate.kind,
        "test": certificate.test,
        "of": certified.of,
        "column": certified.column,
        "draw": certificate.labels.draw,
    }
    if certificate.test == "threshold":
        return question | {"risk": certificate.risk, "confidence": certificate.confidence}
    return question | {"set": certified.fingerprint}


def read_questions(run: Path) -> list[dict[str, Any]]:
    """Return the questions that certificates of a run have answered, in order.

    Raises:
        CurateError: a line is damaged.
    """
    path = run / QUESTIONS
    return list(read_records(path, _QUESTION.validate_json)) if path.is_file() else []


def other_questions(questions: Iterable[Mapping[str, Any]], certificate: Certificate) -> int:
    """Return how many of the questions are others about the same kind of bad ones."""
    own, about = asked_question(certificate), (certificate.bad, certificate.kind)
    return sum(
        question != own and (question.get("bad"), question.get("kind")) == about
        for question in questions
    )
