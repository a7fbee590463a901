"""TRL's conversational shapes: `sft.jsonl`, `dpo.jsonl`, `dpo_natural.jsonl` and the same as Parquet.

A file holds TRL's columns and no other; who, why and from where stands in sidecars, joined by row (and
for pairs by `pair_id`). Rows that cannot be carried go to `refused.jsonl` with a reason: TRL itself checks
little (identical sides pass, a prompt that ends with the assistant passes) and a row its chat template
cannot render ends the whole training run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal, NamedTuple

import orjson
import polars as pl

from curate.dialogue import Dialogue
from curate.export.config import ExportConfig
from curate.export.files import RowFile, replacing, write_parquet
from curate.export.provenance import (
    PAIR_SCHEMA,
    SFT_SCHEMA,
    Provenance,
    StoredProvenance,
    lineage_columns,
)
from curate.export.rows import pair_row, sft_row
from curate.export.stored import Copied, StoredDialogues
from curate.export.wire import Refused
from curate.files import write_table
from curate.records import PreferencePair

Split = Literal["sft", "dpo", "dpo_natural"]

_COLUMNS: Final[Mapping[Split, tuple[str, ...]]] = {
    "sft": ("messages",),
    "dpo": ("prompt", "chosen", "rejected"),
    "dpo_natural": ("prompt", "chosen", "rejected"),
}
_OWNED: Final = (
    *(f"{split}.{suffix}" for split in _COLUMNS for suffix in ("jsonl", "parquet")),
    "provenance.parquet",
    "sft_provenance.parquet",
    "refused.jsonl",
)


@dataclass(slots=True)
class ExportCounts:
    """What was written and what was not. For each file: rows in = rows written + rows refused.

    Attributes:
        rows: rows written, by file.
        refused: rows refused, by file and reason.
        dialogues_cut: SFT rows that lost messages after their last assistant message.
        roles_added: SFT rows whose role definition was written as a system message.
    """

    rows: dict[str, int] = field(default_factory=lambda: dict.fromkeys(_COLUMNS, 0))
    refused: dict[str, Counter[str]] = field(
        default_factory=lambda: {split: Counter() for split in _COLUMNS}
    )
    dialogues_cut: int = 0
    roles_added: int = 0

    def as_dict(self) -> dict[str, int]:
        """Flat, for a manifest; reasons as `refused_<file>_<reason>`."""
        flat = {**self.rows, "dialogues_cut": self.dialogues_cut, "roles_added": self.roles_added}
        for split, reasons in self.refused.items():
            flat[f"refused_{split}"] = reasons.total()
            flat.update({f"refused_{split}_{reason}": n for reason, n in sorted(reasons.items())})
        return flat


def export_trl(
    folder: Path,
    *,
    sft: Iterable[Dialogue] | StoredDialogues,
    pairs: Iterable[PreferencePair],
    natural: Iterable[PreferencePair],
    config: ExportConfig,
) -> ExportCounts:
    """Write TRL's files into a folder, replacing those of an earlier export.

    Rows keep the order they come in, but for the few that go to the head of a file (see
    `export.files`). The same input gives the same bytes. A file without rows is written all the same.

    Args:
        folder: for instance `<run>/export/trl`.
        sft: dialogues to train on. Messages after the last assistant message are cut. Those of a file give
            the same rows as if they had been read, most of them as slices of it.
        pairs: judge-made pairs, for `dpo`.
        natural: pairs that came with the data, for `dpo_natural`.
        config: formats and options.

    Returns:
        Rows written and refused; every row that came in is in one of the two.

    Raises:
        CurateError: the folder cannot be written; the earlier export stands.
    """
    with replacing(folder, _OWNED) as partial:
        return _Export(partial, config).write(sft, pairs, natural)


class _Written(NamedTuple):
    """What became of a dialogue that has a row."""

    cut: int
    role_added: bool
    is_head: bool


class _Export:
    """One export being written."""

    def __init__(self, folder: Path, config: ExportConfig) -> None:
        self.folder = folder
        self.config = config
        self.counts = ExportCounts()
        self.files: dict[Split, RowFile] = {}
        self.provenance: dict[Split, Provenance] = {
            split: Provenance(folder, split, SFT_SCHEMA if split == "sft" else PAIR_SCHEMA)
            for split in _COLUMNS
        }
        self.stored: StoredProvenance | None = None
        self.pair_ids: set[str] = set()

    def write(
        self,
        sft: Iterable[Dialogue] | StoredDialogues,
        pairs: Iterable[PreferencePair],
        natural: Iterable[PreferencePair],
    ) -> ExportCounts:
        with ExitStack() as open_files:
            self.refused = open_files.enter_context((self.folder / "refused.jsonl").open("wb"))
            for split, columns in _COLUMNS.items():
                file = RowFile(self.folder / f"{split}.jsonl", columns)
                self.files[split] = open_files.enter_context(file)
            if isinstance(sft, StoredDialogues):
                self._add_stored(sft)
            else:
                for dialogue in sft:
                    self._add_dialogue(dialogue)
            for pair in pairs:
                self._add_pair("dpo", pair)
            for pair in natural:
                self._add_pair("dpo_natural", pair)
        for split, file in self.files.items():
            self.counts.rows[split] = len(file)
            if "parquet" in self.config.formats:
                write_parquet(file, self.folder / f"{split}.parquet")
            if "jsonl" not in self.config.formats:
                file.path.unlink()
        self._write_provenance()
        return self.counts

    def _add_dialogue(self, dialogue: Dialogue) -> None:
        if (written := self._write_dialogue(dialogue)) is None:
            return
        self.provenance["sft"].append(
            {
                "dialogue_id": dialogue.id,
                "content_hash": dialogue.content_hash,
                "messages_cut": written.cut,
                "role_added": written.role_added,
                **lineage_columns(dialogue.lineage),
            },
            is_head=written.is_head,
        )

    def _add_stored(self, dialogues: StoredDialogues) -> None:
        known = self.stored = StoredProvenance(dialogues)
        for made in dialogues.rows(role_as_system=self.config.role_as_system):
            if isinstance(made, Copied):
                if self.files["sft"].extend(made.heads, made.messages):
                    known.note(made.at, is_head=True)
                if made.has_role:
                    self.counts.roles_added += len(made.messages)
                    known.note_roles(made.at, len(made.messages))
                continue
            at, dialogue = made
            if (written := self._write_dialogue(dialogue)) is None:
                known.refuse(at)
            else:
                known.note(at, **written._asdict())

    def _write_dialogue(self, dialogue: Dialogue) -> _Written | None:
        """Write the row of a dialogue; None where it is refused."""
        try:
            row, cut, role_added = sft_row(dialogue, self.config)
            is_head = self.files["sft"].append(row)
        except Refused as refusal:
            self._refuse("sft", refusal, dialogue_id=dialogue.id)
            return None
        self.counts.dialogues_cut += cut > 0
        self.counts.roles_added += role_added
        return _Written(cut, role_added, is_head)

    def _add_pair(self, split: Split, pair: PreferencePair) -> None:
        try:
            if pair.pair_id in self.pair_ids:
                raise Refused("duplicate_pair_id", "a pair of this id is in the export already")
            is_head = self.files[split].append(pair_row(pair, self.config))
        except Refused as refusal:
            self._refuse(split, refusal, dialogue_id=pair.dialogue_id, pair_id=pair.pair_id)
            return
        self.pair_ids.add(pair.pair_id)
        check = pair.check
        self.provenance[split].append(
            {
                "pair_id": pair.pair_id,
                "file": split,
                "dialogue_id": pair.dialogue_id,
                "content_hash": pair.content_hash,
                "source": pair.source,
                "basis": pair.basis,
                "turn": pair.turn,
                "margin": None if check is None else check.margin,
                "noise": None if check is None else check.noise,
                "token_ratio": None if check is None else check.token_ratio,
                "judge": pair.judge,
                "policy": pair.policy,
                "issue": pair.issue,
                **lineage_columns(pair.lineage),
            },
            is_head=is_head,
        )

    def _refuse(self, split: Split, refusal: Refused, **ids: str) -> None:
        self.counts.refused[split][refusal.reason] += 1
        record = {"file": split, **ids, "reason": refusal.reason, "detail": refusal.detail}
        self.refused.write(orjson.dumps(record) + b"\n")

    def _write_provenance(self) -> None:
        tables = {split: known.table() for split, known in self.provenance.items()}
        if self.stored is not None:
            tables["sft"] = self.stored.table()
        write_table(tables["sft"], self.folder / "sft_provenance.parquet")
        pairs = pl.concat([tables["dpo"], tables["dpo_natural"]])
        write_table(pairs, self.folder / "provenance.parquet")
        for known in self.provenance.values():
            known.close()
