"""Content of a row for a trainer: a dialogue, or a prompt and its sides, whatever the names of its columns.

All checks read this form only, so they are the same for all trainers; which columns a trainer reads is a fact of its
module in `export` (`Layout`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from curate.export.trainer_facts import Layout
from curate.trainer_check.data_files import FileRow, shown

ChatMessage = Mapping[str, Any]
ANSWERS: Final = ("assistant", "call")


class Unread(Exception):
    """Raised for a row without an example; `code` is that of a finding."""

    def __init__(self, code: str, detail: str) -> None:
        super().__init__(code)
        self.code = code
        self.detail = detail


@dataclass(slots=True)
class Example:
    """Content of a row to train on. Messages have `role` and `content`; further keys are unchanged.

    Attributes:
        prompt: messages or text before the sides; a whole dialogue if there are no sides.
        sides: answers by column, as messages or as texts.
        differs: True if the sides are whole dialogues with different prompts.
        tools, label: values of the columns of these names.
    """

    prompt: list[ChatMessage] | str
    sides: dict[str, list[ChatMessage] | str] = field(default_factory=dict)
    differs: bool = False
    tools: object = None
    label: object = None

    @property
    def is_text(self) -> bool:
        """True if the example is text without messages."""
        return isinstance(self.prompt, str)

    @property
    def lists(self) -> dict[str, list[ChatMessage]]:
        """Lists of messages by the column they are in."""
        parts = {"prompt" if self.sides else "messages": self.prompt, **self.sides}
        return {name: part for name, part in parts.items() if isinstance(part, list) and part}

    @property
    def asked(self) -> object:
        """The prompt without its answers, to recognise repeated prompts."""
        if isinstance(self.prompt, str):
            return self.prompt
        return comparable(self.prompt if self.sides else self.prompt[:-1])

    @property
    def answers(self) -> list[ChatMessage]:
        """Messages to train on: those of the sides, or the assistant's in a dialogue."""
        if self.sides:
            return [m for side in self.sides.values() if isinstance(side, list) for m in side]
        assert isinstance(self.prompt, list)
        return [m for m in self.prompt if m["role"] in ANSWERS]


def read_example(row: FileRow, layout: Layout, roles: Mapping[str, str]) -> Example:
    """Return the example that a row holds.

    Args:
        row: the row of the file.
        layout: the columns to read.
        roles: role by the trainer's name for it. Unknown names are unchanged.

    Raises:
        Unread: `missing_column`, `no_messages`, `mixed_shapes` or `not_messages`.
    """
    names = [name for name in layout.columns if name != "label"]
    values: dict[str, Any] = {name: row.get(name) for name in names}
    # OpenAI's preferences have messages and tools in one column.
    if isinstance(values.get("input"), Mapping):
        row = {**row, **values["input"]}
        values["input"] = row.get("messages")
    forms = {name: _form(value) for name, value in values.items()}
    detail = ", ".join(f"{name}: {form}" for name, form in forms.items())
    present = set(forms.values())
    if "null" in present:
        raise Unread("missing_column", detail)
    if "empty" in present:
        raise Unread("no_messages", detail)
    if not present <= {*layout.holds, "messages", "text"}:
        raise Unread("not_messages", detail)
    is_text = present == {"text"} and layout.holds != {"messages"}
    mixes = "message" in layout.holds or not layout.has_prompt
    if not present <= layout.holds or (len(present) > 1 and not mixes):
        raise Unread("mixed_shapes", detail)
    example: Example
    if is_text and not mixes:
        example = Example(values[names[0]], {name: values[name] for name in layout.sides})
    elif is_text and not layout.has_prompt:
        example = _split_text(values)
    else:
        parts = {
            name: _messages(value, "assistant" if name in layout.sides else "user", roles)
            for name, value in values.items()
        }
        if layout.has_prompt:
            example = Example(parts[names[0]], {name: parts[name] for name in layout.sides})
        else:
            example = _split(parts, forms)
    example.tools, example.label = row.get("tools"), row.get("label")
    return example


def comparable(messages: Sequence[ChatMessage]) -> list[tuple[object, ...]]:
    """Return role, content and calls without ids of each message, to compare two sides."""
    return [
        (
            message.get("role"),
            message.get("content") or "",
            [
                call.get("function", call) if isinstance(call, Mapping) else call
                for call in calls_of(message)
            ],
        )
        for message in messages
    ]


def calls_of(message: ChatMessage) -> list[Any]:
    """Return a message's tool calls; `[]` if the key holds no list."""
    calls = message.get("tool_calls")
    return calls if isinstance(calls, list) else []


def _form(value: object) -> str:
    if value is None:
        return "null"
    if isinstance(value, str):
        return "text"
    if isinstance(value, Mapping):
        return "message"
    if isinstance(value, list):
        if not value:
            return "empty"
        if all(isinstance(message, Mapping) for message in value):
            return "messages"
    return "other"


def _messages(value: Any, speaker: str, roles: Mapping[str, str]) -> list[ChatMessage]:
    if isinstance(value, str):
        value = [{"role": speaker, "content": value}]
    messages: list[ChatMessage] = []
    for message in [value] if isinstance(value, Mapping) else value:
        role = message.get("role", message.get("from"))
        if not isinstance(role, str):
            raise Unread("not_messages", shown(message))
        others = {k: v for k, v in message.items() if v is not None and k not in ("from", "value")}
        content = message.get("content", message.get("value"))
        messages.append(
            {**others, "role": roles.get(role.replace("-", "_"), role), "content": content}
        )
    return messages


def _split(parts: dict[str, list[ChatMessage]], forms: Mapping[str, str]) -> Example:
    """Split sides that are whole dialogues at their first difference; each side keeps at least its last message."""
    (first, chosen), (second, rejected) = parts.items()
    if forms[second] == "text":  # it replaces what follows the other side's last user message
        users = [at for at, message in enumerate(chosen) if message["role"] == "user"]
        at = users[-1] + 1 if users else 0
        return Example(chosen[:at], {first: chosen[at:] or chosen[-1:], second: rejected})
    at = _parting(chosen, rejected)
    sides = {first: chosen[at:], second: rejected[at:]}
    differs = any(message["role"] == "user" for side in sides.values() for message in side[:-1])
    return Example(chosen[:at], dict(sides), differs=differs)


def _split_text(values: Mapping[str, Any]) -> Example:
    (first, chosen), (second, rejected) = values.items()
    at = _parting(chosen, rejected)
    if 0 < at < min(len(chosen), len(rejected)) and chosen[at - 1] == " ":
        at -= 1
    return Example(chosen[:at], {first: chosen[at:], second: rejected[at:]})


def first_difference(one: Sequence[Any], other: Sequence[Any]) -> int:
    """Return the index of the first difference; the length of the shorter sequence if it begins the other."""
    shorter = min(len(one), len(other))
    return next((at for at in range(shorter) if one[at] != other[at]), shorter)


def _parting(one: Sequence[Any], other: Sequence[Any]) -> int:
    """Return the index of the first difference, at most that of the shorter sequence's last item."""
    return max(0, min(first_difference(one, other), len(one) - 1, len(other) - 1))
