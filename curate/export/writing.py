"""A trainer's folder: every row written or refused, sidecars in the files' order, all files replaced together.

A training file holds the trainer's columns only; provenance is in sidecars, joined by row (and for pairs by `pair_id`).
Rows that the trainer's format cannot hold go to `refused.jsonl` with a reason. The same input gives the same bytes,
wherever and in however many processes the earlier stages ran.
"""

from __future__ import annotations

import re
import shutil
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

import polars as pl

from curate.dialogue import Dialogue
from curate.errors import CurateError
from curate.export.config import ExportConfig
from curate.export.counts import ExportCounts
from curate.export.good_turns import LabelledTurns, MixedDialogue
from curate.export.provenance import SIDECARS
from curate.export.row_files import RowFile, Shard, copy_shard, cut, shard_names, write_parquet
from curate.export.streams import OpenFile, add_dialogues, add_labelled, add_mixed, add_pairs
from curate.export.trainer_module import Kind, Stream, TrainerModule, TrainingFile
from curate.export.trainers import TRAINERS, Trainer
from curate.records import PreferencePair
from curate.storage.parquet_files import write_table
from curate.storage.whole_files import make_folder

REFUSED = "refused.jsonl"
_PARTIAL: Final = ".partial"


@dataclass(frozen=True, slots=True)
class ExportData:
    """Data to export.

    Attributes:
        sft: dialogues to train on. Messages after the last assistant message are cut.
        pairs: judge-made pairs.
        natural: pairs that came with the data.
        mixed: dialogues of which some turns are trained on.
        labelled: judged turns.
        turned: ids of the pairs whose rejected side people call better.
    """

    sft: Iterable[Dialogue] = ()
    pairs: Iterable[PreferencePair] = ()
    natural: Iterable[PreferencePair] = ()
    mixed: Iterable[MixedDialogue] = ()
    labelled: Iterable[LabelledTurns] = ()
    turned: Collection[str] = ()


def write_export(
    folder: Path, trainer: Trainer, data: ExportData, config: ExportConfig
) -> ExportCounts:
    """Write a trainer's files into a folder, replacing those of an earlier export.

    Rows keep their order, except for the few that go to the head of a file (see `export.row_files`) and KTO rows (see
    `export.labels`). A file without rows is written, too.

    Args:
        folder: for instance `<run>/export/trl`.
        trainer: the trainer to write for.
        data: data to export, read once, in order.
        config: formats and options.

    Returns:
        Counts of rows written and refused; every row is in one of the two.

    Raises:
        CurateError: the folder cannot be written; the earlier export is unchanged.
    """
    module = TRAINERS[trainer]
    with _replacing(folder, module) as partial, (partial / REFUSED).open("wb") as refused:
        return _Export(partial, module, config, refused).write(data)


@contextmanager
def _replacing(folder: Path, module: TrainerModule) -> Iterator[Path]:
    """Yield an empty folder to write into; then move each of its files into `folder`.

    Files that an export of the same trainer may write and this one did not are removed, so that no file of an earlier
    export remains beside the new ones. Only one process may write the folder.
    """
    names = "|".join(re.escape(file.name) for file in module.files)
    owned = re.compile(rf"({names})(-\d{{5}}-of-\d{{5}})?\.(jsonl|parquet)")
    others = {*SIDECARS, REFUSED, *module.side_files({})}
    partial = folder / _PARTIAL
    try:
        shutil.rmtree(partial, ignore_errors=True)
        make_folder(partial)
        try:
            yield partial
            written = {path.name for path in partial.iterdir()}
            for name in sorted(written):
                (partial / name).chmod(0o600)
                (partial / name).replace(folder / name)
            for path in folder.iterdir():
                if path.name not in written and (path.name in others or owned.fullmatch(path.name)):
                    path.unlink()
        finally:
            shutil.rmtree(partial, ignore_errors=True)
    except OSError as error:
        raise CurateError(
            f"cannot write the export in {folder}",
            got=error.strerror or str(error),
            fix="free some space or fix the permissions, then run the same command again: it resumes",
        ) from error


class _Export:
    """One export being written."""

    def __init__(
        self, folder: Path, module: TrainerModule, config: ExportConfig, refused: IO[bytes]
    ) -> None:
        self.folder = folder
        self.module = module
        self.config = config
        selected = [file for file in module.files if _is_selected(file, config)]
        self.counts = ExportCounts(
            {file.name: 0 for file in selected}, {file.name: Counter() for file in selected}
        )
        pair_ids: defaultdict[Kind, set[str]] = defaultdict(set)
        self.files = [
            OpenFile(folder, file, self.counts, refused, pair_ids[file.kind]) for file in selected
        ]

    def of(self, stream: Stream) -> list[OpenFile]:
        return [file for file in self.files if file.file.stream == stream]

    def write(self, data: ExportData) -> ExportCounts:
        with ExitStack() as opened:
            for file in self.files:
                opened.enter_context(file.rows)
            self._fill(data)
        written = {file.name: self._finish(file) for file in self.files}
        written = {name: shards for name, shards in written.items() if self.counts.rows[name]}
        for name, content in self.module.side_files(written).items():
            (self.folder / name).write_bytes(content)
        self._write_sidecars()
        return self.counts

    def _fill(self, data: ExportData) -> None:
        config = self.config
        for file in self.of("dialogues"):
            add_dialogues(file, data.sft, config)
        if masked := self.of("masked") + self.of("masked_turns"):
            add_mixed(masked, data.mixed, config, self.counts)
        margins = self.of("margins")
        files, labels = self.of("pairs"), self.of("pair_labels")
        add_pairs(files, margins, labels, data.pairs, config, data.turned)
        files, labels = self.of("natural"), self.of("natural_labels")
        add_pairs(files, margins, labels, data.natural, config, data.turned)
        for file in self.of("turn_labels"):
            add_labelled(file, data.labelled, config)

    def _finish(self, file: OpenFile) -> list[str]:
        """Write shards in each format; return the names of those in the trainer's preferred format."""
        rows = file.rows
        self.counts.rows[file.name] = len(rows)
        shards = cut(rows, self.config.shard_rows, self.config.shard_bytes)
        readable = self.module.facts.formats
        formats = [each for each in readable if each in self.config.formats] or readable
        if "parquet" in formats:
            names = shard_names(file.name, "parquet", len(shards))
            write_parquet(rows, shards, [self.folder / name for name in names])
        if "jsonl" in formats:
            self._write_lines(rows, shards, shard_names(file.name, "jsonl", len(shards)))
        else:
            rows.path.unlink()
        return shard_names(file.name, formats[0], len(shards))

    def _write_lines(self, rows: RowFile, shards: Sequence[Shard], names: Sequence[str]) -> None:
        if len(shards) == 1:
            rows.path.replace(self.folder / names[0])
            return
        for shard, name in zip(shards, names, strict=True):
            copy_shard(rows.path, shard, self.folder / name)
        rows.path.unlink()

    def _write_sidecars(self) -> None:
        for name in SIDECARS:
            if tables := [file.provenance.table() for file in self.files if file.sidecar == name]:
                # higher levels take longer without smaller files: hashes do not compress
                write_table(pl.concat(tables), self.folder / name, compression_level=1)
        for file in self.files:
            file.provenance.close()


def _is_selected(file: TrainingFile, config: ExportConfig) -> bool:
    if file.stream in ("masked", "masked_turns") and config.salvage is None:
        return False
    if file.stream == "turn_labels" and config.kto_turns is None:
        return False
    return file.kind in config.kinds
