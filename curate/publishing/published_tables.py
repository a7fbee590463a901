"""The Parquet files of a push: SFT rows and pairs as exported, each with its identity and lineage.

A trainer's file holds only the columns the trainer reads; the rest is in a sidecar. On the Hub people look at single
rows, so each pushed row has its identity and lineage as columns; the trainers' columns are unchanged. All files of a
config share one schema, or `datasets` would refuse to load them together: if one of them needs messages as JSON, all
have messages as JSON.

Rows are read and written in batches; one batch is in memory.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, get_args

import polars as pl

from curate.errors import CurateError, UsageError
from curate.export.provenance import LINEAGE, PAIR_SIDECAR, SFT_SIDECAR
from curate.publishing.local_paths import without_folders
from curate.publishing.row_cleaning import RowCleaner
from curate.storage.parquet_files import is_json, json_array, readable, row_count
from curate.storage.whole_files import make_file, make_folder

HubConfig = Literal["sft", "dpo", "dpo_natural", "judgments"]
Exported = Literal["sft", "dpo", "dpo_natural"]
SplitName = Literal["train", "validation"]

TRAINER: Final = "trl"
"""The trainer whose export is pushed: most loaders on the Hub expect TRL's formats."""

_BATCH = 1_000
EXPORTED: Final[tuple[Exported, ...]] = get_args(Exported)
"""Training files that are pushed, each as its own config: the judge's pairs and the data's are not mixed."""

_SIDECARS: Final = {"sft": SFT_SIDECAR, "dpo": PAIR_SIDECAR, "dpo_natural": PAIR_SIDECAR}
_PAIR_FACTS: Final = (
    "pair_id",
    "dialogue_id",
    "source",
    "basis",
    "turn",
    "margin",
    "probability",
    "decided_by",
    "judge",
    "policy",
    "issue",
    *LINEAGE,
)
_ROW_FACTS: Final[dict[str, tuple[str, ...]]] = {
    "sft": ("dialogue_id", *LINEAGE),
    "dpo": _PAIR_FACTS,
    "dpo_natural": _PAIR_FACTS,
}


@dataclass(frozen=True, slots=True)
class PublishedFile:
    """A Parquet file of a push; `name` is its path in the repository."""

    config: HubConfig
    split: SplitName
    name: str
    path: Path
    rows: int

    @property
    def size(self) -> int:
        """Size in bytes."""
        return self.path.stat().st_size


class Shards:
    """Write the files of one split, a new one where one has reached its size; a context manager.

    Args:
        folder: folder of the push; files go to `<config>/<split>-00000-of-00001.parquet` within.
        config: name of the folder within.
        split: start of the files' names.
        schema: schema of all files.
        shard_bytes: size at which a file is closed.
        cleaner: redacts rows and leaves rows out before they are written.
    """

    def __init__(
        self,
        folder: Path,
        config: HubConfig,
        split: SplitName,
        schema: Any,
        shard_bytes: int,
        cleaner: RowCleaner,
    ) -> None:
        self._cleaner = cleaner
        self._folder = folder
        self._config: HubConfig = config
        self._split: SplitName = split
        self._schema = schema
        self._shard_bytes = shard_bytes
        self._rows: list[int] = []
        self._writer: Any = None
        self.files: list[PublishedFile] = []

    def write(self, table: Any) -> None:
        """Clean rows and write them as one row group."""
        table = self._cleaner.clean(self._config, table)
        if self._writer is None:
            self._open()
        self._writer.write_table(table)
        self._rows[-1] += table.num_rows
        if self._path(len(self._rows) - 1).stat().st_size >= self._shard_bytes:
            self._close()

    def _open(self) -> None:
        import pyarrow.parquet as pq

        self._rows.append(0)
        path = self._path(len(self._rows) - 1)
        make_folder(path.parent)
        make_file(path)
        self._writer = pq.ParquetWriter(path, self._schema, compression="zstd")

    def _close(self) -> None:
        self._writer.close()
        self._writer = None

    def _path(self, number: int) -> Path:
        return self._folder / self._config / f"{self._split}-{number:05d}.part"

    def __enter__(self) -> Shards:
        return self

    def __exit__(self, *error: object) -> None:
        if error[1] is None and not self._rows:
            self._open()  # a split without rows is a file without rows: it can be loaded
        if self._writer is not None:
            self._close()
        if error[1] is None:
            self.files = [self._finished(at, rows) for at, rows in enumerate(self._rows)]

    def _finished(self, at: int, rows: int) -> PublishedFile:
        name = f"{self._config}/{self._split}-{at:05d}-of-{len(self._rows):05d}.parquet"
        path = self._path(at).replace(self._folder / name)
        return PublishedFile(self._config, self._split, name, path, rows)


def write_exported(
    run: Path,
    folder: Path,
    config: Exported,
    *,
    exported: Collection[str],
    shard_bytes: int,
    cleaner: RowCleaner,
) -> list[PublishedFile]:
    """Write the exported rows of a run, train and (if the run split) validation; return `[]` if there are no rows.

    Args:
        run: the run folder.
        folder: folder of the push.
        config: `sft`; `dpo` for pairs that the judge made and verified, `dpo_natural` for those of the data.
        exported: names of the training files that the run wrote for TRL.
        shard_bytes, cleaner: see `Shards`.

    Raises:
        UsageError: the rows were not exported as Parquet.
        CurateError: rows and sidecar do not match.
    """
    if config not in exported:
        return []
    sides = [(split, side, _shards(side, config)) for split, side in _sides(run)]
    files = [file for *_, shards in sides for file in shards]
    if not any(row_count(file) for file in files):
        return []
    shared = _ConfigSchema(config, files)
    written: list[PublishedFile] = []
    for split, side, shards in sides:
        with Shards(folder, config, split, shared.schema, shard_bytes, cleaner) as output:
            for table in _rows(side, config, shards, shared):
                output.write(table)
        written += output.files
    return written


def has_split(run: Path) -> bool:
    """Return True if the run split its export into train and validation."""
    return len(_sides(run)) > 1


def _sides(run: Path) -> list[tuple[SplitName, Path]]:
    train = run / "export" / TRAINER
    validation = train / "validation"
    sides: list[tuple[SplitName, Path]] = [("train", train)]
    return [*sides, ("validation", validation)] if validation.is_dir() else sides


def _shards(side: Path, name: str) -> list[Path]:
    """Return the Parquet files of a training file, in order."""
    whole = side / f"{name}.parquet"
    paths = [whole] if whole.is_file() else sorted(side.glob(f"{name}-?????-of-?????.parquet"))
    if not paths:
        raise UsageError(
            "the run has no Parquet export for TRL, which is what is pushed",
            got=f"no {whole}",
            fix="add `parquet` to export.formats, and run the recipe again: existing rows need no model calls",
        )
    return paths


class _ConfigSchema:
    """The schema that a config's files share; converts batches to it."""

    def __init__(self, config: Exported, files: Sequence[Path]) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        schemas = []
        for file in files:
            with readable(file):
                schemas.append(pq.read_schema(file))
        self.columns: list[tuple[str, Any]] = []
        for name in dict.fromkeys(name for schema in schemas for name in schema.names):
            types = [schema.field(name).type for schema in schemas if name in schema.names]
            # Plain structs if all files have them, else JSON, which holds every message.
            kind = next((kind for kind in types if is_json(kind)), types[0])
            self.columns.append((name, kind))
        special = {
            "turn": pa.int64(),
            "margin": pa.float64(),
            "probability": pa.float64(),
            "lineage_rows": pa.list_(pa.int64()),
        }
        facts = [(name, special.get(name, pa.string())) for name in _ROW_FACTS[config]]
        self.facts = pa.schema(facts)
        self.schema = pa.schema([*map(pa.field, *zip(*self.columns, strict=True)), *self.facts])

    def table(self, batch: Any, facts: pl.DataFrame) -> Any:
        """Return a batch and the facts of its rows as one Arrow table."""
        import pyarrow as pa

        columns = []
        for name, kind in self.columns:
            if name not in batch.schema.names:
                columns.append(pa.nulls(batch.num_rows, kind))
            elif is_json(kind) and not is_json(batch.schema.field(name).type):
                columns.append(json_array(batch[name].to_pylist(), kind))
            else:
                columns.append(batch[name])
        added = facts.to_arrow().cast(self.facts)
        return pa.Table.from_arrays([*columns, *added.columns], schema=self.schema)


def _rows(
    side: Path, config: Exported, shards: Sequence[Path], shared: _ConfigSchema
) -> Iterator[Any]:
    """Yield batches of one split in the config's schema, each row with its line of the sidecar."""
    import pyarrow.parquet as pq

    sidecar_path = side / _SIDECARS[config]
    sidecar = pl.scan_parquet(sidecar_path)
    with readable(sidecar_path):
        start, row = _first_line(sidecar, config), 0
    for path in shards:
        with readable(path), pq.ParquetFile(path) as file:
            for batch in file.iter_batches(_BATCH):
                batch.validate(full=True)  # else a damaged text would go out as it is
                with readable(sidecar_path):
                    lines = sidecar.slice(start + row, batch.num_rows).collect()
                if not _matches(lines, config, range(row, row + batch.num_rows)):
                    raise CurateError(
                        f"{sidecar_path} does not match the rows of {path.name}",
                        expected="one line per row, in the same order",
                        fix="run the recipe again: the export is written again, without model calls",
                    )
                yield shared.table(batch, _row_facts(lines, config))
                row += batch.num_rows


def _first_line(sidecar: pl.LazyFrame, name: str) -> int:
    """Return the first line of the sidecar about a file; its lines are consecutive and in order."""
    if "file" not in sidecar.collect_schema():
        return 0
    lines = sidecar.select("file").with_row_index("at").filter(pl.col("file") == name)
    return int(lines.select(pl.col("at").min()).collect().item() or 0)


def _matches(lines: pl.DataFrame, name: str, rows: range) -> bool:
    is_of_file = "file" not in lines.columns or set(lines["file"]) <= {name}
    return is_of_file and lines["row"].to_list() == list(rows)


def _row_facts(lines: pl.DataFrame, config: str) -> pl.DataFrame:
    """Return identity and lineage of rows, with paths cut to their last part."""
    local = [name for name in ("judge", "policy", "lineage_file") if name in lines.columns]
    return lines.select(_ROW_FACTS[config]).with_columns(
        pl.col(name).map_elements(without_folders, return_dtype=pl.String)
        for name in local
        if name in _ROW_FACTS[config]
    )
