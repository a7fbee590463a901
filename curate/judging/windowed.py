"""A long dialogue, window by window, and the one call that sees it whole.

The coroutine behind `judge_dialogue` for more turns than one call takes, and for dialogues that turn out
not to fit the model's context. Where windows lie and how their scores are put together is `windows`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from curate.dialogue import Turn
from curate.judging.json_mode import ask_json
from curate.judging.ledger import Ledger
from curate.judging.session import Failure, Page, PageReading, Scope, Session
from curate.judging.tokens_mode import ask_tokens
from curate.judging.windows import Window, halves, lowest_conversation, stitch
from curate.records import ConversationLevel, TurnScores, UnscoredTurn, WindowOpinion


@dataclass(slots=True)
class Outcome:
    """All that was found out about a dialogue, before any rule.

    Attributes:
        final: the reading whose verdict and weakest turn are the judge's own on the whole dialogue.
        page: the most of the dialogue that the judge was shown at once, its end included.
    """

    windows: list[tuple[TurnScores, ...]] = field(default_factory=list)
    unscored: list[UnscoredTurn] = field(default_factory=list)
    conversation: ConversationLevel | None = None
    conversation_fault: Failure | None = None
    final: PageReading = field(default_factory=PageReading)
    page: Page = field(default_factory=lambda: Page(()))
    opinions: list[WindowOpinion] = field(default_factory=list)


async def ask_scope(
    session: Session, page: Page, scope: Scope, *, wording: int | None = None
) -> PageReading | Failure:
    """Ask about one page in the config's mode; `wording` names the one paraphrase, None leaves it to the mode."""
    if session.config.mode == "tokens":
        return await ask_tokens(session, page, scope, wording=wording)
    return await ask_json(session, page, scope, wording=wording or 0)


def shown_of(turns: Sequence[Turn], window: Window) -> range:
    """Return what a window of a dialogue with these turns shows, as indices into them.

    Its scored turns, the turns without an assistant that stand before each of them, and, in the last
    window, all that is left.
    """
    scored = [index for index, turn in enumerate(turns) if turn.in_rubric]
    index_of = {turns[index].number: index for index in scored}
    first, last = index_of[window.turns[0]], index_of[window.turns[-1]]
    before = [index for index in scored if index < first]
    start = before[-1] + 1 if before else 0
    return range(start, len(turns) if last == scored[-1] else last + 1)


async def judge_windows(
    session: Session, windows: Sequence[Window], *, whole_overflows: bool
) -> Outcome | Failure:
    """Score a long dialogue window by window, then the conversation.

    A window that does not fit is split, down to one turn; a turn that does not fit alone is unscored.
    Without `min_scored_share` the first turn that stays unscored ends the work: the dialogue is
    unscored anyway.
    """
    config, turns = session.config, session.dialogue.turns
    outcome, ledger = Outcome(), Ledger(session)
    levels: list[ConversationLevel] = []
    is_full = config.window_context == "full"
    per_window = config.conversation == "windows"
    queue, last_stop = deque(windows), None
    while queue:
        window = queue.popleft()
        span = shown_of(turns, window)
        if is_full:
            page = Page(turns[: span.stop])
        else:
            failure = await ledger.cover(span.start, shown_stop=last_stop)
            if failure is not None:
                return failure
            page = Page(turns[span.start : span.stop], ledger.text)
        scope = Scope(window.turns, per_window, True, window.turns)
        reading = await ask_scope(session, page, scope)
        if isinstance(reading, Failure) and reading.is_overflow and is_full:
            # All earlier turns no longer fit: from here on the ledger stands for them.
            session.remark("full_context_to_summary: context_overflow")
            is_full, whole_overflows = False, True
            queue.appendleft(window)
            continue
        if isinstance(reading, Failure) and reading.is_overflow and len(window.turns) > 1:
            session.remark("split: context_overflow")
            queue.extendleft(reversed(halves(window)))
            continue
        last_stop = None if is_full else span.stop
        outcome.page = page
        if isinstance(reading, Failure):
            if config.min_scored_share is None:
                return replace(
                    reading, detail=f"turn {window.turns[0]}: {reading.detail}".rstrip(": ")
                )
            outcome.unscored += [
                UnscoredTurn(turn=turn, reason=reading.reason, detail=reading.detail)
                for turn in window.turns
            ]
            continue
        _collect(outcome, levels, window, reading)
    # A minimum over some of the windows is no minimum over the dialogue, unless gaps are allowed.
    has_gap = outcome.conversation_fault is not None and config.min_scored_share is None
    if per_window and levels and not has_gap:
        outcome.conversation = lowest_conversation(levels)
    if not whole_overflows:
        outcome.page = Page(turns)
    if not per_window and outcome.windows:
        await judge_conversation(
            session, outcome, ledger, windows[-1], whole_overflows=whole_overflows
        )
    return outcome


def _collect(
    outcome: Outcome, levels: list[ConversationLevel], window: Window, reading: PageReading
) -> None:
    outcome.windows.append(reading.turns)
    outcome.unscored += reading.unscored
    if reading.conversation is not None:
        levels.append(reading.conversation)
    elif reading.conversation_fault is not None:
        outcome.conversation_fault = reading.conversation_fault
    outcome.opinions.append(
        WindowOpinion(
            first_turn=window.turns[0],
            last_turn=window.turns[-1],
            verdict=reading.verdict,
            weakest_turn=reading.weakest,
        )
    )


async def judge_conversation(
    session: Session, outcome: Outcome, ledger: Ledger, last: Window, *, whole_overflows: bool
) -> None:
    """Make the further call of a windowed dialogue: over the whole text, else the ledger and the last turns.

    Only over the whole text is the judge asked for the weakest turn; it cannot name one it cannot see.
    """
    turns = session.dialogue.turns
    per_turn = stitch(outcome.windows).per_turn
    scope = Scope((), True, True, tuple(turn.turn for turn in per_turn), per_turn, is_final=True)
    if not whole_overflows:
        reading = await ask_scope(session, outcome.page, scope)
        if not (isinstance(reading, Failure) and reading.is_overflow):
            _settle(outcome, reading)
            return
    session.remark("conversation: ledger and last window")
    scope = replace(scope, weakest=())
    window = last
    while True:
        span = shown_of(turns, window)
        start = max(span.start, ledger.covered)
        failure = await ledger.cover(start)
        if failure is not None:
            _settle(outcome, failure)
            return
        outcome.page = Page(turns[start:], ledger.text)
        reading = await ask_scope(session, outcome.page, scope)
        is_overflow = isinstance(reading, Failure) and reading.is_overflow
        if not is_overflow or len(window.turns) == 1:
            _settle(outcome, reading)
            return
        window = halves(window)[1]


def _settle(outcome: Outcome, reading: PageReading | Failure) -> None:
    if isinstance(reading, Failure):
        outcome.conversation_fault = reading
        return
    outcome.conversation = reading.conversation
    outcome.conversation_fault = reading.conversation_fault
    outcome.final = reading
