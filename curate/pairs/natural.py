"""Pairs the data already holds: found without a model, and verified by a judge where the recipe says so.

What is paired, and what says that one side is better, is found by `alternatives`, a group of dialogues at a time. Every
couple gives one record, passed or dropped with its reason; what exceeds `max_per_group` gives one record that says
how many were left out. A pair that passed here has `check` None until `verify_natural` has held it to the rules of
a forked one.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable, Iterator, Sequence
from itertools import groupby

from curate.dialogue import Dialogue, Message
from curate.errors import UsageError
from curate.pairs.alternatives import Couple, find_couples
from curate.pairs.config import NaturalConfig
from curate.pairs.judge_functions import JudgeAsks
from curate.pairs.prefix import pair_id, prompt_is_open, prompt_messages
from curate.pairs.verification import Sides, check_texts, verify_sides
from curate.records import DropReason, PreferencePair

_SPEAKER = re.compile(r"\s*(?:#+ ?|\*\*)?(?:Human|User|Assistant)(?:\*\*)? ?:", re.IGNORECASE)
"""A side that opens with a speaker's mark: a transcript cut at the wrong place, as hh has some."""


def gather_groups(dialogues: Iterable[Dialogue]) -> list[Dialogue]:
    """Return dialogues that have a group, those of one group together, groups in order of appearance."""
    groups: dict[Hashable, list[Dialogue]] = {}
    for dialogue in dialogues:
        if dialogue.group is not None:
            groups.setdefault(_group_key(dialogue), []).append(dialogue)
    return [dialogue for members in groups.values() for dialogue in members]


def natural_candidates(
    dialogues: Iterable[Dialogue], config: NaturalConfig
) -> Iterator[tuple[PreferencePair, Dialogue]]:
    """Yield natural pairs, accepted and dropped, each with the dialogue that it is named after.

    A group is a `group` within one source; dialogues without one are skipped. One group at a time is in memory.

    Args:
        dialogues: those of a group stand together; see `gather_groups`.

    Raises:
        UsageError: a group comes back after another began; its pairs would be missed.
    """
    if not config.enabled:
        return
    groups_done: set[int] = set()
    pair_ids: set[int] = set()
    for key, members in groupby(dialogues, _group_key):
        if key is None:
            continue
        if hash(key) in groups_done:
            raise UsageError(
                "the dialogues of a group are not consecutive",
                got=f"group {key!r} twice, with other groups between",
                expected="dialogues ordered by group",
                fix="sort by group, or pass them through gather_groups (in memory)",
            )
        groups_done.add(hash(key))
        yield from _pairs_of_group(list(members), config, pair_ids)


def _group_key(dialogue: Dialogue) -> tuple[str, str] | None:
    if dialogue.group is None:
        return None
    return (dialogue.lineage.source if dialogue.lineage else "", dialogue.group)


def _pairs_of_group(
    members: list[Dialogue], config: NaturalConfig, pair_ids: set[int]
) -> Iterator[tuple[PreferencePair, Dialogue]]:
    """Yield the group's records: passed and dropped ones are each bounded by `max_per_group`.

    `pair_ids` holds the ids of all records so far, half of each.
    """
    counts = {"passed": 0, "dropped": 0}
    over_limit: tuple[PreferencePair, Dialogue] | None = None
    left_out = 0
    for couple in find_couples(members, config):
        record = _record(couple, config)
        if (half := int(record.pair_id[:16], 16)) in pair_ids:
            record = _record(couple, config, duplicate=True)
        pair_ids.add(half)
        kind = "passed" if record.drop_reason is None else "dropped"
        counts[kind] += 1
        if counts[kind] <= config.max_per_group:
            yield record, couple.anchor.dialogue
        else:
            left_out += 1
            over_limit = over_limit or (record, couple.anchor.dialogue)
    if over_limit is not None:
        record, dialogue = over_limit
        detail = (
            f"{left_out} candidates of group {members[0].group!r} left out,"
            f" max_per_group is {config.max_per_group}; the first of them stands here"
        )
        yield (
            record.model_copy(update={"drop_reason": DropReason.OVER_LIMIT, "detail": detail}),
            dialogue,
        )


def _record(couple: Couple, config: NaturalConfig, *, duplicate: bool = False) -> PreferencePair:
    better, worse = couple.better, couple.worse
    anchor = couple.anchor
    prompt = prompt_messages(anchor.prefix, keep_reasoning=config.prompt_reasoning)
    chosen = better.message if better else None
    rejected = worse.message if worse else Message(role="assistant")
    drop_reason = couple.drop_reason
    if drop_reason is None and chosen is not None:
        drop_reason = (
            DropReason.DUPLICATE if duplicate else _cheap_drop_reason(prompt, chosen, rejected)
        )
    detail = couple.why
    if better and worse and better.dialogue.id != worse.dialogue.id:
        detail += f"; the rejected side is of dialogue {worse.dialogue.id}"
    # What has one side only, or the texts of another record, is told apart by what is said of it.
    is_own = better and worse and not duplicate
    salt = "" if is_own else f"{anchor.dialogue.id}/{detail}"
    return PreferencePair(
        pair_id=pair_id(prompt, anchor.dialogue.tools, chosen, rejected, salt=salt),
        dialogue_id=anchor.dialogue.id,
        content_hash=anchor.dialogue.content_hash,
        source="natural",
        basis=couple.basis,
        turn=anchor.turn,
        prompt=prompt,
        tools=anchor.dialogue.tools,
        chosen=chosen,
        rejected=rejected,
        drop_reason=drop_reason,
        detail=detail,
        lineage=anchor.dialogue.lineage,
    )


def _cheap_drop_reason(
    prompt: Sequence[Message], chosen: Message, rejected: Message
) -> DropReason | None:
    """Find a reason to drop a pair without a model call."""
    if not prompt_is_open(prompt):
        return DropReason.PROMPT_END
    if not all(side.content.strip() or side.tool_calls for side in (chosen, rejected)):
        return DropReason.EMPTY_SIDE
    if any(_SPEAKER.match(side.content) for side in (chosen, rejected)):
        return DropReason.SPEAKER_MARKER
    return check_texts(chosen, rejected).drop_reason


async def verify_natural(
    pair: PreferencePair, prompt: Dialogue, asks: JudgeAsks, config: NaturalConfig
) -> PreferencePair:
    """Hold a pair that passed here to the rules of a forked one; see `verification.verify_sides`.

    Args:
        pair: without a drop reason.
        prompt: its dialogue with exactly the pair's prompt.
        config: its `verification` says by which thresholds.

    Returns:
        The pair with figures, judge and, where it does not hold, the drop reason. What the data says is never
        turned round: a pair whose rejected side the judge prefers is dropped (`rejected_preferred`), since
        the other order would be the judge's pair under the data's name.
    """
    verification = config.verification
    if verification is None or pair.chosen is None or pair.turn is None:
        raise ValueError(f"pair {pair.pair_id} is not to be verified")
    sides = Sides(prompt, pair.chosen, pair.rejected, pair.turn)
    finding = await verify_sides(sides, asks, verification, may_be_fine=config.may_be_fine)
    detail = "; ".join(part for part in (pair.detail, finding.detail) if part)
    return pair.model_copy(
        update={
            "check": finding.check,
            "drop_reason": finding.drop_reason,
            "detail": detail,
            "judge": asks.judge_id,
        }
    )
