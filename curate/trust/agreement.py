"""Agreement between scores and labels: ranking, classification, calibration, and their intervals.

numpy and scikit-learn are imported where they are used, so that the command line starts fast. F1, kappa and the AUC
are counted here: a bootstrap asks for each a thousand times, and scikit-learn's own check their input for two
milliseconds a call. A resample is given by how often it holds each row, so that a figure of all resamples is a
product of matrices, and the figure of the rows themselves is that of one resample with each row once (`of_sample`). A figure that is not defined (one class only, nothing given) is None,
never 0 and never NaN. Labels are booleans: True is the positive class (adherent). Ties are counted exactly, because
judges give few distinct values and half of a table can be ties.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from curate.statistics import RESAMPLES as RESAMPLES
from curate.statistics import SEED as SEED

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

BINS = 10
USABLE_KAPPA = 0.5
"""Agreement with people below which a dimension is not for filtering by."""

_CELLS = 4_000_000
"""Counts that are held at once: tens of MB."""

Statistic = Callable[["npt.NDArray[np.float64]"], "npt.NDArray[np.float64]"]
"""From counts of shape (resamples, rows), how often each resample holds each row, to the resamples' figures; NaN if undefined."""


@dataclass(frozen=True, slots=True)
class Interval:
    """A percentile bootstrap interval; `resamples` counts those in which the figure was defined."""

    low: float
    high: float
    resamples: int


@dataclass(frozen=True, slots=True)
class CalibrationBin:
    """One bin of a reliability diagram, over scores in [`low`, `high`), the last bin closed."""

    low: float
    high: float
    count: int
    mean_score: float
    share_positive: float


def class_means(scores: Sequence[float], positive: Sequence[bool]) -> tuple[float, float] | None:
    """Return the mean score of the positives and of the negatives; None where one class is empty."""
    values, labels = _arrays(scores, positive)
    if not labels.any() or labels.all():
        return None
    return float(values[labels].mean()), float(values[~labels].mean())


def of_sample(statistic: Statistic, n: int) -> float | None:
    """Return the figure of n rows, each once; None where it is not defined."""
    import numpy as np

    figure = float(statistic(np.ones((1, n)))[0]) if n else math.nan
    return None if math.isnan(figure) else figure


def auc(scores: Sequence[float], positive: Sequence[bool]) -> float | None:
    """Return the area under the ROC curve: share of (positive, negative) pairs in the right order, ties half.

    The Mann-Whitney form (Hanley and McNeil 1982). None where one class is empty.
    """
    return of_sample(partial(resampled_aucs, scores, positive), len(positive))


def resampled_aucs(
    scores: Sequence[float], positive: Sequence[bool], counts: npt.NDArray[np.float64]
) -> npt.NDArray[np.float64]:
    """Return the `auc` of each resample, given by how often it holds each row; NaN where one class is empty."""
    import numpy as np

    values, labels = _arrays(scores, positive)
    order = np.argsort(values)
    values, labels, counts = values[order], labels[order], counts[:, order]
    # Equal scores stand together from here on.
    starts = np.flatnonzero(np.append(True, values[1:] != values[:-1]))
    yes = np.add.reduceat(counts * labels, starts, axis=1)
    no = np.add.reduceat(counts * ~labels, starts, axis=1)
    below = np.cumsum(no, axis=1) - no / 2
    with np.errstate(invalid="ignore"):
        areas: npt.NDArray[np.float64] = (yes * below).sum(axis=1) / (
            yes.sum(axis=1) * no.sum(axis=1)
        )
    return areas


def resampled_auc_gains(
    first: Sequence[float],
    second: Sequence[float],
    positive: Sequence[bool],
    counts: npt.NDArray[np.float64],
) -> npt.NDArray[np.float64]:
    """Return the AUC of the first scores minus that of the second, of each resample; NaN where one class is empty."""
    return resampled_aucs(first, positive, counts) - resampled_aucs(second, positive, counts)


def resampled_means(
    values: Sequence[float], counts: npt.NDArray[np.float64]
) -> npt.NDArray[np.float64]:
    """Return the mean of the values in each resample."""
    import numpy as np

    means: npt.NDArray[np.float64] = counts @ np.asarray(values, float) / counts.sum(axis=1)
    return means


def average_precision(scores: Sequence[float], positive: Sequence[bool]) -> float | None:
    """Return the sum over distinct thresholds, falling, of (gain in recall) times precision; no interpolation.

    Equal scores share one threshold. None where there is no positive.
    """
    from sklearn.metrics import average_precision_score

    values, labels = _arrays(scores, positive)
    return float(average_precision_score(labels, values)) if labels.any() else None


def roc_curve(
    scores: Sequence[float], positive: Sequence[bool]
) -> tuple[tuple[float, float], ...] | None:
    """Return (false positive rate, true positive rate) at each distinct threshold, from (0, 0) to (1, 1)."""
    from sklearn.metrics import roc_curve as points_of

    values, labels = _arrays(scores, positive)
    if not labels.any() or labels.all():
        return None
    alarms, hits, _ = points_of(labels, values, drop_intermediate=False)
    return tuple(zip(alarms.tolist(), hits.tolist(), strict=True))


def accuracy(gold: Sequence[Hashable], predicted: Sequence[Hashable]) -> float | None:
    """Return the share of equal entries; None where there is none."""
    pairs = list(zip(gold, predicted, strict=True))
    return sum(one == other for one, other in pairs) / len(pairs) if pairs else None


DECISION_FIGURES = ("f1_adherent", "f1_violation", "f1_macro", "kappa", "accuracy")


def resampled_decisions(
    figure: str,
    gold: Sequence[bool],
    decided: Sequence[bool],
    counts: npt.NDArray[np.float64],
) -> npt.NDArray[np.float64]:
    """Return one of `DECISION_FIGURES` of a yes or no in each resample; NaN where it is not defined.

    F1 is of a class, or the mean of both (macro); a class that is never predicted right has 0, and none is defined where
    a class occurs neither in the labels nor in the decisions. Kappa is Cohen's (1960), unweighted: agreement beyond what
    the marginals give by chance, not defined where chance alone agrees fully.
    """
    import numpy as np

    labels, decisions = np.asarray(gold, bool), np.asarray(decided, bool)
    total = counts.sum(axis=1)
    # True positives and true negatives.
    yes, no = counts @ (labels & decisions), counts @ ~(labels | decisions)
    right: npt.NDArray[np.float64] = (yes + no) / total
    if figure == "accuracy":
        return right
    adherent, accepted = counts @ labels, counts @ decisions
    with np.errstate(invalid="ignore"):
        if figure == "kappa":
            chance = (adherent * accepted + (total - adherent) * (total - accepted)) / total**2
            kappas: npt.NDArray[np.float64] = (right - chance) / (1 - chance)
            return kappas
        wrong = total - yes - no
        f1_adherent, f1_violation = 2 * yes / (2 * yes + wrong), 2 * no / (2 * no + wrong)
    macro = (f1_adherent + f1_violation) / 2
    of_both = {"f1_macro": macro, "f1_adherent": f1_adherent, "f1_violation": f1_violation}
    return np.where(np.isnan(macro), np.nan, of_both[figure])


def brier_score(probabilities: Sequence[float], positive: Sequence[bool]) -> float | None:
    """Return the mean squared distance of a probability from its outcome (Brier 1950), in [0, 1]; 0 is perfect."""
    values, labels = _arrays(probabilities, positive)
    return float(((values - labels) ** 2).mean()) if len(labels) else None


def calibration_bins(
    probabilities: Sequence[float], positive: Sequence[bool]
) -> tuple[CalibrationBin, ...]:
    """Return the non-empty bins of equal width over [0, 1], in order; 1.0 belongs to the last one."""
    import numpy as np

    values, labels = _arrays(probabilities, positive)
    if (outside := values[(values < 0) | (values > 1)]).size:
        raise ValueError(f"a probability lies in [0, 1], got {outside[0]}")
    at = np.minimum(BINS - 1, (values * BINS).astype(int))
    filled = {index: at == index for index in np.unique(at).tolist()}
    return tuple(
        CalibrationBin(
            low=index / BINS,
            high=(index + 1) / BINS,
            count=int(in_bin.sum()),
            mean_score=float(values[in_bin].mean()),
            share_positive=float(labels[in_bin].mean()),
        )
        for index, in_bin in filled.items()
    )


def expected_calibration_error(
    probabilities: Sequence[float], positive: Sequence[bool]
) -> float | None:
    """Return the mean of |mean probability - share of positives| over bins of equal width, weighted by count.

    In [0, 1] (Guo et al. 2017, for the probability of the positive class). It depends on the number of
    bins, so name it beside the figure.
    """
    bins = calibration_bins(probabilities, positive)
    n = len(positive)
    return (
        math.fsum(b.count / n * abs(b.mean_score - b.share_positive) for b in bins)
        if bins
        else None
    )


def bootstrap_interval(
    statistic: Statistic,
    n: int,
    *,
    resamples: int = RESAMPLES,
) -> Interval | None:
    """Return the 95 % percentile bootstrap of a figure over n rows (Efron 1979).

    A paired comparison is the same thing with a statistic that is a difference (`resampled_auc_gains`): both methods
    are then computed on the rows of one resample, and an interval above 0 says that the first is better. Resamples in which the figure is not defined (one class only)
    are left out and counted. Fewer than ten rows give an interval that is too narrow to be relied on.

    Args:
        statistic: of many resamples at once; called several times where there are many rows.
        n: number of rows.
        resamples: how many are drawn, always the same ones, so that a report can be made again.

    Returns:
        None where the figure was defined in no resample.
    """
    import numpy as np

    if n < 1 or resamples < 1:
        return None
    figures = np.concatenate([statistic(counts) for counts in _resamples(n, resamples)])
    values = figures[~np.isnan(figures)]
    if not len(values):
        return None
    low, high = np.quantile(values, (0.025, 0.975))
    return Interval(float(low), float(high), len(values))


def _resamples(n: int, resamples: int) -> Iterator[npt.NDArray[np.float64]]:
    """Return how often each resample holds each of n rows, as many resamples at a time as fit."""
    import numpy as np

    rng, rows = random.Random(SEED), range(n)
    step = max(1, _CELLS // n)
    for start in range(0, resamples, step):
        drawn = np.array(
            [rng.choices(rows, k=n) for _ in range(start, min(start + step, resamples))]
        )
        flat = drawn + n * np.arange(len(drawn))[:, np.newaxis]
        counts = np.bincount(flat.ravel(), minlength=drawn.size)
        yield counts.reshape(drawn.shape).astype(np.float64)


def grouped_interval(statistic: Statistic, groups: Sequence[str]) -> tuple[float, float] | None:
    """Return the ends of the 95 % bootstrap interval over groups, each drawn with all of its rows.

    Args:
        statistic: as of `bootstrap_interval`.
        groups: of each row, what it belongs to.
    """
    place: dict[str, int] = {}
    group_of = [place.setdefault(group, len(place)) for group in groups]
    interval = bootstrap_interval(lambda counts: statistic(counts[:, group_of]), len(place))
    return None if interval is None else (interval.low, interval.high)


def _arrays(
    scores: Sequence[float], positive: Sequence[bool]
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.bool_]]:
    import numpy as np

    if len(scores) != len(positive):
        raise ValueError(f"one entry a row is needed, got {len(scores)} and {len(positive)}")
    return np.asarray(scores, float), np.asarray(positive, bool)
