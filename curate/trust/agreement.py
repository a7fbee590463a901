"""Agreement between scores and labels: ranking, classification, calibration, and their intervals.

Pure functions over plain sequences, without NumPy, so that they belong to the base install and every
room's figures come from one definition. A figure that is not defined (one class only, nothing given) is
None, never 0 and never NaN. Labels are booleans: True is the positive class (adherent). Ties are
counted exactly, because judges give few distinct values and half of a table can be ties.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from itertools import groupby

from curate.statistics import RESAMPLES as RESAMPLES
from curate.statistics import SEED as SEED

BINS = 10
USABLE_KAPPA = 0.5
"""Agreement with people below which a dimension is not for filtering by."""

Statistic = Callable[[Sequence[int]], float | None]
"""A figure of the rows named by their indices, an index as often as it was drawn; None if undefined."""


@dataclass(frozen=True, slots=True)
class Interval:
    """A percentile bootstrap interval; `resamples` counts those in which the figure was defined."""

    low: float
    high: float
    resamples: int


@dataclass(frozen=True, slots=True)
class ClassMeans:
    """Mean score of each class; the difference is the paper's separation."""

    positive: float
    negative: float

    @property
    def separation(self) -> float:
        """Mean of the positives minus mean of the negatives."""
        return self.positive - self.negative


@dataclass(frozen=True, slots=True)
class F1Scores:
    """F1 of each class in [0, 1], and their unweighted mean."""

    positive: float
    negative: float

    @property
    def macro(self) -> float:
        """Unweighted mean over both classes."""
        return (self.positive + self.negative) / 2


@dataclass(frozen=True, slots=True)
class CalibrationBin:
    """One bin of a reliability diagram, over scores in [`low`, `high`), the last bin closed."""

    low: float
    high: float
    count: int
    mean_score: float
    share_positive: float


def class_means(scores: Sequence[float], positive: Sequence[bool]) -> ClassMeans | None:
    """Mean score of each class; None where one class is empty."""
    yes, no = _split(scores, positive)
    return ClassMeans(math.fsum(yes) / len(yes), math.fsum(no) / len(no)) if yes and no else None


def auc(scores: Sequence[float], positive: Sequence[bool]) -> float | None:
    """Area under the ROC curve: share of (positive, negative) pairs in the right order, ties half.

    The Mann-Whitney form (Hanley and McNeil 1982), O(n log n). None where one class is empty.
    """
    _check(scores, positive)
    below = wins = positives = 0.0
    for group in _by_score(scores, positive):
        yes = sum(group)
        no = len(group) - yes
        wins += yes * (below + no / 2)
        below += no
        positives += yes
    pairs = positives * below
    return wins / pairs if pairs else None


def average_precision(scores: Sequence[float], positive: Sequence[bool]) -> float | None:
    """Sum over distinct thresholds, falling, of (gain in recall) times precision; no interpolation.

    Equal scores share one threshold, as in scikit-learn. None where there is no positive.
    """
    _check(scores, positive)
    total = sum(positive)
    if not total:
        return None
    found = taken = 0
    area = 0.0
    for group in reversed(list(_by_score(scores, positive))):
        yes = sum(group)
        found, taken = found + yes, taken + len(group)
        area += yes / total * found / taken
    return area


def roc_curve(
    scores: Sequence[float], positive: Sequence[bool]
) -> tuple[tuple[float, float], ...] | None:
    """(False positive rate, true positive rate) at each distinct threshold, from (0, 0) to (1, 1)."""
    _check(scores, positive)
    yes, no = sum(positive), len(positive) - sum(positive)
    if not yes or not no:
        return None
    points, hits, alarms = [(0.0, 0.0)], 0, 0
    for group in reversed(list(_by_score(scores, positive))):
        hits, alarms = hits + sum(group), alarms + len(group) - sum(group)
        points.append((alarms / no, hits / yes))
    return tuple(points)


def accuracy(gold: Sequence[Hashable], predicted: Sequence[Hashable]) -> float | None:
    """Share of equal entries; None where there is none."""
    _check(gold, predicted)
    return sum(map(_equal, gold, predicted)) / len(gold) if gold else None


def f1_scores(gold: Sequence[bool], predicted: Sequence[bool]) -> F1Scores | None:
    """F1 of the positive and of the negative class; a class never predicted right has F1 0.

    None where nothing is given, or a class occurs neither in the labels nor in the predictions.
    """
    _check(gold, predicted)
    counts = Counter(zip(map(bool, gold), map(bool, predicted), strict=True))
    wrong = counts[True, False] + counts[False, True]
    by_class = [2 * counts[kind, kind] + wrong for kind in (True, False)]
    if not all(by_class):
        return None
    return F1Scores(2 * counts[True, True] / by_class[0], 2 * counts[False, False] / by_class[1])


def cohen_kappa(gold: Sequence[Hashable], predicted: Sequence[Hashable]) -> float | None:
    """Cohen's kappa (1960), unweighted: agreement beyond what the marginals give by chance.

    At most 1; negative is worse than chance. None where nothing is given or chance alone agrees fully.
    """
    observed = accuracy(gold, predicted)
    if observed is None:
        return None
    first, second, n = Counter(gold), Counter(predicted), len(gold)
    chance = sum(first[kind] * second[kind] for kind in first) / n**2
    return (observed - chance) / (1 - chance) if chance < 1 else None


def brier_score(probabilities: Sequence[float], positive: Sequence[bool]) -> float | None:
    """Mean squared distance of a probability from its outcome (Brier 1950), in [0, 1]; 0 is perfect."""
    _check(probabilities, positive)
    if not positive:
        return None
    return math.fsum((p - y) ** 2 for p, y in zip(probabilities, positive, strict=True)) / len(
        positive
    )


def calibration_bins(
    probabilities: Sequence[float], positive: Sequence[bool], bins: int = BINS
) -> tuple[CalibrationBin, ...]:
    """The non-empty bins of equal width over [0, 1], in order; 1.0 belongs to the last one."""
    _check(probabilities, positive)
    filled: dict[int, list[tuple[float, bool]]] = {}
    for score, label in zip(probabilities, positive, strict=True):
        if not 0 <= score <= 1:
            raise ValueError(f"a probability lies in [0, 1], got {score}")
        filled.setdefault(min(bins - 1, int(score * bins)), []).append((score, bool(label)))
    return tuple(
        CalibrationBin(
            low=index / bins,
            high=(index + 1) / bins,
            count=len(held),
            mean_score=math.fsum(score for score, _ in held) / len(held),
            share_positive=sum(label for _, label in held) / len(held),
        )
        for index, held in sorted(filled.items())
    )


def expected_calibration_error(
    probabilities: Sequence[float], positive: Sequence[bool], bins: int = BINS
) -> float | None:
    """Mean of |mean probability - share of positives| over bins of equal width, weighted by count.

    In [0, 1] (Guo et al. 2017, for the probability of the positive class). It depends on the number of
    bins, so name it beside the figure.
    """
    held = calibration_bins(probabilities, positive, bins)
    n = len(positive)
    return (
        math.fsum(b.count / n * abs(b.mean_score - b.share_positive) for b in held)
        if held
        else None
    )


def bootstrap_interval(
    statistic: Statistic,
    n: int,
    *,
    resamples: int = RESAMPLES,
    seed: int = SEED,
    confidence: float = 0.95,
) -> Interval | None:
    """Percentile bootstrap of a figure over n rows (Efron 1979).

    A paired comparison is the same thing with a statistic that is a difference: both methods are then
    computed on the rows of one resample. Resamples in which the figure is not defined (one class only)
    are left out and counted. Fewer than ten rows give an interval that is too narrow to be relied on.

    Args:
        statistic: takes row indices (with repeats), gives the figure or None.
        n: number of rows.
        resamples: how many are drawn.
        seed: of the draws, so that a report can be made again.
        confidence: mass inside the interval, between 0 and 1.

    Returns:
        None where the figure was defined in no resample.
    """
    import numpy as np

    if n < 1:
        return None
    rng, rows = random.Random(seed), range(n)
    found = [statistic(rng.choices(rows, k=n)) for _ in range(resamples)]
    values = [value for value in found if value is not None]
    if not values:
        return None
    tail = (1 - confidence) / 2
    low, high = np.quantile(values, (tail, 1 - tail))
    return Interval(float(low), float(high), len(values))


def paired_interval(
    metric: Callable[[Sequence[float], Sequence[bool]], float | None],
    first: Sequence[float],
    second: Sequence[float],
    positive: Sequence[bool],
    *,
    resamples: int = RESAMPLES,
    seed: int = SEED,
) -> Interval | None:
    """Bootstrap interval of metric(first) - metric(second) on the same resampled rows.

    An interval above 0 says that the first method is better beyond the noise of these rows.
    """
    _check(first, positive)
    _check(second, positive)

    def difference(rows: Sequence[int]) -> float | None:
        labels = [positive[row] for row in rows]
        ours = metric([first[row] for row in rows], labels)
        theirs = metric([second[row] for row in rows], labels)
        return None if ours is None or theirs is None else ours - theirs

    return bootstrap_interval(difference, len(positive), resamples=resamples, seed=seed)


def _equal(first: Hashable, second: Hashable) -> bool:
    return first == second


def _check(first: Sequence[object], second: Sequence[object]) -> None:
    if len(first) != len(second):
        raise ValueError(f"one entry a row is needed, got {len(first)} and {len(second)}")


def _split(scores: Sequence[float], positive: Sequence[bool]) -> tuple[list[float], list[float]]:
    _check(scores, positive)
    yes = [score for score, label in zip(scores, positive, strict=True) if label]
    return yes, [score for score, label in zip(scores, positive, strict=True) if not label]


def _by_score(scores: Sequence[float], positive: Sequence[bool]) -> list[list[bool]]:
    """Labels in groups of equal score, the lowest score first."""
    ordered = sorted(zip(scores, positive, strict=True), key=lambda row: row[0])
    return [[bool(label) for _, label in rows] for _, rows in groupby(ordered, lambda row: row[0])]
