"""Role adherence by a jury: one record of several judges' records, turn by turn. Pure.

A judge that gives words counts as certain of its yes or no, so judges of both output modes may sit together.
"""

from __future__ import annotations

from collections.abc import Sequence

from curate.adherence.config import AdherenceConfig
from curate.adherence.session_score import STAGE, NoSession, aggregate, session_fields
from curate.records import AdherenceScore, AdherenceTurn, Unscored
from curate.records.several_judges import JuryRule, of_several


def combine_scores(
    rows: Sequence[AdherenceScore], rule: JuryRule, config: AdherenceConfig
) -> AdherenceScore | Unscored:
    """Join several judges' records of a dialogue.

    Args:
        rows: of each judge, without calibration.
        rule: of P(yes): the median, the lowest, or of a vote the mean.
        config: `output_mode` is what the scores are together; a calibration in it was fitted to such scores.
    """
    first = rows[0]
    if first.conversation is not None:
        whole = [
            AdherenceTurn(
                turn=0,
                score=row.session_score,
                adherent=row.session_score >= config.turn_threshold,
                **row.conversation.model_dump(include={"coverage", "imputed"}),
                reason=row.conversation.reason,
            )
            for row in rows
            if row.conversation is not None
        ]
        turns = [combine_turns(whole, rule, config)]
    else:
        each = zip(*(row.per_turn for row in rows), strict=True)
        turns = [combine_turns(turn, rule, config) for turn in each]
    session = aggregate(turns, config)
    if isinstance(session, NoSession):
        return Unscored.of(first, STAGE, session.reason, session.detail)
    return first.model_copy(update=session_fields(session, turns, config))


def combine_turns(
    turns: Sequence[AdherenceTurn], rule: JuryRule, config: AdherenceConfig
) -> AdherenceTurn:
    """Join several judges' records of a turn; unscored where one of them is.

    A judge without evidence (`imputed`) is left out as long as another has some. With an even number of judges in
    words half of them are no majority.
    """
    for turn in turns:
        if turn.score is None:
            return turn
    with_evidence = [turn for turn in turns if not turn.imputed] or turns
    raw = of_several([turn.score for turn in with_evidence if turn.score is not None], rule)
    score = raw
    adherent: bool | None = raw >= config.turn_threshold
    if config.output_mode == "binary":
        adherent = raw > 0.5
    if with_evidence[0].imputed:
        adherent = None
    elif config.calibration is not None:
        score, adherent = config.calibration.probability(raw), raw >= config.calibration.threshold
    coverages = [turn.coverage for turn in turns if turn.coverage is not None]
    return AdherenceTurn(
        turn=turns[0].turn,
        score=score,
        adherent=adherent,
        coverage=min(coverages, default=None),
        raw_score=None if score is raw else raw,
        imputed=with_evidence[0].imputed,
        reason=next((turn.reason for turn in with_evidence if turn.adherent is adherent), None),
    )
