"""Form of a trainer's module: its files, the stream each is made of, and how its rows look.

Dialogues and pairs become rows of messages once (`export.message_rows`), in the form chat templates read. A trainer's
module turns such a row into its own form and refuses what the trainer's format cannot hold; everything else (files,
order, shards, sidecars, counts) is the same for every trainer and is in `export.streams` and `export.writing`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from curate.export.trainer_facts import TrainerFacts

TrainerRow = dict[str, Any]

Kind = Literal["sft", "dpo", "reward", "kto", "judgments"]
"""Purpose of rows; `judgments` belong to no trainer and go into one file of their own."""

Stream = Literal[
    "dialogues",
    "masked",
    "masked_turns",
    "pairs",
    "natural",
    "margins",
    "pair_labels",
    "natural_labels",
    "turn_labels",
]
"""Sources of rows, and the form in which a trainer's module gets them:

- `dialogues`: `{"messages", "tools"?}`, of the SFT set;
- `masked`: the same of a mixed dialogue, each message with `train`, up to the last that is trained on;
- `masked_turns`: `{"prompt", "completion", "tools"?}`, one row for each message of a mixed dialogue to train on;
- `pairs`, `natural`: `{"prompt", "chosen", "rejected", "tools"?}`, judge-made and held by the data;
- `margins`: pairs of both sorts whose margin was measured, with `margin`;
- `pair_labels`, `natural_labels`, `turn_labels`: `{"prompt", "completion", "label", "tools"?}`, from both
  sides of pairs, or from judged turns.

`completion`, `chosen` and `rejected` are lists of one assistant message; `tools` is the JSON text of a list."""

ColumnType = Literal["messages", "message", "text", "optional", "real", "truth"]
"""Type of a column: a list of messages, one message, or a plain value. `optional` is text that rows may lack."""

Columns = Mapping[str, ColumnType]


@dataclass(frozen=True, slots=True)
class TrainingFile:
    """One file of a trainer.

    Attributes:
        name: name of the file without suffix, also in sidecars and counts.
        kind: purpose of its rows; the recipe's `export.kinds` selects by it.
        stream: source of its rows.
        columns: type of each column, in order. An optional column that no row has is left out of the Parquet file.
        make: returns the trainer's row for a row of the stream, which it may modify; raises Refused.
    """

    name: str
    kind: Kind
    stream: Stream
    columns: Columns
    make: Callable[[TrainerRow], TrainerRow]


@dataclass(frozen=True, slots=True)
class TrainerModule:
    """Contents of a trainer's module.

    Attributes:
        facts: what the trainer does with rows.
        files: its files, in the order they are listed.
        side_files: returns the contents of further files by name, from the names under which each training file with
            rows was written, one a shard, in the trainer's preferred format.
    """

    facts: TrainerFacts
    files: Sequence[TrainingFile]
    side_files: Callable[[Mapping[str, Sequence[str]]], Mapping[str, bytes]] = lambda _: {}
