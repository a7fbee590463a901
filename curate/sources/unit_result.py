"""What a reader of one shape gives back, and how it says that it cannot read something.

A reader turns one raw row into a `UnitResult`. It may raise `UnreadableError`, which `source` catches in one
place and turns into a `QuarantinedRow`: an expected failure leaves this room as data, never as an exception.

Below: what a source gives, units of rows, and the tally that proves that none was lost.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from curate.dialogue import Dialogue, Message
from curate.records import QuarantinedRow
from curate.wording import plural

SourceRow = dict[str, Any]


@dataclass(frozen=True, slots=True)
class RawRow:
    """One row as it came. `number` counts from 1: lines of a text file, entries of anything else.

    Where the row could not even be parsed, `fault` is the reason code and `value` the raw text, or the cells that
    could be read. `key` is what the row stands under where it is a value of an object.
    """

    number: int
    value: Any
    fault: str | None = None
    detail: str = ""
    key: str | None = None


def has_surrogate(text: str) -> bool:
    """Return True for a text with half a character, as bytes that cannot be decoded are read."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return True
    return False


def shown_bytes(text: str) -> str:
    """Return the text with its halves of characters written out, as `\\udcff`."""
    return text.encode("utf-8", "backslashreplace").decode()


@dataclass(frozen=True, slots=True)
class RowFault:
    """Why one row of a unit, or one part of a unit that is a single row, gave nothing; `row` or `part` names it."""

    reason: str
    detail: str = ""
    row: int | None = None
    part: str | None = None


class UnreadableError(Exception):
    """A row, or a part of one, that cannot be read. Never leaves `curate.sources`."""

    def __init__(self, reason: str, detail: str) -> None:
        self.reason = reason
        self.detail = detail
        super().__init__(f"{reason}: {detail}")

    def at(self, row: int | None = None, part: str | None = None) -> RowFault:
        """Return the fault of a row or of a part."""
        return RowFault(self.reason, self.detail, row, part)


ODD_ROW = (TypeError, ValueError, LookupError, AttributeError, RecursionError)
"""Errors that reading a row of an unforeseen kind may raise."""


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
class UnitResult:
    """The result of reading a unit: its dialogues, and the faults of rows and parts that gave none.

    `id` is the unit's id in the data. Drafts without a `group` get the unit's id as theirs where `siblings`.
    `left_out` counts what the source's mapping leaves out of the conversation, by what it says.
    """

    id: str | None
    drafts: tuple[Draft, ...] = ()
    faults: tuple[RowFault, ...] = ()
    siblings: bool = False
    left_out: Mapping[str, int] = field(default_factory=dict)


Reader = Callable[[SourceRow], UnitResult]
SIDES = ("chosen", "rejected")


def of_sides(
    identifier: str | None,
    sides: Mapping[str, Callable[[], Draft]],
    left_out: Mapping[str, int] | None = None,
) -> UnitResult:
    """Return two alternatives as siblings, the chosen one first; a side that cannot be read is a fault.

    Args:
        sides: a reader of each side. A side named as in `SIDES` gets its name as the label `preference`.

    Raises:
        UnreadableError: neither side can be read; the reason is the first side's.
    """
    drafts: list[Draft] = []
    faults: list[RowFault] = []
    for name, read in sides.items():
        try:
            side = replace(read(), part=name)
        except UnreadableError as error:
            faults.append(error.at(part=name))
            continue
        if name in SIDES:
            side.fields["labels"] = {**side.fields.get("labels", {}), "preference": name}
        drafts.append(side)
    if not drafts:
        raise UnreadableError(faults[0].reason, f"{faults[0].part}: {faults[0].detail}")
    drafts.sort(key=lambda draft: draft.part or "")
    return UnitResult(identifier, tuple(drafts), tuple(faults), True, left_out or {})


def checked(messages: tuple[Message, ...]) -> tuple[Message, ...]:
    """Return the messages if they are a dialogue: at least one assistant message, one of them not empty.

    A single empty assistant message among others is kept: what it says about the dialogue is for the judge.
    An empty user message is not: who trains on the reply to it learns to answer what nobody asked.

    Raises:
        UnreadableError: `empty`, `no_assistant` or `empty_user`.
    """
    if not messages:
        raise UnreadableError("empty", "there are no messages")
    replies = [message for message in messages if message.role == "assistant"]
    if not replies:
        raise UnreadableError(
            "no_assistant", f"{plural(len(messages), 'message')}, none of the assistant's"
        )
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
    """Return a value that has to be text; null becomes the empty string.

    Raises:
        UnreadableError: `bad_type`.
    """
    if value is None:
        return ""
    if not isinstance(value, str):
        raise UnreadableError("bad_type", f"{where} is {type_name(value)}, text was expected")
    return value


def first_value(row: SourceRow, keys: Iterable[str]) -> Any:
    """Return the value of the first key that has one other than null; None where none has."""
    return next((row[key] for key in keys if row.get(key) is not None), None)


def present(row: SourceRow, keys: Iterable[str]) -> str | None:
    """Return the first of `keys` with a value other than null; None where there is none."""
    return next((key for key in keys if row.get(key) is not None), None)


def scalar_id(value: Any) -> str | None:
    """Return an id as text: a non-empty string or a whole number; None for anything else."""
    if isinstance(value, bool):
        return None
    if isinstance(value, float) and math.isfinite(value) and value.is_integer():
        return str(int(value))
    if isinstance(value, int):
        return str(value)
    return value.strip() or None if isinstance(value, str) else None


def type_name(value: Any) -> str:
    """Return JSON's name of the value's type."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "a boolean"
    if isinstance(value, int | float):
        return "a number"
    if isinstance(value, str):
        return "text"
    return "a list" if isinstance(value, list | tuple) else "an object"


@dataclass(frozen=True, slots=True)
class Unit:
    """One row, or the rows that form a conversation or a tree, and all that came of them.

    Every row is either used (a dialogue stands on it) or quarantined (exactly one entry without `part`). A
    part of a used row that could not be read is an entry with `part`. A row that `source.where` leaves out is none
    of the unit's: a unit of no rows counts it in `rows_left_out`, by condition; `items_left_out` counts items.
    """

    rows: tuple[int, ...]
    file: str
    dialogues: tuple[Dialogue, ...]
    quarantined: tuple[QuarantinedRow, ...]
    rows_left_out: Mapping[str, int] = field(default_factory=dict)
    items_left_out: Mapping[str, int] = field(default_factory=dict)


@dataclass(slots=True)
class RowCounts:
    """Counts over units. `rows_in == rows_used + quarantined` is checked with every unit.

    Attributes:
        rows_used: rows that at least one dialogue stands on.
        quarantined: rows that none does.
        dialogues: dialogues made, less those not sampled.
        not_sampled: dialogues left out so that the source keeps to its weight; their rows are used.
        parts_quarantined: parts of used rows that could not be read.
        roles: dialogues by where their role definition is from: `field`, `system`, `recipe`, or `none`.
        rows_left_out: rows that `source.where` leaves out, by condition; not among `rows_in`.
        items_left_out: parts of conversations that the mapping leaves out, by what it says.
    """

    rows_in: int = 0
    rows_used: int = 0
    quarantined: int = 0
    dialogues: int = 0
    not_sampled: int = 0
    parts_quarantined: int = 0
    roles: Counter[str] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)
    part_reasons: Counter[str] = field(default_factory=Counter)
    rows_left_out: Counter[str] = field(default_factory=Counter)
    items_left_out: Counter[str] = field(default_factory=Counter)

    def add(self, unit: Unit) -> None:
        """Count a unit.

        Raises:
            RuntimeError: a row of the unit is neither used nor quarantined, or both; this is our mistake.
        """
        used: set[int] = set()
        for dialogue in unit.dialogues:
            used.update(dialogue.lineage.rows if dialogue.lineage else ())
        whole = [item for item in unit.quarantined if item.part is None]
        rows_quarantined = sorted(item.row for item in whole)
        if sorted([*used, *rows_quarantined]) != sorted(unit.rows):
            raise RuntimeError(
                f"rows of {unit.file} are not accounted for: rows {unit.rows}, used {sorted(used)}, "
                f"quarantined {rows_quarantined}"
            )
        parts = [item for item in unit.quarantined if item.part is not None]
        self.rows_in += len(unit.rows)
        self.rows_used += len(used)
        self.quarantined += len(whole)
        self.dialogues += len(unit.dialogues)
        self.roles.update(map(_role_origin, unit.dialogues))
        self.parts_quarantined += len(parts)
        self.reasons.update(item.reason for item in whole)
        self.part_reasons.update(item.reason for item in parts)
        self.rows_left_out.update(unit.rows_left_out)
        self.items_left_out.update(unit.items_left_out)

    def leave_out(self, dialogue: Dialogue) -> None:
        """Count a dialogue that was made as not sampled."""
        self.dialogues -= 1
        self.roles[_role_origin(dialogue)] -= 1
        self.not_sampled += 1


def _role_origin(dialogue: Dialogue) -> str:
    return (dialogue.lineage.role_from if dialogue.lineage else None) or "none"
