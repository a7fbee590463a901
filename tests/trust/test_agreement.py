"""Agreement figures, against values worked out by hand and against their definitions."""

from __future__ import annotations

import math
import random
from functools import partial
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from curate.trust import agreement
from curate.trust.agreement import (
    accuracy,
    auc,
    average_precision,
    bootstrap_interval,
    brier_score,
    calibration_bins,
    class_means,
    expected_calibration_error,
    of_sample,
    resampled_auc_gains,
    resampled_aucs,
    resampled_decisions,
    resampled_means,
    roc_curve,
)

ROWS = st.lists(st.tuples(st.sampled_from([0.0, 0.1, 0.5, 0.9, 1.0]), st.booleans()), min_size=1)


def columns(rows: list[tuple[float, bool]]) -> tuple[list[float], list[bool]]:
    return [score for score, _ in rows], [label for _, label in rows]


@given(ROWS)
def test_auc_is_the_share_of_pairs_in_order_with_ties_half(rows: list[tuple[float, bool]]) -> None:
    scores, labels = columns(rows)
    yes = [s for s, label in rows if label]
    no = [s for s, label in rows if not label]
    pairs = [(y > n) + 0.5 * (y == n) for y in yes for n in no]
    expected = sum(pairs) / len(pairs) if pairs else None
    assert auc(scores, labels) == (None if expected is None else pytest.approx(expected))


@given(ROWS)
def test_the_area_under_the_roc_curve_is_the_auc(rows: list[tuple[float, bool]]) -> None:
    scores, labels = columns(rows)
    curve = roc_curve(scores, labels)
    if curve is None:
        assert auc(scores, labels) is None
        return
    area = sum((x1 - x0) * (y0 + y1) / 2 for (x0, y0), (x1, y1) in pairwise(curve))
    assert curve[0] == (0, 0)
    assert curve[-1] == (1, 1)
    assert area == pytest.approx(auc(scores, labels))


def test_average_precision_by_hand() -> None:
    # Falling: 0.9 yes (1/1), 0.8 no, 0.7 yes (2/3): half the recall each.
    assert average_precision([0.7, 0.9, 0.8], [True, True, False]) == pytest.approx(
        0.5 * 1 + 0.5 * 2 / 3
    )


def test_average_precision_of_ties_does_not_depend_on_their_order() -> None:
    assert average_precision([0.5] * 4, [True, False, False, False]) == pytest.approx(0.25)
    assert average_precision([0.5] * 4, [False, False, False, True]) == pytest.approx(0.25)


def test_class_means() -> None:
    means = class_means([0.9, 0.7, 0.1], [True, True, False])
    assert means == pytest.approx((0.8, 0.1))


def test_f1_and_kappa_of_the_papers_judge() -> None:
    """57 of 60 adherent turns and all 90 violations found give the paper's .974, .984, .979, .959."""
    gold = [True] * 60 + [False] * 90
    predicted = [True] * 57 + [False] * 93
    figures = [
        decision_figure(name, gold, predicted)
        for name in ("f1_adherent", "f1_violation", "f1_macro", "kappa")
    ]
    assert figures == pytest.approx([0.974, 0.984, 0.979, 0.958], abs=5e-4)
    assert accuracy(gold, predicted) == 147 / 150
    assert decision_figure("accuracy", gold, predicted) == 147 / 150


def decision_figure(name: str, gold: list[bool], decided: list[bool]) -> float | None:
    return of_sample(partial(resampled_decisions, name, gold, decided), len(gold))


def test_kappa_is_zero_for_a_judge_that_says_one_thing_and_none_without_two_things() -> None:
    assert decision_figure("kappa", [True, False, True, False], [True] * 4) == 0
    assert decision_figure("kappa", [True, True], [True, True]) is None
    assert decision_figure("kappa", [], []) is None


def test_a_figure_of_one_class_is_none_not_zero() -> None:
    scores, labels = [0.2, 0.4], [True, True]
    assert auc(scores, labels) is None
    assert class_means(scores, labels) is None
    assert average_precision(scores, [False, False]) is None
    assert decision_figure("f1_adherent", labels, labels) is None
    assert brier_score([], []) is None
    assert expected_calibration_error([], []) is None


def test_brier_by_hand() -> None:
    assert brier_score([0.8, 0.4], [True, False]) == pytest.approx((0.04 + 0.16) / 2)


def test_ece_by_hand_with_ten_bins() -> None:
    # Bin 9 holds 0.95 and 1.0 (half right), bin 1 holds 0.1 (right to be low).
    scores, labels = [0.95, 1.0, 0.1], [True, False, False]
    bins = calibration_bins(scores, labels)
    assert [(b.low, b.count) for b in bins] == [(0.1, 1), (0.9, 2)]
    assert expected_calibration_error(scores, labels) == pytest.approx(
        2 / 3 * abs(0.975 - 0.5) + 1 / 3 * 0.1
    )


def test_a_score_that_is_no_probability_is_refused_where_one_is_needed() -> None:
    with pytest.raises(ValueError, match=r"got 1\.2"):
        calibration_bins([1.2], [True])


def test_columns_of_different_length_are_refused() -> None:
    with pytest.raises(ValueError, match="got 2 and 1"):
        auc([0.1, 0.2], [True])


def test_the_bootstrap_interval_narrows_with_n_and_can_be_made_again() -> None:
    def width(n: int) -> float:
        values = [(row % 10) / 10 for row in range(n)]
        found = bootstrap_interval(partial(resampled_means, values), n)
        assert found is not None
        assert found == bootstrap_interval(partial(resampled_means, values), n)
        assert found.low < 0.45 < found.high
        return found.high - found.low

    assert width(40) / width(160) == pytest.approx(2, rel=0.15)


@given(ROWS, st.randoms(use_true_random=False))
def test_figures_of_resamples_are_those_of_their_rows(
    rows: list[tuple[float, bool]], draw: random.Random
) -> None:
    scores, labels = columns(rows)
    drawn = [draw.choices(range(len(rows)), k=len(rows)) for _ in range(3)]
    counts = np.array([np.bincount(one, minlength=len(rows)) for one in drawn], float)
    areas = [auc([scores[at] for at in one], [labels[at] for at in one]) for one in drawn]
    assert [
        None if np.isnan(area) else area for area in resampled_aucs(scores, labels, counts)
    ] == areas
    means = [sum(scores[at] for at in one) / len(one) for one in drawn]
    assert resampled_means(scores, counts) == pytest.approx(means)


def test_more_rows_than_are_held_at_once_are_drawn_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    values = [row / 30 for row in range(30)]
    at_once = bootstrap_interval(partial(resampled_means, values), 30)
    monkeypatch.setattr(agreement, "_CELLS", 70)
    assert bootstrap_interval(partial(resampled_means, values), 30) == at_once


def test_resamples_of_one_class_are_left_out_and_counted() -> None:
    scores, labels = [0.9, 0.1], [True, False]
    found = bootstrap_interval(partial(resampled_aucs, scores, labels), 2)
    assert found is not None
    assert (found.low, found.high) == (1, 1)
    assert 400 < found.resamples < 600  # half of the resamples of two rows hold both


def test_a_paired_interval_sees_what_two_separate_ones_would_not() -> None:
    labels = [row % 2 == 0 for row in range(100)]
    noise = [math.sin(row * 12.9898) for row in range(100)]
    worse = [0.5 * label + n for label, n in zip(labels, noise, strict=True)]
    better = [0.8 * label + n for label, n in zip(labels, noise, strict=True)]
    found, same = (
        bootstrap_interval(partial(resampled_auc_gains, first, worse, labels), 100)
        for first in (better, worse)
    )
    assert found is not None
    assert found.low > 0
    assert same is not None
    assert (same.low, same.high) == (0, 0)
