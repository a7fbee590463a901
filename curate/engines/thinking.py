"""A bounded thought before a label is read.

The first token of a model that thinks before it answers says little. Here it gets two requests on one trunk: first for
a thought, up to the bound, then for the label, behind that thought. Replies with their thoughts are kept as any others
are; records hold no thoughts.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from curate.dialogue import split_thinking
from curate.engines.base import Ask, Completion, Request
from curate.engines.layout import take_apart

THOUGHT = ".thought"
"""End of the purpose of a call for a thought."""
OPENING = "<think>"
CLOSING = "\n</think>\n\n"
_CLOSED = re.compile(r"</think(?:ing)?>", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Thought:
    """A model's thought before its answer.

    Attributes:
        text: the thought; empty where the model did not think.
        is_cut: True if the thought reached its token limit.
    """

    text: str
    is_cut: bool


def begun_reply(request: Request, special: re.Pattern[str], *, opens_thought: bool) -> str:
    """Return the forced start of a reply: the thought in its marks and, unless there is a schema, the prefill.

    A schema forces the start of the reply by itself, see `Request.prefill`.

    Args:
        special: finds the special tokens of the engine's tokenizer, which are taken apart in the thought.
        opens_thought: the template begins every reply with a thought, which is closed before a forced start.
    """
    prefill = "" if request.schema is not None else request.prefill
    if request.thought:
        opening = "" if opens_thought else f"{OPENING}\n"
        return f"{opening}{take_apart(request.thought, special)}{CLOSING}{prefill}"
    is_forced = bool(request.labels) or request.schema is not None
    return f"{CLOSING}{prefill}" if opens_thought and is_forced else prefill


def read_thought(completion: Completion, labels: Sequence[str] = ()) -> Thought:
    """Return the thought in a reply: separated by the server, between thinking tags, or the whole text without tags.

    Without a mark the template opened the thought and the bound ended it, or the model thinks without marks. One
    that does not think answers at once; its bare label is no thought, and put into the marks it would be read there.
    """
    is_cut = completion.finish == "length"
    if completion.thought:
        return Thought(completion.thought.strip(), is_cut and not completion.text.strip())
    rest, thought = split_thinking(completion.text)
    if thought is None:
        text = rest.strip()
        return Thought("" if text.strip("()[]*.") in labels else text, is_cut)
    return Thought(thought, is_cut and _CLOSED.search(completion.text) is None)


async def ask_with_thoughts(
    ask: Ask, requests: Sequence[Request], tokens: int
) -> tuple[list[Completion], Counter[str]]:
    """Answer requests, label reads behind a thought, others with room for one. Without a thought they are plain reads.

    Args:
        tokens: bound of a thought.

    Returns:
        A completion for each request, and counts: `thoughts_cut` at the bound, `thoughts_missing` of a model that
        answered at once. Where a call for a thought failed, its fault is the answer.
    """
    reads = [index for index, request in enumerate(requests) if request.labels]
    answers: dict[int, Completion] = {}
    thoughts: dict[int, Thought] = {}
    if reads:
        replies = await ask([_about(requests[index], tokens) for index in reads])
        for index, reply in zip(reads, replies, strict=True):
            if reply.fault is not None or reply.finish == "error":
                answers[index] = reply
            else:
                thoughts[index] = read_thought(reply, requests[index].labels)
    final = {
        index: replace(request, thought=thoughts[index].text)
        if index in thoughts
        else replace(request, max_tokens=request.max_tokens + tokens)
        for index, request in enumerate(requests)
        if index not in answers
    }
    if final:
        answers.update(zip(final, await ask(list(final.values())), strict=True))
    counts = Counter(
        thoughts_cut=sum(thought.is_cut for thought in thoughts.values()),
        thoughts_missing=sum(not thought.text for thought in thoughts.values()),
    )
    return [answers[index] for index in range(len(requests))], counts


def _about(request: Request, tokens: int) -> Request:
    """Return the request for the thought before a label."""
    stage = request.purpose.partition(".")[0]
    return replace(request, labels=(), prefill="", max_tokens=tokens, purpose=f"{stage}{THOUGHT}")
