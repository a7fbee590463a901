"""A finished run's scores by the content hash of their dialogue, to compare with people's labels."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from curate.errors import UsageError
from curate.judging.metrics.catalogue import HIGHEST
from curate.records import (
    AdherenceScore,
    JudgeIdentity,
    Judgment,
    Manifest,
    MetricsScore,
    StageName,
)
from curate.records.readings import (
    METRIC,
    conversation_digit,
    conversation_value,
    metric_digit,
    metric_value,
    turn_value,
)
from curate.run.ingest import read_index
from curate.run.read_back import read_manifest
from curate.run.staging import scored_rows
from curate.storage.stage_rows import StageRows
from curate.storage.whole_files import damaged
from curate.trust.calibration_fit import ScoreOrigin
from curate.trust.gold import GoldItem, Label
from curate.trust.label_rows import Unused
from curate.trust.levels import LabelledReading

R = TypeVar("R", Judgment, AdherenceScore, MetricsScore)


def stored_rows(run: Path, manifest: Manifest, stage: StageName) -> StageRows[Any] | None:
    """Return the rows of a judging stage; None of a run without the stage.

    Raises:
        CurateError: a row is damaged: what is made of the others would not say that one is missing.
    """
    fingerprint = manifest.fingerprints.get(stage)
    if fingerprint is None:
        return None
    rows = scored_rows(run, stage, fingerprint)
    if rows.damage:
        raise damaged(rows.folder, rows.damage[0])
    return rows


def _scores(run: Path, stage: StageName, record: type[R]) -> Iterable[tuple[str, R]] | None:
    """Return the scores of a stage with the content hashes of their dialogues; None of a run without the stage."""
    rows = stored_rows(run, read_manifest(run), stage)
    if rows is None:
        return None
    return ((key, row) for key, row in rows.read() if isinstance(row, record))


def read_judgments(run: Path, *, needed: bool = True) -> Iterable[tuple[str, Judgment]]:
    """Return the judgments of a run with their content hashes; dialogues that were not scored are left out.

    Raises:
        UsageError: no run folder; judgments are needed and the run has none.
        CurateError: a row is damaged.
    """
    judgments = _scores(run, StageName.JUDGE, Judgment)
    if judgments is None and needed:
        raise UsageError("the run has no judgments", got=run, expected="a run with a rubric judge")
    return judgments or ()


def judgments_of(run: Path, *, needed: bool = True) -> dict[str, Judgment]:
    """Return what `read_judgments` does, by content hash."""
    return dict(read_judgments(run, needed=needed))


def adherence_of(run: Path, *, needed: bool) -> dict[str, AdherenceScore]:
    """Return the role adherence scores of a run by content hash; none of a run without them, unless they are needed.

    Raises:
        UsageError: no run folder; scores are needed and the run has none.
    """
    scores = _scores(run, StageName.ADHERENCE, AdherenceScore)
    if scores is None and needed:
        raise UsageError(
            "the run has no adherence scores", got=run, fix="run its recipe with `adherence` first"
        )
    return dict(scores or ())


def metrics_of(run: Path) -> dict[str, MetricsScore]:
    """Return the weighted metrics of a run by content hash; empty for a run without them."""
    return dict(_scores(run, StageName.METRICS, MetricsScore) or ())


def highest_levels(metrics: Mapping[str, MetricsScore]) -> dict[str, int]:
    """Return the highest level of each metric of a run, by name."""
    return {
        metric.name: HIGHEST[metric.scale] for row in metrics.values() for metric in row.metrics
    }


def groups_of(run: Path) -> dict[str, str]:
    """Return by content hash the group of each dialogue of a run: its own hash where it names none."""
    index = read_index(run, "content_hash", "group")
    return {key: group or key for key, group in index.iter_rows()}


def raw_adherence(record: AdherenceScore) -> dict[int | None, float]:
    """Return scores before any calibration by turn, of a conversation judged as a whole under None.

    Answers without evidence are left out.
    """
    whole = record.conversation
    if whole is not None:
        score = record.session_score if whole.raw_score is None else whole.raw_score
        return {} if whole.imputed else {None: score}
    scores: dict[int | None, float] = {}
    for turn in record.per_turn:
        raw = turn.score if turn.raw_score is None else turn.raw_score
        if raw is not None and not turn.imputed:
            scores[turn.turn] = raw
    return scores


def adherence_judge(records: Iterable[AdherenceScore]) -> ScoreOrigin:
    """Return the one judge of all records of role adherence, of which there is at least one.

    Raises:
        UsageError: they are of several judges.
    """
    judges = [
        ScoreOrigin(
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
            "the scores come from several judges, or from one with several settings",
            got=f"{first.identity.model} and {other.identity.model}",
            expected="scores of one judge: a calibration holds for no other",
        )
    return first


@dataclass(frozen=True, slots=True)
class JudgedItem:
    """A judge's score of a labelled item.

    Attributes:
        level: as in the record, calibrated where that is; None for n/a.
        digit: the level before any calibration.
        value: the finest reading, the expectation where there is one.
        na: probability of n/a, 0-1.
    """

    level: int | None
    digit: int | None
    value: float | None
    na: float = 0.0


def item_reading(
    item: GoldItem, judgments: Mapping[str, Judgment], metrics: Mapping[str, MetricsScore]
) -> JudgedItem | str:
    """Return the score of an item of the rubric, or of a metric on its own scale; or in words why there is none."""
    name = item.dimension
    if name.startswith(METRIC):
        row = metrics.get(item.content_hash)
        metrics_of_row = row.metrics if row else ()
        metric = next((one for one in metrics_of_row if METRIC + one.name == name), None)
        if metric is None:
            return "the metrics of the dialogue could not be scored"
        return JudgedItem(metric.score, metric_digit(metric), metric_value(metric))
    judgment = judgments.get(item.content_hash)
    if judgment is None:
        return "the judge could not score the dialogue"
    if item.turn is None:
        score = getattr(judgment.conversation_level, name)
        digit = conversation_digit(score)
        na = score.reading.probabilities.get("n/a", 0.0) if score.reading else float(digit is None)
        level = None if score.score == "n/a" else score.score
        return JudgedItem(level, digit, conversation_value(score), na)
    turn = next((turn for turn in judgment.per_turn if turn.turn == item.turn), None)
    if turn is None:
        return "the judge has no score of that turn"
    digit = getattr(turn.digits or turn.scores, name)
    return JudgedItem(getattr(turn.scores, name), digit, turn_value(turn, name))


def labelled_readings(
    labels: Mapping[GoldItem, Label],
    judgments: Mapping[str, Judgment],
    metrics: Mapping[str, MetricsScore],
    groups: Mapping[str, str],
    unused: Unused,
) -> Iterator[LabelledReading]:
    """Yield the score of each labelled item; labels of items without a score are counted in `unused`.

    For a metric n/a is not a level: only the judge says where a metric does not apply, so labels with n/a are counted, too.
    """
    for item, label in labels.items():
        reading = item_reading(item, judgments, metrics)
        if not isinstance(reading, str) and item.dimension.startswith(METRIC):
            if label.level is None:
                reading = "n/a: a metric is n/a where the judge says so"
            elif reading.digit is None:
                reading = "the metric is n/a to the judge"
        if isinstance(reading, str):
            unused.add(reading, label.place, label.rows)
            continue
        group = groups[item.content_hash]
        yield LabelledReading(reading.value, reading.digit, reading.na, label.level, group)


def one_judge(
    records: Iterable[Judgment | AdherenceScore | MetricsScore], kind: str
) -> JudgeIdentity:
    """Return the one judge of all records, before any calibration.

    Args:
        records: scored dialogues.
        kind: of the records, as a plural, for the message.

    Raises:
        UsageError: there are no records, or they are of several judges.
    """
    identities = list(
        {
            one.identity.uncalibrated().model_dump_json(): one.identity.uncalibrated()
            for one in records
        }.values()
    )
    if not identities:
        raise UsageError(
            "the run has no scored dialogue", expected=f"{kind} to compare labels with"
        )
    if len(identities) > 1:
        raise UsageError(
            f"the {kind} come from several judges, or from one with several settings",
            got=", ".join(f"{one.model} {one.mode}" for one in identities[:3]),
            expected="scores of one judge: a measurement or fit holds for no other judge",
        )
    return identities[0]
