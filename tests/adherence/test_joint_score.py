"""Role adherence by a jury: how its judges' answers about a turn become one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from curate.adherence.config import AdherenceConfig
from curate.adherence.joint_score import combine_scores, combine_turns
from curate.adherence.session_score import trend_of
from curate.records import (
    AdherenceReason,
    AdherenceScore,
    AdherenceTurn,
    ConversationAdherence,
    JudgeIdentity,
    Unscored,
)
from curate.records.several_judges import JuryRule

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


def test_the_coverage_is_the_least_of_the_judges_that_have_one() -> None:
    held = combine_turns(
        [turn(0.9, coverage=0.8), turn(0.7, coverage=0.6), turn(0.8)], "vote", READ
    )
    assert (held.turn, held.coverage, held.raw_score) == (1, 0.6, None)
    assert combine_turns([turn(0.9)], "vote", READ).coverage is None


def row(*scores: float | None, **more: object) -> AdherenceScore:
    known = [score for score in scores if score is not None] or [0.5]
    return AdherenceScore.model_validate(
        {
            "dialogue_id": "d",
            "content_hash": "h",
            "identity": JudgeIdentity(engine="scripted", model="m"),
            "scoring_method": "llm_judge",
            "output_mode": "binary",
            "evaluation_granularity": "turn",
            "definition": "constructive",
            "per_turn": [turn(score, turn=at, unscored=None if score is not None else "bad_reply")
                         for at, score in enumerate(scores, start=1)],
            "session_score": sum(known) / len(known),
            "interval": (0.0, 1.0),
            "interval_method": "wilson",
            "adherent": True,
            "requests": 3,
        }
        | more
    )  # fmt: skip


def test_a_jury_s_record_is_joined_turn_by_turn_and_aggregated_anew() -> None:
    rows = [row(0.9, 0.1, 0.1), row(0.5, 0.4, 0.3), row(0.8, 0.2, 0.2)]
    held = combine_scores(rows, "median", READ)
    assert isinstance(held, AdherenceScore)
    assert [(one.turn, one.score) for one in held.per_turn] == [(1, 0.8), (2, 0.2), (3, 0.2)]
    assert held.session_score == pytest.approx(0.4)
    assert (held.adherent, held.output_mode, held.interval_method) == (
        False,
        "continuous",
        "bootstrap",
    )
    assert 0.19 < held.interval[0] < 0.4 < held.interval[1] < 0.81
    assert held.turns_in_role == 1
    assert held.trend == trend_of(held.per_turn)
    assert held.trend is not None
    assert held.conversation is None
    assert (held.dialogue_id, held.content_hash, held.requests) == ("d", "h", 3)


def test_a_jury_s_record_of_which_a_turn_is_missing_is_unscored_with_its_reason() -> None:
    found = combine_scores([row(0.9, 0.8), row(0.9, None)], "median", READ)
    assert isinstance(found, Unscored)
    assert (found.dialogue_id, found.content_hash, found.stage) == ("d", "h", "adherence")
    assert found.reason == "bad_reply"
    assert found.detail == "1 of 2 assistant turns have no score: 2 (bad_reply)"


def whole(score: float, coverage: float | None, imputed: bool = False) -> AdherenceScore:
    said = ConversationAdherence(
        coverage=coverage, imputed=imputed, reason=AdherenceReason(text=f"by {score}")
    )
    fields = {"conversation": said, "evaluation_granularity": "conversation"}
    return row(session_score=score, **fields)


def test_a_jury_asked_about_the_conversation_as_a_whole_joins_its_answers() -> None:
    config = READ.model_copy(update={"evaluation_granularity": "conversation"})
    rows = [whole(0.9, 0.8), whole(0.4, 0.7), whole(0.3, None)]
    held = combine_scores(rows, "median", config)
    assert isinstance(held, AdherenceScore)
    assert (held.session_score, held.adherent, held.per_turn) == (0.4, False, ())
    assert held.conversation == ConversationAdherence(
        coverage=0.7, reason=AdherenceReason(text="by 0.4")
    )
    assert (held.interval, held.interval_method) == ((0.0, 1.0), "none (one answer)")
    assert held.trend is held.turns_in_role is None
    strict = combine_scores(rows, "minimum", config)
    assert isinstance(strict, AdherenceScore)
    assert strict.session_score == 0.3
    without = combine_scores([whole(0.5, 0.0, imputed=True), whole(0.2, 0.9)], "vote", config)
    assert isinstance(without, AdherenceScore)
    assert without.session_score == 0.2
