"""Turn numbering and the content hash."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from curate.dialogue import (
    Dialogue,
    Message,
    ToolCall,
    function_tool,
    number_turns,
    split_thinking,
)

ROLES = st.sampled_from(["system", "user", "assistant", "tool"])
MESSAGES = st.lists(st.builds(Message, role=ROLES, content=st.text(max_size=5)), max_size=12).map(
    tuple
)


def messages(*roles: str) -> tuple[Message, ...]:
    return tuple(Message.model_validate({"role": role, "content": "x"}) for role in roles)


def test_a_turn_is_a_user_message_and_all_that_follows() -> None:
    turns = number_turns(messages("system", "user", "assistant", "tool", "assistant", "user"))
    assert [(turn.number, turn.start, len(turn.messages)) for turn in turns] == [
        (1, 1, 4),
        (2, 5, 1),
    ]
    assert [turn.in_rubric for turn in turns] == [True, False]


def test_assistant_before_any_user_is_turn_zero_and_not_in_the_rubric() -> None:
    turns = number_turns(messages("system", "assistant", "user", "assistant"))
    assert [turn.number for turn in turns] == [0, 1]
    assert turns[0].has_assistant
    assert not turns[0].in_rubric


def test_two_user_messages_in_a_row_give_a_turn_that_is_never_scored() -> None:
    turns = number_turns(messages("user", "user", "assistant"))
    assert [(turn.number, turn.in_rubric) for turn in turns] == [(1, False), (2, True)]


@given(MESSAGES)
def test_turns_partition_all_but_the_leading_system_messages(
    given_messages: tuple[Message, ...],
) -> None:
    turns = number_turns(given_messages)
    leading = 0
    while leading < len(given_messages) and given_messages[leading].role == "system":
        leading += 1
    assert tuple(m for turn in turns for m in turn.messages) == given_messages[leading:]
    assert all(turn.messages[0].role == "user" for turn in turns if turn.number > 0)
    numbers = [turn.number for turn in turns]
    assert numbers == list(range(numbers[0], numbers[0] + len(numbers))) if numbers else True
    assert all(given_messages[t.start : t.stop] == t.messages for t in turns)


def test_last_assistant_text_skips_tool_calls() -> None:
    call = Message(role="assistant", content="let me look", tool_calls=(ToolCall(name="f"),))
    turn = number_turns((*messages("user"), call, *messages("tool", "assistant"), call))[0]
    assert turn.last_assistant_text == 3
    assert number_turns((*messages("user"), call))[0].last_assistant_text is None


def test_the_content_hash_sees_what_a_judge_sees() -> None:
    dialogue = Dialogue(id="a", messages=messages("user", "assistant"))
    same = dialogue.model_copy(update={"id": "b", "labels": {"x": 1}, "reward": 1.0, "group": "g"})
    fresh = Dialogue.model_validate(same.model_dump())
    assert fresh.content_hash == dialogue.content_hash
    other = Dialogue(id="a", messages=messages("user", "assistant"), role_definition="A librarian.")
    assert other.content_hash != dialogue.content_hash


def test_a_changed_copy_has_turns_and_hash_of_its_own() -> None:
    whole = Dialogue(id="a", messages=messages("user", "assistant", "user", "assistant"))
    assert len(whole.turns) == 2
    kept, start = whole.content_hash, whole.model_copy(update={"messages": whole.messages[:2]})
    assert start == Dialogue(id="a", messages=messages("user", "assistant"))
    assert len(start.turns) == 1
    assert start.content_hash == Dialogue(id="b", messages=start.messages).content_hash != kept
    assert whole.content_hash == kept


@pytest.mark.parametrize(
    ("text", "answer", "thinking"),
    [
        ("It is 45.", "It is 45.", None),
        ("<think>a</think>b", "b", "a"),
        ("<think>a</think>b<think>c</think>d", "bd", "a\n\nc"),
        ("<THINKING>\nhm\n</THINKING>\n\nIt is 45.", "It is 45.", "hm"),
        ("hm\n</think>\n\nIt is 45.", "It is 45.", "hm"),
        ("hm</think>It is 45.", "It is 45.", "hm"),
        ("all of it</think>", "", "all of it"),
        ("<think>never closed", "", "never closed"),
        ("<think></think>b", "b", None),
        ("say `<think>` and `</think>` here", "say `<think>` and `</think>` here", None),
        ("a </think> in a sentence", "a </think> in a sentence", None),
    ],
)
def test_thinking_is_parsed_off_what_an_assistant_wrote(
    text: str, answer: str, thinking: str | None
) -> None:
    assert split_thinking(text) == (answer, thinking)


SCHEMA = {"type": "object", "properties": {"id": {"type": "string"}}}


@pytest.mark.parametrize(
    "tool",
    [
        {"type": "function", "function": {"name": "find", "parameters": SCHEMA}},
        {"function": {"name": "find", "parameters": SCHEMA}},
        {"name": "find", "parameters": SCHEMA},
        {"type": "custom", "name": "find", "input_schema": SCHEMA},
    ],
)
def test_a_tool_in_any_form_is_brought_into_the_function_form(tool: dict[str, Any]) -> None:
    named = {"name": "find", "parameters": SCHEMA}
    assert function_tool(tool) == {"type": "function", "function": named}
