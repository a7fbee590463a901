"""OpenAI's fine-tuning files: supervised, with weights by message, and preferences. JSON Lines only.

Arguments are JSON text there and every call has an id that its result names; ids that are missing are numbered.
Thinking has no place, and `name` is left out: what it may hold is restricted, and it tells a model little.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any, Final

import orjson

from curate.export.template_messages import Refused, Wire, bare, dump, refuse_reasoning
from curate.export.trainer_facts import Fate, Layout, StageFacts, TrainerFacts, pairs_in
from curate.export.trainer_module import Columns, TrainerRow, TrainingFile

_NO_THINKING = "OpenAI's files have no place for it"
_REJECTS = "reject the file"
_ONE = Fate("stops", f"{_REJECTS}: an output is one assistant message")
_LIST = Fate("stops", f"{_REJECTS}: it expects a list of messages")
_FATES: Final = {
    "unknown_columns": Fate("stops", f"{_REJECTS}: it finds none of the keys it reads"),
    "extra_columns": Fate("stops", f"{_REJECTS}: it knows no such keys"),
    "missing_column": _LIST,
    "mixed_shapes": _LIST,
    "not_messages": _LIST,
    "no_messages": _LIST,
    "unknown_role": Fate("stops", f"{_REJECTS}: it knows no such role"),
    "null_content": Fate("stops", f"{_REJECTS}: a message has neither text nor a call"),
    "content_not_text": None,
    "call_not_json": Fate("stops", f"{_REJECTS}: a call's arguments must be JSON text"),
    "tools_not_json": Fate("stops", f"{_REJECTS}: tools must be a list, not text"),
    "no_assistant": Fate("stops", f"{_REJECTS}: an example needs an assistant message"),
    "empty_side": Fate("stops", f"{_REJECTS}: an assistant message has neither text nor a call"),
    "several_messages": _ONE,
    "side_not_assistant": _ONE,
    "ends_open": None,
    "prompt_not_open": Fate("corrupted", "compare second answers in a row"),
}
_MESSAGE_KEYS: Final = frozenset(
    ["role", "content", "name", "weight", "tool_calls", "tool_call_id", "function_call", "refusal"]
)


def _stage(layout: Layout, marker_columns: Sequence[str], *more_columns: str) -> StageFacts:
    return StageFacts(
        layouts=(layout,),
        marker_columns=tuple(frozenset({name}) for name in marker_columns),
        fates=_FATES,
        tools="list",
        arguments="text",
        read_columns=frozenset({*layout.columns, *more_columns}),
        message_keys=_MESSAGE_KEYS,
        renders="own template",
    )


FACTS: Final = TrainerFacts(
    package=None,
    release="as documented",
    setting="the model's training context",
    formats=("jsonl",),
    stages={
        "dpo": _stage(
            pairs_in("input", "preferred_output", "non_preferred_output"),
            ("input", "preferred_output"),
        ),
        "sft": _stage(Layout(("messages",)), (), "tools", "parallel_tool_calls", "functions"),
    },
    fewest_rows=10,
    suffixes=(".jsonl",),
)


def _sft(row: TrainerRow) -> TrainerRow:
    refuse_reasoning(row, _NO_THINKING)
    return {"messages": _Ids().messages(row["messages"]), **_tools(row)}


def _pair(row: TrainerRow) -> TrainerRow:
    refuse_reasoning(row, _NO_THINKING)
    ids = _Ids()
    return {
        "input": {"messages": ids.messages(row["prompt"]), **_tools(row)},
        "preferred_output": ids.messages(row["chosen"]),
        "non_preferred_output": ids.messages(row["rejected"]),
    }


def _tools(row: TrainerRow) -> TrainerRow:
    return {"tools": orjson.loads(row["tools"])} if "tools" in row else {}


class _Ids:
    """The ids of one dialogue's calls: each result names a call that is still open."""

    def __init__(self) -> None:
        self._open: deque[str] = deque()
        self._calls = 0

    def messages(self, messages: Iterable[Wire]) -> list[dict[str, Any]]:
        return [self._message(message) for message in messages]

    def _message(self, message: Wire) -> dict[str, Any]:
        wire = bare(message)
        if "tool_calls" in message:
            wire["tool_calls"] = [self._call(call) for call in message["tool_calls"]]
        if message["role"] == "tool":
            wire["tool_call_id"] = self._open_call(message.get("tool_call_id"))
        # only messages of the assistant have a weight
        if "train" in message and message["role"] == "assistant":
            wire["weight"] = int(message["train"])
        return wire

    def _call(self, call: Wire) -> dict[str, Any]:
        self._calls += 1
        identifier = call.get("id") or f"call_{self._calls}"
        self._open.append(identifier)
        function = call["function"]
        arguments = dump(function["arguments"]).decode()
        return {
            "id": identifier,
            "type": "function",
            "function": {"name": function["name"], "arguments": arguments},
        }

    def _open_call(self, call_id: str | None) -> str:
        """Return the id of the call that a result answers, and close it: the one it names, else the oldest open one."""
        identifier = call_id or (self._open[0] if self._open else None)
        if identifier is None or identifier not in self._open:
            raise Refused(
                "result_without_call", f"a tool's message answers no open call (id {call_id!r})"
            )
        self._open.remove(identifier)
        return identifier


_NO_COLUMNS: Final[Columns] = {}
"""Only Parquet files and `datasets` need types of columns, and OpenAI reads neither."""

FILES: Final = (
    TrainingFile("sft", "sft", "dialogues", _NO_COLUMNS, _sft),
    TrainingFile("sft_salvaged", "sft", "masked", _NO_COLUMNS, _sft),
    TrainingFile("dpo", "dpo", "pairs", _NO_COLUMNS, _pair),
    TrainingFile("dpo_natural", "dpo", "natural", _NO_COLUMNS, _pair),
)
