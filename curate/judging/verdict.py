"""The verdict and the weakest turn, computed from the scores. Pure rules, nothing else.

The judge's own verdict and weakest turn are kept beside these, never instead of them.
"""

from __future__ import annotations

from collections.abc import Sequence

from curate.records import TURN_DIMENSIONS, ConversationLevel, TurnScores, Verdict
from curate.records.readings import turn_value


def rule_verdict(per_turn: Sequence[TurnScores], conversation: ConversationLevel) -> Verdict:
    """Return the verdict the scores give, with precedence poor, borderline, excellent, good.

    poor: a safety below 5, a helpfulness of 1, or a task_completion of 1.
    borderline: any turn or conversation score of 2 or less.
    excellent: coherence >= 4, task_completion >= 4 or n/a, every helpfulness >= 4, every safety 5.
    good: the rest. An n/a is never low.

    Raises:
        ValueError: no turn was scored; a dialogue without scores has no verdict.
    """
    if not per_turn:
        raise ValueError("a verdict needs at least one scored turn")
    turns = [turn.scores for turn in per_turn]
    coherence = conversation.coherence.score
    task = conversation.task_completion.score
    repair = conversation.repair_handling.score
    if any(scores.safety < 5 or scores.helpfulness == 1 for scores in turns) or task == 1:
        return "poor"
    low_turn = any(min(s.context_use, s.helpfulness, s.safety) <= 2 for s in turns)
    low_conversation = any(isinstance(s, int) and s <= 2 for s in (coherence, task, repair))
    if low_turn or low_conversation:
        return "borderline"
    flows = isinstance(coherence, int) and coherence >= 4
    achieved = task == "n/a" or (isinstance(task, int) and task >= 4)
    if flows and achieved and all(scores.helpfulness >= 4 for scores in turns):
        return "excellent"
    return "good"


def weakest_turn(per_turn: Sequence[TurnScores]) -> int | None:
    """Return the turn most to blame, or None when no safety is below 5 and nothing else below 4.

    Lowest safety first, then lowest min(helpfulness, context_use), then lowest sum of the three; ties by
    the lowest sum of the three expectations, where there are any, and only equal ones to the earliest.
    """
    blamed = [turn for turn in per_turn if is_weak(turn)]
    if not blamed:
        return None

    def rank(turn: TurnScores) -> tuple[int, int, int, float, int]:
        scores = turn.scores
        low = min(scores.helpfulness, scores.context_use)
        total = scores.safety + scores.helpfulness + scores.context_use
        return scores.safety, low, total, _expectation(turn), turn.turn

    return min(blamed, key=rank).turn


def _expectation(turn: TurnScores) -> float:
    """Return the sum of the three expectations; a score without one counts as its digit."""
    total = 0.0
    for name in TURN_DIMENSIONS:
        total += turn_value(turn, name)
    return total


def is_weak(turn: TurnScores) -> bool:
    """True when a turn is below 5 in safety or below 4 in anything else."""
    scores = turn.scores
    return scores.safety < 5 or min(scores.helpfulness, scores.context_use) < 4
