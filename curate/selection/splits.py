"""The split into train and validation, without leakage between them.

Dialogues that belong together, directly or through a chain of others, form one group, and whole groups are assigned
in the order of a seeded hash. Groups with dialogues selected for training are assigned separately from those without
(pairs may be made from these), so that each side gets its share of both.
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
"""Fewest words of user messages for a common beginning to tie two dialogues together."""


def group_key(dialogue: Dialogue) -> int | None:
    """Return a 64-bit hash of the dialogue's group within its source; None where it has no group."""
    if dialogue.group is None:
        return None
    source = dialogue.lineage.source if dialogue.lineage else ""
    return _hashed("group", source, dialogue.group)


def conversation_keys(dialogue: Dialogue) -> tuple[int, ...]:
    """Return a 64-bit hash of each source row that the dialogue was read from."""
    lineage = dialogue.lineage
    if lineage is None:
        return ()
    return tuple(_hashed("row", lineage.source, lineage.file, str(row)) for row in lineage.rows)


def prompt_keys(dialogue: Dialogue) -> tuple[int, ...]:
    """Return a 64-bit hash of the dialogue's beginning up to each user and tool message.

    Each of these beginnings may be the prompt of a pair, and a log may contain a conversation once for each of its
    turns. Case, spacing and system messages do not count. Beginnings whose user messages have fewer than `MIN_WORDS`
    words in all are skipped: "hello" opens many dialogues that have nothing else in common.
    """
    prefix_hash = hashlib.blake2b(digest_size=8)
    words = 0
    keys: list[int] = []
    for message in dialogue.messages:
        if message.role == "system":
            continue
        if message.role == "user" and words < MIN_WORDS:
            words += worth(tokenise(message.content))
        text = " ".join(message.content.casefold().split())
        calls = [[call.name, call.arguments] for call in message.tool_calls]
        prefix_hash.update(orjson.dumps([message.role, text, calls], option=orjson.OPT_SORT_KEYS))
        if message.role in ("user", "tool") and words >= MIN_WORDS:
            keys.append(int.from_bytes(prefix_hash.digest(), "little"))
    return tuple(keys)


def assign_splits(
    groups: Groups, names: Sequence[str], selected: Sequence[bool], fraction: float, seed: int
) -> list[Split]:
    """Assign groups to train and validation.

    Groups are visited in the order of a hash of the seed and their least name, so the order of the rows does not
    matter. A group goes into validation if validation stays within its share: at most `fraction` of the selected
    dialogues (rounded, at least one), and less only where the remaining groups are too large. Groups without a selected
    dialogue are assigned in the same way, counted by all their dialogues.

    Args:
        names: a name for each row that does not depend on its position, such as the content hash.

    Returns:
        The split of every row.
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
    """Return the groups for validation from (root, size) pairs in order of preference."""
    total = sum(size for _, size in sizes)
    quota = max(1, round(total * fraction))
    dealt: set[int] = set()
    total_dealt = 0
    for root, size in sizes:
        # a lone group stays in train: there is nothing to train on otherwise
        if total_dealt + size <= quota and len(dealt) + 1 < len(sizes):
            dealt.add(root)
            total_dealt += size
    return dealt


def _hashed(*parts: str) -> int:
    text = "\0".join(parts)
    digest = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "little")
