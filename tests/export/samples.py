"""Dialogues and pairs for the export tests: plain ones, and some with tool calls that differ in shape."""

from __future__ import annotations

from typing import Any

from curate.dialogue import Dialogue, Lineage, Message, ToolCall
from curate.records import PairCheck, PreferencePair

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
