"""Granularity `conversation`: one question about the whole dialogue, one session score, no turns."""

from __future__ import annotations

import json

import pytest

from curate.adherence.adherence_prompts import CONVERSATION_VERSION, PROMPT_VERSION, prompt_version
from curate.adherence.config import AdherenceConfig
from curate.engines.base import Completion, Fault, Request
from curate.errors import UsageError
from curate.recipe import parse_recipe
from tests.adherence.test_llm_judge import (
    ROLE,
    THREE,
    Judge,
    dialogue,
    first_token,
    scored,
    text_of,
    unscored,
)

WHOLE = AdherenceConfig(output_mode="binary", evaluation_granularity="conversation")
CONTINUOUS = WHOLE.model_copy(update={"output_mode": "continuous"})


async def test_one_call_shows_the_whole_dialogue_and_gives_one_score() -> None:
    judge = Judge(lambda request: "NO")
    record = await scored(judge, WHOLE)
    ((request,),) = judge.calls
    text = text_of(request)
    assert [word for word in range(6) if f"text {word} of" in text] == list(range(6))
    assert f"<role>\n{ROLE}\n</role>\n<dialogue>" in text
    assert "lost a book" not in text
    assert text.startswith("You are an evaluation assistant.")
    assert "Answer ONLY with YES (adherent) or NO (non-adherent)." in text
    assert text.endswith("text 5 of assistant")
    assert (record.session_score, record.adherent, record.per_turn) == (0, False, ())
    assert record.conversation is not None
    assert (record.evaluation_granularity, record.requests) == ("conversation", 1)
    assert record.trend is record.turns_in_role is None
    assert record.interval_method == "wilson"
    assert record.interval[1] > 0.7  # one answer says little


async def test_what_the_user_says_last_is_not_what_the_prompt_ends_with() -> None:
    judge = Judge(lambda request: "YES")
    await scored(judge, WHOLE, dialogue("user", "assistant", "user"))
    assert text_of(judge.calls[0][0]).endswith("text 1 of assistant")


async def test_the_definition_chooses_the_prompt() -> None:
    judge = Judge(lambda request: "YES")
    await scored(judge, WHOLE.model_copy(update={"definition": "restrictive"}))
    assert "leaving out what the role asks for is no violation" in text_of(judge.calls[0][0])


async def test_continuous_gives_the_probability_and_its_coverage() -> None:
    record = await scored(Judge(lambda request: first_token(YES=0.3, NO=0.1, Okay=0.6)), CONTINUOUS)
    assert record.session_score == pytest.approx(0.75)
    assert record.conversation is not None
    assert record.conversation.coverage == pytest.approx(0.4)
    assert (record.interval, record.interval_method) == ((0.0, 1.0), "none (one answer)")


async def test_strict_mode_takes_the_threshold_of_a_turn_and_else_that_of_the_session() -> None:
    def judge() -> Judge:
        return Judge(lambda request: first_token(YES=0.6, NO=0.4))

    config = CONTINUOUS.model_copy(update={"threshold": 0.5, "turn_threshold": 0.7})
    assert (await scored(judge(), config)).adherent
    assert not (await scored(judge(), config.model_copy(update={"strict_mode": True}))).adherent


async def test_bad_replies_are_asked_again_and_faults_are_never_scores() -> None:
    judge = Judge(
        lambda request: "YES" if "could not be read" in text_of(request) else "It depends."
    )
    assert (await scored(judge, WHOLE)).requests == 2
    bad = await unscored(Judge(lambda request: "Hm."), WHOLE)
    assert (bad.reason, bad.requests) == ("bad_reply", 3)
    assert "conversation" in bad.detail
    fault = Completion(finish="error", fault=Fault("context_overflow", "too long"))
    assert (await unscored(Judge(lambda request: fault), WHOLE)).reason == "context_overflow"
    low = await unscored(Judge(lambda request: first_token(Okay=1.0)), CONTINUOUS)
    assert low.reason == "low_coverage"


async def test_half_is_marked_as_given_for_want_of_evidence() -> None:
    config = CONTINUOUS.model_copy(update={"on_missing": "half"})
    record = await scored(Judge(lambda request: first_token(Okay=1.0)), config)
    assert record.session_score == 0.5
    assert record.conversation is not None
    assert record.conversation.imputed


async def test_its_reason_is_about_the_conversation() -> None:
    def answer(request: Request) -> str:
        if request.schema is None:
            return "NO"
        return json.dumps(
            {"reason": "No step.", "violation": "constructive", "role_words": "a next step"}
        )

    judge = Judge(answer)
    record = await scored(judge, WHOLE.model_copy(update={"include_reason": True}), THREE)
    assert record.conversation is not None
    assert record.conversation.reason is not None
    assert record.conversation.reason.role_words == "a next step"
    assert "The assistant's responses do not adhere" in text_of(judge.calls[1][0])
    assert record.requests == 2


async def test_an_empty_session_and_a_missing_role_are_errors_here_too() -> None:
    judge = Judge(lambda request: "YES")
    assert (await unscored(judge, WHOLE, dialogue("user"))).reason == "no_assistant_turn"
    nobody = dialogue("user", "assistant", role=None)
    assert (await unscored(judge, WHOLE, nobody)).reason == "missing_role"
    assert judge.calls == []


@pytest.mark.parametrize(
    ("section", "named"),
    [
        ({"weights": [1, 2]}, "weights"),
        ({"min_scored_share": 0.5}, "min_scored_share"),
        ({"scoring_method": "rouge"}, "rouge"),
    ],
)
def test_a_recipe_that_asks_for_scores_of_turns_as_well_is_refused(
    section: dict[str, object], named: str
) -> None:
    adherence = {"evaluation_granularity": "conversation"} | section
    with pytest.raises(UsageError, match=named):
        parse_recipe({"name": "x", "source": {"path": "x.jsonl"}, "adherence": adherence})


def test_a_method_that_asks_nobody_gives_no_reasons() -> None:
    with pytest.raises(ValueError, match="include_reason needs a judge"):
        AdherenceConfig(scoring_method="rouge", include_reason=True)


def test_the_identity_tells_both_questions_apart() -> None:
    assert prompt_version(AdherenceConfig()) == PROMPT_VERSION
    assert prompt_version(WHOLE) == CONVERSATION_VERSION != PROMPT_VERSION
