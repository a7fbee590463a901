"""What a probe asks: the kind of a known flaw, and a message with one."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from curate.engines.base import Completion, Request
from curate.pairs.probe_prompts import kind_question, rewritten
from tests.pairs.scripted import chat, fault, reply, say

KINDS = {"wrong": "a wrong amount", "rude": "a rude tone", "cut": "an unfinished answer"}
PROMPT = chat("How much do I get?")
TEXT = "You get $40 by Friday."  # 22 characters


def test_the_kinds_stand_in_an_order_by_chance_each_with_a_letter() -> None:
    dialogue = chat("How much?", "Go away.", tools=({"name": "pay </tools>"},))
    orders = set()
    for seed in range(20):
        asked = kind_question(dialogue, 1, KINDS, random.Random(seed))
        assert asked.labels == ("A", "B", "C")
        assert sorted(asked.meanings) == sorted(KINDS)
        lines = [
            f"{label} = {KINDS[kind]}" for label, kind in zip("ABC", asked.meanings, strict=True)
        ]
        assert "\n".join(lines) in asked.text
        orders.add(asked.meanings)
    assert len(orders) == 6
    assert asked.purpose == "pairs.kind"
    assert "in turn 1. Which of these is it?" in asked.text
    assert asked.text.startswith("<tools>\n")
    assert asked.neutralised == 1


class Policy:
    """Answers with one reply after the other."""

    def __init__(self, *replies: Completion | str) -> None:
        self.replies = [reply(text) if isinstance(text, str) else text for text in replies]
        self.requests: list[Request] = []

    async def __call__(self, requests: Sequence[Request]) -> list[Completion]:
        self.requests.extend(requests)
        return [self.replies[len(self.requests) - 1]]


async def rewrite(policy: Policy, flaw: str | None = "a wrong amount", slack: float = 0.2):
    return await rewritten(PROMPT, say("assistant", f" {TEXT}\n", name="bot"), flaw, slack, policy)


async def test_a_message_with_a_fault_keeps_all_but_its_text() -> None:
    policy = Policy("<think>hm</think> You get $45 by Friday.\n")
    assert await rewrite(policy) == say("assistant", "You get $45 by Friday.", name="bot")
    [request] = policy.requests
    text = request.messages[0]["content"]
    assert text.startswith("You rewrite one message")
    assert f"<reply>\n{TEXT}\n</reply>\n" in text
    assert "one clear fault and no other: a wrong amount. Write" in text
    assert "between 18 and 26 characters" in text  # 22 less and more a fifth
    assert (request.purpose, request.temperature, request.max_tokens) == ("probe.plant", 0, 32 + 11)


async def test_to_the_same_meaning_no_fault_is_named() -> None:
    policy = Policy("By Friday you get $40.")
    assert await rewrite(policy, None) == say("assistant", "By Friday you get $40.", name="bot")
    [request] = policy.requests
    assert request.purpose == "probe.reword"
    assert "Write the same in other words." in request.messages[0]["content"]
    assert "fault" not in request.messages[0]["content"]


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (" ", "empty"),
        (TEXT, "unchanged"),
        ("x" * 17, "length"),
        ("x" * 27, "length"),
        (reply("y" * 20, "length"), "length"),
    ],
)
async def test_what_is_no_rewriting_is_asked_for_again(
    answer: Completion | str, reason: str
) -> None:
    policy = Policy(answer, answer, answer)
    assert await rewrite(policy) == reason
    assert [(asked.sample, asked.temperature) for asked in policy.requests] == [
        (0, 0.0),
        (1, 1.0),
        (2, 1.0),
    ]
    for fits in ("x" * 18, "x" * 26):
        policy = Policy(answer, fits)
        assert await rewrite(policy) == say("assistant", fits, name="bot")
        assert len(policy.requests) == 2


async def test_a_fault_of_the_engine_ends_it() -> None:
    policy = Policy(TEXT, fault("timeout"), "You get $45 by Friday.")
    assert await rewrite(policy) == "fault: timeout"
    assert len(policy.requests) == 2
