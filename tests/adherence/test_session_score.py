import math
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from curate.adherence.config import AdherenceConfig
from curate.adherence.session_score import (
    NoSession,
    SessionScore,
    aggregate,
    trend_of,
    turns_in_role,
)
from curate.records import AdherenceTurn
from curate.statistics import (
    bayesian_bootstrap_mean,
    beta_posterior,
    bootstrap_mean,
    wilson,
)

CONTINUOUS = AdherenceConfig(output_mode="continuous")
binary = partial(AdherenceConfig, output_mode="binary")
scores = st.lists(st.floats(0, 1), min_size=1, max_size=12)
weights = st.floats(0.001, 1000)


def turns(*values: float | None, reason: str = "bad_reply") -> list[AdherenceTurn]:
    return [
        AdherenceTurn(
            turn=number,
            score=value,
            adherent=None if value is None else value >= 0.5,
            unscored=reason if value is None else None,
        )
        for number, value in enumerate(values, start=1)
    ]


def session(values: list[AdherenceTurn], config: AdherenceConfig) -> SessionScore:
    result = aggregate(values, config)
    assert isinstance(result, SessionScore)
    return result


def no_session(values: list[AdherenceTurn], config: AdherenceConfig) -> NoSession:
    result = aggregate(values, config)
    assert isinstance(result, NoSession)
    return result


@given(scores)
def test_session_score_is_the_mean_within_its_interval(values: list[float]) -> None:
    result = session(turns(*values), CONTINUOUS)
    assert result.score == pytest.approx(sum(values) / len(values), abs=1e-12)
    assert 0 <= result.interval[0] <= result.score <= result.interval[1] <= 1


@given(st.lists(st.tuples(st.floats(0, 1), weights), min_size=1, max_size=8), st.floats(0.01, 100))
def test_weighted_mean_does_not_depend_on_the_scale_of_weights(
    pairs: list[tuple[float, float]], scale: float
) -> None:
    values, weighing = [value for value, _ in pairs], [weight for _, weight in pairs]
    plain = CONTINUOUS.model_copy(update={"weights": tuple(weighing)})
    scaled = CONTINUOUS.model_copy(update={"weights": tuple(w * scale for w in weighing)})
    result = session(turns(*values), plain)
    assert min(values) <= result.score <= max(values)
    assert session(turns(*values), scaled).score == pytest.approx(result.score, abs=1e-9)


def test_weights_move_the_session_score() -> None:
    config = binary(weights=(3, 1))
    assert session(turns(1, 0), config).score == 0.75
    assert session(turns(0, 1), config).score == 0.25


def test_a_turn_of_weight_zero_does_not_count() -> None:
    assert session(turns(0, 1, 1), binary(weights=(0, 1, 1))).score == 1.0


def test_weights_of_another_length_are_an_error_of_the_dialogue() -> None:
    refusal = no_session(turns(1, 1, 1), binary(weights=(1, 1)))
    assert refusal.reason == "weights_mismatch"
    assert "2 weights" in refusal.detail
    assert "3 assistant turns" in refusal.detail


@pytest.mark.parametrize("bad", [(0, 0), (1, -1), (math.nan, 1), ()])
def test_weights_that_weigh_nothing_are_refused(bad: tuple[float, ...]) -> None:
    with pytest.raises(ValueError, match="weights"):
        AdherenceConfig(weights=bad)


def test_unequal_weights_widen_the_wilson_interval() -> None:
    equal = session(turns(1, 0, 1, 0), binary()).interval
    unequal = session(turns(1, 0, 1, 0), binary(weights=(9, 9, 1, 1))).interval
    assert unequal[1] - unequal[0] > equal[1] - equal[0]


@given(scores)
def test_strict_mode_passes_only_if_every_turn_does(values: list[float]) -> None:
    config = CONTINUOUS.model_copy(update={"strict_mode": True})
    assert session(turns(*values), config).adherent == all(value >= 0.5 for value in values)


@given(scores, st.floats(0, 1))
def test_threshold_decides_where_strict_mode_does_not(
    values: list[float], threshold: float
) -> None:
    config = CONTINUOUS.model_copy(update={"threshold": threshold})
    result = session(turns(*values), config)
    assert result.adherent == (result.score >= threshold)
    strict = config.model_copy(update={"strict_mode": True})
    assert session(turns(*values), strict).score == result.score


def test_half_of_the_turns_reach_the_default_threshold() -> None:
    assert session(turns(1, 0), binary()).adherent
    assert not session(turns(1, 0, 0), binary()).adherent


def test_an_empty_session_is_never_a_pass() -> None:
    for config in (
        binary(),
        binary(strict_mode=True),
        binary(threshold=0),
    ):
        assert no_session([], config).reason == "no_assistant_turn"


def test_a_partly_unscored_session_is_unscored_with_its_reason() -> None:
    refusal = no_session(turns(1, None, 1), binary())
    assert refusal.reason == "bad_reply"
    assert "1 of 3 assistant turns have no score: 2 (bad_reply)" in refusal.detail
    mixed = [*turns(1, None), AdherenceTurn(turn=3, unscored="context_overflow")]
    assert no_session(mixed, binary()).reason == "unscored_turns"


def test_min_scored_share_admits_partly_scored_sessions() -> None:
    config = binary(min_scored_share=0.6)
    result = session(turns(1, None, 0), config)
    assert result.score == 0.5
    assert result.interval == pytest.approx(wilson(0.5, 2))
    assert no_session(turns(1, None, None), config).reason == "bad_reply"
    assert no_session(turns(None), binary(min_scored_share=0.01)).reason == "bad_reply"


def test_strict_mode_takes_an_unscored_turn_for_not_adherent() -> None:
    config = binary(min_scored_share=0.5, strict_mode=True)
    assert not session(turns(1, None), config).adherent


def test_only_turns_of_weight_zero_scored_is_no_session() -> None:
    config = binary(weights=(0, 1), min_scored_share=0.5)
    assert no_session(turns(1, None), config).reason == "weights_mismatch"


def test_one_continuous_turn_claims_no_interval() -> None:
    result = session(turns(0.9), CONTINUOUS)
    assert result.interval == (0.0, 1.0)
    assert result.interval_method == "none (one turn)"
    assert session(turns(1), binary()).interval_method == "wilson"


BAYESIAN = binary(interval="bayesian")


def test_both_kinds_of_interval_are_offered_in_both_modes() -> None:
    yes_or_no = turns(1, 1, 0, 1)
    assert session(yes_or_no, binary()).interval == pytest.approx(wilson(0.75, 4))
    found = session(yes_or_no, BAYESIAN)
    assert found.interval == pytest.approx(beta_posterior(0.75, 4))
    assert found.interval_method == "beta posterior (Jeffreys)"
    values = [0.1, 0.7, 0.9]
    continuous = session(turns(*values), CONTINUOUS)
    assert continuous.interval == pytest.approx(bootstrap_mean(values, [1] * 3))
    both = CONTINUOUS.model_copy(update={"interval": "bayesian"})
    credible = session(turns(*values), both)
    assert credible.interval == pytest.approx(bayesian_bootstrap_mean(values, [1] * 3))
    assert credible.interval_method == "bayesian bootstrap"
    assert credible.score == continuous.score


@given(scores)
def test_credible_intervals_hold_the_score_and_narrow_with_turns(values: list[float]) -> None:
    for config, given_turns in (
        (CONTINUOUS.model_copy(update={"interval": "bayesian"}), values),
        (BAYESIAN, [float(value >= 0.5) for value in values]),
    ):
        few = session(turns(*given_turns), config)
        many = session(turns(*given_turns * 9), config)
        assert 0 <= few.interval[0] <= few.score <= few.interval[1] <= 1
        width, tighter = few.interval[1] - few.interval[0], many.interval[1] - many.interval[0]
        assert tighter < width or width < 1e-9


def test_unequal_weights_widen_the_credible_interval() -> None:
    equal = session(turns(1, 0, 1, 0), BAYESIAN).interval
    weighted = BAYESIAN.model_copy(update={"weights": (9, 9, 1, 1)})
    unequal = session(turns(1, 0, 1, 0), weighted).interval
    assert unequal[1] - unequal[0] > equal[1] - equal[0]


def test_turns_in_role_end_with_the_first_that_is_not_known_to_be() -> None:
    assert turns_in_role(turns(1, 1, 0, 1)) == 2
    assert turns_in_role(turns(1, 1)) == 2
    assert turns_in_role(turns(0)) == 0
    assert turns_in_role(turns(1, None, 1)) == 1


def test_the_trend_counts_positions_and_leaves_out_what_is_no_evidence() -> None:
    found = trend_of(turns(1, 1, 0, 0))
    assert found is not None
    assert found.slope == pytest.approx(-0.4)
    gap = trend_of(turns(1, None, 0))
    assert gap is not None
    assert gap.slope == pytest.approx(-0.5)
    assert trend_of(turns(1, None)) is None
    half = [*turns(1, 1), AdherenceTurn(turn=3, score=0.5, imputed=True)]
    flat = trend_of(half)
    assert flat is not None
    assert flat.slope == 0


def test_why_there_is_no_session_score_is_said() -> None:
    assert no_session([], binary()).detail == "there is no assistant turn to score"
    weightless = binary(weights=(0, 1), min_scored_share=0.5)
    assert no_session(turns(1, None), weightless).detail == ("every turn with a score has weight 0")
    many = no_session(turns(*[None] * 12), binary())
    listed = ", ".join(f"{number} (bad_reply)" for number in range(1, 11))
    assert many.detail == f"12 of 12 assistant turns have no score: {listed} and 2 more"
    ten = no_session(turns(*[None] * 10), binary())
    assert ten.detail.endswith("10 (bad_reply)")
    whole = no_session(turns(None), binary(evaluation_granularity="conversation"))
    assert whole == NoSession("bad_reply", "the conversation has no score")


def test_one_answer_about_the_conversation_claims_no_interval() -> None:
    config = CONTINUOUS.model_copy(update={"evaluation_granularity": "conversation"})
    assert session(turns(0.9), config).interval_method == "none (one answer)"


def test_as_many_turns_as_the_share_asks_for_are_enough() -> None:
    config = binary(min_scored_share=0.5)
    assert session(turns(1, None), config).score == 1
    assert no_session(turns(1, None, None), config).reason == "bad_reply"
