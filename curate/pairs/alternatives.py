"""Alternatives in the data: two sides, and what says that one is better. Pure.

Dialogues of one group (one task, one tree, one chosen/rejected row) are alternatives. Four things can say which
side is better, and `Couple.basis` names the one that did:

- `preference`: labels['preference'] is 'chosen' or 'rejected'. Both must share everything up to one final
  assistant message.
- `rank`: labels['message_ranks'], aligned with the messages (0 is best, None unknown). Sibling assistant
  messages after the same prefix, lower rank against higher.
- `label`: labels['message_labels'], likewise; the value of one named label (OASST's `quality`), for
  siblings of which none has a rank.
- `reward`: the trajectories through a message give it a value, their mean reward. Siblings where
  trajectories part, higher value against lower. The mean keeps two trials from voting for opposite
  pairs at the same place.

Ranks, labels and rewards work on the group's prefix tree, walked from the root, so a group costs time and memory
in proportion to its messages and not to its pairs of dialogues. Messages are compared by what they say:
call ids, thinking and surrounding space do not part two trajectories.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, product
from statistics import fmean
from typing import Any

from curate.dialogue import Dialogue, Message
from curate.pairs.config import NaturalBasis, NaturalConfig
from curate.pairs.prefix import canonical
from curate.records import DropReason


@dataclass(frozen=True, slots=True)
class Side:
    """One side: a message in a dialogue."""

    dialogue: Dialogue
    depth: int

    @property
    def message(self) -> Message:
        """The message itself."""
        return self.dialogue.messages[self.depth]

    @property
    def prefix(self) -> tuple[Message, ...]:
        """The messages before it."""
        return self.dialogue.messages[: self.depth]

    @property
    def turn(self) -> int | None:
        """The number of the turn that it is part of."""
        turns = self.dialogue.turns
        return next((turn.number for turn in turns if turn.start <= self.depth < turn.stop), None)


@dataclass(frozen=True, slots=True)
class Couple:
    """Two sides and what says that one is better.

    Attributes:
        better, worse: None where the data lacks that side; never both.
        why: what the basis says, in words.
        drop_reason: reason code where the basis itself drops the couple.
    """

    basis: NaturalBasis
    better: Side | None
    worse: Side | None
    why: str
    drop_reason: DropReason | None = None

    @property
    def anchor(self) -> Side:
        """The side whose dialogue names the pair: the better one, where there is one."""
        side = self.better or self.worse
        assert side is not None, "a couple without sides"
        return side


def find_couples(members: Sequence[Dialogue], config: NaturalConfig) -> Iterator[Couple]:
    """Yield the couples of one group, dropped ones too: by preference, then the earliest forks first."""
    members = [dialogue for dialogue in members if dialogue.messages]
    if "preference" in config.bases:
        yield from _by_preference(members)
    if {"rank", "label", "reward"} & {*config.bases}:
        for depth, children in _branches(members):
            if "rank" in config.bases:
                yield from _by_rank(depth, children, config)
            if "label" in config.bases:
                yield from _by_label(depth, children, config)
            if "reward" in config.bases:
                yield from _by_reward(depth, children, config)


def _by_preference(members: Sequence[Dialogue]) -> Iterator[Couple]:
    """Yield every chosen against every rejected dialogue of the group."""
    chosen, rejected = (
        [
            Side(dialogue, len(dialogue.messages) - 1)
            for dialogue in members
            if dialogue.labels.get("preference") == label
        ]
        for label in ("chosen", "rejected")
    )
    for better, worse in product(chosen, rejected):
        why, drop_reason = "labelled in the data", None
        if not (
            better.dialogue.tools == worse.dialogue.tools
            and [*map(canonical, better.prefix)] == [*map(canonical, worse.prefix)]
        ):
            why, drop_reason = (
                "the dialogues differ before their last message",
                DropReason.PROMPTS_DIFFER,
            )
        elif {better.message.role, worse.message.role} != {"assistant"}:
            why, drop_reason = "a side does not end with an assistant message", DropReason.NO_REPLY
        yield Couple("preference", better, worse, why, drop_reason)
    if not rejected:
        for side in chosen:
            why = "no rejected dialogue in the group"
            yield Couple("preference", side, None, why, DropReason.NO_COUNTERPART)
    if not chosen:
        for side in rejected:
            why = "no chosen dialogue in the group"
            yield Couple("preference", None, side, why, DropReason.NO_COUNTERPART)


Children = Sequence[Sequence[Dialogue]]
"""Where dialogues part: those that go on with each of two or more next messages."""


def _branches(members: Sequence[Dialogue]) -> Iterator[tuple[int, Children]]:
    """Yield the depths at which dialogues part, breadth first over the prefix tree: the earliest forks first."""
    pending = deque([(0, members)])
    while pending:
        depth, through = pending.popleft()
        children: dict[Hashable, list[Dialogue]] = {}
        for dialogue in through:
            if len(dialogue.messages) > depth:
                children.setdefault(canonical(dialogue.messages[depth]), []).append(dialogue)
        if len(children) > 1:
            yield depth, list(children.values())
        pending.extend((depth + 1, child) for child in children.values() if len(child) > 1)


@dataclass(frozen=True, slots=True)
class _Valued:
    """A sibling and its worth; more is better."""

    side: Side
    worth: float
    label: str


def _by_rank(depth: int, children: Children, config: NaturalConfig) -> Iterator[Couple]:
    """Couple ranked assistant siblings; siblings without a rank take no part."""
    siblings = [
        _Valued(Side(through[0], depth), -min(ranks), f"rank {min(ranks):g}")
        for through in _replies(depth, children)
        if (ranks := _ranks(depth, through))
    ]
    yield from _compared("rank", siblings, config, 0)


def _by_label(depth: int, children: Children, config: NaturalConfig) -> Iterator[Couple]:
    """Couple assistant siblings by a label of theirs, where none of them has a rank, which would say it better."""
    replies = _replies(depth, children)
    if any(_ranks(depth, through) for through in replies):
        return
    siblings = [
        _Valued(Side(through[0], depth), values[0], f"{config.label} {values[0]:g}")
        for through in replies
        if (values := _labels(depth, through, config.label))
    ]
    yield from _compared("label", siblings, config, config.min_label_gap)


def _by_reward(depth: int, children: Children, config: NaturalConfig) -> Iterator[Couple]:
    """Couple siblings by the mean reward of the trajectories through them."""
    siblings: list[_Valued] = []
    for through in children:
        if rewarded := [dialogue for dialogue in through if dialogue.reward is not None]:
            mean = fmean(dialogue.reward or 0.0 for dialogue in rewarded)
            label = f"mean reward {mean:.2f} (n={len(rewarded)})"
            siblings.append(_Valued(Side(rewarded[0], depth), mean, label))
    yield from _compared("reward", siblings, config, config.min_reward_gap)


def _replies(depth: int, children: Children) -> Children:
    """Return the siblings that go on with a message of the assistant."""
    return [through for through in children if through[0].messages[depth].role == "assistant"]


def _ranks(depth: int, through: Sequence[Dialogue]) -> list[float]:
    return _numbers(_said_of_message("message_ranks", depth, through))


def _labels(depth: int, through: Sequence[Dialogue], name: str) -> list[float]:
    labels_of_messages = _said_of_message("message_labels", depth, through)
    return _numbers(labels.get(name) for labels in labels_of_messages if isinstance(labels, dict))


def _said_of_message(name: str, depth: int, through: Sequence[Dialogue]) -> Iterator[Any]:
    """Yield, from each dialogue's list of that name, what it says of the message at a depth."""
    for dialogue in through:
        listed = dialogue.labels.get(name)
        if isinstance(listed, (list, tuple)) and depth < len(listed):
            yield listed[depth]


def _numbers(values: Iterable[Any]) -> list[float]:
    return [float(value) for value in values if isinstance(value, (int, float))]


def _compared(
    basis: NaturalBasis, siblings: Sequence[_Valued], config: NaturalConfig, least_gap: float
) -> Iterator[Couple]:
    """Couple better and worse siblings, the extremes or every two; dropped where their worth is too close."""
    ordered = sorted(siblings, key=lambda sibling: -sibling.worth)
    if config.pairing == "best_worst":
        ordered = [ordered[0], ordered[-1]] if len(ordered) > 1 else []
    for better, worse in combinations(ordered, 2):
        if better.worth > worse.worth:
            drop_reason = _parting(better.side, worse.side)
            if drop_reason is None and better.worth - worse.worth < least_gap:
                drop_reason = DropReason.BELOW_MARGIN
            why = f"{better.label} over {worse.label}"
            yield Couple(basis, better.side, worse.side, why, drop_reason)


def _parting(better: Side, worse: Side) -> DropReason | None:
    """Return why the place where two dialogues part gives no pair, or None where the assistant decides it."""
    roles = {better.message.role, worse.message.role}
    if better.dialogue.tools != worse.dialogue.tools or "system" in roles:
        return DropReason.PROMPTS_DIFFER
    if "user" in roles:
        return DropReason.DIVERGES_AT_USER
    return DropReason.DIVERGES_AT_TOOL if "tool" in roles else None
