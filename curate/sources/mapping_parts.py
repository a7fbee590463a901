"""The sections of a mapping: a message, its calls, a joined file, two answers."""

from __future__ import annotations

from pydantic import Field, model_validator

from curate.dialogue import Role
from curate.records.config import Config
from curate.sources.selectors import Conditions, Selector


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
    role_in_turn: tuple[Role, ...] = Field(
        (), description="Roles that items have in turn, where nothing names a speaker."
    )
    text: Selector = Field(description="Within the item; `.` where the item is the text.")
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
        if (self.role is not None) + (self.role_from is not None) + bool(self.role_in_turn) != 1:
            raise ValueError("give one of role, role_from and role_in_turn")
        return self


class Join(Config):
    """Rows of another file, put into those of the source by a shared id."""

    path: str = Field(description="File, folder or glob; read whole into memory.")
    by: Selector = Field(description="The id, in the source's rows.")
    key: Selector | None = Field(
        None, description="The id, in the other file's rows; `by` where it is called the same."
    )
    under: str = Field("joined", description="Key that the other file's row is put under.")


class Answers(Config):
    """Two answers to one conversation: each gives a dialogue, labelled as chosen and rejected."""

    of: tuple[Selector, Selector] = Field(
        description="The first and the second: the text of a reply, or a list of usual messages."
    )
    first_better: Conditions = Field(description="When the first was preferred.")
    second_better: Conditions = Field(description="When the second was; else neither was.")
