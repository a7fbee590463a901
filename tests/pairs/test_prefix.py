"""The name of a pair, what a message says, and the prompt it stands behind."""

from __future__ import annotations

import pytest

from curate.dialogue import Message, ToolCall
from curate.pairs.prefix import (
    canonical,
    pair_id,
    parsed_arguments,
    prompt_is_open,
    prompt_messages,
    said_text,
    to_wire,
)
from tests.pairs.scripted import say

PROMPT = (say("user", "Hi"),)
YES, NO = say("assistant", "Yes."), say("assistant", "No.")
TOOL = {"name": "find"}


def test_every_part_of_a_pair_is_in_its_name() -> None:
    names = [
        pair_id(PROMPT, [], YES, NO),
        pair_id((say("user", "Ho"),), [], YES, NO),
        pair_id(PROMPT, [TOOL], YES, NO),
        pair_id(PROMPT, [], NO, YES),
        pair_id(PROMPT, [], None, NO),
        pair_id(PROMPT, [], None, NO, salt="d1/resample 0"),
    ]
    assert len(set(names)) == len(names)
    assert all(len(name) == 32 and int(name, 16) >= 0 for name in names)
    thinking = YES.model_copy(update={"reasoning": "hm"})
    assert pair_id(PROMPT, [], thinking, NO) == names[0]


def test_a_pair_of_any_text_and_number_has_a_name() -> None:
    call = ToolCall(name="pay", arguments={"b": 10**30, "a": "\ud800"})
    odd = Message(role="assistant", content="\ud83d", tool_calls=(call,))
    turned = ToolCall(name="pay", arguments={"a": "\ud800", "b": 10**30})
    same = odd.model_copy(update={"tool_calls": (turned,)})
    assert pair_id((odd,), [], odd, NO) == pair_id((same,), [], same, NO)


def test_what_a_message_says_is_not_its_ids_thinking_and_space() -> None:
    def calling(arguments: object, identifier: str, **more: object) -> Message:
        call = ToolCall.model_validate({"name": "f", "arguments": arguments, "id": identifier})
        return say("assistant", " Wait.", tool_calls=(call,), **more)

    one = canonical(calling({"a": 1, "b": [2]}, "x"))
    assert one == canonical(calling('{"b": [2], "a": 1}', "y", reasoning="hm"))
    assert one != canonical(calling({"a": 1, "b": [3]}, "x"))
    assert one != canonical(calling({"a": 1, "b": [2]}, "x", name="bot"))
    assert canonical(say("user", "a")) != canonical(say("assistant", "a"))
    assert canonical(calling(" no json ", "x")) == canonical(calling("no json", "x"))
    hash(one)


@pytest.mark.parametrize(
    ("arguments", "value"),
    [('{"a": 1}', {"a": 1}), (" raw ", "raw"), ({"a": 1}, {"a": 1}), ("[1]", [1])],
)
def test_arguments_are_the_value_they_spell(arguments: object, value: object) -> None:
    assert parsed_arguments(arguments) == value  # type: ignore[arg-type]


def test_thinking_leaves_the_prompt_unless_it_is_kept() -> None:
    thought = say("assistant", "Which?", reasoning="hm")
    messages = (say("user", "Hi"), thought)
    assert prompt_messages(messages) == (messages[0], say("assistant", "Which?"))
    assert prompt_messages(messages, keep_reasoning=True) == messages
    assert to_wire([thought]) == (
        {"role": "assistant", "content": "Which?", "reasoning_content": "hm"},
    )


@pytest.mark.parametrize(
    ("roles", "is_open"),
    [
        ([], False),
        (["user"], True),
        (["assistant", "tool"], True),
        (["user", "assistant"], False),
        (["system"], False),
    ],
)
def test_an_assistant_message_is_due_behind_a_user_s_or_a_tool_s(
    roles: list[str], is_open: bool
) -> None:
    assert prompt_is_open([say(role, "x") for role in roles]) is is_open


def test_a_message_is_said_with_its_calls_a_line_each() -> None:
    calls = (
        ToolCall(name="pay", arguments={"n": 10**20, "to": "é"}),
        ToolCall(name="log", arguments="raw"),
    )
    lines = ['(calls tool) pay {"n":100000000000000000000,"to":"é"}', "(calls tool) log raw"]
    assert said_text(say("assistant", " Wait. ", tool_calls=calls)) == "\n".join(["Wait.", *lines])
    assert said_text(say("assistant", "", tool_calls=calls)) == "\n".join(lines)
    assert said_text(say("assistant", " ")) == ""
