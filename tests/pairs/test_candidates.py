"""Resamples at the exact prefix, and the minimal revision."""

from __future__ import annotations

import pytest

from curate.engines.base import Completion
from curate.pairs.candidates import resample, revise, split_thinking
from curate.pairs.config import ForkConfig
from curate.pairs.wire import to_wire
from tests.pairs.scripted import World, chat, fault, reply, say

CONFIG = ForkConfig(resamples=4, max_tokens=64)
TOOL = {"type": "function", "function": {"name": "find", "parameters": {}}}


async def test_resamples_are_siblings_that_differ_in_their_sample_only() -> None:
    prompt = (say("system", "Be brief."), say("user", "How much?"))
    world = World({}, resamples=["a", "b", "c", "d"])
    found = await resample(prompt, (TOOL,), world.asks(), CONFIG)
    assert [candidate.message.content for candidate in found if candidate.message] == list("abcd")
    assert [request.sample for request in world.policy_requests] == [0, 1, 2, 3]
    for request in world.policy_requests:
        assert request.messages == to_wire(prompt)
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
            Completion(tool_calls=({"id": "x"},), finish="tool_calls"),
        ],
    )
    found = await resample((say("user", "How much?"),), (), world.asks(), CONFIG)
    assert all(candidate.message is None for candidate in found)
    assert [candidate.refusal for candidate in found] == [
        "no_candidate", "no_candidate", "engine_error", "no_candidate",
    ]  # fmt: skip
    assert [candidate.detail for candidate in found] == [
        "cut by max_tokens", "empty reply", "server", "calls a tool instead of answering",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "answer", "thinking"),
    [
        (" It is 45. ", "It is 45.", None),
        ("<think>\nhm\n</think>\n\nIt is 45.", "It is 45.", "hm"),
        ("hm\n</think>\nIt is 45.", "It is 45.", "hm"),
        ("<think>never ends", "", "never ends"),
        ("Use <think> and </think> tags.", "Use <think> and </think> tags.", None),
    ],
)
def test_thinking_is_parsed_off(text: str, answer: str, thinking: str | None) -> None:
    assert split_thinking(text) == (answer, thinking)


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
    assert found.refusal == "no_candidate"
    assert not world.reviser_requests
