"""Role adherence of one turn, asked about by itself."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence

import pytest

from curate.adherence.config import AdherenceConfig
from curate.adherence.llm_judge import score_adherence, score_role_of_turn
from curate.dialogue import Dialogue, Message
from curate.engines.base import Completion, Fault, Request
from curate.records import JudgeIdentity

CONTINUOUS = AdherenceConfig(output_mode="continuous")
DIALOGUE = Dialogue(
    id="d",
    messages=tuple(
        Message(role=role, content=f"{role} says {turn}.")
        for turn in (1, 2, 3)
        for role in ("user", "assistant")
    ),
    role_definition="A clerk.",
)


def yes(share: float) -> Completion:
    return Completion(first_token=(("YES", math.log(share)), ("NO", math.log(1 - share))))


def asked(replies: list[Completion], config: AdherenceConfig, turn: int = 2):
    requests: list[Request] = []

    async def ask(some: Sequence[Request]) -> list[Completion]:
        requests.extend(some)
        return [replies[len(requests) - 1]]

    return asyncio.run(score_role_of_turn(DIALOGUE, turn, ask, config)), requests


def test_one_question_that_is_the_stages_own() -> None:
    found, [request] = asked([yes(0.75)], CONTINUOUS)
    assert (found.turn, found.score, found.unscored) == (2, pytest.approx(0.75), None)
    stage: list[Request] = []

    async def ask(some: Sequence[Request]) -> list[Completion]:
        stage.extend(some)
        return [yes(0.5)] * len(some)

    identity = JudgeIdentity(engine="scripted", model="m")
    asyncio.run(score_adherence(DIALOGUE, ask, CONTINUOUS, identity))
    assert request.messages == stage[1].messages
    assert (request.labels, request.sample) == (stage[1].labels, stage[1].sample)
    assert request.purpose == "adherence.role"
    by_conversation = CONTINUOUS.model_copy(update={"evaluation_granularity": "conversation"})
    _, [again] = asked([yes(0.75)], by_conversation)
    assert again == request


def test_a_reply_that_cannot_be_read_is_asked_for_again_and_then_unscored() -> None:
    config = AdherenceConfig(output_mode="binary", retries=2)
    bad = Completion(text="Perhaps.")
    found, requests = asked([bad, Completion(text="NO")], config)
    assert (found.score, found.adherent) == (0.0, False)
    assert len({(str(request.messages), request.sample) for request in requests}) == 2
    found, requests = asked([bad] * 3, config)
    assert (found.score, found.unscored) == (None, "bad_reply")
    assert [request.sample for request in requests] == [0, 1, 2]


def test_a_fault_is_unscored_at_once() -> None:
    found, requests = asked([Completion(fault=Fault("timeout"), finish="error")], CONTINUOUS)
    assert (found.score, found.unscored, len(requests)) == (None, "engine_error", 1)


def test_there_must_be_such_a_turn() -> None:
    with pytest.raises(KeyError):
        asked([], CONTINUOUS, turn=9)
