"""`curate diff --html`: the comparison of two runs as a page like that of a report.

It shows the dialogues whose results differ: as the second run has them, each beside the results of the first.
"""

from __future__ import annotations

import zlib
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
import polars as pl

from curate.dialogue import Dialogue
from curate.records import SCORING, VERDICTS, Manifest
from curate.run.diff import RunDiff, score_table_of
from curate.run.read_back import read_decisions, read_manifest
from curate.run.report import (
    MAX_BYTES,
    WrittenReport,
    described_columns,
    dialogue_columns,
    pack_parts,
    write_page,
)
from curate.run.report_dialogues import RunPairs, dialogue_bodies
from curate.run.report_figures import reason_meanings
from curate.storage.stage_rows import fingerprint
from curate.trust.run_comparison import matched_rows, score_columns

_IDS = 200
_ABOUT = {
    "changed": "What is different: verdict, sets, pairs, scores, content.",
    "verdict": "Verdict of the second run.",
    "verdict_before": "Verdict of the first run.",
    "sets_gained": "Sets that it is in since.",
    "sets_lost": "Sets that it was in.",
    "pairs_gained": "Pairs that passed in the second run only.",
    "pairs_lost": "Pairs that passed in the first run only.",
}


def write_diff_page(diff: RunDiff, out: Path, *, max_bytes: int = MAX_BYTES) -> WrittenReport:
    """Write the differences between two runs as one HTML file.

    Args:
        diff: of the two runs, as `diff_runs` gives it.
        out: the file.
        max_bytes: size of the dialogues in it at most; those beyond it keep their row, without text.

    Raises:
        CurateError: a file of a run is damaged.
    """
    first, second = _Side.of(Path(diff.first)), _Side.of(Path(diff.second))
    table = _changed_rows(first, second)
    ids = dict(table.select("id_2", "id").iter_rows())
    rows = table.drop("id_2")
    with ExitStack() as opened:
        bodies = _bodies(first, second, ids)
        (part,) = pack_parts(bodies, len(ids), max_bytes, False, opened, None)
        left_out = part.rows - sum(part.counts)
        name = f"{first.manifest.name} → {second.manifest.name}"
        figures = {
            "run": {
                "key": fingerprint(first.manifest.name, second.manifest.name, diff.sentence),
                "name": name,
            },
            "diff": _diff_figures(diff),
            "meanings": reason_meanings(first.manifest) | reason_meanings(second.manifest),
            "columns": described_columns(rows, _ABOUT | _shift_meanings(rows)),
            "chunks": part.counts,
            "first": 0,
            "left_out": left_out,
            "max_mb": max_bytes // 1_000_000,
            "parts": [],
            "part": 0,
        }
        columns = {"dialogues": dialogue_columns(rows, part), "pairs": {}}
        write_page(out, f"{name}: what changed", figures, columns, part)
    return WrittenReport([out], [out.stat().st_size], len(ids), left_out)


@dataclass(frozen=True, slots=True)
class _Side:
    """One of the two runs; `passed` has the ids of the pairs that passed, by dialogue."""

    run: Path
    manifest: Manifest
    table: pl.DataFrame
    pairs: RunPairs
    passed: Mapping[str, set[str]]

    @classmethod
    def of(cls, run: Path) -> _Side:
        pairs = RunPairs.of(run)
        passed: dict[str, set[str]] = defaultdict(set)
        for row in pairs.rows:
            if row["dropped"] is None:
                passed[row["dialogue"]].add(row["id"])
        return cls(run, read_manifest(run), score_table_of(run), pairs, passed)


def _changed_rows(first: _Side, second: _Side) -> pl.DataFrame:
    """Yield a row for each dialogue of both runs whose results differ, in the second run's order."""
    order = second.table.select(id_2="id").with_row_index("place")
    both = matched_rows(first.table, second.table).both.join(order, on="id_2").sort("place")
    both = both.unique("id_2", keep="first", maintain_order=True)
    scores = score_columns(first.table.columns, second.table.columns)
    ids = list(zip(both["id"], both["id_2"], strict=True))
    gained, lost = (pl.col("sets_2"), pl.col("sets")), (pl.col("sets"), pl.col("sets_2"))
    rows = both.select(
        "id",
        "id_2",
        sets_gained=gained[0].list.set_difference(gained[1]),
        sets_lost=lost[0].list.set_difference(lost[1]),
        pairs_gained=pl.Series([len(_passed(second, b) - _passed(first, a)) for a, b in ids]),
        pairs_lost=pl.Series([len(_passed(first, a) - _passed(second, b)) for a, b in ids]),
        verdict=pl.col("verdict_2").cast(pl.Enum(VERDICTS)),
        verdict_before=pl.col("verdict").cast(pl.Enum(VERDICTS)),
        **{
            f"shift_{name}": pl.col(f"{name}_2").cast(pl.Float64) - pl.col(name).cast(pl.Float64)
            for name in scores
        },
        **{name: pl.col(f"{name}_2") for name in (*_FACTS, *scores) if f"{name}_2" in both.columns},
        other_scores=pl.any_horizontal(
            pl.lit(False), *(pl.col(name).ne_missing(pl.col(f"{name}_2")) for name in scores)
        ),
        other_content=pl.col("content_hash") != pl.col("content_hash_2"),
    )
    kinds = {
        "verdict": pl.col("verdict").ne_missing(pl.col("verdict_before")),
        "sets": (pl.col("sets_gained").list.len() + pl.col("sets_lost").list.len()) > 0,
        "pairs": (pl.col("pairs_gained") + pl.col("pairs_lost")) > 0,
        "scores": pl.col("other_scores"),
        "content": pl.col("other_content"),
    }
    marks = [pl.when(is_so).then(pl.lit(kind)) for kind, is_so in kinds.items()]
    rows = rows.with_columns(changed=pl.concat_list(marks).list.drop_nulls())
    return rows.filter(pl.col("changed").list.len() > 0).drop("other_scores", "other_content")


_FACTS = ("source", "language", "role", "n_turns")


def _passed(side: _Side, dialogue_id: str) -> set[str]:
    return side.passed.get(dialogue_id, set())


def _shift_meanings(table: pl.DataFrame) -> dict[str, str]:
    return {
        name: f"{name.removeprefix('shift_')} in the second run minus that in the first."
        for name in table.columns
        if name.startswith("shift_")
    }


def _bodies(
    first: _Side, second: _Side, ids: Mapping[str, str]
) -> Iterator[tuple[Dialogue, dict[str, Any]]]:
    """Yield the dialogues with the results of both runs.

    Args:
        first, second: the runs.
        ids: of each dialogue in the second run, that in the first.
    """
    before = {}
    first_ids = set(ids.values())
    # Compressed, for of a new judge all dialogues may be here.
    for dialogue, body in _decided(first):
        if dialogue.id in first_ids:
            before[dialogue.id] = zlib.compress(orjson.dumps(body), 1)
    for dialogue, body in _decided(second):
        if dialogue.id not in ids:
            continue
        old_id = ids[dialogue.id]
        old = orjson.loads(zlib.decompress(before.pop(old_id)))
        if old["hash"] == body["hash"]:
            for name in old.keys() & _OF_THE_DIALOGUE:
                del old[name]
        passed = _passed(first, old_id), _passed(second, dialogue.id)
        pair_ids = {pair["pair_id"] for pair in body.get("pairs", ())}
        lost = [
            pair
            for pair in old.pop("pairs", ())
            if pair["pair_id"] in passed[0] and pair["pair_id"] not in pair_ids
        ]
        if lost:
            body["pairs"] = [*body.get("pairs", ()), *lost]
        body["pair_changes"] = {
            **dict.fromkeys(passed[1] - passed[0], "gained"),
            **dict.fromkeys(passed[0] - passed[1], "lost"),
        }
        body["before"] = old
        yield dialogue, body


_OF_THE_DIALOGUE = frozenset({"messages", "turns", "role_definition", "scenario", "tools"})


def _decided(side: _Side) -> Iterator[tuple[Dialogue, dict[str, Any]]]:
    """Return the dialogues of a run, each with its sets and the reasons why it is not in the SFT set."""
    decisions = read_decisions(side.run)
    kept_keys = {"messages", "turns", "hash", "pairs", *_OF_THE_DIALOGUE, *map(str, SCORING)}
    for dialogue, body in dialogue_bodies(side.run, side.manifest, side.pairs):
        decision = next(decisions, {})
        shown_body = {
            name: value for name, value in body.items() if name in kept_keys | {"id", "lineage"}
        }
        if decision.get("dialogue_id") == dialogue.id:
            shown_body["sets"], shown_body["reasons"] = (
                decision["sets"],
                decision.get("reasons") or [],
            )
        yield dialogue, shown_body


def _diff_figures(diff: RunDiff) -> dict[str, Any]:
    """Return the figures of the page; of ids only as many as can be read, since its list has all."""
    figures = diff.model_dump(mode="json")
    table = figures["dialogues"]
    del table["changed_verdicts"]
    for name in ("only_first", "only_second", "other_content"):
        table[name] = {"count": len(table[name]), "ids": table[name][:_IDS]}
    for change in (*table["sets"].values(), *figures["pairs"].values()):
        change["gained"], change["lost"] = len(change["gained"]), len(change["lost"])
    return figures
