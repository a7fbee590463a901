"""The prompt of a pair, the dialogue cut after one side, and the name a pair goes by.

Everything that decides what exactly stands before the two sides is here, because the exported prompt,
the policy's request and the rescored dialogue must be the same prefix.

What the policy is shown must be what the export holds: in OpenAI's wire form nothing is trimmed, merged or
reordered, and only tool call ids that the data may lack are filled in, in the order of the calls.
"""

from __future__ import annotations

import hashlib
import json
from collections import deque
from collections.abc import Sequence
from typing import Any

from curate.dialogue import Dialogue, Message


def prompt_messages(
    messages: Sequence[Message], *, keep_reasoning: bool = False
) -> tuple[Message, ...]:
    """Return the messages as a prompt: unchanged, but for parsed-off thinking, which exports hide."""
    if keep_reasoning:
        return tuple(messages)
    return tuple(
        message if message.reasoning is None else message.model_copy(update={"reasoning": None})
        for message in messages
    )


def prompt_is_open(prompt: Sequence[Message]) -> bool:
    """True when an assistant message is due: the last message is the user's or a tool's."""
    return bool(prompt) and prompt[-1].role in ("user", "tool")


def with_messages(dialogue: Dialogue, messages: Sequence[Message]) -> Dialogue:
    """Return the same dialogue with other messages."""
    return dialogue.model_copy(update={"messages": tuple(messages)})


def canonical(message: Message) -> tuple[Any, ...]:
    """Reduce a message to what it says: hashable, without call ids and thinking, content stripped.

    Ids are drawn at random by servers, so two trials of one task differ in them and in nothing else.
    """
    calls = tuple((call.name, _arguments(call.arguments)) for call in message.tool_calls)
    return (message.role, message.name, message.content.strip(), calls)


def pair_id(
    prompt: Sequence[Message],
    tools: Sequence[dict[str, Any]],
    chosen: Message | None,
    rejected: Message,
    *,
    salt: str = "",
) -> str:
    """Return the 128-bit hash (32 hex digits) of prompt, tools, chosen and rejected.

    It does not depend on scores, config or the dialogue's id, so a pair keeps its name from run to run.
    `salt` sets records apart that have no chosen side of their own (a refused fork, a cut reply).
    """
    parts = [
        [message.model_dump(mode="json", exclude_defaults=True) for message in prompt],
        list(tools),
        None if chosen is None else _side(chosen),
        _side(rejected),
        salt,
    ]
    encoded = _canonical_json(parts).encode("utf-8", "surrogatepass")
    return hashlib.blake2b(encoded, digest_size=16).hexdigest()


def _side(message: Message) -> dict[str, Any]:
    return message.model_dump(mode="json", exclude={"reasoning"}, exclude_defaults=True)


def parsed_arguments(arguments: dict[str, Any] | str) -> Any:
    """Return the value that a call's arguments spell; text that is no JSON stays text."""
    if isinstance(arguments, str):
        try:
            return json.loads(arguments)
        except ValueError:
            return arguments.strip()
    return arguments


def _arguments(arguments: dict[str, Any] | str) -> str:
    """Return canonical JSON; text that is JSON counts as the object it spells."""
    value = parsed_arguments(arguments)
    return value if isinstance(value, str) else _canonical_json(value)


def _canonical_json(value: object) -> str:
    """Return JSON with sorted keys. Not orjson, which refuses numbers beyond 64 bits and lone surrogates."""
    return json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":"))


def to_wire(messages: Sequence[Message]) -> tuple[dict[str, Any], ...]:
    """Return chat messages as dicts: role, content, name?, tool_calls? (arguments as JSON text), tool_call_id?.

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


def said_text(message: Message) -> str:
    """Return all that a message says, as text: its content, then a line for each tool call."""
    calls = [f"(calls tool) {call.name} {_as_text(call.arguments)}" for call in message.tool_calls]
    return "\n".join(filter(None, (message.content.strip(), *calls)))


def _as_text(arguments: dict[str, Any] | str) -> str:
    if isinstance(arguments, str):
        return arguments
    # Not orjson: a number beyond 64 bits is legal JSON and must not end the run.
    return json.dumps(arguments, ensure_ascii=False, separators=(",", ":"))
