"""Filter again and export, beside a plain orjson loop that writes the same files.

    python benchmarks/columnar.py [--json] [--dialogues 100000]

A run is judged, its conditions change: decisions, sets, and the SFT rows for TRL as JSONL and Parquet are written
again. Ours starts from `scores.parquet` and `dialogues.jsonl`; the loop from the same table as JSON lines, which it
tests row by row, and from the same dialogues, of which it writes decisions, sets, `sft.jsonl`, `sft.parquet` (through
Arrow, 2,000 rows at a time) and who and why of each row. It checks nothing. CPU seconds of one process; the two take
turns, and the faster of three rounds counts. What both wrote is compared.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
from scale import write_dialogues

from curate.export.config import ExportConfig
from curate.export.provenance import SFT_SCHEMA
from curate.export.writing import ExportData, write_export
from curate.run.ingest import read_dialogues, read_index, read_sources
from curate.run.outputs import write_selection
from curate.selection.config import SelectConfig
from curate.selection.rules import decide, narrowed, questions
from curate.selection.table import score_table
from curate.sources import SourceConfig, open_source

CONFIG = SelectConfig.model_validate(
    {
        "where": {"short": "n_turns <= 6", "spoken": "characters >= 300"},
        "active": None,
    }
)
_ROWS = 2_000


def reasons_of(row: dict[str, Any]) -> list[str]:
    """Return the reasons for which CONFIG rejects a row of the table, in plain Python."""
    reasons = []
    if row["reward"] is not None and row["reward"] <= 0:
        reasons.append("failed_trajectory")
    if not row["n_turns"] <= 6:
        reasons.append("short")
    if not row["characters"] >= 300:
        reasons.append("spoken")
    return reasons


class Places:
    """The files that both sides read, made once."""

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

    def ours(self) -> None:
        decided = decide(narrowed(pl.scan_parquet(self.scores), questions(CONFIG)), CONFIG)
        write_selection(self.run, decided)
        selected = decided["reasons"].list.len() == 0
        data = ExportData(sft=read_dialogues(self.run, selected))
        write_export(self.run / "trl", "trl", data, ExportConfig())

    def plain(self) -> None:
        decisions: dict[str, tuple[str, list[str]]] = {}
        with (
            self.score_lines.open("rb") as lines,
            (self.loop / "decisions.jsonl").open("wb") as out,
        ):
            for line in lines:
                row = orjson.loads(line)
                why = reasons_of(row)
                decisions[row["id"]] = (row["content_hash"], why)
                said = {"dialogue_id": row["id"], "content_hash": row["content_hash"]}
                said |= {"sets": ["rejected" if why else "sft"], "reasons": why}
                said |= {"collisions": [], "split": None, "reviewed": None}
                out.write(orjson.dumps(said) + b"\n")
        message = pa.struct([("role", pa.string()), ("content", pa.string())])
        rows = _Table(
            self.loop / "sft.parquet", pa.schema([("messages", pa.list_(message))]), "zstd"
        )
        told = _Table(
            self.loop / "sft_provenance.parquet",
            pl.DataFrame(schema=SFT_SCHEMA).to_arrow().schema,
            "zstd",
        )
        with (
            (self.run / "dialogues.jsonl").open("rb") as lines,
            (self.loop / "sft_set.jsonl").open("wb") as sft,
            (self.loop / "rejected.jsonl").open("wb") as rejected,
            (self.loop / "sft.jsonl").open("wb") as out,
        ):
            for line in lines:
                dialogue = orjson.loads(line)
                key, why = decisions[dialogue["id"]]
                chosen = rejected if why else sft
                chosen.write(orjson.dumps({"reasons": why, "dialogue": dialogue}) + b"\n")
                if why:
                    continue
                row = {"messages": dialogue["messages"]}
                out.write(orjson.dumps(row) + b"\n")
                rows.append(row)
                lineage = dialogue["lineage"]
                known = {"row": told.count, "dialogue_id": dialogue["id"], "content_hash": key}
                known |= {"messages_cut": 0, "role_added": False}
                known |= {
                    "lineage_source": lineage["source"],
                    "lineage_file": lineage["file"],
                    "lineage_rows": lineage["rows"],
                    "lineage_part": lineage.get("part"),
                }
                told.append(known)
        rows.close()
        told.close()

    def check(self) -> None:
        """Raise if the two sides wrote different rows."""
        for ours, theirs in (
            ("select/decisions.jsonl", "decisions.jsonl"),
            ("select/sft.jsonl", "sft_set.jsonl"),
            ("select/rejected.jsonl", "rejected.jsonl"),
            ("trl/sft.jsonl", "sft.jsonl"),
        ):
            with (self.run / ours).open("rb") as left, (self.loop / theirs).open("rb") as right:
                for a, b in zip(left, right, strict=True):
                    assert orjson.loads(a) == orjson.loads(b), ours
        for name in ("sft.parquet", "sft_provenance.parquet"):
            tables = [pl.read_parquet(folder / name) for folder in (self.run / "trl", self.loop)]
            assert tables[0].height, name
            assert tables[0].equals(tables[1]), name


class _Table:
    """A writer of rows to a Parquet file in batches."""

    def __init__(self, path: Path, schema: Any, compression: str) -> None:
        self._writer = pq.ParquetWriter(path, schema, compression=compression)
        self._schema, self._rows, self.count = schema, list[dict[str, Any]](), 0

    def append(self, row: dict[str, Any]) -> None:
        self._rows.append(row)
        self.count += 1
        if len(self._rows) == _ROWS:
            self._write()

    def _write(self) -> None:
        self._writer.write_table(pa.Table.from_pylist(self._rows, self._schema))
        self._rows = []

    def close(self) -> None:
        self._write()
        self._writer.close()


def cpu_of(work: Callable[[], object]) -> float:
    began = time.process_time()
    work()
    return time.process_time() - began


def measure(folder: Path, count: int, rounds: int = 3) -> tuple[float, float]:
    """Return the CPU seconds of ours and of the loop, the fastest round of each."""
    places = Places(folder, count)
    times = [(cpu_of(places.ours), cpu_of(places.plain)) for _ in range(rounds)]
    places.check()
    assert read_index(places.run, "offset").height == count
    return min(a for a, _ in times), min(b for _, b in times)


def report(ours: float, loop: float, count: int) -> dict[str, Any]:
    """Return the object of `--json`."""
    row = {
        "metric": "filter again and export: rows/CPU-s against a plain orjson loop",
        "value": round(loop / ours, 2),
        "unit": "x",
        "target": ">= 1",
        "met": loop >= ours,
        "beside": f"{count / ours:,.0f} rows/CPU-s; the loop {count / loop:,.0f}",
    }
    how = (
        f"{count:,} generated dialogues of about 1 KB; CPU seconds of one process, the faster of three rounds each; "
        "the rows written are compared and equal"
    )
    return {"target": 7, "name": "Filter again and export", "rows": [row], "how": how}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--dialogues", type=int, default=100_000)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        found = report(*measure(Path(temporary), given.dialogues), given.dialogues)
    if given.json:
        print(json.dumps(found))
        return
    for row in found["rows"]:
        print(f"{row['value']:>6}{row['unit']}  {row['metric']}  ({row['beside']})")


if __name__ == "__main__":
    main()
