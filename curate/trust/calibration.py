"""Per-judge calibration: from a judge's scores to probabilities, and the threshold that decides best.

Both curves are short enough to be written out, and have to be read without their makers: what is stored is
a line in log-odds, or a list of knots, applied by every run.

How good a curve is, is told by cross-validation with the dialogues kept together: turns of one dialogue
share its role, so that a curve seen on some of them is not new to the others.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from curate.errors import UsageError
from curate.records import CalibrationFigures, JudgeCalibration, JudgeIdentity
from curate.statistics import SEED, interpolate, log_odds, sigmoid
from curate.trust.agreement import (
    accuracy,
    auc,
    bootstrap_interval,
    brier_score,
    expected_calibration_error,
)

CalibrationMethod = Literal["platt", "isotonic"]

FOLDS = 5
LEAST_TURNS = 20
"""Labelled turns below which nothing is fitted."""
_NEWTON_STEPS = 100

Curve = Callable[[float], float]
"""Raw score to probability."""


@dataclass(frozen=True, slots=True)
class LabelledScore:
    """A turn (or conversation) with the judge's raw score in [0, 1], what it is, and what it belongs to."""

    score: float
    adherent: bool
    group: str


@dataclass(frozen=True, slots=True)
class Judged:
    """Whose scores they are: everything that has to be the same where the calibration is applied."""

    identity: JudgeIdentity
    scoring_method: str
    evaluation_granularity: Literal["turn", "conversation"]
    definition: Literal["constructive", "restrictive"]


def fit_calibration(
    turns: Sequence[LabelledScore], judged: Judged, method: CalibrationMethod = "platt"
) -> JudgeCalibration:
    """Fit a curve and a threshold to labelled turns, with the figures of a cross-validation.

    Args:
        turns: at least 20, of both classes, each class in two groups or more.
        judged: whose scores they are.
        method: platt (two parameters, a line in log-odds) or isotonic (any rising curve; it needs about a
            thousand turns to be better).

    Raises:
        UsageError: too few turns, one class only, scores that are all 0 or 1, or a judge that ranks
            violations above adherent turns (AUC 0.5 or less), which no rising curve can mend.
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
    """Slope and intercept of log-odds(P) = slope * log-odds(score) + intercept.

    Platt's method (1999) with his smoothed targets, (n+ + 1) / (n+ + 2) and 1 / (n- + 2), so that classes
    which do not overlap still give a finite curve; by Newton's method with halved steps (Lin, Lin and Weng
    2007). On log-odds, since a judge's score is a probability: slope 1 and intercept 0 leave it as it is. A
    falling curve is not given: at best the slope is 0.
    """
    x = [log_odds(score) for score in scores]
    positives = sum(labels)
    high, low = (positives + 1) / (positives + 2), 1 / (len(labels) - positives + 2)
    targets = [high if label else low for label in labels]

    def loss(slope: float, intercept: float) -> float:
        z = [slope * value + intercept for value in x]
        # -t ln(p) - (1 - t) ln(1 - p), without overflow
        return math.fsum(
            max(v, 0.0) - t * v + math.log1p(math.exp(-abs(v)))
            for v, t in zip(z, targets, strict=True)
        )

    slope, intercept = 0.0, math.log((positives + 1) / (len(labels) - positives + 1))
    best = loss(slope, intercept)
    for _ in range(_NEWTON_STEPS):
        p = [sigmoid(slope * value + intercept) for value in x]
        off = [probability - target for probability, target in zip(p, targets, strict=True)]
        bend = [q * (1 - q) for q in p]
        g1 = math.fsum(o * value for o, value in zip(off, x, strict=True))
        g0 = math.fsum(off)
        h11 = math.fsum(b * value * value for b, value in zip(bend, x, strict=True)) + 1e-12
        h10 = math.fsum(b * value for b, value in zip(bend, x, strict=True))
        h00 = math.fsum(bend) + 1e-12
        area = h11 * h00 - h10 * h10
        step1, step0 = (h00 * g1 - h10 * g0) / area, (h11 * g0 - h10 * g1) / area
        size = 1.0
        while size > 1e-10:
            tried = loss(slope - size * step1, intercept - size * step0)
            if tried < best:
                break
            size /= 2
        else:
            break
        slope, intercept, gain = slope - size * step1, intercept - size * step0, best - tried
        best = tried
        if gain < 1e-12:
            break
    if slope < 0:
        share = math.fsum(targets) / len(targets)
        return 0.0, math.log(share / (1 - share))
    return slope, intercept


def fit_isotonic(
    scores: Sequence[float], labels: Sequence[bool]
) -> tuple[tuple[float, float], ...]:
    """Knots of the rising curve nearest to the labels, by pooling adjacent violators (Ayer et al. 1955).

    Each pooled block is flat between its lowest and its highest score; between blocks the curve is a
    straight line, as in scikit-learn.
    """
    by_score: dict[float, list[bool]] = {}
    for score, label in zip(scores, labels, strict=True):
        by_score.setdefault(score, []).append(label)
    blocks: list[tuple[float, float, int, int]] = []  # lowest, highest, adherent, turns
    for score in sorted(by_score):
        held = by_score[score]
        lowest, highest, yes, n = score, score, sum(held), len(held)
        while blocks and blocks[-1][2] * n >= yes * blocks[-1][3]:
            before = blocks.pop()
            lowest, yes, n = before[0], yes + before[2], n + before[3]
        blocks.append((lowest, highest, yes, n))
    knots: list[tuple[float, float]] = []
    for lowest, highest, yes, n in blocks:
        knots.append((lowest, yes / n))
        if highest > lowest:
            knots.append((highest, yes / n))
    return tuple(knots)


def fit_threshold(scores: Sequence[float], labels: Sequence[bool]) -> float:
    """The least score of an adherent turn that is right most often; half way between two scores.

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
    """Figures of the raw scores and of both curves on turns that they were not fitted to, groups kept together."""
    labels = [turn.adherent for turn in turns]
    raw = [turn.score for turn in turns]
    predicted: dict[Literal["raw", "platt", "isotonic"], list[float]] = {
        "raw": raw,
        "platt": [0.0] * len(turns),
        "isotonic": [0.0] * len(turns),
    }
    decided = [False] * len(turns)
    for held_out in grouped_folds(turns):
        rest = [at for at in range(len(turns)) if at not in held_out]
        scores, known = [raw[at] for at in rest], [labels[at] for at in rest]
        slope, intercept = fit_platt(scores, known)
        knots, threshold = fit_isotonic(scores, known), fit_threshold(scores, known)
        for at in held_out:
            predicted["platt"][at] = sigmoid(slope * log_odds(raw[at]) + intercept)
            predicted["isotonic"][at] = interpolate(knots, raw[at])
            decided[at] = raw[at] >= threshold
    rows_of: dict[str, list[int]] = {}
    for at, turn in enumerate(turns):
        rows_of.setdefault(turn.group, []).append(at)
    groups = list(rows_of.values())
    at_threshold = accuracy(labels, decided)
    found: dict[Literal["raw", "platt", "isotonic"], CalibrationFigures] = {}
    for name, values in predicted.items():
        brier = brier_score(values, labels)
        ece = expected_calibration_error(values, labels)
        half = accuracy(labels, [value >= 0.5 for value in values])
        assert None not in (brier, ece, half, at_threshold)
        found[name] = CalibrationFigures(
            brier=brier,
            ece=ece,
            accuracy_at_half=half,
            accuracy_at_threshold=at_threshold,
            brier_gain=None if name == "raw" else _gain(raw, values, labels, groups),
        )
    return found


def _gain(
    raw: Sequence[float],
    curved: Sequence[float],
    labels: Sequence[bool],
    groups: Sequence[Sequence[int]],
) -> tuple[float, float] | None:
    """95 % bootstrap interval, over groups, of how much a curve lowers the Brier score."""
    each = [(raw[at] - label) ** 2 - (curved[at] - label) ** 2 for at, label in enumerate(labels)]

    def gain(drawn: Sequence[int]) -> float | None:
        rows = [at for group in drawn for at in groups[group]]
        return math.fsum(each[at] for at in rows) / len(rows)

    found = bootstrap_interval(gain, len(groups))
    return None if found is None else (found.low, found.high)


def grouped_folds(turns: Sequence[LabelledScore]) -> list[set[int]]:
    """Rows of each fold. Groups are dealt out in a fixed random order, those with a violation first, so that
    every fold leaves both classes to fit to.
    """
    kinds: dict[str, set[bool]] = {}
    for turn in turns:
        kinds.setdefault(turn.group, set()).add(turn.adherent)
    groups = sorted(kinds)
    random.Random(SEED).shuffle(groups)
    groups.sort(key=lambda group: (False not in kinds[group], True not in kinds[group]))
    fold_of = {group: place % FOLDS for place, group in enumerate(groups)}
    folds: list[set[int]] = [set() for _ in range(FOLDS)]
    for at, turn in enumerate(turns):
        folds[fold_of[turn.group]].add(at)
    return [fold for fold in folds if fold]


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
            "the judge does not rank adherent turns above violations, which no calibration mends",
            got=f"AUC {area:.3f} on {len(turns)} labelled turns",
            expected="more than 0.5",
            fix="check which label means adherent (--adherent), or take another judge",
        )
