"""A scripted judge of metrics: scores by name, in both modes, and what it was asked."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from curate.dialogue import Dialogue, Message, ToolCall
from curate.engines.base import Completion, Request
from curate.judging.metrics import MetricsConfig, score_metrics
from curate.records import JudgeIdentity, MetricsScore, Unscored

IDENTITY = JudgeIdentity(engine="scripted", model="script")
LETTERS = {"pass": "P", "fail": "F", "n/a": "N"}


def question_of(request: Request) -> str:
    return request.question


@dataclass
class MetricJudge:
    """Every score is 5 (or pass) unless `scores` says otherwise; poor ones get a diagnosis that fits.

    `answer` may step in first; it is given the request and how many were asked before.
    """

    scores: dict[str, Any] = field(default_factory=dict)
    answer: Callable[[Request, int], Completion | None] = lambda *_: None
    asked: list[Request] = field(default_factory=list)

    async def __call__(self, requests: Sequence[Request]) -> list[Completion]:
        replies = []
        for request in requests:
            said = self.answer(request, len(self.asked))
            self.asked.append(request)
            replies.append(self._reply(request) if said is None else said)
        return replies

    def _reply(self, request: Request) -> Completion:
        if request.labels:
            found = re.search(
                r"metric (\w+) over|pass or fail (\w+)|of the scale of (\w+)", request.question
            )
            assert found is not None
            name = next(filter(None, found.groups()))
            value = self.scores.get(name, "pass" if "P" in request.labels else 5)
            return first_token({LETTERS.get(value, str(value)): 0.9, "the": 0.1})
        assert request.schema is not None
        return said(
            {name: self.entry(name, of) for name, of in request.schema["properties"].items()}
        )

    def entry(self, name: str, schema: Any) -> dict[str, Any]:
        binary = "pass" in json.dumps(schema)
        score = self.scores.get(name, "pass" if binary else 5)
        poor = score in (0, 1, 2, "fail")
        entry = {"failure_code": f"bad_{name}" if poor else None, "turns": [1] if poor else []}
        return ({"score": score} if "score" in schema["properties"] else {}) | entry


def said(value: Any) -> Completion:
    return Completion(text=json.dumps(value))


def first_token(shares: dict[str, float]) -> Completion:
    ranked = sorted(shares.items(), key=lambda pair: -pair[1])
    return Completion(
        text=ranked[0][0], first_token=tuple((token, math.log(share)) for token, share in ranked)
    )


def with_tools(**update: Any) -> Dialogue:
    """Two turns; in the first an order is looked up."""
    call = ToolCall(name="find_order", arguments={"id": 7}, id="c1")
    messages = (
        Message(role="user", content="Where is order 7?"),
        Message(role="assistant", tool_calls=(call,)),
        Message(role="tool", name="find_order", content="on its way", tool_call_id="c1"),
        Message(role="assistant", content="It is on its way."),
        Message(role="user", content="Thanks."),
        Message(role="assistant", content="You are welcome."),
    )
    tool = {
        "type": "function",
        "function": {"name": "find_order", "parameters": {"type": "object"}},
    }
    given = Dialogue(id="d", messages=messages, role_definition="A shop.", tools=(tool,))
    return given.model_copy(update=update)


def plain() -> Dialogue:
    messages = (Message(role="user", content="Hi"), Message(role="assistant", content="Hello!"))
    return Dialogue(id="p", messages=messages)


async def scored(
    dialogue: Dialogue, judge: MetricJudge, mode: str = "json", **config: Any
) -> MetricsScore:
    row = await outcome(dialogue, judge, mode, **config)
    assert isinstance(row, MetricsScore), row
    return row


async def outcome(
    dialogue: Dialogue, judge: MetricJudge, mode: str = "json", **config: Any
) -> MetricsScore | Unscored:
    return await score_metrics(dialogue, judge, MetricsConfig(mode=mode, **config), IDENTITY)
