"""A finished run's scores by the content hash of their dialogue: what is held against labels of people."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from curate.errors import UsageError
from curate.records import (
    AdherenceScore,
    JudgeIdentity,
    Judgment,
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
from curate.run.read_back import read_manifest
from curate.run.staging import scored_rows
from curate.storage.whole_files import damaged
from curate.trust.gold import Item, Label, Unused
from curate.trust.levels import LabelledReading


def rows_of(run: Path, stage: StageName) -> list[tuple[str, Any]] | None:
    """The rows of a judging stage with their content hashes; None of a run without it.

    Raises:
        UsageError: no run folder.
        CurateError: a row is damaged: a fit without it would say nothing of that.
    """
    fingerprint = read_manifest(run).fingerprints.get(stage)
    if fingerprint is None:
        return None
    rows = scored_rows(run, stage, fingerprint)
    if rows.damage:
        raise damaged(rows.folder, rows.damage[0])
    return list(rows.read())


def judgments_of(run: Path, *, needed: bool = True) -> dict[str, Judgment]:
    """The judgments of a run by content hash; those that were not scored are left out.

    Raises:
        UsageError: no run folder; they are needed and not there.
    """
    rows = rows_of(run, StageName.JUDGE)
    if rows is None and needed:
        raise UsageError("the run has no judgments", got=run, expected="a run with a rubric judge")
    return {key: row for key, row in rows or () if isinstance(row, Judgment)}


def adherence_of(run: Path, *, needed: bool) -> dict[str, AdherenceScore]:
    """Role adherence by content hash, likewise; nothing of a run without it, unless it is needed.

    Raises:
        UsageError: no run folder; it is needed and not there.
    """
    rows = rows_of(run, StageName.ADHERENCE)
    if rows is None and needed:
        raise UsageError(
            "the run has no adherence scores", got=run, fix="run its recipe with `adherence` first"
        )
    return {key: row for key, row in rows or () if isinstance(row, AdherenceScore)}


@dataclass(frozen=True, slots=True)
class JudgedItem:
    """What a judge said of a labelled item.

    Attributes:
        level: as it stands in the record, calibrated where it is; None for n/a.
        digit: before any calibration.
        value: the finest reading, the expectation where there is one.
        na: probability of n/a, 0-1.
    """

    level: int | None
    digit: int | None
    value: float | None
    na: float = 0.0


def item_reading(
    item: Item, judgments: Mapping[str, Judgment], metrics: Mapping[str, MetricsScore]
) -> JudgedItem | str:
    """What was said of an item of the rubric, or of a metric on its own scale; or why there is nothing."""
    name = item.dimension
    if name.startswith(METRIC):
        row = metrics.get(item.content_hash)
        named = (one for one in (row.metrics if row else ()) if METRIC + one.name == name)
        metric = next(named, None)
        if metric is None:
            return "the metrics of the dialogue could not be scored"
        return JudgedItem(metric.score, metric_digit(metric), metric_value(metric))
    judgment = judgments.get(item.content_hash)
    if judgment is None:
        return "the judge could not score the dialogue"
    if item.turn is None:
        held = getattr(judgment.conversation_level, name)
        digit = conversation_digit(held)
        na = held.reading.probabilities.get("n/a", 0.0) if held.reading else float(digit is None)
        level = None if held.score == "n/a" else held.score
        return JudgedItem(level, digit, conversation_value(held), na)
    turn = next((turn for turn in judgment.per_turn if turn.turn == item.turn), None)
    if turn is None:
        return "the judge has no score of that turn"
    digit = getattr(turn.digits or turn.scores, name)
    return JudgedItem(getattr(turn.scores, name), digit, turn_value(turn, name))


def labelled_readings(
    labels: Mapping[Item, Label],
    judgments: Mapping[str, Judgment],
    metrics: Mapping[str, MetricsScore],
    groups: Mapping[str, str],
    unused: Unused,
) -> Iterator[LabelledReading]:
    """What was said of each labelled item; labels of what could not be scored are counted.

    Of a metric n/a is no level: the judge says where it does not apply, and such labels are counted, too.
    """
    for item, label in labels.items():
        read = item_reading(item, judgments, metrics)
        if not isinstance(read, str) and item.dimension.startswith(METRIC):
            if label.level is None:
                read = "n/a: a metric is n/a where the judge says so"
            elif read.digit is None:
                read = "the metric is n/a to the judge"
        if isinstance(read, str):
            unused.add(read, label.place, label.rows)
            continue
        group = groups[item.content_hash]
        yield LabelledReading(read.value, read.digit, read.na, label.level, group)


def one_judge(
    records: Iterable[Judgment | AdherenceScore | MetricsScore], what: str
) -> JudgeIdentity:
    """The one judge of all records, before any calibration.

    Args:
        what: these are, in words.

    Raises:
        UsageError: there is none, or there are several.
    """
    identities = list(
        {
            one.identity.uncalibrated().model_dump_json(): one.identity.uncalibrated()
            for one in records
        }.values()
    )
    if not identities:
        raise UsageError(
            "the run has no scored dialogue", expected=f"{what} to hold labels against"
        )
    if len(identities) > 1:
        raise UsageError(
            f"the {what} are of several judges, or were asked for in several ways",
            got=", ".join(f"{one.model} {one.mode}" for one in identities[:3]),
            expected="scores of one judge: what is measured or fitted holds for no other",
        )
    return identities[0]
