"""The config `judgments`: the scores of every dialogue of the run, selected or not, without its text.

One row per dialogue, in the run's order. The text of a dialogue that was not selected is not pushed, only its scores.
Rows are counted for the card while they are written, so the card's figures are those of the table.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from curate.errors import CurateError
from curate.publishing.local_paths import without_folders
from curate.publishing.published_tables import PublishedFile, Shards, SplitName, has_split
from curate.publishing.row_cleaning import RowCleaner
from curate.records import CONVERSATION_DIMENSIONS, SCORING, TURN_DIMENSIONS, Manifest, StageName
from curate.records.judgment import unscored_reason
from curate.run.ingest import read_index
from curate.run.read_back import read_decisions, stage_records

NOT_REACHED = "not_scored"
"""Reason for a dialogue without a row of a stage, as in a run that reuses another run's judgments."""
BINS = 10
_BATCH = 2_000


@dataclass(slots=True)
class DialogueCounts:
    """Counts of the dialogues of a run.

    Attributes:
        dialogues: number of dialogues.
        unscored: dialogues without a score, by stage and reason.
        scored: dialogues with a score, by stage.
        sets: dialogues by set; a dialogue may be in several.
        rejections: dialogues not in `sft`, each counted under its first reason.
        reasons: the same dialogues, each counted under all of its reasons.
        verdicts: dialogues by verdict, for `all` and `sft`.
        scores: counts of each score and of `n/a`, by `all` or `sft` and by dimension; turn dimensions count turns.
        adherence: dialogues by tenth of the session score (0 to 9; 1.0 is in 9), for `all` and `sft`.
    """

    dialogues: int = 0
    scored: Counter[str] = field(default_factory=Counter)
    unscored: dict[str, Counter[str]] = field(default_factory=dict)
    sets: Counter[str] = field(default_factory=Counter)
    rejections: Counter[str] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)
    verdicts: dict[str, Counter[str]] = field(default_factory=dict)
    scores: dict[str, dict[str, Counter[str]]] = field(default_factory=dict)
    adherence: dict[str, Counter[int]] = field(default_factory=dict)

    def add(self, row: dict[str, Any], stages: tuple[StageName, ...]) -> None:
        """Count a row of the table."""
        self.dialogues += 1
        for stage in stages:
            reason = row[_COLUMNS[stage].unscored]
            if reason is None:
                self.scored[stage] += 1
            else:
                self.unscored.setdefault(stage, Counter())[reason] += 1
        self.sets.update(row["sets"])
        if row["reasons"]:
            self.rejections[row["reasons"][0]] += 1
            self.reasons.update(row["reasons"])
        for group in ("all", "sft"):
            if group == "all" or group in row["sets"]:
                self._add_scores(group, row)

    def _add_scores(self, group: str, row: dict[str, Any]) -> None:
        if row.get("verdict") is not None:
            self.verdicts.setdefault(group, Counter())[row["verdict"]] += 1
            counts = self.scores.setdefault(group, {})
            for name in CONVERSATION_DIMENSIONS:
                score = "n/a" if row[name] is None else str(row[name])
                counts.setdefault(name, Counter())[score] += 1
            for turn in row["turns"]:
                for name in TURN_DIMENSIONS:
                    counts.setdefault(name, Counter())[str(turn[name])] += 1
        if row.get("adherence") is not None:
            tenth = min(int(row["adherence"] * BINS), BINS - 1)
            self.adherence.setdefault(group, Counter())[tenth] += 1


def write_judgments(
    run: Path, manifest: Manifest, folder: Path, *, shard_bytes: int, cleaner: RowCleaner
) -> tuple[list[PublishedFile], DialogueCounts]:
    """Write the table and count its rows; no file is written if no stage scored dialogues.

    Raises:
        CurateError: the files of the run do not match.
    """
    stages = tuple(name for name in SCORING if name in manifest.fingerprints)
    splits: list[SplitName] = ["train", "validation"] if has_split(run) else ["train"]
    tally = DialogueCounts()
    schema = _schema(stages)
    with ExitStack() as opened:
        shards = {
            split: opened.enter_context(
                Shards(folder, "judgments", split, schema, shard_bytes, cleaner)
            )
            for split in splits
            if stages
        }
        batches: dict[SplitName, list[dict[str, Any]]] = {split: [] for split in splits}
        for row in _rows(run, manifest):
            tally.add(row, stages)
            is_held_out = row.pop("split") == "validation" and "validation" in shards
            split: SplitName = "validation" if is_held_out else "train"
            if split in shards:
                batches[split].append(row)
                if len(batches[split]) >= _BATCH:
                    _write(shards[split], batches[split], schema)
        for split, file in shards.items():
            _write(file, batches[split], schema)
    return [published for file in shards.values() for published in file.files], tally


def _write(shards: Shards, rows: list[dict[str, Any]], schema: Any) -> None:
    import pyarrow as pa

    if rows:
        shards.write(pa.Table.from_pylist(rows, schema=schema))
        rows.clear()


def _rows(run: Path, manifest: Manifest) -> Iterator[dict[str, Any]]:
    """Yield one row per dialogue; a column that it lacks is null."""
    index = read_index(run, "id", "content_hash")
    records = [stage_records(run, manifest, stage, index["content_hash"]) for stage in _COLUMNS]
    decisions = read_decisions(run) if manifest.recipe.get("select") else iter(())
    for (dialogue_id, key), *of_stages in zip(index.iter_rows(), *records, strict=True):
        decision = next(decisions, {})
        if decision and decision["dialogue_id"] != dialogue_id:
            raise CurateError(
                f"the decisions in {run / 'select'} are not those of the run's dialogues",
                got=decision["dialogue_id"],
                expected=dialogue_id,
                fix="run the recipe again: it resumes, without model calls for what is there",
            )
        row = {
            "dialogue_id": dialogue_id,
            "content_hash": key,
            "sets": decision.get("sets", []),
            "reasons": decision.get("reasons", []),
            "split": decision.get("split"),
        }
        for columns, record in zip(_COLUMNS.values(), of_stages, strict=True):
            row |= columns.of(record)
        yield row


def _judgment(record: dict[str, Any]) -> dict[str, Any]:
    row = {name: record.get(name) for name in _JUDGED}
    for name in CONVERSATION_DIMENSIONS:
        level = record["conversation_level"][name]
        row[name] = level["score"] if isinstance(level["score"], int) else None
        row[f"{name}_note"] = level.get("note", "")
    turns = [
        {"turn": turn["turn"], **turn["scores"], "issues": turn["issues"]}
        for turn in record["per_turn"]
    ]
    return {**row, "judge": _judge(record), "turns": turns}


def _adherence(record: dict[str, Any]) -> dict[str, Any]:
    low, high = record["interval"]
    return {
        "adherence": record["session_score"],
        "adherent": record["adherent"],
        "adherence_low": low,
        "adherence_high": high,
        "adherence_judge": _judge(record),
        "adherence_turns": [
            {name: turn.get(name) for name in ("turn", "score", "adherent", "unscored")}
            for turn in record["per_turn"]
        ],
    }


def _metrics(record: dict[str, Any]) -> dict[str, Any]:
    return {
        "overall_score": record["overall_score"],
        "metrics_passed": record["passed"],
        "metrics": [{name: metric.get(name) for name in _METRIC} for metric in record["metrics"]],
        "metrics_judge": _judge(record),
    }


def _factuality(record: dict[str, Any]) -> dict[str, Any]:
    """Return counts of claims; their text is part of the dialogue and is not pushed."""
    labels = Counter(claim["label"] for turn in record["per_turn"] for claim in turn["claims"])
    return {
        "factual_precision": record["precision"],
        **{f"{name}_claims": labels[name] for name in ("true", "false", "unverifiable")},
        "factuality_judge": _judge(record),
    }


@dataclass(frozen=True, slots=True)
class _Columns:
    """The columns of one stage: `fill` returns those of a scored dialogue.

    In the row of any other, `unscored` has the reason, `lists` are empty, and the rest is null.
    """

    unscored: str
    fill: Callable[[dict[str, Any]], dict[str, Any]]
    lists: tuple[str, ...] = ()

    def of(self, record: dict[str, Any] | None) -> dict[str, Any]:
        """Return the columns of a dialogue; `record` is None if the stage has no row of it."""
        reason = NOT_REACHED if record is None else unscored_reason(record)
        if record is None or reason is not None:
            return {self.unscored: reason, **{name: [] for name in self.lists}}
        return {self.unscored: None, **self.fill(record)}


_COLUMNS = {
    StageName.JUDGE: _Columns("unscored", _judgment, ("turns",)),
    StageName.ADHERENCE: _Columns("adherence_unscored", _adherence, ("adherence_turns",)),
    StageName.METRICS: _Columns("metrics_unscored", _metrics, ("metrics",)),
    StageName.FACTUALITY: _Columns("factuality_unscored", _factuality),
}
_METRIC = ("name", "share", "score", "na", "failure_code", "turns")
_JUDGED = ("verdict", "judge_verdict", "weakest_turn", "judge_weakest_turn", "decision_basis")


def _judge(record: dict[str, Any]) -> str:
    parts = (record["identity"].get(name) for name in ("engine", "model", "revision", "mode"))
    return without_folders(" ".join(part for part in parts if part))


def _schema(stages: Collection[StageName]) -> Any:
    """Return the schema of the files; a missing score is null, and a column beside it has the reason."""
    import pyarrow as pa

    text, count, real, truth = pa.string(), pa.int64(), pa.float64(), pa.bool_()
    turn = {"turn": count, **dict.fromkeys(TURN_DIMENSIONS, count), "issues": pa.list_(text)}
    adherence_turn = {"turn": count, "score": real, "adherent": truth, "unscored": text}
    fields: dict[str, Any] = {
        "dialogue_id": text,
        "content_hash": text,
        "sets": pa.list_(text),
        "reasons": pa.list_(text),
        "unscored": text,
        "verdict": text,
        "judge_verdict": text,
        "weakest_turn": count,
        "judge_weakest_turn": count,
        **dict.fromkeys(CONVERSATION_DIMENSIONS, count),
        **{f"{name}_note": text for name in CONVERSATION_DIMENSIONS},
        "decision_basis": text,
        "turns": pa.list_(pa.struct(list(turn.items()))),
        "judge": text,
        "adherence_unscored": text,
        "adherence": real,
        "adherent": truth,
        "adherence_low": real,
        "adherence_high": real,
        "adherence_turns": pa.list_(pa.struct(list(adherence_turn.items()))),
        "adherence_judge": text,
    }
    if StageName.METRICS in stages:
        kinds = (text, real, count, text, text, pa.list_(count))
        metric = pa.struct(list(zip(_METRIC, kinds, strict=True)))
        fields |= {
            "metrics_unscored": text,
            "overall_score": real,
            "metrics_passed": truth,
            "metrics": pa.list_(metric),
            "metrics_judge": text,
        }
    if StageName.FACTUALITY in stages:
        fields |= {
            "factuality_unscored": text,
            "factual_precision": real,
            **{f"{name}_claims": count for name in ("true", "false", "unverifiable")},
            "factuality_judge": text,
        }
    return pa.schema(list(fields.items()))
