"""The multi-turn rubric judge: one dialogue in, one `Judgment` or `Unscored` out.

A dialogue is one straight-line coroutine. Up to `max_turns` scored turns are asked about on one trunk;
longer dialogues (and those that do not fit the model's context) in windows, whose scores are stitched
before any rule sees them, with the conversation scores from one further call. Verdict and weakest turn
are computed from the scores; what the judge itself said stands beside them, and one call more asks for words. A failure of any kind ends
as a state with a reason, never as a score.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from curate.dialogue import Dialogue
from curate.engines.base import Ask
from curate.judging.config import RubricConfig
from curate.judging.session import (
    Failure,
    Page,
    PageReading,
    Scope,
    Session,
    open_session,
    refuse,
    shared_reason,
)
from curate.judging.text import add_words
from curate.judging.verdict import rule_verdict, weakest_turn
from curate.judging.windowed import Outcome, ask_scope, judge_windows
from curate.judging.windows import halves, plan_windows, stitch
from curate.records import JudgeIdentity, Judgment, Unscored, UnscoredReason


async def judge_dialogue(
    dialogue: Dialogue, ask: Ask, config: RubricConfig, identity: JudgeIdentity
) -> Judgment | Unscored:
    """Judge one dialogue turn by turn and as a whole.

    Args:
        dialogue: at least one turn with an assistant message, and a scenario unless the config skips it.
        config: with `mode` resolved (`resolve_mode`).

    Returns:
        The judgment; or `Unscored` with reason no_assistant_turn, missing_scenario, context_overflow,
        bad_reply, reply_cut, low_coverage, engine_error, unscored_turns or rejected_mismatch.

    Raises:
        UsageError: `config.mode` is still `auto`.
    """
    session = open_session(dialogue, ask, config)
    refusal = refuse(dialogue, config)
    if refusal is not None:
        return session.unscored(refusal)
    scored = [turn.number for turn in dialogue.turns if turn.in_rubric]
    outcome = await _score(session, scored)
    if isinstance(outcome, Failure):
        return session.unscored(outcome)
    record = conclude(session, identity, len(scored), outcome)
    return (
        record if isinstance(record, Unscored) else await add_words(session, outcome.page, record)
    )


async def _score(session: Session, scored: Sequence[int]) -> Outcome | Failure:
    """Return all scores of a dialogue: on one trunk where that is allowed and fits, else in windows."""
    turns, config = session.dialogue.turns, session.config
    windows = plan_windows(scored, config)
    whole_overflows = False
    if len(windows) == 1:
        scope = Scope(tuple(scored), True, True, tuple(scored), is_final=True)
        page = Page(turns)
        reading = await ask_scope(session, page, scope)
        if isinstance(reading, PageReading):
            return _single(reading, page)
        if not reading.is_overflow or len(scored) == 1:
            return reading
        session.remark("split: context_overflow")
        whole_overflows = True
        windows = plan_windows(scored, config, max_turns=1)
        if len(windows) == 1:
            windows = halves(windows[0])
    return await judge_windows(session, windows, whole_overflows=whole_overflows)


def _single(reading: PageReading, page: Page) -> Outcome:
    return Outcome(
        windows=[reading.turns],
        unscored=list(reading.unscored),
        conversation=reading.conversation,
        conversation_fault=reading.conversation_fault,
        final=reading,
        page=page,
    )


def conclude(
    session: Session, identity: JudgeIdentity, turns_to_score: int, outcome: Outcome
) -> Judgment | Unscored:
    """Put the record together: stitched scores, rules, what the judge said, what is missing.

    Args:
        turns_to_score: how many turns were to be scored.
    """
    stitched = stitch(outcome.windows)
    per_turn = stitched.per_turn
    scored_numbers = {turn.turn for turn in per_turn}
    unscored = list(
        {turn.turn: turn for turn in outcome.unscored if turn.turn not in scored_numbers}.values()
    )
    least = session.config.min_scored_share
    if unscored and (least is None or not per_turn or len(per_turn) / turns_to_score < least):
        return session.unscored(shared_reason(unscored, turns_to_score))
    level = outcome.conversation
    if level is None:
        fault = outcome.conversation_fault or Failure(
            UnscoredReason.BAD_REPLY, "no conversation scores"
        )
        return session.unscored(replace(fault, detail=f"conversation: {fault.detail}".rstrip(": ")))
    verdict, weakest, final = rule_verdict(per_turn, level), weakest_turn(per_turn), outcome.final
    mismatch = None if final.verdict is None else final.verdict != verdict
    if mismatch and session.config.on_mismatch == "reject":
        detail = f"the judge said {final.verdict}, its scores give {verdict}"
        return session.unscored(Failure(UnscoredReason.REJECTED_MISMATCH, detail))
    dialogue = session.dialogue
    for name, count in session.thoughts.items():
        if count:
            session.remark(f"{name}: {count}")
    return Judgment(
        dialogue_id=dialogue.id,
        content_hash=dialogue.content_hash,
        identity=identity,
        per_turn=per_turn,
        conversation_level=level,
        verdict=verdict,
        judge_verdict=final.verdict,
        verdict_mismatch=mismatch,
        decision_basis=final.basis,
        weakest_turn=weakest,
        judge_weakest_turn=final.weakest,
        weakest_mismatch=final.weakest != weakest if final.has_weakest else None,
        weakest_probabilities=final.weakest_probabilities,
        unscored_turns=tuple(unscored),
        windows=tuple(outcome.opinions),
        overlap_disagreement=stitched.disagreement,
        neutralised=session.trunk(Page(dialogue.turns)).neutralised,
        remarks=tuple(session.remarks),
        requests=session.requests,
    )
