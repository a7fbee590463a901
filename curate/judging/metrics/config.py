"""The section `metrics` of a recipe: which metrics, their weights, and metrics of the user's own.

Whatever can be wrong with it is refused here, before any call.
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
    """A chosen metric; its name alone stands for `metric`."""

    metric: str = Field(description="Name of a shipped metric, or of one of `own`.")
    weight: float | None = Field(None, description="The metric's own where not given.")


def _named(value: object) -> object:
    return {"metric": value} if isinstance(value, str) else value


def _by_text(value: Any) -> Any:
    """Key level texts by the level as text: YAML reads 5 as a number."""
    return {str(key): text for key, text in value.items()} if isinstance(value, dict) else value


class OwnMetric(Config):
    """A metric of the user's own; `curate metrics new` drafts one."""

    name: str = Field(pattern=r"^[a-z][a-z0-9_]*$", description="In snake_case.")
    tier: MetricTier
    scale: MetricScale = Field("scored", description="0-5, or pass and fail.")
    asks: str = Field(min_length=1, description="What it measures, in one sentence.")
    levels: Annotated[dict[str, str], BeforeValidator(_by_text)] = Field(
        description="A text for each level: 5, 4, 3, 2, 1 and 0, or pass and fail."
    )
    weight: float = Field(description="Beside those of the others; they are renormalised.")
    na: str | None = Field(
        None, description="When it does not apply. The judge may say so where this is given."
    )

    @model_validator(mode="after")
    def _covers_its_scale(self) -> OwnMetric:
        wanted = LEVELS[self.scale]
        missing = [level for level in wanted if not self.levels.get(level, "").strip()]
        unknown = [level for level in self.levels if level not in wanted]
        if missing or unknown:
            said = [f"no text for {', '.join(missing)}"] if missing else []
            said += [f"no such level: {', '.join(unknown)}"] if unknown else []
            raise ValueError(
                f"the level texts of {self.name} do not cover its scale ({'; '.join(said)}); "
                f"a {self.scale} metric has {', '.join(wanted)}"
            )
        if self.name.endswith("_expected"):
            raise ValueError(f"{self.name}: columns of expectations end so; choose another name")
        _check_weight(self.name, self.weight)
        return self

    @property
    def as_metric(self) -> Metric:
        """The metric as it goes into the judge's prompt."""
        levels = {level: _line(self.levels[level]) for level in LEVELS[self.scale]}
        na = _line(self.na) if self.na else None
        return Metric(self.name, self.tier, self.scale, _line(self.asks), levels, self.weight, na)


def _line(text: str) -> str:
    return " ".join(text.split())


class MetricsConfig(Config):
    """Weighted metrics of whole dialogues and their sum from 0 to 100."""

    choose: tuple[Annotated[MetricChoice, BeforeValidator(_named)], ...] = Field(
        (),
        description="The metrics to score, each a name or {metric, weight}; the eight with a default weight "
        "and all of `own` where not given. Weights are renormalised to sum to 1.",
    )
    own: tuple[OwnMetric, ...] = Field((), description="Metrics of the user's own.")
    pass_threshold: float = Field(75.0, ge=0, le=100, description="Least overall score to pass.")
    emphasis: str | None = Field(
        None, description="What to weigh most, shown for dialogues that name no emphasis."
    )
    mode: Literal["auto", "json", "tokens"] = Field(
        "auto", description="`auto`: tokens where the engine gives log-probabilities, else json."
    )
    retries: int = Field(
        2, ge=0, le=10, description="How often what cannot be used of a reply is asked again."
    )
    min_coverage: float = Field(
        0.1,
        ge=0,
        le=1,
        description="Least mass the labels must have for a score to count (tokens mode).",
    )
    answer_prefix: str = Field(
        "(", description="Forced start of a one-label answer, where the engine can (tokens mode)."
    )
    calibration: Annotated[
        Calibration | None,
        BeforeValidator(
            lambda value: read_calibration(value, "metrics.calibration", "metrics"),
            json_schema_input_type=Calibration | str | None,
        ),
    ] = Field(
        None,
        description="File that `curate calibrate` wrote: scores become calibrated levels, which the overall score goes "
        "by. Refused for another judge or other metrics. Costs no call.",
    )
    show_reasoning: bool = Field(False, description="Show parsed-off thinking to the judge.")

    @model_validator(mode="after")
    def _check(self) -> MetricsConfig:
        names = [own.name for own in self.own]
        for name in names:
            if name in shipped():
                raise ValueError(
                    f"own metric {name}: a shipped metric has that name; choose another"
                )
        if len({*names}) < len(names):
            raise ValueError(f"own metrics need different names, not {', '.join(names)}")
        if self.answer_prefix != self.answer_prefix.rstrip():
            raise ValueError("answer_prefix must not end with a space or newline")
        known = self.known
        for choice in self.choose:
            metric = known.get(choice.metric)
            if metric is None:
                close = difflib.get_close_matches(choice.metric, known, n=1)
                hint = f"did you mean '{close[0]}'?" if close else f"there are {', '.join(known)}"
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
        """The metrics that can be chosen by name: the shipped ones and `own`."""
        return {**shipped(), **{own.name: own.as_metric for own in self.own}}

    def _weighed(self) -> list[tuple[Metric, float]]:
        known = self.known
        if not self.choose:
            return [
                (metric, metric.weight) for metric in known.values() if metric.weight is not None
            ]
        return [
            (metric, (metric.weight or 0.0) if choice.weight is None else choice.weight)
            for choice in self.choose
            for metric in (known[choice.metric],)
        ]

    @property
    def chosen(self) -> dict[str, Metric]:
        """The chosen metrics by name, in their order."""
        return {metric.name: metric for metric, _ in self._weighed()}

    @property
    def weights(self) -> dict[str, float]:
        """The weight of each chosen metric, renormalised: they sum to 1."""
        weighed = self._weighed()
        total = math.fsum(weight for _, weight in weighed)
        return {metric.name: weight / total for metric, weight in weighed}


def _check_weight(name: str, weight: float) -> None:
    if not math.isfinite(weight) or weight < 0:
        raise ValueError(f"the weight of {name} is {weight}; a weight is a number of 0 or more")
