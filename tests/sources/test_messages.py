"""One raw message of any vendor, and what stands beside the messages of a row."""

from __future__ import annotations

from typing import Any

import pytest

from curate.dialogue import Message, ToolCall
from curate.sources.fields import as_texts, calls_of_actions, read_fields, read_id, with_system
from curate.sources.messages import (
    decoded,
    looks_like_messages,
    read_arguments,
    read_calls,
    read_message,
    read_messages,
    read_tools,
    speaker_name,
)
from curate.sources.unit_result import UnreadableError


@pytest.mark.parametrize(
    ("raw", "arguments"),
    [
        (None, {}), ({1: "a"}, {"1": "a"}), ('{"a": 1}', {"a": 1}), ("[1]", "[1]"), ("{broken", "{broken"),
        ([1, 2], "[1,2]"), (3, "3"),
    ],
)  # fmt: skip
def test_arguments_are_an_object_or_stay_text(raw: object, arguments: object) -> None:
    assert read_arguments(raw) == arguments


def test_calls_of_every_vendor_mean_the_same() -> None:
    call = ToolCall(name="f", arguments={"a": 1}, id="c")
    for raw in (
        [{"id": "c", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}],
        {"id": "c", "name": "f", "input": {"a": 1}},
        {"tool_call_id": "c", "name": "f", "parameters": {"a": 1}},
        {"call_id": "c", "name": "f", "args": {"a": 1}},
        {"id": "c", "name": "f", "kwargs": {"a": 1}},
        '{"id": "c", "name": "f", "arguments": {"a": 1}}',
        '[{"id": "c", "name": "f", "arguments": {"a": 1}}]',
    ):
        assert read_calls(raw, "calls") == [call]
    assert read_calls(None, "calls") == read_calls("", "calls") == []
    assert calls_of_actions([{"name": "f", "kwargs": {"a": 1}}]) == (
        ToolCall(name="f", arguments={"a": 1}),
    )
    assert calls_of_actions([{"kwargs": {}}]) == ()


def test_a_message_of_parts() -> None:
    raw = {
        "role": " Assistant ",
        "content": [
            "one",
            {"type": "output_text", "text": "two"},
            {"text": "three"},
            {"type": "refusal", "refusal": "four"},
            {"type": "text", "text": ""},
            {"type": "redacted_thinking", "value": "hm"},
            {"type": "function_call", "function_call": {"name": "f", "arguments": {}}},
        ],
        "reasoning_content": "well",
        "name": 7,
    }
    assert read_message(raw) == [
        Message(
            role="assistant",
            content="one\ntwo\nthree\nfour",
            reasoning="hm\n\nwell",
            tool_calls=(ToolCall(name="f", arguments={}),),
            name="7",
        )
    ]
    assert read_message({"role": "ai", "content": {"parts": ["a", "b"]}})[0].content == "a\nb"
    assert read_message({"role": "ai", "content": {"text": "a"}})[0].content == "a"


@pytest.mark.parametrize(
    ("part", "message"),
    [
        ({"type": "tool_result", "tool_use_id": "t", "content": "3"}, Message(role="tool", content="3", tool_call_id="t")),
        ({"type": "tool_response", "tool_call_id": 5, "value": ["3", "4"]}, Message(role="tool", content="3\n4", tool_call_id="5")),
        ({"type": "function_call_output", "call_id": "t", "output": "3", "name": "f"},
         Message(role="tool", content="3", tool_call_id="t", name="f")),
    ],
)  # fmt: skip
def test_a_result_within_a_message_is_a_message_of_its_own(
    part: dict[str, Any], message: Message
) -> None:
    assert read_message({"role": "user", "content": [part]}) == [message]
    both = read_message({"role": "user", "content": [part, {"type": "text", "text": "And?"}]})
    assert both == [message, Message(role="user", content="And?")]


def test_thinking_is_the_assistants_alone_and_a_function_call_too() -> None:
    call = {"name": "f", "arguments": "{}"}
    [user] = read_message({"role": "user", "content": "<think>a</think>b", "function_call": call})
    assert (user.content, user.reasoning, user.tool_calls) == ("<think>a</think>b", None, ())
    [reply] = read_message({"role": "gpt", "value": "<think>a</think>b", "function_call": call})
    assert (reply.content, reply.reasoning) == ("b", "a")
    assert reply.tool_calls == (ToolCall(name="f", arguments={}),)


def test_fields_of_messages_that_nothing_reads_are_lists_beside_them() -> None:
    raw = [
        {"role": "user", "content": "a", "loss_weight": 0},
        {"role": "assistant", "content": "b", "model": "m", "score": None},
    ]
    _, beside = read_messages(raw)
    assert beside == {"loss_weight": [0, None], "per_message": {"model": [None, "m"]}}
    assert read_messages([{"role": "user", "content": "a"}])[1] == {}
    with pytest.raises(UnreadableError, match="the messages are text, a list was expected"):
        read_messages("hello")


@pytest.mark.parametrize(
    ("raw", "tools"),
    [
        (None, ()), ("", ()), ([], ()), ({"name": "f"}, ({"name": "f"},)), ('[{"name": "f"}]', ({"name": "f"},)),
        (['{"name": "f"}'], ({"name": "f"},)), ("text", None), ([3], None), (3, None),
    ],
)  # fmt: skip
def test_tools_in_every_form(raw: object, tools: object) -> None:
    assert read_tools(raw) == tools


@pytest.mark.parametrize(
    ("value", "read"),
    [(' [1]', [1]), ('{"a": 1}', {"a": 1}), ("[broken", "[broken"), ("3", "3"), (3, 3), ("", "")],
)  # fmt: skip
def test_json_text_of_a_list_or_an_object_is_what_it_says(value: object, read: object) -> None:
    assert decoded(value) == read


@pytest.mark.parametrize(
    ("value", "looks"),
    [
        ([{"role": "a", "content": "b"}], True),
        ('[{"role": "a", "content": "b"}]', True),
        ([{"role": "a", "tool_calls": []}], True),
        ([{"role": "a", "function_call": {}}], True),
        ([{"role": "a"}], False),
        ([{"content": "b"}], False),
        ([{"role": "a", "content": "b"}, 3], False),
        ([{"role": "a", "content": "b"}] * 3 + [3], True),
        ([], False),
        (3, False),
    ],
)
def test_what_looks_like_messages(value: object, looks: bool) -> None:
    assert looks_like_messages(value, ("role",), ("content",)) is looks


@pytest.mark.parametrize(
    ("value", "name"),
    [(True, "true"), (False, "false"), (3, "3"), (" Ann ", "Ann"), ("", None), ([], None)],
)
def test_a_speaker_s_name(value: object, name: str | None) -> None:
    assert speaker_name(value) == name


# ---- beside the messages


def test_what_a_row_says_beside_its_messages() -> None:
    row = {
        "uuid": 7,
        "messages": [],
        "chatbot_role": "R",
        "scenario_description": "S",
        "emphasis": "care",
        "group": 3,
        "expected_outcome": "one",
        "documents": ["d"],
        "functions": [{"name": "f"}],
        "expected_tools": {"name": "f"},
        "references": [["a", "b"], "c", []],
        "reward": 1,
        "labels": {"x": 1},
        "label": "y",
        "metadata": {"m": 1, "rest": "inner"},
        "rest": "outer",
        "nothing": None,
    }
    assert read_fields(row, {"messages"}, {"more": 2}) == {
        "role_definition": "R",
        "scenario": "S",
        "emphasis": "care",
        "group": "3",
        "expected_outcomes": ("one",),
        "evidence": ("d",),
        "tools": ({"name": "f"},),
        "expected_tools": (ToolCall(name="f", arguments={}),),
        "references": (("a", "b"), ("c",), ()),
        "reward": 1.0,
        "labels": {"x": 1, "label": "y"},
        "metadata": {"m": 1, "rest": "outer", "more": 2},
    }


def test_what_cannot_be_read_as_a_field_stays_in_the_metadata() -> None:
    row = {
        "scenario": " ",
        "emphasis": [1],
        "evidence": [1],
        "tools": "text",
        "expected_tools": [{"a": 1}],
        "references": ["a", 3],
        "reward": "high",
        "labels": "good",
        "metadata": "m",
        "ref": [3],
        "ref_url": "u",
    }
    assert read_fields(row, set()) == {"metadata": row}
    assert read_fields({"ref": "page"}, set()) == {"metadata": {"ref": "page"}}
    both = read_fields({"ref": "page", "ref_url": "u", "evidence": "e"}, set())
    assert both == {"evidence": ("e", "page"), "metadata": {"ref_url": "u"}}


def test_no_expected_tools_are_a_field_as_text_and_metadata_as_a_list() -> None:
    assert read_fields({"expected_tools": "[]"}, set()) == {"expected_tools": (), "metadata": {}}
    assert read_fields({"expected_tools": []}, set()) == {"metadata": {"expected_tools": []}}


@pytest.mark.parametrize("key", ["images", "image", "audios", "audio", "videos", "video"])
def test_media_beside_the_messages_are_refused_unless_empty(key: str) -> None:
    with pytest.raises(UnreadableError, match=f"media: the field '{key}'"):
        read_fields({key: ["a"]}, set())
    assert read_fields({key: []}, set()) == {"metadata": {key: []}}
    assert read_fields({key: ["a"]}, {key}) == {"metadata": {}}


@pytest.mark.parametrize(
    ("row", "found"),
    [
        ({"id": "a", "uuid": "b"}, ("a", "id")), ({"id": "", "chat_id": 5}, ("5", "chat_id")),
        ({"id": [1]}, (None, None)), ({}, (None, None)),
    ],
)  # fmt: skip
def test_the_first_of_the_usual_ids(row: dict[str, Any], found: object) -> None:
    assert read_id(row) == found


@pytest.mark.parametrize(
    ("value", "texts"),
    [("a", ("a",)), ("", ()), (["a", "b"], ("a", "b")), ((), ()), ([3], None), (3, None), (None, None)],
)  # fmt: skip
def test_one_text_or_a_list_of_texts(value: object, texts: object) -> None:
    assert as_texts(value) == texts


ASK = {"role": "user", "content": "Hi"}


@pytest.mark.parametrize(
    ("row", "raw", "system", "used"),
    [
        ({"system": "S"}, [ASK], "S", {"system"}),
        ({"system_prompt": "S"}, [ASK], "S", {"system_prompt"}),
        ({"system": " "}, [ASK], None, {"system"}),
        ({"system": 3}, [ASK], None, set()),
        ({}, [ASK], None, set()),
        ({"system": "S"}, [{"role": "developer", "content": "S"}, ASK], None, {"system"}),
        ({"system": "S"}, [{"from": " System", "value": "T"}, ASK], None, set()),
        ({"system": "S"}, [], "S", {"system"}),
    ],
)
def test_a_system_text_of_a_row_goes_before_its_messages(
    row: dict[str, Any], raw: list[Any], system: str | None, used: set[str]
) -> None:
    added = [] if system is None else [{"role": "system", "content": system}]
    assert with_system(row, raw) == ([*added, *raw], used)
