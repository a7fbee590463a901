"""Transcripts taken apart at marks and names."""

from __future__ import annotations

import pytest

from curate.sources.transcripts import (
    find_marks,
    opens_lines_with_names,
    speaker_of,
    split_at_marks,
    split_at_names,
)
from curate.sources.unit_result import UnreadableError

MARKS = ["User:", "Bot:"]


@pytest.mark.parametrize(
    ("text", "pieces"),
    [
        ("User: a\nBot: b", [("User:", "a"), ("Bot:", "b")]),
        (" \n User: a Bot: b", [("User:", "a"), ("Bot:", "b")]),
        ("User: a\n  Bot: say Bot: twice", [("User:", "a"), ("Bot:", "say Bot: twice")]),
        ("User: xBot: a", [("User:", "xBot: a")]),
        ("User:", [("User:", "")]),
    ],
)
def test_marks_open_lines_or_follow_a_space(text: str, pieces: list[tuple[str, str]]) -> None:
    assert split_at_marks(text, MARKS) == pieces


def test_a_mark_that_is_no_word_counts_anywhere() -> None:
    text = "<|user|>a<|bot|>b\n<|user|>c"
    assert split_at_marks(text, ["<|user|>", "<|bot|>"]) == [
        ("<|user|>", "a"),
        ("<|bot|>", "b"),
        ("<|user|>", "c"),
    ]


@pytest.mark.parametrize(
    ("text", "detail"),
    [
        ("nothing", "the transcript has none of User:, Bot:"),
        ("Hello. User: a\nBot: b", "there is text before the first speaker's mark"),
    ],
)
def test_why_a_transcript_cannot_be_split_at_marks(text: str, detail: str) -> None:
    with pytest.raises(UnreadableError) as raised:
        split_at_marks(text, MARKS)
    assert (raised.value.reason, raised.value.detail) == ("bad_type", detail)


def test_names_open_lines_and_other_lines_go_on() -> None:
    text = "\nAnn: hi\nsee http://a.example\n\nDr. Lee Smith : yes\nAnn: bye\n"
    assert split_at_names(text) == [
        ("Ann", "hi\nsee http://a.example"),
        ("Dr. Lee Smith", "yes"),
        ("Ann", "bye"),
    ]


@pytest.mark.parametrize(
    ("text", "detail"),
    [
        ("hello\nAnn: hi", "the transcript does not open with a name and a colon"),
        (" \n\t\n", "the transcript is empty"),
        ("", "the transcript is empty"),
    ],
)
def test_why_a_transcript_cannot_be_split_at_names(text: str, detail: str) -> None:
    with pytest.raises(UnreadableError) as raised:
        split_at_names(text)
    assert (raised.value.reason, raised.value.detail) == ("bad_type", detail)


@pytest.mark.parametrize(
    ("mark", "name"),
    [
        ("### Human:", "Human"), ("**User**:", "User"), ("<|user|>", "user"), ("[Bot]", "Bot"), ("Ann：", "Ann"),
        ("[|AI|]", "AI"),
    ],
)  # fmt: skip
def test_the_name_in_a_mark(mark: str, name: str) -> None:
    assert speaker_of(mark) == name


@pytest.mark.parametrize(
    ("texts", "opens"),
    [
        (["Ann: a\nBob: b\nAnn: c"], True),
        (["Ann: a\nBob: b"], False),  # two lines may be anything
        (["Ann: a\nAnn: b\nAnn: c"], False),
        (["Ann: a\nAnn: b\nAnn: c\nBob: d"], False),  # they do not take turns
        (["\n".join(f"N{chr(65 + n)}: a" for n in range(7))], False),  # a list of seven
        (["Ann: a\nBob: b\nAnn: c\nx\ny"], False),  # too many lines without a name
        (["Ann: a\nBob: b\nAnn: c", "nothing"], True),
        (["Ann: a\nBob: b\nAnn: c", "nothing", "at all"], False),
        ([], False),
    ],
)
def test_texts_whose_lines_open_with_names(texts: list[str], opens: bool) -> None:
    assert opens_lines_with_names(texts) is opens


@pytest.mark.parametrize(
    ("texts", "marks"),
    [
        (["User: a\nBot: b\nUser: c\nBot: d"] * 3, {"User:", "Bot:"}),
        (["User: a Bot: b User: c Bot: d"] * 3, {"User:", "Bot:"}),
        (["User: a Note: x Bot: b User: c Bot: d"] * 3, {"User:", "Bot:"}),
        (["<|user|>a<|bot|>b"] * 2, {"<|user|>", "<|bot|>"}),
        (["User: a\nBot: b", "no", "no"], set()),
        (["Hello. User: a\nBot: b\n"], set()),
        (["User: a"], set()),
        ([], set()),
    ],
)
def test_the_marks_of_transcripts(texts: list[str], marks: set[str]) -> None:
    assert set(find_marks(texts)) == marks
