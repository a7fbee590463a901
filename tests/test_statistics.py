"""Intervals and trends, against values from SciPy and statsmodels and against their definitions."""

from __future__ import annotations

import math
from itertools import pairwise, permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from curate.statistics import (
    EXACT_ORDERS,
    bayesian_bootstrap_mean,
    beta_posterior,
    bootstrap_mean,
    effective_size,
    interpolate,
    log_odds,
    mann_kendall,
    sigmoid,
    student_t,
    trend,
    wilson,
)


# Wilson 1927; the values are those of statsmodels' proportion_confint(k, n, method="wilson").
@pytest.mark.parametrize(
    ("successes", "n", "low", "high"),
    [
        (0, 10, 0.0, 0.277533),
        (1, 1, 0.206549, 1.0),
        (5, 10, 0.236593, 0.763407),
        (10, 10, 0.722467, 1.0),
        (81, 263, 0.255281, 0.366195),
    ],
)
def test_wilson_matches_known_values(successes: int, n: int, low: float, high: float) -> None:
    got = wilson(successes / n, n)
    assert got[0] == pytest.approx(low, abs=2e-5)
    assert got[1] == pytest.approx(high, abs=2e-5)


@given(st.integers(1, 500), st.integers(1, 500))
def test_intervals_of_a_share_narrow_as_trials_are_added(successes: int, n: int) -> None:
    share = min(successes, n) / n
    for interval in (wilson, beta_posterior):
        low, high = interval(share, n)
        tighter = interval(share, 4 * n)
        assert 0 <= low <= share + 1e-9
        assert share - 1e-9 <= high <= 1
        assert tighter[1] - tighter[0] < high - low


# As in any table of Student's t.
@pytest.mark.parametrize(("freedom", "t"), [(1, 12.706205), (4, 2.776445), (30, 2.042272)])
def test_quantiles_of_students_t(freedom: int, t: float) -> None:
    assert student_t(freedom) == pytest.approx(t, abs=1e-6)


def test_jeffreys_interval_and_the_ends_of_the_range() -> None:
    """The 2.5 % quantiles of Beta(8.5, 2.5), eight of ten, and of Beta(3.5, 0.5), three of three."""
    assert beta_posterior(0.8, 10)[0] == pytest.approx(0.4972255, abs=1e-6)
    low, high = beta_posterior(1, 3)
    assert (low, high) == (pytest.approx(0.4644168, abs=1e-6), 1.0)
    assert beta_posterior(0, 3) == (0.0, pytest.approx(1 - low))


@pytest.mark.parametrize("interval", [bootstrap_mean, bayesian_bootstrap_mean])
def test_resampled_intervals_are_reproducible_and_depend_on_n(interval: object) -> None:
    assert callable(interval)
    few, many = [0.1, 0.9, 0.4], [0.1, 0.9, 0.4] * 10
    assert interval(few, [1] * 3) == interval(few, [1] * 3)
    low, high = interval(few, [1] * 3)
    low_many, high_many = interval(many, [1] * 30)
    assert high_many - low_many < high - low
    # the standard error of the mean of 30 such scores is 0.06
    assert high_many - low_many == pytest.approx(2 * 1.96 * 0.33 / math.sqrt(30), rel=0.15)
    assert interval(many, [1, 8, 1] * 10)[0] > low_many


def test_effective_size_of_equal_and_unequal_weights() -> None:
    assert effective_size([1, 1, 1, 1]) == 4
    assert effective_size([9, 1]) == pytest.approx(100 / 82)


def _rises(values: tuple[float, ...]) -> int:
    return sum((b > a) - (b < a) for at, b in enumerate(values) for a in values[:at])


@given(st.lists(st.sampled_from([0.0, 0.3, 0.5, 1.0]), min_size=1, max_size=6))
def test_the_trend_test_counts_all_orders(values: list[float]) -> None:
    orders = list(permutations(values))
    seen = abs(_rises(tuple(values)))
    share = sum(abs(_rises(order)) >= seen for order in orders) / len(orders)
    assert mann_kendall(values) == pytest.approx(share)


def test_exact_and_normal_trend_tests_meet() -> None:
    values = [0.5 + 0.3 * math.sin(7 * at) - 0.006 * at for at in range(EXACT_ORDERS + 1)]
    exact, normal = mann_kendall(values[:-1]), mann_kendall(values)
    assert normal == pytest.approx(exact, abs=0.03)
    assert 0.01 < exact < 0.99


def test_a_trend_has_a_slope_and_an_interval_that_narrows_with_turns() -> None:
    few, many = trend(range(4), [1, 1, 0, 0]), trend(range(20), [1] * 10 + [0] * 10)
    assert few is not None
    assert many is not None
    assert few.slope == pytest.approx(-0.4)
    assert few.interval[0] < few.slope < few.interval[1]
    assert few.interval[1] > 0  # four turns say little
    assert few.p_value == pytest.approx(1 / 3)
    assert many.interval[1] < 0
    assert many.p_value < 1e-4
    assert trend([1], [0.5]) is None
    flat = trend(range(5), [1] * 5)
    assert flat is not None
    assert (flat.slope, flat.p_value) == (0, 1)


@given(st.lists(st.floats(0, 1), min_size=2, max_size=30))
def test_a_reversed_trend_is_the_opposite_one(values: list[float]) -> None:
    ahead, back = trend(range(len(values)), values), trend(range(len(values)), values[::-1])
    assert ahead is not None
    assert back is not None
    assert ahead.slope == pytest.approx(-back.slope, abs=1e-9)
    assert ahead.p_value == pytest.approx(back.p_value)
    assert 0 < ahead.p_value <= 1


def test_interpolation_is_flat_outside_its_knots() -> None:
    knots = [(0.2, 0.1), (0.4, 0.5), (0.8, 0.9)]
    assert [interpolate(knots, x) for x in (0, 0.2, 0.3, 0.8, 1)] == pytest.approx(
        [0.1, 0.1, 0.3, 0.9, 0.9]
    )


@given(st.floats(-1000, 1000))
def test_sigmoid_never_overflows_and_rises(x: float) -> None:
    assert 0 <= sigmoid(x) <= 1
    low, high = sorted((sigmoid(x), sigmoid(x + 1)))
    assert (low, high) == (sigmoid(x), sigmoid(x + 1))


def test_log_odds_are_bounded_at_the_ends_and_undone_by_sigmoid() -> None:
    ends = [log_odds(share) for share in (0, 0.2, 0.5, 0.9, 1)]
    assert all(low < high for low, high in pairwise(ends))
    assert sigmoid(log_odds(0.2)) == pytest.approx(0.2)
