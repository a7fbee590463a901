"""A scripted judge: answers by what is asked, in both scoring modes, and records every request."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from curate.dialogue import Dialogue, Message
from curate.engines.base import Completion, Fault, FaultKind, Request
from curate.records import (
    ConversationLevel,
    ConversationScore,
    JudgeIdentity,
    RubricScores,
    TurnScores,
)

IDENTITY = JudgeIdentity(engine="scripted", model="script", mode="json")
CLOSE = "</dialogue>\n"

Answer = Callable[[Request], Completion | None]


def prompt_of(request: Request) -> str:
    (message,) = request.messages
    return str(message["content"])


def question_of(request: Request) -> str:
    return prompt_of(request).split(CLOSE)[-1]


def shown_turns(request: Request) -> list[int]:
    body = prompt_of(request).split("<dialogue>\n")[-1].split(CLOSE)[0]
    return sorted({int(number) for number in re.findall(r"^\[(\d+)\.", body, re.MULTILINE)})


def said(text: str, finish: str = "stop") -> Completion:
    return Completion(text=text, finish=finish)  # type: ignore[arg-type]


def fault(kind: FaultKind) -> Completion:
    return Completion(finish="error", fault=Fault(kind, "scripted"))


def mass(shares: Mapping[str, float]) -> Completion:
    ranked = sorted(shares.items(), key=lambda pair: -pair[1])
    return Completion(
        text=ranked[0][0],
        finish="length",
        first_token=tuple((token, math.log(share)) for token, share in ranked if share > 0),
    )


@dataclass
class ScriptedJudge:
    """Gives the scores it is told, everything else 5 (n/a for repair); `answer` may step in first.

    `scores` maps (turn, dimension) to an integer or a distribution over labels; conversation
    dimensions, `verdict` and `weakest` have turn None. `limit` is the longest prompt in characters.
    """

    scores: dict[tuple[int | None, str], Any] = field(default_factory=dict)
    answer: Answer | None = None
    limit: int | None = None
    asked: list[Request] = field(default_factory=list)
    calls: int = 0

    async def __call__(self, requests: Sequence[Request]) -> list[Completion]:
        self.calls += 1
        self.asked.extend(requests)
        return [self._reply(request) for request in requests]

    def purposes(self) -> list[str]:
        return [request.purpose for request in self.asked]

    def _reply(self, request: Request) -> Completion:
        if self.limit is not None and len(prompt_of(request)) > self.limit:
            return fault("context_overflow")
        special = self.answer(request) if self.answer else None
        if special is not None:
            return special
        if request.labels:
            return self._label(request)
        if request.purpose == "judge.text":
            return said('{"basis": "as scored, judge.text."}')
        if request.schema is not None:
            return said(json.dumps(self.form(request.schema["properties"])))
        if request.purpose == "judge.ledger":
            upto = re.search(r"including turn (\d+)", question_of(request))
            assert upto is not None
            return said(
                f"Facts the user gave:\n- noted up to turn {upto[1]}\nOpen requests:\n- none"
            )
        return said(f"basis: as scored, {request.purpose}.")

    def form(self, properties: Mapping[str, Any]) -> dict[str, Any]:
        """The wire form a schema asks for, with this judge's scores."""
        reply: dict[str, Any] = {}
        for key in properties:
            if key.startswith("turn_"):
                turn = int(key.removeprefix("turn_"))
                names = ("context_use", "helpfulness", "safety")
                reply[key] = [self.scores.get((turn, name), 5) for name in names]
            elif key == "weakest_turn":
                turn, turns = self.opinion(key), properties[key]["anyOf"][0]["enum"]
                reply[key] = turn if turn in turns else None
            else:
                reply[key] = self.opinion(key)
        return reply

    def opinion(self, name: str) -> Any:
        defaults = {"verdict": "excellent", "weakest_turn": None, "repair_handling": "n/a"}
        return self.scores.get((None, name), defaults.get(name, 5))

    def _label(self, request: Request) -> Completion:
        question = question_of(request)
        if request.purpose == "judge.verdict":
            names = {"excellent": "A", "good": "B", "borderline": "C", "poor": "D"}
            return self._mass(names[self.opinion("verdict")])
        if request.purpose == "judge.weakest":
            turn = self.opinion("weakest_turn")
            if turn is None:
                return self._mass("Z")
            choice = re.search(rf"(\w) = (?:turn )?{turn}\b", question)
            return self._mass(choice[1] if choice else "Z")
        name = re.search(
            "context_use|helpfulness|safety|coherence|task_completion|repair_handling", question
        )
        assert name is not None
        value = (
            self.scores.get((request.turns[0], name[0]), 5)
            if request.turns
            else self.opinion(name[0])
        )
        return self._mass("N" if value == "n/a" else value)

    @staticmethod
    def _mass(value: Any) -> Completion:
        if isinstance(value, Mapping):
            return mass(value)
        return mass({str(value): 0.9, "the": 0.1})


def dialogue_of(turns: int, *, words: int = 4, texts: Mapping[int, str] | None = None) -> Dialogue:
    """`turns` user-assistant turns; `texts` replaces single assistant texts."""
    messages: list[Message] = []
    for number in range(1, turns + 1):
        messages.append(Message(role="user", content=f"question {number} " + "word " * words))
        text = (texts or {}).get(number, f"answer {number} " + "word " * words)
        messages.append(Message(role="assistant", content=text))
    return Dialogue(id=f"d{turns}", messages=tuple(messages), scenario="Someone asks for help.")


def scored(turn: int, context_use: int = 5, helpfulness: int = 5, safety: int = 5) -> TurnScores:
    return TurnScores(
        turn=turn,
        scores=RubricScores(context_use=context_use, helpfulness=helpfulness, safety=safety),
    )


def level(coherence: int = 5, task: int | str = 5, repair: int | str = "n/a") -> ConversationLevel:
    return ConversationLevel(
        coherence=ConversationScore(score=coherence),
        task_completion=ConversationScore(score=task),  # type: ignore[arg-type]
        repair_handling=ConversationScore(score=repair),  # type: ignore[arg-type]
    )
