"""Weights of metrics fitted to dialogues that people find good, beside the recipe's weights.

Non-negative least squares: a better score never counts against a dialogue. Its figures are by cross-validation, and
stand beside those of the given weights on the same dialogues, so that one sees whether fitting was worth it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from curate.errors import UsageError
from curate.records.calibration import MetricWeights
from curate.trust.agreement import auc, grouped_interval, resampled_auc_gains
from curate.trust.levels import grouped_folds, splits
from curate.trust.p_good import refuse_too_few_verdicts


@dataclass(frozen=True, slots=True)
class MeasuredDialogue:
    """A dialogue's metrics as heights (0-1, of its scale's highest; None for n/a), and whether people find it good."""

    heights: Mapping[str, float | None]
    is_good: bool
    group: str


def fit_metric_weights(
    dialogues: Sequence[MeasuredDialogue], current: Mapping[str, float]
) -> MetricWeights:
    """Fit weights to what people find good.

    Args:
        dialogues: at least 20, at least 5 of each kind.
        current: the recipe's weights by metric; those fitted are of the same metrics.

    Raises:
        UsageError: too few labels, too few of one kind, or no metric that rises with what people find good.
    """
    labels = [item.is_good for item in dialogues]
    refuse_too_few_verdicts(labels, "weights of metrics", "metrics")
    names = [*current]
    weights = _fit(dialogues, names)
    if weights is None:
        raise UsageError(
            "no metric is higher where people find a dialogue good",
            expected="a judge whose metrics tell good dialogues from others",
        )
    fitted = [0.0] * len(dialogues)
    groups = [item.group for item in dialogues]
    for rest, fold in splits(grouped_folds(groups), len(dialogues)):
        own = _fit([dialogues[at] for at in rest], names) or current
        for at in fold:
            fitted[at] = _overall(dialogues[at].heights, own)
    plain = [_overall(item.heights, current) for item in dialogues]
    auc_fitted, auc_given = auc(fitted, labels), auc(plain, labels)
    assert auc_fitted is not None
    assert auc_given is not None
    return MetricWeights(
        fitted=weights,
        given=dict(current),
        labels=len(labels),
        good=sum(labels),
        auc_fitted=auc_fitted,
        auc_given=auc_given,
        gain=grouped_interval(partial(resampled_auc_gains, fitted, plain, labels), groups),
    )


def _fit(dialogues: Sequence[MeasuredDialogue], names: Sequence[str]) -> dict[str, float] | None:
    """Return weights that sum to 1; None where none is above 0. A value of n/a counts as the metric's mean."""
    import numpy as np
    from scipy.optimize import nnls

    # None is NaN to numpy.
    table = np.array(
        [[dialogue.heights.get(name) for name in names] for dialogue in dialogues], float
    )
    labels = np.array([dialogue.is_good for dialogue in dialogues], dtype=float)
    known = ~np.isnan(table)
    table -= np.where(known, table, 0.0).sum(axis=0) / np.maximum(known.sum(axis=0), 1)
    weights, _ = nnls(np.where(known, table, 0.0), labels - labels.mean())
    total = float(weights.sum())
    if total <= 0:
        return None
    return {name: float(weight) / total for name, weight in zip(names, weights, strict=True)}


def _overall(heights: Mapping[str, float | None], weights: Mapping[str, float]) -> float:
    """Return the weighted mean of what is not n/a, as the overall score has it; 0.5 where nothing that has a weight is left."""
    parts = [
        (weight, height)
        for name, weight in weights.items()
        if (height := heights.get(name)) is not None
    ]
    total = sum(weight for weight, _ in parts)
    return sum(weight * height for weight, height in parts) / total if total > 0 else 0.5
