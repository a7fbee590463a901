"""Provenance of each row of a training file: a table beside the file, in the same order.

It is known on arrival whether a row goes to the head of a file, but not where the other rows will be. So rows of the head
and of the tail are kept in separate files on disk.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import polars as pl

from curate.dialogue import Dialogue, Lineage
from curate.export.trainer_module import Stream
from curate.records import PreferencePair
from curate.storage.parquet_files import write_table
from curate.storage.whole_files import make_folder

CHUNK = 10_000  # rows held at once

LINEAGE: Final[Mapping[str, pl.DataType | type[pl.DataType]]] = {
    "lineage_source": pl.String,
    "lineage_file": pl.String,
    "lineage_rows": pl.List(pl.Int64),
    "lineage_part": pl.String,
}
PAIR_SCHEMA: Final = pl.Schema(
    {
        "pair_id": pl.String,
        "file": pl.String,
        "row": pl.Int64,
        "dialogue_id": pl.String,
        "content_hash": pl.String,
        "source": pl.String,
        "basis": pl.String,
        "turn": pl.Int64,
        "side": pl.String,
        "margin": pl.Float64,
        "noise": pl.Float64,
        "preference": pl.Float64,
        "probability": pl.Float64,
        "decided_by": pl.String,
        "token_ratio": pl.Float64,
        "judge": pl.String,
        "policy": pl.String,
        "issue": pl.String,
        **LINEAGE,
    }
)
_CHECKED: Final = ("margin", "noise", "preference", "probability", "decided_by", "token_ratio")
"""Fields of a pair's check."""
SFT_SCHEMA: Final = pl.Schema(
    {
        "row": pl.Int64,
        "dialogue_id": pl.String,
        "content_hash": pl.String,
        "messages_cut": pl.Int64,
        "role_added": pl.Boolean,
        **LINEAGE,
    }
)
TURN_SCHEMA: Final = pl.Schema(
    {
        "file": pl.String,
        "row": pl.Int64,
        "dialogue_id": pl.String,
        "content_hash": pl.String,
        "turns": pl.List(pl.Int64),
        "messages": pl.List(pl.Int64),
        "label": pl.Boolean,
        **LINEAGE,
    }
)

PAIR_SIDECAR, SFT_SIDECAR, TURN_SIDECAR = (
    "provenance.parquet",
    "sft_provenance.parquet",
    "turn_provenance.parquet",
)
SIDECARS: Final[Mapping[str, pl.Schema]] = {
    SFT_SIDECAR: SFT_SCHEMA,
    PAIR_SIDECAR: PAIR_SCHEMA,
    TURN_SIDECAR: TURN_SCHEMA,
}
SIDECAR_OF: Final[Mapping[Stream, str]] = {
    "dialogues": SFT_SIDECAR,
    "masked": TURN_SIDECAR,
    "masked_turns": TURN_SIDECAR,
    "turn_labels": TURN_SIDECAR,
    "pairs": PAIR_SIDECAR,
    "natural": PAIR_SIDECAR,
    "margins": PAIR_SIDECAR,
    "pair_labels": PAIR_SIDECAR,
    "natural_labels": PAIR_SIDECAR,
}


class Provenance:
    """Provenance of one file's rows: written in order of arrival, read in the file's order.

    Args:
        folder: folder of temporary files, used by this object only; made when it is needed.
        schema: schema of the sidecar.
    """

    def __init__(self, folder: Path, schema: pl.Schema) -> None:
        self._folder = folder
        self._schema = schema
        self._columns_of = {place: _columns(schema) for place in ("head", "tail")}
        self._written: dict[str, int] = {"head": 0, "tail": 0}

    def append(self, row: dict[str, Any], *, is_head: bool) -> None:
        """Add the provenance of a row, without its number."""
        place = "head" if is_head else "tail"
        for name, column in self._columns_of[place].items():
            column.append(row.get(name))
        if len(column) >= CHUNK:
            self._settle(place)

    def _settle(self, place: str) -> None:
        import pyarrow as pa

        # Arrow takes lists of lists many times faster than polars does.
        rows = pa.table(self._columns_of[place], self._schema.to_arrow())
        frame = pl.DataFrame(pl.from_arrow(rows), schema=self._schema)
        make_folder(self._folder)
        part = self._folder / f"{place}-{self._written[place]:06d}.parquet"
        write_table(frame, part, compression="lz4")
        self._columns_of[place] = _columns(self._schema)
        self._written[place] += 1

    def table(self) -> pl.LazyFrame:
        """Return all rows in the file's order, numbered, as a lazy frame over the files on disk."""
        for place, columns in self._columns_of.items():
            if any(columns.values()):
                self._settle(place)
        parts = [pl.scan_parquet(part) for part in sorted(self._folder.glob("*"))]
        if not parts:
            return pl.LazyFrame(schema=self._schema)
        return _numbered(pl.concat(parts).drop("row"), self._schema)

    def close(self) -> None:
        """Remove the files on disk."""
        shutil.rmtree(self._folder, ignore_errors=True)


def _columns(schema: pl.Schema) -> dict[str, list[Any]]:
    return {name: [] for name in schema.names()}


def of_dialogue(dialogue: Dialogue) -> dict[str, Any]:
    """Return the provenance of a dialogue, for the sidecars of dialogues and turns."""
    return {
        "dialogue_id": dialogue.id,
        "content_hash": dialogue.content_hash,
        **_of_lineage(dialogue.lineage),
    }


def of_pair(pair: PreferencePair) -> dict[str, Any]:
    """Return the provenance of a pair, for the sidecar of pairs; `side` is None."""
    return {
        "pair_id": pair.pair_id,
        "dialogue_id": pair.dialogue_id,
        "content_hash": pair.content_hash,
        "source": pair.source,
        "basis": pair.basis,
        "turn": pair.turn,
        "side": None,
        **{name: getattr(pair.check, name, None) for name in _CHECKED},
        "judge": pair.judge,
        "policy": pair.policy,
        "issue": pair.issue,
        **_of_lineage(pair.lineage),
    }


def _of_lineage(lineage: Lineage | None) -> dict[str, Any]:
    return {name: getattr(lineage, name.removeprefix("lineage_"), None) for name in LINEAGE}


def _numbered(rows: pl.LazyFrame, schema: pl.Schema) -> pl.LazyFrame:
    numbered = rows.with_row_index("row").with_columns(pl.col("row").cast(pl.Int64))
    return numbered.select(schema.names())
