"""Cut points: what they do to readings, how they are fitted, and that the figures are honest."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from curate.errors import UsageError
from curate.records import CutPoints
from curate.trust.levels import (
    LabelledReading,
    best_cuts,
    fit_cut_points,
    grouped_folds,
    kappa_figure,
    matched_cuts,
    quadratic_kappa,
    share_cut_points,
)

level = st.integers(1, 5)
value = st.floats(1, 5)
labelled = st.lists(st.tuples(value, level), min_size=1, max_size=60)


def points(*cuts: float, **more: object) -> CutPoints:
    return CutPoints.model_validate({"cuts": cuts, "method": "kappa"} | more)


def item(value: float | None, level: int | None, group: object, **more: object) -> LabelledReading:
    parts = {"digit": 4, "na": 0.0} | more
    return LabelledReading(value=value, level=level, group=str(group), **parts)  # type: ignore[arg-type]


def simulated(n: int, noise: float, seed: int = 1, per_group: int = 1) -> list[LabelledReading]:
    """A judge whose digit is always 4 and whose expectation follows people's level, but for noise."""
    draw = random.Random(seed)
    items = []
    for number in range(n):
        truth = draw.choices([1, 2, 3, 4, 5], [1, 2, 3, 3, 1])[0]
        expectation = 3.7 + 0.1 * truth + draw.gauss(0, noise)
        items.append(item(min(5.0, max(1.0, expectation)), truth, number // per_group))
    return items


# 1 minus the sum of squared distances over that of all pairs of a label and a reading, divided by n; by hand.
@pytest.mark.parametrize(
    ("gold", "readings", "kappa"),
    [
        ([1, 2, 3, 4, 5], [1, 2, 3, 4, 5], 1.0),
        ([1, 2, 3, 4, 5], [1, 2, 3, 4, 4], 1 - 1 / 17),
        ([4, 4, 4, 2], [4, 4, 3, 2], 1 - 1 / 6),
        ([1, 2, 3, 4, 5], [4, 4, 4, 4, 4], 0.0),
        ([1, 2, 3, 4, 5], [5, 4, 3, 2, 1], -1.0),
        ([4, 4], [4, 4], None),
    ],
)
def test_quadratic_kappa(gold: list[int], readings: list[int], kappa: float | None) -> None:
    assert quadratic_kappa(gold, readings) == (None if kappa is None else pytest.approx(kappa))


def test_kappa_of_nothing_is_none_and_rows_must_match() -> None:
    assert quadratic_kappa([], []) is None
    with pytest.raises(ValueError, match="one entry a row"):
        quadratic_kappa([1], [])


@given(labelled)
def test_fitted_cuts_rise_and_give_levels_that_keep_the_order(
    rows: list[tuple[float, int]],
) -> None:
    values, gold = [row[0] for row in rows], [row[1] for row in rows]
    for fit in (matched_cuts, best_cuts):
        made = points(*fit(values, gold))
        levels = [made.level(held) for held in sorted(values)]
        assert all(1 <= one <= 5 for one in levels)
        assert levels == sorted(levels)


@given(st.lists(value, min_size=1, max_size=60, unique=True), st.data())
def test_matched_shares_are_those_of_the_labels(values: list[float], data: st.DataObject) -> None:
    gold = data.draw(st.lists(level, min_size=len(values), max_size=len(values)))
    made = points(*matched_cuts(values, gold))
    assert sorted(made.level(held) for held in values) == sorted(gold)


def test_a_level_begins_at_its_cut() -> None:
    made = points(1.5, 2.5, 3.5, 4.5)
    assert [made.level(held) for held in (1.0, 1.49, 1.5, 3.5, 4.49, 4.5, 5.0)] == [
        1,
        1,
        2,
        4,
        4,
        5,
        5,
    ]
    assert points(1.0, 1.0, 6.0, 6.0).level(1.0) == 3
    assert points(1.0, 1.0, 6.0, 6.0).level(5.0) == 3
    with pytest.raises(ValidationError, match="must not fall"):
        points(2.0, 1.5, 3.0, 4.0)


def test_digits_become_levels_as_nearly_as_whole_digits_allow() -> None:
    digits = [3.0] * 10 + [4.0] * 60 + [5.0] * 30
    gold = [1] * 8 + [3] * 60 + [4] * 22 + [5] * 10
    made = points(*matched_cuts(digits, gold))
    # 8 labels of level 1 are nearest to the 10 threes, 90 below level 5 nearer to all than to the 70.
    assert [made.level(held) for held in (3.0, 4.0, 5.0)] == [1, 3, 4]


def test_three_values_leave_out_the_levels_between_them() -> None:
    values = [number / 10 for number in range(10, 40)]
    made = points(*matched_cuts(values, [1] * 10 + [3] * 10 + [5] * 10))
    assert made.cuts == (1.95, 1.95, 2.95, 2.95)


def test_the_expectation_helps_where_the_digit_says_nothing() -> None:
    made = fit_cut_points(simulated(90, noise=0.08))
    assert (made.method, made.labels, made.dialogues) == ("matched_shares", 90, 90)
    assert made.before.value == pytest.approx(0.0)
    assert made.after.value is not None
    assert made.after.interval is not None
    assert made.after.value > 0.5
    assert made.after.interval[0] > 0.3
    assert made.after.interval[0] < made.after.value < made.after.interval[1]


@pytest.mark.parametrize("n", [60, 200])
def test_a_judge_without_signal_is_no_better_than_chance(n: int) -> None:
    found = [fit_cut_points(simulated(n, noise=40.0, seed=seed)).after for seed in range(10)]
    values = [kappa.value for kappa in found if kappa.value is not None]
    assert abs(sum(values) / len(values)) < 0.1
    assert sum(kappa.interval is not None and kappa.interval[0] > 0 for kappa in found) <= 2


def test_kappa_is_tried_from_100_labels_on_and_taken_where_it_agrees_better() -> None:
    # Half of the readings are noise: matching shares calls too many of them extreme.
    draw = random.Random(3)
    mixed = []
    for number in range(300):
        truth = draw.choice([1, 5])
        read = truth if number % 3 else draw.choice([1, 5])
        mixed.append(item(3 + 0.1 * read + draw.gauss(0, 0.3), truth, number))
    assert fit_cut_points(mixed[:99]).method == "matched_shares"
    values = [held.value or 0 for held in mixed]
    gold = [held.level or 0 for held in mixed]
    reached = {
        fit: quadratic_kappa(gold, [points(*fit(values, gold)).level(held) for held in values])
        for fit in (matched_cuts, best_cuts)
    }
    assert (reached[best_cuts] or 0) > (reached[matched_cuts] or 0)
    assert fit_cut_points(mixed).method == "kappa"


def test_turns_of_one_dialogue_are_never_on_both_sides() -> None:
    groups = [str(number // 4) for number in range(100)]
    folds = grouped_folds(groups)
    assert sorted(at for fold in folds for at in fold) == list(range(100))
    inside = [{groups[at] for at in fold} for fold in folds]
    assert all(not first & second for first, second in pairwise(inside))
    assert len(folds) == 5


def test_intervals_are_over_dialogues_not_turns() -> None:
    gold = [1 + number % 5 for number in range(40)]
    given_ = [level if number % 3 else 3 for number, level in enumerate(gold)]
    alone = kappa_figure(gold * 4, given_ * 4, [str(n) for n in range(160)])
    together = kappa_figure(gold * 4, given_ * 4, [str(n % 40) for n in range(160)])
    assert alone.value == together.value
    assert alone.interval is not None
    assert together.interval is not None
    widths = [high - low for low, high in (alone.interval, together.interval)]
    assert widths[1] > 1.5 * widths[0]


def test_n_a_has_a_cut_of_its_own() -> None:
    items = [item(4 + n / 100, 1 + n % 5, n, na=0.1) for n in range(20)]
    assert fit_cut_points(items).na_cut is None
    absent = [item(4.0, None, f"x{n}", na=0.4 + n / 100) for n in range(5)]
    made = fit_cut_points([*items, *absent])
    assert made.na_cut == pytest.approx(0.25)
    # a judge that says n/a alone has no expectation, and no value to cut
    assert fit_cut_points([*items, item(None, 3, "y", na=1.0)]).labels == 20


@pytest.mark.parametrize(
    ("items", "got"),
    [
        (simulated(14, 0.1), "14 labels"),
        (simulated(40, 0.1, per_group=10), "4 dialogues"),
        ([item(4.0, 3, n) for n in range(40)], "1 level"),
    ],
)
def test_too_few_labels_are_refused_with_the_figures(
    items: list[LabelledReading], got: str
) -> None:
    with pytest.raises(UsageError, match=f"too few labels to calibrate coherence[\\s\\S]*{got}"):
        fit_cut_points(items, what="coherence")


def test_given_shares_are_quantiles_of_the_readings() -> None:
    values = [3 + number / 100 for number in range(100)]
    made = share_cut_points(values, {1: 0.05, 2: 0.1, 3: 0.25, 4: 0.4, 5: 0.2})
    counts = [sum(made.level(held) == one for held in values) for one in range(1, 6)]
    assert counts == [5, 10, 25, 40, 20]
    assert (made.method, made.labels, made.after.value) == ("given_shares", 0, None)
    for shares in ({1: 0.5, 2: 0.4}, {0: 1.0}, {1: 1.5, 2: -0.5}, {}):
        with pytest.raises(UsageError, match="not shares of levels"):
            share_cut_points(values, shares)
    with pytest.raises(UsageError, match="no reading"):
        share_cut_points([], {5: 1.0})


@pytest.mark.parametrize("first", [-1, 0, 1, 3])
def test_levels_may_begin_anywhere(first: int) -> None:
    """Cut points of metrics, whose levels begin at 0, are those of the rubric moved along."""
    draw = random.Random(7)
    drawn = [(draw.randint(64, 320) / 64, draw.randint(1, 5)) for _ in range(110)]
    plain, found = (
        fit_cut_points(
            [
                LabelledReading(value + by, round(value) + by, 0.0, level + by, f"d{at}")
                for at, (value, level) in enumerate(drawn)
            ],
            lowest=1 + by,
            highest=5 + by,
        )
        for by in (0, first - 1)
    )
    assert found.cuts == pytest.approx([cut + first - 1 for cut in plain.cuts])
    assert found.after.value == pytest.approx(plain.after.value)
    assert [found.level(value) for value in (-9.0, 9.0)] == [first, first + 4]


def test_two_levels_have_one_cut_and_six_have_five() -> None:
    draw = random.Random(2)
    values = [draw.random() for _ in range(120)]
    for highest in (1, 5):
        items = [
            LabelledReading(highest * v, 0, 0.0, round(highest * v), f"d{n}")
            for n, v in enumerate(values)
        ]
        found = fit_cut_points(items, lowest=0, highest=highest)
        assert len(found.cuts) == highest
        assert (found.after.value or 0) > 0.9
        assert {found.level(highest * v) for v in values} == set(range(highest + 1))
