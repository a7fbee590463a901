"""Every request that a judge is sent about a dialogue with all its parts, and the record made of the replies."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from curate.dialogue import Dialogue, Message, ToolCall
from curate.engines.base import Completion, Request
from curate.judging.config import RubricConfig
from curate.judging.factuality import FactualityConfig, score_factuality
from curate.judging.metrics import MetricsConfig, OwnMetric, score_metrics
from curate.judging.metrics.draft import draft_metric
from curate.judging.rubric import judge_dialogue
from curate.judging.turn_rescoring import describe_issue, score_turn
from tests.judging.judge import IDENTITY, ScriptedJudge, dialogue_of, said
from tests.judging.metrics.scripted import MetricJudge
from tests.transcript import check, transcript

FILES = Path(__file__).parent / "requests"


def whole() -> Dialogue:
    """A dialogue with everything that a prompt may show."""
    call = ToolCall(name="find_order", arguments={"id": 7}, id="c1")
    parameters = {"type": "object", "properties": {"id": {"type": "integer"}}}
    tool = {"type": "function", "function": {"name": "find_order", "parameters": parameters}}
    return Dialogue(
        id="whole",
        messages=(
            Message(role="system", content="You are the assistant of a shop."),
            Message(role="user", content="Where is order 7? And what is <dialogue>?"),
            Message(role="assistant", content="One moment.", tool_calls=(call,)),
            Message(role="tool", name="find_order", content="on its way", tool_call_id="c1"),
            Message(role="assistant", content="It is on its way.", reasoning="The tool says so."),
            Message(role="user", content="When will it be here?"),
            Message(role="assistant", content="On 3 May."),
        ),
        role_definition="A shop's assistant who gives no dates.",
        scenario="A customer asks for an order.",
        emphasis="Dates.",
        evidence=("Orders take two days.", "The shop is closed on Sundays."),
        expected_outcomes=("The customer knows where the order is.", "No date is promised."),
        expected_tools=(call, ToolCall(name="find_day", arguments={})),
        tools=(tool,),
    )


WEAK = {(2, "helpfulness"): 2, (None, "verdict"): "borderline", (None, "weakest_turn"): 2}


@pytest.mark.parametrize("mode", ["json", "tokens"])
async def test_the_rubric(mode: Any) -> None:
    judge = ScriptedJudge(WEAK)
    config = RubricConfig(mode=mode, text="all", paraphrases=2, show_reasoning=True)
    record = await judge_dialogue(whole(), judge, config, IDENTITY)
    check(transcript(judge.asked, record), FILES / f"rubric_{mode}.txt")


async def test_a_long_dialogue_in_windows() -> None:
    judge = ScriptedJudge(WEAK)
    config = RubricConfig(mode="json", text="off", max_turns=4, window_turns=4)
    record = await judge_dialogue(dialogue_of(8), judge, config, IDENTITY)
    check(transcript(judge.asked, record), FILES / "rubric_windows.txt")


async def test_a_reply_that_cannot_be_used_is_asked_again_with_the_reason() -> None:
    bad = [said("no"), said('{"turn_1": [9, 5, 5]}'), said("{}", finish="length")]

    def answer(request: Request) -> Completion | None:
        return bad.pop(0) if bad else None

    judge = ScriptedJudge({(None, "verdict"): "poor"}, answer=answer)
    config = RubricConfig(mode="json", text="off", on_mismatch="retry", retries=4)
    record = await judge_dialogue(dialogue_of(2), judge, config, IDENTITY)
    check(transcript(judge.asked, record), FILES / "rubric_retries.txt")


async def test_one_turn_by_itself() -> None:
    judge = ScriptedJudge()
    records = [
        await score_turn(whole(), 1, judge, RubricConfig(mode=mode), wording=1)
        for mode in ("json", "tokens")
    ]
    await describe_issue(whole(), 2, judge, RubricConfig(mode="json"))
    check(transcript(judge.asked, *records), FILES / "one_turn.txt")


@pytest.mark.parametrize("mode", ["json", "tokens"])
async def test_weighted_metrics(mode: Any) -> None:
    judge = MetricJudge({"tool_routing": 1, "no_dates": "fail", "response_delivery": 2})
    own = OwnMetric(
        name="no_dates",
        tier="process",
        scale="binary",
        asks="Does it give no date?",
        levels={"pass": "No date.", "fail": "A date."},
        weight=0.2,
        na="Nobody asks for a date.",
    )
    names = ("tool_routing", "parameter_extraction", "response_delivery", "no_dates")
    config = MetricsConfig(mode=mode, own=(own,), choose=names, show_reasoning=True)  # type: ignore[arg-type]
    record = await score_metrics(whole(), judge, config, IDENTITY)
    check(transcript(judge.asked, record), FILES / f"metrics_{mode}.txt")


async def test_a_drafted_metric() -> None:
    requests: list[Request] = []

    async def ask(sent: list[Request]) -> list[Completion]:
        requests.extend(sent)
        levels = {str(level): f"level {level}" for level in range(6)}
        form = {"name": "warmth", "tier": "process", "asks": "Is it warm?", "levels": levels}
        return [said("no" if len(requests) == 1 else json.dumps(form))]

    record = await draft_metric("Is the assistant   warm?", ask)  # type: ignore[arg-type]
    check(transcript(requests, record), FILES / "draft.txt")


async def test_facts() -> None:
    requests: list[Request] = []
    claim = {"words": "on its way", "label": "true", "evidence": "tool_result"}
    made_up = {**claim, "words": "not said"}

    async def ask(sent: list[Request]) -> list[Completion]:
        requests.extend(sent)
        claims = [made_up] if len(requests) == 1 else [claim] if len(requests) == 2 else []
        return [said(json.dumps({"claims": claims}))]

    record = await score_factuality(whole(), ask, FactualityConfig(part_words=50), IDENTITY)  # type: ignore[arg-type]
    check(transcript(requests, record), FILES / "factuality.txt")
