"""Weighted metrics of a dialogue: one score per metric, and their weighted sum from 0 to 100."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from curate.dialogue import Frozen
from curate.records.judgment import (
    DialogueScore,
    JudgeOpinion,
    LabelReading,
    NeutralisedCount,
    RequestCount,
)

MetricTier = Literal["execution", "knowledge", "process", "delivery"]
MetricScale = Literal["scored", "binary"]
"""`scored`: an integer from 0 to 5. `binary`: fail (0) or pass (1)."""
NoMetricReason = Literal["no_tools", "no_tool_results", "judge"]
"""Why a metric is n/a: the dialogue has no tools or no tool results, or the judge says that the metric does not apply."""
DiagnosisFlag = Literal[
    "failure_code_dropped", "failure_code_missing", "turns_dropped", "turns_missing"
]
"""Parts of a metric's diagnosis that stayed invalid when asked again, so they are left out."""


class CallMatch(Frozen):
    """An expected tool call and the call of the same name that was made; places count from 1."""

    name: str = Field(description="Name of the tool.")
    expected: int = Field(description="Place among the expected calls.")
    made: int = Field(description="Place among the calls that were made.")
    turn: int = Field(description="Turn in which the call was made.")
    different: tuple[str, ...] = Field(
        (), description="Arguments with another value than expected."
    )
    missing: tuple[str, ...] = Field((), description="Arguments that were expected but not given.")
    extra: tuple[str, ...] = Field((), description="Arguments that were given but not expected.")

    @property
    def is_exact(self) -> bool:
        """Return whether all arguments are as expected."""
        return not (self.different or self.missing or self.extra)


class CallComparison(Frozen):
    """Expected and actual tool calls compared exactly: names, order and arguments."""

    expected: int = Field(description="Number of expected calls.")
    made: int = Field(description="Number of calls that were made.")
    matches: tuple[CallMatch, ...] = Field(
        (), description="Matched calls, in the order of the expected ones."
    )
    missing: tuple[str, ...] = Field((), description="Names of expected calls that were not made.")
    unexpected: tuple[str, ...] = Field(
        (), description="Names of calls that were made but not expected."
    )
    in_order: bool = Field(description="Whether the matched calls were made in the expected order.")


class MetricScore(Frozen):
    """The score of one metric for one dialogue."""

    name: str = Field(description="Name of the metric.")
    tier: MetricTier = Field(description="The group the metric belongs to.")
    scale: MetricScale = Field(
        description="`scored`: levels 0 to 5. `binary`: fail (0) or pass (1)."
    )
    weight: float = Field(
        ge=0, le=1, description="Weight among all chosen metrics, 0-1; the weights sum to 1."
    )
    share: float = Field(
        ge=0,
        le=1,
        description="Weight among the metrics that apply to this dialogue, 0-1; 0 for n/a. They sum to 1.",
    )
    score: int | None = Field(
        description="0-5, or 0 and 1 for fail and pass; null for n/a. A calibrated level if there is a "
        "calibration.",
    )
    digit: int | None = Field(
        None, description="The judge's own score, if `score` is a calibrated level."
    )
    na: NoMetricReason | None = Field(
        None, description="Why the metric does not apply; null if it has a score."
    )
    failure_code: str | None = Field(
        None,
        description="Label in snake_case of what went wrong; only if the judge's own score is 2 or less, "
        "or fail.",
    )
    turns: tuple[int, ...] = Field((), description="Turns in which the problem shows.")
    flags: tuple[DiagnosisFlag, ...] = Field(
        (),
        description="Parts of the judge's diagnosis that stayed invalid when asked again, so they are left"
        " out.",
    )
    reading: LabelReading | None = Field(
        None, description="Distribution of the score, in scoring mode `tokens`."
    )

    @property
    def is_poor(self) -> bool:
        """Return whether the score is 2 or less, or fail."""
        return is_poor(self.score, self.scale)


def is_poor(score: int | None, scale: MetricScale) -> bool:
    """Return whether a score has a failure code: 2 or less of 5, or fail; never for n/a."""
    return score is not None and score <= (2 if scale == "scored" else 0)


class MetricsScore(DialogueScore):
    """The weighted metrics of one dialogue. If one metric could not be scored, the whole dialogue is `Unscored`."""

    kind: Literal["metrics"] = "metrics"
    metrics: tuple[MetricScore, ...] = Field(description="Score of each chosen metric.")
    overall_score: float = Field(
        ge=0,
        le=100,
        description="Weighted sum of the scores divided by the highest of their scales, times 100, without"
        " n/a: 0-100.",
    )
    pass_threshold: float = Field(description="Lowest overall score that passes, 0-100.")
    passed: bool = Field(description="Whether overall_score >= pass_threshold.")
    weights_key: str = Field(description="Hash of the chosen metrics and their weights.")
    overall_range: tuple[float, float] = Field(
        description="Lowest and highest overall score when each weight changes by up to 20 %."
    )
    calls: CallComparison | None = Field(
        None,
        description="Expected and actual tool calls compared, if the data says which were expected.",
    )
    neutralised: NeutralisedCount = 0
    requests: RequestCount = 0
    opinions: tuple[JudgeOpinion, ...] = Field((), description="Scores of each judge of a jury.")
    disagreement: float | None = Field(
        None,
        description="Jury: mean absolute difference between two judges' scores of a metric, scaled to 0-1.",
    )

    @property
    def is_flippable(self) -> bool:
        """Return whether a change of the weights by up to 20 % can turn pass into fail or fail into pass."""
        low, high = self.overall_range
        return low < self.pass_threshold <= high

    @property
    def faults(self) -> dict[int, tuple[str, ...]]:
        """Return the problems that poor metrics find, by turn, such as `tool_routing: wrong_tool_selected`."""
        problems: dict[int, list[str]] = {}
        for metric in self.metrics:
            for turn in metric.turns if metric.is_poor else ():
                problems.setdefault(turn, []).append(
                    f"{metric.name}: {metric.failure_code or 'poor'}"
                )
        return {turn: tuple(listed) for turn, listed in sorted(problems.items())}


class MetricFigures(Frozen):
    """One metric over all scored dialogues."""

    weight: float = Field(description="Weight, scaled so that the chosen metrics sum to 1.")
    scored: int = Field(description="Dialogues with a score.")
    na: int = Field(description="Dialogues that the metric does not apply to.")
    mean: float | None = Field(None, description="Mean score, on the metric's own scale.")
    poor: int = Field(description="Dialogues with a score of 2 or less, or fail.")
    failure_codes: dict[str, int] = Field(
        default_factory=dict,
        description="Dialogues by failure code: the ten most frequent, in falling order.",
    )
    flags: dict[str, int] = Field(
        default_factory=dict, description="Number of invalid parts of diagnoses, by flag."
    )


class MetricsReport(Frozen):
    """The weighted metrics over all scored dialogues of a run."""

    dialogues: int = Field(description="Number of scored dialogues.")
    overall_mean: float | None = Field(None, description="Mean overall score, 0-100.")
    passed: int = Field(description="Dialogues that passed.")
    flippable: int = Field(
        description="Dialogues where a change of the weights by up to 20 % can turn pass into fail or fail"
        " into pass."
    )
    weights_key: str = Field("", description="Hash of the chosen metrics and their weights.")
    metrics: dict[str, MetricFigures] = Field(description="Figures by metric.")
