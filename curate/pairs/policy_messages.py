"""Messages and tools in OpenAI's wire form, for asking a policy model.

What the policy is shown must be what the export holds, so the mapping is plain: nothing is trimmed,
merged or reordered. Only what the wire demands and the data may lack is filled in: tool call ids, in
the order of the calls, so that a result still names the call it answers.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

from curate.dialogue import Message, function_tool


def to_wire(messages: Sequence[Message]) -> tuple[dict[str, Any], ...]:
    """Chat messages as dicts: role, content, name?, tool_calls? (arguments as JSON text), tool_call_id?.

    `reasoning` becomes `reasoning_content` where it is there; a prompt for a policy has it stripped
    before (see `prefix.prompt_messages`). Missing call ids are numbered `call_1`, `call_2`, …; a tool
    message without an id answers the oldest call that is still open.
    """
    wired: list[dict[str, Any]] = []
    open_calls: deque[str] = deque()
    calls = 0
    for message in messages:
        entry: dict[str, Any] = {"role": message.role, "content": message.content}
        if message.name is not None:
            entry["name"] = message.name
        if message.reasoning:
            entry["reasoning_content"] = message.reasoning
        if message.tool_calls:
            entry["tool_calls"] = []
            for call in message.tool_calls:
                calls += 1
                identifier = call.id or f"call_{calls}"
                open_calls.append(identifier)
                entry["tool_calls"].append(
                    {
                        "id": identifier,
                        "type": "function",
                        "function": {"name": call.name, "arguments": _as_text(call.arguments)},
                    }
                )
        if message.role == "tool":
            identifier = message.tool_call_id or (open_calls[0] if open_calls else "")
            if identifier in open_calls:
                open_calls.remove(identifier)
            if identifier:
                entry["tool_call_id"] = identifier
        wired.append(entry)
    return tuple(wired)


def tools_to_wire(tools: Sequence[Mapping[str, Any]]) -> tuple[dict[str, Any], ...]:
    """Tool definitions in function form; bare functions and Anthropic's `input_schema` are brought into it.

    The exports write the same form, so the policy is offered exactly the exported tools.
    """
    return tuple(function_tool(tool) for tool in tools)


def said_text(message: Message) -> str:
    """All that a message says, as text: its content, then a line for each tool call."""
    calls = [f"(calls tool) {call.name} {_as_text(call.arguments)}" for call in message.tool_calls]
    return "\n".join(filter(None, (message.content.strip(), *calls)))


def _as_text(arguments: dict[str, Any] | str) -> str:
    if isinstance(arguments, str):
        return arguments
    # Not orjson: a number beyond 64 bits is legal JSON and must not end the run.
    return json.dumps(arguments, ensure_ascii=False, separators=(",", ":"))
