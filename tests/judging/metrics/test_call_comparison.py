from typing import Any

from curate.dialogue import Dialogue, Message, ToolCall
from curate.judging.metrics.call_comparison import compare_calls, describe_comparison
from curate.records import CallComparison

Call = tuple[str, Any]


def compared(expected: list[Call], made: list[Call]) -> CallComparison:
    """Each made call stands in a turn of its own."""
    messages: list[Message] = []
    for name, arguments in made:
        call = ToolCall(name=name, arguments=arguments)
        messages += [
            Message(role="user", content="x"),
            Message(role="assistant", tool_calls=(call,)),
        ]
    held = compare_calls(
        Dialogue(
            id="d",
            messages=tuple(messages),
            expected_tools=tuple(ToolCall(name=n, arguments=a) for n, a in expected),
        )
    )
    assert held is not None
    return held


def test_without_expected_calls_nothing_is_compared() -> None:
    assert compare_calls(Dialogue(id="d", messages=())) is None


def test_calls_as_expected_are_exact_and_in_order() -> None:
    calls = [("find", {"id": 1}), ("cancel", {"id": 1})]
    held = compared(calls, calls)
    assert [match.is_exact for match in held.matches] == [True, True]
    assert [match.turn for match in held.matches] == [1, 2]
    assert (held.missing, held.unexpected, held.in_order) == ((), (), True)
    assert describe_comparison(held) == (
        "2 calls expected, 2 made; 2 of the expected were made (2 with exactly the expected arguments), "
        "in the expected order.\nfind in turn 1: arguments as expected\ncancel in turn 2: arguments as expected"
    )


def test_missing_and_unexpected_calls_are_named_as_often_as_they_are() -> None:
    held = compared([("a", {}), ("b", {}), ("b", {})], [("b", {}), ("c", {}), ("c", {})])
    assert held.missing == ("a", "b")
    assert held.unexpected == ("c", "c")
    assert describe_comparison(held) == (
        "3 calls expected, 3 made; 1 of the expected were made (1 with exactly the expected arguments).\n"
        "missing: a, b\nnot among the expected: c, c\nb in turn 1: arguments as expected"
    )
    assert compared([("a", {})], []).missing == ("a",)


def test_order_is_that_of_the_expected_calls() -> None:
    held = compared([("a", {}), ("b", {})], [("b", {}), ("a", {})])
    assert not held.in_order
    assert "not in the expected order" in describe_comparison(held)


def test_of_equal_names_those_with_the_same_arguments_belong_together() -> None:
    held = compared([("a", {"n": 1}), ("a", {"n": 2})], [("a", {"n": 2}), ("a", {"n": 1})])
    assert [(match.expected, match.made) for match in held.matches] == [(1, 2), (2, 1)]
    assert all(match.is_exact for match in held.matches)
    assert not held.in_order


def test_arguments_that_differ_are_named() -> None:
    held = compared([("a", {"n": 1, "s": "x", "t": True})], [("a", {"n": 2, "s": "x", "u": None})])
    (match,) = held.matches
    assert (match.different, match.missing, match.extra) == (("n",), ("t",), ("u",))
    assert describe_comparison(held).endswith(
        "a in turn 1: other value of: n; left out: t; added: u"
    )
    several = compared([("a", {"n": 1, "s": 1, "t": 1})], [("a", {"n": 2, "s": 2, "t": 2})])
    assert describe_comparison(several).endswith("a in turn 1: other value of: n, s, t")


def test_numbers_are_equal_by_value_and_true_is_no_number() -> None:
    assert (
        compared([("a", {"n": [1, {"m": 2}]})], [("a", {"n": [1.0, {"m": 2.0}]})])
        .matches[0]
        .is_exact
    )
    assert compared([("a", {"n": 1})], [("a", {"n": True})]).matches[0].different == ("n",)
    assert compared([("a", {"n": [1]})], [("a", {"n": [True]})]).matches[0].different == ("n",)
    assert compared([("a", {"n": "1"})], [("a", {"n": 1})]).matches[0].different == ("n",)


def test_arguments_that_are_no_object_are_compared_as_a_whole() -> None:
    assert compared([("a", "{broken")], [("a", "{broken")]).matches[0].is_exact
    assert compared([("a", "{broken")], [("a", {})]).matches[0].different == ("arguments",)
