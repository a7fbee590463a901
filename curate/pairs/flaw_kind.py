"""Ask the judge of which kind a known flaw is; the kinds and their words are handed in."""

from __future__ import annotations

import random
from collections.abc import Mapping

from curate.dialogue import Dialogue
from curate.engines.prompt_files import fill, prompt_sections
from curate.pairs.pair_prompts import ClosedQuestion, closed, fenced_tools, lettered_options


def kind_question(
    dialogue: Dialogue, turn: int, kinds: Mapping[str, str], draw: random.Random
) -> ClosedQuestion:
    """Ask which of several kinds the flaw of a turn is, the options in an order by chance.

    One order a question: over many cases a taste for a letter or a place favours no kind, and every order would
    cost as many questions as there are kinds.

    Args:
        dialogue: with the flaw.
        turn: number of the turn that has it.
        kinds: at most 26, each with its words.
        draw: of the order.
    """
    order = draw.sample(list(kinds), len(kinds))
    letters, options = lettered_options({kind: kinds[kind] for kind in order})
    tools = fenced_tools(dialogue)
    text = fill(
        prompt_sections("pairs", "flaw_kind")["kind"],
        tools=tools.text,
        turn=str(turn),
        options=options,
    )
    return closed(dialogue, text, letters, "pairs.kind", tools.count)
