"""Dialogues and pairs for the export tests: plain ones, and some with tool calls that differ in shape."""

from __future__ import annotations

from typing import Any

from curate.dialogue import Dialogue, Lineage, Message, ToolCall
from curate.records import (
    AdherenceScore,
    AdherenceTurn,
    ConversationLevel,
    ConversationScore,
    JudgeIdentity,
    Judgment,
    PairCheck,
    PreferencePair,
    RubricScores,
    TurnScores,
)

USER = Message(role="user", content="Where is parcel 81?")
GOOD = Message(role="assistant", content="It left the depot at nine and arrives today.")
BAD = Message(role="assistant", content="No idea.")


def tool(name: str, **properties: Any) -> dict[str, Any]:
    parameters = {"type": "object", "properties": properties, "required": list(properties)}
    return {"type": "function", "function": {"name": name, "parameters": parameters}}


TRACK = tool("track", parcel={"type": "integer"})
RENEW = tool("renew", book={"type": "string", "default": "1"}, weeks={"type": "integer"})


def dialogue(name: str, *messages: Message, **fields: Any) -> Dialogue:
    lineage = Lineage(source="sample", file="a.jsonl", rows=(3, 4), part="chosen")
    return Dialogue(id=name, messages=messages or (USER, GOOD), lineage=lineage, **fields)


def call(name: str, arguments: dict[str, Any] | str, content: str = "") -> Message:
    calls = (ToolCall(name=name, arguments=arguments, id="call_1"),)
    return Message(role="assistant", content=content, tool_calls=calls)


def result(content: str) -> Message:
    return Message(role="tool", content=content, tool_call_id="call_1")


def tool_dialogue(name: str = "tracked") -> Dialogue:
    messages = (USER, call("track", {"parcel": 81}), result('{"at": "depot"}'), GOOD)
    return dialogue(name, *messages, tools=(TRACK,))


def renew_dialogue() -> Dialogue:
    asked = Message(role="user", content="Keep my book two more weeks.")
    messages = (asked, call("renew", {"book": "1", "weeks": 2}), result("true"), GOOD)
    return dialogue("renewed", *messages, tools=(RENEW,))


def pair(name: str = "p", **fields: Any) -> PreferencePair:
    given: dict[str, Any] = {
        "pair_id": name,
        "dialogue_id": f"of-{name}",
        "content_hash": "0" * 32,
        "source": "revision",
        "basis": "judge",
        "turn": 2,
        "prompt": (USER,),
        "chosen": GOOD,
        "rejected": BAD,
        "issue": "gives up at once",
        "policy": "scripted:policy",
        "judge": "scripted:judge",
        "check": PairCheck(margin=1.5, noise=0.2, token_ratio=1.1),
        "lineage": Lineage(source="sample", file="a.jsonl", rows=(7,)),
    }
    return PreferencePair(**(given | fields))


def tool_pair(name: str = "with-tools") -> PreferencePair:
    prompt = (USER, call("track", {"parcel": 81}), result('{"at": "depot"}'))
    return pair(name, prompt=prompt, tools=(TRACK,))


def judged(*scores: tuple[int, int, int], **fields: Any) -> Judgment:
    """A judgment with (context_use, helpfulness, safety) of the turns from 1 on."""
    good = ConversationScore(score=4)
    given: dict[str, Any] = {
        "dialogue_id": "d",
        "content_hash": "0" * 32,
        "identity": JudgeIdentity(engine="scripted", model="judge"),
        "per_turn": tuple(
            TurnScores(
                turn=number,
                scores=RubricScores(context_use=context, helpfulness=helpful, safety=safe),
            )
            for number, (context, helpful, safe) in enumerate(scores, start=1)
        ),
        "conversation_level": ConversationLevel(
            coherence=good, task_completion=good, repair_handling=good
        ),
        "verdict": "borderline",
        "weakest_turn": None,
    }
    return Judgment(**(given | fields))


def adherence(*turns: bool | None, **fields: Any) -> AdherenceScore:
    """Role adherence of the turns from 1 on; None is a turn without a score."""
    given: dict[str, Any] = {
        "dialogue_id": "d",
        "content_hash": "0" * 32,
        "identity": JudgeIdentity(engine="scripted", model="judge"),
        "scoring_method": "llm_judge",
        "output_mode": "binary",
        "evaluation_granularity": "turn",
        "definition": "constructive",
        "per_turn": tuple(
            AdherenceTurn(turn=number, adherent=said) for number, said in enumerate(turns, start=1)
        ),
        "session_score": 0.5,
        "interval": (0.0, 1.0),
        "interval_method": "wilson",
        "adherent": True,
    }
    return AdherenceScore(**(given | fields))


def mixed_dialogue() -> Dialogue:
    """Three turns: a bad answer; a call, its result and a good answer; a bad reply."""
    thanks = Message(role="user", content="Thanks!")
    return dialogue(
        "mixed",
        USER,
        BAD,
        Message(role="user", content="Then look it up."),
        call("track", {"parcel": 81}),
        result('{"at": "depot"}'),
        GOOD,
        thanks,
        BAD,
        tools=(TRACK,),
    )
