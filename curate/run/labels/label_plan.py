"""How many labels a certificate takes, for the shares of bad members that one expects."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from curate.errors import UsageError
from curate.run.labels.populations import SFT, check_set, promised_members
from curate.run.labels.question import Question
from curate.trust.guarantee import anytime_labels, labels_for, least_labels

POWERS = (0.8, 0.9)
"""Probabilities of a certificate for which labels are counted."""
_RATES = (0.0, 0.01, 0.02, 0.03, 0.05, 0.07)
_ANY_SIZE = 20_000
"""Size assumed for a set when no run is named, for an audit that may stop at any time."""


@dataclass(frozen=True, slots=True)
class LabelPlan:
    """How many labels a certificate takes.

    Attributes:
        size: members of the set; None without a run.
        least: by number of bad ones, the fewest labels with which it passes.
        needed: by true share of bad ones, the labels to draw for each of `POWERS`; None where no number is enough.
    """

    question: Question
    size: int | None
    least: dict[int, int]
    needed: dict[float, tuple[int | None, ...]]

    def as_dict(self) -> dict[str, Any]:
        """Return the plan as in `curate certify --plan --json`."""
        return {
            "risk": self.question.risk,
            "confidence": self.question.confidence,
            "size": self.size,
            "test": self.question.test,
            "least_labels": {str(bad): labels for bad, labels in self.least.items()},
            "labels": {
                str(rate): {str(power): n for power, n in zip(POWERS, labels, strict=True)}
                for rate, labels in self.needed.items()
            },
        }


def plan_labels(run: Path | None, question: Question, rates: Sequence[float] = ()) -> LabelPlan:
    """Count the labels that a question takes.

    Args:
        run: run folder of the set; None for a set of any size.
        rates: expected shares of bad members; by default several below the risk.

    Raises:
        UsageError: a rate that is no share, or a set that no run can have.
    """
    wrong = [rate for rate in rates if not 0 <= rate < 1]
    if wrong:
        raise UsageError("--rate must be a share", got=wrong[0], expected="0 or more and below 1")
    risk, error = question.risk, question.error
    of = question.of or SFT
    check_set(of, question.column)
    size = None if run is None else promised_members(run, of, question.column).height
    expected = sorted(set(rates)) if rates else [rate for rate in _RATES if rate < risk]
    least = {bad: least_labels(bad, risk, error, size) for bad in (0, 1, 2, 3, 5, 10)}
    if size is not None:
        least = {bad: labels for bad, labels in least.items() if labels < size or not bad}
    if question.test == "anytime":
        needed = {
            rate: anytime_labels(rate, risk, error, POWERS, size or _ANY_SIZE) for rate in expected
        }
    else:
        needed = {
            rate: tuple(labels_for(rate, risk, error, power, size) for power in POWERS)
            for rate in expected
        }
    return LabelPlan(question, size, least, needed)
