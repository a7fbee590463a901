"""One turn asked about by itself."""

from __future__ import annotations

import pytest

from curate.errors import UsageError
from curate.judging.config import RubricConfig
from curate.judging.rubric_prompts import WORDINGS
from curate.judging.turn_rescoring import describe_issue, score_turn
from curate.records import TurnReading, Unscored
from tests.judging.judge import (
    ScriptedJudge,
    dialogue_of,
    fault,
    prompt_of,
    question_of,
    said,
    shown_turns,
)

TOKENS = RubricConfig(mode="tokens")
JSON = RubricConfig(mode="json")
MODES = pytest.mark.parametrize("config", [TOKENS, JSON], ids=["tokens", "json"])


async def test_tokens_give_expectations_and_json_integers() -> None:
    shares = {"4": 0.5, "5": 0.5}
    judge = ScriptedJudge(scores={(2, "helpfulness"): shares, (2, "safety"): 4})
    reading = await score_turn(dialogue_of(3), 2, judge, TOKENS)
    assert isinstance(reading, TurnReading)
    assert reading.values == pytest.approx({"context_use": 5, "helpfulness": 4.5, "safety": 4})
    judge = ScriptedJudge(scores={(2, "helpfulness"): 3})
    reading = await score_turn(dialogue_of(3), 2, judge, JSON)
    assert isinstance(reading, TurnReading)
    assert reading.values == {"context_use": 5.0, "helpfulness": 3.0, "safety": 5.0}
    assert judge.purposes() == ["judge.turns"]


@MODES
async def test_later_turns_are_not_shown(config: RubricConfig) -> None:
    judge = ScriptedJudge()
    await score_turn(dialogue_of(5), 3, judge, config)
    assert {tuple(shown_turns(request)) for request in judge.asked} == {(1, 2, 3)}


@MODES
async def test_wordings_differ_on_the_same_trunk(config: RubricConfig) -> None:
    judge = ScriptedJudge()
    for wording in range(len(WORDINGS)):
        reading = await score_turn(dialogue_of(3), 3, judge, config, wording=wording)
        assert isinstance(reading, TurnReading)
        assert reading.wording == wording
    each = 3 if config.mode == "tokens" else 1
    assert len(judge.asked) == each * len(WORDINGS)
    assert len({question_of(request) for request in judge.asked}) == len(judge.asked)
    assert len({prompt_of(request).split("</dialogue>")[0] for request in judge.asked}) == 1


@MODES
async def test_a_context_too_small_is_met_with_a_ledger(config: RubricConfig) -> None:
    dialogue = dialogue_of(9, words=600)
    judge = ScriptedJudge(limit=30_000)
    reading = await score_turn(dialogue, 9, judge, config)
    assert isinstance(reading, TurnReading)
    last = shown_turns(judge.asked[-1])
    assert last[-1] == 9
    assert last[0] > 1
    assert f"noted up to turn {last[0] - 1}\n" in prompt_of(judge.asked[-1])


@MODES
async def test_failures_are_unscored(config: RubricConfig) -> None:
    for judge, reason in (
        (ScriptedJudge(limit=10), "context_overflow"),
        (ScriptedJudge(answer=lambda request: fault("timeout")), "engine_error"),
        (
            ScriptedJudge(answer=lambda request: said("no")),
            "low_coverage" if config.mode == "tokens" else "bad_reply",
        ),
    ):
        result = await score_turn(dialogue_of(2), 2, judge, config)
        assert isinstance(result, Unscored)
        assert result.reason == reason
        assert result.requests == len(judge.asked) > 0


async def test_what_cannot_be_asked_is_refused() -> None:
    judge = ScriptedJudge()
    with pytest.raises(UsageError, match="no turn 7"):
        await score_turn(dialogue_of(3), 7, judge, TOKENS)
    with pytest.raises(UsageError, match="wording"):
        await score_turn(dialogue_of(3), 1, judge, TOKENS, wording=len(WORDINGS))
    with pytest.raises(UsageError, match="not resolved"):
        await score_turn(dialogue_of(3), 1, judge, RubricConfig())
    assert judge.asked == []


@pytest.mark.parametrize(
    ("reply", "finish", "expected"),
    [
        ("It ignores the order number.\n", "stop", "It ignores the order number."),
        ("It is vague. It also ignores the", "length", "It is vague."),
        ("It ignores the order num", "length", "It ignores the order …"),
        ("<think>hm", "length", ""),
        ("没有回答问题。而且", "length", "没有回答问题。"),
    ],
)
async def test_an_issue_is_short_and_ends(reply: str, finish: str, expected: str) -> None:
    judge = ScriptedJudge(answer=lambda request: said(reply, finish))
    assert await describe_issue(dialogue_of(4), 2, judge, TOKENS) == expected
    (request,) = judge.asked
    assert request.max_tokens <= 128
    assert shown_turns(request) == [1, 2]


async def test_no_description_is_the_empty_string() -> None:
    judge = ScriptedJudge(answer=lambda request: fault("server"))
    assert await describe_issue(dialogue_of(4), 2, judge, TOKENS) == ""
    judge = ScriptedJudge(limit=10)
    assert await describe_issue(dialogue_of(4), 4, judge, TOKENS) == ""
    assert shown_turns(judge.asked[-1]) == [4]
