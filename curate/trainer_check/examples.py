"""What a row holds for a trainer: a dialogue, or a prompt and its sides, whatever its columns are called.

Every check looks at this form only, so it stands once for all trainers; where a trainer finds what in a row is a
fact of its module in `export` (`Layout`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from curate.export.trainer_facts import Layout
from curate.trainer_check.data_files import Row, shown

ChatMessage = Mapping[str, Any]
ANSWERS: Final = ("assistant", "call")


class Unread(Exception):
    """A row that holds no example; `code` is a finding's."""

    def __init__(self, code: str, detail: str) -> None:
        super().__init__(code)
        self.code = code
        self.detail = detail


@dataclass(slots=True)
class Example:
    """What is trained on in a row. Messages have `role` and `content`; what else they have stays as it is.

    Attributes:
        prompt: what stands before the sides; of a dialogue the whole of it, and then there are no sides.
        sides: answers by column, as messages or as texts.
        differs: whether the sides are whole dialogues that ask different things.
        tools, label: values of the columns of that name.
    """

    prompt: list[ChatMessage] | str
    sides: dict[str, list[ChatMessage] | str] = field(default_factory=dict)
    differs: bool = False
    tools: object = None
    label: object = None

    @property
    def is_text(self) -> bool:
        """Whether it is all text and no messages."""
        return isinstance(self.prompt, str)

    @property
    def lists(self) -> dict[str, list[ChatMessage]]:
        """All its messages by where they stand."""
        parts = {"prompt" if self.sides else "messages": self.prompt, **self.sides}
        return {name: part for name, part in parts.items() if isinstance(part, list) and part}

    @property
    def asked(self) -> object:
        """What is asked, for finding the same prompt again."""
        if isinstance(self.prompt, str):
            return self.prompt
        return said(self.prompt if self.sides else self.prompt[:-1])

    @property
    def answers(self) -> list[ChatMessage]:
        """Messages that are trained on: the sides', or all of the assistant's in a dialogue."""
        if self.sides:
            return [m for side in self.sides.values() if isinstance(side, list) for m in side]
        assert isinstance(self.prompt, list)
        return [m for m in self.prompt if m["role"] in ANSWERS]


def read_example(row: Row, layout: Layout, roles: Mapping[str, str]) -> Example:
    """Read what a row holds for a trainer.

    Args:
        row: as it stands in the file.
        layout: where its file has what.
        roles: the trainer's name for each role it knows. Unknown roles stay as they are.

    Raises:
        Unread: `missing_column`, `no_messages`, `mixed_shapes` or `not_messages`.
    """
    names = [name for name in layout.columns if name != "label"]
    values: dict[str, Any] = {name: row.get(name) for name in names}
    found: Example
    if isinstance(
        values.get("input"), Mapping
    ):  # OpenAI's preferences: messages and tools in one column
        row = {**row, **values["input"]}
        values["input"] = row.get("messages")
    forms = {name: _form(value) for name, value in values.items()}
    detail = ", ".join(f"{name}: {form}" for name, form in forms.items())
    if "null" in forms.values():
        raise Unread("missing_column", detail)
    if "empty" in forms.values():
        raise Unread("no_messages", detail)
    if "other" in forms.values() or not set(forms.values()) <= {*layout.holds, "messages", "text"}:
        raise Unread("not_messages", detail)
    is_text = set(forms.values()) == {"text"} and layout.holds != {"messages"}
    mixes = "message" in layout.holds or not layout.has_prompt
    if not set(forms.values()) <= layout.holds or (len(set(forms.values())) > 1 and not mixes):
        raise Unread("mixed_shapes", detail)
    if is_text and not mixes:
        prompt, sides = values[names[0]], {name: values[name] for name in layout.sides}
        found = Example(prompt, sides)
    elif is_text and not layout.has_prompt:
        found = _split_text(values)
    else:
        parts = {
            name: _messages(value, "assistant" if name in layout.sides else "user", roles)
            for name, value in values.items()
        }
        if layout.has_prompt:
            found = Example(parts[names[0]], {name: parts[name] for name in layout.sides})
        else:
            found = _split(parts, forms)
    found.tools, found.label = row.get("tools"), row.get("label")
    return found


def said(messages: Sequence[ChatMessage]) -> list[tuple[object, ...]]:
    """Reduce messages to what they say, call ids aside, for comparing two sides."""
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
    """A message's tool calls; none where the key holds something else."""
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
    listed = [value] if isinstance(value, Mapping) else value
    made: list[ChatMessage] = []
    for message in listed:
        role = message.get("role", message.get("from"))
        if not isinstance(role, str):
            raise Unread("not_messages", shown(message))
        kept = {k: v for k, v in message.items() if v is not None and k not in ("from", "value")}
        content = message.get("content", message.get("value"))
        made.append({**kept, "role": roles.get(role.replace("-", "_"), role), "content": content})
    return made


def _split(parts: dict[str, list[ChatMessage]], forms: Mapping[str, str]) -> Example:
    """Sides that hold the whole dialogue, split where they part; each keeps at least its last message."""
    (first, chosen), (second, rejected) = parts.items()
    if forms[second] == "text":  # it stands for what follows the last user's message of the other
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


def _parting(one: Sequence[Any], other: Sequence[Any]) -> int:
    """Find where two sequences part, at the latest before the last item of the shorter."""
    shorter = min(len(one), len(other))
    at = next((at for at in range(shorter) if one[at] != other[at]), shorter)
    return max(0, min(at, shorter - 1))
