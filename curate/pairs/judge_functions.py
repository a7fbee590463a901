"""The models and judge functions that pairs are handed from outside the room.

Stages do not import each other, so the judge's per-turn score, its description of an issue and the score
of role adherence come in as functions, bound by the pipeline to the run's judge and mode.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from curate.dialogue import Dialogue
from curate.engines.base import Ask
from curate.records import (
    AdherenceTurn,
    CutPoints,
    Judgment,
    ScoringMode,
    TurnClaims,
    TurnReading,
    Unscored,
)
from curate.records.several_judges import JuryRule, of_several


@dataclass(frozen=True, slots=True)
class JudgeAsks:
    """All that verification asks; it needs no policy.

    Attributes:
        judge: answers comparisons and other closed questions.
        score_turn: scores one turn of a dialogue cut after it: (dialogue, turn number, wording index
            from 0) to a `TurnReading` with context_use, helpfulness and safety, 1-5, or `Unscored`.
        judge_mode: how a letter is read: `tokens` from the first token, `json` from a schema reply;
            None tries the first token and falls back where the engine gives no log-probabilities.
        levels: cut points by dimension, where the run's levels are calibrated.
        score_role: role adherence of one turn of a dialogue cut after it: (dialogue, turn number) to an
            `AdherenceTurn`. None where the run has no judge for it; then it is not checked.
        score_facts: the claims of one turn, likewise; None where the run does not look at facts.
        jury: each of several judges, who answer closed questions one by one; empty where there is one.
        rule: how what a jury prefers becomes one.
    """

    judge: Ask
    score_turn: Callable[[Dialogue, int, int], Awaitable[TurnReading | Unscored]]
    judge_id: str
    judge_mode: ScoringMode | None = None
    levels: Mapping[str, CutPoints] = field(default_factory=dict)
    score_role: Callable[[Dialogue, int], Awaitable[AdherenceTurn]] | None = None
    score_facts: Callable[[Dialogue, int], Awaitable[TurnClaims | Unscored]] | None = None
    jury: tuple[JudgeAsks, ...] = ()
    rule: JuryRule = "median"


def joint_asks(
    judges: Sequence[JudgeAsks],
    rules: Mapping[str, JuryRule],
    levels: Mapping[str, CutPoints],
    join_role: Callable[[Sequence[AdherenceTurn]], AdherenceTurn] | None,
) -> JudgeAsks:
    """Return a jury that verifies as one judge does; what is asked in words goes to the first.

    Args:
        rules: how scores become one, by turn dimension, and of `pairs`.
        levels: cut points of the joint scores.
        join_role: makes one of the judges' role adherence of a turn; None where that is not checked.
    """

    async def score_turn(part: Dialogue, turn: int, wording: int) -> TurnReading | Unscored:
        readings: list[TurnReading] = []
        for judge in judges:
            reading = await judge.score_turn(part, turn, wording)
            if isinstance(reading, Unscored):
                return reading.model_copy(update={"detail": f"{judge.judge_id}: {reading.detail}"})
            readings.append(reading)
        values = {
            name: of_several([reading.values[name] for reading in readings], rules[name])
            for name in readings[0].values
        }
        return readings[0].model_copy(update={"values": values})

    async def score_role(part: Dialogue, turn: int) -> AdherenceTurn:
        scorers = [judge.score_role for judge in judges if judge.score_role is not None]
        assert join_role is not None
        return join_role([await ask(part, turn) for ask in scorers])

    return replace(
        judges[0],
        score_turn=score_turn,
        judge_id=" + ".join(judge.judge_id for judge in judges),
        levels=levels,
        score_role=None if join_role is None else score_role,
        jury=tuple(judges),
        rule=rules["pairs"],
    )


@dataclass(frozen=True, slots=True)
class ForkAsks:
    """Models and functions a fork uses.

    Attributes:
        judging: the judge, who verifies.
        policy: writes the resamples.
        reviser: writes the guided revision.
        describe_issue: what is wrong with a turn, in a sentence; asked only where nothing else names it.
        rejudge: judges a whole dialogue; asked with `at: earliest` about one that ends with a chosen side.
    """

    judging: JudgeAsks
    policy: Ask
    reviser: Ask
    describe_issue: Callable[[Dialogue, int], Awaitable[str]]
    rejudge: Callable[[Dialogue], Awaitable[Judgment | Unscored]]
    policy_id: str
    reviser_id: str
