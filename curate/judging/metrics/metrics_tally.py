"""Weighted metrics over a run: counts as rows come, the report at the end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from curate.records.metrics import MetricFigures, MetricScore, MetricsReport, MetricsScore

_CODES = 10


@dataclass(slots=True)
class _One:
    weight: float
    scored: int = 0
    na: int = 0
    total: int = 0
    poor: int = 0
    codes: Counter[str] = field(default_factory=Counter)
    flags: Counter[str] = field(default_factory=Counter)

    def add(self, metric: MetricScore) -> None:
        self.scored += metric.score is not None
        self.na += metric.score is None
        self.total += metric.score or 0
        self.poor += metric.is_poor
        self.codes.update([metric.failure_code] if metric.failure_code else [])
        self.flags.update(metric.flags)

    def figures(self) -> MetricFigures:
        return MetricFigures(
            weight=self.weight,
            scored=self.scored,
            na=self.na,
            mean=self.total / self.scored if self.scored else None,
            poor=self.poor,
            failure_codes=dict(self.codes.most_common(_CODES)),
            flags=dict(self.flags),
        )


@dataclass(slots=True)
class MetricsTally:
    """Counts rows of the stage."""

    dialogues: int = 0
    total: float = 0.0
    passed: int = 0
    flippable: int = 0
    weights_key: str = ""
    metrics: dict[str, _One] = field(default_factory=dict)

    def add(self, record: Mapping[str, Any]) -> None:
        """Count a scored row, as it is stored."""
        row = MetricsScore.model_validate(record)
        self.dialogues += 1
        self.total += row.overall_score
        self.passed += row.passed
        self.flippable += row.is_flippable
        self.weights_key = row.weights_key
        for metric in row.metrics:
            self.metrics.setdefault(metric.name, _One(metric.weight)).add(metric)

    def report(self) -> MetricsReport:
        """Return the counts of all rows added."""
        return MetricsReport(
            dialogues=self.dialogues,
            overall_mean=self.total / self.dialogues if self.dialogues else None,
            passed=self.passed,
            flippable=self.flippable,
            weights_key=self.weights_key,
            metrics={name: counts.figures() for name, counts in self.metrics.items()},
        )
