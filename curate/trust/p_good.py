"""p_good: the probability that people find a dialogue good, fitted to verdicts or accept/reject.

People give one word about a dialogue quickly, not fifteen digits. A ridge logistic regression over the
readings that a run has anyway makes a probability of it. It is stored as plain numbers and needs no package
to be applied (`records.GoodModel`).

Every reading is higher for the better dialogue, so no weight is negative: with 25 labels and a dozen readings that
say nearly the same, free weights fit the noise by setting one reading against another.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from curate.errors import UsageError
from curate.records import GoodModel, JudgeIdentity
from curate.records.readings import ADHERENCE, METRIC
from curate.trust.agreement import auc, brier_score, grouped_interval, resampled_means
from curate.trust.levels import grouped_folds, splits

LEAST_LABELS = 20
LEAST_OF_A_KIND = 5
_RIDGE = 0.3
"""Inverse of the penalty, as scikit-learn's C."""


def refuse_too_few_verdicts(is_good: Sequence[bool], fitted: str, readings: str) -> None:
    """Refuse to fit to fewer than 20 verdicts of people, or fewer than 5 of one kind.

    Args:
        is_good: what people say of each dialogue.
        fitted, readings: what is fitted to them and what the dialogues have, for the error.

    Raises:
        UsageError: too few.
    """
    good = sum(is_good)
    bad = len(is_good) - good
    if len(is_good) < LEAST_LABELS or min(good, bad) < LEAST_OF_A_KIND:
        raise UsageError(
            f"too few verdicts of people for {fitted}",
            got=f"{len(is_good)} labelled dialogues with {readings}, {good} good and {bad} not",
            expected=f"{LEAST_LABELS} or more, {LEAST_OF_A_KIND} of each kind",
        )


@dataclass(frozen=True, slots=True)
class LabelledDialogue:
    """A dialogue's readings by name (None where it has no such), and whether people find it good."""

    features: Mapping[str, float | None]
    is_good: bool
    group: str


def fit_good(
    dialogues: Sequence[LabelledDialogue],
    adherence: JudgeIdentity | None = None,
    metrics: JudgeIdentity | None = None,
) -> GoodModel:
    """Fit p_good, with its figures by cross-validation (5 folds, groups kept together).

    Args:
        dialogues: at least 20, at least 5 of each kind. A reading that none of them has, or that is the
            same in all, is left out.
        adherence: whose role adherence is among the readings.
        metrics: whose weighted metrics are.

    Raises:
        UsageError: too few labels, too few of one kind, or no reading that differs.
    """
    labels = [dialogue.is_good for dialogue in dialogues]
    refuse_too_few_verdicts(labels, "p_good", "readings")
    names = _telling(dialogues)
    if not names:
        raise UsageError(
            "no reading differs between the labelled dialogues",
            expected="a judge that tells them apart",
        )
    groups = [dialogue.group for dialogue in dialogues]
    predicted, without = [0.0] * len(labels), [0.0] * len(labels)
    for others, fold in splits(grouped_folds(groups), len(dialogues)):
        rest = [dialogues[at] for at in others]
        share = sum(dialogue.is_good for dialogue in rest) / len(rest)
        model = _fit(rest, _telling(rest)) if 0 < share < 1 and _telling(rest) else None
        for at in fold:
            known = dialogues[at].features
            predicted[at] = share if model is None else model.probability(known)
            without[at] = share
    brier, plain = brier_score(predicted, labels), brier_score(without, labels)
    assert brier is not None
    assert plain is not None
    fitted = _fit(dialogues, names)
    squares = [(p - label) ** 2 for p, label in zip(predicted, labels, strict=True)]
    return fitted.model_copy(
        update={
            "adherence": adherence if ADHERENCE in names else None,
            "metrics": metrics if any(name.startswith(METRIC) for name in names) else None,
            "auc": auc(predicted, labels),
            "brier": brier,
            "brier_interval": grouped_interval(partial(resampled_means, squares), groups),
            "brier_without": plain,
        }
    )


def _fit(dialogues: Sequence[LabelledDialogue], names: Sequence[str]) -> GoodModel:
    import numpy as np

    # None is NaN to numpy.
    table = np.array(
        [[dialogue.features.get(name) for name in names] for dialogue in dialogues], float
    )
    means = np.nanmean(table, axis=0)
    table = np.where(np.isnan(table), means, table)
    scales = table.std(axis=0)
    labels = [dialogue.is_good for dialogue in dialogues]
    weights, intercept = _weights((table - means) / scales, labels)
    return GoodModel(
        features=tuple(names),
        means=tuple(means.tolist()),
        scales=tuple(scales.tolist()),
        weights=weights,
        intercept=intercept,
        labels=len(labels),
        good=sum(labels),
        brier=0.0,
        brier_without=0.0,
    )


def _weights(table: Any, labels: Sequence[bool]) -> tuple[tuple[float, ...], float]:
    """Return the weights of 0 or more and the intercept that minimise penalised log loss.

    Args:
        table: float array, dialogues by standardised readings.
        labels: of the dialogues.
    """
    import numpy as np
    from scipy.optimize import minimize

    signs = np.where(labels, 1.0, -1.0)
    number = table.shape[1]

    def loss(point: Any) -> tuple[float, Any]:
        weights = point[:number]
        margins = signs * (table @ weights + point[number])
        slopes = -signs / (1 + np.exp(margins))
        value = _RIDGE * np.logaddexp(0, -margins).sum() + 0.5 * (weights**2).sum()
        return value, np.append(_RIDGE * (table.T @ slopes) + weights, _RIDGE * slopes.sum())

    bounds = [(0, None)] * number + [(None, None)]
    start, exact = np.zeros(number + 1), {"ftol": 1e-14, "gtol": 1e-9}
    minimum = minimize(loss, start, jac=True, method="L-BFGS-B", bounds=bounds, options=exact)
    return tuple(minimum.x[:number].tolist()), float(minimum.x[number])


def _telling(dialogues: Sequence[LabelledDialogue]) -> list[str]:
    """Return the names of readings that differ between dialogues."""
    names = dict.fromkeys(name for dialogue in dialogues for name in dialogue.features)
    return [
        name
        for name in names
        if len({dialogue.features.get(name) for dialogue in dialogues} - {None}) > 1
    ]
