"""TRL's conversational shapes: `sft.jsonl`, `dpo.jsonl`, `dpo_natural.jsonl` and the same as Parquet.

A file holds TRL's columns and no other; who, why and from where stands in sidecars, joined by row (and
for pairs by `pair_id`). Rows that cannot be carried go to `refused.jsonl` with a reason: TRL itself checks
little (identical sides pass, a prompt that ends with the assistant passes) and a row its chat template
cannot render ends the whole training run.
"""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

import orjson
import polars as pl

from curate.dialogue import Dialogue, Lineage, Message
from curate.export.config import ExportConfig
from curate.export.files import RowFile, replacing, write_parquet
from curate.export.wire import Refused, wire_message, wire_target, wire_tools
from curate.records import PreferencePair

Split = Literal["sft", "dpo", "dpo_natural"]

_CHUNK = 10_000  # rows of provenance held at once

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
_LINEAGE: Final[Mapping[str, pl.DataType | type[pl.DataType]]] = {
    "lineage_source": pl.String,
    "lineage_file": pl.String,
    "lineage_rows": pl.List(pl.Int64),
    "lineage_part": pl.String,
}
_PAIR_SCHEMA: Final = pl.Schema(
    {
        "pair_id": pl.String,
        "file": pl.String,
        "row": pl.Int64,
        "dialogue_id": pl.String,
        "content_hash": pl.String,
        "source": pl.String,
        "basis": pl.String,
        "turn": pl.Int64,
        "margin": pl.Float64,
        "noise": pl.Float64,
        "token_ratio": pl.Float64,
        "judge": pl.String,
        "policy": pl.String,
        "issue": pl.String,
        **_LINEAGE,
    }
)
_SFT_SCHEMA: Final = pl.Schema(
    {
        "row": pl.Int64,
        "dialogue_id": pl.String,
        "content_hash": pl.String,
        "messages_cut": pl.Int64,
        "role_added": pl.Boolean,
        **_LINEAGE,
    }
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
    sft: Iterable[Dialogue],
    pairs: Iterable[PreferencePair],
    natural: Iterable[PreferencePair],
    config: ExportConfig,
) -> ExportCounts:
    """Write TRL's files into a folder, replacing those of an earlier export.

    Rows keep the order they come in, but for the few that go to the head of a file (see
    `export.files`). The same input gives the same bytes. A file without rows is written all the same.

    Args:
        folder: for instance `<run>/export/trl`.
        sft: dialogues to train on. Messages after the last assistant message are cut.
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


class _Export:
    """One export being written."""

    def __init__(self, folder: Path, config: ExportConfig) -> None:
        self.folder = folder
        self.config = config
        self.counts = ExportCounts()
        self.files: dict[Split, RowFile] = {}
        self.provenance: dict[Split, _Provenance] = {
            split: _Provenance(folder, split, _SFT_SCHEMA if split == "sft" else _PAIR_SCHEMA)
            for split in _COLUMNS
        }
        self.pair_ids: set[str] = set()

    def write(
        self,
        sft: Iterable[Dialogue],
        pairs: Iterable[PreferencePair],
        natural: Iterable[PreferencePair],
    ) -> ExportCounts:
        with ExitStack() as open_files:
            self.refused = open_files.enter_context((self.folder / "refused.jsonl").open("wb"))
            for split, columns in _COLUMNS.items():
                file = RowFile(self.folder / f"{split}.jsonl", columns)
                self.files[split] = open_files.enter_context(file)
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
        try:
            row, cut, role_added = sft_row(dialogue, self.config)
            is_head = self.files["sft"].append(row)
        except Refused as refusal:
            self._refuse("sft", refusal, dialogue_id=dialogue.id)
            return
        self.counts.dialogues_cut += cut > 0
        self.counts.roles_added += role_added
        self.provenance["sft"].append(
            {
                "dialogue_id": dialogue.id,
                "content_hash": dialogue.content_hash,
                "messages_cut": cut,
                "role_added": role_added,
                **_lineage(dialogue.lineage),
            },
            is_head=is_head,
        )

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
                **_lineage(pair.lineage),
            },
            is_head=is_head,
        )

    def _refuse(self, split: Split, refusal: Refused, **ids: str) -> None:
        self.counts.refused[split][refusal.reason] += 1
        record = {"file": split, **ids, "reason": refusal.reason, "detail": refusal.detail}
        self.refused.write(orjson.dumps(record) + b"\n")

    def _write_provenance(self) -> None:
        tables = {split: known.table() for split, known in self.provenance.items()}
        tables["sft"].sink_parquet(self.folder / "sft_provenance.parquet")
        pairs = pl.concat([tables["dpo"], tables["dpo_natural"]])
        pairs.sink_parquet(self.folder / "provenance.parquet")
        for known in self.provenance.values():
            known.close()


class _Provenance:
    """Who, why and from where of one file's rows: written as it comes, given back in the file's order."""

    def __init__(self, folder: Path, split: Split, schema: pl.Schema) -> None:
        self._parts = folder / f"{split}.provenance"
        self._parts.mkdir()
        self._schema = schema
        self._held: dict[str, list[dict[str, Any]]] = {"head": [], "tail": []}
        self._written: dict[str, int] = {"head": 0, "tail": 0}

    def append(self, row: dict[str, Any], *, is_head: bool) -> None:
        place = "head" if is_head else "tail"
        held = self._held[place]
        held.append(row)
        if len(held) >= _CHUNK:
            self._settle(place)

    def _settle(self, place: str) -> None:
        frame = pl.DataFrame(self._held[place], schema=self._schema)
        frame.write_parquet(self._parts / f"{place}-{self._written[place]:06d}.parquet")
        self._held[place] = []
        self._written[place] += 1

    def table(self) -> pl.LazyFrame:
        """All rows as they stand in the file, numbered; what is on disk stays there until it is written."""
        for place in self._held:
            self._settle(place)
        parts = [pl.scan_parquet(part) for part in sorted(self._parts.iterdir())]
        whole = pl.concat(parts).drop("row").with_row_index("row")
        return whole.with_columns(pl.col("row").cast(pl.Int64)).select(self._schema.names())

    def close(self) -> None:
        """Remove the parts."""
        shutil.rmtree(self._parts)


def sft_row(dialogue: Dialogue, config: ExportConfig) -> tuple[dict[str, Any], int, bool]:
    """A dialogue as `{"messages", "tools"?}`.

    Returns:
        The row, how many messages were cut from the dialogue's end, and whether its role definition
        was added as a system message.

    Raises:
        Refused: `no_assistant`, `no_user`, or as `wire_target` and `wire_tools`.
    """
    last = _last_assistant(dialogue.messages)
    if last is None:
        raise Refused("no_assistant", "the dialogue has no assistant message to train on")
    kept = dialogue.messages[: last + 1]
    _require_user(kept)
    messages = [
        (wire_target if message.role == "assistant" else wire_message)(
            message, keep_reasoning=config.keep_reasoning
        )
        for message in kept
    ]
    role = dialogue.role_definition
    adds_role = config.role_as_system and bool(role) and kept[0].role != "system"
    if adds_role:
        messages.insert(0, {"role": "system", "content": role})
    return (
        _with_tools({"messages": messages}, dialogue.tools),
        len(dialogue.messages) - len(kept),
        adds_role,
    )


def pair_row(pair: PreferencePair, config: ExportConfig) -> dict[str, Any]:
    """A pair as `{"prompt", "chosen", "rejected", "tools"?}`: one assistant message a side.

    The prompt is verbatim what the policy was shown.

    Raises:
        Refused: `not_verified`, `no_chosen`, `side_not_assistant`, `prompt_not_open`, `no_user`,
            `identical_sides`, or as `wire_target` and `wire_tools`.
    """
    if pair.refusal is not None:
        raise Refused("not_verified", f"the pair was refused before: {pair.refusal}")
    if pair.chosen is None:
        raise Refused("no_chosen", "the pair has no chosen side")
    for name, side in (("chosen", pair.chosen), ("rejected", pair.rejected)):
        if side.role != "assistant":
            raise Refused("side_not_assistant", f"the {name} side is a message of '{side.role}'")
    if not pair.prompt or pair.prompt[-1].role not in ("user", "tool"):
        ends = f"with '{pair.prompt[-1].role}'" if pair.prompt else "before it begins"
        raise Refused("prompt_not_open", f"the prompt ends {ends}, not with the user or a tool")
    _require_user(pair.prompt)
    keep = config.keep_reasoning
    chosen = wire_target(pair.chosen, keep_reasoning=keep)
    rejected = wire_target(pair.rejected, keep_reasoning=keep)
    if _said(chosen) == _said(rejected):
        raise Refused("identical_sides", "as exported, chosen and rejected say the same")
    row = {
        "prompt": [wire_message(message, keep_reasoning=keep) for message in pair.prompt],
        "chosen": [chosen],
        "rejected": [rejected],
    }
    return _with_tools(row, pair.tools)


def _with_tools(row: dict[str, Any], tools: tuple[dict[str, Any], ...]) -> dict[str, Any]:
    text = wire_tools(tools)
    return row if text is None else {**row, "tools": text}


def _said(side: Mapping[str, Any]) -> tuple[object, ...]:
    """What a template can show of a side; call ids are drawn by servers and mean nothing."""
    calls = [call["function"] for call in side.get("tool_calls", ())]
    return (side["content"], side.get("reasoning_content"), calls)


def _last_assistant(messages: tuple[Message, ...]) -> int | None:
    indices = [index for index, message in enumerate(messages) if message.role == "assistant"]
    return indices[-1] if indices else None


def _require_user(messages: tuple[Message, ...]) -> None:
    if all(message.role != "user" for message in messages):
        raise Refused("no_user", "there is no user message, and chat templates ask for one")


def _lineage(lineage: Lineage | None) -> dict[str, Any]:
    if lineage is None:
        return dict.fromkeys(_LINEAGE)
    return {
        "lineage_source": lineage.source,
        "lineage_file": lineage.file,
        "lineage_rows": list(lineage.rows),
        "lineage_part": lineage.part,
    }
