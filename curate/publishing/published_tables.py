"""The Parquet files of a push: SFT rows and pairs as exported, each with who and from where beside it.

A trainer's file holds only what the trainer knows, and the rest in a sidecar. On the Hub people look at rows
one by one, so what a row is and where it comes from stands in the row; the trainers' columns stay as they
are. All files of a config share one schema, or `datasets` would refuse to load them together: where any of
them needs messages as JSON, all have them so.

Rows pass through in batches; what is held is one batch.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, get_args

import polars as pl

from curate.errors import CurateError, UsageError
from curate.publishing.json_columns import as_json, is_json
from curate.publishing.local_paths import shortened
from curate.publishing.row_cleaning import RowCleaner
from curate.storage.parquet_files import readable, row_count
from curate.storage.whole_files import make_file, make_folder

Config = Literal["sft", "dpo", "dpo_natural", "judgments"]
Exported = Literal["sft", "dpo", "dpo_natural"]
Split = Literal["train", "validation"]

TRAINER: Final = "trl"
"""Whose export is pushed: TRL's shapes are what most loaders on the Hub expect."""

_BATCH = 1_000
EXPORTED: Final[tuple[Exported, ...]] = get_args(Exported)
"""Training files that are pushed, each as a config of its own: the judge's pairs and the data's are not mixed."""

_SIDECARS: Final = {
    "sft": "sft_provenance.parquet",
    "dpo": "provenance.parquet",
    "dpo_natural": "provenance.parquet",
}
_LINEAGE: Final = ("lineage_source", "lineage_file", "lineage_rows", "lineage_part")
_OF_PAIRS: Final = (
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
    *_LINEAGE,
)
_BESIDE: Final[dict[str, tuple[str, ...]]] = {
    "sft": ("dialogue_id", *_LINEAGE),
    "dpo": _OF_PAIRS,
    "dpo_natural": _OF_PAIRS,
}


@dataclass(frozen=True, slots=True)
class PublishedFile:
    """One Parquet file, as it will be named in the repository."""

    config: Config
    split: Split
    name: str
    path: Path
    rows: int

    @property
    def size(self) -> int:
        """In bytes."""
        return self.path.stat().st_size


class Shards:
    """The files of one split in the making, a new one begun where one has grown large; a context manager.

    Args:
        folder: of the whole push; files go to `<config>/<split>-00000-of-00001.parquet` within.
        config: names the folder within.
        split: opens the files' names.
        schema: of all files.
        shard_bytes: a file that has grown to this is closed.
        cleaner: what rows pass before they are written.
    """

    def __init__(
        self,
        folder: Path,
        config: Config,
        split: Split,
        schema: Any,
        shard_bytes: int,
        cleaner: RowCleaner,
    ) -> None:
        self._cleaner = cleaner
        self._folder = folder
        self._config: Config = config
        self._split: Split = split
        self._schema = schema
        self._shard_bytes = shard_bytes
        self._rows: list[int] = []
        self._writer: Any = None
        self.files: list[PublishedFile] = []

    def write(self, table: Any) -> None:
        """Add rows, those that the cleaner lets out; a row group of their own."""
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
    """Write the exported rows of a run, train and (where the run split) validation; `[]` without any row.

    Args:
        run: the run folder.
        folder: of the push.
        config: `sft`; `dpo` for pairs that the judge made and verified, `dpo_natural` for those the data held.
        exported: the training files that the run wrote for TRL.
        shard_bytes, cleaner: see `Shards`.

    Raises:
        UsageError: they were not written as Parquet.
        CurateError: rows and sidecar do not fit together.
    """
    if config not in exported:
        return []
    sides = [(split, side, _shards(side, config)) for split, side in _sides(run)]
    files = [file for *_, shards in sides for file in shards]
    if not any(row_count(file) for file in files):
        return []
    form = _Form(config, files)
    written: list[PublishedFile] = []
    for split, side, shards in sides:
        with Shards(folder, config, split, form.schema, shard_bytes, cleaner) as made:
            for table in _rows(side, config, shards, form):
                made.write(table)
        written += made.files
    return written


def has_split(run: Path) -> bool:
    """True where the run divided what it exported into train and validation."""
    return len(_sides(run)) > 1


def _sides(run: Path) -> list[tuple[Split, Path]]:
    train = run / "export" / TRAINER
    validation = train / "validation"
    sides: list[tuple[Split, Path]] = [("train", train)]
    return [*sides, ("validation", validation)] if validation.is_dir() else sides


def _shards(side: Path, name: str) -> list[Path]:
    """The Parquet files of a training file, in order."""
    whole = side / f"{name}.parquet"
    found = [whole] if whole.is_file() else sorted(side.glob(f"{name}-?????-of-?????.parquet"))
    if not found:
        raise UsageError(
            "the run has no Parquet export for TRL, which is what is pushed",
            got=f"no {whole}",
            fix="add `parquet` to export.formats, and run the recipe again: no model calls for what is there",
        )
    return found


class _Form:
    """The one schema of a config's files, and how a batch is brought into it."""

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
            # Plain structs where all files have them, else the type that holds every message.
            kind = next((kind for kind in types if is_json(kind)), types[0])
            self.columns.append((name, kind))
        special = {
            "turn": pa.int64(),
            "margin": pa.float64(),
            "probability": pa.float64(),
            "lineage_rows": pa.list_(pa.int64()),
        }
        beside = [(name, special.get(name, pa.string())) for name in _BESIDE[config]]
        self.beside = pa.schema(beside)
        self.schema = pa.schema([*map(pa.field, *zip(*self.columns, strict=True)), *self.beside])

    def table(self, batch: Any, beside: pl.DataFrame) -> Any:
        import pyarrow as pa

        columns = []
        for name, kind in self.columns:
            if name not in batch.schema.names:
                columns.append(pa.nulls(batch.num_rows, kind))
            elif is_json(kind) and not is_json(batch.schema.field(name).type):
                columns.append(as_json(batch[name].to_pylist(), kind))
            else:
                columns.append(batch[name])
        known = beside.to_arrow().cast(self.beside)
        return pa.Table.from_arrays([*columns, *known.columns], schema=self.schema)


def _rows(side: Path, config: Exported, shards: Sequence[Path], form: _Form) -> Iterator[Any]:
    """Batches of one side in the config's form, each row with its line of the sidecar."""
    import pyarrow.parquet as pq

    told = side / _SIDECARS[config]
    sidecar = pl.scan_parquet(told)
    with readable(told):
        start, row = _first_line(sidecar, config), 0
    for path in shards:
        with readable(path), pq.ParquetFile(path) as file:
            for batch in file.iter_batches(_BATCH):
                batch.validate(full=True)  # else a damaged text would go out as it is
                with readable(told):
                    known = sidecar.slice(start + row, batch.num_rows).collect()
                if not _tells_of(known, config, range(row, row + batch.num_rows)):
                    raise CurateError(
                        f"{told} does not tell of the rows of {path.name}",
                        expected="one line a row, in the same order",
                        fix="run the recipe again: the export is written anew, without model calls",
                    )
                yield form.table(batch, _beside(known, config))
                row += batch.num_rows


def _first_line(sidecar: pl.LazyFrame, name: str) -> int:
    """Where the sidecar begins to tell of a file; its rows lie together, in order."""
    if "file" not in sidecar.collect_schema():
        return 0
    lines = sidecar.select("file").with_row_index("at").filter(pl.col("file") == name)
    return int(lines.select(pl.col("at").min()).collect().item() or 0)


def _tells_of(known: pl.DataFrame, name: str, rows: range) -> bool:
    is_of_file = "file" not in known.columns or set(known["file"]) <= {name}
    return is_of_file and known["row"].to_list() == list(rows)


def _beside(known: pl.DataFrame, config: str) -> pl.DataFrame:
    """What is said of rows, without places on this machine."""
    local = [name for name in ("judge", "policy", "lineage_file") if name in known.columns]
    return known.select(_BESIDE[config]).with_columns(
        pl.col(name).map_elements(shortened, return_dtype=pl.String)
        for name in local
        if name in _BESIDE[config]
    )
