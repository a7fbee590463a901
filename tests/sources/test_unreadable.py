"""What is wrong with a row is said in words that name the place and what stands there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from curate.sources.unit_result import scalar_id, type_name
from tests.sources.conftest import Loaded

ASK = {"role": "user", "content": "Hi"}
TELL = {"role": "assistant", "content": "Hello"}
CALLING = {"role": "assistant", "content": ""}


def messages(*given: Any) -> dict[str, Any]:
    return {"messages": list(given)}


@pytest.mark.parametrize(
    ("shape", "row", "reason", "detail"),
    [
        ("messages", {"a": 1}, "missing_field",
         "none of messages, conversations, conversation, dialogue, dialog, turns"),
        ("messages", {"messages": "hello"}, "bad_type", "the messages are text, a list was expected"),
        ("messages", messages(), "empty", "the list of messages is empty"),
        ("messages", messages("hello"), "bad_type", "message 0 is text"),
        ("messages", messages(ASK, 3), "bad_type", "message 1 is a number"),
        ("messages", messages(ASK), "no_assistant", "1 message, none of the assistant's"),
        ("messages", messages(ASK, {"role": "assistant", "content": None}), "empty",
         "no assistant message has text or a tool call"),
        ("messages", messages(ASK, TELL, {"role": "user", "content": None}, TELL), "empty_user",
         "message 2 is the user's and holds no text"),
        ("messages", messages({"content": "x"}, TELL), "missing_field", "a message has no role"),
        ("messages", messages({"role": "user", "content": 3}, TELL), "bad_type",
         "a message's content is a number"),
        ("messages", messages({"role": "user", "content": [3]}, TELL), "bad_type",
         "a content part is a number"),
        ("messages", messages({"role": "user", "content": [{"type": "text", "text": 3}]}, TELL),
         "bad_type", "a text part is a number, text was expected"),
        ("messages", messages(ASK, {"role": "assistant", "content": [{"type": "thinking", "thinking": []}]}),
         "bad_type", "a reasoning part is a list, text was expected"),
        ("messages", messages(ASK, {**TELL, "reasoning": 3}), "bad_type",
         "reasoning is a number, text was expected"),
        ("messages", messages({"role": "user", "content": [{"type": "hologram"}]}, TELL), "unknown_part",
         "a content part of type 'hologram'"),
        ("messages", messages({"role": "user", "content": [{"type": "input_audio"}]}, TELL), "media",
         "a content part of type 'input_audio'"),
        ("messages", {**messages(ASK, TELL), "audio": "a.wav"}, "media", "the field 'audio'"),
        ("messages", messages(ASK, {**CALLING, "tool_calls": "{f"}), "bad_type",
         "tool_calls is no JSON: '{f'"),
        ("messages", messages(ASK, {**CALLING, "tool_calls": [3]}), "bad_type",
         "tool_calls is a number, an object was expected"),
        ("messages", messages(ASK, {**CALLING, "tool_calls": [{"function": {"name": ""}}]}), "missing_field",
         "tool_calls has no function name"),
        ("messages", messages(ASK, {**CALLING, "function_call": {"a": 1}}), "missing_field",
         "function_call has no function name"),
        ("messages", messages(ASK, {"role": "assistant", "content": [{"type": "tool_use", "name": 3}]}),
         "missing_field", "a tool_use part has no function name"),
        ("sharegpt", {"conversations": [{"from": "human", "value": "Hi"}, {"from": "function_call", "value": "{f"}]},
         "bad_type", "the call is no JSON: '{f'"),
        ("history", {"other": 1}, "missing_field", "no 'history'"),
        ("history", {"history": 3, "query": "a"}, "bad_type", "'history' is a number, a list was expected"),
        ("history", {"history": {"a": 1}}, "bad_type", "the turns are an object, a list was expected"),
        ("history", {"history": [["a", "b"], ["a"]]}, "bad_type", "exchange 2 has 1 item, two were expected"),
        ("history", {"history": [3]}, "bad_type", "exchange 1 is a number"),
        ("history", {"history": [{"z": 1}]}, "missing_field",
         "exchange 1 has neither a question nor an answer"),
        ("history", {"history": [{"user": 3}]}, "bad_type", "exchange 1 is a number, text was expected"),
        ("gaussia", {"role": "R"}, "missing_field", "neither 'conversation' nor 'assistant'"),
        ("gaussia", {"assistant": 3}, "bad_type", "assistant is a number, text was expected"),
        ("gaussia", {"assistant": "a", "query": 3}, "bad_type", "query is a number, text was expected"),
        ("gaussia", {"assistant": "a", "role": 3}, "bad_type", "role is a number, text was expected"),
        ("ultrachat", {"data": None}, "missing_field", "no list under 'data'"),
        ("ultrachat", {"data": ["a", 3]}, "bad_type", "data[1] is a number, text was expected"),
        ("alpaca", {"output": "x"}, "missing_field", "none of instruction, prompt, question, query"),
        ("alpaca", {"prompt": "x"}, "missing_field", "none of output, response, completion, answer"),
        ("alpaca", {"instruction": "x", "output": "y", "history": {"a": 1}}, "bad_type",
         "'history' is an object"),
        ("alpaca", {"instruction": "x", "output": "y", "input": 3}, "bad_type",
         "input is a number, text was expected"),
        ("trajectory", {"reward": 1}, "missing_field", "none of traj, trajectory"),
        ("preference", {"chosen": "x"}, "missing_field", "no 'chosen' and 'rejected'"),
        ("preference", {"prompt": "Hi", "chosen": None, "rejected": 3}, "missing_field",
         "chosen: the side is null"),
        ("preference", {"prompt": 3, "chosen": "a", "rejected": "b"}, "bad_type",
         "chosen: the prompt is a number, text was expected"),
        ("preference", {"chosen": "a", "rejected": "b"}, "missing_field",
         "chosen: the sides are replies, and there is no prompt before them"),
        ("hh", {"text": "hello"}, "missing_field", "no text with 'Human:' and 'Assistant:' in it"),
        ("hh", {"chosen": "a", "rejected": "b"}, "shape_mismatch",
         "chosen: the side is no transcript with 'Human:' and 'Assistant:'"),
        ("hh", {"prompt": 3, "chosen": "a", "rejected": "b"}, "bad_type",
         "prompt is a number, text was expected"),
        ("hh", {"chosen": 3, "rejected": "b"}, "bad_type", "chosen: the side is a number, text was expected"),
        ("oasst", {"a": 1}, "missing_field", "no 'prompt' with 'replies'"),
        ("oasst", {"prompt": {"role": "prompter", "text": "Hi", "replies": []}}, "no_assistant",
         "no path of the tree has an assistant message"),
        ("oasst", {"prompt": {"role": "prompter", "text": 3, "replies": []}}, "bad_type",
         "text is a number, text was expected"),
        ("oasst", {"prompt": {"message_id": "m", "role": "prompter", "text": " ", "replies": []}}, "empty_user",
         "message m is the user's and holds no text"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_row(
    rows: Callable[..., Loaded], shape: str, row: dict[str, Any], reason: str, detail: str
) -> None:
    (found,) = rows(row, shape=shape).quarantined
    assert (found.reason, found.detail, found.part) == (reason, detail, None)


def test_a_side_of_no_messages_is_the_part_that_cannot_be_read(rows: Callable[..., Loaded]) -> None:
    loaded = rows({"messages": "Hello", "rejected_response": "No."}, shape="preference")
    (found,) = loaded.quarantined
    assert (found.reason, found.detail, found.part) == (
        "bad_type",
        "'messages' is text",
        "rejected",
    )
    assert [dialogue.labels for dialogue in loaded.dialogues] == [{"preference": "chosen"}]


@pytest.mark.parametrize(
    ("value", "name"),
    [
        (None, "null"), (True, "a boolean"), (0, "a number"), (1.5, "a number"), ("", "text"),
        ([], "a list"), ((), "a list"), ({}, "an object"),
    ],
)  # fmt: skip
def test_types_are_called_as_json_calls_them(value: object, name: str) -> None:
    assert type_name(value) == name


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (" a ", "a"), (" ", None), ("", None), (7, "7"), (0, "0"), (3.0, "3"), (3.5, None), (True, None),
        (float("nan"), None), (float("inf"), None), (None, None), ([], None),
    ],
)  # fmt: skip
def test_an_id_is_a_text_or_a_whole_number(value: object, text: str | None) -> None:
    assert scalar_id(value) == text
