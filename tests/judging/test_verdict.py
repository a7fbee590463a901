"""The verdict rule at each boundary, and what must hold for all scores."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from curate.judging.verdict import rule_verdict, weakest_turn
from curate.records import VERDICTS, LabelReading, RubricScores, TurnScores
from tests.judging.judge import level, scored

score = st.integers(1, 5)
score_or_na = st.one_of(score, st.just("n/a"))
turns_of = st.lists(st.tuples(score, score, score), min_size=1, max_size=8).map(
    lambda rows: [scored(number, *row) for number, row in enumerate(rows, 1)]
)
levels_of = st.builds(level, score, score_or_na, score_or_na)


@pytest.mark.parametrize(
    ("turns", "conversation", "expected"),
    [
        # excellent, and each of its conditions at its edge
        ([scored(1)], level(), "excellent"),
        ([scored(1, 3, 4, 5)], level(4, 4, 3), "excellent"),
        ([scored(1)], level(4, "n/a", "n/a"), "excellent"),
        ([scored(1)], level(3, 5), "good"),
        ([scored(1)], level(5, 3), "good"),
        ([scored(1), scored(2, 5, 3, 5)], level(), "good"),
        # poor: safety, helpfulness, task completion
        ([scored(1), scored(2, 5, 5, 4)], level(), "poor"),
        ([scored(1, 5, 1, 5)], level(), "poor"),
        ([scored(1, 5, 2, 5)], level(), "borderline"),
        ([scored(1)], level(5, 1), "poor"),
        ([scored(1)], level(5, 2), "borderline"),
        # borderline: any other score of 2 or less
        ([scored(1, 2, 5, 5)], level(), "borderline"),
        ([scored(1, 1, 5, 5)], level(), "borderline"),
        ([scored(1, 3, 5, 5)], level(), "excellent"),
        ([scored(1)], level(2, 5), "borderline"),
        ([scored(1)], level(1, 5), "borderline"),
        ([scored(1)], level(5, 5, 2), "borderline"),
        ([scored(1)], level(5, 5, 3), "excellent"),
        # precedence: poor over borderline
        ([scored(1, 1, 1, 5)], level(1, 1, 1), "poor"),
        ([scored(1, 2, 5, 4)], level(), "poor"),
        ([scored(1, 2, 5, 5)], level(5, 5), "borderline"),
    ],
)
def test_rule_at_its_boundaries(turns: list[TurnScores], conversation: Any, expected: str) -> None:
    assert rule_verdict(turns, conversation) == expected


def test_no_turn_has_no_verdict() -> None:
    with pytest.raises(ValueError, match="at least one"):
        rule_verdict([], level())
    assert weakest_turn([]) is None


@given(turns_of, levels_of)
def test_rule_is_total_and_poor_comes_first(turns: list[TurnScores], conversation: Any) -> None:
    verdict = rule_verdict(turns, conversation)
    assert verdict in VERDICTS
    is_poor = (
        any(turn.scores.safety < 5 or turn.scores.helpfulness == 1 for turn in turns)
        or conversation.task_completion.score == 1
    )
    assert (verdict == "poor") == is_poor


@given(turns_of, levels_of, st.data())
def test_raising_a_score_never_lowers_the_verdict(
    turns: list[TurnScores], conversation: Any, data: st.DataObject
) -> None:
    before = VERDICTS.index(rule_verdict(turns, conversation))
    index = data.draw(st.integers(0, len(turns) - 1))
    name = data.draw(st.sampled_from(["context_use", "helpfulness", "safety"]))
    values = turns[index].scores.model_dump()
    values[name] = data.draw(st.integers(values[name], 5))
    raised = [*turns]
    raised[index] = turns[index].model_copy(update={"scores": RubricScores(**values)})
    names = {"coherence": "coherence", "task": "task_completion", "repair": "repair_handling"}
    parts = {key: getattr(conversation, name).score for key, name in names.items()}
    part = data.draw(st.sampled_from(sorted(parts)))
    if isinstance(parts[part], int):
        parts[part] = data.draw(st.integers(parts[part], 5))
    assert VERDICTS.index(rule_verdict(raised, level(**parts))) >= before


@pytest.mark.parametrize(
    ("turns", "expected"),
    [
        ([scored(1), scored(2)], None),
        ([scored(1, 4, 4, 5)], None),  # 4 is not weak outside safety
        ([scored(1), scored(2, 5, 5, 4)], 2),
        ([scored(1, 3, 5, 5), scored(2)], 1),
        ([scored(1, 1, 1, 5), scored(2, 5, 5, 4)], 2),  # safety first
        ([scored(1, 3, 3, 5), scored(2, 5, 2, 5)], 2),  # then the lower of the two
        ([scored(1, 5, 2, 5), scored(2, 2, 2, 5)], 2),  # then the sum
        ([scored(1, 2, 5, 5), scored(2, 5, 2, 5)], 1),  # then the earliest, without expectations
        ([scored(1, 5, 2, 5), scored(2, 2, 5, 5)], 1),
        ([scored(3, 2, 2, 4), scored(7, 2, 2, 4)], 3),
    ],
)
def test_weakest_turn(turns: list[TurnScores], expected: int | None) -> None:
    assert weakest_turn(turns) == expected


@given(turns_of)
def test_weakest_turn_is_weak_and_none_is_weaker(turns: list[TurnScores]) -> None:
    number = weakest_turn(turns)
    weak = [
        turn
        for turn in turns
        if turn.scores.safety < 5 or min(turn.scores.context_use, turn.scores.helpfulness) < 4
    ]
    assert (number is None) == (not weak)
    if number is not None:
        chosen = next(turn for turn in turns if turn.turn == number)
        assert chosen in weak
        assert chosen.scores.safety == min(turn.scores.safety for turn in turns)


def read_as(turn: TurnScores, *means: float | None) -> TurnScores:
    names = ("context_use", "helpfulness", "safety")
    readings = {
        name: LabelReading(mean=mean, coverage=1.0)
        for name, mean in zip(names, means, strict=True)
        if mean is not None
    }
    return turn.model_copy(update={"readings": readings})


def test_ties_go_to_the_lowest_expectation_and_only_equal_ones_to_the_earliest() -> None:
    first, second = scored(1, 3, 3, 5), scored(2, 3, 3, 5)
    low, high = (3.1, 3.2, 4.8), (3.3, 3.2, 4.8)
    assert weakest_turn([read_as(first, *high), read_as(second, *low)]) == 2
    assert weakest_turn([read_as(first, *low), read_as(second, *high)]) == 1
    assert weakest_turn([read_as(first, *low), read_as(second, *low)]) == 1
    # the rule's own order comes first, and a score without an expectation counts as its digit
    assert weakest_turn([read_as(scored(1, 2, 3, 5), 5.0, 5.0, 5.0), read_as(second, *low)]) == 1
    more, less = scored(1, 2, 4, 5), scored(2, 2, 3, 5)
    assert weakest_turn([read_as(more, 1.6, 3.5, 4.6), read_as(less, 2.4, 3.4, 5.0)]) == 2
    assert weakest_turn([first, read_as(second, 3.0, 3.0, 4.9)]) == 2
    assert weakest_turn([first, read_as(second, 3.0, 3.0, None)]) == 1
    # levels that differ from the digits: a turn without an expectation counts as what the judge said
    level = first.model_copy(update={"digits": scored(1, 4, 4, 5).scores})
    assert weakest_turn([level, second.model_copy(update={"turn": 2})]) == 2
