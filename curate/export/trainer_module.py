"""What a trainer's module says: its files, what each is made of, and how a row of it looks.

Dialogues and pairs become rows of messages once (`export.message_rows`), in the form chat templates read. A trainer's
module turns such a row into its own and refuses what the trainer cannot carry; all else (files, order, shards,
sidecars, counts) is the same for every trainer and stands in `export.streams` and `export.writing`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from curate.export.trainer_facts import TrainerFacts

Row = dict[str, Any]

Kind = Literal["sft", "dpo", "reward", "kto", "judgments"]
"""What rows are for; `judgments` are no trainer's and go into one file beside all."""

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
"""What rows are made of, and how they come to a trainer's module:

- `dialogues`: `{"messages", "tools"?}`, of the SFT set;
- `masked`: the same of a mixed dialogue, each message with `train`, up to the last that is trained on;
- `masked_turns`: `{"prompt", "completion", "tools"?}`, one row for each message of a mixed dialogue to train on;
- `pairs`, `natural`: `{"prompt", "chosen", "rejected", "tools"?}`, judge-made and held by the data;
- `margins`: pairs of both sorts whose margin was measured, with `margin`;
- `pair_labels`, `natural_labels`, `turn_labels`: `{"prompt", "completion", "label", "tools"?}`, from both
  sides of pairs, or from judged turns.

`completion`, `chosen` and `rejected` are lists of one assistant message; `tools` is the JSON text of a list."""

Column = Literal["messages", "message", "text", "optional", "real", "truth"]
"""What a column holds: a list of messages, one message, or a plain value. `optional` is text that rows may lack."""


@dataclass(frozen=True, slots=True)
class TrainingFile:
    """One file of a trainer.

    Attributes:
        name: of the file, without suffix; it also names the file in sidecars and counts.
        kind: what it trains; the recipe's `export.kinds` chooses.
        stream: what its rows are made of.
        columns: what each column holds, in order. An optional one that no row has is left out of the Parquet file.
        make: the trainer's row, from a row of the stream, which it may take apart; raises Refused.
    """

    name: str
    kind: Kind
    stream: Stream
    columns: Mapping[str, Column]
    make: Callable[[Row], Row]


@dataclass(frozen=True, slots=True)
class TrainerModule:
    """What each trainer's module holds.

    Attributes:
        facts: what it does with the rows it is given.
        files: its files, in the order they are listed.
        side_files: what it wants beside them, contents by file name: from the names that each training file with rows
            was written under, one a shard, in the format the trainer prefers.
    """

    facts: TrainerFacts
    files: Sequence[TrainingFile]
    side_files: Callable[[Mapping[str, Sequence[str]]], Mapping[str, bytes]] = lambda _: {}
