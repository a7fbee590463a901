"""People against each other: alpha as the package has it, and the alternative annotator test."""

from __future__ import annotations

import krippendorff
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import ttest_1samp

from curate.trust.raters import alternative_annotator_test, krippendorff_alpha

UNITS = st.lists(
    st.lists(st.sampled_from([1, 2, 3, 4, 5]) | st.none(), min_size=4, max_size=4),
    min_size=2,
    max_size=25,
)


@given(UNITS)
def test_alpha_is_that_of_the_package(rows: list[list[int | None]]) -> None:
    units = [[value for value in row if value is not None] for row in rows]
    ours = krippendorff_alpha(units)
    rated = {value for unit in units if len(unit) > 1 for value in unit}
    if len(rated) < 2:
        assert ours is None
        return
    matrix = np.array([[np.nan if v is None else v for v in row] for row in rows], float).T
    theirs = krippendorff.alpha(reliability_data=matrix, level_of_measurement="ordinal")
    assert ours == pytest.approx(theirs, abs=1e-9)


def test_alpha_is_that_of_the_books_example() -> None:
    # Krippendorff (2013), the four observers of 12 units; ordinal alpha .815
    rows = [
        [1, 2, 3, 3, 2, 1, 4, 1, 2, None, None, None],
        [1, 2, 3, 3, 2, 2, 4, 1, 2, 5, None, 3],
        [None, 3, 3, 3, 2, 3, 4, 2, 2, 5, 1, None],
        [1, 2, 3, 3, 2, 4, 4, 1, 2, 5, 1, None],
    ]
    units = [[one for one in column if one is not None] for column in zip(*rows, strict=True)]
    assert krippendorff_alpha(units) == pytest.approx(0.815, abs=0.0005)
    assert krippendorff_alpha([[1, 2], [2, 1]] * 50) == pytest.approx(-0.99, abs=0.02)
    assert krippendorff_alpha([[1, 1], [5, 5]]) == 1
    assert krippendorff_alpha([[1], [2]]) is None
    assert krippendorff_alpha([[2, 2], [2, 2]]) is None


def people_of(*raters: list[int]) -> list[dict[str, float]]:
    return [
        {f"r{number}": float(level) for number, level in enumerate(row)}
        for row in zip(*raters, strict=True)
    ]


def test_a_judge_that_says_what_people_say_could_stand_for_one() -> None:
    rng = np.random.default_rng(0)
    truth = rng.integers(1, 6, 60)
    raters = [(np.clip(truth + rng.integers(-1, 2, 60), 1, 5)).tolist() for _ in range(4)]
    groups = [str(n) for n in range(60)]
    good = alternative_annotator_test(truth.tolist(), people_of(*raters), groups, 0.15)
    assert good is not None
    assert (good.passed, good.winning_rate) == (True, 1.0)
    assert [rater.items for rater in good.raters] == [60] * 4
    noise = rng.integers(1, 6, 60).tolist()
    bad = alternative_annotator_test(noise, people_of(*raters), groups, 0.15)
    assert bad is not None
    assert (bad.passed, bad.winning_rate) == (False, 0.0)


def test_the_p_value_is_that_of_the_t_test_on_the_shares() -> None:
    rng = np.random.default_rng(5)
    judge = rng.integers(1, 6, 40).tolist()
    raters = [rng.integers(1, 6, 40).tolist() for _ in range(3)]
    test = alternative_annotator_test(judge, people_of(*raters), [str(n) for n in range(40)], 0.2)
    assert test is not None
    others = np.array(raters[1:], float)
    ours = np.sqrt(((others - np.array(judge)) ** 2).mean(axis=0))
    theirs = np.sqrt(((others - np.array(raters[0])) ** 2).mean(axis=0))
    difference = (theirs <= ours).astype(float) - (ours <= theirs)
    assert test.raters[0].p_value == pytest.approx(
        ttest_1samp(difference, 0.2, alternative="less").pvalue
    )
    assert test.raters[0].judge_share == pytest.approx((ours <= theirs).mean())


@pytest.mark.parametrize(("raters", "items"), [(2, 60), (3, 29)])
def test_too_few_people_or_items_are_no_test(raters: int, items: int) -> None:
    levels = [[1 + n % 5 for n in range(items)] for _ in range(raters)]
    groups = [str(n) for n in range(items)]
    assert alternative_annotator_test(levels[0], people_of(*levels), groups, 0.2) is None
