"""The wire form, and that it agrees with what the export writes."""

from __future__ import annotations

import json

import orjson
from hypothesis import given
from hypothesis import strategies as st

from curate.dialogue import Message, ToolCall, function_tool
from curate.export.template_messages import wire_message, wire_tools
from curate.pairs.prefix import to_wire
from tests.pairs.scripted import say


def test_tool_calls_carry_json_text_and_ids_that_the_results_name() -> None:
    messages = (
        say("user", "Where is it?"),
        Message(
            role="assistant",
            tool_calls=(
                ToolCall(name="find", arguments={"id": 4}),
                ToolCall(name="track", arguments='{"x":', id="abc"),
            ),
        ),
        say("tool", "found", name="find"),
        say("tool", "moving", tool_call_id="abc"),
    )
    _, call, first, second = to_wire(messages)
    assert call["tool_calls"][0] == {
        "id": "call_1",
        "type": "function",
        "function": {"name": "find", "arguments": '{"id":4}'},
    }
    assert call["tool_calls"][1]["function"]["arguments"] == '{"x":'
    assert first == {
        "role": "tool",
        "content": "found",
        "name": "find",
        "tool_call_id": "call_1",
    }
    assert second["tool_call_id"] == "abc"


def test_a_result_without_a_call_names_none() -> None:
    [entry] = to_wire((say("tool", "stray"),))
    assert entry == {"role": "tool", "content": "stray"}


names = st.text("abc", min_size=1, max_size=3)
calls = st.builds(
    ToolCall,
    name=names,
    arguments=st.dictionaries(names, st.integers() | st.text(max_size=4), max_size=2).map(dict),
    id=names,
)
plain = st.builds(
    Message, role=st.sampled_from(["system", "user", "assistant"]), content=st.text(max_size=12)
)
calling = st.builds(
    Message,
    role=st.just("assistant"),
    tool_calls=st.lists(calls, min_size=1, max_size=2).map(tuple),
)
results = st.builds(Message, role=st.just("tool"), content=st.text(max_size=12), tool_call_id=names)


@given(st.lists(plain | calling | results, max_size=6))
def test_the_policy_sees_what_the_export_holds(messages: list[Message]) -> None:
    for wired, exported in zip(to_wire(messages), map(wire_message, messages), strict=True):
        back = dict(wired)
        if "tool_calls" in back:
            back["tool_calls"] = [
                {
                    **call,
                    "function": {
                        **call["function"],
                        "arguments": json.loads(call["function"]["arguments"]),
                    },
                }
                for call in back["tool_calls"]
            ]
        assert back == exported


def test_tools_take_the_exported_form() -> None:
    schema = {"type": "object", "properties": {}}
    tools = [
        {"type": "function", "function": {"name": "a", "parameters": schema}},
        {"name": "b", "parameters": schema},
        {"name": "c", "input_schema": schema},
    ]
    assert list(map(function_tool, tools)) == orjson.loads(wire_tools(tools) or "")
