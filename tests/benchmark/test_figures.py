from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from curate.benchmark.figures import COLUMNS, figures, result_row
from curate.benchmark.labelled_turns import LabelledTurn
from tests.benchmark.rows import FOUR, turn


def test_figures_per_kind_and_of_a_hard_decision() -> None:
    found = figures("judge", [1.0, 0.0, 0.0, 1.0], FOUR, resamples=0)
    assert found.binary
    assert (found.f1_adherent, found.f1_violation, found.kappa) == (0.5, 0.5, 0.0)
    assert list(found.by_kind) == ["adherent", "scope_violation", "tone_violation"]
    assert found.by_kind["scope_violation"].auc == 0.25
    assert found.by_kind["tone_violation"].auc == 0.75
    assert found.by_kind["adherent"].mean == 0.5
    assert found.by_kind["adherent"].auc is None


def test_columns_of_the_csv() -> None:
    expected = (
        "method,n,mean_adherent,mean_violation,separation,auc,ap,"
        "f1_adherent,f1_violation,f1_macro,kappa,accuracy,brier,ece"
    )
    assert ",".join(COLUMNS) == expected
    assert tuple(result_row(figures("m", [1.0, 0.0, 0.0, 1.0], FOUR, resamples=0))) == COLUMNS


def test_a_continuous_method_has_f1_only_at_a_threshold_that_is_given() -> None:
    scores = [0.9, 0.4, 0.3, 0.2]
    assert figures("m", scores, FOUR, resamples=0).f1_macro is None
    assert figures("m", scores, FOUR, threshold=0.35, resamples=0).f1_macro == 1


def test_accuracy_needs_a_decision_and_calibration_needs_probabilities() -> None:
    found = figures("m", [0.9, 0.4, 0.3, 0.2], FOUR, threshold=0.35, resamples=20)
    assert found.accuracy == 1
    assert found.brier == pytest.approx((0.1**2 + 0.6**2 + 0.3**2 + 0.2**2) / 4)
    # Four bins of one turn each.
    assert found.ece == pytest.approx((0.1 + 0.6 + 0.3 + 0.2) / 4)
    assert figures("m", [0.9, 0.4, 0.3, 0.2], FOUR, resamples=0).accuracy is None
    beyond = figures("m", [3.0, -2.0, 0.5, 0.2], FOUR, threshold=0.0, resamples=20)
    assert (beyond.brier, beyond.ece) == (None, None)
    assert beyond.accuracy == 0.25
    assert "brier" not in beyond.intervals


def test_an_unscored_turn_counts_nowhere_and_is_counted() -> None:
    found = figures("m", [0.9, None, 0.1, 0.2], FOUR, resamples=0)
    assert (found.n, found.unscored, found.auc) == (4, 1, 1.0)
    assert found.mean_adherent == 0.9


def test_nothing_scored_gives_no_figure() -> None:
    found = figures("m", [None] * 4, FOUR, resamples=5)
    assert (found.unscored, found.auc, found.separation, found.kappa) == (4, None, None, None)
    assert not found.binary
    assert not found.intervals
    assert not found.by_kind


def test_every_decision_figure_has_an_interval() -> None:
    found = figures("m", [1.0, 1.0, 0.0, 1.0], FOUR, resamples=50)
    decided = {"f1_macro", "f1_adherent", "f1_violation", "kappa", "accuracy"}
    assert set(found.intervals) == {"auc", "brier"} | decided
    for name, interval in found.intervals.items():
        assert interval.low <= interval.high, name


def test_the_papers_bootstrap_intervals() -> None:
    """The 70B judge, binary: the paper's F1s admit one table of decisions, 3 of 60 adherent turns missed.

    It does not say which rows; these are ones whose intervals are the paper's, all to the third decimal at
    n = 150, so a resample of ours is a resample of its.
    """
    turns: list[LabelledTurn] = [
        turn(str(row), "adherent" if row % 5 < 2 else "violation") for row in range(150)
    ]
    missed = {31, 50, 91}
    scores = [float(one.is_adherent and row not in missed) for row, one in enumerate(turns)]

    full = figures("70b", scores, turns)
    assert (full.f1_adherent, full.f1_violation, full.f1_macro) == pytest.approx(
        (0.974, 0.984, 0.979), abs=0.00051
    )
    # .95798; the paper has .958 in one table and .959, the mean of its resamples, in the other.
    assert full.kappa == pytest.approx(0.958, abs=0.00051)
    low = {name: interval.low for name, interval in full.intervals.items()}
    assert [low[name] for name in ("f1_macro", "f1_adherent", "f1_violation", "kappa")] == (
        pytest.approx([0.952, 0.942, 0.963, 0.904], abs=0.00051)
    )
    highs = {name: interval.high for name, interval in full.intervals.items()}
    assert highs.pop("brier") < 0.05
    assert set(highs.values()) == {1.0}

    half = figures("70b", scores[:50], turns[:50])
    assert (half.f1_adherent, half.f1_violation, half.f1_macro, half.kappa) == pytest.approx(
        (0.974, 0.984, 0.979, 0.958), abs=0.00051
    )
    assert [half.intervals[name].low for name in ("f1_macro", "f1_adherent")] == pytest.approx(
        [0.934, 0.914], abs=0.00051
    )
    assert half.intervals["f1_violation"].low == pytest.approx(0.947, abs=0.0021)

    first = figures("70b", scores[:15], turns[:15])
    assert (first.f1_macro, first.kappa) == (1.0, 1.0)


@given(
    st.lists(st.tuples(st.floats(0, 1), st.sampled_from(["adherent", "tone", "scope"])), min_size=1)
)
def test_auc_lies_between_those_of_the_kinds(rows: list[tuple[float, str]]) -> None:
    turns = [turn(str(place), label) for place, (_, label) in enumerate(rows)]
    found = figures("m", [score for score, _ in rows], turns, resamples=0)
    kinds = [kind.auc for kind in found.by_kind.values() if kind.auc is not None]
    if found.auc is None:
        assert not kinds
    else:
        assert min(kinds) - 1e-9 <= found.auc <= max(kinds) + 1e-9
    assert sum(kind.n for kind in found.by_kind.values()) == len(rows)
