"""Fit each part of a calibration to people's labels: levels, `p_good`, role adherence, and levels and weights of metrics."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

from curate.errors import UsageError
from curate.judging.metrics.catalogue import HIGHEST
from curate.records import (
    CONVERSATION_DIMENSIONS,
    TURN_DIMENSIONS,
    AdherenceScore,
    CutPoints,
    GoodModel,
    JudgeCalibration,
    Judgment,
    MetricsScore,
)
from curate.records.calibration import MetricCalibration, MetricWeights
from curate.records.readings import METRIC, dialogue_readings, metric_value
from curate.run.labels.run_scores import (
    adherence_judge,
    highest_levels,
    labelled_readings,
    one_judge,
    raw_adherence,
)
from curate.trust.calibration_fit import CalibrationMethod, LabelledScore, fit_calibration
from curate.trust.gold import Gold
from curate.trust.levels import fit_cut_points
from curate.trust.metric_weights import MeasuredDialogue, fit_metric_weights
from curate.trust.p_good import LabelledDialogue, fit_good
from curate.trust.raters import krippendorff_alpha

F = TypeVar("F")


@dataclass(slots=True)
class GoldFit:
    """Fits the parts of a calibration one by one; labels of items without a score are counted as unused.

    Attributes:
        gold: labels, matched to the run.
        judgments, adherence, metrics: the run's scores by content hash.
        groups: by content hash the group of a dialogue, which folds do not split.
        not_fitted: each part that has labels and could not be fitted, with the reason.
    """

    gold: Gold
    judgments: Mapping[str, Judgment]
    adherence: Mapping[str, AdherenceScore]
    metrics: Mapping[str, MetricsScore]
    groups: Mapping[str, str]
    not_fitted: dict[str, str] = field(default_factory=dict)

    def levels(self) -> dict[str, CutPoints]:
        """Return the cut points of the rubric's labelled dimensions."""
        names = (*TURN_DIMENSIONS, *CONVERSATION_DIMENSIONS)
        cuts = {name: self._cut_points(name, 1, 5) for name in names}
        return {name: points for name, points in cuts.items() if points is not None}

    def metric_calibration(self) -> MetricCalibration | None:
        """Return the cut points of the labelled metrics, and weights if people say which dialogues are good."""
        cuts = {
            name: self._cut_points(METRIC + name, 0, highest)
            for name, highest in highest_levels(self.metrics).items()
        }
        levels = {name: points for name, points in cuts.items() if points is not None}
        weights = self._weights() if self.metrics and self.gold.good else None
        if not levels and weights is None:
            return None
        identity = one_judge(self.metrics.values(), "metrics")
        return MetricCalibration(identity=identity, levels=levels, weights=weights)

    def good(self) -> GoodModel | None:
        """Return the model of `p_good`."""
        return self._fitted("p_good", self._fit_good)

    def adherence_curve(self, method: CalibrationMethod) -> JudgeCalibration | None:
        """Return the curve of role adherence."""
        turns = list(self.adherent_turns())
        return self._fitted(
            "adherence",
            lambda: fit_calibration(turns, adherence_judge(self.adherence.values()), method),
        )

    def adherent_turns(self) -> Iterator[LabelledScore]:
        """Yield the labelled turns, or conversations, that have a score of role adherence."""
        for item, is_adherent in self.gold.adherent.items():
            record = self.adherence.get(item.content_hash)
            score = None
            why = "role adherence of the dialogue could not be scored"
            if record is not None:
                score = raw_adherence(record).get(
                    item.turn if record.conversation is None else None
                )
                why = "role adherence of that turn could not be scored"
            if score is None:
                votes = self.gold.adherent_votes[item]
                self.gold.unused.add(why, votes.place, votes.rows)
            else:
                yield LabelledScore(score, is_adherent, self.groups[item.content_hash])

    def _fitted(self, name: str, fit: Callable[[], F]) -> F | None:
        """Return the result of a fit; None if the labels do not allow it, with the reason in `not_fitted`."""
        try:
            return fit()
        except UsageError as error:
            got = f": {error.got}" if error.got else ""
            self.not_fitted[name] = f"{error.problem}{got}, expected {error.expected}"
            return None

    def _cut_points(self, name: str, lowest: int, highest: int) -> CutPoints | None:
        """Return the cut points of a dimension or metric; None without labels, or too few of them."""
        gold = self.gold
        of_all = gold.metrics if name.startswith(METRIC) else gold.levels
        labels = {item: label for item, label in of_all.items() if item.dimension == name}
        if not labels:
            return None
        fit = partial(
            fit_cut_points,
            list(labelled_readings(labels, self.judgments, self.metrics, self.groups, gold.unused)),
            scale=str(gold.scales[name]),
            ceiling=krippendorff_alpha([label.each for label in labels.values()]),
            what=name,
            lowest=lowest,
            highest=highest,
        )
        return self._fitted(name, fit)

    def _weights(self) -> MetricWeights | None:
        measured, weights = [], {}
        for key, is_good in self.gold.good.items():
            if key not in self.metrics:
                continue
            row = self.metrics[key]
            weights = {metric.name: metric.weight for metric in row.metrics}
            heights = {}
            for metric in row.metrics:
                value = metric_value(metric)
                heights[metric.name] = None if value is None else value / HIGHEST[metric.scale]
            measured.append(MeasuredDialogue(heights, is_good, self.groups[key]))
        return self._fitted("weights of metrics", partial(fit_metric_weights, measured, weights))

    def _fit_good(self) -> GoodModel:
        """Fit `p_good` to the labelled dialogues; role adherence and metrics are readings if all of these have them."""
        labelled = []
        for key, is_good in self.gold.good.items():
            if key in self.judgments:
                labelled.append((key, is_good))
            else:
                votes = self.gold.good_votes[key]
                why = "the judge could not score the dialogue"
                self.gold.unused.add(why, votes.place, votes.rows)
        scores = [self.adherence.get(key) for key, _ in labelled]
        judged = [score for score in scores if score and score.scoring_method == "llm_judge"]
        identities = {score.identity.uncalibrated().model_dump_json() for score in judged}
        has_adherence = len(judged) == len(labelled) and len(identities) == 1
        has_metrics = bool(labelled) and all(key in self.metrics for key, _ in labelled)
        return fit_good(
            [
                LabelledDialogue(
                    dialogue_readings(
                        self.judgments[key],
                        score if has_adherence else None,
                        self.metrics[key] if has_metrics else None,
                    ),
                    is_good,
                    self.groups[key],
                )
                for (key, is_good), score in zip(labelled, scores, strict=True)
            ],
            judged[0].identity.uncalibrated() if has_adherence else None,
            one_judge(self.metrics.values(), "metrics") if has_metrics else None,
        )
