"""Reasons: asked for after the answers, on the same trunks, and quoted words checked against the role."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from curate.adherence.adherence_prompts import reason_schema, violation_kinds
from curate.adherence.answer_reading import passage, read_reason
from curate.adherence.config import AdherenceConfig
from curate.engines.base import Completion, Fault, Request
from curate.records import AdherenceReason, AdherenceScore
from tests.adherence.test_llm_judge import (
    THREE,
    Judge,
    dialogue,
    first_token,
    last_turn,
    scored,
    text_of,
)

WITH = AdherenceConfig(output_mode="binary", include_reason=True)
BOTH = [WITH, WITH.model_copy(update={"output_mode": "continuous"})]
WORDS = "Always name a next step."


def reply(**fields: Any) -> str:
    return json.dumps(fields)


def broken(words: str = WORDS, kind: str = "constructive") -> str:
    return reply(reason="No step is named.", violation=kind, role_words=words)


def judge(reason: Callable[[Request], str | Completion]) -> Judge:
    """Says no of turn 2 and yes of the others; `reason` answers what is asked after that."""

    def answer(request: Request) -> str | Completion:
        if request.schema is not None:
            return reason(request)
        yes = last_turn(request) != 2
        return (
            first_token(YES=0.9 if yes else 0.1, NO=0.1 if yes else 0.9)
            if request.labels
            else ("YES" if yes else "NO")
        )

    return Judge(answer)


def give(request: Request) -> str:
    return broken() if last_turn(request) == 2 else reply(reason="It helps.")


def reasons(record: AdherenceScore) -> list[AdherenceReason]:
    found = [turn.reason for turn in record.per_turn]
    assert all(reason is not None for reason in found)
    return [reason for reason in found if reason is not None]


@pytest.mark.parametrize("config", BOTH)
async def test_every_answer_gets_a_reason_and_a_violation_its_kind_and_words(
    config: AdherenceConfig,
) -> None:
    asked = judge(give)
    record = await scored(asked, config)
    assert [r.text for r in reasons(record)] == ["It helps.", "No step is named.", "It helps."]
    assert [(r.violation, r.role_words) for r in reasons(record)] == [
        (None, ""),
        ("constructive", WORDS),
        (None, ""),
    ]
    assert [r.fault for r in reasons(record)] == [None] * 3
    assert record.requests == 6


@pytest.mark.parametrize("config", BOTH)
async def test_a_reason_never_changes_a_score_or_the_question_for_it(
    config: AdherenceConfig,
) -> None:
    plain, asked = judge(give), judge(give)
    without = await scored(plain, config.model_copy(update={"include_reason": False}))
    record = await scored(asked, config)
    assert plain.calls[0] == asked.calls[0]
    assert [t.score for t in record.per_turn] == [t.score for t in without.per_turn]
    assert record.identity == without.identity


async def test_reasons_are_asked_in_one_call_on_the_trunks_of_the_answers_question_last() -> None:
    asked = judge(give)
    await scored(asked, WITH)
    answers, why = asked.calls
    assert [last_turn(request) for request in why] == [1, 2, 3]
    for question, request in zip(answers, why, strict=True):
        trunk, fence, _ = text_of(question).partition("</dialogue>\n")
        assert text_of(request).startswith(trunk + fence)
    assert [request.purpose for request in why] == ["adherence.reason"] * 3
    assert "does adhere to the role: your answer was YES" in text_of(why[0])
    assert "does not adhere to the role: your answer was NO" in text_of(why[1])
    assert (
        text_of(why[1])
        .rstrip()
        .endswith('{"violation": "...", "role_words": "...", "reason": "..."}')
    )
    assert why[1].schema == reason_schema(WITH, adherent=False)


async def test_no_reason_is_asked_for_where_there_is_no_answer() -> None:
    config = WITH.model_copy(
        update={"output_mode": "continuous", "on_missing": "half", "min_coverage": 0.5}
    )
    asked = Judge(
        lambda request: (
            first_token(Okay=1.0)
            if request.labels and last_turn(request) == 2
            else first_token(YES=1.0)
            if request.labels
            else reply(reason="Fine.")
        )
    )
    record = await scored(asked, config)
    assert [turn.reason is None for turn in record.per_turn] == [False, True, False]
    assert record.per_turn[1].imputed


async def test_words_that_are_not_in_the_role_are_asked_for_again_and_then_recorded_as_missing() -> (
    None
):
    asked = judge(lambda r: broken("Be brief.") if last_turn(r) == 2 else reply(reason="Fine."))
    record = await scored(asked, WITH)
    assert [len(call) for call in asked.calls] == [3, 3, 1, 1]
    assert "role_words were no passage of the role definition" in text_of(asked.calls[2][0])
    assert "Be brief." not in text_of(asked.calls[2][0])
    # a kept reply never stands for a retry
    assert [call[0].sample for call in asked.calls[1:]] == [0, 1, 2]
    reason = reasons(record)[1]
    assert (reason.fault, reason.role_words, reason.violation) == (
        "not_in_role",
        "",
        "constructive",
    )
    assert reason.text == "No step is named."
    assert record.per_turn[1].score == 0


@pytest.mark.parametrize(
    ("given_reply", "fault", "calls"),
    [
        ("Because it is so.", "bad_reply", 4),
        (reply(reason="x", violation="rudeness", role_words=WORDS), "bad_reply", 4),
        (Completion(broken(), finish="length"), "reply_cut", 4),
        (Completion(finish="error", fault=Fault("server", "HTTP 500")), "engine_error", 2),
        (
            Completion(finish="error", fault=Fault("context_overflow", "long")),
            "context_overflow",
            2,
        ),
    ],
)
async def test_a_reason_that_cannot_be_had_leaves_the_score_and_says_why(
    given_reply: str | Completion, fault: str, calls: int
) -> None:
    asked = judge(lambda r: given_reply if last_turn(r) == 2 else reply(reason="Fine."))
    record = await scored(asked, WITH)
    assert len(asked.calls) == calls
    assert [r.fault for r in reasons(record)] == [None, fault, None]
    assert record.session_score == pytest.approx(2 / 3)


async def test_a_retry_that_succeeds_is_the_reason() -> None:
    asked = judge(
        lambda r: (
            (broken() if "could not be used" in text_of(r) else "Hm.")
            if last_turn(r) == 2
            else reply(reason="Fine.")
        )
    )
    assert reasons(await scored(asked, WITH))[1].role_words == WORDS


def test_thinking_and_fences_around_a_reason_are_passed_over() -> None:
    text = f'<think>{{"reason": "no"}}</think>\n```json\n{broken()}\n```'
    reason, problem = read_reason(Completion(text), WITH, adherent=False, role=f"{WORDS} Be kind.")
    assert (problem, reason.role_words) == (None, WORDS)


async def test_words_are_checked_against_the_role_as_the_judge_saw_it() -> None:
    of = dialogue("user", "assistant", role="Never say <|im_end|> to anyone.")
    asked = Judge(
        lambda r: broken("Never say < |im_end|> to anyone.", "other") if r.schema else "NO"
    )
    record = await scored(asked, WITH, of)
    assert reasons(record)[0].role_words == "Never say < |im_end|> to anyone."


def test_quotations_are_passages_of_whole_words() -> None:
    role = "You answer for the library.\nAlways name\n  a next step."
    assert passage("“Always name a next step.”", role) == "Always name\n  a next step."
    assert passage("  'next step' ", role) == "next step"
    for wrong in ("", "“”", "a", "ext step", "name the next step", "always nam"):
        assert passage(wrong, role) is None or wrong == "a"
    assert passage("a", "Alas") is None
    assert passage("always name", role) == "Always name"
    assert passage("you say 'sir' in", 'You say "sir" in every reply') == 'You say "sir" in'


@given(st.text(min_size=1, max_size=80), st.data())
def test_a_found_passage_always_stands_in_the_text(text: str, data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(text)))
    found = passage(text[start : data.draw(st.integers(start, len(text)))], text)
    assert found is None or found in text


def test_another_kind_may_break_no_words_of_the_role() -> None:
    other, _ = read_reason(Completion(broken("", "other")), WITH, adherent=False, role=WORDS)
    assert (other.fault, other.role_words) == (None, "")
    scope, problem = read_reason(Completion(broken("", "scope")), WITH, adherent=False, role=WORDS)
    assert scope.fault == "not_in_role"
    assert "no passage of the role definition" in (problem or "")


def test_leaving_out_a_demand_is_no_violation_under_the_restrictive_definition() -> None:
    assert violation_kinds("constructive") == ("scope", "tone", "constructive", "other")
    assert violation_kinds("restrictive") == ("scope", "tone", "other")
    config = WITH.model_copy(update={"definition": "restrictive"})
    kinds = reason_schema(config, adherent=False)["properties"]["violation"]["enum"]
    assert kinds == ["scope", "tone", "other"]
    reason, _ = read_reason(Completion(broken()), config, adherent=False, role=WORDS)
    assert reason.fault == "bad_reply"


async def test_the_bound_of_a_reason_is_its_own() -> None:
    asked = judge(give)
    await scored(asked, WITH.model_copy(update={"max_reason_tokens": 77}), THREE)
    assert {request.max_tokens for request in asked.calls[0]} == {16}
    assert {request.max_tokens for request in asked.calls[1]} == {77}
