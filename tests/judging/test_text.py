"""Reading the words of a text reply."""

from __future__ import annotations

import pytest

from curate.judging.text import read_text
from tests.growth import growth


def test_labels_are_found_behind_marks_and_text_may_follow_on_the_next_line() -> None:
    text = "\n\n - **Turn 1**: late; rude\n__turn_2:\n\n  vague\nso turn 3: no line of its own\n### Basis: fine"
    said = read_text(text, cut=False)
    assert said.issues == {1: ("late", "rude"), 2: ("vague",)}
    assert said.basis == "fine"


def test_a_turn_of_thousands_of_digits_is_no_turn() -> None:
    assert read_text(f"turn {'1' * 5000}: x\nturn 1: y", cut=False).issues == {1: ("y",)}


@pytest.mark.parametrize(
    "worst", ["\n", "_", "\n_ ", "turn 1\n", "turn", "turn 1:\n", "turn 1 :\n\n"]
)
def test_any_reply_is_read_in_linear_time(worst: str) -> None:
    assert growth(lambda size: read_text(worst * size, cut=False), 4_000) < 30
