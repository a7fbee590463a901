"""Which field of a conversation's items names the speaker, and which holds the text."""

from __future__ import annotations

import json
from typing import Any

import pytest

from curate.sources.structure import candidates, row_selectors
from curate.sources.structure_objects import (
    ItemField,
    is_said_by,
    mean_words,
    of_objects,
    reads_like_text,
    text_path,
)

TEXTS = ("Can you help me?", "Of course, what is it?", "My order is late.", "I am sorry.")


def field(*columns: list[Any], path: tuple[str, ...] = ("zork",)) -> ItemField:
    return ItemField(path, list(columns))


@pytest.mark.parametrize(
    ("columns", "is_speaker"),
    [
        ([["a", "b", "a", "b"]], True),
        ([["a", "a", "a", "b"]], True),  # a change in at least 30 % of the steps
        ([["a", "a", "a", "a", "b"]], False),
        ([[1, 0, 1, True]], True),
        ([["a", "a", "a"]], False),
        ([["a", "b", "c", "d", "e"]], False),  # at most one name more than half of the items
        ([["a", "b", "c", "a"]], True),
        ([["a", "b", "c"]], False),
        ([list("abcdefabcdefgh")], False),  # at most six names
        ([list("abcdefabcdefab")], True),
        ([["a", "b"] * 9 + ["a", None]], True),  # a name in nine of ten items
        ([["a", "b"] * 4 + [None]], False),
        ([["a" * 40, "b" * 40]], True),
        ([["a" * 41, "b" * 41]], False),
        ([["a", "b"]] * 4 + [["a", "a"]], True),  # in four of five conversations
        ([["a", "b"]] * 3 + [["a", "a"]], False),
        ([[["a"], ["b"]]], False),
        ([], False),
    ],
)  # fmt: skip
def test_a_speaker_is_short_and_alternates(columns: list[list[Any]], is_speaker: bool) -> None:
    assert field(*columns).is_speaker is is_speaker


@pytest.mark.parametrize(
    ("path", "values", "is_text"),
    [
        (("zork",), TEXTS, True),
        (("zork",), (None, 3, "  "), False),
        (("zork",), (*["Hello to you"] * 7, "Good bye", "And one more"), True),
        (("zork",), (*["Hello to you"] * 8, "Good bye", "And one more"), False),
        (("zork", "Text"), (*["Hello to you"] * 8, "Good bye", "And one more"), True),
        (("text", "zork"), (*["Hello to you"] * 8, "Good bye", "And one more"), False),
        (("zork",), ("yes", "no", "well then"), True),
        (("zork",), ("yes", "no", "hm", "well then"), False),
    ],
)
def test_a_text_differs_from_item_to_item(
    path: tuple[str, ...], values: tuple[Any, ...], is_text: bool
) -> None:
    assert field(list(values), path=path).is_text is is_text


@pytest.mark.parametrize(
    ("texts", "reads"),
    [
        (["two words"], True),
        (["one", "one", "two words"], True),
        (["one", "one", "one", "two words"], False),
        (["twelve-signs"], False),
        (["thirteen-sign"], True),
        (["2024-01-01T10:00"], False),
        (["https://example.org/a"], False),
        (["a conversation", "conversation-17-b"], False),
        (["a conversation", "another one", "conversation-17-b"], True),
    ],
)
def test_texts_have_several_words_and_identifiers_none(texts: list[str], reads: bool) -> None:
    assert reads_like_text(texts) is reads


def test_six_characters_without_a_space_count_as_a_word() -> None:
    assert mean_words(["one two three four"]) == 4
    assert mean_words(["x" * 12, "a b c d"]) == 3
    assert mean_words([]) == 0
    assert field(["one two", None, 3]).words == 2


@pytest.mark.parametrize(
    ("role", "path", "expected"),
    [
        ("user", ("Query",), True),
        ("user", ("user_says",), True),
        ("user", ("users", "text"), True),
        ("user", ("abuser",), False),
        ("assistant", ("gpt",), True),
        ("assistant", ("gpt", "text"), False),
        ("assistant", ("system-utterance", "text"), True),
        ("assistant", ("chat bot",), True),
        ("assistant", ("user",), False),
    ],
)
def test_who_says_what_is_under_a_key(role: Any, path: tuple[str, ...], expected: bool) -> None:
    assert is_said_by(role, path) is expected


@pytest.mark.parametrize(
    ("items", "path"),
    [
        ([{"a": text, "text": text[:3]} for text in TEXTS], ("a",)),
        ([{"a": text, "text": text[:9]} for text in TEXTS], ("text",)),
        ([{"a": text, "b": f"{text} {text}"} for text in TEXTS], ("b",)),
        ([{"a": {"b": text}, "c": text} for text in TEXTS], ("c",)),
        ([{"a": {"b": text}} for text in TEXTS], ("a", "b")),
        ([{"a": {"b": {"c": text}}} for text in TEXTS], None),
        ([{"a": text} for text in TEXTS[:2]] + [{}] * 3, ("a",)),
        ([{"a": text} for text in TEXTS[:2]] + [{}] * 4, None),
        ([{'a"': text} for text in TEXTS], None),
        ([{"a": TEXTS[0], "b": TEXTS[0]}, {"b": TEXTS[1]}], ("b",)),
        ([], None),
    ],
)
def test_the_likeliest_text_of_objects(
    items: list[dict[str, Any]], path: tuple[str, ...] | None
) -> None:
    assert text_path(items) == path


def only(each: str, *lists: list[dict[str, Any]]) -> tuple[dict[str, Any], str, tuple[str, ...]]:
    [way] = of_objects(each, list(lists))
    return way.mapping, way.description, way.doubts


def spoken(*names: Any, **more: Any) -> list[dict[str, Any]]:
    return [
        {"who": name, "text": text} | more for name, text in zip(names, TEXTS, strict=False)
    ]  # fmt: skip


def test_items_with_a_speaker_and_a_text() -> None:
    talk = spoken("user", "bot", "user", "bot")
    message = {"role_from": "who", "text": "text"}
    found = "speakers under 'who', texts under 'text'"
    assert only("t[*]", talk, talk) == ({"each": "t[*]", "messages": [message]}, found, ())


def test_items_of_the_usual_form_need_no_messages() -> None:
    talk = [
        {"from": item["who"], "value": item["text"]} for item in spoken("user", "bot", "user")
    ]  # fmt: skip
    assert only("t[*]", talk)[0] == {"each": "t[*]"}
    calls = [item | {"tool_calls": [{"name": "f"}]} for item in talk]
    assert only("t[*]", calls)[0] == {"each": "t[*]"}
    parts = [item | {"parts": [{"name": "f"}]} for item in talk]
    mapping, _, doubts = only("t[*]", parts)
    assert mapping["messages"] == [{"role_from": "from", "text": "value"}]
    assert doubts == ("items also hold parts, kept in the metadata",)


def test_at_most_four_other_keys_of_items_are_named() -> None:
    parts = {f"{name}_part": [1] for name in "edcba"} | {"zork": [1], "empty_part": []}
    _, _, doubts = only("t[*]", spoken("user", "bot", "user", **parts))
    names = "a_part, b_part, c_part, d_part"
    assert doubts == (f"items also hold {names}, kept in the metadata",)


def test_items_without_a_text_are_left_out_by_a_field_of_few_values() -> None:
    talk = [item | {"kind": "say"} for item in spoken("user", "bot", "user", "bot")]
    pause = {"who": "bot", "kind": "wait"}
    mapping, _, doubts = only("t[*]", [*talk, pause], [pause, *talk])
    assert mapping["where"] == {"kind": "say"}
    assert "optional" not in mapping["messages"][0]
    assert doubts == ("items without 'text' are left out by `where`",)

    several = [item | {"kind": kind} for item, kind in zip(talk, ["say", "ask"] * 2, strict=True)]
    mapping, _, _ = only("t[*]", [*several, pause], [pause, *several])
    assert mapping["where"] == {"kind": ["say", "ask"]}


def test_a_text_that_some_items_lack_is_optional() -> None:
    talk = spoken("user", "bot", "user", "bot")
    mapping, _, doubts = only("t[*]", [*talk, {"who": "user"}, {"who": "bot"}])
    assert mapping["messages"] == [{"role_from": "who", "text": "text", "optional": True}]
    assert doubts == ("some items have no text under 'text'",)


@pytest.mark.parametrize(
    ("key", "share", "doubts"),
    [
        ("wording", 1.0, ("the text may also be 'spoken'",)),
        ("wording", 0.5, ("the text may also be 'spoken'",)),
        ("wording", 0.25, ()),
        ("text", 1.0, ()),
        ("Text", 1.0, ()),
    ],
)
def test_another_text_of_items_at_least_half_as_long_is_a_doubt_unless_the_first_is_named_as_one(
    key: str, share: float, doubts: tuple[str, ...]
) -> None:
    words = [f"this is the long text number {name}" for name in ("one", "two", "three", "four")]
    talk = [
        {"who": name, key: f"{text} now", "spoken": " ".join(text.split()[-int(8 * share) :])}
        for name, text in zip(["user", "bot"] * 2, words, strict=True)
    ]
    mapping, _, found = only("t[*]", talk)
    assert mapping["messages"] == [{"role_from": "who", "text": key}]
    assert found == doubts


def test_questions_and_answers_under_their_keys() -> None:
    pairs = [{"user": TEXTS[0], "bot": TEXTS[1]}, {"user": TEXTS[2], "bot": TEXTS[3]}]
    asked = {"role": "user", "text": "user"}
    answered = {"role": "assistant", "text": "bot"}
    mapping, found, doubts = only("t[*]", pairs)
    assert mapping["messages"] == [asked, answered]
    assert found == "questions under 'user' and answers under 'bot'"
    assert doubts == ("roles are guessed from the keys",)
    late = [{"user": TEXTS[0]}, {"bot": TEXTS[1], "user": TEXTS[2]}, {"bot": TEXTS[3], "user": "Bye now"}]  # fmt: skip
    assert only("t[*]", late)[0]["messages"] == [answered | {"optional": True}, asked]


def test_texts_in_turn_stand_under_a_key_for_conversations() -> None:
    texts = [{"zork": text} for text in TEXTS]
    message = {"role_in_turn": ["user", "assistant"], "text": "zork"}
    found = "texts under 'zork' and nobody named who speaks"
    doubts = ("roles are taken in turn",)
    assert only("dialog[*]", texts) == ({"each": "dialog[*]", "messages": [message]}, found, doubts)
    assert not [*of_objects("items[*]", [texts])]
    assert not [*of_objects("dialog[*]", [[{"zork": "one two"}, {"zork": "two three"}]])]
    assert not [*of_objects("dialog[*]", [texts[:1]])]


@pytest.mark.parametrize(
    ("value", "selectors"),
    [
        ({"a": {"x": 1}, "b": [1]}, ["*"]),
        ({"a": {"x": 1}}, []),
        ({"a": {"x": 1}, "b": {}}, []),
        ({"a": {"x": 1}, "b": 3}, []),
        ({"version": 1, "data": [{"a": 1}]}, ["data[*]"]),
        ({"version": 1, "data": [{"a": 1}] * 9 + [3]}, ["data[*]"]),
        ({"version": 1, "data": [{"a": 1}] * 8 + [3]}, []),
        ({"version": 1, "data": []}, []),
        ({"version": 1, "a.b": {"x": [], "y": {}}}, ['["a.b"].*']),
        ({"version": 1, "data": {"x": []}}, []),
        ({"version": 1, 'a"b': [{"a": 1}]}, []),
        ({"version": 1, "data": {"x": [], "y": 3}}, []),
        ([{"a": 1}], []),
    ],
)
def test_where_rows_may_be_within_a_file(value: Any, selectors: list[str]) -> None:
    assert [*row_selectors(value)] == selectors


def test_a_table_of_other_columns_than_the_first_gives_no_items() -> None:
    lines = {"speaker": ["user", "bot"] * 2, "utterance": list(TEXTS)}
    each = {"speaker": "lines.speaker[*]", "utterance": "lines.utterance[*]"}
    messages = [{"role_from": "speaker", "text": "utterance"}]
    expected = {"each": each, "messages": messages}
    for other in ({"speaker": [1, 2], "a": [3, 4]}, {"a": ["x"] * 5, "b": ["y"] * 5}):
        assert (expected, ()) in ways({"lines": lines}, {"lines": lines}, {"lines": other})


def ways(*rows: dict[str, Any]) -> list[tuple[dict[str, Any], tuple[str, ...]]]:
    return [(way.mapping, way.doubts) for way in candidates(rows)]


def test_lists_beside_each_other_are_found_in_json_text_too() -> None:
    row = {"questions": json.dumps(TEXTS[::2]), "responses": json.dumps(TEXTS[1::2])}
    each = {"question": "questions[*]", "answer": "responses[*]"}
    messages = [{"role": "user", "text": "question"}, {"role": "assistant", "text": "answer"}]
    expected = {"parse": "json", "each": each, "messages": messages}
    assert (expected, ("roles are guessed from the keys",)) in ways(row, row)


def test_a_list_beside_another_is_as_long_in_nine_rows_of_ten() -> None:
    row = {"dialog": list(TEXTS), "speakers": ["user", "bot"] * 2}
    short = row | {"speakers": ["user", "bot", "user"]}
    speakers = {"speaker": "speakers[*]", "text": "dialog[*]"}
    assert [mapping["each"] for mapping, _ in ways(*[row] * 9, short)] == [speakers]
    assert [mapping["each"] for mapping, _ in ways(*[row] * 8, short)] == ["dialog[*]"]


def test_pairs_of_texts_and_of_a_speaker_and_a_text() -> None:
    pairs = {"log": [[text, f"{text} Yes."] for text in TEXTS]}
    messages = [{"role": "user", "text": "[0]"}, {"role": "assistant", "text": "[1]"}]
    doubts = ("the first is taken for the user",)
    assert ways(pairs, pairs) == [({"each": "log[*]", "messages": messages}, doubts)]
    spoken_pairs = {"log": [["user", TEXTS[0]], ["bot", TEXTS[1]]]}
    messages = [{"role_from": "[0]", "text": "[1]"}]
    assert ways(spoken_pairs, spoken_pairs) == [({"each": "log[*]", "messages": messages}, ())]
    assert {way.description for row in (pairs, spoken_pairs) for way in candidates([row])} == {
        "pairs of texts", "pairs of speaker and text",
    }  # fmt: skip
    assert not ways({"log": [["user", "yes"], ["bot", "no"]]})
    assert not ways({"log": [["user", TEXTS[0], 1], ["bot", TEXTS[1], 2]]})


def test_a_path_that_half_of_the_rows_have_is_looked_at() -> None:
    row = {"log": spoken("user", "bot", "user", "bot")}
    assert len(ways(row, {})) == 1
    assert not ways(row, {}, {})
    assert len(ways({"a": {"b": row}})) == 1
    assert not ways({"a": {"b": {"c": row}}})


def test_python_text_is_doubtful() -> None:
    row = {"log": repr(spoken("user", "bot", "user", "bot"))}
    [(mapping, doubts)] = ways(row)
    assert mapping["parse"] == "python"
    assert doubts == ("the list is python text",)
