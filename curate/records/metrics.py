"""What the weighted metrics say of a dialogue: a score a metric, and their weighted sum from 0 to 100."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from curate.dialogue import Frozen
from curate.records.judgment import JudgeIdentity, JudgeOpinion, LabelReading, WholeScore

MetricTier = Literal["execution", "knowledge", "process", "delivery"]
MetricScale = Literal["scored", "binary"]
"""`scored`: an integer from 0 to 5. `binary`: fail (0) or pass (1)."""
NoMetricReason = Literal["no_tools", "no_tool_results", "judge"]
"""Why a metric is n/a: the dialogue has no tools or no tool results, or the judge says that it does not apply."""
DiagnosisFlag = Literal[
    "failure_code_dropped", "failure_code_missing", "turns_dropped", "turns_missing"
]
"""What of a metric's diagnosis stayed wrong when it was asked again, and so is not there."""


class CallMatch(Frozen):
    """An expected tool call and the call of that name that was made; places count from 1."""

    name: str
    expected: int = Field(description="Place among the expected calls.")
    made: int = Field(description="Place among the calls that were made.")
    turn: int = Field(description="Turn in which it was made.")
    different: tuple[str, ...] = Field((), description="Arguments with another value.")
    missing: tuple[str, ...] = Field((), description="Arguments that were expected and not given.")
    extra: tuple[str, ...] = Field((), description="Arguments that were given and not expected.")

    @property
    def is_exact(self) -> bool:
        """True where all arguments are as expected."""
        return not (self.different or self.missing or self.extra)


class CallComparison(Frozen):
    """Expected against actual tool calls, compared exactly: names, order, arguments."""

    expected: int = Field(description="Number of expected calls.")
    made: int = Field(description="Number of calls that were made.")
    matches: tuple[CallMatch, ...] = Field((), description="In the order of the expected calls.")
    missing: tuple[str, ...] = Field((), description="Names of expected calls without a match.")
    unexpected: tuple[str, ...] = Field((), description="Names of made calls without a match.")
    in_order: bool = Field(description="The matched calls were made in the expected order.")


class MetricScore(Frozen):
    """One metric of one dialogue."""

    name: str
    tier: MetricTier
    scale: MetricScale
    weight: float = Field(ge=0, le=1, description="Of all chosen metrics; they sum to 1.")
    share: float = Field(
        ge=0, le=1, description="Of the metrics that are not n/a; they sum to 1. 0 for n/a."
    )
    score: int | None = Field(
        description="0-5, or 0 and 1 for fail and pass; null for n/a. A calibrated level where there is a "
        "calibration.",
    )
    digit: int | None = Field(
        None, description="What the judge said, where `score` is a calibrated level."
    )
    na: NoMetricReason | None = Field(None, description="Why it is n/a; null where it has a score.")
    failure_code: str | None = Field(
        None,
        description="snake_case label of what went wrong; only where the judge's own score is 2 or less, or fail.",
    )
    turns: tuple[int, ...] = Field((), description="Turns in which the problem shows.")
    flags: tuple[DiagnosisFlag, ...] = ()
    reading: LabelReading | None = Field(None, description="In scoring mode `tokens`.")

    @property
    def is_poor(self) -> bool:
        """True for a score of 2 or less, and for fail."""
        return is_poor(self.score, self.scale)


def is_poor(score: int | None, scale: MetricScale) -> bool:
    """Tell whether a score is one that has a failure code: 2 or less of 5, or fail. n/a is not."""
    return score is not None and score <= (2 if scale == "scored" else 0)


class MetricsScore(WholeScore):
    """The weighted metrics of one dialogue. A metric that could not be read leaves it `Unscored` as a whole."""

    kind: Literal["metrics"] = "metrics"
    dialogue_id: str
    content_hash: str
    identity: JudgeIdentity
    metrics: tuple[MetricScore, ...]
    overall_score: float = Field(
        ge=0,
        le=100,
        description="Weighted sum of the scores over their scales' highest, n/a left out.",
    )
    pass_threshold: float
    passed: bool = Field(description="overall_score >= pass_threshold.")
    weights_key: str = Field(description="Hash of the chosen metrics and their weights.")
    overall_range: tuple[float, float] = Field(
        description="Lowest and highest overall score with each weight changed by up to 20 %."
    )
    calls: CallComparison | None = Field(
        None, description="Where the data says which calls were expected."
    )
    neutralised: int = Field(0, description="Strings in the data that were defused in the prompt.")
    requests: int = 0
    opinions: tuple[JudgeOpinion, ...] = Field((), description="Of each judge of a jury.")
    disagreement: float | None = Field(
        None,
        description="Mean absolute difference between two judges' scores of a metric, over its scale, 0-1.",
    )

    @property
    def is_flippable(self) -> bool:
        """True where some change of the weights by up to 20 % turns pass into fail or fail into pass."""
        low, high = self.overall_range
        return low < self.pass_threshold <= high

    @property
    def faults(self) -> dict[int, tuple[str, ...]]:
        """By turn what poor metrics find there, as `tool_routing: wrong_tool_selected`."""
        found: dict[int, list[str]] = {}
        for metric in self.metrics:
            for turn in metric.turns if metric.is_poor else ():
                found.setdefault(turn, []).append(f"{metric.name}: {metric.failure_code or 'poor'}")
        return {turn: tuple(said) for turn, said in sorted(found.items())}


class MetricFigures(Frozen):
    """One metric over all dialogues that are scored."""

    weight: float = Field(description="As chosen, renormalised.")
    scored: int
    na: int = Field(description="Dialogues in which it does not apply.")
    mean: float | None = Field(None, description="Mean score, on the metric's own scale.")
    poor: int = Field(description="Dialogues with a score of 2 or less, or fail.")
    failure_codes: dict[str, int] = Field(
        default_factory=dict, description="The ten most frequent, the commonest first."
    )
    flags: dict[str, int] = Field(
        default_factory=dict, description="What of diagnoses could not be used, by code."
    )


class MetricsReport(Frozen):
    """The weighted metrics over all dialogues of a run that are scored by them."""

    dialogues: int
    overall_mean: float | None = Field(None, description="Mean overall score, 0-100.")
    passed: int
    flippable: int = Field(
        description="Dialogues whose pass or fail some change of the weights by up to 20 % turns round."
    )
    weights_key: str = ""
    metrics: dict[str, MetricFigures]
