"""Planted twins: a reply of a dialogue beside a copy of it with one known flaw. Pure, no model.

Which of the two is better is known without anybody's opinion, so twins show whether a judge can tell the
coarse differences apart, and a curve can be fitted to its readings of them. They are no proof for finer
differences: a judge that sees an evasion may still not see which of two honest replies is better.

The edits themselves, within 10 % of a reply's length, are `plants`.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import get_args

from curate.dialogue import Dialogue, Message
from curate.trust.plants import LEAST_CHARACTERS, Place, TwinKind, degrade

TWIN_KINDS: tuple[TwinKind, ...] = get_args(TwinKind)

_PER_DIALOGUE = 2
_OTHERS = 400  # other dialogues' replies that a planted flaw may take words from


@dataclass(frozen=True, slots=True)
class Twin:
    """An original reply and its degraded copy.

    Attributes:
        dialogue: whole, as it came.
        index: which of its messages the two stand in place of.
        turn: number of the turn that message is part of, from 1.
        kind: what was planted.
        degraded: the message with the flaw.
    """

    dialogue: Dialogue
    index: int
    turn: int
    kind: TwinKind
    degraded: Message

    @property
    def original(self) -> Message:
        """The reply as it was, the better side."""
        return self.dialogue.messages[self.index]

    @property
    def prompt(self) -> tuple[Message, ...]:
        """The messages before both replies."""
        return self.dialogue.messages[: self.index]


def plant_twins(
    dialogues: Sequence[Dialogue],
    count: int,
    *,
    kinds: Sequence[TwinKind] = TWIN_KINDS,
    seed: int = 42,
) -> list[Twin]:
    """Plant one flaw each in up to `count` replies, the kinds as even as the dialogues allow.

    A dialogue gives one twin; where there are too few dialogues a second, of another turn and another kind.

    Args:
        dialogues: that are good as they are; the flaw is meant to be their only one.
        count: most twins; fewer where fewer dialogues have a place for a flaw.
        kinds: which flaws.
        seed: of the draws; equal arguments give equal twins.

    Raises:
        ValueError: `count` below 1.
    """
    if count < 1:
        raise ValueError(f"count must be at least 1, got {count}")
    draw = random.Random(seed)
    order = draw.sample(range(len(dialogues)), len(dialogues))
    replies = [(at, text) for at in order for text in _replies(dialogues[at])]
    planted: Counter[TwinKind] = Counter()
    twins: dict[int, list[Twin]] = {at: [] for at in order}
    for at in order * _PER_DIALOGUE:
        if planted.total() == count:
            break
        sampled = draw.sample(replies, min(len(replies), _OTHERS))
        others = [text for other, text in sampled if other != at]
        used = {twin.kind for twin in twins[at]}
        # The kind with fewest twins so far first; ties by chance.
        for kind in sorted(draw.sample(kinds, len(kinds)), key=planted.__getitem__):
            if kind in used:
                continue
            twin = _plant(dialogues[at], kind, others, draw, {twin.turn for twin in twins[at]})
            if twin is not None:
                planted[kind] += 1
                twins[at].append(twin)
                break
    return [twin for of_dialogue in twins.values() for twin in of_dialogue]


def _replies(dialogue: Dialogue) -> Iterator[str]:
    for message in dialogue.messages:
        if message.role == "assistant" and message.content.strip():
            yield message.content.strip()


def _plant(
    dialogue: Dialogue,
    kind: TwinKind,
    others: Sequence[str],
    draw: random.Random,
    used: Collection[int],
) -> Twin | None:
    """Return the twin of one kind at some reply of a turn not yet used, later replies as likely as early ones."""
    calls = kind in ("wrong_tool", "wrong_argument")
    places = [
        Place(dialogue, turn.start + offset, turn.number, others, draw)
        for turn in dialogue.turns
        if turn.in_rubric and turn.number not in used
        for offset, message in enumerate(turn.messages)
        if message.role == "assistant"
        and (
            bool(message.tool_calls)
            if calls
            else not message.tool_calls and len(message.content.strip()) >= LEAST_CHARACTERS
        )
    ]
    for place in draw.sample(places, len(places)):
        degraded = degrade(place, kind)
        if degraded is not None:
            return Twin(dialogue, place.index, place.turn, kind, degraded)
    return None
