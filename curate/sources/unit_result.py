"""What a reader of one shape gives back, and how it says that it cannot read something.

A reader turns one raw row into a `UnitResult`. It may raise `UnreadableError`, which `source` catches in one
place and turns into a `QuarantinedRow`: an expected failure leaves this room as data, never as an exception.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from curate.dialogue import Message

Row = dict[str, Any]

REASONS: dict[str, str] = {
    "broken_json": "the line, or the rest of the file, is not JSON",
    "broken_file": "the file ends early or is corrupt from here on (compressed data, a bad table)",
    "bad_encoding": "the bytes are not in the source's encoding (UTF-8 unless set)",
    "not_an_object": "the row is neither an object nor a list of messages",
    "shape_mismatch": "the row has another shape than its file",
    "missing_field": "a field that the shape needs is missing",
    "no_match": "the file that is joined has no row of this id, or several",
    "bad_type": "a field holds another type than the shape has there",
    "unknown_role": "a message's role is none we know",
    "unknown_part": "a content part is of a type we do not know",
    "media": "the row has images, audio or video",
    "empty": "there are no messages, or no assistant message with text or a tool call",
    "empty_user": "a user message is empty or white space (oasst: with all below it)",
    "no_assistant": "no assistant message (oasst: none after this message on its path)",
    "deleted": "the message is marked as deleted (oasst)",
    "duplicate_message": "another message of the file has the same id (oasst)",
    "missing_parent": "the message hangs on one that is missing or could not be read (oasst)",
    "incomplete_conversation": "another row of the same conversation could not be read",
    "over_cap": "this part of the last row would exceed the source's `cap`",
    "unreadable": "nothing above fits; the detail has the error",
}


class UnreadableError(Exception):
    """A row, or a part of one, that cannot be read. Never leaves `curate.sources`."""

    def __init__(self, reason: str, detail: str) -> None:
        self.reason = reason
        self.detail = detail
        super().__init__(f"{reason}: {detail}")


@dataclass(frozen=True, slots=True)
class Draft:
    """A dialogue before it has an id and a lineage. `fields` are further fields of `Dialogue`.

    `rows` is set only where a dialogue stands on some of its unit's rows (paths of a flat tree).
    """

    messages: tuple[Message, ...]
    fields: dict[str, Any] = field(default_factory=dict)
    part: str | None = None
    rows: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class PartFault:
    """A part of a readable row that could not be read."""

    part: str
    reason: str
    detail: str = ""


@dataclass(frozen=True, slots=True)
class RowFault:
    """One row, of a unit of several, that gave nothing."""

    row: int
    reason: str
    detail: str = ""


@dataclass(frozen=True, slots=True)
class UnitResult:
    """What a unit gave: dialogues, parts that could not be read, rows of a group that gave nothing.

    `id` is the unit's id in the data. Drafts without a `group` get the unit's id as theirs where `siblings`.
    `left_out` counts what the source's mapping leaves out of the conversation, by what it says.
    """

    id: str | None
    drafts: tuple[Draft, ...]
    parts: tuple[PartFault, ...] = ()
    rows: tuple[RowFault, ...] = ()
    siblings: bool = False
    left_out: Mapping[str, int] = field(default_factory=dict)


Reader = Callable[[Row], UnitResult]


def checked(messages: tuple[Message, ...]) -> tuple[Message, ...]:
    """The messages, if they are a dialogue: at least one assistant message, one of them not empty.

    A single empty assistant message among others is kept: what it says about the dialogue is for the judge.
    An empty user message is not: who trains on the reply to it learns to answer what nobody asked.

    Raises:
        UnreadableError: `empty`, `no_assistant` or `empty_user`.
    """
    if not messages:
        raise UnreadableError("empty", "there are no messages")
    replies = [message for message in messages if message.role == "assistant"]
    if not replies:
        raise UnreadableError("no_assistant", f"{len(messages)} messages, none of the assistant's")
    if not any(reply.content.strip() or reply.tool_calls or reply.reasoning for reply in replies):
        raise UnreadableError("empty", "no assistant message has text or a tool call")
    for place, message in enumerate(messages):
        check_user(message, f"message {place}")
    return messages


def check_user(message: Message, where: str) -> None:
    """Refuse a user message without text.

    Raises:
        UnreadableError: `empty_user`.
    """
    if message.role == "user" and not message.content.strip():
        raise UnreadableError("empty_user", f"{where} is the user's and holds no text")


def text_of(value: Any, where: str) -> str:
    """A value that has to be text; null is the empty string.

    Raises:
        UnreadableError: `bad_type`.
    """
    if value is None:
        return ""
    if not isinstance(value, str):
        raise UnreadableError("bad_type", f"{where} is {type_name(value)}, text was expected")
    return value


def present(row: Row, keys: Iterable[str]) -> str | None:
    """The first of `keys` that the row has with a value other than null."""
    return next((key for key in keys if row.get(key) is not None), None)


def scalar_id(value: Any) -> str | None:
    """An id as text: a non-empty string or a whole number; None for anything else."""
    if isinstance(value, bool):
        return None
    if isinstance(value, float) and math.isfinite(value) and value.is_integer():
        return str(int(value))
    if isinstance(value, int):
        return str(value)
    return value.strip() or None if isinstance(value, str) else None


def type_name(value: Any) -> str:
    """What JSON calls the value's type."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "a boolean"
    if isinstance(value, int | float):
        return "a number"
    if isinstance(value, str):
        return "text"
    return "a list" if isinstance(value, list | tuple) else "an object"
