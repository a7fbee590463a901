"""A trainer's folder: every row written or refused, sidecars in step with the files, all replaced as a whole.

A training file holds the trainer's columns and no other; who, why and from where stands in sidecars, joined by
row (and for pairs by `pair_id`). Rows that cannot be carried go to `refused.jsonl` with a reason. The same
input gives the same bytes, wherever and in however many processes the stages before ran.
"""

from __future__ import annotations

import re
import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

import orjson
import polars as pl

from curate.dialogue import Dialogue
from curate.errors import CurateError
from curate.export.config import ExportConfig, Format, Kind, Trainer
from curate.export.counts import ExportCounts
from curate.export.files import RowFile, Shard, copy_shard, cut, shard_names
from curate.export.labels import LabelSpool
from curate.export.layout import Row, Stream, TrainerModule, TrainingFile
from curate.export.parquet import write_parquet
from curate.export.provenance import (
    PAIR_SCHEMA,
    SFT_SCHEMA,
    TURN_SCHEMA,
    Provenance,
    StoredProvenance,
    lineage_columns,
)
from curate.export.rows import labelled_rows, masked_row, pair_row, sft_row, turn_row
from curate.export.stored import Copied, StoredDialogues
from curate.export.trainers import trainer_module
from curate.export.turns import LabelledTurns, MixedDialogue
from curate.export.wire import Refused
from curate.files import write_table
from curate.records import PreferencePair

PAIR_SIDECAR, SFT_SIDECAR, TURN_SIDECAR = (
    "provenance.parquet",
    "sft_provenance.parquet",
    "turn_provenance.parquet",
)
REFUSED = "refused.jsonl"
_PARTIAL: Final = ".partial"
_SIDECAR_OF: Final[Mapping[Stream, str]] = {
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
_SCHEMA_OF: Final = {
    SFT_SIDECAR: SFT_SCHEMA,
    PAIR_SIDECAR: PAIR_SCHEMA,
    TURN_SIDECAR: TURN_SCHEMA,
}


@dataclass(frozen=True, slots=True)
class ExportData:
    """What there is to export.

    Attributes:
        sft: dialogues to train on. Messages after the last assistant message are cut. Those of a file give
            the same rows as if they had been read, most of them as slices of it.
        pairs: judge-made pairs.
        natural: pairs that came with the data.
        mixed: dialogues to train on in part.
        labelled: judged turns.
    """

    sft: Iterable[Dialogue] | StoredDialogues = ()
    pairs: Iterable[PreferencePair] = ()
    natural: Iterable[PreferencePair] = ()
    mixed: Iterable[MixedDialogue] = ()
    labelled: Iterable[LabelledTurns] = ()


def write_export(
    folder: Path, trainer: Trainer, data: ExportData, config: ExportConfig
) -> ExportCounts:
    """Write a trainer's files into a folder, replacing those of an earlier export.

    Rows keep the order they come in, but for the few that go to the head of a file (see `export.files`) and
    KTO rows (see `export.labels`). A file without rows is written all the same.

    Args:
        folder: for instance `<run>/export/trl`.
        trainer: whose files.
        data: read once, in order.
        config: formats and options.

    Returns:
        Rows written and refused; every row that came in is in one of the two.

    Raises:
        CurateError: the folder cannot be written; the earlier export stands.
    """
    module = trainer_module(trainer)
    with _replacing(folder, module) as partial:
        return _Export(partial, module, config).write(data)


@contextmanager
def _replacing(folder: Path, module: TrainerModule) -> Iterator[Path]:
    """A fresh folder to write into; its files then take their places in `folder`, each one whole.

    Files that an export of the same trainer may write and this one did not are removed, so that no file of
    an earlier export stands beside the new ones. Only one process may write the folder.
    """
    names = "|".join(re.escape(file.name) for file in module.FILES)
    owned = re.compile(rf"({names})(-\d{{5}}-of-\d{{5}})?\.(jsonl|parquet)")
    others = {*_SCHEMA_OF, REFUSED, *module.side_files({})}
    partial = folder / _PARTIAL
    try:
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        try:
            yield partial
            made = {path.name for path in partial.iterdir()}
            for name in sorted(made):
                (partial / name).replace(folder / name)
            for path in folder.iterdir():
                if path.name not in made and (path.name in others or owned.fullmatch(path.name)):
                    path.unlink()
        finally:
            shutil.rmtree(partial, ignore_errors=True)
    except OSError as error:
        raise CurateError(
            f"cannot write the export in {folder}",
            got=error.strerror or str(error),
            fix="free some room or mend the permissions, then run the same command again: it resumes",
        ) from error


class _Open:
    """A training file being written, and what is known of its rows."""

    def __init__(self, folder: Path, file: TrainingFile) -> None:
        self.file = file
        self.name = file.name
        self.rows = RowFile(folder / f"{file.name}.rows", file.columns)
        self.sidecar = _SIDECAR_OF[file.stream]
        self.known = Provenance(folder, file.name, _SCHEMA_OF[self.sidecar])


class _Written(NamedTuple):
    """What became of a dialogue that has a row."""

    cut: int
    role_added: bool
    is_head: bool


class _Export:
    """One export being written."""

    def __init__(self, folder: Path, module: TrainerModule, config: ExportConfig) -> None:
        self.folder = folder
        self.module = module
        self.config = config
        self.files = [_Open(folder, file) for file in module.FILES if _is_wanted(file, config)]
        names = [file.name for file in self.files]
        self.counts = ExportCounts(
            dict.fromkeys(names, 0), {name: Counter[str]() for name in names}
        )
        self.stored: StoredProvenance | None = None
        self.pair_ids: dict[Kind, set[str]] = {file.file.kind: set() for file in self.files}

    def of(self, stream: Stream) -> list[_Open]:
        return [file for file in self.files if file.file.stream == stream]

    def write(self, data: ExportData) -> ExportCounts:
        with ExitStack() as opened:
            self.refused = opened.enter_context((self.folder / REFUSED).open("wb"))
            for file in self.files:
                opened.enter_context(file.rows)
            for file in self.of("dialogues"):
                self._add_dialogues(file, data.sft)
            if masked := self.of("masked") + self.of("masked_turns"):
                self._add_mixed(masked, data.mixed)
            self._add_pairs("pairs", "pair_labels", data.pairs)
            self._add_pairs("natural", "natural_labels", data.natural)
            for file in self.of("turn_labels"):
                self._add_labelled(file, data.labelled)
        written = {file.name: self._finish(file) for file in self.files}
        written = {name: shards for name, shards in written.items() if self.counts.rows[name]}
        for name, content in self.module.side_files(written).items():
            (self.folder / name).write_bytes(content)
        self._write_sidecars()
        return self.counts

    # -- dialogues of the SFT set

    def _add_dialogues(self, file: _Open, dialogues: Iterable[Dialogue] | StoredDialogues) -> None:
        if isinstance(dialogues, StoredDialogues):
            self._add_stored(file, dialogues)
            return
        for dialogue in dialogues:
            if (written := self._add_dialogue(file, dialogue)) is None:
                continue
            file.known.append(
                {
                    **_of_dialogue(dialogue),
                    "messages_cut": written.cut,
                    "role_added": written.role_added,
                },
                is_head=written.is_head,
            )

    def _add_stored(self, file: _Open, dialogues: StoredDialogues) -> None:
        known = self.stored = StoredProvenance(dialogues)
        for made in dialogues.rows(role_as_system=self.config.role_as_system):
            if isinstance(made, Copied):
                self._add_copied(file, made, known)
                continue
            at, dialogue = made
            if (written := self._add_dialogue(file, dialogue)) is None:
                known.refuse(at)
            else:
                known.note(at, **written._asdict())

    def _add_copied(self, file: _Open, made: Copied, known: StoredProvenance) -> None:
        if file.file.is_verbatim:
            if file.rows.extend(made.heads, made.messages):
                known.note(made.at, is_head=True)
            if made.has_role:
                self.counts.roles_added += len(made.messages)
                known.note_roles(made.at, len(made.messages))
            return
        for offset, messages in enumerate(made.messages):
            head = made.heads if isinstance(made.heads, bytes) else made.heads[offset]
            row = orjson.loads(head + bytes(messages) + b"}")
            at = made.at + offset
            try:
                is_head = file.rows.append(file.file.make(row))
            except Refused as refusal:
                # Its id is in its line, which is not read but for this.
                dialogue = known.dialogue_id(at)
                self._refuse(file, refusal, {"dialogue_id": dialogue})
                known.refuse(at)
                continue
            self.counts.roles_added += made.has_role
            known.note(at, role_added=made.has_role, is_head=is_head)

    def _add_dialogue(self, file: _Open, dialogue: Dialogue) -> _Written | None:
        """Write the row of a dialogue; None where it is refused."""
        try:
            row, cut_off, role_added = sft_row(dialogue, self.config)
            is_head = file.rows.append(file.file.make(row))
        except Refused as refusal:
            self._refuse(file, refusal, {"dialogue_id": dialogue.id})
            return None
        self.counts.dialogues_cut += cut_off > 0
        self.counts.roles_added += role_added
        return _Written(cut_off, role_added, is_head)

    # -- turns

    def _add_mixed(self, files: Sequence[_Open], mixed: Iterable[MixedDialogue]) -> None:
        least = self.config.salvage.min_turns if self.config.salvage else 1
        for given in mixed:
            dialogue, trained = given.dialogue, given.trained
            ids = {"dialogue_id": dialogue.id}
            if len(given.turns) < least or not trained:
                few = f"{len(given.turns)} good turns, where {least} are asked for"
                for file in files:
                    self._refuse(file, Refused("too_few_good_turns", few), ids)
                continue
            self.counts.salvaged_dialogues += 1
            self.counts.salvaged_turns += len(given.turns)
            for file in files:
                if file.file.stream == "masked":
                    self._add_masked(file, given, trained)
                    continue
                for index, turn in trained.items():
                    self._add_turn(file, dialogue, index, turn)

    def _add_masked(self, file: _Open, given: MixedDialogue, trained: Mapping[int, int]) -> None:
        self._offer(
            file,
            lambda: masked_row(given.dialogue, trained.keys(), self.config),
            self._of_turns(given.dialogue, given.turns, trained),
            {"dialogue_id": given.dialogue.id},
        )

    def _add_turn(
        self, file: _Open, dialogue: Dialogue, index: int, turn: int, **label: bool
    ) -> None:
        self._offer(
            file,
            lambda: {**turn_row(dialogue, index, self.config), **label},
            self._of_turns(dialogue, [turn], [index]) | label,
            {"dialogue_id": dialogue.id, "turn": turn, "message": index},
        )

    def _add_labelled(self, file: _Open, labelled: Iterable[LabelledTurns]) -> None:
        for given in labelled:
            turns = {turn.number: turn for turn in given.dialogue.turns}
            for number, label in given.labels.items():
                index = turns[number].last_assistant_text
                if index is not None:
                    self._add_turn(file, given.dialogue, index, number, label=label)
                    continue
                detail = "the turn has no text of the assistant, only calls"
                ids = {"dialogue_id": given.dialogue.id, "turn": number}
                self._refuse(file, Refused("no_text_in_turn", detail), ids)

    def _of_turns(
        self, dialogue: Dialogue, turns: Iterable[int], messages: Iterable[int]
    ) -> dict[str, Any]:
        return {
            **_of_dialogue(dialogue),
            "turns": list(turns),
            "messages": list(messages),
            "label": None,
        }

    # -- pairs

    def _add_pairs(
        self, stream: Stream, label_stream: Stream, pairs: Iterable[PreferencePair]
    ) -> None:
        files, margins, labels = self.of(stream), self.of("margins"), self.of(label_stream)
        with ExitStack() as opened:
            spools = [
                (file, opened.enter_context(LabelSpool(self.folder / f"{file.name}.spool")))
                for file in labels
            ]
            for pair in pairs:
                margin = None if pair.check is None else pair.check.margin
                for file in files:
                    self._add_pair(file, pair)
                for file in margins if margin is not None else ():
                    self._add_pair(file, pair, margin=margin)
                for file, spool in spools:
                    self._spool(file, spool, pair)
            for file, spool in spools:
                for row, known, refusal in spool.rows():
                    ids = {key: known[key] for key in ("dialogue_id", "pair_id", "side")}
                    if refusal is not None:
                        self._refuse(file, refusal, ids)
                    else:
                        self._offer(file, partial(dict, row), known, ids)

    def _add_pair(self, file: _Open, pair: PreferencePair, **further: float | None) -> None:
        def row() -> Row:
            self._require_new(file, pair)
            return {**pair_row(pair, self.config), **further}

        ids = {"dialogue_id": pair.dialogue_id, "pair_id": pair.pair_id}
        if self._offer(file, row, {**_of_pair(pair), "file": file.name}, ids):
            self.pair_ids[file.file.kind].add(pair.pair_id)

    def _require_new(self, file: _Open, pair: PreferencePair) -> None:
        if pair.pair_id in self.pair_ids[file.file.kind]:
            raise Refused("duplicate_pair_id", "a pair of this id is in the export already")

    def _spool(self, file: _Open, spool: LabelSpool, pair: PreferencePair) -> None:
        try:
            self._require_new(file, pair)
            chosen, rejected = labelled_rows(pair_row(pair, self.config))
            spool.add(chosen, rejected, _of_pair(pair))
        except Refused as refusal:
            for side in ("chosen", "rejected"):
                ids = {"dialogue_id": pair.dialogue_id, "pair_id": pair.pair_id, "side": side}
                self._refuse(file, refusal, ids)
            return
        self.pair_ids[file.file.kind].add(pair.pair_id)

    # -- all files

    def _offer(
        self,
        file: _Open,
        make: Callable[[], Row],
        known: Mapping[str, Any],
        ids: Mapping[str, Any],
    ) -> bool:
        """Write the row that `make` gives, or refuse it; says which."""
        try:
            is_head = file.rows.append(file.file.make(make()))
        except Refused as refusal:
            self._refuse(file, refusal, ids)
            return False
        file.known.append({**known, "file": file.name}, is_head=is_head)
        return True

    def _refuse(self, file: _Open, refusal: Refused, ids: Mapping[str, Any]) -> None:
        self.counts.refused[file.name][refusal.reason] += 1
        record = {"file": file.name, **ids, "reason": refusal.reason, "detail": refusal.detail}
        self.refused.write(orjson.dumps(record) + b"\n")

    def _finish(self, file: _Open) -> list[str]:
        """Shards in each format; the names of those in the format the trainer prefers."""
        rows = file.rows
        self.counts.rows[file.name] = len(rows)
        shards = cut(rows, self.config.shard_rows, self.config.shard_bytes)
        formats = _formats(self.module, self.config)
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
        for sidecar in _SCHEMA_OF:
            files = [file for file in self.files if file.sidecar == sidecar]
            if not files:
                continue
            tables = [
                self.stored.table()
                if self.stored is not None and file.file.stream == "dialogues"
                else file.known.table()
                for file in files
            ]
            # higher levels take longer and give larger files: hashes have nothing to find
            write_table(pl.concat(tables), self.folder / sidecar, compression_level=1)
        for file in self.files:
            file.known.close()


def _is_wanted(file: TrainingFile, config: ExportConfig) -> bool:
    if file.stream in ("masked", "masked_turns") and config.salvage is None:
        return False
    if file.stream == "turn_labels" and config.kto_turns is None:
        return False
    return file.kind in config.kinds


def _formats(module: TrainerModule, config: ExportConfig) -> list[Format]:
    """Those of the recipe that the trainer reads, else all it reads; the one it prefers first."""
    return [each for each in module.FORMATS if each in config.formats] or list(module.FORMATS)


def _of_dialogue(dialogue: Dialogue) -> dict[str, Any]:
    return {
        "dialogue_id": dialogue.id,
        "content_hash": dialogue.content_hash,
        **lineage_columns(dialogue.lineage),
    }


def _of_pair(pair: PreferencePair) -> dict[str, Any]:
    check = pair.check
    return {
        "pair_id": pair.pair_id,
        "dialogue_id": pair.dialogue_id,
        "content_hash": pair.content_hash,
        "source": pair.source,
        "basis": pair.basis,
        "turn": pair.turn,
        "side": None,
        "margin": None if check is None else check.margin,
        "noise": None if check is None else check.noise,
        "token_ratio": None if check is None else check.token_ratio,
        "judge": pair.judge,
        "policy": pair.policy,
        "issue": pair.issue,
        **lineage_columns(pair.lineage),
    }
