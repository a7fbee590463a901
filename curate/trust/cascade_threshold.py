"""The threshold on the first judge's doubt up to which it decides alone in a cascade, fitted to dialogues that both judges scored.

A dialogue is lost where the first judge decides, is wrong, and the second would have been right. The share of all
dialogues that are lost can only grow with the threshold, so thresholds are tried from strict to loose, each by one
exact binomial test of all dialogues, and the walk stops at the first that fails (fixed-sequence testing; the grid is
fixed before). The last that passed holds with the confidence asked for. None is made up where none passes, the first
judge then decides nothing; and there is one test at the whole error, not one a judge.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from curate.errors import CurateError, UsageError
from curate.trust.guarantee import least_labels, p_value, simple, upper_bound
from curate.wording import plural

GRID = tuple(step / 100 for step in range(1, 101))
"""Thresholds of doubt that are tried, in this order; fixed, so that they do not depend on any label."""


@dataclass(frozen=True, slots=True)
class Tried:
    """A dialogue that both judges of a cascade scored.

    Attributes:
        doubt: of the first, 0-1.
        lost: the first is wrong about it and the second right.
    """

    doubt: float
    lost: bool


@dataclass(frozen=True, slots=True)
class Threshold:
    """The loosest doubt up to which the first judge may decide.

    Attributes:
        value: of the doubt.
        kept: dialogues up to it.
        lost: of these.
        at_most: upper bound of the share of all dialogues that are lost.
    """

    value: float
    kept: int
    lost: int
    at_most: float


def fit_cascade_threshold(tried: Sequence[Tried], risk: float, confidence: float) -> Threshold:
    """Return the loosest threshold at which at most `risk` of all dialogues are lost, with a confidence.

    Args:
        tried: drawn at random from the dialogues that the cascade is for.
        risk: in (0, 1).
        confidence: in (0, 1).

    Raises:
        UsageError: a share that is none, or too few dialogues for any threshold to pass.
        CurateError: no threshold lets the first judge decide anything.
    """
    for name, share in (("--lost", risk), ("--confidence", confidence)):
        if not 0 < share < 1:
            raise UsageError(f"{name} must be a share", got=share, expected="above 0 and below 1")
    number, error = len(tried), 1 - confidence
    least = least_labels(0, risk, error)
    if number < least:
        raise UsageError(
            "too few dialogues that both judges scored to fit a threshold to",
            got=number,
            expected=f"at least {least} for {risk:g} lost at confidence {confidence:g}, and more to find any lost",
            fix="run the recipe on more dialogues with the threshold left out, so that both judges score all of them",
        )
    doubts = np.array([one.doubt for one in tried])
    is_lost = np.array([one.lost for one in tried])
    passed: float | None = None

    @cache
    def fails(lost: int) -> bool:
        return p_value(simple(lost, number), risk) > error

    for threshold in GRID:
        if fails(int((is_lost & (doubts <= threshold)).sum())):
            break
        passed = threshold
    kept = 0 if passed is None else int((doubts <= passed).sum())
    if passed is None or not kept:
        raise CurateError(
            "the first judge can decide nothing alone, as far as these dialogues show",
            got=f"{int(is_lost.sum())} of {plural(number, 'dialogue')} lost if it decided all",
            expected=f"a threshold with at most {risk:g} of all dialogues lost, at confidence {confidence:g}",
            fix="score more dialogues with both judges, raise --lost, or use the second judge alone",
        )
    lost = int((is_lost & (doubts <= passed)).sum())
    return Threshold(passed, kept, lost, upper_bound(simple(lost, number), confidence))
