"""Read a run folder back: its manifest, its table, one dialogue with its scores."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import repeat
from pathlib import Path
from typing import Any

import orjson
import polars as pl

from curate.dialogue import Dialogue
from curate.errors import CurateError, UsageError
from curate.notebook import cell, dialogue_parts
from curate.records import SCORING, Manifest
from curate.records.validation import load_record
from curate.run.ingest import read_dialogues
from curate.run.outputs import (
    DECISIONS,
    DROPPED_PAIRS,
    NATURAL_PAIRS,
    PAIRS,
    SCORES,
    scores_path,
    stored_pairs,
)
from curate.selection.expressions import evaluate, evaluate_condition
from curate.storage.line_files import read_records
from curate.storage.parquet_files import read_frames, readable
from curate.storage.run_folder import MANIFEST, check_format
from curate.storage.stage_rows import StageRows, stored_record
from curate.storage.whole_files import damaged
from curate.wording import plural

_BATCH = 20_000


@dataclass(frozen=True, slots=True)
class JudgedDialogue:
    """A dialogue and its records, as stored; None where a stage has none."""

    dialogue: Dialogue
    judgment: dict[str, Any] | None
    adherence: dict[str, Any] | None
    metrics: dict[str, Any] | None
    factuality: dict[str, Any] | None

    def _repr_html_(self) -> str:
        data, spans = self.dialogue.model_dump(), self.dialogue.turn_spans
        return cell(*dialogue_parts(data, spans, self.judgment, self.adherence))


def read_manifest(run: Path) -> Manifest:
    """Return the manifest of a run folder.

    Raises:
        UsageError: there is none; the folder is no run.
        CurateError: it is damaged, does not fit its schema, or the folder has another format.
    """
    path = run / MANIFEST
    if not path.is_file():
        raise UsageError(
            "not a run folder",
            got=run,
            expected="a folder with manifest.json",
            fix="name the folder that `curate run` wrote; `curate runs FOLDER` lists those below a folder",
        )
    check_format(run)
    value = _loaded(path.read_bytes(), path)
    try:
        return load_record(Manifest, value)
    except CurateError as error:
        raise damaged(path, f"{error.problem}, {error.got}") from error


def last_manifest(run: Path) -> Manifest | None:
    """Return the manifest of a run folder; None where there is no run yet, or one that cannot be read.

    Raises:
        CurateError: the folder has another format.
    """
    check_format(run)
    try:
        return read_manifest(run)
    except (CurateError, ValueError):
        return None


def _loaded(line: bytes, path: Path) -> Any:
    try:
        return orjson.loads(line)
    except orjson.JSONDecodeError as error:
        raise damaged(path, error) from error


def read_decisions(run: Path) -> Iterator[dict[str, Any]]:
    """Yield what selection decided about each dialogue, in their order; nothing where nothing was selected.

    Raises:
        CurateError: a line is damaged.
    """
    path = run / DECISIONS
    return read_records(path, _decision) if path.is_file() else iter(())


def _decision(line: bytes) -> dict[str, Any]:
    value = orjson.loads(line)
    if not isinstance(value, dict) or not {"dialogue_id", "sets"} <= value.keys():
        raise ValueError("not a decision: dialogue_id and sets are expected")
    return value


def stage_records(
    run: Path, manifest: Manifest, stage: str, keys: pl.Series
) -> Iterator[dict[str, Any] | None]:
    """Yield a stage's record of each dialogue, as stored; equal dialogues share one.

    Args:
        run: the run folder.
        manifest: its manifest.
        stage: its name; where the run has no such stage, each record is None.
        keys: content hashes of all dialogues, in their order.

    Raises:
        CurateError: the stage's files are damaged.
    """
    fingerprint = manifest.fingerprints.get(stage)
    if fingerprint is None:
        return repeat(None, len(keys))
    rows: StageRows[dict[str, Any]] = StageRows(
        run / stage / fingerprint, dump=orjson.dumps, load=orjson.loads, check=orjson.loads
    )
    if rows.damage:
        raise damaged(rows.folder, rows.damage[0])
    return rows.aligned(keys)


def read_table(
    run: Path, where: str | None = None, sort: str | None = None
) -> Iterator[dict[str, Any]]:
    """Yield the rows of the score table, each with the `sets` that selection put the dialogue in.

    Args:
        run: the run folder.
        where: SQL over the table's columns; only rows for which it is true.
        sort: SQL over the table's columns, the highest value first, rows without a value last. Default: the data's order.

    Raises:
        UsageError: the run has no scores yet, or the SQL does not fit the table.
    """
    read_manifest(run)
    scores = scores_path(run)
    # Decisions are in the order of the table; ids show which are of an earlier table.
    decisions = read_decisions(run)
    batches = read_frames(scores, _BATCH)
    if where is None and sort is None:
        for frame in batches:
            yield from frame.with_columns(sets=_sets(frame, decisions)).iter_rows(named=True)
        return
    table = pl.concat([frame.with_columns(sets=_sets(frame, decisions)) for frame in batches])
    if where is not None:
        table = table.filter(evaluate_condition(table, where, "--where"))
    if sort is not None:
        key = evaluate(table, sort, "--sort").alias("_key")
        table = table.with_columns(key).sort("_key", descending=True, nulls_last=True).drop("_key")
    yield from table.iter_rows(named=True)


def _sets(frame: pl.DataFrame, decisions: Iterator[dict[str, Any]]) -> pl.Series:
    sets = []
    for dialogue_id in frame["id"]:
        decision = next(decisions, {})
        sets.append(decision["sets"] if decision.get("dialogue_id") == dialogue_id else [])
    return pl.Series("sets", sets, dtype=pl.List(pl.String))


@dataclass(frozen=True, slots=True)
class StoredPair:
    """A pair of a dialogue as it is stored; `passed` is False for one that was dropped."""

    record: dict[str, Any]
    passed: bool


def pairs_of_dialogue(run: Path, dialogue_id: str) -> Iterator[StoredPair]:
    """Yield the forked and natural pairs of a dialogue, those that passed first."""
    for record in stored_pairs(run, PAIRS, NATURAL_PAIRS, DROPPED_PAIRS):
        if record["dialogue_id"] == dialogue_id:
            yield StoredPair(record, passed=record["drop_reason"] is None)


def unscored_example(run: Path, manifest: Manifest, stage: str) -> tuple[str, str] | None:
    """Return the id of the first dialogue that a judging stage left without a score, and why, in words.

    None where there is no such dialogue, and before the run has a score table.
    """
    scores, fingerprint = run / SCORES, manifest.fingerprints.get(stage)
    if fingerprint is None or not scores.is_file():
        return None
    unscored = pl.scan_parquet(scores).filter(pl.col(f"{stage}_unscored").is_not_null())
    with readable(scores):
        first = unscored.select("id", "content_hash").head(1).collect()
    if first.is_empty():
        return None
    dialogue_id, content_hash = first.row(0)
    record = stored_record(run / stage / fingerprint, content_hash)
    return None if record is None else (dialogue_id, orjson.loads(record)["detail"])


def read_judged(run: Path, dialogue_id: str) -> JudgedDialogue:
    """Return one dialogue with its scores.

    Raises:
        UsageError: no dialogue of that id in the run; names the most similar ids.
    """
    manifest = read_manifest(run)
    ids = []
    for dialogue in read_dialogues(run):
        if dialogue.id == dialogue_id:
            return JudgedDialogue(
                dialogue,
                *(_stored(run, manifest, name, dialogue) for name in SCORING),
            )
        ids.append(dialogue.id)
    close = difflib.get_close_matches(dialogue_id, ids, n=3)
    raise UsageError(
        "no such dialogue in the run",
        got=dialogue_id,
        expected=", ".join(close) or f"an id of one of its {plural(len(ids), 'dialogue')}",
        fix=f"curate show {run}",
    )


def _stored(run: Path, manifest: Manifest, name: str, dialogue: Dialogue) -> dict[str, Any] | None:
    fingerprint = manifest.fingerprints.get(name)
    if fingerprint is None:
        return None
    record = stored_record(run / name / fingerprint, dialogue.content_hash)
    return None if record is None else _loaded(record, run / name / fingerprint)
