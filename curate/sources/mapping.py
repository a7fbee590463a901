"""`source.mapping`: a shape of one's own, read by declaration instead of code.

A mapping says where the items of a conversation are, which messages each item gives and in what order, and
where the other fields of a dialogue stand. Selectors are dotted paths: `a.b`, `a[0]`, `a[*].b`,
and `["a.b"]` for a key with a dot in it; keys may hold spaces.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Annotated, Any

import orjson
from pydantic import AfterValidator, Field, model_validator

from curate.dialogue import Message, Role, ToolCall, split_thinking
from curate.records.config import Config
from curate.sources.fields import as_texts
from curate.sources.messages import read_arguments, read_role, read_tools
from curate.sources.unit_result import (
    Draft,
    Row,
    UnitResult,
    UnreadableError,
    checked,
    scalar_id,
    text_of,
    type_name,
)

STEP = re.compile(r"""\["([^"]*)"\]|\[(\*|-?\d+)\]|\.?([^.\[\]]+)""")


@lru_cache(maxsize=1024)
def parse_selector(selector: str) -> tuple[str | int | None, ...]:
    """Split a selector into steps: a key, an index, or None for `[*]`.

    Raises:
        ValueError: the selector is empty or malformed.
    """
    steps: list[str | int | None] = []
    position = 0
    while position < len(selector):
        match = STEP.match(selector, position)
        if match is None:
            raise ValueError(f"'{selector}' is no selector; write a.b, a[0], a[*].b or [\"a.b\"]")
        quoted, index, key = match.groups()
        steps.append(
            quoted if quoted is not None else key or (None if index == "*" else int(index))
        )
        position = match.end()
    if not steps:
        raise ValueError("a selector is empty")
    return tuple(steps)


def _check_selector(selector: str) -> str:
    parse_selector(selector)
    return selector


Selector = Annotated[str, AfterValidator(_check_selector)]


def select(value: Any, selector: str) -> Any:
    """What a selector points at: None where it points nowhere, a list where it has `[*]`."""
    steps = parse_selector(selector)
    found = [value]
    for step in steps:
        following: list[Any] = []
        for item in found:
            if step is None:
                following.extend(item if isinstance(item, list) else ())
            elif isinstance(step, int):
                inside = isinstance(item, list) and -len(item) <= step < len(item)
                following.extend([item[step]] if inside else ())
            elif isinstance(item, dict) and step in item:
                following.append(item[step])
        found = following
    if None in steps:
        return found
    return found[0] if found else None


class CallMapping(Config):
    """Tool calls inside an item. Each gives an assistant message with the call, then its result."""

    each: Selector = Field(description="The calls, within the item.")
    name: Selector
    arguments: Selector | None = None
    id: Selector | None = Field(None, description="Else `call_N`, by its place among the messages.")
    result: Selector | None = None
    error: Selector | None = Field(None, description="Where it is not null it is the result.")


class MessageMapping(Config):
    """One message that an item gives. Tool calls come before its text."""

    role: Role | None = Field(None, description="The role, where it is always the same.")
    role_from: Selector | None = Field(None, description="Where the role stands, within the item.")
    text: Selector
    strip_prefix: str | None = Field(
        None, description="Taken off the text, and the space after it."
    )
    reasoning: Selector | None = None
    calls: CallMapping | None = None
    optional: bool = Field(
        False, description="True: no message, and no fault, where text is missing."
    )

    @model_validator(mode="after")
    def _one_role(self) -> MessageMapping:
        if (self.role is None) == (self.role_from is None):
            raise ValueError("give either role or role_from")
        return self


class Mapping(Config):
    """How one row becomes one dialogue. Selectors under `messages` and `turn_labels` start at the item."""

    each: Selector = Field(description="The items of the conversation, such as `turns[*]`.")
    messages: tuple[MessageMapping, ...] = Field(min_length=1)
    roles: dict[str, Role] = Field(
        default_factory=dict, description="Role names of the data's own, beside the usual ones."
    )
    id: Selector | None = None
    system: Selector | None = Field(None, description="Text of a system message.")
    role_definition: Selector | None = None
    scenario: Selector | None = None
    tools: Selector | None = None
    evidence: Selector | None = None
    expected_outcomes: Selector | None = None
    reference: Selector | None = Field(
        None, description="Within the item: what would have been right."
    )
    emphasis: Selector | None = None
    group: Selector | None = None
    reward: Selector | None = None
    labels: dict[str, Selector] = Field(default_factory=dict)
    turn_labels: dict[str, Selector] = Field(
        default_factory=dict,
        description="Within the item; a label that is a list, one entry an item.",
    )
    metadata: dict[str, Selector] = Field(default_factory=dict)
    role_definition_text: str | None = Field(
        None, description="A constant, where the data has none."
    )
    scenario_text: str | None = Field(None, description="A constant, where the data has none.")
    constants: dict[str, Any] = Field(default_factory=dict, description="Added to the metadata.")

    def read(self, row: Row) -> UnitResult:
        """Apply the mapping to one row. Keys of the row that no selector names go to the metadata.

        Raises:
            UnreadableError: `missing_field`, `bad_type`, `unknown_role`, `empty`, `no_assistant`.
        """
        items = select(row, self.each)
        if not isinstance(items, list):
            items = [] if items is None else [items]
        if not items:
            raise UnreadableError("missing_field", f"mapping.each '{self.each}' points at nothing")
        messages: list[Message] = []
        references: list[tuple[str, ...]] = []
        for item in items:
            before = len(messages)
            for message in self.messages:
                messages.extend(_read_item(message, item, self.roles, len(messages)))
            if any(message.role == "assistant" for message in messages[before:]):
                references.append(_texts(item, self.reference))
        system = text_of(_at(row, self.system), "the system text")
        if system:
            messages.insert(0, Message(role="system", content=system))
        fields = self._fields(row)
        if any(references):
            fields["references"] = tuple(references)
        for name, selector in self.turn_labels.items():
            fields["labels"][name] = [select(item, selector) for item in items]
        identifier = scalar_id(_at(row, self.id))
        return UnitResult(identifier, (Draft(checked(tuple(messages)), fields),))

    def _fields(self, row: Row) -> dict[str, Any]:
        reward = _at(row, self.reward)
        tools = read_tools(_at(row, self.tools))
        if tools is None:
            raise UnreadableError(
                "bad_type", f"mapping.tools '{self.tools}' points at no tool schemas"
            )
        named = {
            "role_definition": _text(row, self.role_definition) or self.role_definition_text,
            "scenario": _text(row, self.scenario) or self.scenario_text,
            "emphasis": _text(row, self.emphasis),
            "group": scalar_id(_at(row, self.group)),
            "reward": float(reward) if isinstance(reward, int | float) else None,
        }
        used = {
            str(parse_selector(selector)[0])
            for selector in (
                self.each,
                *(getattr(self, name) for name in _ROW_SELECTORS),
                *self.labels.values(),
                *self.metadata.values(),
            )
            if selector is not None
        }
        rest = {key: value for key, value in row.items() if key not in used and value is not None}
        chosen = {name: select(row, selector) for name, selector in self.metadata.items()}
        return {
            **{name: value for name, value in named.items() if value is not None},
            "tools": tools,
            "evidence": _texts(row, self.evidence),
            "expected_outcomes": _texts(row, self.expected_outcomes),
            "labels": {name: select(row, selector) for name, selector in self.labels.items()},
            "metadata": {**rest, **chosen, **self.constants},
        }


_ROW_SELECTORS = (
    "id",
    "system",
    "role_definition",
    "scenario",
    "tools",
    "evidence",
    "expected_outcomes",
    "emphasis",
    "group",
    "reward",
)


def _read_item(
    mapping: MessageMapping, item: Any, roles: dict[str, Role], position: int
) -> list[Message]:
    if not isinstance(item, dict):
        raise UnreadableError("bad_type", f"an item of the conversation is {type_name(item)}")
    role = mapping.role or _role(select(item, mapping.role_from or ""), roles)
    messages = _read_calls(mapping.calls, item, position) if mapping.calls else []
    said = select(item, mapping.text)
    if said is None and (mapping.optional or messages):
        return messages
    if said is None:
        raise UnreadableError("missing_field", f"an item has no '{mapping.text}'")
    text = text_of(said, mapping.text)
    if mapping.strip_prefix and text.startswith(mapping.strip_prefix.rstrip()):
        text = text[len(mapping.strip_prefix.rstrip()) :].lstrip()
    thoughts = text_of(select(item, mapping.reasoning), "reasoning") if mapping.reasoning else None
    if role == "assistant":
        text, found = split_thinking(text)
        thoughts = "\n\n".join(part for part in (thoughts, found) if part)
    return [*messages, Message(role=role, content=text, reasoning=thoughts or None)]


def _role(said: Any, roles: dict[str, Role]) -> Role:
    own = roles.get(said) if isinstance(said, str) else None
    return own or read_role(said)


def _read_calls(mapping: CallMapping, item: dict[str, Any], position: int) -> list[Message]:
    raw = select(item, mapping.each)
    messages: list[Message] = []
    for call in raw if isinstance(raw, list) else []:
        name = _text(call, mapping.name)
        if not name:
            raise UnreadableError("missing_field", f"a tool call has no '{mapping.name}'")
        given_id = scalar_id(select(call, mapping.id)) if mapping.id else None
        call_id = given_id or f"call_{position + len(messages) + 1}"
        arguments = read_arguments(_at(call, mapping.arguments))
        made = ToolCall(name=name, arguments=arguments, id=call_id)
        messages.append(Message(role="assistant", tool_calls=(made,)))
        error = _at(call, mapping.error)
        result = {"error": error} if error is not None else _at(call, mapping.result)
        if mapping.result or error is not None:
            content = result if isinstance(result, str) else orjson.dumps(result).decode()
            messages.append(Message(role="tool", content=content, name=name, tool_call_id=call_id))
    return messages


def _at(value: Any, selector: str | None) -> Any:
    return select(value, selector) if selector else None


def _text(value: Any, selector: str | None) -> str | None:
    return text_of(_at(value, selector), selector or "") or None


def _texts(value: Any, selector: str | None) -> tuple[str, ...]:
    found = _at(value, selector)
    if found is None:
        return ()
    texts = as_texts(found)
    if texts is None:
        raise UnreadableError("bad_type", f"'{selector}' is {type_name(found)}, text was expected")
    return texts
