"""Intervals, trends and quantiles over plain sequences, shared by several rooms.

Plain numbers go in and come out; numpy and scipy are imported where they are used, so that the command line
starts fast. Each function names the source of its formula. It stands below all rooms, so that an interval is
defined once.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

RESAMPLES = 1000
SEED = 42
Z_95 = 1.959963984540054
"""97.5 % quantile of the standard normal distribution."""
EXACT_ORDERS = 40
"""Longest sequence whose trend is tested against all its orders; beyond, a normal distribution is as good."""

Ends = tuple[float, float]
"""Lower and upper end of an interval."""


def weighted_mean(scores: Sequence[float], weights: Sequence[float]) -> float:
    """Return the sum of weight times score over sum of weights; kept within the range of the scores."""
    mean = math.fsum(s * w for s, w in zip(scores, weights, strict=True)) / math.fsum(weights)
    return min(max(mean, min(scores)), max(scores))


def effective_size(weights: Sequence[float]) -> float:
    """Return Kish's effective sample size, (sum of w)^2 / sum of w^2; n for equal weights."""
    top = max(weights)
    shares = [weight / top for weight in weights]
    return math.fsum(shares) ** 2 / math.fsum(share * share for share in shares)


# ---- intervals of a share


def wilson(share: float, n: float, z: float = Z_95) -> Ends:
    """Return the Wilson score interval of a share observed over n trials (Wilson 1927).

    Of a mean of values in [0, 1] that are not all 0 or 1 it is an interval, too, and a wide one: their variance
    is at most that of zeros and ones with the same mean.

    Args:
        share: observed share, 0-1.
        n: number of trials, above 0; an effective size for weighted ones.
        z: normal quantile; 95 % by default.
    """
    spread = z * z / n
    centre = (share + spread / 2) / (1 + spread)
    half = z / (1 + spread) * math.sqrt(share * (1 - share) / n + spread / (4 * n))
    return max(0.0, centre - half), min(1.0, centre + half)


def beta_posterior(share: float, n: float) -> Ends:
    """Return the 95 % equal-tailed credible interval of a share, from Jeffreys' prior Beta(1/2, 1/2).

    A share of 0 or 1 keeps its end of the range, as Brown, Cai and DasGupta (2001) advise.

    Args:
        share: observed share, 0-1.
        n: number of trials, above 0; an effective size for weighted ones.
    """
    from scipy.special import betaincinv

    yes, no = share * n + 0.5, (1 - share) * n + 0.5
    low = 0.0 if share == 0 else float(betaincinv(yes, no, 0.025))
    return low, 1.0 if share == 1 else float(betaincinv(yes, no, 0.975))


def student_t(freedom: float) -> float:
    """Return the 97.5 % quantile of Student's t with so many degrees of freedom."""
    from scipy.special import stdtrit

    return float(stdtrit(freedom, 0.975))


def clustered_variance(residuals: npt.ArrayLike, n: float) -> float:
    """Return the variance of a mean over n values whose clusters, not the values, are independent (Cochran 1977, 11.5).

    Args:
        residuals: of each of two or more clusters the sum of its values less the mean.
        n: number of values.
    """
    import numpy as np

    sums = np.asarray(residuals, float)
    return len(sums) / (len(sums) - 1) * float((sums**2).sum()) / n**2


# ---- intervals of a mean of few values


def bootstrap_mean(scores: Sequence[float], weights: Sequence[float]) -> Ends:
    """Return the 95 % percentile bootstrap of a weighted mean (Efron 1979): 1,000 resamples, seed 42.

    With few values it is too narrow; treat it as a lower bound of the uncertainty below about ten. One value
    says nothing about a spread: every resample of it is itself.
    """
    n = len(scores)
    if n == 1:
        return scores[0], scores[0]
    return _ends_of_means(_draws(n), scores, weights)


def bayesian_bootstrap_mean(scores: Sequence[float], weights: Sequence[float]) -> Ends:
    """Return the 95 % equal-tailed interval of a weighted mean's posterior under the Bayesian bootstrap (Rubin 1981).

    Instead of drawing values it draws how much each counts, from a flat Dirichlet distribution: 1,000 draws,
    seed 42. Nothing is assumed of the values' distribution but that it lies on those seen.
    """
    return _ends_of_means(_dirichlet(len(scores)), scores, weights)


def _ends_of_means(
    counts: npt.NDArray[np.float64], scores: Sequence[float], weights: Sequence[float]
) -> Ends:
    """Return the middle 95 % of the weighted means of resamples, each given as how much every score counts in it."""
    import numpy as np

    means = counts @ np.multiply(scores, weights) / (counts @ np.asarray(weights))
    low, high = np.quantile(means, (0.025, 0.975))
    return float(low), float(high)


@lru_cache(maxsize=64)
def _draws(n: int) -> npt.NDArray[np.float64]:
    """Count how often each of n positions was drawn, one row a resample.

    It depends on n and the seed alone, so it is drawn once for all dialogues of that length.
    """
    import numpy as np

    rng = random.Random(SEED)
    drawn = np.array([[rng.randrange(n) for _ in range(RESAMPLES)] for _ in range(n)]).T
    return np.apply_along_axis(np.bincount, 1, drawn, minlength=n).astype(np.float64)


@lru_cache(maxsize=64)
def _dirichlet(n: int) -> npt.NDArray[np.float64]:
    """Return draws from the flat Dirichlet distribution over n, not normalised: the mean divides by their sum."""
    import numpy as np

    rng = random.Random(SEED)
    return np.array([[rng.expovariate(1) for _ in range(n)] for _ in range(RESAMPLES)])


# ---- trends


@dataclass(frozen=True, slots=True)
class Trend:
    """A trend of values in [0, 1] over their positions.

    Attributes:
        slope: least squares, change a position.
        interval: 95 %, of the slope.
        p_value: that an order of the values by chance has a trend this strong, in either direction.
    """

    slope: float
    interval: Ends
    p_value: float


def trend(positions: Sequence[float], scores: Sequence[float]) -> Trend | None:
    """Return the trend of scores in [0, 1] over their positions; None for fewer than two.

    The interval is Hoeffding's (1963): the slope is a sum of independent terms c_i y_i with sum of c_i^2 =
    1/Sxx, so it lies within sqrt(ln(2/0.05) / (2 Sxx)) of its expectation with 95 %. It holds for any number
    of turns and any distribution on [0, 1], and is about 1.4 times as wide as a normal one at its widest.

    The p-value is the Mann-Kendall test's (Mann 1945), exact under all orders of the same values, ties
    included, for up to `EXACT_ORDERS` of them: the orders of values with ties are counted by inversions with
    the q-multinomial coefficients (MacMahon 1916). Beyond, the normal approximation with Kendall's variance.
    """
    return _trend(tuple(positions), tuple(scores))


@lru_cache(maxsize=4096)
def _trend(positions: tuple[float, ...], scores: tuple[float, ...]) -> Trend | None:
    """Return `trend`, cached: short sequences of zeros and ones recur often."""
    n = len(scores)
    if n < 2:
        return None
    centre = math.fsum(positions) / n
    spread = math.fsum((x - centre) ** 2 for x in positions)
    slope = math.fsum((x - centre) * y for x, y in zip(positions, scores, strict=True)) / spread
    half = math.sqrt(math.log(2 / 0.05) / (2 * spread))
    interval = (max(-1.0, slope - half), min(1.0, slope + half))
    return Trend(slope, interval, mann_kendall(scores))


def mann_kendall(scores: Sequence[float]) -> float:
    """Return the two-sided p-value of the Mann-Kendall test of a trend; see `trend`. 1 where all values are equal."""
    n = len(scores)
    rises = sum(
        (scores[j] > scores[i]) - (scores[j] < scores[i]) for j in range(n) for i in range(j)
    )
    ties = tuple(sorted(Counter(scores).values(), reverse=True))
    untied = n * (n - 1) // 2 - sum(size * (size - 1) // 2 for size in ties)
    if not rises:
        return 1.0
    if n <= EXACT_ORDERS:
        counts = _orders_by_inversions(ties)
        extreme = sum(
            count for at, count in enumerate(counts) if abs(untied - 2 * at) >= abs(rises)
        )
        return extreme / sum(counts)
    variance = (n * (n - 1) * (2 * n + 5) - sum(t * (t - 1) * (2 * t + 5) for t in ties)) / 18
    return math.erfc((abs(rises) - 1) / math.sqrt(2 * variance))


@lru_cache(maxsize=1024)
def _orders_by_inversions(ties: tuple[int, ...]) -> tuple[int, ...]:
    """Count the orders of a multiset that have 0, 1, 2, … inversions: the coefficients of the q-multinomial."""
    counts, placed = [1], 0
    for size in ties:
        for step in range(1, size + 1):
            # times (1 - q^placed) / (1 - q^step); what it makes is a polynomial at every step
            placed += 1
            counts += [0] * placed
            for at in range(len(counts) - 1, placed - 1, -1):
                counts[at] -= counts[at - placed]
            for at in range(step, len(counts)):
                counts[at] += counts[at - step]
            del counts[len(counts) - step :]
    return tuple(counts)


# ---- curves from scores to probabilities


def interpolate(knots: Sequence[tuple[float, float]], x: float) -> float:
    """Return the value at x of the line through the knots (sorted by x); flat outside them."""
    import numpy as np

    at, values = zip(*knots, strict=True)
    return float(np.interp(x, at, values))


def sigmoid(x: float) -> float:
    """Return 1 / (1 + exp(-x))."""
    from scipy.special import expit

    return float(expit(x))


def log_odds(share: float) -> float:
    """Return ln(p / (1 - p)), with p kept a millionth away from 0 and 1."""
    from scipy.special import logit

    return float(logit(min(max(share, 1e-6), 1 - 1e-6)))
