"""OpenRLHF: lists of messages under `prompt`, `chosen` and `rejected`, with a margin for reward models.

It renders messages by the tokenizer's chat template and never passes tools, so rows with tools are refused. SFT
rows are whole conversations; with `--data.multiturn` every assistant message is trained on, without it the last
one only, which is what rows made of mixed dialogues want.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from curate.export.carrying import refuse_tools
from curate.export.config import Format
from curate.export.layout import Column, Row, TrainingFile

FORMATS: Final[Sequence[Format]] = ("jsonl", "parquet")
_NO_TOOLS = "OpenRLHF passes no tools to the chat template"


def _without_tools(row: Row) -> Row:
    refuse_tools(row, _NO_TOOLS)
    return row


def _turn(row: Row) -> Row:
    refuse_tools(row, _NO_TOOLS)
    return {"messages": row["prompt"] + row["completion"]}


_SFT: Final[Mapping[str, Column]] = {"messages": "messages"}
_PAIR: Final[Mapping[str, Column]] = {
    "prompt": "messages",
    "chosen": "messages",
    "rejected": "messages",
}

FILES: Final = (
    TrainingFile("sft", "sft", "dialogues", _SFT, _without_tools),
    TrainingFile("sft_salvaged", "sft", "masked_turns", _SFT, _turn),
    TrainingFile("dpo", "dpo", "pairs", _PAIR, _without_tools),
    TrainingFile("dpo_natural", "dpo", "natural", _PAIR, _without_tools),
    TrainingFile("reward", "reward", "margins", {**_PAIR, "margin": "real"}, _without_tools),
)


def side_files(_: Mapping[str, Sequence[str]]) -> Mapping[str, bytes]:
    """None; OpenRLHF's command line names the files."""
    return {}
