"""Role adherence of one turn alone, to hold two versions of it against each other.

The question is the one the stage asks about that turn, on the same trunk, so for a turn the stage has
scored the reply is in the log already.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from curate.adherence.adherence_prompts import nested_trunks
from curate.adherence.config import AdherenceConfig
from curate.adherence.llm import ask_answers, turn_of
from curate.dialogue import Dialogue
from curate.engines.base import Ask, Completion, Request
from curate.records import AdherenceTurn


async def score_turn(
    dialogue: Dialogue, turn_number: int, ask: Ask, config: AdherenceConfig
) -> AdherenceTurn:
    """Score one assistant turn of a dialogue that has a role, shown up to that turn.

    Args:
        dialogue: later turns are not shown.
        turn_number: of a turn with an assistant message (0 included).
        ask: the judge; asked once, and again (`config.retries`) where a reply cannot be read.
        config: its `output_mode` resolved. Whatever its granularity, the turn is asked about; no reason is.

    Returns:
        The turn's score in [0, 1], or `unscored` with the reason code.

    Raises:
        KeyError: the dialogue has no such turn.
    """
    config = config.model_copy(update={"evaluation_granularity": "turn"})
    numbers = [turn.number for turn in dialogue.turns if turn.has_assistant]
    trunk = dict(zip(numbers, nested_trunks(dialogue, config), strict=True))[turn_number]

    async def ask_about_role(requests: Sequence[Request]) -> list[Completion]:
        return await ask([replace(request, purpose="adherence.role") for request in requests])

    [answer], _ = await ask_answers([trunk], ask_about_role, config)
    return turn_of(turn_number, answer)
