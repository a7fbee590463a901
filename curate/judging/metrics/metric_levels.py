"""Calibrated levels of weighted metrics, and the overall score that follows from them.

A pure function of a record, as of the rubric: readings stay, what the judge said stands beside (`digit`), and it costs no call.
A diagnosis is the judge's, made for its own digit: a metric that is poor by its level alone has none.
"""

from __future__ import annotations

from collections.abc import Mapping

from curate.judging.metrics.weighing import overall, overall_range
from curate.records.calibration import CutPoints, MetricCalibration
from curate.records.calibration_file import check_same_judge, described
from curate.records.judgment import JudgeIdentity
from curate.records.metrics import MetricScore, MetricsScore
from curate.records.readings import metric_digit, metric_value

_COMPARED = ("model", "revision", "quantisation", "mode", "prompt_version")


def check_metric_judge(calibration: MetricCalibration, identity: JudgeIdentity) -> None:
    """Raise a UsageError where levels of metrics were fitted to another judge, or to other metrics."""
    fitted, here = described(calibration.identity.uncalibrated()), described(identity)
    fix = "run `curate calibrate` on a run of this judge with these metrics, or leave metrics.calibration out"
    check_same_judge(fitted, here, "metrics.calibration", fix, _COMPARED)


def with_metric_levels(
    record: MetricsScore, levels: Mapping[str, CutPoints], identity: JudgeIdentity
) -> MetricsScore:
    """Return a record with calibrated levels in `score`, and the overall score they give.

    Args:
        record: by the judge the cut points were fitted to.
        levels: cut points by metric; a metric without keeps its digit, and what is n/a stays so.
    """
    metrics = tuple(_leveled(metric, levels.get(metric.name)) for metric in record.metrics)
    total = overall(metrics)
    return record.model_copy(
        update={
            "identity": identity,
            "metrics": metrics,
            "overall_score": total,
            "passed": total >= record.pass_threshold,
            "overall_range": overall_range(metrics),
        }
    )


def _leveled(metric: MetricScore, cuts: CutPoints | None) -> MetricScore:
    digit, value = metric_digit(metric), metric_value(metric)
    level = digit if cuts is None or value is None else cuts.level(value)
    return metric.model_copy(update={"score": level, "digit": digit})
