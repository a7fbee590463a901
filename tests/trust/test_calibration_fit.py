"""Calibration: curves and thresholds against their definitions, and cross-validation that does not peek."""

from __future__ import annotations

import json
import math
import random
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from curate.errors import UsageError
from curate.records import JudgeIdentity
from curate.statistics import interpolate, log_odds, sigmoid
from curate.trust.agreement import accuracy, brier_score
from curate.trust.calibration_fit import (
    LabelledScore,
    ScoreOrigin,
    cross_validate,
    fit_calibration,
    fit_isotonic,
    fit_platt,
    fit_threshold,
    folds_of_both,
)

JUDGED = ScoreOrigin(
    JudgeIdentity(engine="scripted", model="judge", mode="continuous"),
    "llm_judge",
    "turn",
    "constructive",
)
ROWS = st.lists(
    st.tuples(st.sampled_from([0.0, 0.1, 0.3, 0.5, 0.9, 1.0]), st.booleans()),
    min_size=2,
    max_size=12,
)


def sample(
    n: int, slope: float = 1.0, intercept: float = 0.0, seed: int = 3
) -> list[LabelledScore]:
    """Scores of which log-odds(P) = slope * log-odds(score) + intercept, four turns a dialogue."""
    rng = random.Random(seed)
    scores = [rng.uniform(0.01, 0.99) for _ in range(n)]
    return [
        LabelledScore(s, rng.random() < sigmoid(slope * log_odds(s) + intercept), f"d{at // 4}")
        for at, s in enumerate(scores)
    ]


def split(turns: list[LabelledScore]) -> tuple[list[float], list[bool]]:
    return [turn.score for turn in turns], [turn.adherent for turn in turns]


def test_platt_finds_the_line_the_labels_were_drawn_from() -> None:
    slope, intercept = fit_platt(*split(sample(6000, 0.4, -1.0)))
    assert slope == pytest.approx(0.4, abs=0.05)
    assert intercept == pytest.approx(-1.0, abs=0.1)


def test_platt_is_where_the_likelihood_is_flat() -> None:
    scores, labels = split(sample(60))
    slope, intercept = fit_platt(scores, labels)
    yes = sum(labels)
    high, low = (yes + 1) / (yes + 2), 1 / (len(labels) - yes + 2)
    off = [
        sigmoid(slope * log_odds(s) + intercept) - (high if label else low)
        for s, label in zip(scores, labels, strict=True)
    ]
    assert math.fsum(off) == pytest.approx(0, abs=1e-5)
    moments = (o * log_odds(s) for o, s in zip(off, scores, strict=True))
    assert math.fsum(moments) == pytest.approx(0, abs=1e-5)


@given(ROWS)
def test_platt_is_finite_and_never_falls(rows: list[tuple[float, bool]]) -> None:
    slope, intercept = fit_platt([s for s, _ in rows], [label for _, label in rows])
    assert slope >= 0
    assert math.isfinite(slope)
    assert math.isfinite(intercept)


def test_classes_that_do_not_overlap_give_a_finite_curve() -> None:
    slope, intercept = fit_platt([0.01, 0.02, 0.98, 0.99], [False, False, True, True])
    assert 0 < slope < 10
    assert 0.15 < sigmoid(slope * log_odds(0.01) + intercept) < 0.35  # Platt's target, 1 / 4


@given(ROWS)
def test_isotonic_is_the_best_rising_curve(rows: list[tuple[float, bool]]) -> None:
    scores, labels = [s for s, _ in rows], [label for _, label in rows]
    knots = fit_isotonic(scores, labels)
    assert all(a[0] < b[0] and a[1] <= b[1] for a, b in pairwise(knots))
    fitted = [interpolate(knots, s) for s in scores]
    # Minimax form of isotonic regression (Robertson, Wright and Dykstra 1988).
    for score, value in zip(scores, fitted, strict=True):
        best = max(
            min(
                sum(label for s, label in rows if low <= s <= high)
                / sum(low <= s <= high for s, _ in rows)
                for high in {s for s, _ in rows if s >= score}
            )
            for low in {s for s, _ in rows if s <= score}
        )
        assert value == pytest.approx(best)


@given(ROWS)
def test_no_threshold_is_right_more_often(rows: list[tuple[float, bool]]) -> None:
    scores, labels = [s for s, _ in rows], [label for _, label in rows]

    def right(cut: float) -> float:
        found = accuracy(labels, [score >= cut for score in scores])
        assert found is not None
        return found

    assert right(fit_threshold(scores, labels)) == pytest.approx(
        max(right(cut) for cut in [0.0, *scores])
    )


def test_of_equally_good_thresholds_the_one_nearest_to_half() -> None:
    assert fit_threshold([0.1, 0.2, 0.8, 0.9], [False, False, True, True]) == 0.5
    assert fit_threshold([0.1, 0.3, 0.35], [False, True, True]) == pytest.approx(0.2)


def test_a_calibration_mends_a_judge_that_says_yes_too_easily() -> None:
    turns = sample(800, 0.5, -1.5)
    made = fit_calibration(turns, JUDGED)
    figures = made.figures
    assert figures["platt"].brier < figures["raw"].brier
    assert figures["platt"].ece < figures["raw"].ece / 2
    assert figures["platt"].brier_gain is not None
    assert figures["platt"].brier_gain[0] > 0
    assert figures["raw"].accuracy_at_threshold > figures["raw"].accuracy_at_half + 0.1
    assert made.threshold > 0.8
    assert (made.turns, made.groups) == (800, 200)
    assert made.probability(0.9) == pytest.approx(sigmoid(0.5 * log_odds(0.9) - 1.5), abs=0.08)
    isotonic = fit_calibration(turns, JUDGED, "isotonic")
    assert isotonic.knots
    assert isotonic.slope is None
    assert isotonic.figures == figures
    assert isotonic.probability(0.9) == pytest.approx(made.probability(0.9), abs=0.1)


def test_figures_are_of_turns_the_curve_has_not_seen() -> None:
    """Labels by chance: a curve that saw them would look better than the best constant."""
    rng = random.Random(0)
    turns = [LabelledScore(rng.random(), rng.random() < 0.5, f"d{at}") for at in range(200)]
    scores, labels = split(turns)
    knots = fit_isotonic(scores, labels)
    seen = brier_score([interpolate(knots, s) for s in scores], labels)
    assert seen is not None
    assert seen < 0.25 < cross_validate(turns)["isotonic"].brier


def test_a_dialogue_is_never_on_both_sides_and_both_classes_are_always_fitted() -> None:
    rng = random.Random(1)
    turns = [
        LabelledScore(rng.random(), at % 7 != 0 or at > 30, f"d{at % 23}") for at in range(120)
    ]
    folds = folds_of_both(turns)
    assert sorted(at for fold in folds for at in fold) == list(range(120))
    for fold in folds:
        rest = [turn for at, turn in enumerate(turns) if at not in fold]
        assert not {turns[at].group for at in fold} & {turn.group for turn in rest}
        assert {turn.adherent for turn in rest} == {True, False}


@pytest.mark.parametrize(
    ("turns", "said"),
    [
        (sample(12), "too few labelled turns"),
        ([LabelledScore(0.1 * (at % 7), True, str(at)) for at in range(50)], "violation: 0"),
        (
            [LabelledScore(0.3, at > 0, "a" if at < 10 else str(at)) for at in range(50)],
            "violation: 1",
        ),
        ([LabelledScore(at % 2, at % 3 > 0, str(at)) for at in range(50)], "all 0 or 1"),
        (
            [LabelledScore(t.score, not t.adherent, t.group) for t in sample(100)],
            "which no calibration fixes",
        ),
    ],
)
def test_what_cannot_be_calibrated_is_refused_with_the_reason(
    turns: list[LabelledScore], said: str
) -> None:
    with pytest.raises(UsageError, match=said):
        fit_calibration(turns, JUDGED)


@pytest.mark.parametrize(
    ("judge", "raw", "platt", "isotonic", "at_threshold"),
    [
        ("gemma", (0.013, 0.013, 0.987), (0.012, 0.020, 0.987), (0.021, 0.023, 0.980), 0.980),
        ("70b", (0.294, 0.310, 0.673), (0.126, 0.117, 0.793), (0.106, 0.052, 0.860), 0.860),
    ],
)
def test_the_documented_figures_of_the_papers_saved_scores(
    judge: str,
    raw: tuple[float, ...],
    platt: tuple[float, ...],
    isotonic: tuple[float, ...],
    at_threshold: float,
    shared_data: Path,
) -> None:
    made = fit_calibration(saved_scores(shared_data, judge), JUDGED)
    for name, expected in (("raw", raw), ("platt", platt), ("isotonic", isotonic)):
        figures = made.figures[name]  # type: ignore[index]
        found = (figures.brier, figures.ece, figures.accuracy_at_half)
        assert found == pytest.approx(expected, abs=0.0005)
        assert figures.accuracy_at_threshold == pytest.approx(at_threshold, abs=0.0005)


def test_the_papers_inverted_judge_is_refused(shared_data: Path) -> None:
    with pytest.raises(UsageError, match=r"AUC 0\.303"):
        fit_calibration(saved_scores(shared_data, "8b"), JUDGED)


def saved_scores(data: Path, judge: str) -> list[LabelledScore]:
    """Folds of whole blocks: five rows share a ground truth's conversation."""
    folder = data / "role_benchmark"
    rows = json.loads((folder / "benchmark.json").read_text())
    scores = json.loads((folder / "logprob_results.json").read_text())["results"][judge]["scores"]
    return [
        LabelledScore(score, row["label"] == "adherent", f"block {at // 5}")
        for at, (row, score) in enumerate(zip(rows, scores, strict=True))
    ]
