"""Shapes of one's own, described instead of programmed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pydantic import ValidationError

from curate.dialogue import ToolCall
from curate.sources import Mapping
from curate.sources.mapping import select
from tests.sources.conftest import Loaded, said

Rows = Callable[..., Loaded]
NESTED = {"a": [{"b": 1}, {"b": 2}, {}], "c d": {"e.f": 3}}


@pytest.mark.parametrize(
    ("selector", "value"),
    [
        ("a[*].b", [1, 2]),
        ("a[1].b", 2),
        ("a[-1]", {}),
        ("a[9]", None),
        ("c d", {"e.f": 3}),
        ('c d["e.f"]', 3),
        ("missing.b", None),
        ("missing[*]", []),
        ("c d[*]", []),
    ],
)
def test_selectors(selector: str, value: Any) -> None:
    assert select(NESTED, selector) == value


@pytest.mark.parametrize("selector", ["", "a[", "a[x]", "a..", "[*"])
def test_a_malformed_selector_is_refused_before_reading(selector: str) -> None:
    with pytest.raises(ValidationError):
        Mapping.model_validate({"each": selector, "messages": [{"role": "user", "text": "t"}]})


def test_a_message_needs_exactly_one_role() -> None:
    for message in ({"text": "t"}, {"text": "t", "role": "user", "role_from": "r"}):
        with pytest.raises(ValidationError, match="role"):
            Mapping.model_validate({"each": "a[*]", "messages": [message]})


EXCHANGES = {
    "id": "key",
    "each": "turns[*]",
    "messages": [
        {"role": "user", "text": "ask", "strip_prefix": "User: "},
        {"role": "assistant", "text": "tell", "optional": True},
    ],
    "turn_labels": {"score": "overall impression"},
    "reference": "right",
    "labels": {"raters": "ratings[*].human"},
    "scenario": "about.scenario",
    "role_definition_text": "R",
    "constants": {"license": "CC0"},
}


def test_two_messages_an_item_with_labels(rows: Rows) -> None:
    row = {
        "key": 5,
        "turns": [
            {"ask": "User: a", "tell": "<think>hm</think>b", "overall impression": 1, "right": "B"},
            {"ask": "User:c", "overall impression": 0},
        ],
        "ratings": [{"human": 1}, {"human": 2}],
        "about": {"scenario": "S"},
        "left": "over",
    }
    loaded = rows(row, mapping=EXCHANGES)
    assert loaded.shape == "mapping"
    (dialogue,) = loaded.dialogues
    assert said(dialogue) == [("user", "a"), ("assistant", "b"), ("user", "c")]
    assert dialogue.messages[1].reasoning == "hm"
    assert dialogue.labels == {"raters": [1, 2], "score": [1, 0]}
    assert dialogue.references == (("B",),)
    assert (dialogue.id, dialogue.scenario, dialogue.role_definition) == ("5", "S", "R")
    assert dialogue.metadata == {"left": "over", "license": "CC0"}


CALLS = {
    "each": "conversation[*]",
    "roles": {"buyer": "user"},
    "messages": [
        {
            "role_from": "role",
            "text": "text",
            "calls": {
                "each": "apis[*]",
                "name": "request.api_name",
                "arguments": "request.parameters",
                "result": "response",
                "error": "exception",
            },
        }
    ],
}


def test_calls_come_before_the_text_with_their_results(rows: Rows) -> None:
    row = {
        "conversation": [
            {"role": "buyer", "text": "Hi"},
            {
                "role": "assistant",
                "text": "Done.",
                "apis": [
                    {
                        "request": {"api_name": "f", "parameters": {"a": 1}},
                        "response": {"r": 1},
                        "exception": None,
                    },
                    {
                        "request": {"api_name": "g", "parameters": {}},
                        "response": None,
                        "exception": "no",
                    },
                ],
            },
        ]
    }
    (dialogue,) = rows(row, mapping=CALLS).dialogues
    _, first, one, second, two, text = dialogue.messages
    assert first.tool_calls[0] == ToolCall(name="f", arguments={"a": 1}, id=one.tool_call_id)
    assert (one.content, one.name) == ('{"r":1}', "f")
    assert two.content == '{"error":"no"}'
    assert second.tool_calls[0].id == two.tool_call_id != one.tool_call_id
    assert (text.role, text.content) == ("assistant", "Done.")


def test_rows_that_the_mapping_does_not_fit_are_quarantined(rows: Rows) -> None:
    loaded = rows(
        {"other": 1},
        {"conversation": [{"role": "buyer"}]},
        {"conversation": [{"role": "buyer", "text": 3}]},
        {"conversation": [{"role": "seller", "text": "x"}]},
        {"conversation": ["x"]},
        {"conversation": [{"role": "buyer", "text": "x"}]},
        {"conversation": [{"role": "bot", "text": "x", "apis": [{}]}]},
        mapping=CALLS,
    )
    assert [row.reason for row in loaded.quarantined] == [
        "missing_field",
        "missing_field",
        "bad_type",
        "unknown_role",
        "bad_type",
        "no_assistant",
        "missing_field",
    ]
