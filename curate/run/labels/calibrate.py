"""Fit a judge's calibration to a run's scores and people's labels.

This module joins scores and labels; `gold_fit` fits each part of a calibration.
Labels are a file of gold rows (`gold`), or are in the data: for role adherence one label, about a dialogue's last
assistant turn (as in a benchmark), or a list with one for each assistant turn, in order.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from curate.dialogue import Dialogue
from curate.errors import UsageError, first_misfit
from curate.records import (
    CONVERSATION_DIMENSIONS,
    TURN_DIMENSIONS,
    AdherenceScore,
    Calibration,
    JudgeCalibration,
    Judgment,
    Unscored,
)
from curate.records.calibration import MetricCalibration
from curate.records.calibration_file import read_calibration
from curate.records.readings import METRIC, conversation_value, turn_value
from curate.run.ingest import read_dialogues
from curate.run.labels.drawn_labels import without_kept
from curate.run.labels.gold_fit import GoldFit
from curate.run.labels.run_scores import (
    adherence_judge,
    adherence_of,
    groups_of,
    highest_levels,
    judgments_of,
    metrics_of,
    one_judge,
    raw_adherence,
)
from curate.run.read_back import read_manifest
from curate.sources import SourceConfig, open_source
from curate.storage.line_files import read_lines
from curate.trust.calibration_fit import CalibrationMethod, LabelledScore, fit_calibration
from curate.trust.gold import Scale, match_gold, parse_scales
from curate.trust.label_rows import GoldRow, Unused, labels_in_data, read_gold
from curate.trust.levels import share_cut_points
from curate.wording import plural

_RECORD: TypeAdapter[AdherenceScore | Unscored] = TypeAdapter(AdherenceScore | Unscored)


@dataclass(frozen=True, slots=True)
class Labels:
    """The label of a dialogue that says which of its turns keep their role.

    Attributes:
        field: name of the label.
        adherent: its value for a turn that keeps its role; `true` and 1 always mean that, too. Any other value
            is a violation, and null is no label.
    """

    field: str = "label"
    adherent: str = "adherent"

    def of(self, dialogue: Dialogue, answers: int) -> list[bool | None]:
        """Return for each answer about a dialogue whether it is labelled adherent; None without a label.

        Raises:
            UsageError: a list of another length, or a value that is no label.
        """
        value = dialogue.labels.get(self.field)
        values = value if isinstance(value, list) else [None] * (answers - 1) + [value]
        if len(values) != answers or any(isinstance(one, dict | list) for one in values):
            raise UsageError(
                f"the label '{self.field}' of dialogue {dialogue.id} does not fit its turns",
                got=f"{str(value)[:80]} for {plural(answers, 'assistant turn')}",
                expected="one value, of the last assistant turn, or a list with one for each",
            )
        return [None if one is None else self._is_adherent(one) for one in values]

    def _is_adherent(self, value: Any) -> bool:
        if isinstance(value, int) and value in (0, 1):  # booleans are integers, too
            return bool(value)
        return str(value) == self.adherent


def calibrate(
    scores: Iterable[AdherenceScore | Unscored],
    dialogues: Iterable[Dialogue],
    *,
    labels: Labels | None = None,
    method: CalibrationMethod = "platt",
) -> JudgeCalibration:
    """Fit one judge's calibration to scores of labelled dialogues.

    Args:
        scores: of these dialogues, all by one judge asked in one way. Raw scores are taken, so scores that
            were recalibrated serve as well. Answers without evidence (0.5 by `on_missing`) are left out.
        dialogues: with labels; those without are left out.
        labels: where they say what their turns are.
        method: the curve that is stored.

    Raises:
        UsageError: scores of several judges; labels that do not fit; what `fit_calibration` refuses.
    """
    records = {
        record.content_hash: record for record in scores if isinstance(record, AdherenceScore)
    }
    label = labels or Labels()
    turns = [
        turn
        for dialogue in dialogues
        if label.field in dialogue.labels and dialogue.content_hash in records
        for turn in _labelled_scores(dialogue, records[dialogue.content_hash], label)
    ]
    if not turns:
        raise UsageError(
            "no labelled turn has a score",
            got=f"{len(records)} scored dialogues, none with a label '{label.field}'",
            expected="a source whose rows carry that label",
            fix="name the label with --label, or the labelled source with --labels",
        )
    return fit_calibration(turns, adherence_judge(records.values()), method)


def calibrate_run(
    scores: Path,
    source: SourceConfig | None = None,
    *,
    labels: Labels | None = None,
    method: CalibrationMethod = "platt",
) -> Calibration:
    """Fit the curve of role adherence to the scores of a run folder, or of a file of adherence records.

    Args:
        scores: run folder, or JSON Lines of adherence records, as `curate schema adherence` describes.
        source: labelled dialogues, matched by what they say; the run's own where None.
        labels: where they say what their turns are.
        method: the curve that is stored.

    Raises:
        UsageError: not a run folder with adherence scores, nor such a file; else as in `calibrate`.
    """
    if not scores.exists():
        raise UsageError(
            "not a file of adherence scores",
            got=f"{scores}: no such file or folder",
            expected="a run folder, or JSON Lines of adherence records",
        )
    labels = labels or Labels()
    labelled: set[str] = set()

    def dialogues() -> Iterator[Dialogue]:
        for dialogue in labelled_dialogues(scores, source):
            if labels.field in dialogue.labels:
                labelled.add(dialogue.content_hash)
                yield dialogue

    fitted = calibrate(_read_scores(scores), dialogues(), labels=labels, method=method)
    return Calibration(kind="calibration", adherence=fitted, labelled=tuple(sorted(labelled)))


def labelled_dialogues(scores: Path, source: SourceConfig | None = None) -> Iterable[Dialogue]:
    """Return the dialogues of a run, with the labels of a source if there is one; for a file of scores the source's.

    Raises:
        UsageError: not a run folder; a file of scores and no source.
    """
    if scores.is_dir():
        read_manifest(scores)
    if source is not None:
        labelled = [dialogue for unit in open_source(source).read() for dialogue in unit.dialogues]
        return _relabelled(scores, labelled) if scores.is_dir() else labelled
    if scores.is_dir():
        return read_dialogues(scores)
    raise UsageError(
        "a file of scores holds no labels",
        got=scores,
        fix="name the labelled source with --labels",
    )


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
        scales: as for `gold.parse_scales`.
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
        rows: as `gold.read_gold` or `gold.labels_in_data` gives them.
        scales: as `gold.parse_scales` gives them.
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
    """Return the metrics of `merged`: those fitted now, and of the same judge those that were not."""
    if fitted_now is not None and fitted_now.identity != earlier.identity:
        return fitted_now, []
    levels = fitted_now.levels if fitted_now else {}
    names = [METRIC + name for name in earlier.levels if name not in levels]
    weights = fitted_now.weights if fitted_now and fitted_now.weights else earlier.weights
    if weights is not None and weights is earlier.weights:
        names.append("weights of metrics")
    whole = earlier.model_copy(update={"levels": earlier.levels | levels, "weights": weights})
    return whole, names


def _relabelled(run: Path, labelled: Iterable[Dialogue]) -> list[Dialogue]:
    """Return the run's dialogues with the labels of those that have the same content or the same id.

    The id matters because a role that the recipe gave is part of the content.
    """
    by_hash: dict[str, Mapping[str, Any]] = {}
    by_id: dict[str, Mapping[str, Any]] = {}
    for dialogue in labelled:
        by_hash[dialogue.content_hash] = by_id[dialogue.id] = dialogue.labels
    return [
        dialogue.model_copy(update={"labels": dict(dialogue_labels)})
        for dialogue in read_dialogues(run)
        if (dialogue_labels := by_hash.get(dialogue.content_hash) or by_id.get(dialogue.id))
    ]


def _read_scores(path: Path) -> list[AdherenceScore | Unscored]:
    if path.is_dir():
        return [*adherence_of(path, needed=True).values()]
    try:
        return [_RECORD.validate_json(line) for line in read_lines(path) if line.strip()]
    except (OSError, ValidationError) as error:
        raise UsageError(
            "not a file of adherence scores",
            got=f"{path}: {first_misfit(error) if isinstance(error, ValidationError) else error.strerror}",
            expected="a run folder, or JSON Lines of adherence records (`curate schema adherence`)",
        ) from error


def _values_of(judgment: Judgment, name: str) -> list[float]:
    if name in TURN_DIMENSIONS:
        return [turn_value(turn, name) for turn in judgment.per_turn]
    value = conversation_value(getattr(judgment.conversation_level, name))
    return [] if value is None else [value]


def _labelled_scores(
    dialogue: Dialogue, record: AdherenceScore, labels: Labels
) -> Iterator[LabelledScore]:
    """Yield the scores of a dialogue's labelled turns, or of the dialogue where it was judged as a whole."""
    group = dialogue.group or record.content_hash
    scores = raw_adherence(record)
    if record.conversation is None:
        turn_labels = labels.of(dialogue, len(record.per_turn))
        for turn, label in zip(record.per_turn, turn_labels, strict=True):
            if label is not None and turn.turn in scores:
                yield LabelledScore(scores[turn.turn], label, group)
        return
    value = dialogue.labels.get(labels.field)
    answers = labels.of(dialogue, len(value) if isinstance(value, list) else 1)
    known = [answer for answer in answers if answer is not None]
    if known and None in scores:
        # The conversation keeps its role where every labelled turn does.
        yield LabelledScore(scores[None], all(known), group)
