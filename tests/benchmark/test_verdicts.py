from __future__ import annotations

from curate.benchmark.figures import verdicts
from tests.benchmark.rows import turn

TURNS = [turn(str(row), "adherent" if row % 2 else "tone") for row in range(40)]
RIGHT: list[float | None] = [float(row % 2) for row in range(40)]
WORSE: list[float | None] = [float(row % 2 == 0 or row < 20) for row in range(40)]
HALF: list[float | None] = [0.5] * 40


def test_a_method_that_beats_the_best_baseline() -> None:
    (found,) = verdicts({"m": RIGHT}, {"word_count": HALF, "unigram": HALF}, TURNS, resamples=200)
    assert found.beats
    assert found.is_best
    assert (found.method_auc, found.baseline_auc, found.difference) == (1.0, 0.5, 0.5)
    assert found.sentence == "beats it"


def test_equal_is_not_better() -> None:
    (found,) = verdicts({"m": RIGHT}, {"word_count": RIGHT}, TURNS, resamples=200)
    assert not found.beats
    assert found.sentence == "does not beat it"


def test_where_position_is_best_the_best_other_is_shown_too() -> None:
    found = verdicts(
        {"m": RIGHT},
        {"unigram": WORSE, "word_count": HALF, "position": RIGHT},
        TURNS,
        resamples=200,
    )
    assert [(one.baseline, one.is_best, one.beats) for one in found] == [
        ("position", True, False),
        ("word_count", False, True),
    ]


def test_only_turns_that_both_score_are_compared() -> None:
    """The method fails on every turn that it alone scores; on the common ones it is right."""
    partial = [None if row < 20 else 0.5 for row in range(40)]
    method = [1.0 - float(row % 2) if row < 20 else float(row % 2) for row in range(40)]
    (found,) = verdicts({"m": method}, {"overlap": partial}, TURNS, resamples=200)
    assert (found.method_auc, found.baseline_auc) == (1.0, 0.5)


def test_a_method_without_a_figure_gets_no_verdict() -> None:
    assert verdicts({"m": [None] * 40}, {"word_count": HALF}, TURNS, resamples=10) == []
    assert verdicts({"m": RIGHT}, {"overlap": [None] * 40}, TURNS, resamples=10) == []
