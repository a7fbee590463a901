"""The sections of a mapping: a message, its calls, a joined file, two answers."""

from __future__ import annotations

from pydantic import Field, model_validator

from curate.dialogue import Role
from curate.records.config import Config
from curate.sources.selectors import Conditions, Selector


class CallMapping(Config):
    """Tool calls inside an item. Each gives an assistant message with the call, then its result."""

    each: Selector = Field(description="Selector of the calls, within the item.")
    name: Selector = Field(description="Selector of the tool's name, within the call.")
    arguments: Selector | None = Field(
        None, description="Selector of the arguments, within the call."
    )
    id: Selector | None = Field(
        None,
        description="Selector of the call's id, within the call; by default `call_N`, by its place among "
        "the messages.",
    )
    result: Selector | None = Field(None, description="Selector of the result, within the call.")
    error: Selector | None = Field(
        None,
        description="Selector of an error, within the call; if it is not null it is taken as the result.",
    )


class MessageMapping(Config):
    """One message that an item gives. Its tool calls come before its text."""

    role: Role | None = Field(None, description="The role, if it is always the same.")
    role_from: Selector | None = Field(None, description="Selector of the role, within the item.")
    role_in_turn: tuple[Role, ...] = Field(
        (), description="Roles that the items have in rotation, if nothing names the speaker."
    )
    text: Selector = Field(
        description="Selector of the text, within the item; `.` if the item is the text."
    )
    strip_prefix: str | None = Field(
        None, description="Prefix to remove from the text, with the space after it."
    )
    reasoning: Selector | None = Field(
        None, description="Selector of the assistant's thinking, within the item."
    )
    calls: CallMapping | None = Field(None, description="Tool calls of the item.")
    optional: bool = Field(
        False, description="true: an item without text gives no message and is no error."
    )

    @model_validator(mode="after")
    def _one_role(self) -> MessageMapping:
        if (self.role is not None) + (self.role_from is not None) + bool(self.role_in_turn) != 1:
            raise ValueError("give one of role, role_from and role_in_turn")
        return self


class Join(Config):
    """Another file whose rows are added to those of the source by a shared id."""

    path: str = Field(description="File, folder or glob; read completely into memory.")
    by: Selector = Field(description="Selector of the id in the source's rows.")
    key: Selector | None = Field(
        None,
        description="Selector of the id in the other file's rows; by default the same as `by`.",
    )
    under: str = Field("joined", description="Key under which the other file's row is added.")


class Answers(Config):
    """Two answers to one conversation: each gives a dialogue, labelled as chosen or rejected."""

    of: tuple[Selector, Selector] = Field(
        description="Selectors of the first and the second answer: the text of a reply, or a list of "
        "messages."
    )
    first_better: Conditions = Field(
        description="Conditions under which the first answer is preferred."
    )
    second_better: Conditions = Field(
        description="Conditions under which the second is preferred; if neither holds, the answers are not"
        " labelled."
    )
