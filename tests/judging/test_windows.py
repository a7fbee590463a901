"""Where windows lie, and how scores given twice are put together."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from curate.judging.config import RubricConfig
from curate.judging.windows import halves, lowest_conversation, plan_windows, stitch
from curate.records import LabelReading, TurnScores
from tests.judging.judge import level, scored

configs = st.builds(
    RubricConfig,
    max_turns=st.integers(1, 20),
    window_turns=st.integers(4, 6),
    overlap=st.integers(0, 3),
)
numbers_of = st.sets(st.integers(1, 300), min_size=1, max_size=90).map(sorted)


@given(numbers_of, configs)
def test_windows_cover_every_turn_and_keep_their_size(
    numbers: list[int], config: RubricConfig
) -> None:
    windows = plan_windows(numbers, config)
    assert sorted({turn for window in windows for turn in window.turns}) == numbers
    if len(numbers) <= config.max_turns:
        assert len(windows) == 1
    if len(windows) == 1:
        return
    for window in windows:
        assert 4 <= len(window.turns) <= 6
        start = numbers.index(window.turns[0])
        assert list(window.turns) == numbers[start : start + len(window.turns)]
    for first, second in pairwise(windows):
        assert first.turns[0] < second.turns[0]
        assert first.turns[-1] < second.turns[-1]
        assert len(set(first.turns) & set(second.turns)) >= config.overlap


@given(st.integers(11, 80), st.integers(4, 6), st.integers(0, 3))
def test_windows_of_long_dialogues_overlap_exactly_and_are_even(
    count: int, size: int, overlap: int
) -> None:
    config = RubricConfig(window_turns=size, overlap=overlap)
    windows = plan_windows(range(1, count + 1), config)
    sizes = {len(window.turns) for window in windows}
    assert max(sizes) - min(sizes) <= 1
    for first, second in pairwise(windows):
        assert len(set(first.turns) & set(second.turns)) == overlap


def test_default_windows_of_fourteen_turns() -> None:
    windows = plan_windows(range(1, 15), RubricConfig())
    assert len(windows) == 3
    assert all(len(window.turns) in (4, 5, 6) for window in windows)
    assert plan_windows(range(1, 11), RubricConfig())[0].turns == tuple(range(1, 11))
    assert len(plan_windows(range(1, 12), RubricConfig())) > 1


def test_seven_turns_without_overlap_cannot_be_cut_evenly_and_overlap_anyway() -> None:
    windows = plan_windows(range(1, 8), RubricConfig(max_turns=6, overlap=0))
    assert [window.turns for window in windows] == [(1, 2, 3, 4), (4, 5, 6, 7)]


@pytest.mark.parametrize("size", [2, 3, 4, 5, 6])
def test_halves_lose_nothing(size: int) -> None:
    (window,) = plan_windows(range(1, size + 1), RubricConfig())
    first, second = halves(window)
    assert first.turns + second.turns == window.turns
    assert second.turns


def test_a_turn_scored_twice_takes_the_minimum_of_each_score() -> None:
    stitched = stitch([[scored(1), scored(2, 5, 2, 5)], [scored(2, 3, 4, 5), scored(3)]])
    assert [turn.turn for turn in stitched.per_turn] == [1, 2, 3]
    assert stitched.per_turn[1].scores.model_dump() == {
        "context_use": 3,
        "helpfulness": 2,
        "safety": 5,
    }
    assert stitched.disagreement == pytest.approx((2 + 2 + 0) / 3)
    assert stitch([[scored(1)]]).disagreement is None


def test_the_reading_kept_is_the_one_of_the_score_kept() -> None:
    def read(score: int, mean: float) -> TurnScores:
        reading = LabelReading(mean=mean, spread=0.1, coverage=1.0)
        return scored(1, 5, score, 5).model_copy(update={"readings": {"helpfulness": reading}})

    (turn,) = stitch([[read(4, 3.9)], [read(3, 3.4)]]).per_turn
    assert (turn.scores.helpfulness, turn.readings["helpfulness"].mean) == (3, 3.4)
    (turn,) = stitch([[read(4, 4.2)], [read(4, 3.8)]]).per_turn
    assert turn.readings["helpfulness"].mean == 3.8


@given(st.lists(st.lists(st.tuples(st.integers(1, 9), *[st.integers(1, 5)] * 3), max_size=6)))
def test_stitching_takes_minima_whatever_the_order(rows: list[list[tuple[int, ...]]]) -> None:
    windows = [[scored(*row) for row in window] for window in rows]
    forward, backward = stitch(windows), stitch(windows[::-1])
    assert [turn.scores for turn in forward.per_turn] == [turn.scores for turn in backward.per_turn]
    for turn in forward.per_turn:
        given_to_it = [row for window in rows for row in window if row[0] == turn.turn]
        assert turn.scores.helpfulness == min(row[2] for row in given_to_it)


def test_conversation_scores_over_windows_are_minima_and_na_only_where_all_say_so() -> None:
    lowest = lowest_conversation([level(5, "n/a", "n/a"), level(3, 4, "n/a")])
    assert (lowest.coherence.score, lowest.task_completion.score) == (3, 4)
    assert lowest.repair_handling.score == "n/a"
