"""JSON mode: what is accepted, what is asked again, and that nothing is scored on failure."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from curate.dialogue import Dialogue, Message
from curate.engines.base import Completion, Request
from curate.judging.config import RubricConfig
from curate.judging.json_mode import question, read_reply, reply_schema
from curate.judging.rubric import judge_dialogue
from curate.judging.rubric_prompts import resolve_texts
from curate.judging.session import BadReplyError, Scope
from curate.records import Judgment, Unscored
from tests.judging.judge import (
    CLOSE,
    IDENTITY,
    ScriptedJudge,
    dialogue_of,
    fault,
    prompt_of,
    question_of,
    said,
)

JSON = RubricConfig(mode="json", text="off")
SCOPE = Scope((1, 2), True, True, (1, 2), is_final=True)
GOOD: dict[str, Any] = {
    "turn_1": [5, 4, 5],
    "turn_2": [5, 3, 5],
    "coherence": 4,
    "task_completion": "n/a",
    "repair_handling": 3,
    "verdict": "good",
    "weakest_turn": 2,
}
NAMED = {"context_use": 5, "helpfulness": 4, "safety": 5}

CARD_DIALOGUE = Dialogue(
    id="refund",
    scenario="User wants to refund a delayed order; assistant should locate the order, explain the "
    "delay, and process the refund the user asks for.",
    messages=(
        Message(
            role="user",
            content="My order was supposed to arrive yesterday and it hasn't shown up. Can you check?",
        ),
        Message(
            role="assistant", content="Sure! Could you share your order number or the email used?"
        ),
        Message(role="user", content="Order 4421-987, email alex@example.com."),
        Message(
            role="assistant",
            content="Thanks. The carrier reports a delay at the regional sort facility; arrival likely "
            "1-2 days from now. I can send a tracking link or arrange a refund if it doesn't arrive.",
        ),
        Message(role="user", content="I'm leaving town the day after tomorrow. Refund please."),
        Message(
            role="assistant",
            content="Understood — initiating the refund to your original payment method. Posts in 3-5 "
            "business days. I'll email confirmation to alex@example.com.",
        ),
    ),
)
CARD_REPLY: dict[str, Any] = {
    "per_turn": [
        {
            "turn": turn,
            "role": "assistant",
            "scores": {"context_use": 5, "helpfulness": 5, "safety": 5},
            "issues": [],
        }
        for turn in (1, 2, 3)
    ],
    "conversation_level": {
        "coherence": {"score": 5, "note": "Each turn references and advances from prior turn."},
        "task_completion": {"score": 5, "note": "Refund initiated as requested."},
        "repair_handling": {
            "score": "n/a",
            "note": "No repair situation arose; user's pivot from check to refund was a normal request "
            "progression, not a correction.",
        },
    },
    "verdict": "excellent",
    "decision_basis": "Linear, well-handled support exchange with clean context carryover at each turn "
    "and successful refund execution.",
    "weakest_turn": None,
}


async def test_the_cards_worked_example_is_excellent() -> None:
    judge = ScriptedJudge(answer=lambda request: said(json.dumps(CARD_REPLY)))
    judgment = await judge_dialogue(CARD_DIALOGUE, judge, JSON, IDENTITY)
    assert isinstance(judgment, Judgment)
    assert judgment.verdict == judgment.judge_verdict == "excellent"
    assert judgment.verdict_mismatch is False
    assert judgment.weakest_turn is None
    assert judgment.weakest_mismatch is False
    assert [turn.turn for turn in judgment.per_turn] == [1, 2, 3]
    assert judgment.conversation_level.task_completion.note == "Refund initiated as requested."
    assert judgment.decision_basis.startswith("Linear, well-handled")
    assert judgment.identity == IDENTITY
    assert judgment.requests == 1
    assert CARD_DIALOGUE.scenario is not None
    assert CARD_DIALOGUE.scenario in prompt_of(judge.asked[0])


def test_the_wire_form_is_read() -> None:
    reading = read_reply(json.dumps(GOOD), SCOPE)
    assert [turn.scores.helpfulness for turn in reading.turns] == [4, 3]
    assert reading.conversation is not None
    assert reading.conversation.task_completion.score == "n/a"
    assert (reading.verdict, reading.weakest, reading.has_weakest) == ("good", 2, True)
    jsonschema.validate(GOOD, reply_schema(SCOPE))


def test_scores_under_their_names_are_read_as_those_in_order() -> None:
    assert read_reply(altered(turn_1=NAMED), SCOPE) == read_reply(json.dumps(GOOD), SCOPE)


def test_no_name_of_a_dimension_is_written_once_a_turn() -> None:
    """The schema forces them, so they would cost tokens and say nothing."""
    turns = Scope(tuple(range(1, 11)))
    for name in ("context_use", "helpfulness", "safety"):
        assert name not in json.dumps(reply_schema(turns))
        assert question(turns, resolve_texts(JSON)).count(name) == 1


@pytest.mark.parametrize(
    "wrapped",
    [
        "```json\n{}\n```",
        "Here it is: {} Anything else?",
        "<think>{{not this}}</think>\n{}",
    ],
)
def test_prose_around_the_one_object_is_passed_over(wrapped: str) -> None:
    text = wrapped.replace("{{", "{").replace("}}", "}").replace("{}", json.dumps(GOOD))
    assert read_reply(text, SCOPE).verdict == "good"


def altered(**changes: Any) -> str:
    reply = {**GOOD, **changes}
    return json.dumps({key: value for key, value in reply.items() if value != "DROP"})


BAD = {
    "no object": "I would give it a five.",
    "cut": json.dumps(GOOD)[:-5],
    "list": "[1, 2]",
    "turn missing": altered(turn_2="DROP"),
    "turn invented": altered(turn_3=GOOD["turn_1"]),
    "turn twice": json.dumps(GOOD)[:-1] + ', "turn_1": ' + json.dumps(GOOD["turn_1"]) + "}",
    "score missing": altered(turn_1=[5, 5]),
    "score invented": altered(turn_1=[5, 5, 5, 5]),
    "zero": altered(turn_1=[5, 5, 0]),
    "named score missing": altered(turn_1={"context_use": 5, "helpfulness": 5}),
    "named score invented": altered(turn_1={**NAMED, "charm": 5}),
    "named zero": altered(turn_1={**NAMED, "safety": 0}),
    "six": altered(coherence=6),
    "float": altered(coherence=4.0),
    "true": altered(coherence=True),
    "string": altered(coherence="4"),
    "null": altered(task_completion=None),
    "coherence n/a": altered(coherence="n/a"),
    "verdict": altered(verdict="fine"),
    "verdict missing": altered(verdict="DROP"),
    "weakest not scored": altered(weakest_turn=7),
    "weakest not a number": altered(weakest_turn="2"),
    "weakest true": altered(weakest_turn=True),
    "weakest missing": altered(weakest_turn="DROP"),
    "unknown key": altered(comment="nice"),
    "deep": '{"turn_1":' + "[" * 100_000,
}


@pytest.mark.parametrize("reply", BAD.values(), ids=BAD.keys())
def test_a_bad_reply_is_refused_and_its_reason_named(reply: str) -> None:
    with pytest.raises(BadReplyError) as error:
        read_reply(reply, SCOPE)
    assert len(str(error.value)) > 10


def card(**changes: Any) -> str:
    return json.dumps({**CARD_REPLY, **changes})


@pytest.mark.parametrize(
    "reply",
    [
        card(per_turn=CARD_REPLY["per_turn"][:2]),
        card(per_turn=[*CARD_REPLY["per_turn"], CARD_REPLY["per_turn"][0]]),
        card(per_turn=[*CARD_REPLY["per_turn"], {**CARD_REPLY["per_turn"][0], "turn": 9}]),
        card(per_turn=[{**CARD_REPLY["per_turn"][0], "role": "user"}]),
        card(per_turn="none"),
        card(per_turn=[3]),
        card(conversation_level=None),
        card(weakest_turn=9),
        card(verdict=None),
    ],
)
def test_a_bad_reply_in_the_cards_form_is_refused(reply: str) -> None:
    scope = Scope((1, 2, 3), True, True, (1, 2, 3))
    with pytest.raises(BadReplyError):
        read_reply(reply, scope)


def test_the_cards_form_may_write_a_conversation_score_as_a_string() -> None:
    level = {**CARD_REPLY["conversation_level"], "task_completion": {"score": "4", "note": ""}}
    scope = Scope((1, 2, 3), True, True, (1, 2, 3))
    reading = read_reply(card(conversation_level=level), scope)
    assert reading.conversation is not None
    assert reading.conversation.task_completion.score == 4


@given(st.text(max_size=200) | st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(st.sampled_from([*GOOD, "per_turn", "conversation_level", "x"]), inner),
    max_leaves=12,
).map(json.dumps))  # fmt: skip
def test_whatever_comes_is_either_refused_or_complete(text: str) -> None:
    try:
        reading = read_reply(text, SCOPE)
    except BadReplyError:
        return
    assert [turn.turn for turn in reading.turns] == [1, 2]
    assert reading.conversation is not None


@given(st.lists(st.integers(1, 40), min_size=1, max_size=12, unique=True).map(sorted))
def test_schema_and_reader_agree(turns: list[int]) -> None:
    scope = Scope(tuple(turns), True, True, tuple(turns))
    schema = reply_schema(scope)
    reply = ScriptedJudge().form(schema["properties"])
    jsonschema.validate(reply, schema)
    assert len(read_reply(json.dumps(reply), scope).turns) == len(turns)
    text = question(scope, resolve_texts(JSON))
    assert all(f'"{key}": ' in text for key in schema["required"])


def test_no_words_are_asked_for_beside_scores() -> None:
    assert "string" not in json.dumps(reply_schema(Scope((1, 2))))


@pytest.mark.parametrize("reply", [BAD["turn missing"], BAD["turn invented"], BAD["cut"]])
async def test_a_bad_reply_is_asked_again_with_the_reason_then_unscored(reply: str) -> None:
    judge = ScriptedJudge(answer=lambda request: said(reply))
    result = await judge_dialogue(dialogue_of(2), judge, JSON, IDENTITY)
    assert isinstance(result, Unscored)
    assert (result.reason, result.requests) == ("bad_reply", 3)
    assert [request.sample for request in judge.asked] == [0, 1, 2]
    trunks = {prompt_of(request).split(CLOSE)[0] for request in judge.asked}
    assert len(trunks) == 1
    first, second, _ = (question_of(request) for request in judge.asked)
    assert second.startswith(first)
    assert "could not be used" in second


async def test_a_good_reply_after_a_bad_one_is_taken() -> None:
    judge = ScriptedJudge(answer=lambda request: said("no") if request.sample == 0 else None)
    result = await judge_dialogue(dialogue_of(2), judge, JSON, IDENTITY)
    assert isinstance(result, Judgment)
    assert result.requests == 2


async def test_a_reply_cut_by_its_limit_is_never_read() -> None:
    judge = ScriptedJudge(answer=lambda request: said(json.dumps(GOOD), "length"))
    result = await judge_dialogue(dialogue_of(2), judge, JSON, IDENTITY)
    assert isinstance(result, Unscored)
    assert (result.reason, result.requests) == ("reply_cut", 3)


@pytest.mark.parametrize("kind", ["timeout", "server", "auth", "refused", "bad_request"])
@pytest.mark.parametrize("mode", ["json", "tokens"])
async def test_an_engine_fault_is_unscored_with_its_kind(mode: str, kind: Any) -> None:
    config = RubricConfig.model_validate({"mode": mode, "text": "off"})
    judge = ScriptedJudge(answer=lambda request: fault(kind))
    result = await judge_dialogue(dialogue_of(3), judge, config, IDENTITY)
    assert isinstance(result, Unscored)
    assert result.reason == "engine_error"
    assert kind in result.detail


def says(verdict: str) -> ScriptedJudge:
    return ScriptedJudge(scores={(None, "verdict"): verdict, (2, "helpfulness"): 2})


async def test_mismatch_use_rule_records_both() -> None:
    result = await judge_dialogue(dialogue_of(3), says("excellent"), JSON, IDENTITY)
    assert isinstance(result, Judgment)
    assert (result.verdict, result.judge_verdict) == ("borderline", "excellent")
    assert result.verdict_mismatch is True
    assert (result.weakest_turn, result.judge_weakest_turn) == (2, None)
    assert result.weakest_mismatch is True
    assert result.requests == 1


async def test_mismatch_reject_is_unscored() -> None:
    config = JSON.model_copy(update={"on_mismatch": "reject"})
    result = await judge_dialogue(dialogue_of(3), says("excellent"), config, IDENTITY)
    assert isinstance(result, Unscored)
    assert result.reason == "rejected_mismatch"
    agreed = await judge_dialogue(dialogue_of(3), says("borderline"), config, IDENTITY)
    assert isinstance(agreed, Judgment)


@pytest.mark.parametrize("mode", ["json", "tokens"])
async def test_mismatch_retry_asks_again_then_uses_the_rule(mode: str) -> None:
    config = RubricConfig.model_validate({"mode": mode, "text": "off", "on_mismatch": "retry"})
    stubborn = says("excellent")
    result = await judge_dialogue(dialogue_of(3), stubborn, config, IDENTITY)
    assert isinstance(result, Judgment)
    assert (result.verdict, result.verdict_mismatch) == ("borderline", True)
    assert max(request.sample for request in stubborn.asked) == 2
    told = question_of(stubborn.asked[-1])
    assert 'last verdict was "excellent", but by the rule these scores give "borderline"' in told

    converted = says("excellent")

    def give_in(request: Request) -> Completion | None:
        if request.sample == 1:
            converted.scores[None, "verdict"] = "borderline"
        return None

    converted.answer = give_in
    result = await judge_dialogue(dialogue_of(3), converted, config, IDENTITY)
    assert isinstance(result, Judgment)
    assert result.verdict_mismatch is False
    assert max(request.sample for request in converted.asked) == 1


async def test_a_bad_reply_after_a_mismatch_does_not_lose_the_usable_one() -> None:
    judge = says("excellent")
    judge.answer = lambda request: said("no") if request.sample else None
    config = JSON.model_copy(update={"on_mismatch": "retry"})
    result = await judge_dialogue(dialogue_of(3), judge, config, IDENTITY)
    assert isinstance(result, Judgment)
    assert result.verdict_mismatch is True


WHOLE = Scope((1, 2, 3), True, True, (1, 2, 3))


@pytest.mark.parametrize(
    ("reply", "scope", "reason"),
    [
        (BAD["turn missing"], SCOPE, "turn_2 missing"),
        (BAD["turn invented"], SCOPE, "is not a turn to be scored"),
        (BAD["unknown key"], SCOPE, "was not asked for"),
        (BAD["score missing"], SCOPE, ", not an object"),
        (
            BAD["named score missing"],
            SCOPE,
            "turn 1 must have exactly context_use, helpfulness, safety",
        ),
        (BAD["zero"], SCOPE, "safety of turn 1 is 0, not an integer from 1 to 5"),
        (BAD["six"], SCOPE, "coherence is 6, not an integer from 1 to 5"),
        (BAD["verdict"], SCOPE, "not one of poor, borderline, good, excellent"),
        (BAD["weakest not scored"], SCOPE, "weakest_turn is 7, not a scored turn or null"),
        (altered(decision_basis=3), SCOPE, "decision_basis is not text"),
        (altered(notes={"coherence": 3}), SCOPE, "the note on coherence is not text"),
        (altered(notes=3), SCOPE, "notes is 3, not an object"),
        (altered(issues=3), SCOPE, "issues is 3, not an object"),
        (altered(issues={"turn_1": "late"}), SCOPE, "issues of turn 1 is not a list of texts"),
        (altered(issues={"turn_1": [3]}), SCOPE, "issues of turn 1 is not a list of texts"),
        (card(per_turn="none"), WHOLE, "per_turn is not a list"),
        (card(per_turn=[3]), WHOLE, "an entry of per_turn is 3, not an object"),
        (
            card(per_turn=[{**CARD_REPLY["per_turn"][0], "turn": True}]),
            WHOLE,
            "an entry of per_turn has turn true",
        ),
        (
            card(per_turn=[{**CARD_REPLY["per_turn"][0], "role": "user"}]),
            WHOLE,
            "an entry of per_turn has role",
        ),
        (card(per_turn=[CARD_REPLY["per_turn"][0]] * 2), WHOLE, "turn 1 is scored twice"),
        (card(conversation_level=None), WHOLE, "conversation_level is null, not an object"),
    ],
)
def test_what_is_wrong_with_a_reply_is_said_as_the_judge_is_told_it(
    reply: str, scope: Scope, reason: str
) -> None:
    with pytest.raises(BadReplyError) as error:
        read_reply(reply, scope)
    assert reason in str(error.value)


def test_words_beside_scores_are_read_where_a_judge_writes_them() -> None:
    issues = {"turn_1": [" late ", "", "rude"]}
    notes = {"coherence": "clear"}
    basis = " ".join(["word"] * 50)
    reading = read_reply(altered(issues=issues, notes=notes, decision_basis=basis), SCOPE)
    assert [turn.issues for turn in reading.turns] == [("late", "rude"), ()]
    assert reading.conversation is not None
    assert reading.conversation.coherence.note == "clear"
    assert reading.conversation.task_completion.note == ""
    assert len(reading.basis.split()) in (40, 41)  # an ellipsis may stand alone


def test_the_question_names_what_is_scored_and_shows_the_form_unquoted() -> None:
    texts = resolve_texts(JSON)
    one = question(Scope((2,)), texts)
    assert "what the assistant did in turn 2" in one
    assert '{"turn_2": [#, #, #]}' in one
    assert "the conversation as a whole" not in one
    both = question(SCOPE, texts)
    assert "what the assistant did in turns 1 and 2 and the conversation as a whole" in both
    assert '"coherence": #' in both
    assert '"verdict": "..."' in both
    assert '"weakest_turn": <turn or null>' in both
    assert "weakest_turn" not in question(Scope((1,), True, True), texts)


async def test_a_cut_reply_is_asked_again_for_the_object_alone() -> None:
    judge = ScriptedJudge(answer=lambda request: said("{", "length"))
    result = await judge_dialogue(dialogue_of(2), judge, JSON, IDENTITY)
    assert isinstance(result, Unscored)
    assert f"cut at {judge.asked[0].max_tokens} tokens" in result.detail
    assert "it was longer than allowed; write the object only" in question_of(judge.asked[1])
