"""The rules of weighted metrics: pure functions from scores to the overall score.

    overall = 100 * sum(share * score / highest score of the scale)

A metric that is n/a leaves both sums: the shares of the others are their weights over the sum of theirs. A score
that could not be had is no part of this: the dialogue is unscored then.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence

from curate.dialogue import Dialogue
from curate.judging.metrics.catalogue import HIGHEST
from curate.records.metrics import MetricScore, MetricsScore, NoMetricReason

WEIGHT_CHANGE = 0.2
"""How far each weight is changed to see whether pass and fail depend on it."""

_TOOL_METRICS = ("tool_routing", "parameter_extraction", "result_interpretation")


def not_applicable(dialogue: Dialogue) -> dict[str, NoMetricReason]:
    """Return the shipped metrics that the dialogue itself makes n/a: those of tools, where there are none.

    Result interpretation needs a result; the other two a tool that is defined, expected or called.
    """
    messages = dialogue.messages
    if not any(message.role == "tool" for message in messages):
        has_calls = any(message.tool_calls for message in messages)
        if not (dialogue.tools or dialogue.expected_tools or has_calls):
            return dict.fromkeys(_TOOL_METRICS, "no_tools")
        return {"result_interpretation": "no_tool_results"}
    return {}


def shares(weights: Mapping[str, float], na: Sequence[str]) -> dict[str, float] | None:
    """Return each metric's part of the overall score: weights without those of n/a, renormalised; 0 for n/a.

    None where nothing is left that has a weight.
    """
    total = math.fsum(weight for name, weight in weights.items() if name not in na)
    if total <= 0:
        return None
    return {name: 0.0 if name in na else weight / total for name, weight in weights.items()}


def overall(metrics: Sequence[MetricScore]) -> float:
    """Return the overall score, 0-100."""
    parts = [(metric.share, _height(metric)) for metric in metrics if metric.score is not None]
    # Rounded, so that a dialogue whose scores come to 75 passes at 75 whatever the order of the sum.
    return min(100.0, round(100 * math.fsum(share * height for share, height in parts), 9))


def with_metrics(record: MetricsScore, metrics: Sequence[MetricScore]) -> MetricsScore:
    """Return a record with other scores of its metrics, and the overall score they give."""
    total = overall(metrics)
    return record.model_copy(
        update={
            "metrics": tuple(metrics),
            "overall_score": total,
            "passed": total >= record.pass_threshold,
            "overall_range": overall_range(metrics),
        }
    )


def overall_range(metrics: Sequence[MetricScore]) -> tuple[float, float]:
    """Return the lowest and highest overall score with each weight changed by up to `WEIGHT_CHANGE`.

    A weighted mean is extreme where the lowest (or highest) heights have the largest weights and all others the
    smallest, so with n metrics n - 1 places to part them are all that is tried.
    """
    parts = sorted(
        (_height(metric), metric.share) for metric in metrics if metric.score is not None
    )
    less, more = 1 - WEIGHT_CHANGE, 1 + WEIGHT_CHANGE
    ends = [overall(metrics)]
    for cut in range(1, len(parts)):
        for low, high in ((more, less), (less, more)):
            weights = [
                share * (low if place < cut else high) for place, (_, share) in enumerate(parts)
            ]
            total = math.fsum(weights)
            if total > 0:
                heights = (height for height, _ in parts)
                mean = math.fsum(w * h for w, h in zip(weights, heights, strict=True)) / total
                ends.append(min(100.0, round(100 * mean, 9)))
    return min(ends), max(ends)


def weights_key(weights: Mapping[str, float]) -> str:
    """Hash the chosen metrics and their renormalised weights, in any order, to 8 hex digits."""
    text = ",".join(f"{name}={weight:.12g}" for name, weight in sorted(weights.items()))
    return hashlib.blake2b(text.encode(), digest_size=4).hexdigest()


def _height(metric: MetricScore) -> float:
    return (metric.score or 0) / HIGHEST[metric.scale]
