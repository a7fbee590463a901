"""Shapes of one's own, described instead of programmed."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from curate.dialogue import ToolCall
from curate.errors import UsageError
from curate.sources import Mapping, SourceConfig, open_source
from curate.sources.selectors import select_value
from tests.sources.conftest import Loaded, load, said

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
    assert select_value(NESTED, selector) == value


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


def test_what_was_thought_may_stand_under_a_key_of_its_own(rows: Rows) -> None:
    message = {"role_from": "who", "text": "text", "reasoning": "why.thought"}
    items = [
        {"who": "user", "text": "Hi"},
        {"who": "bot", "text": "Hello", "why": {"thought": "A greeting."}},
        {"who": "user", "text": "Bye"},
        {"who": "bot", "text": "Bye", "why": {"thought": ""}},
    ]
    (dialogue,) = rows({"t": items}, mapping={"each": "t[*]", "messages": [message]}).dialogues
    assert [each.reasoning for each in dialogue.messages] == [None, "A greeting.", None, None]
    items[1]["why"] = {"thought": 3}
    (row,) = rows(
        {"t": items}, shape="auto", mapping={"each": "t[*]", "messages": [message]}
    ).quarantined
    assert (row.reason, row.detail) == ("bad_type", "reasoning is a number, text was expected")


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


# ---- what is left out, and where rows are -------------------------------------------------------

SPOKEN = {"each": "log[*]", "messages": [{"role_from": "who", "text": "says"}]}


def items(*pairs: tuple[Any, str]) -> list[dict[str, Any]]:
    return [{"who": who, "says": text} for who, text in pairs]


def test_a_speaker_is_mapped_by_name_or_skipped_and_counted(rows: Rows) -> None:
    log = items(
        ("Buyer", "Hi"), ("Supervisor", "Watch it"), ("Seller", "Hello"), ("Supervisor", "-")
    )
    roles = {"Seller": "assistant", "Buyer": "user", "Supervisor": "skip"}
    loaded = rows({"log": log}, mapping=SPOKEN | {"roles": roles})
    assert said(loaded.dialogues[0]) == [("user", "Hi"), ("assistant", "Hello")]
    assert loaded.tally.items_left_out == {"items of Supervisor": 2}


def test_speakers_may_be_numbers_or_truth_values(rows: Rows) -> None:
    for first, second in ((0, 1), (False, True)):
        mapping = SPOKEN | {"roles": {first: "user", second: "assistant"}}
        loaded = rows({"log": items((first, "Hi"), (second, "Hello"))}, mapping=mapping)
        assert said(loaded.dialogues[0]) == [("user", "Hi"), ("assistant", "Hello")]


def test_speakers_in_order_and_one_too_many(rows: Rows) -> None:
    mapping = SPOKEN | {"in_order": ["user", "assistant"]}
    two = {"log": items(("Ann", "Hi"), ("Bob", "Hello"), ("Ann", "Bye"))}
    three = {"log": items(("Cy", "Hi"), ("Ann", "Hello"), ("Di", "Hey"))}
    loaded = rows(two, three, mapping=mapping)
    assert [role for role, _ in said(loaded.dialogues[0])] == ["user", "assistant", "user"]
    assert [row.reason for row in loaded.quarantined] == ["unknown_role"]


@pytest.mark.parametrize(
    ("wanted", "kept"),
    [
        ("message", ["a", "c"]),
        (["message", "select"], ["a", "b", "c"]),
        ({"none_of": ["message"]}, ["b"]),
    ],
)
def test_items_that_do_not_meet_where_are_left_out_and_counted(
    rows: Rows, wanted: Any, kept: list[str]
) -> None:
    events = [{"kind": kind, "who": "bot", "says": text} for kind, text in
              (("message", "a"), ("select", "b"), ("message", "c"))]  # fmt: skip
    loaded = rows({"log": events}, mapping=SPOKEN | {"where": {"kind": wanted}})
    assert [text for _, text in said(loaded.dialogues[0])] == kept
    assert sum(loaded.tally.items_left_out.values()) == 3 - len(kept)


def test_fields_of_items_that_nothing_reads_are_kept(rows: Rows) -> None:
    log = [{"who": "user", "says": "Hi", "mood": "glad"}, {"who": "bot", "says": "Hello"}]
    (dialogue,) = rows({"log": log}, mapping=SPOKEN).dialogues
    assert dialogue.metadata == {"per_item": {"mood": ["glad", None]}}


def test_a_file_that_is_one_object_of_dialogues_by_id(tmp_path: Path) -> None:
    path = tmp_path / "data.json"
    good = {"log": items(("user", "Hi"), ("bot", "Hello"))}
    path.write_text(json.dumps({"d-1": good, "d-2": {"log": []}, "d-3": 7}))
    loaded = load(
        SourceConfig.model_validate({"path": str(path), "mapping": SPOKEN | {"rows": "*"}})
    )
    assert [dialogue.id for dialogue in loaded.dialogues] == ["d-1"]
    assert (loaded.tally.rows_in, loaded.tally.quarantined) == (3, 2)


def test_rows_below_a_key(tmp_path: Path) -> None:
    path = tmp_path / "data.json"
    good = {"log": items(("user", "Hi"), ("bot", "Hello"))}
    path.write_text(json.dumps({"version": 1, "data": [good, good]}, indent=1))
    config = {"path": str(path), "mapping": SPOKEN | {"rows": "data[*]"}}
    assert len(load(SourceConfig.model_validate(config)).dialogues) == 2
    config["mapping"] = SPOKEN | {"rows": "nothing[*]"}
    loaded = load(SourceConfig.model_validate(config))
    assert [row.reason for row in loaded.quarantined] == ["missing_field"]


def test_a_file_that_is_one_dialogue(tmp_path: Path) -> None:
    for name in ("one.jsonl", "two.jsonl"):
        lines = map(json.dumps, items(("user", name), ("bot", "Hello")))
        (tmp_path / name).write_text("\n".join(lines))
    (tmp_path / "broken.jsonl").write_text('{"who": "user", "says": "Hi"}\n{oops\n')
    mapping = SPOKEN | {"rows": ".", "each": "items[*]"}
    loaded = load(SourceConfig.model_validate({"path": str(tmp_path), "mapping": mapping}))
    assert [said(dialogue)[0][1] for dialogue in loaded.dialogues] == ["one.jsonl", "two.jsonl"]
    (broken,) = loaded.quarantined
    assert (broken.row, broken.reason, broken.raw) == (1, "broken_json", "{oops")
    assert broken.detail.startswith("entry 2: ")


@pytest.mark.parametrize(("parse", "write"), [("json", json.dumps), ("python", repr)])
def test_a_text_that_holds_a_list(rows: Rows, parse: str, write: Callable[[Any], str]) -> None:
    row = {"log": write(items(("user", "it's"), ("bot", "Hello")))}
    (dialogue,) = rows(row, mapping=SPOKEN | {"parse": parse}).dialogues
    assert said(dialogue) == [("user", "it's"), ("assistant", "Hello")]
    assert rows({"log": "[oops"}, mapping=SPOKEN | {"parse": parse}, limit=1).tally.quarantined == 1


def test_answers_that_stand_in_another_file(tmp_path: Path) -> None:
    questions = [{"qid": n, "ask": [f"q{n}", "more?"]} for n in range(4)]
    answers = [{"question": n, "replies": [f"a{n}", "b"]} for n in (0, 1, 1, 9)]
    for name, written in (("questions.jsonl", questions), ("answers.jsonl", answers)):
        (tmp_path / name).write_text("\n".join(map(json.dumps, written)))
    mapping = {
        "join": {"path": str(tmp_path / "answers.jsonl"), "by": "qid", "key": "question"},
        "each": {"q": "ask[*]", "a": "joined.replies[*]"},
        "messages": [{"role": "user", "text": "q"}, {"role": "assistant", "text": "a"}],
    }
    config = {"path": str(tmp_path / "questions.jsonl"), "mapping": mapping}
    loaded = load(SourceConfig.model_validate(config))
    assert said(loaded.dialogues[0])[:2] == [("user", "q0"), ("assistant", "a0")]
    assert dict(loaded.tally.reasons) == {"no_match": 3}
    assert loaded.source.joined is not None
    assert loaded.source.joined.counts() == {"rows": 4, "unused": 3}


def test_a_join_without_ids_is_refused_before_reading(tmp_path: Path) -> None:
    (tmp_path / "q.jsonl").write_text('{"id": 1}\n')
    join = {"path": str(tmp_path / "q.jsonl"), "by": "qid"}
    config: dict[str, Any] = {"path": str(tmp_path / "q.jsonl")}
    for key, named in (({}, "qid"), ({"key": "number"}, "number")):
        config["mapping"] = SPOKEN | {"join": join | key}
        with pytest.raises(UsageError) as caught:
            open_source(SourceConfig.model_validate(config))
        assert caught.value.problem == f"no row of {join['path']} has an id to join by"
        assert caught.value.got == f"1 row without '{named}'"
        assert caught.value.fix == "name it as source.mapping.join.key"


def test_lists_of_different_length_are_quarantined(rows: Rows) -> None:
    mapping = {"each": {"t": "texts[*]", "s": "speakers[*]"},
               "messages": [{"role_from": "s", "text": "t"}]}  # fmt: skip
    good = {"texts": ["Hi", "Hello"], "speakers": ["user", "bot"]}
    loaded = rows(good, good | {"speakers": ["user"]}, mapping=mapping)
    assert said(loaded.dialogues[0]) == [("user", "Hi"), ("assistant", "Hello")]
    assert dict(loaded.tally.reasons) == {"bad_type": 1}


def test_items_that_are_texts_take_roles_in_turn(rows: Rows) -> None:
    message = {"role_in_turn": ["user", "assistant"], "text": "."}
    (dialogue,) = rows(
        {"log": ["a", "b", "c"]}, mapping={"each": "log[*]", "messages": [message]}
    ).dialogues
    assert said(dialogue) == [("user", "a"), ("assistant", "b"), ("user", "c")]


def test_usual_messages_under_an_unusual_key_keep_their_calls(rows: Rows) -> None:
    call = {"id": "1", "function": {"name": "f", "arguments": "{}"}}
    log = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": None, "tool_calls": [call]},
           {"role": "narrator", "content": "x"}]  # fmt: skip
    loaded = rows({"a": {"log": log}}, mapping={"each": "a.log[*]", "roles": {"narrator": "skip"}})
    assert loaded.dialogues[0].messages[1].tool_calls == (ToolCall(name="f", id="1"),)
    assert loaded.tally.items_left_out == {"items of narrator": 1}


def test_expected_tools(rows: Rows) -> None:
    row = {
        "log": items(("user", "Hi"), ("bot", "Hello")),
        "plan": [{"name": "f", "kwargs": {"a": 1}}],
    }
    (dialogue,) = rows(row, mapping=SPOKEN | {"expected_tools": "plan"}).dialogues
    assert dialogue.expected_tools == (ToolCall(name="f", arguments={"a": 1}),)


TWO = {
    "each": "ask",
    "messages": [{"role": "user", "text": "."}],
    "answers": {
        "of": ["one", "two"],
        "first_better": {"better": {"max": -1}},
        "second_better": {"better": {"min": 1}},
    },
}


@pytest.mark.parametrize(
    ("better", "first"), [(-2, "chosen"), (1, "rejected"), (0, None), (None, None)]
)
def test_two_answers_are_two_dialogues(rows: Rows, better: Any, first: str | None) -> None:
    row = {"ask": "Hi", "one": "yes", "two": "no", "better": better}
    loaded = rows(row, mapping=TWO)
    labels = {said(one)[1][1]: one.labels.get("preference") for one in loaded.dialogues}
    if first is not None:
        assert [*labels.values()] == ["chosen", "rejected"]
    assert labels["yes"] == first
    assert len({one.group for one in loaded.dialogues}) == 1
    loaded = rows(row | {"two": None}, mapping=TWO)
    assert (len(loaded.dialogues), loaded.tally.parts_quarantined) == (1, 1)
    (neither,) = rows(row, row | {"one": None, "two": ""}, mapping=TWO).quarantined
    name = first or "first"
    assert (neither.row, neither.reason) == (2, "missing_field")
    assert neither.detail == f"{name}: no 'one'"


# ---- rows left out before they are read ---------------------------------------------------------


def test_rows_that_do_not_meet_where_are_counted_and_not_read(rows: Rows) -> None:
    chat = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"}]
    given = [
        {"messages": chat, "language": language, "flags": [{"bad": bad}, {"bad": False}]}
        for language, bad in (
            ("English", False),
            ("French", False),
            ("English", True),
            ("English", False),
        )
    ]
    where = {"language": "English", "flags[*].bad": False}
    loaded = rows(*given, where=where)
    assert loaded.tally.rows_left_out == {"where.language": 1, "where.flags[*].bad": 1}
    assert (loaded.tally.rows_in, len(loaded.dialogues)) == (2, 2)
    assert len(rows(*given, where=where, limit=1).dialogues) == 1
    nothing = rows(*given, where={"language": "Dutch"})
    with pytest.raises(UsageError, match="leaves out every row"):
        nothing.source.check_read(nothing.tally)


# ---- transcripts --------------------------------------------------------------------------------

SPLIT = {"each": "text", "split": {"User:": "user", "System:": "assistant", "Note:": "skip"}}


@pytest.mark.parametrize(
    "text",
    [
        "User: Hi there\nSystem: Hello.\nUser: Bye\nSystem: Good bye",
        "User: Hi there System: Hello. User: Bye System: Good bye",
        "User: Hi there\n\nNote: aside\nSystem: Hello.\nUser: Bye\nSystem: Good bye",
    ],
)
def test_a_transcript_is_split_at_its_marks(rows: Rows, text: str) -> None:
    loaded = rows({"text": text}, mapping=SPLIT)
    assert [text for _, text in said(loaded.dialogues[0])] == [
        "Hi there",
        "Hello.",
        "Bye",
        "Good bye",
    ]
    assert sum(loaded.tally.items_left_out.values()) == ("Note:" in text)


def test_a_mark_within_a_line_is_text_where_marks_open_lines(rows: Rows) -> None:
    text = "User: what does 'System: x' mean?\nSystem: It quotes the User: somebody"
    (dialogue,) = rows({"text": text}, mapping=SPLIT).dialogues
    assert len(dialogue.messages) == 2


def test_a_transcript_with_peoples_names(rows: Rows) -> None:
    mapping = {
        "each": "text",
        "split": "names",
        "in_order": ["user", "assistant"],
        "roles": {"Note": "skip"},
    }
    texts = [
        "Ann: Hi\nthere\nBob: see http://x.y\n\nNote: aside\nAnn: Bye",
        "Cy: Hi\nDi Lee: Yo\nEd: Hey",
        "no name",
    ]
    loaded = rows(*({"text": text} for text in texts), mapping=mapping)
    assert said(loaded.dialogues[0]) == [
        ("user", "Hi\nthere"),
        ("assistant", "see http://x.y"),
        ("user", "Bye"),
    ]
    assert loaded.tally.items_left_out == {"items of Note": 1}
    assert dict(loaded.tally.reasons) == {"unknown_role": 1, "bad_type": 1}


def test_text_before_the_first_mark_is_not_dropped(rows: Rows) -> None:
    loaded = rows(
        {"text": "Once upon a time\nUser: Hi\nSystem: Hello"}, {"text": "none"}, mapping=SPLIT
    )
    assert dict(loaded.tally.reasons) == {"bad_type": 2}


# ---- tables -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("speakers", "columns"),
    [
        (
            ("Ann", "Bot7", "Guide"),
            {"roles": {"Ann": "user", "Bot7": "assistant", "Guide": "skip"}},
        ),
        ((0, 1, 2), {"roles": {0: "user", 1: "assistant", 2: "skip"}}),
        (("Ann", "Bot7", "Guide"), {"in_order": ["user", "assistant"], "roles": {"Guide": "skip"}}),
    ],
)
def test_speakers_of_a_table_are_mapped_or_skipped(
    rows: Rows, speakers: tuple[Any, ...], columns: dict[str, Any]
) -> None:
    texts = zip(speakers, ("Hi", "Hello", "aside"), strict=True)
    table = [{"dialog_id": 1, "speaker": who, "text": text} for who, text in texts]
    loaded = rows(*table, columns=columns)
    assert said(loaded.dialogues[0]) == [("user", "Hi"), ("assistant", "Hello")]
    assert loaded.tally.items_left_out.total() == 1
    assert loaded.tally.rows_used == 3
