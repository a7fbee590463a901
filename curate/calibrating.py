"""From a run's adherence scores and a source's labels to a judge's calibration.

Fitting is `trust.calibration`; here scores and labels are brought together. A dialogue's label is that of
its last assistant turn (the form of a benchmark), or a list with one for each assistant turn, in order.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
from pydantic import TypeAdapter, ValidationError

from curate.dialogue import Dialogue
from curate.errors import UsageError
from curate.files import atomic_file, damaged, read_lines
from curate.ingesting import read_dialogues
from curate.records import AdherenceScore, JudgeCalibration, Unscored
from curate.runs import read_manifest
from curate.sources import SourceConfig, open_source
from curate.store import StageRows
from curate.trust.calibration import (
    CalibrationMethod,
    Judged,
    LabelledScore,
    fit_calibration,
)

_RECORD: TypeAdapter[AdherenceScore | Unscored] = TypeAdapter(AdherenceScore | Unscored)


@dataclass(frozen=True, slots=True)
class Labels:
    """Where a dialogue says what its turns are.

    Attributes:
        field: name of the label.
        adherent: its value for a turn that keeps its role; `true` and 1 are one always. Any other value
            is a violation, and null is no label.
    """

    field: str = "label"
    adherent: str = "adherent"

    def of(self, dialogue: Dialogue, answers: int) -> list[bool | None]:
        """For each of so many answers about a dialogue, whether it is labelled adherent; None without label.

        Raises:
            UsageError: a list of another length, or a value that is no label.
        """
        value = dialogue.labels.get(self.field)
        values = value if isinstance(value, list) else [None] * (answers - 1) + [value]
        if len(values) != answers or any(isinstance(held, dict | list) for held in values):
            raise UsageError(
                f"the label '{self.field}' of dialogue {dialogue.id} does not fit its turns",
                got=f"{str(value)[:80]} for {answers} assistant turns",
                expected="one value, of the last assistant turn, or a list with one for each",
            )
        return [None if held is None else self._is_adherent(held) for held in values]

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
    found = {record.content_hash: record for record in scores if isinstance(record, AdherenceScore)}
    where = labels or Labels()
    turns = [
        turn
        for dialogue in dialogues
        if where.field in dialogue.labels and dialogue.content_hash in found
        for turn in _labelled(dialogue, found[dialogue.content_hash], where)
    ]
    if not turns:
        raise UsageError(
            "no labelled turn has a score",
            got=f"{len(found)} scored dialogues, none with a label '{where.field}'",
            expected="a source whose rows carry that label",
            fix="name the label with --label, or the labelled source with --labels",
        )
    return fit_calibration(turns, _judge_of(found.values()), method)


def calibrate_run(
    scores: Path,
    source: SourceConfig | None = None,
    *,
    labels: Labels | None = None,
    method: CalibrationMethod = "platt",
) -> JudgeCalibration:
    """Fit a calibration to the scores of a run folder, or of a file of adherence records.

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
    if scores.is_dir():
        read_manifest(scores)
    if source is not None:
        read = [held for unit in open_source(source).read() for held in unit.dialogues]
        dialogues: Iterable[Dialogue] = _relabelled(scores, read) if scores.is_dir() else read
    elif scores.is_dir():
        dialogues = read_dialogues(scores)
    else:
        raise UsageError(
            "a file of scores holds no labels",
            got=scores,
            fix="name the labelled source with --labels",
        )
    return calibrate(_read_scores(scores), dialogues, labels=labels, method=method)


def write_calibration(path: Path, calibration: JudgeCalibration) -> None:
    """Write the file that a recipe names as `adherence.calibration`."""
    with atomic_file(path) as out:
        out.write(
            orjson.dumps(
                calibration.model_dump(mode="json"),
                option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE,
            )
        )


def _relabelled(run: Path, labelled: Iterable[Dialogue]) -> list[Dialogue]:
    """The run's dialogues with the labels of those that say the same, or have the same id.

    By id, too, because a role that the recipe gave is part of what a dialogue says.
    """
    by_hash: dict[str, Mapping[str, Any]] = {}
    by_id: dict[str, Mapping[str, Any]] = {}
    for dialogue in labelled:
        by_hash[dialogue.content_hash] = by_id[dialogue.id] = dialogue.labels
    return [
        dialogue.model_copy(update={"labels": dict(given)})
        for dialogue in read_dialogues(run)
        if (given := by_hash.get(dialogue.content_hash) or by_id.get(dialogue.id))
    ]


def _read_scores(path: Path) -> list[AdherenceScore | Unscored]:
    if path.is_dir():
        print_ = read_manifest(path).fingerprints.get("adherence")
        if print_ is None:
            raise UsageError("the run has no adherence scores", got=path)
        rows: StageRows[AdherenceScore | Unscored] = StageRows(
            path / "adherence" / print_,
            dump=lambda record: record.model_dump_json().encode(),
            load=_RECORD.validate_json,
            check=_RECORD.validate_json,
        )
        if rows.damage:
            raise damaged(rows.folder, rows.damage[0])
        return [record for _, record in rows.read()]
    try:
        return [_RECORD.validate_json(line) for line in read_lines(path) if line.strip()]
    except (OSError, ValidationError) as error:
        raise UsageError(
            "not a file of adherence scores",
            got=f"{path}: {str(error).splitlines()[0]}",
            expected="a run folder, or JSON Lines of adherence records (`curate schema adherence`)",
        ) from error


def _labelled(
    dialogue: Dialogue, record: AdherenceScore, labels: Labels
) -> Iterable[LabelledScore]:
    group = dialogue.group or record.content_hash
    whole = record.conversation
    if whole is not None:
        value = dialogue.labels.get(labels.field)
        if isinstance(value, list):
            known = [held for held in labels.of(dialogue, len(value)) if held is not None]
            # The conversation keeps its role where every labelled turn does.
            given = all(known) if known else None
        else:
            (given,) = labels.of(dialogue, 1)
        raw = record.session_score if whole.raw_score is None else whole.raw_score
        if given is not None and not whole.imputed:
            yield LabelledScore(raw, given, group)
        return
    for turn, label in zip(record.per_turn, labels.of(dialogue, len(record.per_turn)), strict=True):
        score = turn.score if turn.raw_score is None else turn.raw_score
        if label is not None and score is not None and not turn.imputed:
            yield LabelledScore(score, label, group)


def _judge_of(records: Iterable[AdherenceScore]) -> Judged:
    judges = [
        Judged(
            record.identity.uncalibrated(),
            record.scoring_method,
            record.evaluation_granularity,
            record.definition,
        )
        for record in records
    ]
    first = judges[0]
    if other := next((judge for judge in judges if judge != first), None):
        raise UsageError(
            "the scores are of several judges, or were asked for in several ways",
            got=f"{first.identity.model} and {other.identity.model}",
            expected="scores of one judge: a calibration holds for no other",
        )
    return first
