"""The probability that a model gives each label of a question, from its reply's first token."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from curate.engines.base import Completion

LETTER_PREFIX = "Answer:"
"""Forced start before a letter. After `(`, which suits digits, judges answer with digits where the question has letters."""


@dataclass(frozen=True, slots=True)
class LabelMass:
    """Log-probability by label, of labels that were seen, and the probability they have together."""

    logprobs: Mapping[str, float]
    coverage: float

    @property
    def probabilities(self) -> dict[str, float]:
        """Return the probabilities, renormalised over the labels seen; empty where none was."""
        total = logsumexp(list(self.logprobs.values()))
        return {label: math.exp(value - total) for label, value in self.logprobs.items()}

    @property
    def best(self) -> str | None:
        """Return the most likely label, of equal ones the first requested; None where none was seen."""
        return max(self.logprobs, key=lambda label: self.logprobs[label]) if self.logprobs else None


def read_label_mass(
    completion: Completion, labels: Sequence[str], *, ignore_case: bool = False
) -> LabelMass:
    """Sum the probability of each label over the tokens that spell it, from a completion's first token.

    Args:
        completion: reply to a request with `labels`.
        labels: the labels, in order of preference for ties.
        ignore_case: True for words (yes/no), False for letters and digits.
    """
    values_by_label: dict[str, list[float]] = {label: [] for label in labels}
    folded = {(label.casefold() if ignore_case else label): label for label in labels}
    for token, logprob in completion.first_token:
        spelling = token.strip()
        label = folded.get(spelling.casefold() if ignore_case else spelling)
        if label is not None and logprob > -math.inf:
            values_by_label[label].append(logprob)
    logprobs = {label: logsumexp(values) for label, values in values_by_label.items() if values}
    return LabelMass(logprobs, min(1.0, sum(math.exp(value) for value in logprobs.values())))


def logsumexp(values: Sequence[float]) -> float:
    """Return log(sum(exp(v))) without underflow; -inf for no values."""
    if len(values) < 2:
        return values[0] if values else -math.inf
    top = max(values)
    return top + math.log(sum(math.exp(value - top) for value in values))
