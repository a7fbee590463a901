"""Role adherence by a jury: how its judges' answers about a turn become one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from curate.adherence.config import AdherenceConfig
from curate.adherence.joint_score import combine_turns
from curate.records import AdherenceTurn
from curate.records.jury import JuryRule

SHARES = st.lists(st.floats(0, 1), min_size=2, max_size=5)
READ = AdherenceConfig(output_mode="continuous")


def turn(score: float | None, **more: object) -> AdherenceTurn:
    adherent = None if score is None else score >= 0.5
    return AdherenceTurn.model_validate({"turn": 1, "score": score, "adherent": adherent} | more)


@given(SHARES, st.sampled_from(["median", "minimum", "vote"]))
def test_the_score_lies_among_the_judges(shares: list[float], rule: JuryRule) -> None:
    held = combine_turns([turn(share) for share in shares], rule, READ)
    assert held.score is not None
    assert min(shares) - 1e-12 <= held.score <= max(shares) + 1e-12
    if rule == "minimum":
        assert held.score == min(shares)
    assert held.adherent is (held.score >= 0.5)


def test_half_of_the_judges_in_words_are_no_majority() -> None:
    words = AdherenceConfig(output_mode="binary")
    assert combine_turns([turn(1.0), turn(0.0)], "median", words).adherent is False
    assert combine_turns([turn(1.0), turn(1.0), turn(0.0)], "median", words).adherent is True


def test_a_turn_that_one_judge_could_not_score_is_unscored() -> None:
    held = combine_turns([turn(0.9), turn(None, unscored="low_coverage")], "vote", READ)
    assert (held.score, held.unscored) == (None, "low_coverage")


def test_a_judge_without_evidence_gives_way_to_one_that_has_some() -> None:
    imputed = turn(0.5, imputed=True, adherent=None)
    held = combine_turns([turn(0.1), imputed], "vote", READ)
    assert (held.score, held.imputed) == (0.1, False)
    neither = combine_turns([imputed, imputed], "vote", READ)
    assert (neither.score, neither.adherent, neither.imputed) == (0.5, None, True)


def test_the_reason_is_of_a_judge_that_says_the_same() -> None:
    judges = [turn(0.9, reason={"text": "kept"}), turn(0.1, reason={"text": "broken"}), turn(0.2)]
    held = combine_turns(judges, "median", READ)
    assert held.score == pytest.approx(0.2)
    assert held.reason is not None
    assert held.reason.text == "broken"
