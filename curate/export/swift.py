"""ms-swift: `messages` with its roles for tools, `rejected_messages` for pairs, `loss` by message.

A call is a message of `tool_call` that holds name and arguments as JSON text, a result one of `tool_response`.
The rejected side is a whole conversation and not `rejected_response`, since that replaces all that follows the
last user message, calls and results included. What a file's row is missing comes as null, and ms-swift drops
rows where it does not expect one; so every row of a pair file has both conversations. Left to itself ms-swift also
trains on calls that stand in the prompt after the last user message, or on every answer in it; so each message
of a pair says whether it is trained on.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from curate.export.carrying import Wire, thinking_and_text
from curate.export.config import Format
from curate.export.layout import Column, Row, TrainingFile
from curate.export.wire import dump

FORMATS: Final[Sequence[Format]] = ("jsonl", "parquet")


def _sft(row: Row) -> Row:
    messages = [made for message in row["messages"] for made in _swift(message)]
    return _with_tools({"messages": messages}, row)


def _pair(row: Row) -> Row:
    prompt = [made for message in row["prompt"] for made in _swift({**message, "train": False})]
    chosen, rejected = ({**row[side][0], "train": True} for side in ("chosen", "rejected"))
    made = {
        "messages": [*prompt, *_swift(chosen)],
        "rejected_messages": [*prompt, *_swift(rejected)],
    }
    made = _with_tools(made, row)
    if "tools" in row:
        made["rejected_tools"] = row["tools"]
    return made


def _reward(row: Row) -> Row:
    return {**_pair(row), "margin": row["margin"]}


def _with_tools(made: Row, row: Row) -> Row:
    return {**made, "tools": row["tools"]} if "tools" in row else made


def _swift(message: Wire) -> Iterator[dict[str, Any]]:
    """A message in ms-swift's roles: one for its text, one for each call."""
    loss = {"loss": message["train"]} if "train" in message else {}
    calls = message.get("tool_calls", ())
    role = "tool_response" if message["role"] == "tool" else message["role"]
    text = thinking_and_text(message)
    if text or not calls:
        yield {"role": role, "content": text, **loss}
    for call in calls:
        function = {key: call["function"][key] for key in ("name", "arguments")}
        yield {"role": "tool_call", "content": dump(function).decode(), **loss}


_SFT: Final[Mapping[str, Column]] = {"messages": "messages", "tools": "optional"}
_PAIR: Final[Mapping[str, Column]] = {
    "messages": "messages",
    "rejected_messages": "messages",
    "tools": "optional",
    "rejected_tools": "optional",
}

FILES: Final = (
    TrainingFile("sft", "sft", "dialogues", _SFT, _sft),
    TrainingFile("sft_salvaged", "sft", "masked", _SFT, _sft),
    TrainingFile("dpo", "dpo", "pairs", _PAIR, _pair),
    TrainingFile("dpo_natural", "dpo", "natural", _PAIR, _pair),
    TrainingFile("reward", "reward", "margins", {**_PAIR, "margin": "real"}, _reward),
)


def side_files(_: Mapping[str, Sequence[str]]) -> Mapping[str, bytes]:
    """None; ms-swift's command line names the files."""
    return {}
