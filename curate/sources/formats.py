"""The known shapes: how each is recognised, and its reader.

A shape is recognised by structure: field names and the types of their values. Where a row fits two shapes and one of
them is more specific (`over`), that one is used; where neither is, the row is ambiguous, and detection abstains.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from curate.sources.chats import (
    REPLY_KEYS,
    SINGLE_REPLY_KEYS,
    SINGLE_USER_KEYS,
    TRAJECTORY_KEYS,
    USER_KEYS,
    read_alpaca,
    read_gaussia,
    read_history,
    read_message_list,
    read_trajectory,
    read_ultrachat,
)
from curate.sources.config import Columns
from curate.sources.messages import decoded, looks_like_messages
from curate.sources.preferences import TRANSCRIPT_KEYS, is_transcript, read_hh, read_preference
from curate.sources.trees import ID_KEYS, PARENT_KEYS, read_nested
from curate.sources.turns_table import find_columns
from curate.sources.unit_result import Reader, SourceRow, present

Matches = Callable[[SourceRow], bool]


@dataclass(frozen=True, slots=True)
class Format:
    """One shape.

    Attributes:
        matches: whether a row has the shape.
        read: reader of a row; None where rows have to be grouped before they can be read (`turns_table`).
        over: less specific shapes, which a row of this one may fit too.
    """

    name: str
    matches: Matches
    read: Reader | None
    over: frozenset[str] = frozenset()


def _holds(*ways: tuple[Sequence[str], Sequence[str], Sequence[str]]) -> Matches:
    """Return a test for messages under one of the keys, with one of the roles and contents, in one of these ways."""
    return lambda row: any(
        looks_like_messages(row.get(key), roles, contents)
        for keys, roles, contents in ways
        for key in keys
    )


_MESSAGES = _holds((("messages",), ("role",), ("content",)))
_SHAREGPT = _holds(
    (("conversations",), ("from", "role"), ("value", "content", "text")),
    (("messages",), ("from",), ("value",)),
)
_CONVERSATION = _holds(
    (("conversation",), ("role", "from"), ("content", "value")),
    (("conversation",), ("input",), ("output",)),
)
_CARD = _holds((("dialogue", "dialog"), ("role",), ("text", "content")))
_TRAJECTORY = _holds((TRAJECTORY_KEYS, ("role",), ("content",)))


def _is_gaussia(row: SourceRow) -> bool:
    if looks_like_messages(row.get("conversation"), ("query",), ("assistant",)):
        return True
    return isinstance(row.get("role"), str) and isinstance(row.get("assistant"), str)


def _is_preference(row: SourceRow) -> bool:
    if "chosen_messages" in row or "preferred_output" in row:
        return "rejected_messages" in row or "non_preferred_output" in row
    if "messages" in row and present(row, ("rejected_response", "rejected_messages")):
        return True
    sides = [decoded(row.get(side)) for side in ("chosen", "rejected")]
    return all(isinstance(side, str | dict | list) for side in sides)


def _is_hh(row: SourceRow) -> bool:
    if isinstance(row.get("chosen"), str) and isinstance(row.get("rejected"), str):
        return is_transcript(row["chosen"]) or is_transcript(row.get("prompt"))
    return any(is_transcript(row.get(key)) for key in TRANSCRIPT_KEYS)


def _is_ultrachat(row: SourceRow) -> bool:
    value = decoded(row.get("data"))
    return (
        isinstance(value, list)
        and len(value) > 1
        and all(isinstance(text, str) for text in value[:4])
    )


def _is_alpaca(row: SourceRow) -> bool:
    user_key, reply_key = present(row, SINGLE_USER_KEYS), present(row, SINGLE_REPLY_KEYS)
    return (
        user_key is not None
        and reply_key is not None
        and isinstance(row[user_key], str | list)
        and isinstance(row[reply_key], str | list)
    )


def _is_oasst(row: SourceRow) -> bool:
    prompt = row.get("prompt")
    root = prompt if isinstance(prompt, dict) else row
    if isinstance(root.get("replies"), list) and isinstance(root.get("text"), str):
        return True
    return is_flat_message(row)


def is_flat_message(row: SourceRow) -> bool:
    """Return whether a row is a message of a flat OASST file, with an id and a parent."""
    return (
        any(key in row for key in ID_KEYS)
        and any(key in row for key in PARENT_KEYS)
        and "text" in row
        and "role" in row
        and not isinstance(row.get("replies"), list)
    )


def _is_history(row: SourceRow) -> bool:
    value = decoded(row.get("history"))
    if not isinstance(value, list):
        return False
    if "query" in row and present(row, ("response", "output")):
        return True
    return looks_like_messages(value, USER_KEYS, REPLY_KEYS) and "role" not in value[0]


FORMATS: tuple[Format, ...] = (
    Format("messages", _MESSAGES, read_message_list, frozenset(("alpaca", "hh"))),
    Format("sharegpt", _SHAREGPT, read_message_list, frozenset(("alpaca", "hh"))),
    Format("conversation", _CONVERSATION, read_message_list, frozenset(("alpaca",))),
    Format("card", _CARD, read_message_list),
    Format("gaussia", _is_gaussia, read_gaussia),
    Format(
        "preference",
        _is_preference,
        read_preference,
        frozenset(("messages", "sharegpt", "conversation", "alpaca", "history")),
    ),
    Format("hh", _is_hh, read_hh, frozenset(("preference", "alpaca"))),
    Format("ultrachat", _is_ultrachat, read_ultrachat),
    Format("alpaca", _is_alpaca, read_alpaca),
    Format("oasst", _is_oasst, read_nested, frozenset(("alpaca", "turns_table"))),
    Format("history", _is_history, read_history, frozenset(("alpaca",))),
    Format("turns_table", lambda row: find_columns(row, Columns()) is not None, None),
    Format("trajectory", _TRAJECTORY, read_trajectory, frozenset(("messages", "alpaca"))),
)
NAMES = tuple(shape.name for shape in FORMATS)


def format_named(name: str) -> Format:
    """Return the shape of that name."""
    return next(candidate for candidate in FORMATS if candidate.name == name)


def fitting(row: SourceRow, columns: Columns) -> list[str]:
    """Return the names of the shapes a row fits, without those for which it fits a more specific one.

    An `instruction` with a `history` is alpaca; columns named in the recipe make a table.
    """
    is_table = columns != Columns() and find_columns(row, columns) is not None
    if is_table:
        return ["turns_table"]
    hits = [candidate for candidate in FORMATS if candidate.matches(row)]
    outranked: set[Any] = {name for candidate in hits for name in candidate.over}
    if "history" in row and isinstance(row.get("instruction"), str):
        outranked = (outranked | {"history"}) - {"alpaca"}
    return [candidate.name for candidate in hits if candidate.name not in outranked]
