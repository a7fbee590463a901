"""What several trainers take, or cannot carry and refuse, in one way; and thinking where it is part of the text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from curate.export.template_messages import Refused
from curate.export.trainer_module import Row

Wire = Mapping[str, Any]


def as_it_is(row: Row) -> Row:
    """The row of a trainer that takes what the stream has."""
    return row


def messages_of(row: Row) -> Iterator[Wire]:
    """Every message of a row, of whatever stream."""
    for column in ("messages", "prompt", "completion", "chosen", "rejected"):
        yield from row.get(column, ())


def refuse_tools(row: Row, because: str) -> None:
    """Refuse a row that offers tools, calls one or holds a result.

    Args:
        row: of any stream.
        because: why the trainer cannot carry them.

    Raises:
        Refused: `tools_not_carried`.
    """
    if "tools" in row:
        raise Refused("tools_not_carried", f"tools are offered, and {because}")
    for message in messages_of(row):
        if "tool_calls" in message or message["role"] == "tool":
            what = "a tool is called" if "tool_calls" in message else "a tool answers"
            raise Refused("tools_not_carried", f"{what}, and {because}")


def refuse_reasoning(row: Row, because: str) -> None:
    """Refuse a row whose thinking is to be kept; without `keep_reasoning` no row has any.

    Raises:
        Refused: `reasoning_not_carried`.
    """
    if any("reasoning_content" in message for message in messages_of(row)):
        raise Refused(
            "reasoning_not_carried", f"a message has thinking that is to be kept, and {because}"
        )


def bare(message: Wire) -> dict[str, Any]:
    """Role and content only, for a trainer that reads nothing else."""
    return {"role": message["role"], "content": message["content"]}


def thinking_and_text(message: Wire) -> str:
    """The content, thinking before it as a `<think>` block where it was kept."""
    thinking = message.get("reasoning_content")
    if thinking is None:
        return str(message["content"])
    return f"<think>\n{thinking}\n</think>\n\n{message['content']}"
