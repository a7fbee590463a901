"""The one input record, and how its turns are numbered.

Every source is normalised to `Dialogue`; every later stage reads nothing else. The records are frozen, so a
dialogue can be shared between stages and its content hash stays valid.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import takewhile
from typing import Any, Literal, Self

import orjson
from pydantic import BaseModel, ConfigDict, Field

from curate.notebook import cell, dialogue_parts

Role = Literal["system", "user", "assistant", "tool"]
RoleOrigin = Literal["field", "system", "recipe"]
"""Where a role definition comes from: a field of the data, its system message, or the recipe."""

_THINKING = re.compile(
    r"(?<!`)<think(?:ing)?>(?:(.*?)</think(?:ing)?>|.*)", re.DOTALL | re.IGNORECASE
)
"""A block of thinking, unless the text only mentions the tag (in backticks). A block that is never closed matches the
rest of the text, without a group: otherwise many such tags would each be searched to the end."""
_OPENED_BEFORE = re.compile(
    r"\A((?:(?!<think).)*?)(?<!`)</think(?:ing)?>(?:\s*\n|\s*\Z|(?=\w))", re.DOTALL | re.IGNORECASE
)
"""Templates that write the opening tag into the prompt leave a reply with the closing one only."""
_NEVER_CLOSED = re.compile(r"\A\s*<think(?:ing)?>(.*)\Z", re.DOTALL | re.IGNORECASE)

_UNSEEN = {"id", "group", "reward", "labels", "metadata", "lineage"}
"""Fields of a dialogue that no judge sees."""


class Frozen(BaseModel):
    """Base of every record: immutable, unknown keys refused."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class ToolCall(Frozen):
    """One call of a tool by the assistant."""

    name: str = Field(description="Name of the tool.")
    arguments: dict[str, Any] | str = Field(
        default_factory=dict,
        description="The arguments as an object; the raw text if it is not a JSON object.",
    )
    id: str | None = Field(None, description="Id of the call, which the tool's result refers to.")


class Message(Frozen):
    """One message of a dialogue."""

    role: Role = Field(description="Who speaks.")
    content: str = Field(
        "", description="The text; a null content in the data is the empty string."
    )
    name: str | None = Field(
        None, description="Name of the speaker or tool, if the data gives one."
    )
    tool_calls: tuple[ToolCall, ...] = Field(
        (), description="Tool calls that the assistant makes in this message."
    )
    tool_call_id: str | None = Field(
        None, description="For a tool's result: id of the call it answers."
    )
    reasoning: str | None = Field(
        None, description="The assistant's thinking, separated from the content."
    )


class Lineage(Frozen):
    """Where a dialogue came from."""

    source: str = Field(description="Name of the source in the recipe.")
    file: str = Field(description="File within the source.")
    rows: tuple[int, ...] = Field(description="Numbers of the rows in the file, counted from 1.")
    part: str | None = Field(
        None,
        description="Part of the row, if it gives several dialogues: the path of a tree, `chosen`, …",
    )
    role_from: RoleOrigin | None = Field(
        None,
        description="Where the role definition comes from: `field` of the data, its `system` message, or "
        "the `recipe`; null if there is none.",
    )


class Dialogue(Frozen):
    """A conversation with everything that the data says about it."""

    id: str = Field(description="Id of the dialogue.")
    messages: tuple[Message, ...] = Field(description="The messages in order.")
    role_definition: str | None = Field(
        None, description="The role that the assistant should keep to."
    )
    scenario: str | None = Field(
        None, description="The situation that the dialogue takes place in."
    )
    tools: tuple[dict[str, Any], ...] = Field(
        (), description="Schemas of the tools that the assistant can call."
    )
    expected_outcomes: tuple[str, ...] = Field(
        (), description="Outcomes that the dialogue should reach."
    )
    expected_tools: tuple[ToolCall, ...] = Field(
        (), description="Tool calls that the assistant should make."
    )
    references: tuple[tuple[str, ...], ...] = Field(
        (), description="Texts that would have been correct, for each assistant turn in order."
    )
    evidence: tuple[str, ...] = Field((), description="Texts that facts can be checked against.")
    emphasis: str | None = Field(
        None, description="What a judge should weigh most in this dialogue."
    )
    group: str | None = Field(None, description="Task or tree id that alternative dialogues share.")
    reward: float | None = Field(
        None, description="Reward of the trajectory, in the data's own unit."
    )
    labels: dict[str, Any] = Field(
        default_factory=dict, description="Labels of the data by name; no judge sees them."
    )
    metadata: dict[str, Any] = Field(
        default_factory=dict, description="Other fields of the data; no judge sees them."
    )
    lineage: Lineage | None = Field(None, description="Where the dialogue came from.")

    @classmethod
    def from_json(cls, line: bytes, content_hash: str) -> Self:
        """Read a dialogue whose content hash is already known, since computing it takes as long as reading.

        Raises:
            ValueError: the line is not a dialogue.
        """
        dialogue = cls.model_validate_json(line)
        dialogue.__dict__["content_hash"] = content_hash
        return dialogue

    @cached_property
    def content_hash(self) -> str:
        """Return a 128-bit hash (32 hex digits) of what a judge can see; id, labels, metadata and lineage are not part of it."""
        content = self.model_dump(mode="json", exclude=_UNSEEN, exclude_defaults=True)
        text = orjson.dumps(content, option=orjson.OPT_SORT_KEYS)
        return hashlib.blake2b(text, digest_size=16).hexdigest()

    @cached_property
    def turns(self) -> tuple[Turn, ...]:
        """Return the dialogue's turns in order; see `number_turns`."""
        return number_turns(self.messages)

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """Copy as pydantic does, and drop cached values computed from a field that changes."""
        copied = super().model_copy(update=update, deep=deep)
        changed = set(update or ())
        if changed - _UNSEEN:
            copied.__dict__.pop("content_hash", None)
        if "messages" in changed:
            copied.__dict__.pop("turns", None)
        return copied

    def _repr_html_(self) -> str:
        return cell(*dialogue_parts(self.model_dump(), self.turn_spans))

    @property
    def turn_spans(self) -> list[tuple[int, int, int]]:
        """Return, for each turn, its number, the index of its first message and the index after its last."""
        return [(turn.number, turn.start, turn.stop) for turn in self.turns]


@dataclass(frozen=True, slots=True)
class Turn:
    """A user message and all that follows it until the next one.

    Turn 0 holds assistant messages before any user message; it exists only where there are some.

    Attributes:
        number: counts from 1 (0 as above).
        start: index of the turn's first message in the dialogue.
        messages: the turn's messages, tool calls and results included.
    """

    number: int
    start: int
    messages: tuple[Message, ...]

    @property
    def stop(self) -> int:
        """Return the index after the turn's last message in the dialogue."""
        return self.start + len(self.messages)

    @property
    def has_assistant(self) -> bool:
        """Return whether the turn has an assistant message, so that it can be scored."""
        return any(message.role == "assistant" for message in self.messages)

    @property
    def in_rubric(self) -> bool:
        """Return whether the rubric scores this turn (turn 0 is shown but never scored)."""
        return self.number > 0 and self.has_assistant

    @property
    def last_assistant_text(self) -> int | None:
        """Return the index in the dialogue of the turn's last assistant message with text and no tool call, or None."""
        for offset in range(len(self.messages) - 1, -1, -1):
            message = self.messages[offset]
            if message.role == "assistant" and message.content.strip() and not message.tool_calls:
                return self.start + offset
        return None


def split_thinking(text: str) -> tuple[str, str | None]:
    """Split `<think>` blocks off a text of the assistant, in data and in replies alike.

    Returns:
        The text without the blocks, and the thinking (None if there is none). A block that is never closed leaves no
        text; for one that is never opened, everything before the closing tag is thinking. A text without tags, or that
        mentions them in backticks, is returned unchanged.
    """
    if "think" not in text.lower():
        return text, None
    blocks = [match[1].strip() for match in _THINKING.finditer(text) if match[1] is not None]
    rest = _THINKING.sub(_unclosed, text) if blocks else text
    for pattern in (_OPENED_BEFORE, _NEVER_CLOSED):
        match = pattern.match(rest)
        if match:
            blocks.append(match[1].strip())
            rest = rest[match.end() :]
    if not blocks:
        return text, None
    return rest.strip(), "\n\n".join(block for block in blocks if block) or None


def _unclosed(match: re.Match[str]) -> str:
    return match[0] if match[1] is None else ""


def function_tool(tool: Mapping[str, Any]) -> dict[str, Any]:
    """Return a tool definition in OpenAI's function form.

    A bare function and Anthropic's `input_schema` are converted. Policies and exports get this form.
    """
    if isinstance(tool.get("function"), Mapping):
        return {"type": "function", **tool}
    bare = {
        ("parameters" if key == "input_schema" else key): value
        for key, value in tool.items()
        if key != "type"
    }
    return {"type": "function", "function": bare}


def leading_system_text(messages: tuple[Message, ...]) -> str | None:
    """Return the text of the leading system messages, or None."""
    system = takewhile(lambda message: message.role == "system", messages)
    return "\n\n".join(message.content for message in system if message.content) or None


def number_turns(messages: tuple[Message, ...]) -> tuple[Turn, ...]:
    """Split messages into turns.

    System messages at the start belong to no turn. Assistant (and tool) messages before any user message form turn
    0. A user message always opens a new turn, so two user messages in a row give a turn without an assistant message,
    which is numbered and never scored.
    """
    turns: list[Turn] = []
    number, start = 0, None
    for index, message in enumerate(messages):
        if message.role == "user":
            if start is not None:
                turns.append(Turn(number, start, messages[start:index]))
            number, start = number + 1, index
        elif start is None and message.role != "system":
            start = index
    if start is not None:
        turns.append(Turn(number, start, messages[start:]))
    return tuple(turns)
