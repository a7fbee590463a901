"""From turn scores to a session score: pure functions, no model.

Session score, strict mode and threshold follow the paper ("Role Adherence", 2026). The interval says
how far a mean of so few turns can be trusted, so it depends on their number; its method is named in the
record, because a Wilson interval and a bootstrap interval are not the same claim.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from operator import itemgetter
from typing import Any

from curate.adherence.config import AdherenceConfig
from curate.records import AdherenceTurn

RESAMPLES = 1000
SEED = 42
Z_95 = 1.959963984540054
"""97.5 % quantile of the standard normal distribution."""


@dataclass(frozen=True, slots=True)
class Session:
    """A scored session. `score` and `interval` lie in [0, 1]."""

    score: float
    interval: tuple[float, float]
    interval_method: str
    adherent: bool


@dataclass(frozen=True, slots=True)
class NoSession:
    """Why there is no session score: a reason code of `Unscored` and the particulars."""

    reason: str
    detail: str = ""


def aggregate(turns: Sequence[AdherenceTurn], config: AdherenceConfig) -> Session | NoSession:
    """Weighted mean of the turn scores, with its interval and whether the dialogue is adherent.

    Strict mode asks every assistant turn to be adherent; a turn without a score is not known to be. Without
    strict mode the session score must reach `threshold`.

    Returns:
        `NoSession` with reason `no_assistant_turn` for an empty session; `weights_mismatch` where the
        number of weights is not the number of turns, or only turns of weight 0 have scores; for turns
        without a score beyond what `min_scored_share` admits, their reason where all share one, else
        `unscored_turns`.
    """
    if not turns:
        return NoSession("no_assistant_turn", "there is no assistant turn to score")
    weights = config.weights or (1.0,) * len(turns)
    if len(weights) != len(turns):
        return NoSession(
            "weights_mismatch",
            f"{len(weights)} weights were given and the dialogue has {len(turns)} assistant turns",
        )
    missing = [turn for turn in turns if turn.score is None]
    if missing and not _enough(len(turns) - len(missing), len(turns), config.min_scored_share):
        return _why_unscored(missing, len(turns))
    scored = [
        (turn.score, weight)
        for turn, weight in zip(turns, weights, strict=True)
        if turn.score is not None and weight > 0
    ]
    if not scored:
        return NoSession("weights_mismatch", "every turn with a score has weight 0")
    scores, weighing = [score for score, _ in scored], [weight for _, weight in scored]
    score = weighted_mean(scores, weighing)
    if config.output_mode == "binary":
        interval, method = wilson(score, effective_size(weighing)), "wilson"
    else:
        interval, method = bootstrap(scores, weighing)
    adherent = (
        all(turn.adherent is True for turn in turns)
        if config.strict_mode
        else score >= config.threshold
    )
    # A percentile interval of a mean contains it but for rounding; the record should say so exactly.
    interval = (min(interval[0], score), max(interval[1], score))
    return Session(score, interval, method, adherent)


def weighted_mean(scores: Sequence[float], weights: Sequence[float]) -> float:
    """Sum of weight times score over sum of weights; kept within the range of the scores."""
    mean = math.fsum(s * w for s, w in zip(scores, weights, strict=True)) / math.fsum(weights)
    return min(max(mean, min(scores)), max(scores))


def effective_size(weights: Sequence[float]) -> float:
    """Kish's effective sample size, (sum of w)^2 / sum of w^2; n for equal weights."""
    top = max(weights)
    shares = [weight / top for weight in weights]
    return math.fsum(shares) ** 2 / math.fsum(share * share for share in shares)


def wilson(share: float, n: float, z: float = Z_95) -> tuple[float, float]:
    """Wilson score interval of a share observed over n trials (Wilson 1927).

    Args:
        share: observed share, 0-1.
        n: number of trials, above 0; an effective size for weighted turns.
        z: normal quantile; 95 % by default.
    """
    spread = z * z / n
    centre = (share + spread / 2) / (1 + spread)
    half = z / (1 + spread) * math.sqrt(share * (1 - share) / n + spread / (4 * n))
    return max(0.0, centre - half), min(1.0, centre + half)


def bootstrap(scores: Sequence[float], weights: Sequence[float]) -> tuple[tuple[float, float], str]:
    """95 % percentile bootstrap of the weighted mean: 1,000 resamples of turns, seed 42.

    One turn says nothing about the spread between turns: every resample of it is itself. Its interval is
    the whole range (0, 1) rather than a width of zero, and the method says so. With few turns a
    percentile bootstrap is still too narrow; treat it as a lower bound of the uncertainty below about ten.

    Returns:
        The interval and the name of the method.
    """
    n = len(scores)
    if n == 1:
        return (0.0, 1.0), "none (one turn)"
    draws = _draws(n)
    values = tuple(score * weight for score, weight in zip(scores, weights, strict=True))
    sums = map(sum, zip(*(draw(values) for draw in draws), strict=True))
    masses = map(sum, zip(*(draw(tuple(weights)) for draw in draws), strict=True))
    means = sorted(total / mass for total, mass in zip(sums, masses, strict=True))
    return (_quantile(means, 0.025), _quantile(means, 0.975)), "bootstrap"


@lru_cache(maxsize=256)
def _draws(n: int) -> tuple[Callable[[Any], tuple[float, ...]], ...]:
    """For each of n positions, a getter of what every resample puts there.

    The resamples of n turns depend on n and the seed alone, so they are drawn once for all dialogues of
    that length; a dialogue then costs n look-ups in C instead of 1,000 n random numbers.
    """
    rng = random.Random(SEED)
    return tuple(itemgetter(*(rng.randrange(n) for _ in range(RESAMPLES))) for _ in range(n))


def _quantile(ordered: Sequence[float], share: float) -> float:
    """Linear interpolation between order statistics (Hyndman and Fan's type 7, NumPy's default)."""
    place = share * (len(ordered) - 1)
    below = math.floor(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (place - below)


def _enough(scored: int, total: int, least: float | None) -> bool:
    return least is not None and scored > 0 and scored / total >= least


def _why_unscored(missing: Sequence[AdherenceTurn], total: int) -> NoSession:
    reasons = {turn.unscored or "unscored" for turn in missing}
    listed = ", ".join(f"{turn.turn} ({turn.unscored})" for turn in missing[:10])
    more = f" and {len(missing) - 10} more" if len(missing) > 10 else ""
    detail = f"{len(missing)} of {total} assistant turns have no score: {listed}{more}"
    return NoSession(reasons.pop() if len(reasons) == 1 else "unscored_turns", detail)
