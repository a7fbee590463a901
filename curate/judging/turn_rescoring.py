"""One turn asked about by itself: scored afresh for verification, or described for a reviser.

Both see the dialogue up to that turn and no further, so that two versions of the turn are treated alike
and nothing that came later leaks in.
"""

from __future__ import annotations

import re

from curate.dialogue import Dialogue, Turn, split_thinking
from curate.engines.base import Ask, Request
from curate.errors import UsageError
from curate.judging.config import RubricConfig
from curate.judging.ledger import Ledger
from curate.judging.rubric_prompts import check_wording, resolve_texts
from curate.judging.session import (
    Page,
    PageReading,
    Scope,
    Session,
    fault_of,
    open_session,
    refuse,
    shared_reason,
)
from curate.judging.windowed import ask_scope
from curate.records import TURN_DIMENSIONS, TurnReading, Unscored
from curate.records.readings import turn_value


def shown_up_to(dialogue: Dialogue, turn_number: int) -> tuple[Turn, ...]:
    """Return the dialogue's turns up to and including a scored one.

    Raises:
        UsageError: there is no such turn, or it has no assistant message.
    """
    turns = dialogue.turns
    for index, turn in enumerate(turns):
        if turn.number == turn_number and turn.in_rubric:
            return turns[: index + 1]
    scored = [turn.number for turn in turns if turn.in_rubric]
    raise UsageError(
        f"dialogue {dialogue.id} has no turn {turn_number} to score", expected=f"one of {scored}"
    )


async def score_turn(
    dialogue: Dialogue, turn_number: int, ask: Ask, config: RubricConfig, *, wording: int = 0
) -> TurnReading | Unscored:
    """Score one turn in a fresh context, with one of several paraphrases of the question.

    The dialogue is shown up to that turn and no further, so that two versions of the turn are scored
    alike. Where that does not fit, a ledger stands for the turns before the last few, or all of them.

    Args:
        wording: number of the paraphrase, in [0, len(WORDINGS)).

    Returns:
        Scores per dimension, 1-5: expectations in mode tokens, integers in mode json; or `Unscored`.

    Raises:
        UsageError: no such turn or wording, or the mode is not resolved.
    """
    check_wording(wording)
    session = open_session(dialogue, ask, config.model_copy(update={"text": "off"}))
    turns = shown_up_to(dialogue, turn_number)
    refusal = refuse(dialogue, config)
    if refusal is not None:
        return session.unscored(refusal)
    ledger, scope, start = Ledger(session), Scope((turn_number,)), 0
    while True:
        reading = await ask_scope(session, Page(turns[start:], ledger.text), scope, wording=wording)
        if isinstance(reading, PageReading):
            break
        remaining = len(turns) - start
        if not reading.is_overflow or remaining == 1:
            return session.unscored(reading)
        start = len(turns) - min(remaining - 1, max(1, remaining // 2))
        failure = await ledger.cover(start)
        if failure is not None:
            return session.unscored(failure)
    if reading.unscored:
        return session.unscored(shared_reason(reading.unscored, 1))
    (turn,) = reading.turns
    values = {name: turn_value(turn, name) for name in TURN_DIMENSIONS}
    return TurnReading(turn=turn_number, values=values, wording=wording)


async def describe_issue(
    dialogue: Dialogue, turn_number: int, ask: Ask, config: RubricConfig
) -> str:
    """Ask what is wrong with a turn, in one or two sentences, for whoever revises it.

    The dialogue is shown up to that turn; where it does not fit, fewer of the turns before it are.
    A reply that was cut ends at its last whole sentence (or word), with an ellipsis.

    Returns:
        The description; the empty string where the judge gave none (fault or empty reply), which a
        reviser reads as "no hint".

    Raises:
        UsageError: the dialogue has no such turn to score.
    """
    session = Session(dialogue, config, resolve_texts(config), ask)
    turns = shown_up_to(dialogue, turn_number)
    while True:
        request = Request(
            session.trunk(Page(turns)),
            session.texts.question("issue", turn=turn_number),
            max_tokens=config.issue_max_tokens,
            purpose="judge.issue",
        )
        (completion,) = await session.ask([request])
        fault = fault_of(completion)
        if fault is None:
            return _whole_sentences(completion.text, cut=completion.finish == "length")
        if not fault.is_overflow or len(turns) == 1:
            return ""
        turns = turns[len(turns) // 2 :]


def _whole_sentences(text: str, *, cut: bool) -> str:
    text = " ".join(split_thinking(text)[0].split())
    if not cut or not text:
        return text
    ends = [match.end() for match in re.finditer(r"[.!?。!?](?=\s|$)|[。!?]", text)]
    if ends:
        return text[: ends[-1]]
    return text.rsplit(" ", 1)[0] + " …"
