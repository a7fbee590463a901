"""What counts as a change in substance."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from curate.dialogue import Message, ToolCall
from curate.pairs import substance as module
from curate.pairs.substance import is_cosmetic, is_identical, substance
from tests.pairs.scripted import say


def cosmetic(left: str, right: str) -> bool:
    return is_cosmetic(say("assistant", left), say("assistant", right))


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ("Your refund of $40 is on its way.", "your refund of $40 is on its way"),
        ("Your refund is on its way.", "Sure! Your refund is on its way, thank you."),
        ("Refund started. I hope this helps!", "Refund started."),
        ("I'm sending it.", "I am sending it."),
        ("I can't do that.", "I cannot do that."),
        ("It costs 1,000 euros.", "It costs 1000 euros."),
        ("**Order** the *blue* one", "Order the blue one."),
        ("It’s done — really.", "It's done."),
        ("请稍等，谢谢。", "稍等"),
        ("Great, done.", "Done."),
        ("Open a ticket.", "Open the ticket"),
        ("The balance is −5.", "The balance is -5."),
        ("The ﬁrst one", "The first one"),
        ("It shan't and won't.", "It shall not and will not."),
        ("We've seen they're in, I'll go.", "We have seen they are in, I will go."),
        ("```\nx = 1  \n```", "```\nx = 1\n```"),
        ("a \x000\x00 b", "a 0 b"),
    ],
)
def test_cosmetic_changes_are_found(left: str, right: str) -> None:
    assert cosmetic(left, right)
    assert cosmetic(right, left)


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ("Your refund of $40 is on its way.", "Your refund of $45 is on its way."),
        ("You can cancel.", "You can't cancel."),
        ("You can cancel.", "You can not cancel."),
        ("I told Anna.", "I told Anne."),
        ("Ann pays Ben.", "Ben pays Ann."),
        ("It is due at 5.5.", "It is due at 55."),
        ("The balance is -5.", "The balance is 5."),
        ("A 5% fee", "A 5 fee"),
        ("It costs $5", "It costs €5"),
        ("You will call me.", "I will call you."),
        ("Refund started.", "Refund started. It takes 3 days."),
        ("Write `a = b`.", "Write `a == b`."),
        ("Take plan A.", "Take plan B."),
        ("Take plan A.", "Take plan."),
        ("Mail alex@example.com", "Mail alex@example.org"),
        ("10:30", "10:45"),
        ("可以取消", "不可以取消"),
        ("Sure.", "Thanks."),
        ("No problem with it.", "A problem with it."),
        ("Yes.", "No."),
        ("The Great Wall", "The Wall"),
    ],
)
def test_changes_of_substance_are_kept(left: str, right: str) -> None:
    assert not cosmetic(left, right)
    assert not cosmetic(right, left)


def test_one_tool_argument_is_substance_and_a_call_id_is_not() -> None:
    def call(arguments: dict[str, object] | str, identifier: str) -> Message:
        return Message(
            role="assistant",
            tool_calls=(ToolCall(name="refund", arguments=arguments, id=identifier),),
        )

    assert not is_cosmetic(call({"amount": 40}, "x"), call({"amount": 45}, "x"))
    assert is_identical(call({"a": 1, "b": 2}, "x"), call('{"b": 2, "a": 1}', "y"))
    assert not is_identical(call({"a": 1}, "x"), call({"a": 2}, "x"))


words = st.sampled_from(
    ["refund", "40", "45", "not", "Ann", "Ben", "the", "please", "order", "-3", "50%", "取消"]
)


@given(st.lists(words, min_size=1, max_size=8))
def test_substance_survives_case_and_punctuation(tokens: list[str]) -> None:
    text = " ".join(tokens)
    assert substance(text) == substance(f"  {text.upper()} !\n")


@given(st.text(max_size=60))
def test_any_text_can_be_read_and_equals_itself(text: str) -> None:
    assert substance(text) == substance(text)
    assert cosmetic(text, text)


@given(st.lists(words, min_size=1, max_size=8), st.integers(0, 7), st.integers(100, 999))
def test_an_added_number_is_always_substance(tokens: list[str], at: int, number: int) -> None:
    changed = [*tokens[:at], str(number), *tokens[at:]]
    assert not cosmetic(" ".join(tokens), " ".join(changed))


scraps = st.sampled_from(
    ["thank you", "you are", "welcome", "great", "sure", "it's", "n't", "1,000", "1,", "000", "-3.5", "10:30",
     "the", "A", "is", "`a. b`", "```x.\ny```", "`", "i", "'m", "happy to help", "谢谢", "好的", "refund", "…", "ﬁ"]
)  # fmt: skip
gaps = st.sampled_from([" ", "", ". ", "! ", "?\n", ", ", ",", ".", " . ", ": ", "\u3000"])


@given(st.lists(st.tuples(scraps, gaps), max_size=14))
def test_where_a_text_is_cut_makes_no_difference(parts: list[tuple[str, str]]) -> None:
    text = "".join(scrap + gap for scrap, gap in parts)
    whole = substance(text)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_PIECE", 1)
        assert substance(text) == whole


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Characters of each piece that is taken apart."""
    sizes: list[int] = []
    content = module._content

    def counted(piece: str) -> list[str]:
        sizes.append(len(piece))
        return content(piece)

    monkeypatch.setattr(module, "_content", counted)
    return sizes


def test_huge_texts_are_read_only_as_far_as_they_are_alike(read: list[int]) -> None:
    sentences = [f"Parcel {n} left depot {n % 7}, and it's on its way." for n in range(20_000)]
    text = " ".join(sentences)
    assert not cosmetic(text, " ".join(sentences[::-1]))
    assert sum(read) < 5_000
    read.clear()
    changed = " ".join(["Sure!", *sentences, "Thank you!"])
    assert cosmetic(text, changed)
    assert sum(read) == len(text) + len(changed)
    assert max(read) < 2_000
