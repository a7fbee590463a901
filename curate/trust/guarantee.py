"""Guarantees from labels of a sample about the share of bad ones in a whole set, with a stated confidence.

The promise is P1: in at most a share `error` of such cases is more than a share `risk` of the set bad. Chance is in
the draw of the labels alone, so nothing is assumed of the judge, of how the set was selected or of how its members
resemble each other: a test that holds for a finite set holds for one with clusters and ties, too. Three tests: of
a set as it is (`p_value`), of a set while it is being labelled (`anytime`), and of thresholds on a score
(`certified_threshold`). Numbers go in and come out; runs and files are `run.labels.certify`'s.

numpy and scipy are imported where they are used, so that the command line starts fast.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

SHARES: Final = tuple(round(0.05 * step, 2) for step in range(1, 21))
"""Accepted shares of the pool whose quantiles are the thresholds that are tried."""
MOST_LABELS: Final = 20_000
"""How far a plan looks for a number of labels that suffices."""
LONGEST_AUDIT: Final = 5_000
"""How far a plan follows an audit that may stop at any time."""
AUDITS: Final = 2_000
"""Audits that a plan simulates."""


@dataclass(frozen=True, slots=True)
class Stratum:
    """The labels of one part of a set.

    Attributes:
        size: members of the set in this part; None where the labels are of unknown origin, and of no part.
        labelled: those that were drawn and labelled, each with the same chance within the part.
        bad: those of them that are bad.
    """

    size: int | None
    labelled: int
    bad: int


@dataclass(frozen=True, slots=True)
class Tally:
    """The labels of a set, by the parts that it was drawn in; one part where it was drawn at random as a whole."""

    strata: tuple[Stratum, ...]

    @property
    def size(self) -> int | None:
        """Members of the set; None where the labels are of unknown origin."""
        sizes = [stratum.size for stratum in self.strata]
        return None if None in sizes else sum(size for size in sizes if size is not None)

    @property
    def labelled(self) -> int:
        """Labels in all."""
        return sum(stratum.labelled for stratum in self.strata)

    @property
    def bad(self) -> int:
        """Bad ones in all."""
        return sum(stratum.bad for stratum in self.strata)


def simple(bad: int, labelled: int, size: int | None = None) -> Tally:
    """Return the tally of labels drawn at random from a whole set of `size`; None for labels taken as independent draws."""
    return Tally((Stratum(size, labelled, bad),))


def too_many(risk: float, size: int) -> int:
    """Return the least number of bad members that is more than a share `risk` of `size`."""
    return math.floor(risk * size + 1e-9) + 1


# ---- the audit of a set


def p_value(tally: Tally, risk: float) -> float:
    """Return the greatest chance of so few bad labels, were more than a share `risk` of the set bad.

    A set of known size: hypergeometric, exact. Unknown: binomial. Several parts: the number of bad labels is then a
    sum of independent trials with unlike chances, for which the binomial distribution with their mean chance is an
    upper bound (Hoeffding 1956, theorem 4, up to one below the mean; a hypergeometric count is such a sum, Vatutin
    and Mikhailov 1982); the mean is taken where it is least, the bad ones in the parts that were sampled least.

    Returns:
        In [0, 1]. The set is certified with a confidence of 1 - error where it is at most `error`.
    """
    from scipy.stats import binom

    size = tally.size
    if size is None:
        return float(binom.cdf(tally.bad, tally.labelled, risk))
    return _p_of(tally, too_many(risk, size))


def upper_bound(tally: Tally, confidence: float) -> float:
    """Return the upper bound of the share of bad ones, with this confidence, 0-1.

    Of labels of unknown origin Clopper and Pearson's (1934) bound, beta.ppf(confidence, k + 1, n - k).
    """
    size, error = tally.size, 1 - confidence
    if size is None:
        if tally.bad >= tally.labelled:
            return 1.0
        from scipy.stats import beta

        return float(beta.ppf(confidence, tally.bad + 1, tally.labelled - tally.bad))
    return _least_ruled_out(tally.bad, size, lambda bad: _p_of(tally, bad + 1) <= error)


def _least_ruled_out(bad: int, size: int, rules_out: Callable[[int], bool]) -> float:
    """Return the least share of a set, at least that of its `bad` known ones, of which the labels rule out any more."""
    return bisect_left(range(size), True, bad, size, key=rules_out) / size if size else 0.0


def _p_of(tally: Tally, bad: int) -> float:
    """Return `p_value` where `bad` is the least number of bad members that is too many."""
    from scipy.stats import binom, hypergeom

    size = tally.size
    assert size is not None
    if bad > size:
        return 0.0
    if len(tally.strata) == 1:
        return float(hypergeom.cdf(tally.bad, size, bad, tally.labelled))
    if not tally.labelled:
        return 1.0
    expected = _fewest_bad_labels(tally, bad)
    if tally.bad > expected - 1:
        return 1.0
    return float(binom.cdf(tally.bad, tally.labelled, expected / tally.labelled))


def _fewest_bad_labels(tally: Tally, bad: int) -> float:
    """Return the number of bad labels to expect where `bad` members lie in the parts with the smallest sampled shares."""
    expected = 0.0
    parts = [(s.labelled / s.size, s.size) for s in tally.strata if s.size]
    for share, size in sorted(parts):
        here = min(bad, size)
        expected, bad = expected + share * here, bad - here
    return expected


# ---- the audit that may stop at any time


@dataclass(frozen=True, slots=True)
class AnytimeAudit:
    """The result of an audit of labels in a random order.

    Attributes:
        evidence: the greatest e-value so far; certified where it is at least 1 / error.
        labels: how many labels it took to get there; all of them where it did not.
    """

    evidence: float
    labels: int


def anytime(bad: Sequence[bool], risk: float, error: float, size: int) -> AnytimeAudit:
    """Bet against "too many are bad" at every label; valid whenever one stops (Ville 1939).

    The product over labels of p/a where one is bad and (1-p)/(1-a) where it is not, p = a/3 fixed before, is a
    supermartingale where a is the least chance that the next label is bad. Drawn without replacement from a set of
    N of which M are bad, after k of t were bad, that is (M - k)/(N - t); for a large set it is `risk`.

    Args:
        bad: labels in the order of the draw, a random permutation of the set.
        risk: share that may be bad.
        error: of the certificate, one less its confidence.
        size: of the set.
    """
    return _bet(bad, too_many(risk, size), error, size)


def anytime_bound(bad: Sequence[bool], confidence: float, size: int) -> float:
    """Return the upper bound of the share of bad ones that holds at every look at once, 0-1."""
    error = 1 - confidence
    return _least_ruled_out(
        sum(bad), size, lambda number: _bet(bad, number + 1, error, size).evidence >= 1 / error
    )


def _bet(bad: Sequence[bool], too_many_bad: int, error: float, size: int) -> AnytimeAudit:
    log_e, best, bad_so_far = 0.0, 0.0, 0
    if too_many_bad > size:
        return AnytimeAudit(math.inf, 0)
    for number, is_bad in enumerate(bad):
        chance = (too_many_bad - bad_so_far) / (size - number)
        if chance <= 0:  # as many bad ones were seen as are too many
            break
        if is_bad:
            bad_so_far += 1
            log_e -= math.log(3)
        elif chance >= 1:
            return AnytimeAudit(math.inf, number + 1)
        else:
            log_e += math.log1p(-chance / 3) - math.log1p(-chance)
        best = max(best, log_e)
        if log_e >= -math.log(error):
            return AnytimeAudit(math.exp(log_e), number + 1)
    return AnytimeAudit(math.exp(best), len(bad))


# ---- the certified threshold


@dataclass(frozen=True, slots=True)
class Step:
    """One threshold that was tried: the labels at or above it, and the chance of so few bad ones."""

    threshold: float
    tally: Tally
    p_value: float
    passed: bool


def threshold_grid(scores: Iterable[float]) -> list[float]:
    """Return the scores at or above which the `SHARES` of a pool lie, strict first, each once.

    Equal scores lie on one side of a threshold, so a share is at least what is asked for.
    """
    ranked = sorted(scores, reverse=True)
    if not ranked:
        return []
    # 0.55 * 100 is 55.00000000000001; rounding first keeps that 55
    places = (math.ceil(round(share * len(ranked), 9)) for share in SHARES)
    return list(dict.fromkeys(ranked[max(1, place) - 1] for place in places))


def certified_threshold(
    sets: Iterable[tuple[float, Tally]], risk: float, error: float
) -> tuple[Step, ...]:
    """Walk from strict to loose thresholds, and stop at the first that does not pass (fixed-sequence testing).

    What may be asked in one order, each at the full error, needs no correction for how often one asks. All that
    passed hold at once. None may: then there is no threshold, not the strictest. The first that is asked is the one
    with labels enough that it does not hang on one bad label (`first_labels`).

    Args:
        sets: thresholds with the labels of those at or above, strict first, fixed before labels were seen.
        risk, error: as in `p_value`.

    Returns:
        The thresholds that were asked, in order; the last that passed is the answer.
    """
    sets = list(sets)
    if not sets:
        return ()
    labels = sets[-1][1].labelled
    enough = (tally.labelled >= first_labels(labels, risk, error, tally.size) for _, tally in sets)
    walked = sets[next((at for at, is_enough in enumerate(enough) if is_enough), len(sets) - 1) :]
    steps: list[Step] = []
    for threshold, tally in walked:
        p = p_value(tally, risk)
        steps.append(Step(threshold, tally, p, p <= error))
        if p > error:
            break
    return tuple(steps)


def first_labels(labels: int, risk: float, error: float, size: int | None = None) -> int:
    """Return the number of labels of the first threshold that is tried: 60, or 100 where there are 300 in all, at a risk and error of .1.

    Those are the least that pass with two bad ones among them (five), and a little more; so it is for other risks, and
    for a set of known size, of which fewer labels prove as much.
    """
    bad, share = (2, 60 / 52) if labels < 300 else (5, 100 / 91)
    return math.ceil(share * least_labels(bad, risk, error, size) - 1e-9)


# ---- how many labels it takes


@lru_cache(maxsize=256)
def least_labels(bad: int, risk: float, error: float, size: int | None = None) -> int:
    """Return the least number of labels that pass with so many bad ones among them; `size` where the set is known."""
    most = size if size is not None else 10**9

    def passes(labels: int) -> bool:
        return p_value(simple(bad, labels, size), risk) <= error

    high = bad + 1
    while high < most and not passes(high):
        high *= 2
    high = min(high, most)
    return bisect_left(range(high), True, min(bad + 1, high), high, key=passes)


def labels_for(
    rate: float, risk: float, error: float, power: float, size: int | None = None
) -> int | None:
    """Return the least number of labels that pass with probability `power` where a share `rate` is bad.

    Returns:
        None where up to `MOST_LABELS`, or all of the set, do not suffice.
    """
    import numpy as np
    from scipy.stats import binom, hypergeom

    if rate >= risk:
        return None
    most = MOST_LABELS if size is None else min(size, MOST_LABELS)
    labels = np.arange(1, most + 1)
    passing = _most_bad(labels, risk, error, size)
    if size is None:
        chance = binom.cdf(passing, labels, rate)
    else:
        chance = hypergeom.cdf(passing, size, round(rate * size), labels)
    enough = np.flatnonzero((chance >= power) & (passing >= 0))
    return int(labels[enough[0]]) if enough.size else None


def labels_missing(tally: Tally, risk: float, error: float) -> int | None:
    """Return how many more labels would certify if bad ones came at the rate seen; None where more do not help."""
    import numpy as np

    size, labelled = tally.size, tally.labelled
    if not labelled or tally.bad / labelled >= risk:
        return None
    most = MOST_LABELS if size is None else min(size, MOST_LABELS)
    labels = np.arange(labelled + 1, most + 1)
    bad = np.ceil(tally.bad / labelled * labels - 1e-9)
    passing = bad <= _most_bad(labels, risk, error, size)
    enough = np.flatnonzero(passing)
    return int(labels[enough[0]]) - labelled if enough.size else None


def anytime_labels(
    rate: float, risk: float, error: float, powers: Sequence[float], size: int
) -> tuple[int | None, ...]:
    """Return the numbers of labels after which these shares of audits that may stop have passed, where a share `rate` of `size` is bad.

    From simulated audits with a fixed seed; none of more than `LONGEST_AUDIT` labels.

    Returns:
        For each of `powers`, 0-1; None where fewer audits pass at all.
    """
    import numpy as np

    if rate >= risk:
        return tuple(None for _ in powers)
    draw = np.random.default_rng(42)
    number_bad = round(rate * size)
    taken: list[int] = []
    for _ in range(AUDITS):
        # the places of the bad ones in a random order of the set
        is_bad = np.zeros(size, dtype=bool)
        is_bad[draw.choice(size, number_bad, replace=False)] = True
        audit = anytime(is_bad[:LONGEST_AUDIT].tolist(), risk, error, size)
        passed = audit.evidence >= 1 / error
        taken.append(audit.labels if passed else LONGEST_AUDIT + 1)
    ranked = sorted(taken)
    needed = [ranked[math.ceil(power * AUDITS) - 1] for power in powers]
    return tuple(labels if labels <= LONGEST_AUDIT else None for labels in needed)


def anytime_missing(bad: int, labels: int, risk: float, error: float) -> int | None:
    """Return how many more labels would certify an audit that may stop, if bad ones came at the rate seen; of a large set."""
    if not labels:
        return None
    rate = bad / labels
    growth = (1 - rate) * (math.log1p(-risk / 3) - math.log1p(-risk)) - rate * math.log(3)
    return max(1, math.ceil(-math.log(error) / growth) - labels) if growth > 0 else None


def _most_bad(
    labels: npt.NDArray[np.int64], risk: float, error: float, size: int | None
) -> npt.NDArray[np.float64]:
    """Return the most bad ones with which each number of labels passes; -1 where none do."""
    import numpy as np
    from scipy.stats import binom, hypergeom

    known: Any = binom if size is None else hypergeom
    shape = (labels, risk) if size is None else (size, too_many(risk, size), labels)
    # the least k whose cdf is at least `error`; one less where it is above
    least = known.ppf(error, *shape)
    most: npt.NDArray[np.float64] = np.where(known.cdf(least, *shape) <= error, least, least - 1)
    return most
