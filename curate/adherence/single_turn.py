"""Role adherence of one turn alone, to hold two versions of it against each other.

The question is the one the stage asks about that turn, on the same trunk, so for a turn the stage has
scored the reply is in the log already.
"""

from __future__ import annotations

from dataclasses import replace

from curate.adherence.config import AdherenceConfig
from curate.adherence.prompting import nested_trunks, turn_request
from curate.adherence.reading import Answer, read_answer
from curate.dialogue import Dialogue
from curate.engines.base import Ask
from curate.records import AdherenceTurn

_PROBLEMS = {"reply_cut": "it was too long", "bad_reply": "it was neither YES nor NO"}


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
    answer, problem = Answer(), None
    for attempt in range(config.retries + 1):
        asked = turn_request(trunk, config, problem)
        # With an index of its own, or the reply log would answer a second retry with the reply to the first.
        request = replace(asked, purpose="adherence.role", sample=attempt)
        (completion,) = await ask([request])
        answer = read_answer(completion, config)
        problem = _PROBLEMS.get(answer.reason or "")
        if problem is None:
            break
    return AdherenceTurn(
        turn=turn_number,
        score=answer.score,
        adherent=answer.adherent,
        coverage=answer.coverage,
        raw_score=answer.raw_score,
        imputed=answer.imputed,
        unscored=answer.reason,
    )
