"""Labels read behind a bounded thought: two calls on one trunk, thoughts at their bound are counted."""

from __future__ import annotations

import pytest

from curate.engines.base import Capability, Completion, EngineIdentity, Request
from curate.errors import UsageError
from curate.judging.config import RubricConfig, resolve_mode
from curate.judging.rubric import judge_dialogue
from curate.judging.turn_rescoring import score_turn
from curate.records import Judgment, TurnReading, Unscored
from curate.stages import judge_stage
from tests.judging.judge import IDENTITY, ScriptedJudge, dialogue_of, fault, prompt_of, said

THINKING = RubricConfig(mode="tokens", text="off", thought_tokens=40)
TOKENS = frozenset({Capability.TOP_LOGPROBS, Capability.THOUGHTS})


def is_thought(request: Request) -> bool:
    return request.purpose == "judge.thought"


def thinks(request: Request) -> Completion | None:
    if not is_thought(request):
        return None
    is_cut = "helpfulness" in prompt_of(request).splitlines()[-2]
    return said("<think>\nHm", "length") if is_cut else said("<think>\nSo so.\n</think>\n\n(4)")


async def test_every_label_is_read_behind_its_own_thought_on_one_trunk() -> None:
    judge = ScriptedJudge({(2, "helpfulness"): 2}, answer=thinks)
    plain = ScriptedJudge({(2, "helpfulness"): 2})
    result = await judge_dialogue(dialogue_of(2), judge, THINKING, IDENTITY)
    bare = RubricConfig(mode="tokens", text="off")
    without = await judge_dialogue(dialogue_of(2), plain, bare, IDENTITY)
    assert isinstance(result, Judgment)
    assert isinstance(without, Judgment)
    assert result.per_turn == without.per_turn
    assert result.requests == 2 * without.requests == 22
    thoughts = [request for request in judge.asked if is_thought(request)]
    reads = [request for request in judge.asked if not is_thought(request)]
    assert [prompt_of(one) for one in thoughts] == [prompt_of(one) for one in reads]
    assert {one.thought for one in reads} == {"So so.", "Hm"}
    assert {(one.max_tokens, one.labels, one.prefill) for one in thoughts} == {(40, (), "")}
    assert [one.turns for one in thoughts] == [one.turns for one in reads]


async def test_thoughts_cut_at_their_bound_are_read_all_the_same_and_counted() -> None:
    judge = ScriptedJudge(
        answer=lambda one: said("<think>\nHm", "length") if is_thought(one) else None
    )
    result = await judge_dialogue(dialogue_of(1), judge, THINKING, IDENTITY)
    assert isinstance(result, Judgment)
    assert result.remarks == ("thoughts_cut: 8",)
    assert "Hm" not in result.model_dump_json()


async def test_a_judge_that_answers_at_once_scores_as_without_thoughts_and_says_so() -> None:
    judge = ScriptedJudge(answer=lambda one: said("4") if is_thought(one) else None)
    result = await judge_dialogue(dialogue_of(1), judge, THINKING, IDENTITY)
    assert isinstance(result, Judgment)
    # Verdict and weakest turn are letters, so that a digit there is words like any others.
    assert result.remarks == ("thoughts_missing: 6",)
    scores = [one for one in judge.asked if one.labels and "1" in one.labels]
    assert {one.thought for one in scores} == {""}


async def test_a_thought_that_failed_is_the_items_failure() -> None:
    judge = ScriptedJudge(answer=lambda one: fault("server") if is_thought(one) else None)
    result = await judge_dialogue(dialogue_of(1), judge, THINKING, IDENTITY)
    assert isinstance(result, Unscored)
    assert result.reason == "engine_error"


async def test_a_turn_scored_by_itself_is_thought_about_too() -> None:
    judge = ScriptedJudge({(2, "safety"): 3}, answer=thinks)
    reading = await score_turn(dialogue_of(2), 2, judge, THINKING)
    assert isinstance(reading, TurnReading)
    assert sum(map(is_thought, judge.asked)) == 3


async def test_a_json_reply_has_room_for_a_thought() -> None:
    room = {}
    for tokens in (0, 500):
        judge = ScriptedJudge()
        config = RubricConfig(mode="json", text="off", thought_tokens=tokens)
        await judge_dialogue(dialogue_of(2), judge, config, IDENTITY)
        [request] = judge.asked
        room[tokens] = request.max_tokens
    assert room[500] == room[0] + 500


class Engine:
    identity = EngineIdentity("scripted", "m")
    capabilities = TOKENS
    context_tokens = None


def test_identity_and_estimate_tell_of_thoughts() -> None:
    stage = judge_stage(THINKING, Engine())  # type: ignore[arg-type]
    assert stage.identity.sampling["thought_tokens"] == 40
    calls = stage.expected_load(dialogue_of(2))
    assert [call.request.purpose for call in calls].count("judge.thought") == len(calls) / 2
    read = calls[-1].request
    assert read.labels
    assert read.thought


def test_labels_behind_a_thought_need_an_engine_that_can_be_given_one() -> None:
    assert resolve_mode(THINKING, TOKENS) == "tokens"
    with pytest.raises(UsageError, match="thought_tokens"):
        resolve_mode(THINKING, TOKENS - {Capability.THOUGHTS})
    free = RubricConfig(thought_tokens=40)
    assert resolve_mode(free, frozenset()) == "json"
