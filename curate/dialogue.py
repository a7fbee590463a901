"""The one input record, and how its turns are numbered.

Every source is normalised to `Dialogue`; every later stage reads nothing else. The records are frozen,
so a dialogue can be shared between stages and its content hash stays true.
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
"""Where a role definition is from: a field of the data, its system message, or the recipe."""

_THINKING = re.compile(
    r"(?<!`)<think(?:ing)?>(?:(.*?)</think(?:ing)?>|.*)", re.DOTALL | re.IGNORECASE
)
"""A block of thinking, unless the text only talks about the tag (in backticks). One that is never closed is the rest of
the text, without a group: else each of many such tags would be looked behind to the end."""
_OPENED_BEFORE = re.compile(
    r"\A((?:(?!<think).)*?)(?<!`)</think(?:ing)?>(?:\s*\n|\s*\Z|(?=\w))", re.DOTALL | re.IGNORECASE
)
"""Templates that write the opening tag into the prompt leave a reply with the closing one only."""
_NEVER_CLOSED = re.compile(r"\A\s*<think(?:ing)?>(.*)\Z", re.DOTALL | re.IGNORECASE)

_UNSEEN = {"id", "group", "reward", "labels", "metadata", "lineage"}
"""Fields of a dialogue that no judge is shown."""


class Frozen(BaseModel):
    """Base of every record: immutable, unknown keys refused."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class ToolCall(Frozen):
    """One call of a tool by the assistant."""

    name: str
    arguments: dict[str, Any] | str = Field(
        default_factory=dict, description="The parsed object; the raw text where it is not one."
    )
    id: str | None = None


class Message(Frozen):
    """One message. `content` is text; a null content is the empty string."""

    role: Role
    content: str = ""
    name: str | None = None
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None
    reasoning: str | None = Field(None, description="Thinking that was parsed off the content.")


class Lineage(Frozen):
    """Where a dialogue came from. `rows` count from 1 within `file`."""

    source: str
    file: str
    rows: tuple[int, ...]
    part: str | None = Field(
        None, description="Which part of the row: a path of a tree, 'chosen', …"
    )
    role_from: RoleOrigin | None = Field(
        None,
        description="Where the role definition is from: a field of the data, its system message, or the "
        "recipe. Null where there is none.",
    )


class Dialogue(Frozen):
    """A conversation with everything the data says about it."""

    id: str
    messages: tuple[Message, ...]
    role_definition: str | None = None
    scenario: str | None = None
    tools: tuple[dict[str, Any], ...] = ()
    expected_outcomes: tuple[str, ...] = ()
    expected_tools: tuple[ToolCall, ...] = ()
    references: tuple[tuple[str, ...], ...] = Field(
        (), description="Per assistant turn, in order: texts that would have been right."
    )
    evidence: tuple[str, ...] = ()
    emphasis: str | None = Field(None, description="What to weigh when this dialogue is judged.")
    group: str | None = Field(None, description="Task or tree id shared by alternatives.")
    reward: float | None = None
    labels: dict[str, Any] = Field(default_factory=dict)
    metadata: dict[str, Any] = Field(default_factory=dict)
    lineage: Lineage | None = None

    @classmethod
    def from_json(cls, line: bytes, content_hash: str) -> Self:
        """Read a dialogue whose content hash is known already; working it out takes as long as reading.

        Raises:
            ValueError: the line is no dialogue.
        """
        dialogue = cls.model_validate_json(line)
        dialogue.__dict__["content_hash"] = content_hash
        return dialogue

    @cached_property
    def content_hash(self) -> str:
        """128-bit hash (32 hex digits) of what a judge can see: not of id, labels, metadata or lineage."""
        seen = self.model_dump(
            mode="json",
            exclude=_UNSEEN,
            exclude_defaults=True,
        )
        return hashlib.blake2b(
            orjson.dumps(seen, option=orjson.OPT_SORT_KEYS), digest_size=16
        ).hexdigest()

    @cached_property
    def turns(self) -> tuple[Turn, ...]:
        """The dialogue's turns in order; see `number_turns`."""
        return number_turns(self.messages)

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """As pydantic's, but what was worked out from the fields is worked out anew where one has changed."""
        copied = super().model_copy(update=update, deep=deep)
        changed = set(update or ())
        if changed - _UNSEEN:
            copied.__dict__.pop("content_hash", None)
        if "messages" in changed:
            copied.__dict__.pop("turns", None)
        return copied

    @property
    def system_text(self) -> str | None:
        """The text of the leading system messages, or None."""
        return leading_system_text(self.messages)

    def _repr_html_(self) -> str:
        return cell(*dialogue_parts(self.model_dump(), self.turn_spans))

    @property
    def turn_spans(self) -> list[tuple[int, int, int]]:
        """Of each turn its number, its first message and the one after its last."""
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
        """Index after the turn's last message in the dialogue."""
        return self.start + len(self.messages)

    @property
    def has_assistant(self) -> bool:
        """True when there is something to score."""
        return any(message.role == "assistant" for message in self.messages)

    @property
    def in_rubric(self) -> bool:
        """True when the rubric scores this turn (turn 0 is shown, never scored)."""
        return self.number > 0 and self.has_assistant

    @property
    def last_assistant_text(self) -> int | None:
        """Index in the dialogue of the turn's last assistant message with text and no tool call, or None."""
        for offset in range(len(self.messages) - 1, -1, -1):
            message = self.messages[offset]
            if message.role == "assistant" and message.content.strip() and not message.tool_calls:
                return self.start + offset
        return None


def split_thinking(text: str) -> tuple[str, str | None]:
    """Parse `<think>` blocks off what an assistant wrote, in data and in replies alike.

    Returns:
        The text without them, and the thinking (None where there is none). A block that is never closed
        leaves no text; one that was never opened is everything before the closing tag. A text that has
        none, or talks about the tags in backticks, stays as it is.
    """
    if "think" not in text.lower():
        return text, None
    blocks = [found[1].strip() for found in _THINKING.finditer(text) if found[1] is not None]
    rest = _THINKING.sub(_unclosed, text) if blocks else text
    for pattern in (_OPENED_BEFORE, _NEVER_CLOSED):
        match = pattern.match(rest)
        if match:
            blocks.append(match[1].strip())
            rest = rest[match.end() :]
    if not blocks:
        return text, None
    return rest.strip(), "\n\n".join(block for block in blocks if block) or None


def _unclosed(found: re.Match[str]) -> str:
    return found[0] if found[1] is None else ""


def function_tool(tool: Mapping[str, Any]) -> dict[str, Any]:
    """A tool definition in OpenAI's function form; a bare function and Anthropic's `input_schema` are brought
    into it. What a policy is offered and what is exported is this form."""
    if isinstance(tool.get("function"), Mapping):
        return {"type": "function", **tool}
    bare = {
        ("parameters" if key == "input_schema" else key): value
        for key, value in tool.items()
        if key != "type"
    }
    return {"type": "function", "function": bare}


def leading_system_text(messages: tuple[Message, ...]) -> str | None:
    """The text of the leading system messages, or None."""
    system = takewhile(lambda message: message.role == "system", messages)
    return "\n\n".join(message.content for message in system if message.content) or None


def number_turns(messages: tuple[Message, ...]) -> tuple[Turn, ...]:
    """Split messages into turns.

    A leading run of system messages belongs to no turn. Assistant (and tool) messages before any user
    message form turn 0. A user message always opens a new turn, so two user messages in a row give a
    turn without an assistant message, which is numbered and never scored.
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
