"""Fit a judge's calibration to a run's scores and people's labels, or to the shares of levels that a user expects.

This module joins scores and labels; `gold_fit` fits each part of a calibration, `adherence_fit` the curve of role
adherence alone, by labels in the data.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from curate.errors import UsageError
from curate.records import (
    CONVERSATION_DIMENSIONS,
    TURN_DIMENSIONS,
    Calibration,
    Judgment,
)
from curate.records.calibration import MetricCalibration
from curate.records.calibration_file import read_calibration
from curate.records.readings import METRIC, conversation_value, turn_value
from curate.run.ingest import read_dialogues
from curate.run.labels.adherence_fit import Labels, calibrate_run, labelled_dialogues
from curate.run.labels.gold_fit import GoldFit
from curate.run.labels.hold_out import without_kept
from curate.run.labels.run_scores import (
    adherence_of,
    groups_of,
    highest_levels,
    judgments_of,
    metrics_of,
    one_judge,
)
from curate.sources import SourceConfig
from curate.trust.calibration_fit import CalibrationMethod
from curate.trust.gold import match_gold
from curate.trust.label_rows import GoldRow, Unused, labels_in_data, read_gold
from curate.trust.levels import share_cut_points
from curate.trust.scales import Scale, parse_scales


@dataclass(frozen=True, slots=True)
class Fitted:
    """A fitted calibration, and what became of the labels.

    Attributes:
        calibration: the parts that could be fitted.
        rows: number of labels given.
        unused: labels that could not be used for this run, by reason.
        not_fitted: parts that have too few labels, with the reason; by dimension or `p_good`.
        assumed_scales: as in `trust.gold.Gold`.
    """

    calibration: Calibration
    rows: int = 0
    unused: Unused = field(default_factory=Unused)
    not_fitted: dict[str, str] = field(default_factory=dict)
    assumed_scales: dict[str, str] = field(default_factory=dict)


def calibrate_by(
    scores: Path,
    origin: Path | Mapping[str, Mapping[int, float]] | None,
    dimension: str | None = None,
    *,
    source: SourceConfig | None = None,
    labels: Labels,
    scales: Sequence[str] = (),
    method: CalibrationMethod = "platt",
    hold_out: float = 0.0,
) -> Fitted:
    """Fit a calibration to labels or to expected shares, by whichever function below fits their origin.

    Args:
        scores: run folder; for role adherence also a file of its records.
        origin: a file of labels, or the shares of levels; None for the labels in the data.
        dimension: what the labels in the data rate; None for role adherence.
        source: labelled dialogues; the run's own where None.
        labels: where these dialogues say what their turns are.
        scales: as for `scales.parse_scales`.
        method, hold_out: as for `calibrate_with_gold`.
    """
    if isinstance(origin, Mapping):
        return Fitted(calibrate_with_shares(scores, origin))
    if origin is None and dimension is None:
        return Fitted(calibrate_run(scores, source, labels=labels, method=method))
    if origin is not None:
        rows = read_gold(origin)
    else:
        rows = labels_in_data(labelled_dialogues(scores, source), labels.field, dimension or "")
    parsed = parse_scales(scales)
    return calibrate_with_gold(scores, rows, scales=parsed, method=method, hold_out=hold_out)


def calibrate_with_gold(
    run: str | Path,
    rows: Sequence[GoldRow],
    *,
    scales: Mapping[str, Scale] | None = None,
    method: CalibrationMethod = "platt",
    hold_out: float = 0.0,
) -> Fitted:
    """Fit all that labels allow to the scores of a run: levels, `p_good`, role adherence, levels and weights of metrics.

    Labels that were drawn to certify are not used: they could not certify what was fitted to them.

    Args:
        run: folder of a run; calibrated scores serve as well, since readings and digits are kept.
        rows: as `label_rows.read_gold` or `label_rows.labels_in_data` gives them.
        scales: as `scales.parse_scales` gives them.
        method: the curve of role adherence.
        hold_out: share of the labelled dialogues to keep for a certificate: by their content, so always the same.

    Raises:
        UsageError: no label is about the run, or nothing could be fitted; says why of each.
    """
    run = Path(run)
    usable_rows, kept_rows = without_kept(run, rows, hold_out)
    metrics = metrics_of(run)
    gold = match_gold(usable_rows, read_dialogues(run), scales, metrics=highest_levels(metrics))
    gold.unused.merge(kept_rows)
    needs_rubric = bool(gold.levels) or (bool(gold.good) and not metrics)
    judgments = judgments_of(run, needed=needs_rubric) if gold.levels or gold.good else {}
    adherence = adherence_of(run, needed=bool(gold.adherent))
    fit = GoldFit(gold, judgments, adherence, metrics, groups_of(run))
    levels = fit.levels()
    metric_calibration = fit.metric_calibration()
    good = fit.good() if gold.good and judgments else None
    curve = fit.adherence_curve(method) if gold.adherent else None
    if not (levels or metric_calibration or good or curve):
        reasons = [f"{name}: {why}" for name, why in fit.not_fitted.items()]
        raise UsageError(
            "nothing could be calibrated",
            got="\n    ".join([*reasons, *gold.unused.reasons()]) or "no label",
            expected="more labels",
        )
    items = (*gold.levels, *gold.metrics, *gold.adherent)
    calibration = Calibration(
        kind="calibration",
        identity=one_judge(judgments.values(), "judgments") if levels or good else None,
        levels=levels,
        good=good,
        adherence=curve,
        metrics=metric_calibration,
        labelled=tuple(sorted({item.content_hash for item in items} | gold.good.keys())),
    )
    return Fitted(calibration, len(rows), gold.unused, fit.not_fitted, gold.assumed_scales)


def calibrate_with_shares(run: Path, shares: Mapping[str, Mapping[int, float]]) -> Calibration:
    """Return cut points that give the run's readings the shares of levels that a user expects; no labels needed.

    Args:
        run: folder of a run.
        shares: by dimension, of levels 1 to 5; `*` for all dimensions but safety. That one must be named: by
            the verdict rule every dialogue with a safety below 5 is poor.

    Raises:
        UsageError: shares that are none, an unknown dimension, or a run without judgments.
    """
    dimensions = (*TURN_DIMENSIONS, *CONVERSATION_DIMENSIONS)
    if unknown := set(shares) - {*dimensions, "*"}:
        raise UsageError(
            "no such dimension", got=", ".join(sorted(unknown)), expected=", ".join(dimensions)
        )
    judgments = judgments_of(run)
    levels = {}
    for name in dimensions:
        expected = shares.get(name, {} if name == "safety" else shares.get("*", {}))
        if expected:
            values = [
                value for judgment in judgments.values() for value in _values_of(judgment, name)
            ]
            levels[name] = share_cut_points(values, expected)
    return Calibration(
        kind="calibration", identity=one_judge(judgments.values(), "judgments"), levels=levels
    )


def merged_calibration(calibration: Calibration, path: Path) -> tuple[Calibration, tuple[str, ...]]:
    """Return a calibration with those parts of the file at `path` that are of the same judge and were not fitted now.

    Returns:
        The merged calibration, and the names of the parts taken from the file: dimensions, `p_good`, `adherence`.

    Raises:
        UsageError: there is a file, and it is no calibration.
    """
    if not path.exists():
        return calibration, ()
    earlier = read_calibration(path, str(path))
    assert earlier is not None
    kept_names: list[str] = []
    update: dict[str, Any] = {
        "labelled": tuple(sorted({*calibration.labelled, *earlier.labelled})),
    }
    if calibration.adherence is None and earlier.adherence is not None:
        update["adherence"] = earlier.adherence
        kept_names.append("adherence")
    if calibration.identity is None or calibration.identity == earlier.identity:
        update["identity"] = earlier.identity
        update["levels"] = earlier.levels | calibration.levels
        kept_names += [name for name in earlier.levels if name not in calibration.levels]
        if calibration.good is None and earlier.good is not None:
            update["good"] = earlier.good
            kept_names.append("p_good")
    if earlier.metrics is not None:
        update["metrics"], names = _merged_metrics(calibration.metrics, earlier.metrics)
        kept_names += names
    return calibration.model_copy(update=update), tuple(kept_names)


def _merged_metrics(
    fitted_now: MetricCalibration | None, earlier: MetricCalibration
) -> tuple[MetricCalibration, list[str]]:
    """Return the metrics of `merged_calibration`: those fitted now, and of the same judge those that were not."""
    if fitted_now is not None and fitted_now.identity != earlier.identity:
        return fitted_now, []
    levels = fitted_now.levels if fitted_now else {}
    names = [METRIC + name for name in earlier.levels if name not in levels]
    weights = fitted_now.weights if fitted_now and fitted_now.weights else earlier.weights
    if weights is not None and weights is earlier.weights:
        names.append("weights of metrics")
    whole = earlier.model_copy(update={"levels": earlier.levels | levels, "weights": weights})
    return whole, names


def _values_of(judgment: Judgment, name: str) -> list[float]:
    if name in TURN_DIMENSIONS:
        return [turn_value(turn, name) for turn in judgment.per_turn]
    value = conversation_value(getattr(judgment.conversation_level, name))
    return [] if value is None else [value]
