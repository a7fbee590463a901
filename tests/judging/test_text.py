"""Reading the words of a text reply."""

from __future__ import annotations

import json

import jsonschema
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from curate.engines.structured import for_grammar
from curate.judging.text import TextScope, read_text
from tests.growth import growth

KEYS = ("turn_1", "turn_12", "coherence", "task_completion", "repair_handling", "basis")


def test_labels_are_found_behind_marks_and_text_may_follow_on_the_next_line() -> None:
    text = "\n\n - **Turn 1**: late; rude\n__turn_2:\n\n  vague\nso turn 3: no line of its own\n### Basis: fine"
    said = read_text(text, cut=False)
    assert said.issues == {1: ("late", "rude"), 2: ("vague",)}
    assert said.basis == "fine"


def test_a_turn_of_thousands_of_digits_is_no_turn() -> None:
    assert read_text(f"turn {'1' * 5000}: x\nturn 1: y", cut=False).issues == {1: ("y",)}


def test_the_texts_of_an_object_are_read_whole_cut_and_between_other_words() -> None:
    reply = 'Sure:\n```json\n{"turn_1": "late; \\"rude\\"", "coherence": "", "turn_3": ["a"], "basis": "a b", "basis": "c"}\n```'
    whole = read_text(reply, cut=False)
    assert whole.issues == {1: ("late", '"rude"')}
    assert (whole.notes, whole.basis) == ({}, "a b")
    cut = read_text(reply[: reply.index(' b", "basis')], cut=True)
    assert (cut.issues, cut.basis) == (whole.issues, "")


@given(
    st.dictionaries(st.sampled_from(KEYS), st.text(min_size=1).filter(str.strip)),
    st.integers(0, 400),
)
def test_what_an_object_holds_before_it_is_cut_is_read(texts: dict[str, str], end: int) -> None:
    reply = json.dumps(texts)[:end]
    said = read_text(reply, cut=end < len(json.dumps(texts)))
    held = {key for key, text in texts.items() if json.dumps({key: text})[1:-1] in reply}
    given_names = {f"turn_{turn}" for turn in said.issues} | set(said.notes)
    assert given_names | ({"basis"} if said.basis else set()) == held
    orjson.dumps([said.issues[turn] for turn in said.issues])  # can be stored


def test_the_schema_ends_every_text_at_its_bound() -> None:
    schema = TextScope((3,), whole=True).schema
    texts = {
        "turn_3": " ".join(["word"] * 20),
        "coherence": "a b, c; 3.5 (d) isn't... " + " ".join(["x"] * 9),
        "task_completion": "总体来说完成了任务。",
        "repair_handling": "n/a",
        "basis": " ".join(["word"] * 40),
    }
    is_valid = jsonschema.Draft202012Validator(for_grammar(schema)).is_valid
    assert is_valid(texts)
    for wrong in (
        {"turn_3": texts["turn_3"] + " word"},
        {"basis": texts["basis"] + " word"},
        {"coherence": ""},
        {"coherence": "a,b,c,d,e"},  # a model's way round the bound
    ):
        assert not is_valid(texts | wrong)
    assert "basis" not in TextScope((3,), whole=False).schema["properties"]


@pytest.mark.parametrize(
    "worst",
    [
        '"basis":"',
        '"basis": "\\',
        '"basis"   ',
        "\n",
        "_",
        "\n_ ",
        "turn 1\n",
        "turn",
        "turn 1:\n",
        "turn 1 :\n\n",
    ],
)
def test_any_reply_is_read_in_linear_time(worst: str) -> None:
    assert growth(lambda size: read_text(worst * size, cut=False), 4_000) < 30
