"""Train and validation with nothing of one in the other.

Whatever belongs together is put into groups first, however long the chain between two of them, and groups
are dealt out whole, in the order of a seeded hash. The dialogues selected for training and the others (of
which pairs may be made) are dealt apart, so that both sides hold their share of each.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Literal

import orjson

from curate.dialogue import Dialogue
from curate.selection.minhash import Groups
from curate.selection.shingles import tokenise, worth

Split = Literal["train", "validation"]

MIN_WORDS = 8
"""Words of user messages from which on a common beginning says that two dialogues are one."""


def group_key(dialogue: Dialogue) -> int | None:
    """A 64-bit hash of the dialogue's group within its source; None where it has none."""
    if dialogue.group is None:
        return None
    source = dialogue.lineage.source if dialogue.lineage else ""
    return _hashed("group", source, dialogue.group)


def conversation_keys(dialogue: Dialogue) -> tuple[int, ...]:
    """A 64-bit hash of each row of the source that the dialogue stands on."""
    lineage = dialogue.lineage
    if lineage is None:
        return ()
    return tuple(_hashed("row", lineage.source, lineage.file, str(row)) for row in lineage.rows)


def prompt_keys(dialogue: Dialogue) -> tuple[int, ...]:
    """A 64-bit hash of the dialogue's beginning up to each user and tool message, but for case and spacing.

    Any of these may be the prompt of a pair, and a log may hold a conversation once for each of its turns.
    System messages are left aside, and beginnings whose user messages together have fewer words than
    `MIN_WORDS`: "hello" opens many dialogues that have nothing else in common.
    """
    said = hashlib.blake2b(digest_size=8)
    words = 0
    keys: list[int] = []
    for message in dialogue.messages:
        if message.role == "system":
            continue
        if message.role == "user" and words < MIN_WORDS:
            words += worth(tokenise(message.content))
        text = " ".join(message.content.casefold().split())
        calls = [[call.name, call.arguments] for call in message.tool_calls]
        said.update(orjson.dumps([message.role, text, calls], option=orjson.OPT_SORT_KEYS))
        if message.role in ("user", "tool") and words >= MIN_WORDS:
            keys.append(int.from_bytes(said.digest(), "little"))
    return tuple(keys)


def assign_splits(
    groups: Groups, names: Sequence[str], selected: Sequence[bool], fraction: float, seed: int
) -> list[Split]:
    """Deal groups out to train and validation.

    Groups are taken in the order of a hash of the seed and their least name, so the order of the rows does
    not matter. One is put into validation where it does not carry it over its share; so validation holds at
    most `fraction` of the selected dialogues (rounded, but at least one), and less only where the groups
    left are too large. Groups without a selected dialogue are dealt likewise by all their dialogues.

    Args:
        names: by row, a name that is the same wherever the row stands, as the content hash.

    Returns:
        The side of every row.
    """
    roots = list(groups.roots())
    least: dict[int, str] = {}
    weight: dict[int, int] = {}
    size: dict[int, int] = {}
    for root, name, chosen in zip(roots, names, selected, strict=True):
        least[root] = min(least.get(root, name), name)
        weight[root] = weight.get(root, 0) + chosen
        size[root] = size.get(root, 0) + 1
    order = sorted(least, key=lambda root: (_hashed(str(seed), least[root]), least[root]))
    held_out = _dealt([(root, weight[root]) for root in order if weight[root]], fraction)
    held_out |= _dealt([(root, size[root]) for root in order if not weight[root]], fraction)
    return ["validation" if root in held_out else "train" for root in roots]


def _dealt(sizes: Sequence[tuple[int, int]], fraction: float) -> set[int]:
    total = sum(size for _, size in sizes)
    wanted = max(1, round(total * fraction))
    taken: set[int] = set()
    held = 0
    for root, size in sizes:
        # a lone group stays in train: there is nothing to train on otherwise
        if held + size <= wanted and len(taken) + 1 < len(sizes):
            taken.add(root)
            held += size
    return taken


def _hashed(*parts: str) -> int:
    joined = "\0".join(parts)
    digest = hashlib.blake2b(joined.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "little")
