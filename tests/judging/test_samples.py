"""Sampled JSON replies: shares are probabilities, the digit is the most frequent, bad samples are counted out."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pydantic import ValidationError

from curate.engines.base import Capability, Completion, EngineIdentity, Fault, Request
from curate.judging.calibrated_levels import with_levels
from curate.judging.config import SAMPLE_TEMPERATURE, RubricConfig
from curate.judging.rubric import judge_dialogue
from curate.judging.turn_rescoring import score_turn
from curate.records import CutPoints, Judgment, TurnReading, Unscored
from curate.stages import judge_stage
from tests.judging.judge import IDENTITY, ScriptedJudge, dialogue_of, fault, question_of, said

FIVE = RubricConfig(mode="json", text="off", samples=5)


class Sampled(ScriptedJudge):
    """Gives the scores of `draws[sample % 5]`."""

    def __init__(self, *draws: dict[Any, Any]) -> None:
        super().__init__(answer=self._drawn)
        self.draws = draws

    def _drawn(self, request: Request) -> Completion | None:
        self.scores = self.draws[request.sample % len(self.draws)]
        return None


def drawn(name: str, *values: Any, turn: int | None = None) -> Sampled:
    return Sampled(*({(turn, name): value} for value in values))


async def judged(judge: ScriptedJudge, config: RubricConfig = FIVE, turns: int = 2) -> Judgment:
    result = await judge_dialogue(dialogue_of(turns), judge, config, IDENTITY)
    assert isinstance(result, Judgment), result
    return result


async def test_samples_are_siblings_at_a_temperature_each_with_an_index_of_its_own() -> None:
    judge = drawn("coherence", 5, 5, 5, 5, 5)
    result = await judged(judge)
    assert judge.calls == 1
    assert [request.sample for request in judge.asked] == [0, 1, 2, 3, 4]
    assert {request.temperature for request in judge.asked} == {SAMPLE_TEMPERATURE}
    assert result.requests == 5
    one = ScriptedJudge()
    await judged(one, FIVE.model_copy(update={"samples": 1}))
    assert [(request.sample, request.temperature) for request in one.asked] == [(0, 0.0)]


async def test_shares_of_the_samples_are_probabilities_with_expectation_and_spread() -> None:
    turn = (await judged(drawn("helpfulness", 4, 2, 4, 5, 5, turn=2))).per_turn[1]
    reading = turn.readings["helpfulness"]
    assert reading.probabilities == {"2": 0.2, "4": 0.4, "5": 0.4}
    assert reading.mean == pytest.approx(4.0)
    assert reading.spread == pytest.approx((0.2 * 4 + 0.4 * 1) ** 0.5)
    assert reading.coverage == 1.0
    assert turn.scores.helpfulness == 4, "of two equally frequent digits the lower"
    assert turn.readings["safety"].probabilities == {"5": 1.0}


async def test_na_takes_part_in_the_shares_and_not_in_the_expectation() -> None:
    level = (await judged(drawn("repair_handling", "n/a", 3, "n/a", "n/a", 5))).conversation_level
    assert level.repair_handling.score == "n/a"
    reading = level.repair_handling.reading
    assert reading is not None
    assert reading.probabilities == {"3": 0.2, "5": 0.2, "n/a": 0.6}
    assert reading.mean == pytest.approx(4.0)
    tied = await judged(drawn("repair_handling", "n/a", 3), FIVE.model_copy(update={"samples": 2}))
    assert tied.conversation_level.repair_handling.score == 3, "a digit before n/a"


async def test_the_judges_own_opinions_are_the_most_frequent_ones() -> None:
    verdicts = await judged(drawn("verdict", "good", "poor", "poor", "good", "excellent"))
    assert verdicts.judge_verdict == "poor", "of two equally frequent ones the worse"
    weakest = await judged(drawn("weakest_turn", 2, None, 2, 1, None))
    assert weakest.judge_weakest_turn == 2, "the earlier before none"
    assert weakest.weakest_probabilities == {"1": 0.2, "2": 0.4, "none": 0.4}


async def test_a_bad_sample_is_asked_again_by_itself_with_the_reason() -> None:
    judge = ScriptedJudge(answer=lambda request: said("no") if request.sample == 3 else None)
    result = await judged(judge)
    assert [request.sample for request in judge.asked] == [0, 1, 2, 3, 4, 8]
    assert "could not be used" in question_of(judge.asked[-1])
    assert judge.asked[-1].temperature == SAMPLE_TEMPERATURE
    assert result.conversation_level.coherence.reading is not None
    assert result.conversation_level.coherence.reading.coverage == 1.0
    assert result.remarks == ()


@pytest.mark.parametrize(
    ("samples", "bad", "is_scored"), [(5, 2, True), (5, 3, False), (2, 1, False), (3, 1, True)]
)
async def test_bad_samples_are_counted_out_and_too_few_good_ones_are_unscored(
    samples: int, bad: int, is_scored: bool
) -> None:
    config = FIVE.model_copy(update={"samples": samples})
    judge = ScriptedJudge(
        answer=lambda request: said("no") if request.sample % samples < bad else None
    )
    result = await judge_dialogue(dialogue_of(2), judge, config, IDENTITY)
    assert len(judge.asked) == samples + 2 * bad
    if is_scored:
        assert isinstance(result, Judgment)
        reading = result.per_turn[0].readings["safety"]
        assert reading.coverage == pytest.approx((samples - bad) / samples)
        assert result.remarks == ("samples_lost: bad_reply",)
    else:
        assert isinstance(result, Unscored)
        assert result.reason == "bad_reply"
        few = f"{samples - bad} of {samples} samples could be used"
        assert result.detail == f"{few}: there is no JSON object in the reply"


async def test_a_fault_costs_its_sample_and_an_overflow_splits_the_dialogue() -> None:
    judge = ScriptedJudge(
        answer=lambda request: fault("server") if request.sample in (0, 1) else None
    )
    result = await judged(judge)
    assert len(judge.asked) == 5
    assert result.remarks == ("samples_lost: engine_error",)
    long = dialogue_of(8, words=60)
    whole = ScriptedJudge()
    await judge_dialogue(long, whole, FIVE, IDENTITY)
    longest = max(len(str(request.messages[0]["content"])) for request in whole.asked)
    split = await judge_dialogue(long, ScriptedJudge(limit=longest - 1), FIVE, IDENTITY)
    assert isinstance(split, Judgment)
    assert "split: context_overflow" in split.remarks


@pytest.mark.parametrize(
    ("retries", "indices"), [(0, [0, 1, 2]), (1, [0, 1, 2, 4]), (2, [0, 1, 2, 4, 7])]
)
async def test_a_bad_sample_is_asked_again_as_often_as_the_retries_then_counted_out(
    retries: int, indices: list[int]
) -> None:
    judge = ScriptedJudge(answer=lambda request: said("no") if request.sample % 3 == 1 else None)
    result = await judged(judge, FIVE.model_copy(update={"samples": 3, "retries": retries}))
    assert [request.sample for request in judge.asked] == indices
    assert result.per_turn[0].readings["safety"].coverage == pytest.approx(2 / 3)
    assert (result.requests, result.remarks) == (len(indices), ("samples_lost: bad_reply",))


async def test_a_sample_asked_again_for_its_verdict_is_not_lost_by_a_worse_reply() -> None:
    judge = ScriptedJudge(
        {(None, "verdict"): "poor"}, lambda request: said("no") if request.sample > 1 else None
    )
    result = await judged(judge, FIVE.model_copy(update={"samples": 2, "on_mismatch": "retry"}))
    assert [request.sample for request in judge.asked] == [0, 1, 2, 3, 4, 5]
    assert (result.judge_verdict, result.verdict_mismatch, result.remarks) == ("poor", True, ())
    assert result.per_turn[0].readings["safety"].coverage == 1.0


async def test_of_several_reasons_for_lost_samples_the_first_is_named() -> None:
    bad = {0: fault("server"), 1: said("no"), 6: said("no"), 11: said("no")}
    result = await judged(ScriptedJudge(answer=lambda request: bad.get(request.sample)))
    assert result.remarks == ("samples_lost: engine_error",)


async def test_one_sample_that_does_not_fit_is_the_reason_whatever_became_of_others() -> None:
    def answer(request: Request) -> Completion:
        return fault("context_overflow") if request.sample == 1 else said("no")

    config = FIVE.model_copy(update={"samples": 2, "retries": 0})
    result = await judge_dialogue(dialogue_of(1), ScriptedJudge(answer=answer), config, IDENTITY)
    assert isinstance(result, Unscored)
    detail = "0 of 2 samples could be used: scripted"
    assert (result.reason, result.detail) == ("context_overflow", detail)
    untold = Completion(finish="error", fault=Fault("context_overflow"))
    mute = ScriptedJudge(answer=lambda _: untold)
    result = await judge_dialogue(dialogue_of(1), mute, config, IDENTITY)
    assert isinstance(result, Unscored)
    assert result.detail == "0 of 2 samples could be used"


async def test_windows_and_the_further_call_are_sampled_too() -> None:
    judge = drawn("helpfulness", 2, 3, 3, 3, 4, turn=5)
    result = await judged(judge, turns=14)
    assert {request.purpose for request in judge.asked} >= {"judge.turns", "judge.conversation"}
    assert all(len(turn.readings) == 3 for turn in result.per_turn)
    assert result.per_turn[4].readings["helpfulness"].mean == pytest.approx(3.0)
    coherence = result.conversation_level.coherence.reading
    assert coherence is not None
    assert coherence.probabilities == {"5": 1.0}


async def test_a_turn_scored_by_itself_has_an_expectation() -> None:
    judge = drawn("context_use", 2, 3, 3, 4, 5, turn=2)
    reading = await score_turn(dialogue_of(3), 2, judge, FIVE)
    assert isinstance(reading, TurnReading)
    assert reading.values["context_use"] == pytest.approx(3.4)


async def test_calibrated_levels_go_by_the_expectation_of_samples() -> None:
    row = await judged(drawn("helpfulness", 4, 4, 4, 3, 3, turn=1))
    cuts = CutPoints(cuts=(1.5, 2.5, 3.7, 4.5), method="matched_shares", labels=20, dialogues=20)
    levels = with_levels(row, {"helpfulness": cuts}, IDENTITY.calibrated("levels x"))
    assert isinstance(levels, Judgment)
    assert levels.per_turn[0].digits is not None
    assert levels.per_turn[0].digits.helpfulness == 4
    assert levels.per_turn[0].scores.helpfulness == 3


def test_samples_make_another_identity_in_json_mode_only() -> None:
    class Engine:
        identity = EngineIdentity("scripted", "m")
        capabilities: frozenset[Capability] = frozenset()
        context_tokens = None

    class Reading(Engine):
        capabilities = frozenset({Capability.TOP_LOGPROBS})

    sampled = judge_stage(RubricConfig(samples=5), Engine())  # type: ignore[arg-type]
    plain = judge_stage(RubricConfig(), Engine())  # type: ignore[arg-type]
    assert sampled.identity.sampling == {"samples": 5, "temperature": SAMPLE_TEMPERATURE}
    assert plain.identity.sampling == {"temperature": 0.0}
    assert sampled.fingerprint != plain.fingerprint
    tokens = judge_stage(RubricConfig(samples=5), Reading())  # type: ignore[arg-type]
    assert (tokens.mode, tokens.identity.sampling) == ("tokens", {"temperature": 0.0})


async def test_an_estimate_counts_every_sample() -> None:
    class Engine:
        identity = EngineIdentity("scripted", "m")
        capabilities: frozenset[Capability] = frozenset()
        context_tokens = None

    sampled = judge_stage(FIVE, Engine())  # type: ignore[arg-type]
    assert len(sampled.expected_load(dialogue_of(3))) == 5


@pytest.mark.parametrize(
    "wrong",
    [
        {"samples": 0},
        {"samples": 5, "mode": "tokens"},
    ],
)
def test_samples_where_they_mean_nothing_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        RubricConfig.model_validate(wrong)


def test_the_reply_of_a_thinking_model_is_what_stands_behind_its_thought() -> None:
    from curate.judging.json_mode import read_reply
    from curate.judging.session import Scope

    reply = json.dumps({"turn_1": dict.fromkeys(("context_use", "helpfulness", "safety"), 4)})
    thought = '{"turn_1": perhaps 2? No.}'
    for text in (f"<think>\n{thought}\n</think>\n\n{reply}", f"{thought}\n</think>\n\n{reply}"):
        assert read_reply(text, Scope((1,))).turns[0].scores.safety == 4
