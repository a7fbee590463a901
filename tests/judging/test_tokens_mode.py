"""Tokens mode: scores from first-token distributions, each item in a context of its own."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from curate.engines.base import Completion, Request
from curate.engines.label_mass import LabelMass
from curate.judging.config import RubricConfig
from curate.judging.rubric import judge_dialogue
from curate.judging.rubric_prompts import resolve_texts
from curate.judging.session import Scope
from curate.judging.tokens_mode import items_of, label_reading
from curate.records import Judgment, Unscored
from tests.judging.judge import (
    IDENTITY,
    ScriptedJudge,
    dialogue_of,
    fault,
    mass,
    question_of,
    shown_turns,
)

TOKENS = RubricConfig(mode="tokens", text="off")


async def test_one_request_an_item_all_in_one_call() -> None:
    judge = ScriptedJudge()
    result = await judge_dialogue(dialogue_of(3), judge, TOKENS, IDENTITY)
    assert isinstance(result, Judgment)
    assert (judge.calls, result.requests) == (1, 3 * 3 + 3 + 2)
    assert len({question_of(request) for request in judge.asked}) == len(judge.asked)
    for request in judge.asked:
        assert request.max_tokens == 1
        assert request.labels
        # Behind the prefix of digits, models give digits to a question with letters.
        is_letter = request.purpose in ("judge.verdict", "judge.weakest")
        assert request.prefill == ("Answer:" if is_letter else "(")
        assert request.temperature == 0
        assert request.schema is None
        assert "nothing else" in question_of(request)  # stands without the forced prefix


async def test_a_turn_is_seen_without_what_came_later() -> None:
    judge = ScriptedJudge()
    await judge_dialogue(dialogue_of(3), judge, TOKENS, IDENTITY)
    shown = {(r.purpose, len(shown_turns(r))) for r in judge.asked}
    of_turns = {count for purpose, count in shown if purpose == "judge.turns"}
    assert of_turns == {1, 2, 3}
    assert {count for purpose, count in shown if purpose != "judge.turns"} == {3}


async def test_the_rule_uses_the_most_likely_digit_and_the_expectation_is_kept() -> None:
    judge = ScriptedJudge(
        scores={
            (2, "helpfulness"): {"4": 0.5, "1": 0.4, " 5": 0.1},
            (None, "coherence"): {"3": 0.3, "4": 0.4, "x": 0.3},
        }
    )
    result = await judge_dialogue(dialogue_of(2), judge, TOKENS, IDENTITY)
    assert isinstance(result, Judgment)
    assert result.verdict == "excellent"
    reading = result.per_turn[1].readings["helpfulness"]
    assert result.per_turn[1].scores.helpfulness == 4
    assert reading.mean == pytest.approx(2.9)
    assert reading.spread == pytest.approx(math.sqrt(0.5 * 1.1**2 + 0.4 * 1.9**2 + 0.1 * 2.1**2))
    assert reading.coverage == pytest.approx(1.0)
    coherence = result.conversation_level.coherence
    assert coherence.score == 4
    assert coherence.reading is not None
    assert coherence.reading.coverage == pytest.approx(0.7)
    assert coherence.reading.mean == pytest.approx((3 * 0.3 + 4 * 0.4) / 0.7)


async def test_na_is_a_label_of_its_own_and_stays_out_of_the_expectation() -> None:
    judge = ScriptedJudge(scores={(None, "repair_handling"): {"N": 0.6, "2": 0.3, "4": 0.1}})
    result = await judge_dialogue(dialogue_of(2), judge, TOKENS, IDENTITY)
    assert isinstance(result, Judgment)
    repair = result.conversation_level.repair_handling
    assert repair.score == "n/a"
    assert repair.reading is not None
    assert repair.reading.mean == pytest.approx(2.5)
    assert repair.reading.probabilities["n/a"] == pytest.approx(0.6)
    by_name = {question_of(request): request.labels for request in judge.asked}
    assert [("N" in labels) for text, labels in by_name.items() if "Score the" in text].count(
        True
    ) == 2


async def test_the_weakest_turn_is_a_distribution_over_turns() -> None:
    judge = ScriptedJudge(scores={(None, "weakest_turn"): 2, (2, "helpfulness"): 3})
    judge.answer = lambda request: (
        mass({"B": 0.7, "Z": 0.2, "?": 0.1}) if request.purpose == "judge.weakest" else None
    )
    result = await judge_dialogue(dialogue_of(3), judge, TOKENS, IDENTITY)
    assert isinstance(result, Judgment)
    assert (result.weakest_turn, result.judge_weakest_turn) == (2, 2)
    assert result.weakest_mismatch is False
    assert result.weakest_probabilities["2"] == pytest.approx(0.7 / 0.9)
    assert result.weakest_probabilities["none"] == pytest.approx(0.2 / 0.9)


@pytest.mark.parametrize("name", ["helpfulness", "coherence"])
async def test_too_little_mass_is_unscored_never_a_number(name: str) -> None:
    turn = 2 if name == "helpfulness" else None
    judge = ScriptedJudge(scores={(turn, name): {"The": 0.91, "5": 0.09}})
    result = await judge_dialogue(dialogue_of(3), judge, TOKENS, IDENTITY)
    assert isinstance(result, Unscored)
    assert result.reason == "low_coverage"
    assert name in result.detail
    lenient = TOKENS.model_copy(update={"min_coverage": 0.05})
    assert isinstance(await judge_dialogue(dialogue_of(3), judge, lenient, IDENTITY), Judgment)


async def test_no_label_at_all_is_unscored_even_without_a_threshold() -> None:
    judge = ScriptedJudge(scores={(1, "safety"): {"The": 1.0}})
    config = TOKENS.model_copy(update={"min_coverage": 0.0})
    result = await judge_dialogue(dialogue_of(1), judge, config, IDENTITY)
    assert isinstance(result, Unscored)
    assert result.reason == "low_coverage"


async def test_an_opinion_that_cannot_be_read_costs_no_score() -> None:
    def silent(request: Request) -> Completion | None:
        unread = request.purpose in ("judge.verdict", "judge.weakest")
        return fault("timeout") if unread else None

    result = await judge_dialogue(dialogue_of(2), ScriptedJudge(answer=silent), TOKENS, IDENTITY)
    assert isinstance(result, Judgment)
    assert result.verdict == "excellent"
    assert result.judge_verdict is None
    assert result.verdict_mismatch is None
    assert result.weakest_mismatch is None


async def test_partly_unscored_turns_need_a_share_to_pass() -> None:
    judge = ScriptedJudge(scores={(2, "safety"): {"?": 1.0}})
    assert isinstance(await judge_dialogue(dialogue_of(4), judge, TOKENS, IDENTITY), Unscored)
    for share, passes in ((0.75, True), (0.76, False)):
        config = TOKENS.model_copy(update={"min_scored_share": share})
        result = await judge_dialogue(dialogue_of(4), judge, config, IDENTITY)
        assert isinstance(result, Judgment) == passes
        if isinstance(result, Judgment):
            assert [turn.turn for turn in result.per_turn] == [1, 3, 4]
            assert [turn.turn for turn in result.unscored_turns] == [2]


@given(st.dictionaries(st.sampled_from([*"12345", "N"]), st.floats(-80, 0), min_size=1))
def test_expectations_stay_on_the_scale(logprobs: dict[str, float]) -> None:
    reading = label_reading(LabelMass(logprobs, 0.5))
    digits = [int(label) for label in logprobs if label != "N"]
    assert (reading.mean is None) == (not digits) or "N" in logprobs
    if reading.mean is not None and reading.spread is not None:
        assert min(digits) - 1e-9 <= reading.mean <= max(digits) + 1e-9
        assert 0 <= reading.spread <= 2 + 1e-9
    assert sum(reading.probabilities.values()) == pytest.approx(1)


async def test_more_turns_than_letters_leave_the_weakest_unasked() -> None:
    config = TOKENS.model_copy(update={"max_turns": 40})
    judge = ScriptedJudge()
    result = await judge_dialogue(dialogue_of(26), judge, config, IDENTITY)
    assert isinstance(result, Judgment)
    assert result.weakest_mismatch is None
    assert "judge.weakest" not in judge.purposes()
    judge = ScriptedJudge()
    result = await judge_dialogue(dialogue_of(25), judge, config, IDENTITY)
    assert isinstance(result, Judgment)
    assert result.weakest_mismatch is False


async def test_a_score_with_too_little_mass_is_asked_again_in_another_wording() -> None:
    def shy(request: Request) -> Completion | None:
        if "helpfulness of the assistant in turn 2" in question_of(request):
            return mass({"The": 0.95, "5": 0.05})
        if "Look at what the assistant did in turn 2" in question_of(request):
            return mass({"4": 0.8, "The": 0.2})
        return None

    judge = ScriptedJudge(answer=shy)
    result = await judge_dialogue(dialogue_of(3), judge, TOKENS, IDENTITY)
    assert isinstance(result, Judgment)
    assert result.per_turn[1].scores.helpfulness == 4
    assert (judge.calls, result.requests) == (2, 3 * 3 + 3 + 2 + 1)
    assert {request.prefill for request in judge.asked[:-1]} == {"(", "Answer:"}
    assert judge.asked[-1].prefill == "Score: ("
    never = await judge_dialogue(
        dialogue_of(3),
        ScriptedJudge(answer=shy),
        TOKENS.model_copy(update={"retries": 0}),
        IDENTITY,
    )
    assert isinstance(never, Unscored)


async def test_a_score_low_in_every_wording_is_unscored_after_the_retries() -> None:
    judge = ScriptedJudge(scores={(2, "helpfulness"): {"The": 0.95, "5": 0.05}})
    result = await judge_dialogue(dialogue_of(3), judge, TOKENS, IDENTITY)
    assert isinstance(result, Unscored)
    assert (judge.calls, result.requests) == (3, 3 * 3 + 3 + 2 + 2)


async def test_paraphrases_are_averaged_as_distributions_in_one_call() -> None:
    def unsure(request: Request) -> Completion | None:
        if "Score the coherence" in question_of(request):
            return mass({"5": 0.6, "2": 0.4})
        if "coherence" in question_of(request):
            return mass({"2": 0.9, "The": 0.1})
        return None

    judge = ScriptedJudge(answer=unsure)
    config = TOKENS.model_copy(update={"paraphrases": 2})
    result = await judge_dialogue(dialogue_of(2), judge, config, IDENTITY)
    assert isinstance(result, Judgment)
    coherence = result.conversation_level.coherence
    assert coherence.score == 2
    assert coherence.reading is not None
    assert coherence.reading.coverage == pytest.approx((1.0 + 0.9) / 2)
    assert coherence.reading.mean == pytest.approx((5 * 0.3 + 2 * 0.65) / 0.95)
    assert (judge.calls, result.requests) == (1, 2 * (2 * 3 + 3) + 2)


async def test_one_wording_is_the_plain_reading() -> None:
    """Averaging one distribution must not change it by a rounding."""
    scores = {(1, "helpfulness"): {"4": 0.3, "1": 0.3, " 5": 0.1, "no": 0.3}}
    result = await judge_dialogue(dialogue_of(1), ScriptedJudge(scores=scores), TOKENS, IDENTITY)
    assert isinstance(result, Judgment)
    assert result.per_turn[0].scores.helpfulness == 1  # a tie goes to the label asked for first


def test_every_question_about_a_turn_says_what_its_dimension_asks() -> None:
    texts = resolve_texts(TOKENS)
    items = items_of(Scope((1, 2)), texts)
    assert [(item.turn, item.name) for item in items] == [
        (turn, name) for turn in (1, 2) for name in ("context_use", "helpfulness", "safety")
    ]
    for item in items:
        assert texts.asks[item.name] in item.question
        assert item.name in item.question
