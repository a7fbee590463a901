"""A dialogue's readings as plain numbers, which `p_good` is fitted to and computed from.

They are the judge's expectations, or its digits where there are none; never calibrated levels, so that one
calibration does not change what another is fitted to.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from curate.records import (
    CONVERSATION_DIMENSIONS,
    TURN_DIMENSIONS,
    AdherenceScore,
    ConversationScore,
    Judgment,
    LabelReading,
    TurnScores,
)
from curate.records.metrics import MetricScore, MetricsScore

ADHERENCE = "adherence"
"""Name of the reading for role adherence."""
METRIC = "metric_"
"""Prefix of the readings for weighted metrics, shared with labels and columns."""


def turn_value(turn: TurnScores, dimension: str) -> float:
    """Return the expectation of a turn's score, 1-5, or the digit where there is none."""
    reading = turn.readings.get(dimension)
    if reading is not None and reading.mean is not None:
        return reading.mean
    return float(getattr(turn.digits or turn.scores, dimension))


def conversation_value(score: ConversationScore) -> float | None:
    """Return the expectation of a conversation's score, 1-5, or the digit where there is none; None for n/a."""
    if score.reading is not None and score.reading.mean is not None:
        return score.reading.mean
    digit = conversation_digit(score)
    return None if digit is None else float(digit)


def conversation_digit(score: ConversationScore) -> int | None:
    """Return the judge's most likely answer; None for n/a."""
    digit = score.score if score.digit is None else score.digit
    return None if digit == "n/a" else digit


def all_readings(judgment: Judgment) -> list[LabelReading]:
    """Return every distribution behind a judgment's scores; empty in json mode without samples."""
    level = judgment.conversation_level
    whole = (getattr(level, name).reading for name in CONVERSATION_DIMENSIONS)
    of_turns = (reading for turn in judgment.per_turn for reading in turn.readings.values())
    return [*of_turns, *(reading for reading in whole if reading is not None)]


def mean_spread(judgment: Judgment) -> float | None:
    """Return the mean standard deviation of the readings divided by 2, the largest on a scale of 1-5; 0-1."""
    spread = known_mean(
        reading.spread for reading in all_readings(judgment) if reading.spread is not None
    )
    return None if spread is None else min(1.0, spread / 2)


def metric_digit(metric: MetricScore) -> int | None:
    """Return the judge's score of a metric, before any calibration; None for n/a."""
    return metric.score if metric.digit is None else metric.digit


def metric_value(metric: MetricScore) -> float | None:
    """Return the expectation of a metric (0-5, or 0-1 for pass and fail), or the judge's digit; None for n/a."""
    digit = metric_digit(metric)
    if digit is None or metric.reading is None or metric.reading.mean is None:
        return None if digit is None else float(digit)
    return metric.reading.mean


def dialogue_readings(
    judgment: Judgment,
    adherence: AdherenceScore | None = None,
    metrics: MetricsScore | None = None,
) -> dict[str, float | None]:
    """Return a dialogue's readings by name.

    They are the three conversation scores; mean, lowest and last of each turn score; role adherence before any
    calibration; and the metrics.
    """
    level = judgment.conversation_level
    readings = {name: conversation_value(getattr(level, name)) for name in CONVERSATION_DIMENSIONS}
    for name in TURN_DIMENSIONS:
        values = [turn_value(turn, name) for turn in judgment.per_turn]
        readings[f"mean_{name}"] = known_mean(values)
        readings[f"min_{name}"] = min(values, default=None)
        readings[f"last_{name}"] = values[-1] if values else None
    if adherence is not None:
        readings[ADHERENCE] = _raw_adherence(adherence)
    if metrics is not None:
        readings |= {METRIC + metric.name: metric_value(metric) for metric in metrics.metrics}
    return readings


def _raw_adherence(score: AdherenceScore) -> float | None:
    whole = score.conversation
    if whole is not None:
        return score.session_score if whole.raw_score is None else whole.raw_score
    values = [turn.score if turn.raw_score is None else turn.raw_score for turn in score.per_turn]
    return known_mean(values)


def known_mean(values: Iterable[float | None]) -> float | None:
    """Return the mean of the values that are not None; None where there is none."""
    known = [value for value in values if value is not None]
    return math.fsum(known) / len(known) if known else None
