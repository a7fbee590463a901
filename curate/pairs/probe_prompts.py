"""Prompts of `curate probe` beside scores: which kind a known flaw is, and to plant one; kinds are handed in."""

from __future__ import annotations

import random
from collections.abc import Mapping

from curate.dialogue import Dialogue, Message, split_thinking
from curate.engines.base import Ask, Request
from curate.engines.layout import trunk
from curate.engines.prompt_files import fill, prompt_sections
from curate.pairs.pair_prompts import (
    ClosedQuestion,
    closed,
    fenced_message,
    fenced_tools,
    lettered_options,
)


def kind_question(
    dialogue: Dialogue, turn: int, kinds: Mapping[str, str], draw: random.Random
) -> ClosedQuestion:
    """Ask which of several kinds the flaw of a turn is, the options in an order by chance.

    One order a question: over many cases a taste for a letter or a place favours no kind, and every order would
    cost as many questions as there are kinds.

    Args:
        dialogue: with the flaw.
        kinds: at most 26, each with its words.
    """
    order = draw.sample(list(kinds), len(kinds))
    letters, options = lettered_options({kind: kinds[kind] for kind in order})
    tools = fenced_tools(dialogue)
    text = fill(
        prompt_sections("pairs", "probe")["kind"],
        tools=tools.text,
        turn=str(turn),
        options=options,
    )
    return closed(dialogue, text, letters, "pairs.kind", tools.count)


_TRIES = 3
_CHARACTERS_PER_TOKEN = 2
"""Room for a rewritten message: scripts with long tokens need less, none that is common needs more."""


async def rewritten(
    prompt: Dialogue, message: Message, fault: str | None, slack: float, policy: Ask
) -> Message | str:
    """Have a policy model rewrite a message, with one fault or to the same meaning.

    Args:
        prompt: the dialogue with what stands before the message.
        message: with text and no tool call.
        fault: the sentence of a flaw; None for the same meaning.
        slack: by which share of its length the text may be longer or shorter.
        policy: the model; asked up to three times.

    Returns:
        The message, or why there is none: `fault` of the engine, `empty`, `unchanged` or `length`.
    """
    text = message.content.strip()
    least, most = (round(len(text) * (1 + way * slack)) for way in (-1, 1))
    sections = prompt_sections("pairs", "probe")
    values = {"message": fenced_message("reply", message).text, "least": least, "most": most}
    question = fill(sections["reword"], **values)
    if fault is not None:
        question = fill(sections["plant"], fault=fault, **values)
    reason = ""
    for sample in range(_TRIES):
        request = Request(
            trunk(sections["rewrite"], prompt, prompt.turns),
            f"{question}\n",
            max_tokens=32 + len(text) // _CHARACTERS_PER_TOKEN,
            temperature=0.0 if sample == 0 else 1.0,
            sample=sample,
            purpose="probe.plant" if fault is not None else "probe.reword",
        )
        (completion,) = await policy([request])
        if completion.fault is not None:
            return f"fault: {completion.fault.kind}"
        other = split_thinking(completion.text)[0].strip()
        if not other or completion.finish == "length":
            reason = "empty" if not other else "length"
        elif other == text:
            reason = "unchanged"
        elif not least <= len(other) <= most:
            reason = "length"
        else:
            return message.model_copy(update={"content": other})
    return reason
