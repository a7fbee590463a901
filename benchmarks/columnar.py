"""Filter and export of columns beside the json loop that does the same.

    python benchmarks/columnar.py [--json] [--dialogues 100000]

Both sides start from what lies on disk and end with the same rows on disk, which is checked. CPU seconds of one
process; the two take turns, and the fastest of three rounds counts.

- `filter`: three conditions over the score table. Ours reads the columns they name from `scores.parquet` and
  decides, with the reason of every rejection; the loop reads the same table as JSON lines and tests each row.
- `sets`: the rows of the SFT, rejected and active sets with their reasons. Ours copies the lines; the loop
  parses each dialogue and writes it.
- `export`: `sft.jsonl` for TRL. Ours cuts rows out of the lines where the index says that they lie there as
  they are, checks all others, and writes who and why beside it; the loop parses and writes `messages`, and
  checks nothing. All dialogues here are of the first kind; what it takes to read and write that many bytes in
  blocks is given beside it, and nothing that writes the file can be faster.
- `export, Parquet`: the same as `sft.parquet`, which the loop hands to Arrow 2,000 parsed rows at a time. Both
  spend much of it on compression.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
from scale import write_dialogues

from curate.dialogue import Dialogue
from curate.export.config import ExportConfig, Format
from curate.export.writing import ExportData, write_export
from curate.run.ingest import read_dialogues, read_sources, stored_dialogues
from curate.run.outputs import write_selection
from curate.selection.config import SelectConfig
from curate.selection.rules import decide, narrowed, questions
from curate.selection.table import score_table
from curate.sources import SourceConfig, open_source

CONFIG = SelectConfig.model_validate(
    {
        "where": {"short": "n_turns <= 6", "spoken": "characters >= 300", "paid": "reward IS NULL"},
        "active": None,
    }
)
TARGET = "at least 15x"
WITH_TARGET = ("filter", "sets", "export")


def reasons_of(row: dict[str, Any]) -> list[str]:
    """The conditions of CONFIG that a row of the table fails, as plain Python."""
    reasons = []
    if not row["n_turns"] <= 6:
        reasons.append("short")
    if not row["characters"] >= 300:
        reasons.append("spoken")
    if row["reward"] is not None:
        reasons.append("paid")
    return reasons


class Places:
    """The files of both sides, made once."""

    def __init__(self, folder: Path, count: int) -> None:
        self.run, self.loop = folder / "run", folder / "loop"
        self.loop.mkdir()
        write_dialogues(folder / "chats.jsonl", count)
        source = open_source(SourceConfig(path=str(folder / "chats.jsonl")))
        read_sources([source], self.run, role="R.", scenario="S.")
        self.scores, self.score_lines = self.run / "scores.parquet", self.loop / "scores.jsonl"
        table = score_table(read_dialogues(self.run))
        table.write_parquet(self.scores)
        table.write_ndjson(self.score_lines)
        self.decided = self.decide()
        self.selected = self.decided["reasons"].list.len() == 0
        self.kept = set(self.decided["id"].filter(self.selected))

    # -- filter

    def decide(self) -> pl.DataFrame:
        return decide(narrowed(pl.scan_parquet(self.scores), questions(CONFIG)), CONFIG)

    def decide_in_a_loop(self) -> dict[str, list[str]]:
        decisions = {}
        with self.score_lines.open() as lines:
            for line in lines:
                row = json.loads(line)
                decisions[row["id"]] = reasons_of(row)
        return decisions

    # -- sets

    def write_sets(self) -> None:
        write_selection(self.run, self.decided)

    def write_sets_in_a_loop(self, reasons: dict[str, list[str]]) -> None:
        with (
            (self.run / "dialogues.jsonl").open() as lines,
            (self.loop / "sft.jsonl").open("w") as sft,
            (self.loop / "rejected.jsonl").open("w") as rejected,
        ):
            for line in lines:
                dialogue = json.loads(line)
                why = reasons[dialogue["id"]]
                out = rejected if why else sft
                out.write(json.dumps({"reasons": why, "dialogue": dialogue}) + "\n")

    # -- export

    def export(self, form: Format = "jsonl") -> None:
        dialogues = stored_dialogues(self.run, self.selected)
        config = ExportConfig(formats=(form,))
        write_export(self.run / form, "trl", ExportData(sft=dialogues), config)

    def export_in_a_loop(self) -> None:
        with (
            (self.run / "dialogues.jsonl").open() as lines,
            (self.loop / "trl.jsonl").open("w") as out,
        ):
            for line in lines:
                dialogue = json.loads(line)
                if dialogue["id"] in self.kept:
                    out.write(json.dumps({"messages": dialogue["messages"]}) + "\n")

    def export_parquet_in_a_loop(self) -> None:
        rows = []
        message = pa.struct([("role", pa.string()), ("content", pa.string())])
        schema = pa.schema([("messages", pa.list_(message))])
        with (
            (self.run / "dialogues.jsonl").open() as lines,
            pq.ParquetWriter(self.loop / "trl.parquet", schema, compression="zstd") as out,
        ):
            for line in lines:
                dialogue = json.loads(line)
                if dialogue["id"] in self.kept:
                    rows.append({"messages": dialogue["messages"]})
                if len(rows) == 2_000:
                    out.write_table(pa.Table.from_pylist(rows, schema))
                    rows = []
            out.write_table(pa.Table.from_pylist(rows, schema))

    def copy_export(self) -> None:
        """The least an export can do: read as many bytes as it writes, and write them."""
        room = memoryview(bytearray(1 << 19))
        with (
            (self.run / "jsonl/sft.jsonl").open("rb", buffering=0) as made,
            (self.loop / "copy.jsonl").open("wb", buffering=0) as out,
        ):
            while read := made.readinto(room):
                out.write(room[:read])

    def check(self) -> None:
        """Both sides wrote the same."""
        loop = self.decide_in_a_loop()
        assert loop == dict(zip(self.decided["id"], self.decided["reasons"].to_list(), strict=True))
        for name in ("sft", "rejected"):
            ours, theirs = (
                [json.loads(line) for line in (folder / f"{name}.jsonl").open()]
                for folder in (self.run / "select", self.loop)
            )
            assert ours == theirs
            assert all(Dialogue.model_validate(row["dialogue"]) for row in ours[:10])
        ours, theirs = (
            [json.loads(line) for line in path.open()]
            for path in (self.run / "jsonl/sft.jsonl", self.loop / "trl.jsonl")
        )
        assert ours == theirs
        tables = map(pq.read_table, (self.run / "parquet/sft.parquet", self.loop / "trl.parquet"))
        assert next(tables).equals(next(tables))


def cpu_of(work: Callable[[], object]) -> float:
    began = time.process_time()
    work()
    return time.process_time() - began


def measure(folder: Path, count: int, rounds: int = 3) -> dict[str, tuple[float, float]]:
    """By task: CPU seconds of ours and of the loop, the fastest round of each."""
    places = Places(folder, count)
    reasons = places.decide_in_a_loop()
    tasks: dict[str, tuple[Callable[[], object], Callable[[], object]]] = {
        "filter": (places.decide, places.decide_in_a_loop),
        "sets": (places.write_sets, lambda: places.write_sets_in_a_loop(reasons)),
        "export": (places.export, places.export_in_a_loop),
        "export, Parquet": (lambda: places.export("parquet"), places.export_parquet_in_a_loop),
    }
    best: dict[str, tuple[float, float]] = {}
    for _ in range(rounds):
        for name, (ours, loop) in tasks.items():
            a, b = cpu_of(ours), cpu_of(loop)
            before = best.get(name, (a, b))
            best[name] = (min(before[0], a), min(before[1], b))
    places.check()
    copied = min(cpu_of(places.copy_export) for _ in range(rounds))
    best["copy"] = (copied, best["export"][1])
    return best


def report(best: dict[str, tuple[float, float]], count: int) -> dict[str, Any]:
    """The one object of `--json`."""
    floor, _ = best.pop("copy")
    best = {**best, "filter, sets": tuple(map(sum, zip(best["filter"], best["sets"], strict=True)))}  # type: ignore[dict-item]
    rows = [
        {
            "metric": f"{name}: rows/CPU-s against a json loop",
            "value": round(loop / ours, 1),
            "unit": "x",
            "target": TARGET if name in WITH_TARGET else "",
            "met": loop / ours >= 15 if name in WITH_TARGET else None,
            "beside": f"{count / ours:,.0f} rows/CPU-s; the loop {count / loop:,.0f}"
            + (f"; copying the file {loop / floor:.1f}x" if name == "export" else ""),
        }
        for name, (ours, loop) in best.items()
    ]
    how = (
        f"{count:,} generated dialogues of about 1 KB; CPU seconds of one process, the faster of three rounds each; "
        "the rows written are compared and equal"
    )
    return {"target": 7, "name": "Filter and export", "rows": rows, "how": how}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--dialogues", type=int, default=100_000)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        found = report(measure(Path(temporary), given.dialogues), given.dialogues)
    if given.json:
        print(json.dumps(found))
        return
    for row in found["rows"]:
        print(f"{row['metric']:<48}{row['value']:>8}x  {row['beside']}")
    print(found["how"])


if __name__ == "__main__":
    main()
