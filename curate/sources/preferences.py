"""Readers of rows with two alternatives, and of hh's transcripts in one string.

A row gives two dialogues, `chosen` and `rejected`, that share a group. If one side cannot be read, the other is still a
dialogue, and the unreadable side is counted as a part.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from curate.sources.chats import as_raw, draft_of
from curate.sources.fields import read_id
from curate.sources.messages import ROLE_KEYS, ROLES, decoded
from curate.sources.unit_result import (
    SIDES,
    Draft,
    SourceRow,
    UnitResult,
    UnreadableError,
    of_sides,
    present,
    text_of,
    type_name,
)

CONTEXT_KEYS = (
    "conversations",
    "messages",
    "prompt",
    "instruction",
    "question",
    "query",
    "history",
)
TRANSCRIPT_KEYS = ("text", "transcript", "conversation", "dialogue", "prompt")
MARKER = re.compile(r"(?:\A\s*|\n\n)(Human|Assistant):[ \t]?")

# Raw messages, and metadata.
RawSide = tuple[list[Any], dict[str, Any]]
SideReader = Callable[[], RawSide]


def read_preference(row: SourceRow) -> UnitResult:
    """Read `prompt`, `chosen` and `rejected` in any of their forms; see `_sides`.

    Raises:
        UnreadableError: neither side can be read; the reason is the chosen side's.
    """
    return _two_sides(row, *_sides(row))


def _two_sides(row: SourceRow, sides: Iterable[SideReader], used: set[str]) -> UnitResult:
    def read(side: SideReader) -> Draft:
        raw, extra = side()
        return draft_of(row, raw, used, extra)

    readers = {name: partial(read, side) for name, side in zip(SIDES, sides, strict=True)}
    return of_sides(read_id(row)[0], readers)


def _sides(row: SourceRow) -> tuple[Iterable[SideReader], set[str]]:
    """Return the readers of the chosen and the rejected side, and the keys that they read.

    Known forms: `chosen_messages`/`rejected_messages`; OpenAI's `input` with `preferred_output` and
    `non_preferred_output`; ms-swift's `messages` with `rejected_response` or `rejected_messages`;
    `chosen`/`rejected` as text, message or list, after a prompt or as whole conversations.
    """
    if "chosen_messages" in row and "rejected_messages" in row:
        keys = ("chosen_messages", "rejected_messages")
        return [partial(_whole, row[key]) for key in keys], {*keys}
    if "preferred_output" in row and "non_preferred_output" in row:
        prompt = row.get("input")
        context = prompt.get("messages") if isinstance(prompt, dict) else None
        keys = ("preferred_output", "non_preferred_output")
        return [partial(_after, context, row[key]) for key in keys], {"input", *keys}
    if "messages" in row and ("rejected_response" in row or "rejected_messages" in row):
        return _swift_sides(row)
    if "chosen" not in row or "rejected" not in row:
        raise UnreadableError("missing_field", "no 'chosen' and 'rejected'")
    key = present(row, CONTEXT_KEYS)
    context = row[key] if key else None
    used = {"chosen", "rejected", *([key] if key else [])}
    if key == "instruction" and isinstance(context, str):
        input_text = text_of(row.get("input"), "input")
        context, used = f"{context}\n{input_text}" if input_text else context, used | {"input"}
    return [partial(_after, context, row[side]) for side in SIDES], used


def _swift_sides(row: SourceRow) -> tuple[Iterable[SideReader], set[str]]:
    key = "rejected_messages" if row.get("rejected_messages") is not None else "rejected_response"
    messages = decoded(row["messages"])

    def rejected() -> RawSide:
        if key == "rejected_messages":
            return _whole(row[key])
        if not isinstance(messages, list):
            raise UnreadableError("bad_type", f"'messages' is {type_name(messages)}")
        return _after(messages[:-1], row[key])

    used = {"messages", "rejected_messages", "rejected_response"}
    return (partial(_whole, messages), rejected), used


def _whole(side: Any) -> RawSide:
    return as_raw(side, "assistant", "the side"), {}


def _after(context: Any, side: Any) -> RawSide:
    """Return a side after its prompt; the side alone where it already is the whole conversation.

    A side with a user message is the whole conversation if it begins with the prompt, or if the prompt is one text. Such
    a text usually repeats a user message; where it does not, it becomes metadata.
    """
    answer = as_raw(side, "assistant", "the side")
    prompt = as_raw(context, "user", "the prompt") if context else []
    if any(_is_users(message) for message in answer):
        if answer[: len(prompt)] == prompt:
            return answer, {}
        if isinstance(context, str):
            return answer, {} if prompt[0] in answer else {"prompt": context}
    elif not prompt:
        raise UnreadableError(
            "missing_field", "the sides are replies, and there is no prompt before them"
        )
    return [*prompt, *answer], {}


def _is_users(message: Any) -> bool:
    if not isinstance(message, dict):
        return False
    role_name = next((message[key] for key in ROLE_KEYS if key in message), None)
    return isinstance(role_name, str) and ROLES.get(role_name.strip().lower()) == "user"


def read_hh(row: SourceRow) -> UnitResult:
    """Read transcripts in one string, alone or as `chosen` and `rejected`, with or without their own prompt.

    White space around a message belongs to the transcript's layout and is removed.
    """
    if "chosen" in row and "rejected" in row:
        prompt = text_of(row.get("prompt"), "prompt")
        sides = [partial(_read_transcript, prompt, row[side]) for side in SIDES]
        return _two_sides(row, sides, {*SIDES, *(["prompt"] if is_transcript(prompt) else [])})
    key = next((key for key in TRANSCRIPT_KEYS if is_transcript(row.get(key))), None)
    if key is None:
        raise UnreadableError("missing_field", "no text with 'Human:' and 'Assistant:' in it")
    return UnitResult(read_id(row)[0], (draft_of(row, split_transcript(row[key]), {key}),))


def _read_transcript(prompt: str, side: Any) -> RawSide:
    text = text_of(side, "the side")
    if not is_transcript(text) and is_transcript(prompt):
        # The prompt ends with an open "Assistant:" that the side answers.
        text = f"{prompt.rstrip()} {text}"
    if not is_transcript(text):
        raise UnreadableError(
            "shape_mismatch", "the side is no transcript with 'Human:' and 'Assistant:'"
        )
    return split_transcript(text), {}


def is_transcript(value: Any) -> bool:
    """Return whether a value is a text that begins with a speaker of hh's transcripts and has an assistant in it."""
    return isinstance(value, str) and MARKER.match(value) is not None and "Assistant:" in value


def split_transcript(text: str) -> list[Any]:
    """Split a transcript (see `is_transcript`), "\\n\\nHuman: …\\n\\nAssistant: …", into raw messages."""
    _, *pieces = MARKER.split(text)
    speakers, bodies = pieces[::2], pieces[1::2]
    return [
        {"role": "assistant" if speaker == "Assistant" else "user", "content": body.strip()}
        for speaker, body in zip(speakers, bodies, strict=True)
    ]
