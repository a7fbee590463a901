"""Fit levels of each weighted metric, and the weights of all, to people's labels."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TypeVar

from curate.errors import UsageError
from curate.judging.metrics.catalogue import HIGHEST
from curate.records import CutPoints, MetricsScore, StageName
from curate.records.calibration import MetricCalibration, MetricWeights
from curate.records.readings import METRIC, metric_value
from curate.run.labels.run_scores import labelled_readings, one_judge, rows_of
from curate.trust.gold import Gold
from curate.trust.levels import fit_cut_points
from curate.trust.metric_weights import MeasuredDialogue, fit_metric_weights
from curate.trust.raters import krippendorff_alpha

F = TypeVar("F")


def metrics_of(run: Path) -> dict[str, MetricsScore]:
    """Return the weighted metrics of a run by content hash; empty for a run without them."""
    rows = rows_of(run, StageName.METRICS)
    return {key: row for key, row in rows or () if isinstance(row, MetricsScore)}


def highest_levels(metrics: Mapping[str, MetricsScore]) -> dict[str, int]:
    """Return the highest level of each metric of a run, by name."""
    return {
        metric.name: HIGHEST[metric.scale] for row in metrics.values() for metric in row.metrics
    }


def fitted(name: str, fit: Callable[[], F], not_fitted: dict[str, str]) -> F | None:
    """Return the result of a fit; None if the labels do not allow it, and add the reason to `not_fitted`."""
    try:
        return fit()
    except UsageError as error:
        got = f": {error.got}" if error.got else ""
        not_fitted[name] = f"{error.problem}{got}, expected {error.expected}"
        return None


def fit_metrics(
    gold: Gold,
    metrics: Mapping[str, MetricsScore],
    groups: Mapping[str, str],
    not_fitted: dict[str, str],
) -> MetricCalibration | None:
    """Fit levels of the labelled metrics, and weights if people say which dialogues are good.

    Args:
        gold: matched to the run.
        metrics: of the run, by content hash.
        groups: by content hash the group of a dialogue, which folds do not split.
        not_fitted: gets each part that has labels and could not be fitted, with the reason.

    Returns:
        None where nothing could be fitted.
    """
    levels: dict[str, CutPoints] = {}
    for name, highest in highest_levels(metrics).items():
        labels = {item: of for item, of in gold.metrics.items() if item.dimension == METRIC + name}
        if not labels:
            continue
        items = list(labelled_readings(labels, {}, metrics, groups, gold.unused))
        fit = partial(
            fit_cut_points,
            items,
            scale=str(gold.scales[METRIC + name]),
            ceiling=krippendorff_alpha([label.each for label in labels.values()]),
            what=METRIC + name,
            lowest=0,
            highest=highest,
        )
        if (cuts := fitted(METRIC + name, fit, not_fitted)) is not None:
            levels[name] = cuts
    weights = _fit_weights(gold, metrics, groups, not_fitted) if metrics and gold.good else None
    if not levels and weights is None:
        return None
    return MetricCalibration(
        identity=one_judge(metrics.values(), "metrics"), levels=levels, weights=weights
    )


def _fit_weights(
    gold: Gold,
    metrics: Mapping[str, MetricsScore],
    groups: Mapping[str, str],
    not_fitted: dict[str, str],
) -> MetricWeights | None:
    measured, given = [], {}
    for key, is_good in gold.good.items():
        if key not in metrics:
            continue
        row = metrics[key]
        given = {metric.name: metric.weight for metric in row.metrics}
        heights = {}
        for metric in row.metrics:
            value = metric_value(metric)
            heights[metric.name] = None if value is None else value / HIGHEST[metric.scale]
        measured.append(MeasuredDialogue(heights, is_good, groups[key]))
    fit = partial(fit_metric_weights, measured, given)
    return fitted("weights of metrics", fit, not_fitted)
