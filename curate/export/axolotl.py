"""axolotl: SFT of type `chat_template`, with masks by message, and DPO of type `chat_template.default`.

SFT rows are read message by message: tool calls and tools are carried, and `message_field_training: train` makes
axolotl train a message or leave it out. The DPO reader takes role and content of each message and drops the
rest, so that a pair with tools would be trained on without them; such pairs are refused. A column it does not
know breaks it, since columns it leaves in place end up in TRL's trainer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from curate.export.carrying import as_it_is, bare, refuse_reasoning, refuse_tools
from curate.export.config import Format
from curate.export.layout import Column, Row, TrainingFile

FORMATS: Final[Sequence[Format]] = ("jsonl", "parquet")


def _pair(row: Row) -> Row:
    refuse_tools(row, "axolotl's DPO reads role and content only")
    refuse_reasoning(row, "axolotl's DPO reads role and content only")
    return {
        "messages": [bare(message) for message in row["prompt"]],
        "chosen": bare(row["chosen"][0]),
        "rejected": bare(row["rejected"][0]),
    }


_SFT: Final[Mapping[str, Column]] = {"messages": "messages", "tools": "optional"}
_PAIR: Final[Mapping[str, Column]] = {
    "messages": "messages",
    "chosen": "message",
    "rejected": "message",
}

FILES: Final = (
    TrainingFile("sft", "sft", "dialogues", _SFT, as_it_is),
    TrainingFile("sft_salvaged", "sft", "masked", _SFT, as_it_is),
    TrainingFile("dpo", "dpo", "pairs", _PAIR, _pair),
    TrainingFile("dpo_natural", "dpo", "natural", _PAIR, _pair),
)


def side_files(_: Mapping[str, Sequence[str]]) -> Mapping[str, bytes]:
    """None; axolotl's config names the files."""
    return {}
