"""Per-judge calibration: from a judge's scores to probabilities, and the threshold that decides best.

A calibration is stored as a line in log-odds, or a list of knots: numbers that every run can apply without the package
that fitted them. scikit-learn, which fits them, is imported where it is used.

A curve is evaluated by cross-validation with the dialogues kept together: turns of one dialogue
share its role, so that a curve seen on some of them is not new to the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Literal

from curate.errors import UsageError
from curate.records import CalibrationFigures, JudgeCalibration, JudgeIdentity
from curate.statistics import interpolate, log_odds, sigmoid
from curate.trust.agreement import (
    accuracy,
    auc,
    brier_score,
    expected_calibration_error,
    grouped_interval,
    resampled_means,
)
from curate.trust.levels import grouped_folds, splits

CalibrationMethod = Literal["platt", "isotonic"]

LEAST_TURNS = 20
"""Labelled turns below which nothing is fitted."""


@dataclass(frozen=True, slots=True)
class LabelledScore:
    """A turn (or conversation) with the judge's raw score in [0, 1], its label, and the dialogue it belongs to."""

    score: float
    adherent: bool
    group: str


@dataclass(frozen=True, slots=True)
class ScoreOrigin:
    """The origin of scores: everything that must be the same where the calibration is applied."""

    identity: JudgeIdentity
    scoring_method: str
    evaluation_granularity: Literal["turn", "conversation"]
    definition: Literal["constructive", "restrictive"]


def fit_calibration(
    turns: Sequence[LabelledScore], judged: ScoreOrigin, method: CalibrationMethod = "platt"
) -> JudgeCalibration:
    """Fit a curve and a threshold to labelled turns, with the figures of a cross-validation.

    Args:
        turns: at least 20, of both classes, each class in two groups or more.
        judged: whose scores they are.
        method: platt (two parameters, a line in log-odds) or isotonic (any rising curve; it needs about a
            thousand turns to be better).

    Raises:
        UsageError: too few turns, one class only, scores that are all 0 or 1, or a judge that ranks
            violations above adherent turns (AUC 0.5 or less), which no rising curve can fix.
    """
    scores, labels = [turn.score for turn in turns], [turn.adherent for turn in turns]
    _check(turns, scores, labels)
    platt = fit_platt(scores, labels) if method == "platt" else (None, None)
    return JudgeCalibration(
        identity=judged.identity,
        scoring_method=judged.scoring_method,
        evaluation_granularity=judged.evaluation_granularity,
        definition=judged.definition,
        method=method,
        threshold=fit_threshold(scores, labels),
        slope=platt[0],
        intercept=platt[1],
        knots=fit_isotonic(scores, labels) if method == "isotonic" else (),
        turns=len(turns),
        adherent=sum(labels),
        groups=len({turn.group for turn in turns}),
        figures=cross_validate(turns),
    )


def fit_platt(scores: Sequence[float], labels: Sequence[bool]) -> tuple[float, float]:
    """Return the slope and intercept of log-odds(P) = slope * log-odds(score) + intercept.

    Platt's method (1999) with his smoothed targets, (n+ + 1) / (n+ + 2) and 1 / (n- + 2), so that classes
    which do not overlap still give a finite curve: a logistic regression without a penalty, in which every score
    stands once for either label, weighted by its target. On log-odds, since a judge's score is a probability:
    slope 1 and intercept 0 leave it as it is. A falling curve is not given: at best the slope is 0.
    """
    import numpy as np
    from sklearn.linear_model import LogisticRegression

    x = np.array([[log_odds(score)] for score in scores])
    positives = sum(labels)
    high, low = (positives + 1) / (positives + 2), 1 / (len(labels) - positives + 2)
    targets = np.where(np.asarray(labels, bool), high, low)
    share = float(targets.mean())
    if np.ptp(x):
        line = LogisticRegression(C=np.inf, solver="newton-cholesky", tol=1e-10)
        line.fit(
            np.vstack((x, x)),
            np.repeat((True, False), len(x)),
            sample_weight=np.concatenate((targets, 1 - targets)),
        )
        if line.coef_[0, 0] >= 0:
            return float(line.coef_[0, 0]), float(line.intercept_[0])
    return 0.0, log_odds(share)


def fit_isotonic(
    scores: Sequence[float], labels: Sequence[bool]
) -> tuple[tuple[float, float], ...]:
    """Return the knots of the rising curve nearest to the labels, by pooling adjacent violators (Ayer et al. 1955).

    Each pooled block is flat between its lowest and its highest score; between blocks the curve is a
    straight line.
    """
    from sklearn.isotonic import IsotonicRegression

    curve = IsotonicRegression().fit(scores, labels)
    return tuple(zip(curve.X_thresholds_.tolist(), curve.y_thresholds_.tolist(), strict=True))


def fit_threshold(scores: Sequence[float], labels: Sequence[bool]) -> float:
    """Return the least score of an adherent turn that is right most often; half way between two scores.

    Of thresholds that are equally often right, the one nearest to 0.5.
    """
    ordered = sorted(set(scores))
    cuts = [0.0, *((low + high) / 2 for low, high in pairwise(ordered))]
    pairs = sorted(zip(scores, labels, strict=True))
    right, best = sum(labels), (-1, 0.0, 0.0)
    at = 0
    for cut in cuts:
        while at < len(pairs) and pairs[at][0] < cut:
            right += 1 if not pairs[at][1] else -1
            at += 1
        best = max(best, (right, -abs(cut - 0.5), cut))
    return best[2]


def cross_validate(
    turns: Sequence[LabelledScore],
) -> dict[Literal["raw", "platt", "isotonic"], CalibrationFigures]:
    """Return the figures of the raw scores and of both curves on turns that they were not fitted to, groups kept together."""
    labels = [turn.adherent for turn in turns]
    raw = [turn.score for turn in turns]
    predicted: dict[Literal["raw", "platt", "isotonic"], list[float]] = {
        "raw": raw,
        "platt": [0.0] * len(turns),
        "isotonic": [0.0] * len(turns),
    }
    decided = [False] * len(turns)
    for rest, held_out in splits(folds_of_both(turns), len(turns)):
        scores, rest_labels = [raw[at] for at in rest], [labels[at] for at in rest]
        slope, intercept = fit_platt(scores, rest_labels)
        knots, threshold = fit_isotonic(scores, rest_labels), fit_threshold(scores, rest_labels)
        for at in held_out:
            predicted["platt"][at] = sigmoid(slope * log_odds(raw[at]) + intercept)
            predicted["isotonic"][at] = interpolate(knots, raw[at])
            decided[at] = raw[at] >= threshold
    groups = [turn.group for turn in turns]
    at_threshold = accuracy(labels, decided)
    figures: dict[Literal["raw", "platt", "isotonic"], CalibrationFigures] = {}
    for name, values in predicted.items():
        brier = brier_score(values, labels)
        ece = expected_calibration_error(values, labels)
        half = accuracy(labels, [value >= 0.5 for value in values])
        assert None not in (brier, ece, half, at_threshold)
        figures[name] = CalibrationFigures(
            brier=brier,
            ece=ece,
            accuracy_at_half=half,
            accuracy_at_threshold=at_threshold,
            brier_gain=None if name == "raw" else _gain(raw, values, labels, groups),
        )
    return figures


def _gain(
    raw: Sequence[float],
    curved: Sequence[float],
    labels: Sequence[bool],
    groups: Sequence[str],
) -> tuple[float, float] | None:
    """Return the 95 % bootstrap interval, over groups, of how much a curve lowers the Brier score."""
    each = [(raw[at] - label) ** 2 - (curved[at] - label) ** 2 for at, label in enumerate(labels)]
    return grouped_interval(partial(resampled_means, each), groups)


def folds_of_both(turns: Sequence[LabelledScore]) -> list[list[int]]:
    """Return the rows of each fold; groups with a violation are dealt first, so that every fold leaves both classes to fit to."""
    kinds: dict[str, set[bool]] = {}
    for turn in turns:
        kinds.setdefault(turn.group, set()).add(turn.adherent)
    return grouped_folds(
        [turn.group for turn in turns],
        first=lambda group: (False not in kinds[group], True not in kinds[group]),
    )


def _check(turns: Sequence[LabelledScore], scores: Sequence[float], labels: Sequence[bool]) -> None:
    in_class = {
        kind: len({turn.group for turn in turns if turn.adherent is kind}) for kind in (True, False)
    }
    if len(turns) < LEAST_TURNS or min(in_class.values()) < 2:
        raise UsageError(
            "too few labelled turns for a calibration",
            got=f"{len(turns)} labelled turns with a score; dialogues with an adherent one: "
            f"{in_class[True]}, with a violation: {in_class[False]}",
            expected=f"{LEAST_TURNS} turns, and each kind in two dialogues or more",
        )
    if set(scores) <= {0.0, 1.0}:
        raise UsageError(
            "scores that are all 0 or 1 cannot be calibrated",
            expected="scores of output_mode continuous, or of a reference method",
        )
    area = auc(scores, labels)
    if area is not None and area <= 0.5:
        raise UsageError(
            "the judge does not rank adherent turns above violations, which no calibration fixes",
            got=f"AUC {area:.3f} on {len(turns)} labelled turns",
            expected="more than 0.5",
            fix="check which label means adherent (--adherent), or take another judge",
        )
