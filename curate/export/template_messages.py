"""Messages and tool definitions in the form chat templates read.

Two facts determine the form (docs/exporting.md has the figures). A tool call's arguments are an object, because most
templates loop over it and the others would encode a string twice. A key that a message does not use is absent, never
null, because many templates test for the key and not for its value. A row that cannot take this form is refused with a
reason, so that one bad row cannot break a file.

The end of the module holds checks that several trainers share.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import orjson

from curate.dialogue import Message, ToolCall, function_tool
from curate.export.trainer_module import TrainerRow


class Refused(Exception):
    """Raised for a row that a trainer's format cannot hold.

    Args:
        reason: code, counted and written to `refused.jsonl`.
        detail: explanation for the reader of that file.
    """

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason = reason
        self.detail = detail


def wire_message(message: Message, keep_reasoning: bool = False) -> dict[str, Any]:
    """Return a message as `{"role", "content", ...}`, verbatim, without unused keys.

    Raises:
        Refused: `arguments_not_object`.
    """
    wire: dict[str, Any] = {"role": message.role, "content": message.content}
    if keep_reasoning and message.reasoning and message.reasoning.strip():
        wire["reasoning_content"] = message.reasoning.strip()
    if message.tool_calls:
        wire["tool_calls"] = [_wire_call(call) for call in message.tool_calls]
    if message.name is not None:
        wire["name"] = message.name
    if message.tool_call_id is not None:
        wire["tool_call_id"] = message.tool_call_id
    return wire


def wire_target(message: Message, keep_reasoning: bool = False) -> dict[str, Any]:
    """Return an assistant message to train on: as `wire_message`, with its content stripped.

    A template that trims would otherwise render other text than the file holds.

    Raises:
        Refused: `arguments_not_object`; `empty_assistant` if nothing is left to train on.
    """
    content = message.content.strip()
    if not content and not message.tool_calls:
        raise Refused("empty_assistant", "an assistant message has neither text nor a tool call")
    wire = wire_message(message, keep_reasoning)
    wire["content"] = content
    return wire


def wire_tools(tools: Sequence[Mapping[str, Any]]) -> str | None:
    """Return tool definitions as the text of a JSON list in function form, or None if there are none.

    TRL decodes a `tools` column of text itself. As text it is exact: schemas as columns would be filled
    with nulls, one tool's parameters in another's.

    Raises:
        Refused: `tool_without_name` or `not_json`.
    """
    if not tools:
        return None
    return dump([_wire_tool(tool) for tool in tools]).decode()


def dump(value: object) -> bytes:
    """Return JSON bytes that decode to the same value.

    Raises:
        Refused: `not_json` for NaN, infinity, integers beyond 64 bits, keys that are not text, lone
            surrogates and objects.
    """
    try:
        encoded = orjson.dumps(value)
    except (TypeError, ValueError) as error:
        raise Refused("not_json", str(error)) from error
    # orjson writes NaN and infinities as null; without a null there is nothing to check
    if b"null" in encoded and not _is_finite(value):
        raise Refused("not_json", "NaN or an infinity, which JSON cannot express")
    return encoded


def _wire_call(call: ToolCall) -> dict[str, Any]:
    if isinstance(call.arguments, str):
        raise Refused(
            "arguments_not_object",
            f"the call of '{call.name}' has arguments that are no JSON object: {call.arguments[:80]!r}",
        )
    wire: dict[str, Any] = {
        "type": "function",
        "function": {"name": call.name, "arguments": call.arguments},
    }
    return wire if call.id is None else {"id": call.id, **wire}


def _wire_tool(tool: Mapping[str, Any]) -> dict[str, Any]:
    wire = function_tool(tool)
    if not isinstance(wire["function"].get("name"), str):
        raise Refused(
            "tool_without_name", f"a tool definition has no name; its keys: {sorted(tool)}"
        )
    return wire


def _is_finite(value: object) -> bool:
    if isinstance(value, float):
        return math.isfinite(value)
    if isinstance(value, Mapping):
        return all(_is_finite(item) for item in value.values())
    if isinstance(value, (list, tuple)):
        return all(_is_finite(item) for item in value)
    return True


Wire = Mapping[str, Any]


def as_it_is(row: TrainerRow) -> TrainerRow:
    """Return the row unchanged, for a trainer that reads the stream's own form."""
    return row


def messages_of(row: TrainerRow) -> Iterator[Wire]:
    """Yield every message of a row of any stream."""
    for column in ("messages", "prompt", "completion", "chosen", "rejected"):
        yield from row.get(column, ())


def refuse_tools(row: TrainerRow, because: str) -> None:
    """Refuse a row that offers tools, calls one or holds a result.

    Args:
        row: row of any stream.
        because: why the trainer's format cannot hold them.

    Raises:
        Refused: `tools_not_carried`.
    """
    if "tools" in row:
        raise Refused("tools_not_carried", f"tools are offered, and {because}")
    for message in messages_of(row):
        if "tool_calls" in message or message["role"] == "tool":
            use = "a tool is called" if "tool_calls" in message else "a tool answers"
            raise Refused("tools_not_carried", f"{use}, and {because}")


def refuse_reasoning(row: TrainerRow, because: str) -> None:
    """Refuse a row with thinking; without `keep_reasoning` no row has any.

    Raises:
        Refused: `reasoning_not_carried`.
    """
    if any("reasoning_content" in message for message in messages_of(row)):
        raise Refused(
            "reasoning_not_carried", f"a message has thinking that is to be kept, and {because}"
        )


def bare(message: Wire) -> dict[str, Any]:
    """Return role and content only, for a trainer that reads nothing else."""
    return {"role": message["role"], "content": message["content"]}


def thinking_and_text(message: Wire) -> str:
    """Return the content, with kept thinking before it as a `<think>` block."""
    thinking = message.get("reasoning_content")
    if thinking is None:
        return str(message["content"])
    return f"<think>\n{thinking}\n</think>\n\n{message['content']}"
