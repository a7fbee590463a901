"""What an estimate asks for a pair is what making one asks where it goes all the way."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from curate.pairs.config import ForkConfig
from curate.pairs.expected_load import ask_as_a_fork, ask_as_a_verification, with_a_bad_turn
from curate.pairs.fork import fork_dialogue
from curate.pairs.fork_points import flaws_by_turn
from curate.pairs.verification import Sides, verify_sides
from curate.records import LabelReading
from tests.pairs.scripted import FINE, WEAK, World, by_text, chat, judged, say

BAD = "Your refund of $40 is on its way."
GOOD = "Your refund of $45 is on its way."
OTHER = "Your refund of $41 is on its way."
THIRD = "Your refund of $42 and some more is on its way."
DIALOGUE = chat("I paid $45.", "Which card?", "The blue one.", BAD, "Thanks.", "Bye.")
JUDGMENT = judged(DIALOGUE, dict.fromkeys((1, 2, 3), (5, 5, 5)), weakest=None)


def all_that_was_asked(world: World) -> dict[str, Any]:
    return {
        "policy": world.policy_requests,
        "reviser": world.reviser_requests,
        "judge": world.judge_calls,
        "scored": [(part.messages, turn, wording) for part, turn, wording in world.scored],
        "described": len(world.described),
        "rejudged": [part.messages for part in world.rejudged],
    }


def better(first: str, second: str) -> float:
    """Whatever stands in place of the original is better by as much."""
    return 0.0 if BAD not in (first, second) else 2.0 if second == BAD else -2.0


@pytest.mark.parametrize(
    ("config", "prefer"),
    [
        (ForkConfig(resamples=2), better),
        (ForkConfig(resamples=2, guided_revision=False), better),
        (ForkConfig(resamples=0), better),
        (ForkConfig(resamples=2, early_stop=True), by_text(GOOD)),
        (ForkConfig(resamples=3, early_stop=True, guided_revision=False), by_text(GOOD)),
        (ForkConfig(resamples=2, at="earliest"), better),
        (ForkConfig(resamples=2, principles=("Be exact.",)), better),
        (ForkConfig(resamples=2, check_specifics=False), better),
    ],
)
async def test_a_fork_that_goes_all_the_way(config: ForkConfig, prefer: Callable[..., Any]) -> None:
    judgment = with_a_bad_turn(JUDGMENT, 1, config)

    def world() -> World:
        scores = {BAD: WEAK, OTHER: FINE, THIRD: FINE, GOOD: FINE}
        drawn = [OTHER, THIRD, GOOD]
        return World(scores, resamples=drawn, revision=GOOD, prefer=prefer, critique="It is wrong.")

    made, expected = world(), world()
    records = await fork_dialogue(DIALOGUE, judgment, made.asks(), config)
    assert [record.turn for record in records if record.drop_reason is None] == [2]
    await ask_as_a_fork(DIALOGUE, judgment, expected.asks(), config)
    assert all_that_was_asked(expected) == all_that_was_asked(made)
    assert expected.calls == made.calls > 0


async def test_as_many_turns_as_the_recipe_forks() -> None:
    judgment = judged(DIALOGUE, {1: (5, 5, 5), 2: (2, 2, 5), 3: (5, 5, 5)}, weakest=1)

    def world() -> World:
        scores = {BAD: WEAK, "Which card?": WEAK, OTHER: FINE}
        return World(scores, resamples=[OTHER], prefer=by_text(OTHER))

    for most, scored in ((1, 6), (2, 12)):
        config = ForkConfig(resamples=1, guided_revision=False, max_forks=most)
        expected = world()
        await ask_as_a_fork(DIALOGUE, judgment, expected.asks(), config)
        assert len(expected.scored) == scored


async def test_a_verification_that_goes_all_the_way() -> None:
    prompt = chat("I paid $45.", role_definition="A clerk.")
    sides = Sides(prompt, say("assistant", GOOD), say("assistant", BAD), 1)

    def world() -> World:
        return World({BAD: WEAK, GOOD: FINE}, prefer=by_text(GOOD))

    made, expected = world(), world()
    assert (await verify_sides(sides, made.judging(), ForkConfig())).drop_reason is None
    await ask_as_a_verification(sides, expected.judging(), ForkConfig())
    by_purpose = [
        sorted(call[0].purpose for call in asked.judge_calls) for asked in (expected, made)
    ]
    assert by_purpose[0] == by_purpose[1]
    assert expected.calls == made.calls
    unread = World({BAD: "bad_reply", GOOD: FINE})
    await ask_as_a_verification(sides, unread.judging(), ForkConfig())
    assert unread.calls == 1


@pytest.mark.parametrize(
    ("place", "at", "bad"),
    [
        (0, "weakest", [1]),
        (1, "weakest", [2]),
        (5, "weakest", [3]),
        (1, "earliest", [2, 3]),
        (3, "earliest", [1, 2, 3]),
    ],
)
def test_each_dialogue_is_bad_in_another_turn(place: int, at: str, bad: list[int]) -> None:
    config = ForkConfig.model_validate({"at": at})
    reading = LabelReading(mean=1, coverage=1, probabilities={"1": 1.0})
    read = [
        turn.model_copy(update={"readings": {"helpfulness": reading}}) for turn in JUDGMENT.per_turn
    ]
    shares = {"per_turn": tuple(read), "weakest_probabilities": {"3": 1.0}}
    judgment = with_a_bad_turn(JUDGMENT.model_copy(update=shares), place, config)
    assert (judgment.weakest_probabilities, [turn.readings for turn in judgment.per_turn]) == (
        {},
        [{}] * 3,
    )
    flaws = flaws_by_turn(judgment, config)
    assert [turn for turn, names in flaws.items() if names] == bad
    assert judgment.weakest_turn == bad[0]
