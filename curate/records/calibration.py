"""What people's labels make of a judge's readings: cut points, thresholds, the model of a good dialogue."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from itertools import pairwise
from typing import Literal

from pydantic import Field, model_validator

from curate.dialogue import Frozen
from curate.records.judgment import CONVERSATION_DIMENSIONS, TURN_DIMENSIONS, JudgeIdentity
from curate.statistics import interpolate, log_odds, sigmoid


class CalibrationFigures(Frozen):
    """How well scores tell the labels, on turns they were not fitted to."""

    brier: float
    ece: float = Field(description="Expected calibration error, 10 bins of equal width.")
    accuracy_at_half: float
    accuracy_at_threshold: float = Field(
        description="Of the raw scores, at the threshold fitted without these turns."
    )
    brier_gain: tuple[float, float] | None = Field(
        None,
        description="How much lower the Brier score is than the raw scores': 95 % bootstrap over groups.",
    )


class JudgeCalibration(Frozen):
    """What makes one judge's scores probabilities: a curve and a threshold, fitted to labelled turns."""

    identity: JudgeIdentity = Field(description="The judge it holds for, and no other.")
    scoring_method: str
    evaluation_granularity: Literal["turn", "conversation"]
    definition: Literal["constructive", "restrictive"]
    method: Literal["platt", "isotonic"]
    threshold: float = Field(ge=0, le=1, description="Least raw score of an adherent turn.")
    slope: float | None = Field(None, description="platt: of the log-odds of the raw score.")
    intercept: float | None = None
    knots: tuple[tuple[float, float], ...] = Field(
        (), description="isotonic: (raw score, probability), straight lines between them."
    )
    turns: int = Field(description="Labelled turns it was fitted to.")
    adherent: int
    groups: int = Field(description="Dialogues (or groups of them) the turns are from.")
    figures: dict[Literal["raw", "platt", "isotonic"], CalibrationFigures] = Field(
        default_factory=dict, description="By cross-validation, dialogues kept together."
    )

    @model_validator(mode="after")
    def _has_its_curve(self) -> JudgeCalibration:
        lefts = [left for left, _ in self.knots]
        rising = bool(lefts) and all(low < high for low, high in pairwise(lefts))
        given = None not in (self.slope, self.intercept) if self.method == "platt" else rising
        if not given:
            raise ValueError("platt needs slope and intercept, isotonic knots in rising order")
        return self

    def probability(self, score: float) -> float:
        """The probability that a turn with this raw score is adherent."""
        if self.method == "platt":
            assert self.slope is not None
            assert self.intercept is not None
            return sigmoid(self.slope * log_odds(score) + self.intercept)
        return interpolate(self.knots, score)


class Kappa(Frozen):
    """Quadratic-weighted kappa with people; null where one side has a single level."""

    value: float | None = None
    interval: tuple[float, float] | None = Field(
        None, description="95 %, bootstrap over dialogues (or groups of them)."
    )


CutMethod = Literal["matched_shares", "kappa", "given_shares"]


class CutPoints(Frozen):
    """From the readings of one dimension or metric to levels, fitted to labels or to expected shares."""

    cuts: tuple[float, ...] = Field(
        min_length=1,
        description="Rising, on the expectation (one JSON reply: the digit). The level is `lowest` + the number of "
        "cuts that the value reaches; a cut above the highest level is never reached.",
    )
    lowest: int = Field(1, description="The lowest level: 1 of the rubric, 0 of a metric.")
    na_cut: float | None = Field(
        None,
        description="Least probability of n/a at which the score is n/a; null leaves it to the judge's "
        "most likely answer.",
    )
    method: CutMethod = Field(
        description="matched_shares: the readings' quantiles at the labels' shares. kappa: highest "
        "agreement. given_shares: quantiles at shares that the user expects, without labels."
    )
    scale: str = Field(
        "1-5", description="What the labels were put on levels from, the ends first."
    )
    labels: int = Field(0, description="Labelled turns or conversations.")
    dialogues: int = Field(0, description="Dialogues (or groups of them) these are of.")
    before: Kappa = Field(Kappa(), description="Of the judge's most likely digits.")
    after: Kappa = Field(
        Kappa(), description="Of the levels, each cut without the dialogue it is of (5 folds)."
    )
    ceiling: float | None = Field(
        None,
        description="Krippendorff's alpha (ordinal) between the raters, where there are several.",
    )

    @model_validator(mode="after")
    def _rises(self) -> CutPoints:
        if list(self.cuts) != sorted(self.cuts):
            raise ValueError("cuts must not fall")
        return self

    def level(self, value: float) -> int:
        """The level of an expectation or digit."""
        return self.lowest + sum(cut <= value for cut in self.cuts)


def calibrated_identity(levels: Mapping[str, CutPoints], identity: JudgeIdentity) -> JudgeIdentity:
    """The identity of scores in which these levels stand for the judge's own."""
    named = {name: cuts.model_dump_json() for name, cuts in sorted(levels.items())}
    digest = hashlib.blake2b(repr(named).encode(), digest_size=4).hexdigest()
    return identity.calibrated(f"levels {digest}")


class GoodModel(Frozen):
    """The probability that people find a dialogue good, from its readings: a ridge logistic regression.

    A reading that a dialogue does not have (n/a) counts as `means` has it.
    """

    features: tuple[str, ...] = Field(min_length=1)
    means: tuple[float, ...]
    scales: tuple[float, ...]
    weights: tuple[float, ...] = Field(description="Of the standardised features, in log-odds.")
    intercept: float
    adherence: JudgeIdentity | None = Field(
        None, description="Whose role adherence is among the features; null where none is."
    )
    metrics: JudgeIdentity | None = Field(
        None, description="Whose weighted metrics are among the features; null where none are."
    )
    labels: int = Field(description="Labelled dialogues.")
    good: int = Field(description="Of these, good ones.")
    auc: float | None = Field(None, description="By cross-validation.")
    brier: float = Field(description="By cross-validation.")
    brier_interval: tuple[float, float] | None = None
    brier_without: float = Field(description="Of the share of good ones, without any judge.")

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
    """Weights of metrics fitted to what people find good, beside those that were given; both sum to 1.

    Non-negative least squares of good (1) and not (0) on the metrics' heights, 0-1.
    """

    fitted: dict[str, float]
    given: dict[str, float]
    labels: int = Field(description="Labelled dialogues that the metrics score.")
    good: int = Field(description="Of these, good ones.")
    auc_fitted: float = Field(
        description="Of the overall score by fitted weights, each dialogue by weights fitted without it (5 folds)."
    )
    auc_given: float = Field(description="Of the overall score by the given weights.")
    gain: tuple[float, float] | None = Field(
        None, description="Difference of the two: 95 % bootstrap over dialogues."
    )


class MetricCalibration(Frozen):
    """What people's labels make of one judge's weighted metrics."""

    identity: JudgeIdentity = Field(description="The judge it holds for, and no other.")
    levels: dict[str, CutPoints] = Field(default_factory=dict, description="By metric.")
    weights: MetricWeights | None = None

    @model_validator(mode="after")
    def _levels_of_metrics(self) -> MetricCalibration:
        for name, cuts in self.levels.items():
            if cuts.lowest != 0 or len(cuts.cuts) not in (1, 5):
                raise ValueError(f"{name}: a metric has levels 0 to 5, or 0 and 1")
        return self


class Calibration(Frozen):
    """The file that `curate calibrate` writes: what people's labels make of one judge's readings."""

    kind: Literal["calibration"]
    identity: JudgeIdentity | None = Field(
        None, description="The rubric judge that `levels` and `good` hold for, and no other."
    )
    levels: dict[str, CutPoints] = Field(default_factory=dict, description="By dimension.")
    good: GoodModel | None = None
    adherence: JudgeCalibration | None = None
    metrics: MetricCalibration | None = None
    labelled: tuple[str, ...] = Field(
        (),
        description="Content hashes of the dialogues whose labels were fitted to: these certify nothing that is "
        "scored with it.",
    )

    @model_validator(mode="after")
    def _fits_the_rubric(self) -> Calibration:
        unknown = set(self.levels) - {*TURN_DIMENSIONS, *CONVERSATION_DIMENSIONS}
        if unknown:
            raise ValueError(f"no dimension of the rubric: {', '.join(sorted(unknown))}")
        for name, cuts in self.levels.items():
            if cuts.lowest != 1 or len(cuts.cuts) != 4:
                raise ValueError(f"{name}: a dimension of the rubric has levels 1 to 5")
        if self.identity is None and (self.levels or self.good):
            raise ValueError("levels and good hold for one judge: identity is missing")
        return self
