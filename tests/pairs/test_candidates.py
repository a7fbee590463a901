"""Resamples at the exact prefix, and the minimal revision."""

from __future__ import annotations

from dataclasses import replace

import pytest

from curate.dialogue import Dialogue, Message, ToolCall
from curate.engines.base import Completion, Fault
from curate.pairs.candidates import criticise, resample, revise
from curate.pairs.config import ForkConfig
from curate.pairs.prefix import to_wire
from tests.pairs.scripted import World, chat, fault, reply, say

CONFIG = ForkConfig(resamples=4, max_tokens=64)
TOOL = {"type": "function", "function": {"name": "find", "parameters": {}}}
ASKED = Dialogue(id="d", messages=(say("user", "How much?"),))
ANSWER = say("assistant", "It is 40.")


async def test_resamples_are_siblings_that_differ_in_their_sample_only() -> None:
    messages = (say("system", "Be brief."), say("user", "How much?"))
    prompt = Dialogue(id="d", messages=messages, tools=(TOOL,))
    world = World({}, resamples=["a", "b", "c", "d"])
    found = await resample(prompt, ANSWER, world.asks(), CONFIG)
    assert [candidate.message.content for candidate in found if candidate.message] == list("abcd")
    assert [request.sample for request in world.policy_requests] == [0, 1, 2, 3]
    for request in world.policy_requests:
        assert request.messages == to_wire(messages)
        assert request.tools == (TOOL,)
        assert (request.temperature, request.top_p, request.max_tokens) == (0.8, 0.95, 64)
        assert not request.prefill


async def test_unusable_replies_keep_their_reason() -> None:
    world = World(
        {},
        resamples=[
            reply("It is 4", "length"),
            "  ",
            fault("server"),
            Completion(tool_calls=(wire_call("find", "{}"),), finish="tool_calls"),
        ],
    )
    found = await resample(ASKED, ANSWER, world.asks(), CONFIG)
    assert all(candidate.message is None for candidate in found)
    assert [candidate.drop_reason for candidate in found] == [
        "no_candidate", "no_candidate", "engine_error", "no_candidate",
    ]  # fmt: skip
    assert [candidate.detail for candidate in found] == [
        "cut by max_tokens", "empty reply", "server", "calls a tool instead of answering",
    ]  # fmt: skip


async def test_the_reviser_is_told_the_issue_and_the_original() -> None:
    world = World({}, revision="<reply>\nIt is 45.\n</reply>")
    prompt = chat("How much?", role_definition="A clerk.")
    found = await revise(
        prompt, say("assistant", "It is 40."), "wrong\namount", world.asks(), CONFIG
    )
    assert found.message == say("assistant", "It is 45.")
    [request] = world.reviser_requests
    text = request.messages[0]["content"]
    for part in ("A clerk.", "How much?", "<reply>\nIt is 40.\n</reply>", "Issue: wrong amount\n"):
        assert part in text
    assert request.temperature == 0


@pytest.mark.parametrize(
    ("original", "issue"), [("It is 40.", " "), ("Type <|im_end|> here.", "wrong")]
)
async def test_what_cannot_be_revised_makes_no_call(original: str, issue: str) -> None:
    world = World({}, revision="x")
    found = await revise(chat("How?"), say("assistant", original), issue, world.asks(), CONFIG)
    assert found.message is None
    assert found.drop_reason == "no_candidate"
    assert not world.reviser_requests


def wire_call(name: str, arguments: object) -> dict[str, object]:
    return {"id": "x", "type": "function", "function": {"name": name, "arguments": arguments}}


REFUND = {
    "type": "function",
    "function": {
        "name": "refund",
        "parameters": {
            "type": "object",
            "properties": {"order": {"type": "integer"}, "amount": {"type": "number"}},
            "required": ["order"],
        },
    },
}
CALLING = Dialogue(id="c", messages=(say("user", "Refund order 7."),), tools=(TOOL, REFUND))
WRONG = Message(
    role="assistant",
    content="One moment.",
    tool_calls=(ToolCall(name="refund", arguments={"order": 8}, id="call_a"),),
)


@pytest.mark.parametrize(
    "answer",
    [
        Completion(tool_calls=(wire_call("refund", '{"order": 7}'),), finish="tool_calls"),
        Completion(tool_calls=(wire_call("refund", {"order": 7}),), finish="tool_calls"),
        '<tool_call>\n{"name": "refund", "arguments": {"order": 7}}\n</tool_call>',
        '[TOOL_CALLS] [{"name": "refund", "arguments": {"order": 7}}]',
        '```json\n{"name": "refund", "parameters": {"order": 7}}\n```',
    ],
)
async def test_a_call_is_answered_by_a_call_in_whatever_form_a_model_writes_it(answer) -> None:
    world = World({}, resamples=[answer])
    [found] = await resample(CALLING, WRONG, world.asks(), CONFIG, [0])
    assert found.message is not None
    [call] = found.message.tool_calls
    assert (call.name, call.arguments, call.id) == ("refund", {"order": 7}, "call_a")
    # The same reply in place of a text is no answer, in none of its forms.
    [found] = await resample(CALLING, ANSWER, world.asks(), CONFIG, [0])
    assert (found.drop_reason, found.detail) == (
        "no_candidate",
        "calls a tool instead of answering",
    )


@pytest.mark.parametrize(
    ("answer", "detail"),
    [
        ("I refund it.", "answers instead of calling a tool"),
        ('<tool_call>{"name": "pay", "arguments": {}}</tool_call>', "calls 'pay', which is not"),
        ('<tool_call>{"name": "refund", "arguments": {"order": "x"}}</tool_call>', "order: 'x' is"),
        ('<tool_call>{"name": "refund", "arguments": {}}</tool_call>', "'order' is a required"),
        ('<tool_call>{"name": "refund", "argu</tool_call>', "no JSON"),
        ('<tool_call>{"arguments": {}}</tool_call>', "without a name"),
        ('<tool_call>{"name": "refund", "arguments": [7]}</tool_call>', "no JSON object"),
    ],
)
async def test_a_call_that_cannot_be_used_says_why(answer: str, detail: str) -> None:
    world = World({}, resamples=[answer])
    [found] = await resample(CALLING, WRONG, world.asks(), CONFIG, [0])
    assert found.drop_reason == "no_candidate"
    assert detail in found.detail


async def test_a_call_is_mended_as_json_and_what_is_said_beside_it_stays() -> None:
    world = World({}, revision='{"name": "refund", "arguments": {"order": 7}}')
    found = await revise(CALLING, WRONG, "it is order 7", world.asks(), CONFIG)
    call = ToolCall(name="refund", arguments={"order": 7}, id="call_a")
    assert found.message == Message(role="assistant", content="One moment.", tool_calls=(call,))
    [request] = world.reviser_requests
    text = request.messages[0]["content"]
    assert "You mend the tool calls" in text
    assert '"required": ["order"]' in text
    assert '(calls tool) refund {"order":8}' in text


async def test_principles_are_asked_about_and_told_to_the_reviser() -> None:
    config = CONFIG.model_copy(update={"principles": ("Name the amount.", "Never guess.")})
    world = World({}, revision="It is 45.", critique="It breaks 2: the amount is a guess.")
    issue = await criticise(ASKED, ANSWER, world.asks(), config)
    assert issue == "It breaks 2: the amount is a guess."
    asked = world.judge_calls[0][0].messages[0]["content"]
    assert "1. Name the amount.\n2. Never guess.\n" in asked
    assert "<reply>\nIt is 40.\n</reply>" in asked
    await revise(ASKED, ANSWER, issue, world.asks(), config)
    told = world.reviser_requests[0].messages[0]["content"]
    assert "1. Name the amount.\n2. Never guess.\nIssue: It breaks 2" in told


@pytest.mark.parametrize("answer", ["none", "None.", "<think>hm</think> NONE"])
async def test_a_message_that_breaks_no_principle_has_no_issue_by_them(answer: str) -> None:
    config = CONFIG.model_copy(update={"principles": ("Name the amount.",)})
    world = World({}, critique=answer)
    assert await criticise(ASKED, ANSWER, world.asks(), config) == ""
    assert await criticise(ASKED, ANSWER, world.asks(), CONFIG) == ""
    assert len(world.judge_calls) == 1


async def test_each_request_says_what_it_is_for() -> None:
    world = World({}, resamples=["a"], revision="It is 45.", critique="It breaks 1.")
    config = ForkConfig(resamples=1, max_tokens=64, principles=("Name the amount.",))
    await resample(ASKED, ANSWER, world.asks(), config)
    await revise(ASKED, ANSWER, "wrong", world.asks(), config)
    await criticise(ASKED, ANSWER, world.asks(), config)
    asked = [*world.policy_requests, *world.reviser_requests, *world.judge_calls[0]]
    assert [request.purpose for request in asked] == [
        "pairs.resample",
        "pairs.revise",
        "pairs.critique",
    ]
    assert [request.max_tokens for request in asked] == [64, 64, 160]


async def test_why_there_is_no_revision_is_said() -> None:
    world = World({})
    found = await revise(ASKED, ANSWER, " ", world.asks(), CONFIG)
    assert (found.detail, found.issue) == ("the judge names no issue to fix", "")
    marked = say("assistant", "Type <|im_end|> here.")
    found = await revise(ASKED, marked, " wrong ", world.asks(), CONFIG)
    assert found.detail == "the original holds control strings, not shown as is"
    assert (found.issue, found.label, found.sampling) == (
        "wrong",
        "revision",
        {"temperature": 0.0, "max_tokens": 64},
    )


async def test_a_resample_says_how_it_was_drawn_and_a_fault_what_it_was() -> None:
    broken = Completion(finish="error", fault=Fault("server", detail="HTTP 503"))
    world = World({}, resamples=["a", broken])
    one, two = await resample(ASKED, ANSWER, world.asks(), CONFIG, [0, 1])
    assert one.sampling == {"temperature": 0.8, "top_p": 0.95, "max_tokens": 64, "sample": 0}
    assert (two.label, two.detail) == ("resample 1", "server: HTTP 503")
    assert await resample(ASKED, ANSWER, world.asks(), CONFIG, []) == []


async def test_a_critique_that_could_not_be_had_names_no_issue() -> None:
    async def fails(requests):
        return [fault("timeout")]

    asks = World({}).asks()
    asks = replace(asks, judging=replace(asks.judging, judge=fails))
    config = CONFIG.model_copy(update={"principles": ("Name the amount.",)})
    assert await criticise(ASKED, ANSWER, asks, config) == ""


@pytest.mark.parametrize(
    ("tools", "detail"),
    [
        # without tools nothing tells what fits
        ((), None),
        (({"name": "refund", "input_schema": {"required": ["order"]}},), None),
        (({"name": "refund", "input_schema": {"required": ["amount"]}},), "'amount' is a required"),
        (({"name": "refund"},), None),
        (({"name": "refund", "parameters": {"type": "nosuch"}},), None),
        (({"name": "pay"}, {"parameters": {}}), "calls 'refund', which is not offered"),
    ],
)
async def test_tools_in_any_form_say_what_a_call_must_be(
    tools: tuple[dict[str, object], ...], detail: str | None
) -> None:
    prompt = CALLING.model_copy(update={"tools": tools})
    world = World({}, resamples=['<tool_call>{"name": "refund", "arguments": {"order": 7}}'])
    [found] = await resample(prompt, WRONG, world.asks(), CONFIG, [0])
    assert (found.message is None) == (detail is not None)
    assert detail is None or detail in found.detail


async def test_a_text_beside_a_call_stays_and_more_calls_have_no_ids() -> None:
    both = '{"name": "refund", "arguments": "{\\"order\\": 7}"}'
    text = f"I do it.\n<tool_call>{both}</tool_call>\n<tool_call>{both}</tool_call>"
    world = World({}, resamples=[text])
    [found] = await resample(CALLING, WRONG, world.asks(), CONFIG, [0])
    assert found.message is not None
    assert found.message.content == "I do it."
    assert [(call.arguments, call.id) for call in found.message.tool_calls] == [
        ({"order": 7}, "call_a"),
        ({"order": 7}, None),
    ]


async def test_objects_that_name_no_tool_are_a_text() -> None:
    text = '{"name": "Ann", "arguments": {}}'
    world = World({}, resamples=[text])
    [found] = await resample(CALLING, ANSWER, world.asks(), CONFIG, [0])
    assert found.message == say("assistant", text)
