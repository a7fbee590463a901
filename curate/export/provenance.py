"""Provenance of each row of a training file: a table beside the file, in the same order.

On arrival of a row it is known whether it goes to the head of its file, but not its number. So rows wait on disk, each with
that mark, until all have arrived.
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
_IS_HEAD = "is_head"

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
        self._names = schema.names()
        self._schema = pl.Schema([*schema.items(), (_IS_HEAD, pl.Boolean())])
        self._columns: dict[str, list[Any]] = {name: [] for name in self._schema}
        self._parts = 0

    def append(self, row: dict[str, Any], *, is_head: bool) -> None:
        """Add the provenance of a row, without its number."""
        for name in self._names:
            self._columns[name].append(row.get(name))
        self._columns[_IS_HEAD].append(is_head)
        if len(self._columns[_IS_HEAD]) >= CHUNK:
            self._settle()

    def _settle(self) -> None:
        import pyarrow as pa

        # Arrow takes lists of lists many times faster than polars does.
        rows = pa.table(self._columns, self._schema.to_arrow())
        frame = pl.DataFrame(pl.from_arrow(rows), schema=self._schema)
        make_folder(self._folder)
        write_table(frame, self._folder / f"{self._parts:06d}.parquet", compression="lz4")
        self._columns = {name: [] for name in self._schema}
        self._parts += 1

    def table(self) -> pl.LazyFrame:
        """Return all rows in the file's order, numbered, as a lazy frame over the files on disk."""
        if self._columns[_IS_HEAD]:
            self._settle()
        if not self._parts:
            return pl.LazyFrame(schema=self._schema).select(self._names)
        rows = pl.scan_parquet(sorted(self._folder.glob("*"))).drop("row")
        ordered = pl.concat([rows.filter(_IS_HEAD), rows.filter(~pl.col(_IS_HEAD))])
        number = pl.col("row").cast(pl.Int64)
        return ordered.with_row_index("row").with_columns(number).select(self._names)

    def close(self) -> None:
        """Remove the files on disk."""
        shutil.rmtree(self._folder, ignore_errors=True)


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
