"""The figures of weighted metrics over a run, from rows whose sums are known."""

from __future__ import annotations

from typing import Any

import pytest

from curate.judging.metrics.metrics_tally import MetricsTally
from curate.records.metrics import MetricFigures, MetricsReport

IDENTITY = {"engine": "scripted", "model": "m"}


def metric(name: str, score: int | None, weight: float = 0.5, **more: Any) -> dict[str, Any]:
    scale = "binary" if name == "grounding" else "scored"
    return {
        "name": name, "tier": "process", "scale": scale, "weight": weight, "share": weight, "score": score,
    } | more  # fmt: skip


def row(overall: float, low: float, high: float, *metrics: dict[str, Any]) -> dict[str, Any]:
    """A row as it is stored, of a dialogue that passes from 60 on."""
    return {
        "kind": "metrics", "dialogue_id": "d", "content_hash": "0" * 32, "identity": IDENTITY,
        "metrics": metrics, "overall_score": overall, "pass_threshold": 60, "passed": overall >= 60,
        "weights_key": "w1", "overall_range": (low, high),
    }  # fmt: skip


def tallied(*rows: dict[str, Any]) -> MetricsReport:
    tally = MetricsTally()
    for one in rows:
        tally.add(one)
    return tally.report()


def test_figures_are_those_of_all_rows() -> None:
    lost = {"failure_code": "lost_thread"}
    report = tallied(
        row(90, 85, 95, metric("pacing", 5, 0.25), metric("grounding", 1, 0.75)),
        row(70, 55, 80, metric("pacing", 2, 0.25, **lost), metric("grounding", 1, 0.75)),
        row(20, 10, 30, metric("pacing", 0, 0.25, **lost), metric("grounding", 0, 0.75, flags=["turns_dropped", "failure_code_missing"])),
        row(50, 40, 60, metric("pacing", None, 0.25, na="judge"), metric("grounding", 0, 0.75, failure_code="made_up", flags=["turns_dropped"])),
        row(60, 60, 70, metric("pacing", None, 0.25, na="judge"), metric("grounding", 1, 0.75)),
    )  # fmt: skip
    assert report == MetricsReport(
        dialogues=5,
        overall_mean=(90 + 70 + 20 + 50 + 60) / 5,
        passed=3,
        flippable=2,
        weights_key="w1",
        metrics={
            "pacing": MetricFigures(
                weight=0.25, scored=3, na=2, mean=7 / 3, poor=2, failure_codes={"lost_thread": 2}
            ),
            "grounding": MetricFigures(
                weight=0.75, scored=5, na=0, mean=3 / 5, poor=2, failure_codes={"made_up": 1},
                flags={"turns_dropped": 2, "failure_code_missing": 1},
            ),
        },
    )  # fmt: skip


def test_a_metric_that_applies_to_no_dialogue_has_no_mean() -> None:
    report = tallied(row(80, 70, 90, metric("pacing", None, na="no_tools")))
    assert report.metrics["pacing"] == MetricFigures(weight=0.5, scored=0, na=1, mean=None, poor=0)


def test_without_rows_nothing_is_made_up() -> None:
    assert tallied() == MetricsReport(dialogues=0, passed=0, flippable=0, metrics={})


def test_the_most_frequent_failure_codes_are_kept_in_falling_order() -> None:
    times = {f"code_{n}": 1 + n % 11 for n in range(11)}
    rows = [
        row(10, 5, 20, metric("pacing", 0, failure_code=code))
        for code, count in times.items()
        for _ in range(count)
    ]
    codes = tallied(*rows).metrics["pacing"].failure_codes
    expected = sorted(times.items(), key=lambda one: -one[1])[:10]
    assert [*codes.items()] == expected


def test_a_row_that_is_no_score_of_metrics_is_refused() -> None:
    with pytest.raises(ValueError, match="kind"):
        tallied(row(80, 70, 90) | {"kind": "judgment"})
