"""What differs between two sides, as facts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from curate.dialogue import Message, ToolCall
from curate.pairs.changes import describe_changes
from curate.pairs.substance import is_cosmetic
from tests.pairs.scripted import say


def changes(before: str, after: str) -> dict[str, tuple[tuple[str, ...], tuple[str, ...]]]:
    found = describe_changes(say("assistant", before), say("assistant", after))
    return {change.kind: (change.removed, change.added) for change in found}


def test_one_wrong_amount() -> None:
    found = changes("You get $40. It takes a week.", "You get $45. It takes a week.")
    assert found == {
        "amount": (("$40",), ("$45",)),
        "sentence": (("You get $40.",), ("You get $45.",)),
    }


@pytest.mark.parametrize(
    ("before", "after", "kind", "sides"),
    [
        ("You can return it.", "You cannot return it.", "negation", ((), ("not",))),
        ("Ask for Ann Smith.", "Ask for Ben Smith.", "name", (("Ann Smith",), ("Ben Smith",))),
        ("By May 5.", "By May 6.", "date", (("May 5",), ("May 6",))),
        ("It is order #7.", "It is order #8.", "id", (("#7",), ("#8",))),
        ("Two left.", "Three left.", "number", (("Two",), ("Three",))),
        ("Done.", "Done. Ask me more.", "sentence", ((), ("Ask me more.",))),
    ],
)
def test_each_kind(before: str, after: str, kind: str, sides: object) -> None:
    assert changes(before, after)[kind] == sides


def test_calls_are_compared_by_name_and_by_argument() -> None:
    def calling(*calls: tuple[str, object]) -> Message:
        made = tuple(ToolCall.model_validate({"name": n, "arguments": a}) for n, a in calls)
        return Message(role="assistant", tool_calls=made)

    before = calling(("pay", {"order": 7, "to": {"name": "Ann"}}), ("log", {}))
    after = calling(("pay", '{"order": 8, "to": {"name": "Ann"}}'), ("note", {}), ("end", {}))
    found = describe_changes(before, after)
    assert [(change.kind, change.removed, change.added) for change in found] == [
        ("argument", ("pay.order: 7",), ("pay.order: 8",)),
        ("tool", ("log",), ("note",)),
        ("tool", (), ("end",)),
    ]


def test_arguments_are_told_by_their_path_as_json_that_a_person_can_read() -> None:
    def calling(arguments: object) -> Message:
        call = ToolCall.model_validate({"name": "pay", "arguments": arguments})
        return Message(role="assistant", tool_calls=(call,))

    before = calling({"to": [{"name": "Zoë"}, 1], "none": [], "empty": {}, "same": None})
    after = calling({"to": [{"name": "Åsa"}, 1, True], "none": [""], "empty": 0, "same": None})
    [change] = describe_changes(before, after)
    assert (change.kind, change.removed, change.added) == (
        "argument",
        ('pay.to.0.name: "Zoë"', "pay.none: []", "pay.empty: {}"),
        ('pay.to.0.name: "Åsa"', "pay.to.2: true", 'pay.none.0: ""', "pay.empty: 0"),
    )


def test_a_sentence_put_more_politely_is_no_change() -> None:
    assert changes("You get $45.", "Sure! You get $45, thank you.") == {}


TEXTS = st.lists(
    st.sampled_from(
        ["You get $40.", "You get $45.", "Ask Ann.", "It is not.", "Sure.", "So be it."]
    ),
    max_size=4,
).map(" ".join)


@given(TEXTS, TEXTS)
def test_the_way_back_is_the_way_turned_round(before: str, after: str) -> None:
    there, back = changes(before, after), changes(after, before)
    facts = set(there) - {"sentence"}
    assert facts == set(back) - {"sentence"}
    assert all(there[kind] == back[kind][::-1] for kind in facts)
    assert changes(before, before) == {}
    if there and "sentence" not in there:
        assert not is_cosmetic(say("assistant", before), say("assistant", after))
