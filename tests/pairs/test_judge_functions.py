"""A jury verifies as one judge does."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import pytest

from curate.dialogue import Dialogue
from curate.engines.base import Completion, Request
from curate.pairs.closed_questions import ask_choice
from curate.pairs.config import ForkConfig
from curate.pairs.judge_functions import JudgeAsks, joint_asks
from curate.pairs.pair_prompts import suffices_questions
from curate.pairs.verification import Sides, compare_orders, score_side
from curate.records import AdherenceTurn, CutPoints, PairCheck, Unscored
from curate.records.several_judges import JuryRule
from curate.statistics import sigmoid
from tests.pairs.scripted import Values, World, chat, fault, say, weighed

RULES: dict[str, JuryRule] = {
    "context_use": "median",
    "helpfulness": "minimum",
    "safety": "vote",
    "pairs": "minimum",
}
PART = chat("How much?", "It is 45.")
SIDES = Sides(chat("How much?"), say("assistant", "It is 45."), say("assistant", "It is 40."), 1)


def jury(
    *scores: Values | str, odds: Sequence[float] = (0.0, 0.0, 0.0), rule: JuryRule = "minimum"
) -> JudgeAsks:
    """Judges of the given scores, to whom the first side is better by so much."""

    def judge(at: int) -> JudgeAsks:
        def prefer(first: str, second: str) -> float:
            return odds[at] if first == "It is 45." else -odds[at]

        world = World({"It is 45.": scores[at] if scores else (5, 5, 5)}, prefer=prefer)
        return replace(world.judging(), judge_id=f"j{at}")

    return joint_asks([judge(at) for at in range(3)], RULES | {"pairs": rule}, {}, None)


async def test_a_jury_scores_a_turn_by_the_rule_of_each_dimension() -> None:
    asks = jury((5, 5, 5), (2, 4, 1), (3, 1, 4))
    reading = await asks.score_turn(PART, 1, 2)
    assert not isinstance(reading, Unscored)
    assert reading.values == {"context_use": 3, "helpfulness": 1, "safety": pytest.approx(10 / 3)}
    assert (reading.turn, reading.wording) == (1, 2)
    assert (asks.judge_id, asks.rule, len(asks.jury)) == ("j0 + j1 + j2", "minimum", 3)
    assert asks.score_role is None


async def test_one_judge_without_a_score_leaves_the_turn_without_and_is_named() -> None:
    asks = jury((5, 5, 5), "bad_reply", (3, 1, 4))
    found = await score_side(PART, 1, asks, 2)
    assert isinstance(found, Unscored)
    assert (found.reason, found.detail) == ("bad_reply", "j1: ")


async def test_the_role_is_joined_of_those_that_look_at_it() -> None:
    def role(score: float):
        async def score_role(part: Dialogue, turn: int) -> AdherenceTurn:
            assert (part, turn) == (PART, 1)
            return AdherenceTurn(turn=turn, score=score)

        return score_role

    def lowest(turns: Sequence[AdherenceTurn]) -> AdherenceTurn:
        return min(turns, key=lambda turn: turn.score or 0)

    judges = [
        World({}).judging(**more)
        for more in ({"score_role": role(0.7)}, {}, {"score_role": role(0.2)})
    ]
    levels = {"safety": CutPoints(cuts=(1, 2, 3, 4), method="kappa")}
    asks = joint_asks(judges, RULES, levels, lowest)
    assert asks.score_role is not None
    assert (await asks.score_role(PART, 1)).score == 0.2
    assert asks.levels == levels


async def test_a_jury_compares_judge_by_judge() -> None:
    asks = jury(odds=(4.0, 1.0, -2.0), rule="median")
    check = (await compare_orders(SIDES, PairCheck(margin=1.5), asks, ForkConfig())).check
    assert (check.log_odds_first, check.log_odds_second) == pytest.approx((1.0, 1.0))
    assert (check.preference, check.margin) == (pytest.approx(1.0), 1.5)
    assert (check.preferred_first, check.preferred_second) == (True, True)
    shares = [sigmoid(odds) for odds in (4.0, 1.0, -2.0)]
    apart = max(shares) - min(shares)  # twice, over three pairs of judges
    assert check.disagreement == pytest.approx(2 * apart / 3)
    strict = jury(odds=(4.0, 1.0, -2.0), rule="minimum")
    check = (await compare_orders(SIDES, PairCheck(), strict, ForkConfig())).check
    assert (check.preference, check.preferred_first) == (pytest.approx(-2.0), False)


async def _fails(requests: Sequence[Request]) -> list[Completion]:
    return [fault("timeout")] * len(requests)


async def test_a_jury_of_which_one_cannot_compare_has_not_compared() -> None:
    asks = jury(odds=(4.0, 1.0, 2.0))
    first, second, third = asks.jury
    asks = replace(asks, jury=(first, replace(second, judge=_fails), third))
    found = await compare_orders(SIDES, PairCheck(), asks, ForkConfig())
    assert (found.drop_reason, found.detail) == ("unscored", "comparison: timeout")


async def test_a_jury_chooses_by_the_mean_of_its_judges_probabilities() -> None:
    questions = suffices_questions(PART, 1, [2])

    def judge(yes: float) -> JudgeAsks:
        async def answers(requests: Sequence[Request]) -> list[Completion]:
            # the second order begins with no
            odds = math.log(yes / (1 - yes))
            return [weighed(odds), weighed(-odds)]

        return replace(World({}).judging(), judge=answers)

    judges = (judge(0.9), judge(0.3), judge(0.5))
    asks = replace(judges[0], jury=judges)
    choice = await ask_choice(questions, asks, 0.5)
    assert choice.probabilities == {
        "yes": pytest.approx(17 / 30),
        "no": pytest.approx(13 / 30),
    }
    assert choice.best == "yes"
    asks = replace(asks, jury=(*judges, replace(judges[0], judge=_fails)))
    choice = await ask_choice(questions, asks, 0.5)
    assert (choice.best, choice.reason, choice.detail) == (None, "engine_error", "timeout")
