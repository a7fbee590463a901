"""The shipped metrics, from `prompts/metrics.md`, and the parts of a metric."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, get_args

from curate.engines.prompt_files import prompt_sections
from curate.records.metrics import MetricScale, MetricTier

LEVELS: Mapping[MetricScale, tuple[str, ...]] = {
    "scored": ("5", "4", "3", "2", "1", "0"),
    "binary": ("pass", "fail"),
}
"""The levels of each scale, best first; each needs a text."""
HIGHEST: Mapping[MetricScale, int] = {"scored": 5, "binary": 1}
"""The highest score of each scale, which a score is divided by."""


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric.

    Attributes:
        scale: `scored` (0-5) or `binary` (pass or fail).
        asks: what it measures, one sentence.
        levels: text of each level of the scale, best first.
        weight: where the recipe gives none; None where it must.
        na: when the judge may say that it does not apply; None where it may not.
    """

    name: str
    tier: MetricTier
    scale: MetricScale
    asks: str
    levels: Mapping[str, str]
    weight: float | None
    na: str | None = None

    @property
    def text(self) -> str:
        """The metric with its scale, as the judge reads it."""
        scale = "0-5" if self.scale == "scored" else "pass or fail"
        lines = [f"{self.name} ({scale}): {self.asks}"]
        lines += [f"{level} = {text}" for level, text in self.levels.items()]
        return "\n".join(lines + ([f"n/a = {self.na}"] if self.na else []))


@cache
def shipped() -> Mapping[str, Metric]:
    """Return the shipped metrics by name, in the order of the source."""
    return {
        name: _metric(name, text) for name, text in prompt_sections("judging", "metrics").items()
    }


def _metric(name: str, text: str) -> Metric:
    lines = dict(line.split(": ", 1) for line in text.splitlines())
    scale: MetricScale = "scored" if "5" in lines else "binary"
    tiers: tuple[Any, ...] = get_args(MetricTier)
    return Metric(
        name,
        tiers[tiers.index(lines["tier"])],
        scale,
        lines["asks"],
        {level: lines[level] for level in LEVELS[scale]},
        float(lines["weight"]) if "weight" in lines else None,
        lines.get("na"),
    )


def as_response(metrics: Mapping[str, Metric]) -> dict[str, Any]:
    """Return the metrics in the shape of the source's `GET /config/available-metrics`."""
    data = [
        {
            "name": metric.name,
            "display_name": metric.name.replace("_", " ").title(),
            "description": metric.asks,
            "tier": metric.tier,
            "default_weight": metric.weight or 0,
            "score_type": metric.scale,
            "rubric": "\n".join(f"{level}: {text}" for level, text in metric.levels.items()),
            "include_in_defaults": metric.weight is not None,
        }
        for metric in metrics.values()
    ]
    return {"data": data, "count": len(data)}
