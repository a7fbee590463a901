"""A curve that decides about pairs, fitted to readings of pairs whose better side is known.

A judge's readings of two replies are two numbers: the preference (mean log-odds over both orders) and the
margin (difference of the scores, paired over wordings). Both change their sign when the pair is turned round,
so the curve is a logistic regression without intercept, and every known pair says something twice: that its
better side is better, and that its worse side is not. Figures are of both: with k better and j worse sides
above a threshold, precision is k / (k + j) and recall k / n.

It is evaluated by cross-validation: each pair is scored by weights and a threshold that were fitted
without its dialogue. Planted flaws are held out by kind as well, since what a curve decides about later has
flaws that nobody planted: a pair with a negation is decided by a curve that saw no negation. A threshold is set on
probabilities that were cross-validated in the same way, inside of what it is fitted to. The weights of the curve
itself are fitted to all pairs, its threshold to the cross-validated probabilities of all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Literal

from curate.errors import UsageError
from curate.records import JudgeIdentity, KindFigures, PairCurve
from curate.statistics import sigmoid, wilson
from curate.trust.agreement import (
    Statistic,
    grouped_interval,
    of_sample,
    resampled_aucs,
    resampled_means,
)
from curate.trust.levels import FOLDS, grouped_folds
from curate.wording import plural

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

LEAST_PAIRS = 40
"""Pairs below which nothing is fitted: a precision of .9 is not told from .8 by fewer."""
_RIDGE = 1.0


@dataclass(frozen=True, slots=True)
class KnownPair:
    """The readings of a pair, taken with the truly better side as the chosen one.

    Attributes:
        preference: mean log-odds over both orders that the better side is better.
        margin: difference of scores, better minus worse.
        group: the dialogue it is from.
        kind: what is wrong with the worse side; of labelled pairs what says so.
    """

    preference: float
    margin: float
    group: str
    kind: str = ""

    def turned(self) -> KnownPair:
        """Return the same readings with the other side as the better one."""
        return replace(self, preference=-self.preference, margin=-self.margin)


@dataclass(frozen=True, slots=True)
class HeldOut:
    """A pair's probability and threshold from a curve that did not see its dialogue.

    Attributes:
        probability: that its better side is better.
        threshold: from which on a pair passes; None where no threshold reached the precision asked for.
    """

    probability: float
    threshold: float | None = None

    @property
    def better_passes(self) -> bool:
        """The pair passes as it is."""
        return self.threshold is not None and self.probability >= self.threshold

    @property
    def worse_passes(self) -> bool:
        """The pair passes turned round, with the worse side as the chosen one."""
        return self.threshold is not None and 1 - self.probability >= self.threshold


@dataclass(frozen=True, slots=True)
class AcceptedShare:
    """Counts of what passes, among pairs and the same pairs turned round."""

    pairs: int
    better: int
    worse: int

    @property
    def precision(self) -> float | None:
        """Share of truly better sides among those that pass; None where none does."""
        accepted = self.better + self.worse
        return self.better / accepted if accepted else None

    @property
    def recall(self) -> float:
        """Share of truly better sides that pass."""
        return self.better / self.pairs if self.pairs else 0.0


def fit_pair_curve(
    pairs: Sequence[KnownPair],
    identity: JudgeIdentity,
    *,
    fitted_on: Literal["labels", "twins"],
    source: str = "",
    precision: float = 0.9,
) -> PairCurve:
    """Fit the curve and the least probability at which so large a share of what passes is truly better.

    Args:
        pairs: at least 40, of at least 5 dialogues.
        identity: whose readings they are.
        fitted_on: where the truth comes from.
        source: names the pairs: a file, a run, a recipe.
        precision: share asked for, above .5 and below 1.

    Raises:
        UsageError: too few pairs; a judge that cannot tell the sides apart (the lower end of its AUC's
            interval is not above .5); one whose readings reach that precision at no threshold.
    """
    groups = sorted({pair.group for pair in pairs})
    if len(pairs) < LEAST_PAIRS or len(groups) < FOLDS:
        raise UsageError(
            "too few pairs to fit a curve to",
            got=f"{plural(len(pairs), 'pair')} of {plural(len(groups), 'dialogue')} that the judge could answer about",
            expected=f"at least {LEAST_PAIRS} pairs of {FOLDS} dialogues",
        )
    validation = CrossValidation(pairs, hold_out_kinds=fitted_on == "twins")
    probabilities = validation.probabilities()
    area, interval = check_signal(pairs, probabilities, fitted_on)
    threshold = least_threshold(probabilities, precision)
    if threshold is None:
        raise UsageError(
            "this judge reaches the required precision at no threshold",
            got=f"{plural(len(pairs), 'pair')}, AUC {area:.2f}",
            expected=f"{precision:g} of the accepted pairs right, less one standard error",
            fix="lower --precision, fit to more pairs, or use a better judge",
        )
    preference_weight, margin_weight = fit_weights(pairs)
    held_out = validation.held_out(precision)
    reached = accepted(held_out)
    better, worse = [h.better_passes for h in held_out], [h.worse_passes for h in held_out]
    return PairCurve(
        identity=identity,
        fitted_on=fitted_on,
        source=source,
        preference_weight=preference_weight,
        margin_weight=margin_weight,
        precision=precision,
        threshold=threshold,
        pairs=len(pairs),
        dialogues=len(groups),
        auc=area,
        auc_interval=interval,
        reached_precision=reached.precision,
        precision_interval=bootstrap_pairs(pairs, partial(_precisions, better, worse)),
        recall=reached.recall,
        recall_interval=bootstrap_pairs(pairs, partial(resampled_means, better)),
        kinds=_by_kind(pairs, held_out),
    )


def check_signal(
    pairs: Sequence[KnownPair],
    probabilities: Sequence[float],
    fitted_on: Literal["labels", "twins"],
) -> tuple[float, tuple[float, float]]:
    """Return the AUC of pairs by these probabilities, with its interval.

    Raises:
        UsageError: the lower end of the interval is not above .5: this judge cannot tell the sides apart.
    """
    area = area_under(probabilities)
    interval = bootstrap_pairs(pairs, partial(_areas, probabilities))
    if area is None or interval[0] <= 0.5:
        labels = "planted twins" if fitted_on == "twins" else "the better side of labelled pairs"
        raise UsageError(
            f"this judge cannot tell {labels} apart",
            got=f"AUC {area or 0:.2f} (95 % {interval[0]:.2f} to {interval[1]:.2f}) on {plural(len(pairs), 'pair')};"
            " chance gives 0.50",
            expected="an interval above 0.50",
            fix="use a better judge: no threshold makes up for this",
        )
    return area, interval


def fit_weights(pairs: Sequence[KnownPair]) -> tuple[float, float]:
    """Return the weights of preference and margin in the log-odds; ridge logistic regression without intercept.

    Readings are scaled by their root mean square, not centred: a pair turned round must get the opposite. A
    reading that speaks against the truth beside the other gets no weight rather than a negative one. No pairs
    give no weights.
    """
    import numpy as np
    from sklearn.linear_model import LogisticRegression

    if not pairs:
        return 0.0, 0.0
    readings = np.array([(pair.preference, pair.margin) for pair in pairs], dtype=float)
    scale = np.sqrt((readings**2).mean(axis=0))
    scale[scale == 0] = 1.0
    both = np.concatenate([readings / scale, -readings / scale])
    truth = np.repeat([1, 0], len(pairs))
    weights = np.zeros(2)
    used = [0, 1]
    while used:
        # The solver for many rows and few columns: the default one takes ten times as long.
        model = LogisticRegression(C=_RIDGE, fit_intercept=False, solver="newton-cholesky")
        fitted = model.fit(both[:, used], truth).coef_[0]
        if (fitted >= 0).all():
            weights[used] = fitted / scale[used]
            break
        used.pop(int(fitted.argmin()))
    return float(weights[0]), float(weights[1])


_Cell = tuple[int, str | None]
"""A fold of dialogues and a kind, which are held out together; None where kinds are not held out."""


@dataclass(slots=True)
class CrossValidation:
    """Cross-validation: each pair is scored by weights and a threshold fitted to other dialogues.

    Attributes:
        pairs: all that are known.
        hold_out_kinds: and to other kinds, where there are three or more.
    """

    pairs: Sequence[KnownPair]
    hold_out_kinds: bool
    _cells: list[_Cell] = field(init=False)
    _weights: dict[frozenset[_Cell], tuple[float, float]] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        folds = grouped_folds([pair.group for pair in self.pairs])
        fold_of = {at: number for number, fold in enumerate(folds) for at in fold}
        by_kind = self.hold_out_kinds and len({pair.kind for pair in self.pairs}) > 2
        self._cells = [
            (fold_of[at], pair.kind if by_kind else None) for at, pair in enumerate(self.pairs)
        ]

    def probabilities(self) -> list[float]:
        """Return for each pair the probability that its better side is better."""
        return [
            probability(pair, *self._weights_without(cell))
            for pair, cell in zip(self.pairs, self._cells, strict=True)
        ]

    def held_out(self, precision: float) -> list[HeldOut]:
        """Return each pair with its probability and the threshold that its own fold and kind had no part in."""
        thresholds = {cell: self._threshold_without(cell, precision) for cell in set(self._cells)}
        return [
            HeldOut(probability, thresholds[cell])
            for probability, cell in zip(self.probabilities(), self._cells, strict=True)
        ]

    def _threshold_without(self, cell: _Cell, precision: float) -> float | None:
        probabilities = [
            probability(pair, *self._weights_without(cell, own))
            for pair, own in zip(self.pairs, self._cells, strict=True)
            if not _meet(own, cell)
        ]
        return least_threshold(probabilities, precision)

    def _weights_without(self, *cells: _Cell) -> tuple[float, float]:
        key = frozenset(cells)
        if key not in self._weights:
            self._weights[key] = fit_weights(
                [
                    pair
                    for pair, own in zip(self.pairs, self._cells, strict=True)
                    if not any(_meet(own, cell) for cell in cells)
                ]
            )
        return self._weights[key]


def _meet(one: _Cell, other: _Cell) -> bool:
    """Return whether two cells are of one fold or of one kind."""
    return one[0] == other[0] or (one[1] is not None and one[1] == other[1])


def probability(pair: KnownPair, preference_weight: float, margin_weight: float) -> float:
    """Return the probability that the better side of a pair is better, by these weights."""
    return sigmoid(preference_weight * pair.preference + margin_weight * pair.margin)


def accepted(pairs: Sequence[HeldOut]) -> AcceptedShare:
    """Return how many pairs pass, as they are and turned round."""
    return AcceptedShare(
        pairs=len(pairs),
        better=sum(pair.better_passes for pair in pairs),
        worse=sum(pair.worse_passes for pair in pairs),
    )


def least_threshold(probabilities: Sequence[float], precision: float) -> float | None:
    """Return the least threshold above .5 from which on so large a share of what passes is truly better; None without.

    The share counts less one standard error (Wilson's lower end at z = 1; n of n counts as n / (n + 1)), because
    what is asked for is to hold beyond the pairs the threshold is set on: at the share itself it falls short of it
    about every second time.
    """
    worse = 0
    threshold = None
    ordered = sorted(probabilities, key=lambda p: abs(p - 0.5), reverse=True)
    for passed, p in enumerate(ordered, start=1):
        if p == 0.5:
            break
        worse += p < 0.5
        following = ordered[passed] if passed < len(ordered) else 0.5
        is_tied = abs(following - 0.5) == abs(p - 0.5)
        if not is_tied and wilson(1 - worse / passed, passed, z=1)[0] > precision - 1e-9:
            threshold = max(p, 1 - p)
    return threshold


def area_under(probabilities: Sequence[float]) -> float | None:
    """Return the AUC of pairs, by the probability of their better sides, against the same pairs turned round."""
    return of_sample(partial(_areas, probabilities), len(probabilities))


def bootstrap_pairs(pairs: Sequence[KnownPair], statistic: Statistic) -> tuple[float, float]:
    """Return the 95 % interval of a figure of pairs, dialogues drawn whole."""
    return grouped_interval(statistic, [pair.group for pair in pairs]) or (0.0, 1.0)


def _areas(
    probabilities: Sequence[float], counts: npt.NDArray[np.float64]
) -> npt.NDArray[np.float64]:
    """Return `area_under` of each resample of the pairs."""
    import numpy as np

    turned = [1 - p for p in probabilities]
    is_better = [True] * len(probabilities) + [False] * len(turned)
    return resampled_aucs([*probabilities, *turned], is_better, np.hstack((counts, counts)))


def _precisions(
    better: Sequence[bool], worse: Sequence[bool], counts: npt.NDArray[np.float64]
) -> npt.NDArray[np.float64]:
    """Return the share of better sides among what passes in each resample; NaN where nothing does."""
    import numpy as np

    right, wrong = counts @ np.asarray(better, float), counts @ np.asarray(worse, float)
    with np.errstate(invalid="ignore"):
        shares: npt.NDArray[np.float64] = right / (right + wrong)
    return shares


def _by_kind(pairs: Sequence[KnownPair], held_out: Sequence[HeldOut]) -> dict[str, KindFigures]:
    figures: dict[str, KindFigures] = {}
    for kind in sorted({pair.kind for pair in pairs}):
        share = accepted(
            [one for pair, one in zip(pairs, held_out, strict=True) if pair.kind == kind]
        )
        figures[kind] = KindFigures(
            pairs=share.pairs, accepted=share.better, accepted_wrong=share.worse
        )
    return figures
