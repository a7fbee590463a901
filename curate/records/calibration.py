"""What `curate calibrate` fits to people's labels: cut points, thresholds, the model of a good dialogue."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from itertools import pairwise
from typing import Literal

from pydantic import Field, model_validator

from curate.dialogue import Frozen
from curate.records.judgment import (
    CONVERSATION_DIMENSIONS,
    TURN_DIMENSIONS,
    FittedTo,
    JudgeIdentity,
)
from curate.statistics import interpolate, log_odds, sigmoid


class CalibrationFigures(Frozen):
    """How well scores predict the labels, on turns they were not fitted to."""

    brier: float = Field(description="Brier score, 0-1; lower is better.")
    ece: float = Field(description="Expected calibration error (10 bins of equal width), 0-1.")
    accuracy_at_half: float = Field(description="Share of correct decisions at threshold 0.5.")
    accuracy_at_threshold: float = Field(
        description="Share of correct decisions of the raw scores at a threshold fitted without these "
        "turns."
    )
    brier_gain: tuple[float, float] | None = Field(
        None,
        description="95 % interval of how much lower the Brier score is than that of the raw scores "
        "(bootstrap over groups).",
    )


class JudgeCalibration(Frozen):
    """A curve from one judge's adherence scores to probabilities, and a threshold, fitted to labelled turns."""

    identity: FittedTo
    scoring_method: str = Field(description="Scoring method it was fitted to.")
    evaluation_granularity: Literal["turn", "conversation"] = Field(
        description="Granularity it was fitted to."
    )
    definition: Literal["constructive", "restrictive"] = Field(
        description="Definition of adherence it was fitted to."
    )
    method: Literal["platt", "isotonic"] = Field(
        description="Kind of the curve: Platt scaling or isotonic regression."
    )
    threshold: float = Field(ge=0, le=1, description="Lowest raw score (0-1) of an adherent turn.")
    slope: float | None = Field(None, description="platt: slope on the log-odds of the raw score.")
    intercept: float | None = Field(None, description="platt: intercept, in log-odds.")
    knots: tuple[tuple[float, float], ...] = Field(
        (), description="isotonic: points (raw score, probability), joined by straight lines."
    )
    turns: int = Field(description="Number of labelled turns it was fitted to.")
    adherent: int = Field(description="Number of these that people call adherent.")
    groups: int = Field(
        description="Number of dialogues (or groups of them) that the turns come from."
    )
    figures: dict[Literal["raw", "platt", "isotonic"], CalibrationFigures] = Field(
        default_factory=dict,
        description="Quality of the raw scores and of both curves, by cross-validation with dialogues kept"
        " together.",
    )

    @model_validator(mode="after")
    def _has_its_curve(self) -> JudgeCalibration:
        lefts = [left for left, _ in self.knots]
        rising = bool(lefts) and all(low < high for low, high in pairwise(lefts))
        has_curve = None not in (self.slope, self.intercept) if self.method == "platt" else rising
        if not has_curve:
            raise ValueError("platt needs slope and intercept, isotonic knots in rising order")
        return self

    def probability(self, score: float) -> float:
        """Return the probability (0-1) that a turn with this raw score is adherent."""
        if self.method == "platt":
            assert self.slope is not None
            assert self.intercept is not None
            return sigmoid(self.slope * log_odds(score) + self.intercept)
        return interpolate(self.knots, score)


class Kappa(Frozen):
    """Quadratic-weighted kappa with people."""

    value: float | None = Field(None, description="Kappa; null if one side has a single level.")
    interval: tuple[float, float] | None = Field(
        None, description="95 % interval (bootstrap over dialogues, or groups of them)."
    )


CutMethod = Literal["matched_shares", "kappa", "given_shares"]


class CutPoints(Frozen):
    """Cut points that map the readings of one dimension or metric to levels."""

    cuts: tuple[float, ...] = Field(
        min_length=1,
        description="Cut points in rising order on the expectation (on the digit for a single JSON reply)."
        " The level is `lowest` plus the number of cuts that the value reaches; a cut above "
        "the highest level is never reached.",
    )
    lowest: int = Field(
        1, description="The lowest level: 1 for a dimension of the rubric, 0 for a metric."
    )
    na_cut: float | None = Field(
        None,
        description="Lowest probability of n/a at which the score is n/a; null: if it is the judge's most "
        "likely answer.",
    )
    method: CutMethod = Field(
        description="`matched_shares`: quantiles of the readings at the shares of the labels. `kappa`: "
        "cuts with the highest agreement. `given_shares`: quantiles at shares that the user "
        "expects, without labels."
    )
    scale: str = Field("1-5", description="Scale of the labels, lowest and highest level.")
    labels: int = Field(0, description="Number of labelled turns or conversations.")
    dialogues: int = Field(
        0, description="Number of dialogues (or groups of them) that the labels come from."
    )
    before: Kappa = Field(
        Kappa(), description="Kappa of the judge's most likely digits with the labels."
    )
    after: Kappa = Field(
        Kappa(),
        description="Kappa of the levels with the labels, each cut without its own dialogue (5 folds).",
    )
    ceiling: float | None = Field(
        None,
        description="Krippendorff's alpha (ordinal) between the raters, if there are several.",
    )

    @model_validator(mode="after")
    def _rises(self) -> CutPoints:
        if list(self.cuts) != sorted(self.cuts):
            raise ValueError("cuts must not fall")
        return self

    def level(self, value: float) -> int:
        """Return the level of an expectation or digit."""
        return self.lowest + sum(cut <= value for cut in self.cuts)


def calibrated_identity(levels: Mapping[str, CutPoints], identity: JudgeIdentity) -> JudgeIdentity:
    """Return the identity of scores whose levels were calibrated with these cut points."""
    named = {name: cuts.model_dump_json() for name, cuts in sorted(levels.items())}
    digest = hashlib.blake2b(repr(named).encode(), digest_size=4).hexdigest()
    return identity.calibrated(f"levels {digest}")


class GoodModel(Frozen):
    """A ridge logistic regression for the probability that people find a dialogue good, from its readings.

    For a reading that a dialogue does not have (n/a), the mean in `means` is used.
    """

    features: tuple[str, ...] = Field(min_length=1, description="Names of the readings.")
    means: tuple[float, ...] = Field(description="Mean of each reading.")
    scales: tuple[float, ...] = Field(
        description="Scale that each reading is divided by after its mean is subtracted."
    )
    weights: tuple[float, ...] = Field(
        description="Weight of each standardised reading, in log-odds."
    )
    intercept: float = Field(description="Intercept, in log-odds.")
    adherence: JudgeIdentity | None = Field(
        None, description="The judge whose role adherence is among the features; null if none is."
    )
    metrics: JudgeIdentity | None = Field(
        None,
        description="The judge whose weighted metrics are among the features; null if none are.",
    )
    labels: int = Field(description="Number of labelled dialogues.")
    good: int = Field(description="Number of these that people call good.")
    auc: float | None = Field(None, description="AUC by cross-validation, 0-1.")
    brier: float = Field(description="Brier score by cross-validation, 0-1.")
    brier_interval: tuple[float, float] | None = Field(
        None, description="95 % interval of the Brier score."
    )
    brier_without: float = Field(
        description="Brier score of the share of good dialogues alone, without a judge."
    )

    @model_validator(mode="after")
    def _is_whole(self) -> GoodModel:
        if {len(self.means), len(self.scales), len(self.weights)} != {len(self.features)}:
            raise ValueError("a mean, a scale and a weight are needed for each feature")
        return self

    def probability(self, values: Mapping[str, float | None]) -> float:
        """Return the probability that a dialogue with these readings is good, 0-1."""
        parts = zip(self.features, self.means, self.scales, self.weights, strict=True)
        odds = self.intercept
        for name, mean, scale, weight in parts:
            value = values.get(name)
            odds += 0.0 if value is None else weight * (value - mean) / scale
        return sigmoid(odds)


class MetricWeights(Frozen):
    """Weights of metrics fitted to what people find good, beside the given ones; both sum to 1.

    Fitted by non-negative least squares of good (1) and not good (0) on the metrics' scores, scaled to 0-1.
    """

    fitted: dict[str, float] = Field(description="Fitted weight by metric.")
    given: dict[str, float] = Field(description="Weight by metric as in the recipe.")
    labels: int = Field(description="Number of labelled dialogues that the metrics score.")
    good: int = Field(description="Number of these that people call good.")
    auc_fitted: float = Field(
        description="AUC of the overall score with fitted weights, each dialogue with weights fitted "
        "without it (5 folds)."
    )
    auc_given: float = Field(description="AUC of the overall score with the given weights.")
    gain: tuple[float, float] | None = Field(
        None, description="95 % interval of the difference of the two (bootstrap over dialogues)."
    )


class MetricCalibration(Frozen):
    """Calibration of one judge's weighted metrics."""

    identity: FittedTo
    levels: dict[str, CutPoints] = Field(default_factory=dict, description="Cut points by metric.")
    weights: MetricWeights | None = Field(None, description="Fitted weights of the metrics.")

    @model_validator(mode="after")
    def _levels_of_metrics(self) -> MetricCalibration:
        for name, cuts in self.levels.items():
            if cuts.lowest != 0 or len(cuts.cuts) not in (1, 5):
                raise ValueError(f"{name}: a metric has levels 0 to 5, or 0 and 1")
        return self


class Calibration(Frozen):
    """The file written by `curate calibrate`: what was fitted to people's labels for one judge."""

    kind: Literal["calibration"]
    identity: JudgeIdentity | None = Field(
        None,
        description="The rubric judge that `levels` and `good` were fitted to; they hold for no other.",
    )
    levels: dict[str, CutPoints] = Field(
        default_factory=dict, description="Cut points by dimension of the rubric."
    )
    good: GoodModel | None = Field(
        None, description="Model of the probability that people find a dialogue good."
    )
    adherence: JudgeCalibration | None = Field(None, description="Calibration of role adherence.")
    metrics: MetricCalibration | None = Field(None, description="Calibration of weighted metrics.")
    labelled: tuple[str, ...] = Field(
        (),
        description="Content hashes of the dialogues whose labels were used. They cannot certify anything "
        "scored with this calibration.",
    )

    @model_validator(mode="after")
    def _fits_the_rubric(self) -> Calibration:
        unknown = set(self.levels) - {*TURN_DIMENSIONS, *CONVERSATION_DIMENSIONS}
        if unknown:
            raise ValueError(f"not a dimension of the rubric: {', '.join(sorted(unknown))}")
        for name, cuts in self.levels.items():
            if cuts.lowest != 1 or len(cuts.cuts) != 4:
                raise ValueError(f"{name}: a dimension of the rubric has levels 1 to 5")
        if self.identity is None and (self.levels or self.good):
            raise ValueError("levels and good hold for one judge: identity is missing")
        return self
