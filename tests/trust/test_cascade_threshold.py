"""The threshold of a cascade: what it promises holds, and neither error of the published procedure is ours.

Trust or Escalate (arXiv 2407.18370) as published returns the strictest threshold where none passes its test, and
gives every stage the whole error; both break the promise.
"""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import binom

from curate.errors import CurateError, UsageError
from curate.trust.cascade_threshold import GRID, Tried, fit_cascade_threshold

RUNS = 2000
RISK, CONFIDENCE = 0.1, 0.9


def sample(rng: np.random.Generator, number: int, error: float, slope: float) -> list[Tried]:
    """Doubts even in 0-1; a dialogue is lost with probability `error` + `slope` (doubt - 1/2)."""
    doubts = rng.random(number)
    lost = rng.random(number) < error + slope * (doubts - 0.5)
    return [Tried(doubt, bool(is_lost)) for doubt, is_lost in zip(doubts, lost, strict=True)]


def true_loss(threshold: float, error: float, slope: float) -> float:
    """Share of all dialogues lost up to a doubt: the integral of the above."""
    return (error - slope / 2) * threshold + slope * threshold**2 / 2


@pytest.mark.parametrize(
    ("number", "error", "slope"),
    [(100, 0.3, 0.0), (100, 0.3, 0.5), (30, 0.2, 0.2), (300, 0.11, 0.1)],
)
def test_no_more_is_lost_than_promised(number: int, error: float, slope: float) -> None:
    rng = np.random.default_rng(0)
    broken = 0
    for _ in range(RUNS):
        try:
            found = fit_cascade_threshold(sample(rng, number, error, slope), RISK, CONFIDENCE)
        except CurateError:
            continue
        broken += true_loss(found.value, error, slope) > RISK
    # Three standard errors over what is allowed.
    assert broken / RUNS <= 1 - CONFIDENCE + 3 * np.sqrt(0.09 / RUNS)


def test_where_none_passes_no_threshold_is_made_up() -> None:
    """A first judge that is lost wherever it decides: the strictest threshold would keep some all the same."""
    everything_lost = [Tried(0.005, True) for _ in range(50)]
    with pytest.raises(CurateError, match="can decide nothing alone"):
        fit_cascade_threshold(everything_lost, RISK, CONFIDENCE)
    published = GRID[0]  # "the strictest" of those that fail
    assert sum(one.doubt <= published for one in everything_lost) == 50


def test_returning_the_strictest_threshold_would_break_the_promise() -> None:
    """A first judge without signal, wrong in 30 %: by the published rule nearly every calibration breaks it."""
    rng = np.random.default_rng(1)
    broken = 0
    for _ in range(400):
        wrong = rng.random(150) < 0.3
        kept_shares = (
            np.arange(1, 11) / 10
        )  # accepted shares, strict to loose; all have a risk of .3
        passed = [
            share
            for share in kept_shares
            if binom.cdf(wrong[: int(150 * share)].sum(), int(150 * share), RISK) <= 1 - CONFIDENCE
        ]
        broken += (
            not passed
        )  # nothing passes, and the strictest is taken: 30 % of what it keeps are wrong
    assert broken / 400 > 0.9


def test_a_cascade_is_tested_once_at_the_whole_error() -> None:
    """Two stages each at the whole error are wrong together nearly twice as often as promised; one test is not."""
    rng = np.random.default_rng(2)
    number, at_boundary = 200, 0.101
    stages = rng.binomial(number, at_boundary, size=(RUNS, 2))
    passes = binom.cdf(stages, number, RISK) <= 1 - CONFIDENCE
    error = 1 - CONFIDENCE
    assert passes.any(axis=1).mean() > 1.4 * error
    assert passes[:, 0].mean() <= error
    # Ours walks one family of thresholds and tests the whole pipeline's loss, for which 1 stage remains.
    lost = [Tried(0.5, flag) for flag in [True] * 12 + [False] * 188]
    assert fit_cascade_threshold(lost, RISK, CONFIDENCE).value == 1.0


def test_a_good_first_judge_decides_and_a_doubtful_part_is_passed_on() -> None:
    tried = [Tried(0.1, False)] * 80 + [Tried(0.6, True)] * 40
    found = fit_cascade_threshold(tried, RISK, CONFIDENCE)
    assert (found.kept, found.lost) == (80, 0)
    assert 0.1 <= found.value < 0.6
    assert found.at_most == pytest.approx(1 - 0.1 ** (1 / 120))


def test_the_walk_stops_at_the_first_threshold_that_fails() -> None:
    """Later thresholds may not be looked at, though lost dialogues there be no more."""
    tried = [Tried(0.05, False)] * 50 + [Tried(0.305, True)] * 30 + [Tried(0.9, False)] * 20
    assert fit_cascade_threshold(tried, RISK, CONFIDENCE).kept == 50


@pytest.mark.parametrize(
    ("risk", "confidence", "least"), [(0.1, 0.9, 22), (0.1, 0.95, 29), (0.05, 0.9, 45)]
)
def test_fewer_dialogues_than_any_threshold_needs_are_refused(
    risk: float, confidence: float, least: int
) -> None:
    with pytest.raises(UsageError, match="too few dialogues"):
        fit_cascade_threshold([Tried(0.1, False)] * (least - 1), risk, confidence)
    assert fit_cascade_threshold([Tried(0.1, False)] * least, risk, confidence).kept == least


@pytest.mark.parametrize(("risk", "confidence"), [(0.0, 0.9), (1.0, 0.9), (0.1, 1.0), (0.1, 0.0)])
def test_shares_that_are_none_are_refused(risk: float, confidence: float) -> None:
    with pytest.raises(UsageError, match="must be a share"):
        fit_cascade_threshold([Tried(0.1, False)] * 100, risk, confidence)
