"""verl: Parquet only. SFT rows of `messages`; reward-model rows of three texts.

verl reads Parquet through pandas, where messages and tools are structs: every tool would be given the keys of
every other, filled with null, and arguments could be no objects. So rows with tools are refused. Its SFT reader
trains on every assistant message of a row and knows no mask, so mixed dialogues are refused as well. Its
reward-model reader applies no chat template: prompt and answer are the texts that are trained on, in the form
of its own example, `\\n\\nHuman: …\\n\\nAssistant:`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from curate.export.carrying import Wire, bare, refuse_reasoning, refuse_tools
from curate.export.config import Format
from curate.export.layout import Column, Row, TrainingFile
from curate.export.wire import Refused

FORMATS: Final[Sequence[Format]] = ("parquet",)
_NO_TOOLS = "verl's Parquet would fill each tool and call with the keys of all others"
_NO_THINKING = "verl's Parquet would give every message that key"
_SPEAKERS: Final = {"system": "System", "user": "Human", "assistant": "Assistant"}
_MARKERS: Final = tuple(f"\n\n{speaker}:" for speaker in _SPEAKERS.values())


def _sft(row: Row) -> Row:
    refuse_tools(row, _NO_TOOLS)
    refuse_reasoning(row, _NO_THINKING)
    return {"messages": [bare(message) for message in row["messages"]]}


def _masked(_: Row) -> Row:
    raise Refused("mask_not_carried", "verl trains on every assistant message of a row")


def _texts(row: Row) -> Row:
    refuse_tools(row, "verl's reward model reads plain texts")
    refuse_reasoning(row, "verl's reward model reads plain texts")
    return {
        "prompt": "".join(map(_line, row["prompt"])) + "\n\nAssistant: ",
        "chosen": _unmarked(row["chosen"][0]["content"]),
        "rejected": _unmarked(row["rejected"][0]["content"]),
    }


def _line(message: Wire) -> str:
    return f"\n\n{_SPEAKERS[message['role']]}: {_unmarked(message['content'])}"


def _unmarked(text: str) -> str:
    """The text, unless it would be read as several messages."""
    for marker in _MARKERS:
        if marker in text:
            raise Refused("marker_in_text", f"a message holds {marker!r}, which opens a message")
    return text


_SFT: Final[Mapping[str, Column]] = {"messages": "messages"}
_TEXTS: Final[Mapping[str, Column]] = {"prompt": "text", "chosen": "text", "rejected": "text"}

FILES: Final = (
    TrainingFile("sft", "sft", "dialogues", _SFT, _sft),
    TrainingFile("sft_salvaged", "sft", "masked", _SFT, _masked),
    TrainingFile("rm", "reward", "pairs", _TEXTS, _texts),
    TrainingFile("rm_natural", "reward", "natural", _TEXTS, _texts),
)


def side_files(_: Mapping[str, Sequence[str]]) -> Mapping[str, bytes]:
    """None; verl's config names the files."""
    return {}
