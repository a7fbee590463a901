"""Raw messages of any vendor to `Message`: roles, content parts, tool calls, reasoning.

All shapes use this module, so that a tool call means the same everywhere. One raw message may become several (an
Anthropic user message contains tool results), never none.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

import orjson
from pydantic import BeforeValidator, Field

from curate.dialogue import Message, Role, ToolCall, split_thinking
from curate.sources.unit_result import UnreadableError, first_value, scalar_id, text_of, type_name

ROLES: dict[str, Role] = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "human": "user",
    "prompter": "user",
    "customer": "user",
    "client": "user",
    "assistant": "assistant",
    "gpt": "assistant",
    "bot": "assistant",
    "chatbot": "assistant",
    "model": "assistant",
    "ai": "assistant",
    "agent": "assistant",
    "chatgpt": "assistant",
    "function_call": "assistant",
    "tool_call": "assistant",
    "tool": "tool",
    "observation": "tool",
    "function": "tool",
    "function_response": "tool",
    "tool_response": "tool",
    "tool_result": "tool",
    "ipython": "tool",
}
CALL_ROLES = ("function_call", "tool_call")
ROLE_KEYS = ("role", "from", "speaker", "sender")
CONTENT_KEYS = ("content", "value", "text")
REASONING_KEYS = ("reasoning", "reasoning_content", "thinking")
TEXT_PARTS = ("text", "input_text", "output_text", "refusal")
REASONING_PARTS = ("reasoning", "thinking", "redacted_thinking")
CALL_PARTS = ("tool_call", "tool_use", "function_call")
RESULT_PARTS = ("tool_result", "tool_response", "function_call_output")
MEDIA_WORDS = ("image", "audio", "video", "file", "document", "media")
READ_KEYS = frozenset(
    (
        *ROLE_KEYS,
        *CONTENT_KEYS,
        *REASONING_KEYS,
        "name",
        "tool_calls",
        "function_call",
        "tool_call_id",
    )
)


@dataclass(slots=True)
class _Parts:
    """The content parts of one message, by kind."""

    texts: list[str] = field(default_factory=list)
    reasoning: list[str] = field(default_factory=list)
    calls: list[ToolCall] = field(default_factory=list)
    results: list[Message] = field(default_factory=list)


def read_messages(raw: Any) -> tuple[tuple[Message, ...], dict[str, Any]]:
    """Normalise a list of raw messages.

    Returns:
        The messages, and metadata: unknown fields of messages as lists aligned with the messages, `loss_weight` at the
        top level and the others under `per_message`.

    Raises:
        UnreadableError: `bad_type`, `unknown_role`, `unknown_part`, `media`, `missing_field`, `empty`.
    """
    raw = decoded(raw)
    if not isinstance(raw, Sequence) or isinstance(raw, str | bytes):
        raise UnreadableError("bad_type", f"the messages are {type_name(raw)}, a list was expected")
    messages: list[Message] = []
    extras: list[tuple[int, str, Any]] = []
    for item in raw:
        if not isinstance(item, dict):
            raise UnreadableError("bad_type", f"message {len(messages)} is {type_name(item)}")
        item_messages = read_message(item)
        messages.extend(item_messages)
        last = len(messages) - 1
        extras.extend(
            (last, key, value)
            for key, value in item.items()
            if key not in READ_KEYS and value is not None
        )
    if not messages:
        raise UnreadableError("empty", "the list of messages is empty")
    return tuple(messages), _aligned(extras, len(messages))


def _aligned(extras: list[tuple[int, str, Any]], length: int) -> dict[str, Any]:
    per_message: dict[str, Any] = {}
    for index, key, value in extras:
        per_message.setdefault(key, [None] * length)[index] = value
    weight = per_message.pop("loss_weight", None)
    metadata = {"loss_weight": weight} if weight is not None else {}
    return {**metadata, "per_message": per_message} if per_message else metadata


def read_message(raw: dict[str, Any]) -> list[Message]:
    """Normalise one raw message: one `Message`, or several where it contains tool results.

    Null content is the empty string. `developer` is `system`. Text parts are joined by line breaks.
    Reasoning parts, keys and `<think>` blocks (of assistant messages) go to `Message.reasoning`.

    Raises:
        UnreadableError: see `read_messages`.
    """
    role_name = first_value(raw, ROLE_KEYS)
    role = read_role(role_name)
    content = first_value(raw, CONTENT_KEYS)
    if isinstance(role_name, str) and role_name.strip().lower() in CALL_ROLES:
        return [Message(role="assistant", tool_calls=tuple(read_calls(content, "the call")))]
    parts = _read_content(content)
    calls = [*parts.calls, *read_calls(raw.get("tool_calls"), "tool_calls")]
    if role == "assistant":
        calls += read_calls(raw.get("function_call"), "function_call")
    text = _joined(parts.texts)
    reasoning = [
        *parts.reasoning,
        *([text_of(raw.get(key), key) for key in REASONING_KEYS if raw.get(key) is not None]),
    ]
    if role == "assistant":
        text, thoughts = split_thinking(text)
        reasoning += [thoughts] if thoughts else []
    message = Message(
        role=role,
        content=text,
        name=scalar_id(raw.get("name")),
        tool_calls=tuple(calls),
        tool_call_id=scalar_id(raw.get("tool_call_id")),
        reasoning="\n\n".join(part for part in reasoning if part) or None,
    )
    if parts.results and not (text or calls or message.reasoning):
        return parts.results
    return [*parts.results, message]


def read_role(role_name: Any) -> Role:
    """Return the role for any vendor's name of it.

    Raises:
        UnreadableError: `missing_field` or `unknown_role`.
    """
    if role_name is None:
        raise UnreadableError("missing_field", "a message has no role")
    role = ROLES.get(role_name.strip().lower()) if isinstance(role_name, str) else None
    if role is None:
        raise UnreadableError("unknown_role", f"'{role_name}' (known: {', '.join(ROLES)})")
    return role


def _read_content(content: Any) -> _Parts:
    parts = _Parts()
    if content is None:
        return parts
    if isinstance(content, str):
        parts.texts.append(content)
        return parts
    if isinstance(content, dict):
        inner = content.get("parts")
        content = inner if isinstance(inner, list) else [content]
    if not isinstance(content, list):
        raise UnreadableError("bad_type", f"a message's content is {type_name(content)}")
    for part in content:
        _read_part(part, parts)
    return parts


def _read_part(part: Any, parts: _Parts) -> None:
    if isinstance(part, str):
        parts.texts.append(part)
        return
    if not isinstance(part, dict):
        raise UnreadableError("bad_type", f"a content part is {type_name(part)}")
    kind = str(part.get("type") or "text")
    body = first_value(part, (kind, "value", "text"))
    if kind in TEXT_PARTS:
        parts.texts.append(text_of(body, "a text part"))
    elif kind in REASONING_PARTS:
        parts.reasoning.append(text_of(body, "a reasoning part"))
    elif kind in CALL_PARTS:
        parts.calls.extend(read_calls(part if "name" in part else body, f"a {kind} part"))
    elif kind in RESULT_PARTS:
        parts.results.append(_read_result(part))
    elif any(word in kind for word in MEDIA_WORDS):
        raise UnreadableError("media", f"a content part of type '{kind}'")
    else:
        raise UnreadableError("unknown_part", f"a content part of type '{kind}'")


def _read_result(part: dict[str, Any]) -> Message:
    body = first_value(part, ("content", "value", "output", "text"))
    call_id = first_value(part, ("tool_use_id", "tool_call_id", "call_id"))
    return Message(
        role="tool",
        content=_joined(_read_content(body).texts),
        name=scalar_id(part.get("name")),
        tool_call_id=scalar_id(call_id),
    )


def read_calls(raw: Any, where: str) -> list[ToolCall]:
    """Normalise tool calls: one or a list, in OpenAI's or Anthropic's format, as flat objects, or as JSON text of these.

    Raises:
        UnreadableError: `bad_type` or `missing_field`.
    """
    if raw is None or raw == "":
        return []
    if isinstance(raw, str):
        try:
            raw = orjson.loads(raw)
        except orjson.JSONDecodeError:
            raise UnreadableError("bad_type", f"{where} is no JSON: {raw[:80]!r}") from None
    calls = []
    for item in raw if isinstance(raw, list) else [raw]:
        if not isinstance(item, dict):
            raise UnreadableError(
                "bad_type", f"{where} is {type_name(item)}, an object was expected"
            )
        inner = item.get("function")
        call = inner if isinstance(inner, dict) else item
        name = call.get("name")
        if not isinstance(name, str) or not name:
            raise UnreadableError("missing_field", f"{where} has no function name")
        arguments = first_value(call, ("arguments", "input", "kwargs", "parameters", "args"))
        call_id = scalar_id(item.get("id") or item.get("tool_call_id") or item.get("call_id"))
        calls.append(ToolCall(name=name, arguments=read_arguments(arguments), id=call_id))
    return calls


def read_arguments(raw: Any) -> dict[str, Any] | str:
    """Return the arguments of a call as an object, or as raw text where they are not one."""
    if raw is None:
        return {}
    if isinstance(raw, dict):
        return {str(key): value for key, value in raw.items()}
    if not isinstance(raw, str):
        return orjson.dumps(raw).decode()
    try:
        arguments = orjson.loads(raw)
    except orjson.JSONDecodeError:
        return raw
    return arguments if isinstance(arguments, dict) else raw


def read_tools(raw: Any) -> tuple[dict[str, Any], ...] | None:
    """Return tool schemas from a list, an object, or JSON text of either; None where they cannot be read."""
    tools = decoded(raw)
    if isinstance(tools, dict):
        tools = [tools]
    if not isinstance(tools, list):
        return () if tools is None or tools == "" else None
    schemas = [decoded(tool) for tool in tools]
    return tuple(schemas) if all(isinstance(tool, dict) for tool in schemas) else None


def decoded(value: Any) -> Any:
    """Decode JSON text of a list or an object; return any other value unchanged."""
    if isinstance(value, str) and value.lstrip()[:1] in ("[", "{"):
        try:
            return orjson.loads(value)
        except orjson.JSONDecodeError:
            return value
    return value


def looks_like_messages(value: Any, roles: Sequence[str], contents: Sequence[str]) -> bool:
    """Return whether a value is a non-empty list of objects with one of the keys `roles` and one of `contents`.

    Only the first three items are checked: this detects a shape, it does not validate.
    """
    value = decoded(value)
    if not isinstance(value, list) or not value:
        return False
    return all(
        isinstance(item, Mapping)
        and any(key in item for key in roles)
        and any(key in item for key in (*contents, "tool_calls", "function_call"))
        for item in value[:3]
    )


def _joined(texts: list[str]) -> str:
    return "\n".join(text for text in texts if text)


RoleOrSkip = Literal["system", "user", "assistant", "tool", "skip"]


def speaker_name(value: Any) -> str | None:
    """Return a speaker as text: a name, a number, `true` or `false`; None for anything else."""
    if isinstance(value, bool):
        return str(value).lower()
    return scalar_id(value)


def _by_name(value: object) -> object:
    """Convert speakers' names to text, because YAML may have read them as numbers or as true and false."""
    if not isinstance(value, dict):
        return value
    return {
        key if isinstance(key, str) else speaker_name(key) or key: role
        for key, role in value.items()
    }


Roles = Annotated[dict[str, RoleOrSkip], BeforeValidator(_by_name)]
SpeakerRoles = Annotated[
    Roles,
    Field(
        description="Role of each speaker name in the data, in addition to the usual names; `skip` leaves "
        "a speaker out."
    ),
]
RolesInOrder = Annotated[
    tuple[Role, ...],
    Field(
        description="Roles of speakers whose names are not known, in the order in which they first speak."
    ),
]


@dataclass(slots=True)
class Speakers:
    """The speakers of one dialogue.

    Attributes:
        roles: roles of speakers by name; `skip` leaves a speaker out.
        in_order: roles of other speakers, in the order in which they first speak.
        left_out: number of items that are left out because their speaker is skipped, by `items of NAME`.
    """

    roles: Mapping[str, RoleOrSkip]
    in_order: tuple[Role, ...] = ()
    left_out: Counter[str] = field(default_factory=Counter)
    _met: dict[str, Role] = field(default_factory=dict)

    def named(self, speaker: Any) -> RoleOrSkip | None:
        """Return the role of an item's speaker by name, else by order; None where neither gives one.

        Raises:
            UnreadableError: `unknown_role` for more speakers than `in_order` has roles.
        """
        name = speaker_name(speaker)
        own = self.roles.get(name) if name is not None else None
        if own == "skip":
            self.left_out[f"items of {name}"] += 1
        if own is not None or name is None or not self.in_order:
            return own
        if name not in self._met:
            if len(self._met) == len(self.in_order):
                others = ", ".join(self._met)
                raise UnreadableError("unknown_role", f"'{name}' speaks after {others}")
            self._met[name] = self.in_order[len(self._met)]
        return self._met[name]

    def role(self, speaker: Any) -> RoleOrSkip:
        """Return the role: by name or order, else by the usual names.

        Raises:
            UnreadableError: `missing_field` or `unknown_role`.
        """
        return self.named(speaker) or read_role(speaker)
