"""The section `metrics` of a recipe: the chosen metrics, their weights, and your own metrics.

Everything that can be wrong with it is refused here, before any model call.
"""

from __future__ import annotations

import difflib
import math
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from curate.judging.metrics.catalogue import LEVELS, Metric, shipped
from curate.records.calibration import Calibration
from curate.records.calibration_file import read_calibration
from curate.records.config import Config
from curate.records.metrics import MetricScale, MetricTier


class MetricChoice(Config):
    """A chosen metric; in a recipe its name alone is enough."""

    metric: str = Field(description="Name of a built-in metric, or of one in `own`.")
    weight: float | None = Field(
        None, description="Weight, 0 or more; by default the metric's own."
    )


def _named(value: object) -> object:
    return {"metric": value} if isinstance(value, str) else value


def _by_text(value: Any) -> Any:
    """Return level descriptions keyed by the level as text, since YAML reads 5 as a number."""
    return {str(key): text for key, text in value.items()} if isinstance(value, dict) else value


class OwnMetric(Config):
    """A metric of your own; `curate metrics new` drafts one."""

    name: str = Field(pattern=r"^[a-z][a-z0-9_]*$", description="Name in snake_case.")
    tier: MetricTier = Field(description="The group the metric belongs to.")
    scale: MetricScale = Field(
        "scored", description="`scored`: levels 0 to 5. `binary`: pass or fail."
    )
    asks: str = Field(min_length=1, description="What the metric measures, in one sentence.")
    levels: Annotated[dict[str, str], BeforeValidator(_by_text)] = Field(
        description="A description of each level: 5, 4, 3, 2, 1 and 0, or pass and fail."
    )
    weight: float = Field(
        description="Weight, 0 or more; the weights of the chosen metrics are scaled to sum to 1."
    )
    na: str | None = Field(
        None,
        description="When the metric does not apply. Only if this is given may the judge answer n/a.",
    )

    @model_validator(mode="after")
    def _covers_its_scale(self) -> OwnMetric:
        levels = LEVELS[self.scale]
        missing = [level for level in levels if not self.levels.get(level, "").strip()]
        unknown = [level for level in self.levels if level not in levels]
        if missing or unknown:
            problems = [f"no text for {', '.join(missing)}"] if missing else []
            problems += [f"no such level: {', '.join(unknown)}"] if unknown else []
            raise ValueError(
                f"the level texts of {self.name} do not cover its scale ({'; '.join(problems)}); "
                f"a {self.scale} metric has {', '.join(levels)}"
            )
        if self.name.endswith("_expected"):
            raise ValueError(
                f"{self.name}: names ending in _expected are reserved; choose another name"
            )
        _check_weight(self.name, self.weight)
        return self

    @property
    def as_metric(self) -> Metric:
        """Return the metric in the form of the built-in ones."""
        levels = {level: _line(self.levels[level]) for level in LEVELS[self.scale]}
        na = _line(self.na) if self.na else None
        return Metric(self.name, self.tier, self.scale, _line(self.asks), levels, self.weight, na)


def _line(text: str) -> str:
    return " ".join(text.split())


class MetricsConfig(Config):
    """Weighted metrics of whole dialogues, and their weighted sum from 0 to 100."""

    choose: tuple[Annotated[MetricChoice, BeforeValidator(_named)], ...] = Field(
        (),
        description="Metrics to score, each a name or {metric, weight}. By default the eight with a "
        "default weight and all of `own`. Weights are scaled to sum to 1.",
    )
    own: tuple[OwnMetric, ...] = Field((), description="Your own metrics.")
    pass_threshold: float = Field(
        75.0, ge=0, le=100, description="Lowest overall score (0-100) that passes."
    )
    emphasis: str | None = Field(
        None,
        description="What the judge should weigh most, for dialogues without an `emphasis` of their own.",
    )
    mode: Literal["auto", "json", "tokens"] = Field(
        "auto",
        description="`tokens`: read each score from the log-probabilities of its labels. `json`: ask for "
        "all scores in one JSON reply. `auto`: tokens where the engine gives "
        "log-probabilities, else json.",
    )
    retries: int = Field(
        2, ge=0, le=10, description="How often the unusable part of a reply is asked for again."
    )
    min_coverage: float = Field(
        0.1,
        ge=0,
        le=1,
        description="tokens mode: lowest probability (0-1) that the labels of a score must have together.",
    )
    answer_prefix: str = Field(
        "(",
        description="tokens mode: text that a one-label answer is forced to start with, where the engine "
        "can do that.",
    )
    calibration: Annotated[
        Calibration | None,
        BeforeValidator(
            lambda value: read_calibration(value, "metrics.calibration", "metrics"),
            json_schema_input_type=Calibration | str | None,
        ),
    ] = Field(
        None,
        description="File written by `curate calibrate`: scores become calibrated levels, which the "
        "overall score is computed from. Refused for another judge or other metrics. Makes no "
        "model calls.",
    )
    show_reasoning: bool = Field(False, description="Show the assistant's thinking to the judge.")

    @model_validator(mode="after")
    def _check(self) -> MetricsConfig:
        names = [own.name for own in self.own]
        for name in names:
            if name in shipped():
                raise ValueError(
                    f"own metric {name}: a built-in metric has that name; choose another"
                )
        if len({*names}) < len(names):
            raise ValueError(f"own metrics need different names, not {', '.join(names)}")
        if self.answer_prefix != self.answer_prefix.rstrip():
            raise ValueError("answer_prefix must not end with a space or newline")
        metrics = self.known
        for choice in self.choose:
            metric = metrics.get(choice.metric)
            if metric is None:
                close = difflib.get_close_matches(choice.metric, metrics, n=1)
                hint = f"did you mean '{close[0]}'?" if close else f"there are {', '.join(metrics)}"
                raise ValueError(f"no metric is called '{choice.metric}'; {hint}")
            if choice.weight is None and metric.weight is None:
                raise ValueError(
                    f"{choice.metric} has no default weight; write {{metric: {choice.metric}, weight: 0.5}}"
                )
            if choice.weight is not None:
                _check_weight(choice.metric, choice.weight)
        chosen = [choice.metric for choice in self.choose]
        if len({*chosen}) < len(chosen):
            raise ValueError(f"a metric is chosen twice: {', '.join(chosen)}")
        if sum(weight for _, weight in self._weighed()) <= 0:
            raise ValueError(
                "the weights of the chosen metrics sum to 0; give one of them a weight"
            )
        return self

    @property
    def known(self) -> dict[str, Metric]:
        """Return all metrics that can be chosen, by name: the built-in ones and `own`."""
        return {**shipped(), **{own.name: own.as_metric for own in self.own}}

    def _weighed(self) -> list[tuple[Metric, float]]:
        metrics = self.known
        if not self.choose:
            return [
                (metric, metric.weight) for metric in metrics.values() if metric.weight is not None
            ]
        return [
            (metric, (metric.weight or 0.0) if choice.weight is None else choice.weight)
            for choice in self.choose
            for metric in (metrics[choice.metric],)
        ]

    @property
    def chosen(self) -> dict[str, Metric]:
        """Return the chosen metrics by name, in order."""
        return {metric.name: metric for metric, _ in self._weighed()}

    @property
    def weights(self) -> dict[str, float]:
        """Return the weight of each chosen metric; the weights sum to 1."""
        weighed = self._weighed()
        total = math.fsum(weight for _, weight in weighed)
        return {metric.name: weight / total for metric, weight in weighed}


def _check_weight(name: str, weight: float) -> None:
    if not math.isfinite(weight) or weight < 0:
        raise ValueError(f"the weight of {name} is {weight}; a weight is a number of 0 or more")
