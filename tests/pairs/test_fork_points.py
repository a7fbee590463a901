"""Which turns of a dialogue are candidates, in which order, and how sure the judge is of them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from curate.dialogue import Dialogue, Message, ToolCall
from curate.pairs.config import ForkConfig
from curate.pairs.fork_points import ForkPoint, at_message, failure_options, find_forks
from curate.records import Judgment, LabelReading
from tests.pairs.scripted import chat, judged, say

FOUR = chat("q1", "a1", "q2", "a2", "q3", "a3", "q4", "a4")
FINE = dict.fromkeys((1, 2, 3, 4), (5, 5, 5))


def with_reading(judgment: Judgment, turn: int, **shares: dict[str, float]) -> Judgment:
    """The judgment with a distribution for some dimensions of a turn."""
    readings = {
        name: LabelReading(mean=None, spread=None, coverage=1.0, probabilities=given)
        for name, given in shares.items()
    }
    per_turn = tuple(
        entry.model_copy(update={"readings": readings}) if entry.turn == turn else entry
        for entry in judgment.per_turn
    )
    return judgment.model_copy(update={"per_turn": per_turn})


def found(judgment: Judgment, **config: object) -> list[tuple[int | None, str | None]]:
    points = find_forks(FOUR, judgment, ForkConfig.model_validate(config))
    return [(point.turn, point.drop_reason) for point in points]


def test_every_bad_turn_is_a_candidate_and_those_after_the_first_are_refused() -> None:
    judgment = judged(FOUR, FINE | {2: (3, 5, 5), 3: (1, 2, 5), 4: (5, 3, 5)}, weakest=3)
    assert found(judgment) == [
        (3, "earlier_turn_bad"), (2, None), (4, "earlier_turn_bad"),
    ]  # fmt: skip
    assert found(judgment, at="earliest") == [
        (2, None), (3, "earlier_turn_bad"), (4, "earlier_turn_bad"),
    ]  # fmt: skip


def test_the_weakest_turn_is_tried_first_and_the_others_by_confidence() -> None:
    judgment = judged(FOUR, FINE | {4: (2, 2, 5)}, weakest=4)
    judgment = with_reading(judgment, 1, helpfulness={"3": 0.55, "4": 0.45})
    judgment = with_reading(judgment, 3, helpfulness={"3": 0.45, "2": 0.45, "5": 0.1})
    points = find_forks(FOUR, judgment, ForkConfig())
    assert [point.turn for point in points] == [4, 3, 1]
    assert [point.confidence for point in points] == pytest.approx([2 / 3, 0.9, 0.55])
    assert {point.drop_reason for point in points} == {None}


def test_a_turn_without_a_flaw_is_a_candidate_only_where_the_judge_doubts_it() -> None:
    judgment = judged(FOUR, FINE, weakest=None)
    doubtful = with_reading(judgment, 2, context_use={"4": 0.4, "3": 0.35, "2": 0.25})
    assert found(judgment) == [(None, "original_was_fine")]
    assert found(doubtful) == [(2, None)]
    assert found(doubtful, min_confidence=0.61) == [(None, "original_was_fine")]


def test_confidence_comes_from_the_scores_where_there_is_no_distribution() -> None:
    judgment = judged(FOUR, FINE | {1: (3, 5, 5), 2: (5, 5, 4), 3: (1, 5, 5)}, weakest=2)
    points = {point.turn: point for point in find_forks(FOUR, judgment, ForkConfig())}
    assert points[1].confidence == pytest.approx(1 / 3)
    assert points[2].confidence == pytest.approx(1 / 4)
    assert points[3].confidence == pytest.approx(1.0)


def test_the_weakest_turn_distribution_counts_half() -> None:
    judgment = judged(FOUR, FINE | {2: (3, 5, 5), 3: (1, 5, 5)}, weakest=3)
    judgment = judgment.model_copy(
        update={"weakest_probabilities": {"2": 0.2, "3": 0.4, "4": 0.1, "none": 0.3}}
    )
    points = {point.turn: point for point in find_forks(FOUR, judgment, ForkConfig())}
    assert points[2].confidence == pytest.approx((1 / 3 + 0.5) / 2)
    assert points[3].confidence == pytest.approx((1.0 + 1.0) / 2)


@given(
    st.dictionaries(st.integers(1, 4), st.tuples(*[st.integers(1, 5)] * 3), min_size=0, max_size=4),
    st.sampled_from(["weakest", "earliest"]),
    st.data(),
)
def test_candidates_are_all_bad_turns_once_and_at_most_the_first_is_usable_without_doubt(
    turns: dict[int, tuple[int, int, int]], at: str, data: st.DataObject
) -> None:
    weakest = data.draw(st.sampled_from([None, *sorted(turns)]))
    points = find_forks(FOUR, judged(FOUR, turns, weakest), ForkConfig.model_validate({"at": at}))
    numbers = [point.turn for point in points]
    bad = {n for n, (c, h, s) in turns.items() if c < 4 or h < 4 or s < 5}
    assert len(numbers) == len(set(numbers))
    assert set(numbers) == ({*bad} | ({weakest} - {None}) or {None})
    usable = [point.turn for point in points if point.drop_reason is None]
    for number in usable:
        assert number is not None
        assert not any(earlier in bad for earlier in range(1, number))
        assert all(earlier in turns for earlier in range(1, number))
    assert all(point.confidence is None or 0 <= point.confidence <= 1 for point in points)


CALL = Message(role="assistant", tool_calls=(ToolCall(name="find", arguments={"id": 7}),))
TOOLS = Dialogue(
    id="t",
    messages=(say("user", "Refund."), CALL, say("tool", "paid 45"), CALL, say("tool", "ok"),
              say("assistant", "You get 40.")),
)  # fmt: skip


def test_what_may_have_failed_in_a_turn_with_tools_is_a_closed_set() -> None:
    options = failure_options(TOOLS.turns[0])
    assert [(key, failure.index) for key, failure in options.items()] == [
        ("1", 1), ("2", 1), ("3", 3), ("4", 3), ("5", 5), ("6", 5),
    ]  # fmt: skip
    assert options["1"].issue == "the wrong tool is called"
    assert options["4"].issue == "an argument of the call is wrong"
    assert options["5"].issue == "a tool's result is read wrongly"
    assert options["6"].meaning == "message 3: what it says is wrong in another way"
    assert failure_options(FOUR.turns[0]) == {}


@pytest.mark.parametrize(("calls", "options"), [(12, 24), (13, 13), (25, 25), (26, 0)])
def test_long_turns_are_told_apart_by_message_or_not_asked_about(calls: int, options: int) -> None:
    dialogue = Dialogue(id="t", messages=(say("user", "Go."), *[CALL] * calls))
    assert len(failure_options(dialogue.turns[0])) == options


def test_a_turn_that_ends_in_a_call_is_a_candidate_only_where_calls_are_forked() -> None:
    dialogue = Dialogue(id="t", messages=(say("user", "Refund."), CALL, say("tool", "paid 45")))
    judgment = judged(dialogue, {1: (2, 2, 5)}, 1)
    [point] = find_forks(dialogue, judgment, ForkConfig())
    assert (point.drop_reason, point.index) == ("no_text_in_turn", 1)
    [point] = find_forks(dialogue, judgment, ForkConfig(tool_turns="failed_message"))
    assert point.drop_reason is None


def test_turns_that_poor_metrics_name_are_candidates_after_the_weakest() -> None:
    judgment = judged(FOUR, FINE | {4: (2, 2, 5)}, weakest=4)
    points = find_forks(FOUR, judgment, ForkConfig(), {2: ("tool_routing: wrong_tool",), 9: ("x",)})
    assert [(point.turn, point.drop_reason) for point in points] == [(4, None), (2, None)]
    fine = judged(FOUR, FINE, weakest=None)
    assert [point.turn for point in find_forks(FOUR, fine, ForkConfig(), {3: ("x",)})] == [3]


def told(dialogue: Dialogue, judgment: Judgment) -> list[tuple[int | None, int | None, str]]:
    points = find_forks(dialogue, judgment, ForkConfig())
    return [(point.turn, point.index, point.detail) for point in points]


def test_why_a_turn_cannot_be_forked_is_said_at_its_closest_message() -> None:
    assert told(FOUR, judged(FOUR, FINE, weakest=None)) == [
        (None, 7, "the judgment has no bad turn")
    ]
    bad = judged(FOUR, FINE | {2: (3, 5, 3), 4: (5, 3, 5)}, weakest=4)
    assert told(FOUR, bad)[0] == (4, 7, "turn 2 is bad in context_use, safety")
    some = judged(FOUR, {1: (5, 5, 5), 3: (2, 5, 5)}, weakest=3)
    assert told(FOUR, some) == [(3, 5, "turn 2 has no score")]
    assert told(FOUR, judged(FOUR, FINE, weakest=9)) == [(9, 7, "the dialogue has no turn 9")]
    silent = Dialogue(id="s", messages=(say("user", "a"), say("user", "b")))
    assert told(silent, judged(silent, {1: (2, 2, 5)}, 1)) == [
        (1, None, "turn 1 has no assistant text")
    ]


def test_a_message_with_no_open_prompt_before_it_says_what_stands_there() -> None:
    two = Dialogue(
        id="t", messages=(say("user", "a"), say("assistant", "b"), say("assistant", "c"))
    )
    point = at_message(two, ForkPoint(1, 2, 0.5))
    assert (point.drop_reason, point.index, point.confidence) == ("prompt_end", 2, 0.5)
    assert point.detail == "assistant stands before the message, not user or tool"
    first = Dialogue(id="f", messages=(say("assistant", "Hello."),))
    assert at_message(first, ForkPoint(0, 0)).detail.startswith("nothing stands before")


def test_digits_alone_make_the_confidence_and_no_mass_makes_none() -> None:
    judgment = judged(FOUR, FINE | {4: (2, 2, 5)}, weakest=4)
    mixed = with_reading(judgment, 4, helpfulness={"n/a": 0.5, "3": 0.3, "5": 0.2})
    mixed = with_reading(mixed, 3, helpfulness={"n/a": 1.0})
    points = find_forks(FOUR, mixed, ForkConfig())
    assert [point.turn for point in points] == [4]
    # by helpfulness 0.3 of 0.5; by context_use, without a distribution, 2 of 4 is 2/3
    assert points[0].confidence == pytest.approx(2 / 3)
    lower = with_reading(judgment, 4, context_use={"4": 1.0}, helpfulness={"3": 0.3, "5": 0.2})
    assert find_forks(FOUR, lower, ForkConfig())[0].confidence == pytest.approx(0.6)
