"""`source.mapping`: a declaration of how to read a shape that curate does not know.

A mapping gives selectors (see `selectors`) for the items of a conversation, for the messages of each item in order, and
for the other fields of a dialogue. Items that it leaves out are counted. Fields that no selector names are kept in the
metadata: those of the row under their own names, those of the items under `per_item`.
"""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import Any, Literal

import orjson
from pydantic import Field, model_validator

from curate.dialogue import Message, ToolCall, split_thinking
from curate.records.config import Config
from curate.sources.fields import as_texts
from curate.sources.mapping_parts import Answers, CallMapping, Join, MessageMapping
from curate.sources.messages import (
    READ_KEYS,
    ROLE_KEYS,
    RoleOrSkip,
    Roles,
    RolesInOrder,
    SpeakerRoles,
    Speakers,
    read_arguments,
    read_calls,
    read_messages,
    read_tools,
)
from curate.sources.selectors import (
    Conditions,
    Parse,
    Selector,
    first_failing,
    first_key,
    select_value,
)
from curate.sources.transcripts import split_at_marks, split_at_names
from curate.sources.unit_result import (
    Draft,
    SourceRow,
    UnitResult,
    UnreadableError,
    checked,
    of_sides,
    present,
    scalar_id,
    text_of,
    type_name,
)


class Mapping(Config):
    """How one row becomes one dialogue. Selectors under `messages`, `where`, `reference` and `turn_labels` start
    at the item, those under `rows` at what the file holds, all others at the row."""

    rows: Selector | None = Field(
        None,
        description="Selector of the rows in the file's content: `*` for the values of an object, each "
        "with its key as id; `data[*]`; `.` if the whole file is one row, with its entries "
        "under `items`.",
    )
    parse: Parse | None = Field(
        None,
        description="Format of text that a selector has to look into: JSON, or lists and dicts as Python "
        "prints them.",
    )
    join: Join | None = Field(None, description="Another file whose rows are added by a shared id.")
    each: Selector | dict[str, Selector] | None = Field(
        None,
        description="Selector of the conversation's items, such as `turns[*]`; or several lists of the "
        "same length, whose entries become items with these names. Optional where `answers` "
        "are whole conversations.",
    )
    split: Roles | Literal["names"] = Field(
        default_factory=dict,
        description="If `each` is a transcript, or texts that begin with their speaker: the marks in it, "
        "such as `User:`, and their roles; `names` if lines begin with a name, whose role "
        "`roles` or `in_order` gives.",
    )
    where: Conditions = Field(
        default_factory=dict,
        description="Conditions on items; items that do not meet them are left out.",
    )
    messages: tuple[MessageMapping, ...] = Field(
        (),
        description="Messages that each item gives. By default each item is a message in one of the usual "
        "formats.",
    )
    roles: SpeakerRoles = Field(default_factory=dict)
    in_order: RolesInOrder = ()
    answers: Answers | None = Field(
        None, description="Two alternative answers to the conversation."
    )
    id: Selector | None = Field(None, description="Selector of the dialogue's id.")
    system: Selector | None = Field(None, description="Selector of the text of a system message.")
    role_definition: Selector | None = Field(None, description="Selector of the role definition.")
    scenario: Selector | None = Field(None, description="Selector of the scenario.")
    tools: Selector | None = Field(None, description="Selector of the tool schemas.")
    evidence: Selector | None = Field(
        None, description="Selector of texts that facts can be checked against."
    )
    expected_outcomes: Selector | None = Field(
        None, description="Selector of the outcomes that the dialogue should reach."
    )
    expected_tools: Selector | None = Field(
        None,
        description="Selector of the calls that should be made: {name, arguments}, in one of the usual "
        "formats.",
    )
    reference: Selector | None = Field(
        None, description="Selector of a correct answer, within the item."
    )
    emphasis: Selector | None = Field(
        None, description="Selector of what the judge should weigh most."
    )
    group: Selector | None = Field(
        None, description="Selector of the task or tree id that alternatives share."
    )
    reward: Selector | None = Field(None, description="Selector of the reward, a number.")
    labels: dict[str, Selector] = Field(
        default_factory=dict, description="Selectors of labels of the dialogue, by name."
    )
    turn_labels: dict[str, Selector] = Field(
        default_factory=dict,
        description="Selectors of labels within the item, by name; each gives a list with one entry per "
        "item.",
    )
    metadata: dict[str, Selector] = Field(
        default_factory=dict, description="Selectors of values to keep as metadata, by name."
    )
    role_definition_text: str | None = Field(
        None, description="Role definition for dialogues without one in the data."
    )
    scenario_text: str | None = Field(
        None, description="Scenario for dialogues without one in the data."
    )
    constants: dict[str, Any] = Field(
        default_factory=dict, description="Values added to the metadata of every dialogue."
    )

    @model_validator(mode="after")
    def _reads_something(self) -> Mapping:
        if self.each is None and self.answers is None:
            raise ValueError("give `each`: where the items of a conversation are")
        if self.split and (self.messages or not isinstance(self.each, str)):
            raise ValueError("`split` stands beside `each: a text`, without messages")
        if isinstance(self.split, dict) and self.split and self.in_order:
            raise ValueError("`split` says each mark's role; in_order is for `split: names`")
        return self

    def read(self, row: SourceRow) -> UnitResult:
        """Apply the mapping to one row.

        Raises:
            UnreadableError: `missing_field`, `bad_type`, `unknown_role`, `empty`, `empty_user`, `no_assistant`.
        """
        marks = self.split if isinstance(self.split, dict) else {}
        speakers = Speakers({**self.roles, **marks}, self.in_order)
        items = self._filtered(self._items(row), speakers.left_out) if self.each else []
        messages, references = self._messages(items, speakers)
        system = text_of(self._at(row, self.system), "the system text")
        if system:
            messages.insert(0, Message(role="system", content=system))
        fields = self._fields(row, items)
        if any(references):
            fields["references"] = tuple(references)
        identifier = scalar_id(self._at(row, self.id))
        if self.answers is not None:
            return self._two_sides(row, messages, fields, identifier, speakers.left_out)
        drafts = (Draft(checked(tuple(messages)), fields),)
        return UnitResult(identifier, drafts, left_out=speakers.left_out)

    # ---- items ----------------------------------------------------------------------------------

    def _items(self, row: SourceRow) -> list[Any]:
        """Return all items of the conversation, before `where` is applied."""
        if isinstance(self.each, dict):
            return self._zipped(row, self.each)
        each = self.each or ""
        items = select_value(row, each, self.parse)
        if self.split and items is not None:
            return self._pieces(items if isinstance(items, list) else [items])
        if not isinstance(items, list):
            items = [] if items is None else [items]
        if not items:
            raise UnreadableError("missing_field", f"mapping.each '{each}' points at nothing")
        return items

    def _pieces(self, texts: list[Any]) -> list[Any]:
        """Return the pieces of a transcript, or of a list of texts, each with its speaker's mark."""
        pieces: list[Any] = []
        for value in texts:
            text = text_of(value, f"'{self.each}'")
            by_names = not isinstance(self.split, dict)
            cut = split_at_names(text) if by_names else split_at_marks(text, [*self.split])
            pieces += [{"mark": mark, "text": piece} for mark, piece in cut]
        return pieces

    def _zipped(self, row: SourceRow, each: dict[str, Selector]) -> list[Any]:
        columns = {name: select_value(row, selector, self.parse) for name, selector in each.items()}
        for name, column in columns.items():
            if not isinstance(column, list) or not column:
                raise UnreadableError("missing_field", f"mapping.each '{each[name]}' is no list")
        lengths = {name: len(column) for name, column in columns.items()}
        if len(set(lengths.values())) > 1:
            length_list = ", ".join(f"{name} {length}" for name, length in lengths.items())
            raise UnreadableError(
                "bad_type", f"the lists of mapping.each differ in length: {length_list}"
            )
        return [
            dict(zip(columns, entry, strict=True)) for entry in zip(*columns.values(), strict=True)
        ]

    def _filtered(self, items: list[Any], left_out: Counter[str]) -> list[Any]:
        """Return the items that meet `where`, and count the others in `left_out`."""
        matching = []
        for item in items:
            failing = first_failing(self.where, item, self.parse) if self.where else None
            if failing is not None:
                left_out[f"items by where.{failing}"] += 1
            else:
                matching.append(item)
        return matching

    def _messages(
        self, items: list[Any], speakers: Speakers
    ) -> tuple[list[Message], list[tuple[str, ...]]]:
        """Return the messages of the items, and the references of the items that give an assistant message."""
        messages: list[Message] = []
        references: list[tuple[str, ...]] = []
        for place, item in enumerate(items):
            before = len(messages)
            if self.split:
                messages += _message(speakers.role(item["mark"]), item["text"])
            elif not self.messages:
                messages += _usual(item, speakers)
            for mapping in self.messages:
                messages += self._read_item(mapping, item, place, speakers, len(messages))
            if any(message.role == "assistant" for message in messages[before:]):
                references.append(self._texts(item, self.reference))
        return messages, references

    def _read_item(
        self, mapping: MessageMapping, item: Any, place: int, speakers: Speakers, position: int
    ) -> list[Message]:
        is_text = isinstance(item, str) and self.parse is not None
        if not isinstance(item, dict) and not is_text and first_key(mapping.text) is not None:
            raise UnreadableError("bad_type", f"an item of the conversation is {type_name(item)}")
        if mapping.role_from is not None:
            role = speakers.role(select_value(item, mapping.role_from, self.parse))
            if role == "skip":
                return []
        elif mapping.role_in_turn:
            role = mapping.role_in_turn[place % len(mapping.role_in_turn)]
        else:
            role = mapping.role or "user"
        messages = self._read_calls(mapping.calls, item, position) if mapping.calls else []
        value = select_value(item, mapping.text, self.parse)
        if value is None and (mapping.optional or messages):
            return messages
        if value is None:
            raise UnreadableError("missing_field", f"an item has no '{mapping.text}'")
        text = text_of(value, mapping.text)
        if mapping.strip_prefix and text.startswith(mapping.strip_prefix.rstrip()):
            text = text[len(mapping.strip_prefix.rstrip()) :].lstrip()
        thoughts = text_of(self._at(item, mapping.reasoning), "reasoning")
        return [*messages, *_message(role, text, thoughts)]

    def _read_calls(self, mapping: CallMapping, item: Any, position: int) -> list[Message]:
        raw = select_value(item, mapping.each, self.parse)
        messages: list[Message] = []
        for call in raw if isinstance(raw, list) else []:
            name = self._text(call, mapping.name)
            if not name:
                raise UnreadableError("missing_field", f"a tool call has no '{mapping.name}'")
            given_id = scalar_id(self._at(call, mapping.id))
            call_id = given_id or f"call_{position + len(messages) + 1}"
            arguments = read_arguments(self._at(call, mapping.arguments))
            tool_call = ToolCall(name=name, arguments=arguments, id=call_id)
            messages.append(Message(role="assistant", tool_calls=(tool_call,)))
            error = self._at(call, mapping.error)
            result = {"error": error} if error is not None else self._at(call, mapping.result)
            if mapping.result or error is not None:
                content = result if isinstance(result, str) else orjson.dumps(result).decode()
                messages.append(
                    Message(role="tool", content=content, name=name, tool_call_id=call_id)
                )
        return messages

    # ---- alternatives ---------------------------------------------------------------------------

    def _two_sides(
        self,
        row: SourceRow,
        messages: list[Message],
        fields: dict[str, Any],
        identifier: str | None,
        left_out: Counter[str],
    ) -> UnitResult:
        answers = self.answers
        assert answers is not None
        names = ["first", "second"]
        if first_failing(answers.first_better, row, self.parse) is None:
            names = ["chosen", "rejected"]
        elif first_failing(answers.second_better, row, self.parse) is None:
            names = ["rejected", "chosen"]

        def read(selector: Selector) -> Draft:
            return Draft(checked((*messages, *self._side(row, selector))), {**fields})

        sides = {
            name: partial(read, selector) for name, selector in zip(names, answers.of, strict=True)
        }
        return of_sides(identifier, sides, left_out)

    def _side(self, row: SourceRow, selector: Selector) -> list[Message]:
        answer = select_value(row, selector, self.parse)
        if isinstance(answer, list):
            speakers = Speakers(self.roles, self.in_order)
            return [message for item in answer for message in _usual(item, speakers)]
        if answer is None:
            raise UnreadableError("missing_field", f"no '{selector}'")
        return _message("assistant", text_of(answer, selector))

    # ---- fields beside the messages -------------------------------------------------------------

    def _fields(self, row: SourceRow, items: list[Any]) -> dict[str, Any]:
        reward = self._at(row, self.reward)
        tools = read_tools(self._at(row, self.tools))
        if tools is None:
            raise UnreadableError(
                "bad_type", f"mapping.tools '{self.tools}' points at no tool schemas"
            )
        values = {
            "role_definition": self._text(row, self.role_definition) or self.role_definition_text,
            "scenario": self._text(row, self.scenario) or self.scenario_text,
            "emphasis": self._text(row, self.emphasis),
            "group": scalar_id(self._at(row, self.group)),
            "reward": float(reward) if isinstance(reward, int | float) else None,
        }
        labels = {name: self._at(row, selector) for name, selector in self.labels.items()}
        for name, selector in self.turn_labels.items():
            labels[name] = [self._at(item, selector) for item in items]
        expected_calls = read_calls(self._at(row, self.expected_tools), "mapping.expected_tools")
        return {
            **{name: value for name, value in values.items() if value is not None},
            "tools": tools,
            "evidence": self._texts(row, self.evidence),
            "expected_outcomes": self._texts(row, self.expected_outcomes),
            "expected_tools": tuple(expected_calls),
            "labels": labels,
            "metadata": self._metadata(row, items),
        }

    def _metadata(self, row: SourceRow, items: list[Any]) -> dict[str, Any]:
        """Return the fields that no selector names, with those of `metadata` and `constants`."""
        each = self.each.values() if isinstance(self.each, dict) else (self.each,)
        sides = self.answers.of if self.answers else ()
        fields = (getattr(self, name) for name in _ROW_SELECTORS)
        label_selectors = (*self.labels.values(), *self.metadata.values())
        used = {
            first_key(selector)
            for selector in (*each, *sides, *fields, *label_selectors)
            if selector
        }
        other_fields = {
            key: value for key, value in row.items() if key not in used and value is not None
        }
        per_item = self._per_item(items)
        chosen = {name: self._at(row, selector) for name, selector in self.metadata.items()}
        per_item_field = {"per_item": per_item} if per_item else {}
        return {**other_fields, **per_item_field, **chosen, **self.constants}

    def _per_item(self, items: list[Any]) -> dict[str, list[Any]]:
        """Return the fields of the items that no selector reads, as lists aligned with the items."""
        if self.split:
            return {}
        selectors = [self.reference, *self.turn_labels.values()]
        for mapping in self.messages:
            calls = mapping.calls.each if mapping.calls else None
            selectors += [mapping.role_from, mapping.text, mapping.reasoning, calls]
        if "." in selectors:
            return {}
        used = {first_key(selector) for selector in selectors if selector}
        used |= READ_KEYS if not self.messages else set()
        per_item: dict[str, list[Any]] = {}
        for place, item in enumerate(items):
            for key, value in item.items() if isinstance(item, dict) else ():
                if key not in used and value is not None:
                    per_item.setdefault(key, [None] * len(items))[place] = value
        return per_item

    def _at(self, value: Any, selector: str | None) -> Any:
        return select_value(value, selector, self.parse) if selector else None

    def _text(self, value: Any, selector: str | None) -> str | None:
        return text_of(self._at(value, selector), selector or "") or None

    def _texts(self, value: Any, selector: str | None) -> tuple[str, ...]:
        value_at = self._at(value, selector)
        if value_at is None:
            return ()
        texts = as_texts(value_at)
        if texts is None:
            raise UnreadableError(
                "bad_type", f"'{selector}' is {type_name(value_at)}, text was expected"
            )
        return texts


_ROW_SELECTORS = (
    "id",
    "system",
    "role_definition",
    "scenario",
    "tools",
    "evidence",
    "expected_outcomes",
    "expected_tools",
    "emphasis",
    "group",
    "reward",
)


def _usual(item: Any, speakers: Speakers) -> list[Message]:
    """Return the messages of an item that is itself a message in one of the usual formats."""
    key = present(item, ROLE_KEYS) if isinstance(item, dict) else None
    if key is not None:
        role = speakers.named(item[key])
        if role == "skip":
            return []
        item = {**item, key: role or item[key]}
    return list(read_messages([item])[0])


def _message(role: RoleOrSkip, text: str, thoughts: str | None = None) -> list[Message]:
    """Return one message, an assistant's thinking split from its text; none for a skipped speaker."""
    if role == "skip":
        return []
    if role == "assistant":
        text, more = split_thinking(text)
        thoughts = "\n\n".join(part for part in (thoughts, more) if part)
    return [Message(role=role, content=text, reasoning=thoughts or None)]
