"""A jury: several judges score a dialogue, and one judgment is made of theirs, score by score.

A pure function. Verdict and weakest turn follow from the combined scores by the same rules as one judge's, so
whatever reads a judgment reads a jury's as well. Each combined score has a reading: the mixture of the judges'
distributions, a judge without one counting as certain of its digit, so that its spread holds both what each judge
is unsure of and what they disagree about.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Literal

from curate.judging.config import JuryRule
from curate.judging.opinions import Heard, Judged, disagreement
from curate.judging.session import STAGE, shared_reason
from curate.judging.tokens_mode import share_reading
from curate.judging.verdict import rule_verdict, weakest_turn
from curate.records import (
    CONVERSATION_DIMENSIONS,
    TURN_DIMENSIONS,
    ConversationLevel,
    ConversationScore,
    ConversationScoreValue,
    JudgeIdentity,
    Judgment,
    LabelReading,
    RubricScores,
    TurnScores,
    Unscored,
    UnscoredTurn,
)

NA: Literal["n/a"] = "n/a"
_OF_ALL: dict[JuryRule, Callable[[Sequence[float]], float]] = {
    "median": statistics.median,
    "minimum": min,
    "vote": statistics.fmean,
}
"""A rule: expectations of several judges to one."""


def combine(
    heard: Sequence[Heard],
    rules: Mapping[str, JuryRule],
    identity: JudgeIdentity,
    *,
    min_scored_share: float | None = None,
) -> Judged:
    """One judgment of several judges' records of a dialogue.

    Args:
        heard: of each judge; where one could not score the dialogue, nor can the jury, for its reason, and a
            turn that one could not score is unscored.
        rules: how scores become one, by dimension.
        identity: the jury's.
        min_scored_share: as in the judge's config.
    """
    requests = sum(one.used.requests for one in heard)
    for one in heard:
        if isinstance(one.row, Unscored):
            return one.named(one.row, requests)
    rows = [one.row for one in heard if isinstance(one.row, Judgment)]
    first = rows[0]
    missing = {
        turn.turn: UnscoredTurn(
            turn=turn.turn, reason=turn.reason, detail=f"{one.judge}: {turn.detail}".rstrip(": ")
        )
        for one in reversed(heard)
        if isinstance(one.row, Judgment)
        for turn in one.row.unscored_turns
    }
    of_turns = [{turn.turn: turn for turn in row.per_turn} for row in rows]
    numbers = [turn.turn for turn in first.per_turn if turn.turn not in missing]
    per_turn = tuple(_turn([turns[number] for turns in of_turns], rules) for number in numbers)
    asked, unscored = len(numbers) + len(missing), [missing[turn] for turn in sorted(missing)]
    if unscored and (not per_turn or len(per_turn) / asked < (min_scored_share or 1)):
        failure = shared_reason(unscored, asked)
        return Unscored(
            dialogue_id=first.dialogue_id,
            content_hash=first.content_hash,
            stage=STAGE,
            reason=failure.reason,
            detail=failure.detail,
            requests=requests,
        )
    levels = [row.conversation_level for row in rows]
    level = ConversationLevel(
        **{
            name: _conversation([getattr(level, name) for level in levels], rules[name])
            for name in CONVERSATION_DIMENSIONS
        }
    )
    verdict, weakest = rule_verdict(per_turn, level), weakest_turn(per_turn)
    opinions = tuple(one.opinion() for one in heard)
    agreeing = [row for row in rows if row.verdict == verdict] or rows
    return Judgment(
        dialogue_id=first.dialogue_id,
        content_hash=first.content_hash,
        identity=identity,
        per_turn=per_turn,
        conversation_level=level,
        verdict=verdict,
        decision_basis=next((row.decision_basis for row in agreeing if row.decision_basis), ""),
        weakest_turn=weakest,
        weakest_probabilities=_mixed([row.weakest_probabilities for row in rows]),
        unscored_turns=tuple(unscored),
        overlap_disagreement=_mean(row.overlap_disagreement for row in rows),
        neutralised=first.neutralised,
        remarks=tuple(
            dict.fromkeys(
                f"{remark} ({one.judge})"
                for one, row in zip(heard, rows, strict=True)
                for remark in row.remarks
            )
        ),
        requests=requests,
        opinions=opinions,
        disagreement=disagreement(opinions),
    )


def combine_digits(digits: Sequence[int], rule: JuryRule) -> int:
    """One level of several judges' levels.

    Args:
        digits: at least one.
        rule: `median`: the middle one, of two the lower. `minimum`: the lowest. `vote`: the one most judges gave;
            of several that as many gave the one nearest to the median, of two as near the lower.
    """
    middle = sorted(digits)[(len(digits) - 1) // 2]
    if rule == "median":
        return middle
    if rule == "minimum":
        return min(digits)
    votes = Counter(digits)
    most = max(votes.values())
    return min(
        (digit for digit, count in votes.items() if count == most),
        key=lambda digit: (abs(digit - middle), digit),
    )


def _turn(turns: Sequence[TurnScores], rules: Mapping[str, JuryRule]) -> TurnScores:
    scores, readings = {}, {}
    for name in TURN_DIMENSIONS:
        digits = [getattr(turn.scores, name) for turn in turns]
        scores[name] = combine_digits(digits, rules[name])
        held = [turn.readings.get(name) for turn in turns]
        readings[name] = _reading(digits, held, rules[name])
    issues = dict.fromkeys(issue for turn in turns for issue in turn.issues)
    return TurnScores(
        turn=turns[0].turn, scores=RubricScores(**scores), issues=tuple(issues), readings=readings
    )


def _conversation(held: Sequence[ConversationScore], rule: JuryRule) -> ConversationScore:
    """N/a where more than half of the judges say so; else of those that gave a level."""
    digits = [one.score for one in held if one.score != NA]
    score: ConversationScoreValue = "n/a"
    if 2 * len(digits) >= len(held):
        score = combine_digits([int(digit) for digit in digits], rule)
    notes = (one.note for one in held if one.note and one.score == score)
    return ConversationScore(
        score=score,
        note=next(notes, ""),
        reading=_reading([one.score for one in held], [one.reading for one in held], rule),
    )


def _reading(
    digits: Sequence[ConversationScoreValue], held: Sequence[LabelReading | None], rule: JuryRule
) -> LabelReading:
    """The mixture of the judges' distributions; its mean is what the rule makes of their expectations."""
    shares = [
        reading.probabilities
        if reading is not None and reading.probabilities
        else {str(digit): 1.0}
        for digit, reading in zip(digits, held, strict=True)
    ]
    means = [
        mean
        for digit, reading in zip(digits, held, strict=True)
        if (mean := _expectation(digit, reading)) is not None
    ]
    coverage = min(1.0 if reading is None else reading.coverage for reading in held)
    mixture = share_reading(_mixed(shares), coverage)
    return mixture.model_copy(update={"mean": _OF_ALL[rule](means) if means else None})


def _expectation(digit: ConversationScoreValue, reading: LabelReading | None) -> float | None:
    if reading is not None:
        return reading.mean
    return None if digit == NA else float(digit)


def _mixed(shares: Iterable[Mapping[str, float]]) -> dict[str, float]:
    """The mean of distributions, those that are empty left out."""
    known = [held for held in shares if held]
    labels = dict.fromkeys(label for held in known for label in held)
    return {
        label: math.fsum(held.get(label, 0.0) for held in known) / len(known) for label in labels
    }


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return math.fsum(known) / len(known) if known else None
