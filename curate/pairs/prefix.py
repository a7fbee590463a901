"""The prompt of a pair, the dialogue cut after one side, and the name a pair goes by.

Everything that decides what exactly stands before the two sides is here, because the exported prompt,
the policy's request and the rescored dialogue must be the same prefix.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import Any

from curate.dialogue import Dialogue, Message


def prompt_messages(
    messages: Sequence[Message], *, keep_reasoning: bool = False
) -> tuple[Message, ...]:
    """The messages as a prompt: unchanged, but for parsed-off thinking, which exports hide."""
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
    """The same dialogue with other messages."""
    return dialogue.model_copy(update={"messages": tuple(messages)})


def canonical(message: Message) -> tuple[Any, ...]:
    """What a message says: hashable, without call ids and thinking, content stripped.

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
    """128-bit hash (32 hex digits) of prompt, tools, chosen and rejected.

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
    """The value that a call's arguments spell; text that is no JSON stays text."""
    if isinstance(arguments, str):
        try:
            return json.loads(arguments)
        except ValueError:
            return arguments.strip()
    return arguments


def _arguments(arguments: dict[str, Any] | str) -> str:
    """Canonical JSON; text that is JSON counts as the object it spells."""
    value = parsed_arguments(arguments)
    return value if isinstance(value, str) else _canonical_json(value)


def _canonical_json(value: object) -> str:
    """JSON with sorted keys. Not orjson, which refuses numbers beyond 64 bits and lone surrogates."""
    return json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
