"""`turns_table`: one row a message, rows of a conversation joined by its id.

The rows of a file are held in memory whole, because rows of one conversation may stand anywhere in it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from curate.sources.config import Columns
from curate.sources.fields import read_fields
from curate.sources.messages import Speakers, read_messages
from curate.sources.unit_result import (
    Draft,
    RowFault,
    SourceRow,
    UnitResult,
    UnreadableError,
    checked,
    scalar_id,
)

USUAL = {
    "conversation": (
        "conversation_id",
        "dialogue_id",
        "dialog_id",
        "session_id",
        "thread_id",
        "chat_id",
        "conv_id",
        "conversation",
        "dialogue",
    ),
    "order": (
        "turn_index",
        "message_index",
        "turn_id",
        "turn",
        "order",
        "index",
        "position",
        "sequence",
        "step",
        "timestamp",
        "created_at",
    ),
    "role": ("role", "speaker", "sender", "from", "author"),
    "text": ("text", "content", "message", "value", "utterance"),
}
MESSAGE_KEYS = frozenset(("name", "tool_calls", "tool_call_id", "reasoning", "reasoning_content"))


@dataclass(frozen=True, slots=True)
class ColumnNames:
    """The four columns as they are called in the data; `order` may be missing."""

    conversation: str
    order: str | None
    role: str
    text: str

    @property
    def all(self) -> set[str]:
        """Return the columns that have been read when a conversation has been."""
        return {self.conversation, self.role, self.text, *([self.order] if self.order else [])}


def find_columns(row: SourceRow, columns: Columns) -> ColumnNames | None:
    """Return the four columns of a row: the recipe's, else the first usual name, ignoring case; None if one is missing."""
    keys = {key.lower(): key for key in row}

    def find(kind: str) -> str | None:
        column = getattr(columns, kind)
        if column is not None:
            return column if column in row else None
        return next((keys[name] for name in USUAL[kind] if name in keys), None)

    conversation, role, text = find("conversation"), find("role"), find("text")
    if conversation is None or role is None or text is None:
        return None
    if scalar_id(row[conversation]) is None and row[conversation] is not None:
        return None
    has_roles = bool(columns.roles or columns.in_order)  # then a speaker may be a number
    if (not isinstance(row[role], str) and not has_roles) or isinstance(row[text], dict):
        return None
    return ColumnNames(conversation, find("order"), role, text)


def read_turns_table(
    rows: list[tuple[int, SourceRow]], columns: Columns
) -> Iterator[tuple[tuple[int, ...], UnitResult]]:
    """Yield the conversations in the order of their first rows; a row without a conversation is a fault of its own.

    A conversation with a row that cannot be read is not used: it would have a hole. Its other rows
    are quarantined as `incomplete_conversation`.
    """
    names = next((names for _, row in rows if (names := find_columns(row, columns))), None)
    needed = names.conversation if names else "conversation id, role and text columns"
    groups: dict[str, list[tuple[int, SourceRow]]] = {}
    for number, row in rows:
        key = scalar_id(row.get(names.conversation)) if names else None
        if key is None:
            fault = RowFault("missing_field", f"no {needed}", number)
            yield (number,), UnitResult(None, faults=(fault,))
        else:
            groups.setdefault(key, []).append((number, row))
    if names is not None:
        for key, members in groups.items():
            numbers = tuple(number for number, _ in members)
            yield numbers, _read_conversation(key, members, names, columns)


def _read_conversation(
    key: str, members: list[tuple[int, SourceRow]], names: ColumnNames, columns: Columns
) -> UnitResult:
    members = _ordered(members, names.order)
    varying = _varying([row for _, row in members], names)
    speakers = Speakers(columns.roles, columns.in_order)
    messages = []
    for number, row in members:
        raw = {name: row[name] for name in varying if row.get(name) is not None}
        raw |= {"role": row.get(names.role), "content": row.get(names.text)}
        try:
            role = speakers.named(row.get(names.role))
            if role == "skip":
                continue
            raw |= {"role": role} if role else {}
            read_messages([raw])
        except UnreadableError as error:
            others = RowFault("incomplete_conversation", f"row {number}: {error.reason}")
            faults = (error.at(n) if n == number else replace(others, row=n) for n, _ in members)
            return UnitResult(key, faults=tuple(faults))
        messages.append(raw)
    try:
        normalised, extra = read_messages(messages)
        fields = read_fields(members[0][1], names.all | varying, extra)
        draft = Draft(checked(normalised), fields)
    except UnreadableError as error:
        return UnitResult(key, faults=tuple(error.at(number) for number, _ in members))
    return UnitResult(key, (draft,), left_out=speakers.left_out)


def _varying(rows: list[SourceRow], names: ColumnNames) -> set[str]:
    """Return the columns that belong to messages: known fields of messages, and columns that differ between rows."""
    keys = dict.fromkeys(name for row in rows for name in row)
    return {
        name
        for name in keys
        if name not in names.all
        and (name in MESSAGE_KEYS or any(row.get(name) != rows[0].get(name) for row in rows))
    }


def _ordered(
    members: list[tuple[int, SourceRow]], order: str | None
) -> list[tuple[int, SourceRow]]:
    """Sort rows by the order column: as numbers where all are numbers, as text where all are text, else not at all."""
    if order is not None:
        for convert in (_number, _text):
            keys: list[Any] = [convert(row.get(order)) for _, row in members]
            if None not in keys:
                return [members[at] for at in sorted(range(len(keys)), key=keys.__getitem__)]
    return members


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _number(value: Any) -> float | None:
    if isinstance(value, bool):
        return None
    try:
        return float(value)
    except (TypeError, ValueError):
        return None
