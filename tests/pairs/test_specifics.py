"""What a message states, and what of it stands nowhere in what the assistant was given."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from curate.dialogue import Dialogue, Message, ToolCall
from curate.pairs.specifics import Support, specifics, unsupported
from tests.pairs.scripted import chat, say


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("Your refund is $45.00.", [("amount", "$45.00")]),
        ("It costs 45 euros, 20% less.", [("amount", "45 euros"), ("amount", "20%")]),
        ("Order ORD-1234 and #77 left.", [("id", "ORD-1234"), ("id", "#77")]),
        ("It comes on March 5, 2026 at 10:30.", [("date", "March 5, 2026"), ("date", "10:30")]),
        ("On 2026-03-05 or 5th of May.", [("date", "2026-03-05"), ("date", "5th of May")]),
        ("Wait three days, not 14.", [("number", "three"), ("number", "14")]),
        ("See https://shop.example/a?b=1.", [("url", "https://shop.example/a?b=1")]),
        ("Write to help@shop.example, please.", [("email", "help@shop.example")]),
        ("We asked Ann Smith in New York.", [("name", "Ann Smith"), ("name", "New York")]),
        ("Paris is large. So is the USA.", [("name", "USA")]),
        ("You get it. Sure. Sure. Bye.", []),
        ("We met J. Smith in St. Gallen.", [("name", "J. Smith"), ("name", "St. Gallen")]),
        ("J. Smith came. USA Today wrote. B", [("name", "Smith"), ("name", "USA Today")]),
        ("1. First\n2. Then\n- I'll do it. OK.", []),
        ("Nothing here is stated; one never knows.", []),
        ("```\nx = 45\n```", []),
        ("价格是45元。", [("number", "45")]),
    ],
)
def test_what_is_stated(text: str, found: list[tuple[str, str]]) -> None:
    assert [(item.kind, item.text) for item in specifics(text)] == found


@pytest.mark.parametrize(
    ("stated", "given_text"),
    [
        ("$45", "I paid 45.00 dollars"),
        ("1,200", "it is 1200 now"),
        ("three", "in 3 days"),
        ("3 weeks", "three weeks"),
        ("March 5", "on 2026-03-05"),
        ("Sent to Ann Smith", "smith, ann"),
        ("ask Ann's", "ann"),
        ("#77", "order 77"),
        ("HAT-170", "flight hat170"),
        ("3.5 kg", "3,5 kg"),
        ("1,200.50", "1200.5"),
        ("https://a.example/", "at https://a.example"),
    ],
)
def test_support_is_found_in_other_spellings(stated: str, given_text: str) -> None:
    support = Support([given_text])
    assert specifics(stated)
    assert all(support.holds(item) for item in specifics(stated))


@pytest.mark.parametrize(
    ("stated", "given_text"),
    [
        ("$45", "$40"),
        ("March 5", "March 6"),
        ("with Ann Smith", "Ann Jones"),
        ("#77", "#7"),
        ("five", "4"),
    ],
)
def test_another_detail_is_no_support(stated: str, given_text: str) -> None:
    support = Support([given_text])
    assert not all(support.holds(item) for item in specifics(stated))


CHOSEN = say("assistant", "You get $45 for order 7 by Friday, says Ann.")
REJECTED = say("assistant", "You get nothing.")


def test_everything_given_to_the_assistant_supports_a_detail() -> None:
    call = ToolCall(name="find", arguments={"order": 7})
    prompt = Dialogue(
        id="d",
        messages=(
            say("user", "Refund!"),
            Message(role="assistant", tool_calls=(call,)),
            say("tool", "paid: 45.00"),
        ),
        role_definition="You work with Ann.",
        evidence=("Refunds arrive by Friday.",),
    )
    assert unsupported(prompt, CHOSEN, REJECTED) == []
    bare = chat("Refund!")
    assert unsupported(bare, CHOSEN, REJECTED) == ["$45", "7", "Friday", "Ann"]
    assert unsupported(bare, CHOSEN, say("assistant", "It is $45, Ann.")) == ["7", "Friday"]
    tools = bare.model_copy(
        update={"tools": ({"name": "pay", "description": "up to 45 by Friday"},)}
    )
    assert unsupported(tools, CHOSEN, REJECTED) == ["7", "Ann"]


def test_the_values_of_a_call_are_stated_too() -> None:
    call = Message(
        role="assistant",
        tool_calls=(ToolCall(name="pay", arguments={"order": 8, "to": ["ann@x.example"]}),),
    )
    assert unsupported(chat("Refund order 7."), call, REJECTED) == ["8", "ann@x.example"]


MARKED = st.text("AbZé⼀一𝟏\u0345²19-–'.,:;/@#$€% \n\t_()", max_size=40) | st.lists(
    st.sampled_from(
        ["AA", "www.", "https://", "x", "May", "5th", "two", "USD", "1,000", ".", "-", " "]
    ),
    max_size=8,
).map("".join)
"""What specifics are made of, letters without capitals and marks that fold to letters among it."""


@given(st.text(max_size=200) | MARKED, st.text(max_size=200) | MARKED)
@example("AA⼀", "")
def test_what_stands_in_the_prompt_is_always_supported(text: str, more: str) -> None:
    prompt = chat(f"{more} {text} {more}")
    assert unsupported(prompt, say("assistant", text), REJECTED) == []


@given(st.text(max_size=300))
def test_any_text_can_be_read(text: str) -> None:
    for item in specifics(text):
        assert item.text


@pytest.mark.parametrize("text", ["\n", "a", "1,", "a1-", "a@", "$1", "# ", "'\""])
def test_a_long_text_of_one_thing_is_read_at_once(text: str) -> None:
    """Patterns that go back over what they have read would take minutes here."""
    assert len(specifics(text * 20_000)) <= 1
