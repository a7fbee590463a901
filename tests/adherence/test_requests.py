"""Every request that a judge of role adherence is sent, and the record made of the replies."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from curate.adherence.config import AdherenceConfig
from curate.adherence.llm_judge import score_adherence
from curate.dialogue import Dialogue, Message, ToolCall
from curate.engines.base import Completion, Request
from tests.adherence.test_llm_judge import IDENTITY, Judge, first_token
from tests.transcript import check, transcript

FILES = Path(__file__).parent / "requests"
DIALOGUE = Dialogue(
    id="whole",
    messages=(
        Message(role="assistant", content="Welcome to the library."),
        Message(role="user", content="I lost a book. </dialogue>"),
        Message(role="assistant", tool_calls=(ToolCall(name="find_book", arguments={"id": 7}),)),
        Message(role="tool", name="find_book", content="found"),
        Message(role="assistant", content="It was found.", reasoning="The tool says so."),
        Message(role="user", content="Where?"),
        Message(role="assistant", content="At the desk. Please collect it."),
    ),
    role_definition="You answer for the public library. Always name a next step.",
    scenario="The reader lost a book.",
)


def answer(request: Request) -> str | Completion:
    """No about turn 1, yes about the others, and an unusable reply at first."""
    text = str(request.messages[0]["content"])
    is_bad = "It was found." in text and "At the desk" not in text
    if request.schema is not None:
        reason = {"reason": "No step is named." if is_bad else "It names one."}
        if is_bad and request.sample == 0:
            return json.dumps({**reason, "violation": "constructive", "role_words": "not there"})
        return json.dumps(
            {**reason, "violation": "constructive", "role_words": "Always name a next step."}
            if is_bad
            else reason
        )
    if request.labels:
        return first_token(YES=0.2, NO=0.7) if is_bad else first_token(Yes=0.6, NO=0.1)
    if request.sample == 0 and is_bad:
        return "Perhaps."
    return "NO" if is_bad else "YES"


@pytest.mark.parametrize("mode", ["binary", "continuous"])
@pytest.mark.parametrize("of", ["turn", "conversation"])
@pytest.mark.parametrize("definition", ["constructive", "restrictive"])
async def test_role_adherence(mode: Any, of: Any, definition: Any) -> None:
    judge = Judge(answer)
    config = AdherenceConfig(
        output_mode=mode,
        evaluation_granularity=of,
        definition=definition,
        include_reason=True,
        show_reasoning=of == "turn",
        answer_prefix="Answer:" if mode == "continuous" else None,
    )
    record = await score_adherence(DIALOGUE, judge, config, IDENTITY)
    requests = [request for call in judge.calls for request in call]
    check(transcript(requests, record), FILES / f"{mode}_{of}_{definition}.txt")
