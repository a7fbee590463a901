"""A jury: several judges score a dialogue, and one judgment or one record of metrics is made of theirs, score by score.

Pure functions. Verdict and weakest turn follow from the combined scores by the same rules as one judge's, so
whatever reads a judgment reads a jury's as well. Each combined score has a reading: the mixture of the judges'
distributions, a judge without one counting as certain of its digit, so that its spread holds both what each judge
is unsure of and what they disagree about.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

from curate.judging.metrics.catalogue import HIGHEST
from curate.judging.metrics.weighing import shares, with_metrics
from curate.judging.session import STAGE, shared_reason
from curate.judging.tokens_mode import DIGIT_VALUES, share_reading
from curate.judging.verdict import rule_verdict, weakest_turn
from curate.records import (
    CONVERSATION_DIMENSIONS,
    TURN_DIMENSIONS,
    ConversationLevel,
    ConversationScore,
    ConversationScoreValue,
    Judgment,
    LabelReading,
    MetricsScore,
    RubricScores,
    StageName,
    TurnScores,
    Unscored,
    UnscoredReason,
    UnscoredTurn,
)
from curate.records.metrics import MetricScore
from curate.records.readings import known_mean
from curate.records.several_judges import JuryRule, of_several

NA: Literal["n/a"] = "n/a"


def combine(
    rows: Sequence[Judgment],
    rules: Mapping[str, JuryRule],
    judges: Sequence[str],
    min_scored_share: float | None = None,
) -> Judgment | Unscored:
    """Join several judges' judgments of a dialogue; a turn that one could not score is unscored.

    Args:
        rules: how scores become one, by dimension.
    """
    first = rows[0]
    missing = {
        turn.turn: UnscoredTurn(
            turn=turn.turn, reason=turn.reason, detail=f"{judge}: {turn.detail}".rstrip(": ")
        )
        for judge, row in reversed([*zip(judges, rows, strict=True)])
        for turn in row.unscored_turns
    }
    of_turns = [{turn.turn: turn for turn in row.per_turn} for row in rows]
    numbers = [turn.turn for turn in first.per_turn if turn.turn not in missing]
    per_turn = tuple(_turn([turns[number] for turns in of_turns], rules) for number in numbers)
    total, unscored = len(numbers) + len(missing), [missing[turn] for turn in sorted(missing)]
    if unscored and (not per_turn or len(per_turn) / total < (min_scored_share or 1)):
        failure = shared_reason(unscored, total)
        return Unscored.of(first, STAGE, failure.reason, failure.detail)
    levels = [row.conversation_level for row in rows]
    level = ConversationLevel(
        **{
            name: _conversation([getattr(level, name) for level in levels], rules[name])
            for name in CONVERSATION_DIMENSIONS
        }
    )
    verdict, weakest = rule_verdict(per_turn, level), weakest_turn(per_turn)
    agreeing = [row for row in rows if row.verdict == verdict] or rows
    return Judgment(
        dialogue_id=first.dialogue_id,
        content_hash=first.content_hash,
        identity=first.identity,
        per_turn=per_turn,
        conversation_level=level,
        verdict=verdict,
        decision_basis=next((row.decision_basis for row in agreeing if row.decision_basis), ""),
        weakest_turn=weakest,
        weakest_probabilities=_mixed([row.weakest_probabilities for row in rows]),
        unscored_turns=tuple(unscored),
        overlap_disagreement=known_mean(row.overlap_disagreement for row in rows),
        neutralised=first.neutralised,
        remarks=tuple(
            dict.fromkeys(
                f"{remark} ({judge})"
                for judge, row in zip(judges, rows, strict=True)
                for remark in row.remarks
            )
        ),
    )


def combine_metrics(rows: Sequence[MetricsScore], rule: JuryRule) -> MetricsScore | Unscored:
    """Join several judges' records of metrics; a diagnosis is of the first judge that gave the score.

    Unscored where every metric that has a weight is n/a to more than half of the judges.
    """
    first = rows[0]
    metrics = [_metric(scores, rule) for scores in zip(*(row.metrics for row in rows), strict=True)]
    weights = {metric.name: metric.weight for metric in metrics}
    parts = shares(weights, [metric.name for metric in metrics if metric.score is None])
    if parts is None:
        detail = f"n/a: {', '.join(weights)}"
        return Unscored.of(first, StageName.METRICS, UnscoredReason.NOTHING_APPLIES, detail)
    metrics = [metric.model_copy(update={"share": parts[metric.name]}) for metric in metrics]
    return with_metrics(first, metrics)


def _metric(scores: Sequence[MetricScore], rule: JuryRule) -> MetricScore:
    """Join one metric's scores: n/a where more than half of the judges say so, as for conversation scores."""
    digits = [metric.score for metric in scores if metric.score is not None]
    if 2 * len(digits) < len(scores) or not digits:
        return next(metric for metric in scores if metric.score is None)
    score = combine_digits(digits, rule)
    reading = None
    if any(each.reading for each in scores):
        labels = {0: "fail", 1: "pass"} if scores[0].scale == "binary" else {}
        values = {labels.get(at, str(at)): at for at in range(HIGHEST[scores[0].scale] + 1)}
        digits_or_na: list[int | Literal["n/a"]] = [
            NA if each.score is None else each.score for each in scores
        ]
        reading = _reading(digits_or_na, [each.reading for each in scores], rule, values)
    # The level lies at a judge's own, whatever the rule.
    agreeing = next(each for each in scores if each.score == score)
    return agreeing.model_copy(update={"reading": reading})


def combine_digits(digits: Sequence[int], rule: JuryRule) -> int:
    """Join several judges' levels into one.

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
        held_readings = [turn.readings.get(name) for turn in turns]
        readings[name] = _reading(digits, held_readings, rules[name])
    issues = dict.fromkeys(issue for turn in turns for issue in turn.issues)
    return TurnScores(
        turn=turns[0].turn, scores=RubricScores(**scores), issues=tuple(issues), readings=readings
    )


def _conversation(scores: Sequence[ConversationScore], rule: JuryRule) -> ConversationScore:
    """Join conversation scores: n/a where more than half of the judges say so; else by those that gave a level."""
    digits = [each.score for each in scores if each.score != NA]
    score: ConversationScoreValue = "n/a"
    if 2 * len(digits) >= len(scores):
        score = combine_digits([int(digit) for digit in digits], rule)
    notes = (each.note for each in scores if each.note and each.score == score)
    return ConversationScore(
        score=score,
        note=next(notes, ""),
        reading=_reading([each.score for each in scores], [each.reading for each in scores], rule),
    )


def _reading(
    digits: Sequence[int | Literal["n/a"]],
    readings: Sequence[LabelReading | None],
    rule: JuryRule,
    values: Mapping[str, int] = DIGIT_VALUES,
) -> LabelReading:
    """Return the mixture of the judges' distributions; its mean is what the rule makes of their expectations.

    Args:
        digits: of each judge; a judge without a reading counts as certain of its own.
        values: number of each label that counts.
    """
    labels = {value: label for label, value in values.items()}
    distributions: list[Mapping[str, float]] = []
    means: list[float] = []
    for digit, reading in zip(digits, readings, strict=True):
        certain = {NA if digit == NA else labels[digit]: 1.0}
        distributions.append((reading.probabilities if reading else {}) or certain)
        mean = (None if digit == NA else float(digit)) if reading is None else reading.mean
        means += [] if mean is None else [mean]
    coverage = min(1.0 if reading is None else reading.coverage for reading in readings)
    mixture = share_reading(_mixed(distributions), coverage, values)
    return mixture.model_copy(update={"mean": of_several(means, rule) if means else None})


def _mixed(shares: Iterable[Mapping[str, float]]) -> dict[str, float]:
    """Return the mean of the distributions that are not empty."""
    distributions = [distribution for distribution in shares if distribution]
    labels = dict.fromkeys(label for distribution in distributions for label in distribution)
    return {
        label: math.fsum(distribution.get(label, 0.0) for distribution in distributions)
        / len(distributions)
        for label in labels
    }
