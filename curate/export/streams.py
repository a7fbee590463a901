"""Filling a trainer's files: each item of a stream becomes a row of each of its files, or is refused.

Each function reads one stream once, in order. An item ends up among the rows of a file or among its refusals, never in
both.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import IO, Any

import orjson

from curate.dialogue import Dialogue
from curate.export.config import ExportConfig
from curate.export.counts import ExportCounts
from curate.export.good_turns import LabelledTurns, MixedDialogue
from curate.export.labels import LabelSpool
from curate.export.message_rows import labelled_rows, masked_row, pair_row, sft_row, turn_row
from curate.export.provenance import (
    SIDECAR_OF,
    SIDECARS,
    Provenance,
    of_dialogue,
    of_pair,
)
from curate.export.row_files import RowFile
from curate.export.template_messages import Refused
from curate.export.trainer_module import TrainerRow, TrainingFile
from curate.records import PreferencePair

_TURNED = Refused("reviewed", "people call the rejected side better")


class OpenFile:
    """A training file being written.

    Args:
        folder: folder of the file.
        file: description of the file.
        counts: counts that refusals are added to.
        refused: the open `refused.jsonl`.
        pair_ids: ids of the pairs in files of its kind, which share the set.
    """

    def __init__(
        self,
        folder: Path,
        file: TrainingFile,
        counts: ExportCounts,
        refused: IO[bytes],
        pair_ids: set[str],
    ) -> None:
        self.file = file
        self.name = file.name
        self.counts = counts
        self.pair_ids = pair_ids
        self.rows = RowFile(folder / f"{file.name}.rows", file.columns)
        self.sidecar = SIDECAR_OF[file.stream]
        self.provenance = Provenance(folder / f"{file.name}.provenance", SIDECARS[self.sidecar])
        self._refused = refused

    def put(self, row: TrainerRow) -> bool:
        """Write a row of the stream in the trainer's form; return True if it went to the head of the file.

        Raises:
            Refused: the trainer's format cannot hold it; then nothing is written.
        """
        return self.rows.append(self.file.make(row))

    def offer(
        self, make: Callable[[], TrainerRow], provenance: Mapping[str, Any], ids: Mapping[str, Any]
    ) -> bool:
        """Write the row that `make` returns and its provenance, or refuse it; return True if it was written."""
        try:
            is_head = self.put(make())
        except Refused as refusal:
            self.refuse(refusal, ids)
            return False
        self.provenance.append({**provenance, "file": self.name}, is_head=is_head)
        return True

    def refuse(self, refusal: Refused, ids: Mapping[str, Any]) -> None:
        """Count a refusal and write it to `refused.jsonl` with the ids of its row."""
        self.counts.refused[self.name][refusal.reason] += 1
        record = {"file": self.name, **ids, "reason": refusal.reason, "detail": refusal.detail}
        self._refused.write(orjson.dumps(record) + b"\n")


# -- dialogues of the SFT set


def add_dialogues(file: OpenFile, dialogues: Iterable[Dialogue], config: ExportConfig) -> None:
    """Add the SFT set."""
    for dialogue in dialogues:
        try:
            row, cut_off, role_added = sft_row(dialogue, config)
            is_head = file.put(row)
        except Refused as refusal:
            file.refuse(refusal, {"dialogue_id": dialogue.id})
            continue
        file.counts.dialogues_cut += cut_off > 0
        file.counts.roles_added += role_added
        provenance = {"messages_cut": cut_off, "role_added": role_added}
        file.provenance.append(of_dialogue(dialogue) | provenance, is_head=is_head)


# -- turns


def add_mixed(
    files: Sequence[OpenFile],
    mixed: Iterable[MixedDialogue],
    config: ExportConfig,
    counts: ExportCounts,
) -> None:
    """Add the good turns of mixed dialogues: one masked row per dialogue, or one row per message."""
    least = config.salvage.min_turns if config.salvage else 1
    for item in mixed:
        dialogue, trained = item.dialogue, item.trained
        ids = {"dialogue_id": dialogue.id}
        if len(item.turns) < least or not trained:
            few = f"{len(item.turns)} good turns, where at least {least} are required"
            for file in files:
                file.refuse(Refused("too_few_good_turns", few), ids)
            continue
        counts.salvaged_dialogues += 1
        counts.salvaged_turns += len(item.turns)
        for file in files:
            if file.file.stream == "masked":
                make = partial(masked_row, dialogue, trained.keys(), config)
                file.offer(make, _of_turns(dialogue, item.turns, trained), ids)
                continue
            for index, turn in trained.items():
                _add_turn(file, dialogue, index, turn, config)


def add_labelled(file: OpenFile, labelled: Iterable[LabelledTurns], config: ExportConfig) -> None:
    """Add judged turns with their labels."""
    for item in labelled:
        turns = {turn.number: turn for turn in item.dialogue.turns}
        for number, label in item.labels.items():
            index = turns[number].last_assistant_text
            if index is not None:
                _add_turn(file, item.dialogue, index, number, config, label=label)
                continue
            detail = "the turn has no text of the assistant, only calls"
            ids = {"dialogue_id": item.dialogue.id, "turn": number}
            file.refuse(Refused("no_text_in_turn", detail), ids)


def _add_turn(
    file: OpenFile, dialogue: Dialogue, index: int, turn: int, config: ExportConfig, **label: bool
) -> None:
    file.offer(
        lambda: turn_row(dialogue, index, config) | label,
        _of_turns(dialogue, [turn], [index]) | label,
        {"dialogue_id": dialogue.id, "turn": turn, "message": index},
    )


def _of_turns(dialogue: Dialogue, turns: Iterable[int], messages: Iterable[int]) -> dict[str, Any]:
    turn_columns = {"turns": list(turns), "messages": list(messages), "label": None}
    return of_dialogue(dialogue) | turn_columns


# -- pairs


def add_pairs(
    files: Sequence[OpenFile],
    margins: Sequence[OpenFile],
    labels: Sequence[OpenFile],
    pairs: Iterable[PreferencePair],
    config: ExportConfig,
    turned: Collection[str] = (),
) -> None:
    """Add pairs.

    Args:
        files: files that get each pair.
        margins: files that get the pairs with a measured margin above 0, with the margin.
        labels: files that get both sides of each pair, labelled, once all pairs are read.
        pairs: the pairs.
        config: options.
        turned: ids of pairs whose rejected side people call better; they are refused.
    """
    with ExitStack() as opened:
        spools = [
            (file, opened.enter_context(LabelSpool(file.rows.path.with_suffix(".spool"))))
            for file in labels
        ]
        for pair in pairs:
            if pair.pair_id in turned:
                ids = {"dialogue_id": pair.dialogue_id, "pair_id": pair.pair_id}
                for file in files:
                    file.refuse(_TURNED, ids)
                for file in labels:
                    for side in ("chosen", "rejected"):
                        file.refuse(_TURNED, {**ids, "side": side})
                continue
            for file in files:
                _add_pair(file, pair, config)
            # A judge that prefers the chosen side may score it no higher, and where the data decided there is no
            # measured margin: a reward model should not learn such a distance.
            check = pair.check
            if check is not None and (check.margin or 0.0) > 0 and check.decided_by != "data":
                for file in margins:
                    _add_pair(file, pair, config, margin=check.margin or 0.0)
            for file, spool in spools:
                _spool(file, spool, pair, config)
        for file, spool in spools:
            for row, provenance, refusal in spool.rows():
                ids = {key: provenance[key] for key in ("dialogue_id", "pair_id", "side")}
                if refusal is not None:
                    file.refuse(refusal, ids)
                else:
                    file.offer(partial(dict, row), provenance, ids)


def _add_pair(file: OpenFile, pair: PreferencePair, config: ExportConfig, **further: float) -> None:
    ids = {"dialogue_id": pair.dialogue_id, "pair_id": pair.pair_id}
    if file.offer(lambda: _new_row(file, pair, config) | further, of_pair(pair), ids):
        file.pair_ids.add(pair.pair_id)


def _spool(file: OpenFile, spool: LabelSpool, pair: PreferencePair, config: ExportConfig) -> None:
    try:
        chosen, rejected = labelled_rows(_new_row(file, pair, config))
        spool.add(chosen, rejected, of_pair(pair))
    except Refused as refusal:
        for side in ("chosen", "rejected"):
            ids = {"dialogue_id": pair.dialogue_id, "pair_id": pair.pair_id, "side": side}
            file.refuse(refusal, ids)
        return
    file.pair_ids.add(pair.pair_id)


def _new_row(file: OpenFile, pair: PreferencePair, config: ExportConfig) -> TrainerRow:
    if pair.pair_id in file.pair_ids:
        raise Refused("duplicate_pair_id", "the export already has a pair of this id")
    return pair_row(pair, config)
