"""From turn scores to a session score: pure functions, no model.

Session score, strict mode and threshold follow the paper ("Role Adherence", 2026). The interval says
how far a mean of so few turns can be trusted, so it depends on their number; its method is named in the
record, because a Wilson interval and a bootstrap interval are not the same claim.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any, Final

from curate.adherence.config import AdherenceConfig
from curate.dialogue import Dialogue
from curate.records import (
    AdherenceScore,
    AdherenceTrend,
    AdherenceTurn,
    ConversationAdherence,
    JudgeIdentity,
    StageName,
    Unscored,
    UnscoredReason,
)
from curate.statistics import (
    bayesian_bootstrap_mean,
    beta_posterior,
    bootstrap_mean,
    effective_size,
    trend,
    weighted_mean,
    wilson,
)
from curate.wording import first_of

STAGE: Final = StageName.ADHERENCE


@dataclass(frozen=True, slots=True)
class SessionScore:
    """A scored session. `score` and `interval` lie in [0, 1]."""

    score: float
    interval: tuple[float, float]
    interval_method: str
    adherent: bool


@dataclass(frozen=True, slots=True)
class NoSession:
    """The reason why there is no session score: a reason code of `Unscored` and details."""

    reason: str
    detail: str = ""


def without_role(dialogue: Dialogue, config: AdherenceConfig) -> Unscored | None:
    """Return the record of a dialogue that has no role definition; None where it has one."""
    if (dialogue.role_definition or "").strip():
        return None
    reason, detail = UnscoredReason.MISSING_ROLE, "the dialogue has no role definition"
    if config.missing_role == "skip":
        reason, detail = UnscoredReason.SKIPPED, f"{detail}, and missing_role is skip"
    return Unscored.of(dialogue, STAGE, reason, detail)


def score_record(
    dialogue: Dialogue,
    config: AdherenceConfig,
    identity: JudgeIdentity,
    session: SessionScore,
    turns: Sequence[AdherenceTurn],
    **counts: int,
) -> AdherenceScore:
    """Return the record of a scored dialogue.

    Args:
        counts: `neutralised`, `requests` or `fitted_on`.
    """
    return AdherenceScore(
        dialogue_id=dialogue.id,
        content_hash=dialogue.content_hash,
        identity=identity,
        scoring_method=config.scoring_method,
        evaluation_granularity=config.evaluation_granularity,
        definition=config.definition,
        **session_fields(session, turns, config),
        **counts,
    )


def session_fields(
    session: SessionScore, turns: Sequence[AdherenceTurn], config: AdherenceConfig
) -> dict[str, Any]:
    """Return the fields of a record that follow from its turns, or from the one answer about the whole."""
    fields = {
        "output_mode": config.output_mode,
        "session_score": session.score,
        "interval": session.interval,
        "interval_method": session.interval_method,
        "adherent": session.adherent,
    }
    if config.evaluation_granularity == "conversation":
        whole = {name: getattr(turns[0], name) for name in ConversationAdherence.model_fields}
        return fields | {"per_turn": (), "conversation": ConversationAdherence(**whole)}
    return fields | {
        "per_turn": tuple(turns),
        "trend": trend_of(turns),
        "turns_in_role": turns_in_role(turns),
    }


def held_to_threshold(score: float, config: AdherenceConfig) -> dict[str, Any]:
    """Return `score` and `adherent` of a turn, and `raw_score` where the config holds a calibration."""
    calibration = config.calibration
    if calibration is None:
        return {"score": score, "adherent": score >= config.turn_threshold}
    return {
        "score": calibration.probability(score),
        "adherent": score >= calibration.threshold,
        "raw_score": score,
    }


def aggregate(turns: Sequence[AdherenceTurn], config: AdherenceConfig) -> SessionScore | NoSession:
    """Return the weighted mean of the turn scores, with its interval and whether the dialogue is adherent.

    Strict mode asks every assistant turn to be adherent; a turn without a score is not known to be. Without
    strict mode the session score must reach `threshold`. Where the conversation is asked about as a whole, its
    one answer stands in place of the turns.

    Returns:
        `NoSession` with reason `no_assistant_turn` for an empty session; `weights_mismatch` where the
        number of weights is not the number of turns, or only turns of weight 0 have scores; for turns
        without a score beyond what `min_scored_share` admits, their reason where all share one, else
        `unscored_turns`.
    """
    if not turns:
        return NoSession(UnscoredReason.NO_ASSISTANT_TURN, "there is no assistant turn to score")
    weights = config.weights or (1.0,) * len(turns)
    if len(weights) != len(turns):
        return NoSession(
            UnscoredReason.WEIGHTS_MISMATCH,
            f"{len(weights)} weights were given and the dialogue has {len(turns)} assistant turns",
        )
    missing = [turn for turn in turns if turn.score is None]
    if missing and not _enough(len(turns) - len(missing), len(turns), config.min_scored_share):
        return _why_unscored(missing, len(turns), config)
    scored = [
        (turn.score, weight)
        for turn, weight in zip(turns, weights, strict=True)
        if turn.score is not None and weight > 0
    ]
    if not scored:
        return NoSession(UnscoredReason.WEIGHTS_MISMATCH, "every turn with a score has weight 0")
    scores, weighing = [score for score, _ in scored], [weight for _, weight in scored]
    score = weighted_mean(scores, weighing)
    interval, method = interval_of(scores, weighing, score, config)
    adherent = (
        all(turn.adherent is True for turn in turns)
        if config.strict_mode
        else score >= config.threshold
    )
    # An interval of a mean contains it but for rounding, or nearly (a posterior's); the record says so exactly.
    interval = (min(interval[0], score), max(interval[1], score))
    return SessionScore(score, interval, method, adherent)


def interval_of(
    scores: Sequence[float], weights: Sequence[float], score: float, config: AdherenceConfig
) -> tuple[tuple[float, float], str]:
    """Return the 95 % interval of a session score, and the name of its method.

    One turn that is scored between 0 and 1 says nothing about the spread between turns. Its interval is the
    whole range (0, 1) rather than a width of zero, and the method says so.
    """
    bayesian = config.interval == "bayesian"
    if config.output_mode == "binary" and config.calibration is None:
        n = effective_size(weights)
        return (
            (beta_posterior(score, n), "beta posterior (Jeffreys)")
            if bayesian
            else (wilson(score, n), "wilson")
        )
    if len(scores) == 1:
        unit = "one turn" if config.evaluation_granularity == "turn" else "one answer"
        return (0.0, 1.0), f"none ({unit})"
    if bayesian:
        return bayesian_bootstrap_mean(scores, weights), "bayesian bootstrap"
    return bootstrap_mean(scores, weights), "bootstrap"


def trend_of(turns: Sequence[AdherenceTurn]) -> AdherenceTrend | None:
    """Test whether adherence changes over the assistant turns; None for fewer than two scored ones.

    Positions count assistant turns, unscored ones included. Weights are not used: a weight says how much a
    turn matters, not when it came. A 0.5 for want of evidence is left out.
    """
    scored = [
        (place, turn.score)
        for place, turn in enumerate(turns, start=1)
        if turn.score is not None and not turn.imputed
    ]
    fitted = trend([place for place, _ in scored], [score for _, score in scored])
    if fitted is None:
        return None
    return AdherenceTrend(slope=fitted.slope, interval=fitted.interval, p_value=fitted.p_value)


def turns_in_role(turns: Sequence[AdherenceTurn]) -> int:
    """Count turns before the first that is not adherent, or of which that is not known; all where there is none."""
    return sum(1 for _ in takewhile(lambda turn: turn.adherent is True, turns))


def _enough(scored: int, total: int, least: float | None) -> bool:
    return least is not None and scored > 0 and scored / total >= least


def _why_unscored(
    missing: Sequence[AdherenceTurn], total: int, config: AdherenceConfig
) -> NoSession:
    reasons = {turn.unscored or "unscored" for turn in missing}
    if config.evaluation_granularity == "conversation":
        return NoSession(reasons.pop(), "the conversation has no score")
    listed = first_of([f"{turn.turn} ({turn.unscored})" for turn in missing], 10)
    detail = f"{len(missing)} of {total} assistant turns have no score: {listed}"
    return NoSession(reasons.pop() if len(reasons) == 1 else UnscoredReason.UNSCORED_TURNS, detail)
