"""Weights of metrics fitted to what people find good."""

from __future__ import annotations

import random

import pytest

from curate.errors import UsageError
from curate.trust.metric_weights import MeasuredDialogue, fit_metric_weights

GIVEN = {"tells": 0.1, "noise": 0.8, "against": 0.1}


def drawn(number: int, seed: int = 1) -> list[MeasuredDialogue]:
    draw = random.Random(seed)
    dialogues = []
    for at in range(number):
        is_good = at % 3 > 0
        heights = {
            "tells": min(1.0, max(0.0, 0.4 + 0.3 * is_good + draw.gauss(0, 0.15))),
            "noise": draw.random(),
            "against": 1 - is_good * 0.5,
        }
        dialogues.append(MeasuredDialogue(heights, is_good, f"d{at}"))
    return dialogues


def test_what_tells_gets_the_weight_and_what_tells_the_opposite_gets_none() -> None:
    found = fit_metric_weights(drawn(90), GIVEN)
    assert found.fitted["against"] == 0
    assert found.fitted["tells"] > 0.8
    assert sum(found.fitted.values()) == pytest.approx(1)
    assert found.auc_given < 0.7 < 0.8 < found.auc_fitted
    assert found.gain is not None
    assert found.gain[0] > 0


def test_without_a_signal_the_figures_by_cross_validation_show_none() -> None:
    draw = random.Random(4)
    dialogues = [
        MeasuredDialogue({name: draw.random() for name in GIVEN}, draw.random() < 0.5, f"d{at}")
        for at in range(120)
    ]
    found = fit_metric_weights(dialogues, GIVEN)
    assert 0.35 < found.auc_fitted < 0.65
    assert found.gain is not None
    assert found.gain[0] < 0


def test_what_is_not_applicable_counts_as_the_mean_and_not_as_the_worst() -> None:
    dialogues = [
        MeasuredDialogue({**held.heights, "tells": None}, held.is_good, held.group)
        if at % 5 == 0
        else held
        for at, held in enumerate(drawn(90))
    ]
    found = fit_metric_weights(dialogues, GIVEN)
    assert found.fitted["tells"] > 0.7


@pytest.mark.parametrize(("number", "kinds"), [(19, "13 good"), (90, "0 good")])
def test_too_few_of_a_kind_are_refused(number: int, kinds: str) -> None:
    dialogues = drawn(number)
    if kinds == "0 good":
        dialogues = [MeasuredDialogue(d.heights, False, d.group) for d in dialogues]
    with pytest.raises(UsageError, match="too few verdicts"):
        fit_metric_weights(dialogues, GIVEN)


def test_metrics_that_all_say_the_opposite_are_refused() -> None:
    with pytest.raises(UsageError, match="no metric is higher"):
        fit_metric_weights(drawn(60), {"against": 1.0})
