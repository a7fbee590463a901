"""Reading a choice from the first token's distribution.

A label ("4", "yes", "B") can be spelt by several tokens: with a leading space, in another case. Their
mass is added with log-sum-exp, so that nothing underflows, and set against the whole mass.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from curate.engines.base import Completion

LETTER_PREFIX = "Answer:"
"""Forced start before a letter. Behind `(`, which suits digits, a judge gives digits to a question with letters."""


@dataclass(frozen=True, slots=True)
class LabelMass:
    """Log-probability per label (only labels that were seen) and the share of mass they cover."""

    logprobs: Mapping[str, float]
    coverage: float

    @property
    def probabilities(self) -> dict[str, float]:
        """Renormalised over the labels seen; empty where none was."""
        total = logsumexp(list(self.logprobs.values()))
        return {label: math.exp(value - total) for label, value in self.logprobs.items()}

    @property
    def best(self) -> str | None:
        """The most likely label, ties to the first asked for; None where none was seen."""
        return max(self.logprobs, key=lambda label: self.logprobs[label]) if self.logprobs else None


def read_labels(
    completion: Completion, labels: Sequence[str], *, ignore_case: bool = False
) -> LabelMass:
    """Collect the mass of each label from a completion's first token.

    Args:
        completion: reply to a request with `labels`.
        labels: the labels, in order of preference for ties.
        ignore_case: True for words (yes/no), False for letters and digits.
    """
    found: dict[str, list[float]] = {label: [] for label in labels}
    folded = {(label.casefold() if ignore_case else label): label for label in labels}
    for token, logprob in completion.first_token:
        spelling = token.strip()
        label = folded.get(spelling.casefold() if ignore_case else spelling)
        if label is not None and logprob > -math.inf:
            found[label].append(logprob)
    logprobs = {label: logsumexp(values) for label, values in found.items() if values}
    return LabelMass(logprobs, min(1.0, sum(math.exp(value) for value in logprobs.values())))


def logsumexp(values: Sequence[float]) -> float:
    """log(sum(exp(v))) without underflow; -inf for no values."""
    if not values:
        return -math.inf
    top = max(values)
    return top + math.log(sum(math.exp(value - top) for value in values))
