"""Fit the curve of role adherence to labels that dialogues carry; of a run, or of a file of its scores.

There is one label, about a dialogue's last assistant turn (as in a benchmark), or a list with one for each assistant
turn, in order.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from curate.dialogue import Dialogue
from curate.errors import UsageError, first_misfit
from curate.records import AdherenceScore, Calibration, JudgeCalibration, Unscored
from curate.run.ingest import read_dialogues
from curate.run.labels.run_scores import adherence_judge, adherence_of, raw_adherence
from curate.run.read_back import read_manifest
from curate.sources import SourceConfig, open_source
from curate.storage.line_files import read_lines
from curate.trust.calibration_fit import CalibrationMethod, LabelledScore, fit_calibration
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
