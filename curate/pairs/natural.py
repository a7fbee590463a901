"""Pairs the data already holds: found without a model, and verified by a judge where the recipe says so.

Dialogues of one group (one task, one tree, one chosen/rejected row) are alternatives. Four things can
say which side is better, and the record's `basis` names the one that did:

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

Every candidate pair gives one record, passed or refused with its reason; what exceeds `max_per_group`
gives one record that says how many were left out. A pair that passed here has `check` None until
`verify_natural` has held it to the rules of a forked one.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from statistics import fmean

from curate.dialogue import Dialogue, Message
from curate.errors import UsageError
from curate.pairs.asks import JudgeAsks
from curate.pairs.config import NaturalBasis, NaturalConfig
from curate.pairs.prefix import canonical, pair_id, prompt_is_open, prompt_messages
from curate.pairs.substance import is_cosmetic, is_identical
from curate.pairs.verify import verify_sides
from curate.records import PreferencePair

_SPEAKER = re.compile(r"\s*(?:#+ ?|\*\*)?(?:Human|User|Assistant)(?:\*\*)? ?:", re.IGNORECASE)
"""A side that opens with a speaker's mark: a transcript cut at the wrong place, as hh has some."""


def natural_pairs(dialogues: Iterable[Dialogue], config: NaturalConfig) -> list[PreferencePair]:
    """All natural pairs of dialogues in any order, accepted and refused.

    Holds the dialogues that have a group in memory; `iter_natural_pairs` holds one group at a time.
    """
    return list(iter_natural_pairs(gather_groups(dialogues), config))


def gather_groups(dialogues: Iterable[Dialogue]) -> list[Dialogue]:
    """Dialogues that have a group, those of one group together, groups in order of appearance."""
    groups: dict[Hashable, list[Dialogue]] = {}
    for dialogue in dialogues:
        if dialogue.group is not None:
            groups.setdefault(_group_key(dialogue), []).append(dialogue)
    return [dialogue for members in groups.values() for dialogue in members]


def iter_natural_pairs(
    dialogues: Iterable[Dialogue], config: NaturalConfig
) -> Iterator[PreferencePair]:
    """Natural pairs of dialogues whose groups stand together, one group in memory at a time.

    A group is a `group` within one source. Dialogues without a group are passed over.

    Raises:
        UsageError: a group comes back after another began; its pairs would be missed.
    """
    for pair, _ in natural_candidates(dialogues, config):
        yield pair


def natural_candidates(
    dialogues: Iterable[Dialogue], config: NaturalConfig
) -> Iterator[tuple[PreferencePair, Dialogue]]:
    """As `iter_natural_pairs`, each pair with the dialogue that it is named after."""
    if not config.enabled:
        return
    done: set[int] = set()
    seen: set[int] = set()
    for key, members in groupby(dialogues, _group_key):
        if key is None:
            continue
        if hash(key) in done:
            raise UsageError(
                "the dialogues of a group do not stand together",
                got=f"group {key!r} twice, with other groups between",
                expected="dialogues ordered by group",
                fix="sort by group, or pass them through gather_groups (in memory)",
            )
        done.add(hash(key))
        yield from _pairs_of_group(list(members), config, seen)


def _group_key(dialogue: Dialogue) -> tuple[str, str] | None:
    if dialogue.group is None:
        return None
    return (dialogue.lineage.source if dialogue.lineage else "", dialogue.group)


@dataclass(frozen=True, slots=True)
class _Side:
    """One side of a candidate pair: a message in a dialogue."""

    dialogue: Dialogue
    depth: int

    @property
    def message(self) -> Message:
        return self.dialogue.messages[self.depth]

    @property
    def prefix(self) -> tuple[Message, ...]:
        return self.dialogue.messages[: self.depth]

    @property
    def turn(self) -> int | None:
        numbers = (
            turn.number for turn in self.dialogue.turns if turn.start <= self.depth < turn.stop
        )
        return next(numbers, None)


@dataclass(frozen=True, slots=True)
class _Candidate:
    """Two sides and what says that one is better.

    A side is None where the data lacks it; `refusal` is set where the basis itself refuses the pair.
    """

    basis: NaturalBasis
    better: _Side | None
    worse: _Side | None
    why: str
    refusal: str | None = None

    @property
    def anchor(self) -> _Side:
        """The side whose dialogue names the pair: the better one, where there is one."""
        side = self.better or self.worse
        if side is None:
            raise ValueError("a candidate pair without sides")
        return side


def _pairs_of_group(
    members: list[Dialogue], config: NaturalConfig, seen: set[int]
) -> Iterator[tuple[PreferencePair, Dialogue]]:
    """The group's records: passed and refused ones are each bounded by `max_per_group`.

    `seen` holds the ids of all records so far, half of each.
    """
    counts = {"passed": 0, "refused": 0}
    over_limit: tuple[PreferencePair, Dialogue] | None = None
    left_out = 0
    for candidate in _candidates(members, config):
        record = _record(candidate, config)
        if (half := int(record.pair_id[:16], 16)) in seen:
            record = _record(candidate, config, duplicate=True)
        seen.add(half)
        kind = "passed" if record.refusal is None else "refused"
        counts[kind] += 1
        if counts[kind] <= config.max_per_group:
            yield record, candidate.anchor.dialogue
        else:
            left_out += 1
            over_limit = over_limit or (record, candidate.anchor.dialogue)
    if over_limit is not None:
        record, dialogue = over_limit
        detail = (
            f"{left_out} candidates of group {members[0].group!r} left out,"
            f" max_per_group is {config.max_per_group}; the first of them stands here"
        )
        yield record.model_copy(update={"refusal": "over_limit", "detail": detail}), dialogue


def _candidates(members: list[Dialogue], config: NaturalConfig) -> Iterator[_Candidate]:
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


def _by_preference(members: Sequence[Dialogue]) -> Iterator[_Candidate]:
    """Every chosen against every rejected dialogue of the group."""
    sides: dict[object, list[_Side]] = {"chosen": [], "rejected": []}
    for dialogue in members:
        label = dialogue.labels.get("preference")
        if label in ("chosen", "rejected"):
            sides[label].append(_Side(dialogue, len(dialogue.messages) - 1))
    for better in sides["chosen"]:
        if not sides["rejected"]:
            why = "no rejected dialogue in the group"
            yield _Candidate("preference", better, None, why, "no_counterpart")
        for worse in sides["rejected"]:
            why, refusal = "labelled in the data", None
            if not _share_prompt(better, worse):
                why = "the dialogues differ before their last message"
                refusal = "prompts_differ"
            elif {better.message.role, worse.message.role} != {"assistant"}:
                why = "a side does not end with an assistant message"
                refusal = "no_reply"
            yield _Candidate("preference", better, worse, why, refusal)
    if not sides["chosen"]:
        for worse in sides["rejected"]:
            why = "no chosen dialogue in the group"
            yield _Candidate("preference", None, worse, why, "no_counterpart")


def _share_prompt(left: _Side, right: _Side) -> bool:
    return left.dialogue.tools == right.dialogue.tools and [*map(canonical, left.prefix)] == [
        *map(canonical, right.prefix)
    ]


def _branches(members: list[Dialogue]) -> Iterator[tuple[int, list[list[Dialogue]]]]:
    """Where dialogues part: the depth, and the dialogues through each of two or more next messages.

    Breadth first over the prefix tree, so the earliest forks come first.
    """
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

    side: _Side
    worth: float
    label: str


def _by_rank(
    depth: int, children: list[list[Dialogue]], config: NaturalConfig
) -> Iterator[_Candidate]:
    """Ranked assistant siblings; siblings without a rank take no part."""
    siblings: list[_Valued] = []
    for through in children:
        ranks = [rank for dialogue in through if (rank := _rank(dialogue, depth)) is not None]
        if ranks and through[0].messages[depth].role == "assistant":
            rank = min(ranks)
            siblings.append(_Valued(_Side(through[0], depth), -rank, f"rank {rank:g}"))
    yield from _compared("rank", siblings, config, 0)


def _by_label(
    depth: int, children: list[list[Dialogue]], config: NaturalConfig
) -> Iterator[_Candidate]:
    """Assistant siblings by a label of theirs, where none of them has a rank, which would say it better."""
    siblings: list[_Valued] = []
    for through in children:
        if through[0].messages[depth].role != "assistant":
            continue
        if any(_rank(dialogue, depth) is not None for dialogue in through):
            return
        values = [
            value
            for dialogue in through
            if (value := _label(dialogue, depth, config.label)) is not None
        ]
        if values:
            label = f"{config.label} {values[0]:g}"
            siblings.append(_Valued(_Side(through[0], depth), values[0], label))
    yield from _compared("label", siblings, config, config.min_label_gap)


def _label(dialogue: Dialogue, depth: int, name: str) -> float | None:
    labels = dialogue.labels.get("message_labels")
    of = labels[depth] if isinstance(labels, (list, tuple)) and depth < len(labels) else None
    value = of.get(name) if isinstance(of, dict) else None
    return float(value) if isinstance(value, (int, float)) else None


def _rank(dialogue: Dialogue, depth: int) -> float | None:
    ranks = dialogue.labels.get("message_ranks")
    rank = ranks[depth] if isinstance(ranks, (list, tuple)) and depth < len(ranks) else None
    return float(rank) if isinstance(rank, (int, float)) else None


def _by_reward(
    depth: int, children: list[list[Dialogue]], config: NaturalConfig
) -> Iterator[_Candidate]:
    """Siblings by the mean reward of the trajectories through them."""
    siblings: list[_Valued] = []
    for through in children:
        rewarded = [dialogue for dialogue in through if dialogue.reward is not None]
        if rewarded:
            mean = fmean(dialogue.reward or 0.0 for dialogue in rewarded)
            label = f"mean reward {mean:.2f} (n={len(rewarded)})"
            siblings.append(_Valued(_Side(rewarded[0], depth), mean, label))
    yield from _compared("reward", siblings, config, config.min_reward_gap)


def _compared(
    basis: NaturalBasis, siblings: Sequence[_Valued], config: NaturalConfig, least_gap: float
) -> Iterator[_Candidate]:
    """The couples of some siblings; refused where they are worth too nearly the same."""
    for better, worse in _couples(siblings, config):
        refusal = _parting(better.side, worse.side)
        if refusal is None and better.worth - worse.worth < least_gap:
            refusal = "below_margin"
        why = f"{better.label} over {worse.label}"
        yield _Candidate(basis, better.side, worse.side, why, refusal)


def _couples(
    siblings: Sequence[_Valued], config: NaturalConfig
) -> Iterator[tuple[_Valued, _Valued]]:
    """Better and worse siblings with different worth: the extremes, or every two."""
    ordered = sorted(siblings, key=lambda sibling: -sibling.worth)
    if config.pairing == "best_worst":
        ordered = [ordered[0], ordered[-1]] if len(ordered) > 1 else []
    for position, better in enumerate(ordered):
        for worse in ordered[position + 1 :]:
            if better.worth > worse.worth:
                yield better, worse


def _parting(better: _Side, worse: _Side) -> str | None:
    """Why the place where two dialogues part gives no pair, or None where the assistant decides it."""
    roles = {better.message.role, worse.message.role}
    if better.dialogue.tools != worse.dialogue.tools or "system" in roles:
        return "prompts_differ"
    if "user" in roles:
        return "diverges_at_user"
    return "diverges_at_tool" if "tool" in roles else None


def _record(
    candidate: _Candidate, config: NaturalConfig, *, duplicate: bool = False
) -> PreferencePair:
    better, worse = candidate.better, candidate.worse
    anchor = candidate.anchor
    prompt = prompt_messages(anchor.prefix, keep_reasoning=config.prompt_reasoning)
    chosen = better.message if better else None
    rejected = worse.message if worse else Message(role="assistant")
    refusal = candidate.refusal
    if refusal is None and chosen is not None:
        refusal = "duplicate" if duplicate else _cheap_refusal(prompt, chosen, rejected)
    detail = candidate.why
    if better and worse and better.dialogue.id != worse.dialogue.id:
        detail += f"; the rejected side is of dialogue {worse.dialogue.id}"
    salt = (
        "" if chosen is not None and worse and not duplicate else f"{anchor.dialogue.id}/{detail}"
    )
    return PreferencePair(
        pair_id=pair_id(prompt, anchor.dialogue.tools, chosen, rejected, salt=salt),
        dialogue_id=anchor.dialogue.id,
        content_hash=anchor.dialogue.content_hash,
        source="natural",
        basis=candidate.basis,
        turn=anchor.turn,
        prompt=prompt,
        tools=anchor.dialogue.tools,
        chosen=chosen,
        rejected=rejected,
        refusal=refusal,
        detail=detail,
        lineage=anchor.dialogue.lineage,
    )


def _cheap_refusal(prompt: Sequence[Message], chosen: Message, rejected: Message) -> str | None:
    """What can be said against a pair without a model."""
    if not prompt_is_open(prompt):
        return "prompt_end"
    if not all(side.content.strip() or side.tool_calls for side in (chosen, rejected)):
        return "empty_side"
    if any(_SPEAKER.match(side.content) for side in (chosen, rejected)):
        return "speaker_marker"
    if is_identical(chosen, rejected):
        return "identical"
    return "cosmetic" if is_cosmetic(chosen, rejected) else None


async def verify_natural(
    pair: PreferencePair, prompt: Dialogue, asks: JudgeAsks, config: NaturalConfig
) -> PreferencePair:
    """Hold a pair that passed here to the rules of a forked one; see `verify.verify_sides`.

    Args:
        pair: without a refusal.
        prompt: its dialogue with exactly the pair's prompt.
        asks: the judge.
        config: its `verification` says by which thresholds.

    Returns:
        The pair with figures, judge and, where it does not hold, the refusal. What the data says is never
        turned round: a pair whose rejected side the judge prefers is refused (`rejected_preferred`), since
        the other order would be the judge's pair under the data's name.
    """
    verification = config.verification
    if verification is None or pair.chosen is None or pair.turn is None:
        raise ValueError(f"pair {pair.pair_id} is not to be verified")
    finding = await verify_sides(
        prompt,
        pair.chosen,
        pair.rejected,
        pair.turn,
        asks,
        verification,
        may_be_fine=config.may_be_fine,
    )
    detail = "; ".join(part for part in (pair.detail, finding.detail) if part)
    return pair.model_copy(
        update={
            "check": finding.check,
            "refusal": finding.refusal,
            "detail": detail,
            "judge": asks.judge_id,
        }
    )
