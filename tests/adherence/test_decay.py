"""Adherence by turn over a run: survival, slopes within dialogues, and what is warned about."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from scipy import stats

from curate.adherence.decay import POSITIONS, AdherenceTally
from curate.records import AdherenceReason, AdherenceTurn, ConversationAdherence
from curate.statistics import wilson


def record(*scores: float | None, **changes: Any) -> dict[str, Any]:
    turns = [
        AdherenceTurn(
            turn=number,
            score=score,
            adherent=None if score is None else score >= 0.5,
            unscored="bad_reply" if score is None else None,
        ).model_copy(update=changes)
        for number, score in enumerate(scores, start=1)
    ]
    return {"per_turn": [turn.model_dump() for turn in turns], "conversation": None}


def tally(*records: dict[str, Any]) -> AdherenceTally:
    made = AdherenceTally()
    for held in records:
        made.add(held)
    return made


def test_means_by_position_are_over_the_dialogues_that_reach_it() -> None:
    decay = tally(record(1, 0, 1), record(1, 1), record(0)).decay()
    assert decay is not None
    assert decay.dialogues == 3
    assert [(p.position, p.scored, p.mean) for p in decay.positions] == [
        (1, 3, pytest.approx(2 / 3)),
        (2, 2, 0.5),
        (3, 1, 1.0),
    ]
    assert decay.positions[0].interval == wilson(2 / 3, 3)


def test_survival_of_the_first_violation_is_kaplan_meiers() -> None:
    # Dialogues break their role at turn 1, 2 and 3; two end in it after turn 2 and 3.
    decay = tally(
        record(0, 1, 1), record(1, 0, 0), record(1, 1, 0), record(1, 1), record(1, 1, 1)
    ).decay()
    assert decay is not None
    assert [(p.at_risk, p.violations) for p in decay.positions] == [(5, 1), (4, 1), (2, 1)]
    assert [p.survival for p in decay.positions] == pytest.approx([0.8, 0.6, 0.3])
    assert decay.median_turns_in_role == 3
    # Until anybody leaves unseen it is a share of five, and the interval is Wilson's.
    assert decay.positions[1].survival_interval == pytest.approx(wilson(0.6, 5))
    low, high = decay.positions[2].survival_interval
    assert low < wilson(0.3, 5)[0]
    assert high > wilson(0.3, 5)[1]


def test_no_violation_and_only_violations_have_intervals_that_depend_on_n() -> None:
    for score, survival in ((1, 1.0), (0, 0.0)):
        few, many = (tally(*[record(score)] * n).decay() for n in (3, 300))
        assert few is not None
        assert many is not None
        assert few.positions[0].survival == many.positions[0].survival == survival
        assert few.positions[0].survival_interval == pytest.approx(wilson(survival, 3))
        assert many.positions[0].survival_interval == pytest.approx(wilson(survival, 300))


def test_a_turn_of_which_nothing_is_known_ends_what_is_known_of_its_dialogue() -> None:
    decay = tally(record(1, None, 0), record(1, 0.5, 0)).decay()
    assert decay is not None
    assert [p.at_risk for p in decay.positions] == [2, 1, 1]
    assert [p.violations for p in decay.positions] == [0, 0, 1]
    assert [p.scored for p in decay.positions] == [2, 1, 2]


def test_the_slope_is_taken_within_dialogues() -> None:
    """Long dialogues are worse throughout, and none of them changes: no decay, whatever the means say."""
    flat = [record(0.9, 0.9)] * 5 + [record(0.2, 0.2, 0.2, 0.2)] * 5
    decay = tally(*flat).decay()
    assert decay is not None
    assert [p.mean for p in decay.positions] == pytest.approx([0.55, 0.55, 0.2, 0.2])
    assert decay.slope == pytest.approx(0, abs=1e-12)
    assert decay.slope_interval is None  # no spread to go by


def test_the_slopes_interval_is_robust_to_dialogues_of_their_own() -> None:
    """Liang and Zeger's variance of a within estimator, with the factor of few clusters, written out with numpy."""
    dialogues = [(0.9, 0.7, 0.8), (0.6, 0.5), (1.0, 0.4, 0.3, 0.2), (0.5, 0.9)]
    decay = tally(*(record(*scores) for scores in dialogues)).decay()
    assert decay is not None
    centred = [(np.arange(len(y)) - (len(y) - 1) / 2, np.array(y) - np.mean(y)) for y in dialogues]
    spread = sum(float(x @ x) for x, _ in centred)
    slope = sum(float(x @ y) for x, y in centred) / spread
    n = len(dialogues)
    meat = sum(float(x @ (y - slope * x)) ** 2 for x, y in centred)
    error = np.sqrt(n / (n - 1) * meat) / spread
    half = stats.t.ppf(0.975, n - 1) * error
    assert decay.slope == pytest.approx(slope)
    assert decay.slope_interval == pytest.approx((slope - half, slope + half))


def test_the_slopes_interval_covers_the_truth_about_as_often_as_it_says() -> None:
    rng = random.Random(1)
    hits = 0
    for _ in range(200):
        records = []
        for _ in range(12):
            level, turns = rng.uniform(0.5, 0.8), rng.randint(2, 8)
            records.append(
                record(*(level - 0.02 * at + rng.uniform(-0.2, 0.2) for at in range(turns)))
            )
        decay = tally(*records).decay()
        assert decay is not None
        assert decay.slope_interval is not None
        low, high = decay.slope_interval
        hits += low <= -0.02 <= high
    assert 176 <= hits <= 200  # 95 % of 200, give or take the noise of 200 and of few clusters


def test_nothing_to_say_of_turns_where_none_was_asked_about() -> None:
    whole = ConversationAdherence(imputed=True).model_dump()
    made = tally({"per_turn": [], "conversation": whole})
    assert made.decay() is None
    assert "1 of 1 answers are 0.5" in made.warnings()[0]


def test_one_turn_a_dialogue_has_no_slope() -> None:
    decay = tally(record(1), record(0)).decay()
    assert decay is not None
    assert decay.slope is decay.slope_interval is None


def test_faults_of_reasons_are_counted_by_code() -> None:
    made = tally(
        record(1, reason=AdherenceReason(text="fine")),
        record(0, 0, reason=AdherenceReason(text="x", violation="tone", fault="not_in_role")),
    )
    (warning,) = made.warnings()
    assert "2 of 3 reasons" in warning
    assert "not_in_role 2" in warning
    assert tally(record(1)).warnings() == []


def test_positions_are_bounded() -> None:
    decay = tally(record(*[1] * (POSITIONS + 5))).decay()
    assert decay is not None
    assert len(decay.positions) == POSITIONS
