"""Every request that a fork sends to judge, policy and reviser, and the pairs made of the replies."""

from __future__ import annotations

from pathlib import Path

import pytest

from curate.dialogue import Dialogue, ToolCall
from curate.pairs.config import ForkConfig
from curate.pairs.fork import fork_dialogue
from tests.pairs.scripted import FINE, WEAK, World, judged, reply, say
from tests.transcript import check, transcript

FILES = Path(__file__).parent / "requests"
TOOL = {
    "type": "function",
    "function": {
        "name": "find_order",
        "parameters": {"type": "object", "properties": {"id": {"type": "integer"}}},
    },
}
DIALOGUE = Dialogue(
    id="d1",
    messages=(
        say("user", "Where is order 7?"),
        say("assistant", tool_calls=[ToolCall(name="find_order", arguments={"id": 7}, id="c1")]),
        say("tool", "on its way", name="find_order", tool_call_id="c1"),
        say("assistant", "It was delivered to 12 Long Road."),
        say("user", "When?"),
        say("assistant", "I do not know."),
    ),
    role_definition="A shop's assistant.",
    scenario="A customer asks for an order.",
    tools=(TOOL,),
)
GOOD = "It is on its way; 3 days are left."
REVISED = "It is on its way."


def world() -> World:
    return World(
        {"It was delivered to 12 Long Road.": WEAK, GOOD: FINE, REVISED: FINE},
        resamples=[GOOD, "It is lost.", reply("cut", finish="length")],
        revision=f"<reply>\n{REVISED}\n</reply>",
        prefer=lambda a, b: 1.5 if "way" in a and "way" not in b else -1.0,
        critique="It makes up an address.",
    )


async def forked(world: World, name: str, **options: object) -> None:
    judgment = judged(DIALOGUE, {1: (2, 2, 5), 2: (5, 2, 5)}, weakest=1)
    config = ForkConfig.model_validate({"principles": ["Say only what the tools say."], **options})
    records = await fork_dialogue(DIALOGUE, judgment, world.asks(), config)
    judge = [request for call in world.judge_calls for request in call]
    requests = [*world.policy_requests, *world.reviser_requests, *judge]
    check(transcript(requests, *records), FILES / f"{name}.txt")


@pytest.mark.parametrize("early_stop", [False, True])
async def test_a_fork(early_stop: bool) -> None:
    models = world()
    models.scores["It is lost."] = WEAK
    await forked(models, "early_stop" if early_stop else "best", early_stop=early_stop)


async def test_a_fork_of_the_earliest_turn_at_the_message_that_failed() -> None:
    models = world()
    models.failed = "message 1: it calls the right tool"
    models.scores[""] = WEAK
    models.revision = '{"name": "find_order", "arguments": {"id": 8}}'
    await forked(
        models,
        "failed_message",
        at="earliest",
        tool_turns="failed_message",
        resamples=0,
        max_forks=2,
    )


async def test_a_fork_whose_judge_gives_letters_only() -> None:
    models = world()
    models.can_read_labels = False
    models.scores["It is lost."] = WEAK
    await forked(models, "letters", min_confidence=1)
