"""Questions about a candidate turn before it is forked, where an option of the recipe needs them.

Both answers are one of a closed set; one that cannot be read drops the turn as `unscored`.
"""

from __future__ import annotations

from dataclasses import replace

from curate.dialogue import Dialogue
from curate.pairs.closed_questions import ask_choice
from curate.pairs.config import ForkConfig
from curate.pairs.fork_points import (
    ForkPoint,
    assistant_messages,
    at_message,
    failure_options,
    flaws_by_turn,
)
from curate.pairs.judge_functions import ForkAsks
from curate.pairs.pair_prompts import NONE, failed_questions, suffices_questions
from curate.pairs.prefix import with_messages
from curate.pairs.verification import CheckOutcome, unscored_check
from curate.records import DropReason, Judgment, PairCheck


async def repair_suffices(
    dialogue: Dialogue, judgment: Judgment, point: ForkPoint, asks: ForkAsks, config: ForkConfig
) -> CheckOutcome:
    """Ask, with `at: earliest`, whether repairing the turn would repair the bad ones after it; else no call."""
    nothing = PairCheck()
    flaws = flaws_by_turn(judgment, config)
    later = sorted(turn for turn, names in flaws.items() if names and turn > (point.turn or 0))
    if config.at != "earliest" or not later or point.turn is None:
        return CheckOutcome(nothing)
    questions = suffices_questions(dialogue, point.turn, later)
    choice = await ask_choice(questions, asks.judging, config.min_coverage)
    if choice.best is None:
        return unscored_check(nothing, choice.reason, f"does it suffice: {choice.detail}")
    if choice.best != "yes":
        later_turns = ", ".join(map(str, later))
        detail = f"the judge says that a fault of turn {later_turns} would stay"
        return CheckOutcome(nothing, DropReason.DOES_NOT_SUFFICE, detail)
    return CheckOutcome(nothing)


async def failed_message(
    dialogue: Dialogue, point: ForkPoint, asks: ForkAsks, config: ForkConfig
) -> tuple[ForkPoint, str] | CheckOutcome:
    """Ask, with `tool_turns: failed_message`, which message failed; return the point there, and how it failed.

    Where it can name none the fork is at the turn's last text, as without the option. A finding where its
    answer cannot be read.
    """
    turn = next(turn for turn in dialogue.turns if turn.number == point.turn)
    options = failure_options(turn) if config.tool_turns == "failed_message" else {}
    if not options:
        return point, ""
    messages = [message for _, message in assistant_messages(turn)]
    part = with_messages(dialogue, dialogue.messages[: turn.stop])
    texts = {key: failure.meaning for key, failure in options.items()}
    questions = failed_questions(part, turn.number, messages, texts)
    choice = await ask_choice(questions, asks.judging, config.min_coverage)
    if choice.best is None:
        return unscored_check(PairCheck(), choice.reason, f"which message failed: {choice.detail}")
    if choice.best == NONE:
        return at_message(dialogue, replace(point, index=turn.last_assistant_text)), ""
    failure = options[choice.best]
    return at_message(dialogue, replace(point, index=failure.index)), failure.issue
