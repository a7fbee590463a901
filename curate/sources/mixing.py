"""Sources mixed by weight: how many dialogues each gives, and which.

Weights are shares of the mixture, whatever the sizes of the files. No dialogue is taken twice, so the source that is
scarcest for its weight is taken whole and limits the size of the mixture. A seeded hash of their content, not their
position, decides which dialogues of the other sources are taken: the same data gives the same sample, and a source that
grows changes its sample only by new dialogues (a larger mixture takes more of every source, and keeps those it had).

Dialogues of one group are alternatives for pairs; they are taken together or not at all.
"""

from __future__ import annotations

import hashlib
import math
from array import array
from collections.abc import Iterator, Sequence
from pathlib import Path

from curate.dialogue import Dialogue
from curate.storage.line_files import LineFile, read_lines

_EPSILON = 1e-9
"""Tolerance for rounding errors, so that a share that should be a whole number is one."""


def mixed_sizes(sizes: Sequence[int], weights: Sequence[float | None]) -> list[int]:
    """Return how many dialogues each source gives to the largest mixture with these shares.

    Args:
        sizes: number of dialogues of each source.
        weights: weight of each source, above 0; None for a source outside the mixture, which is taken whole.

    Returns:
        For each source, at most its size. A source without dialogues does not limit the others.
    """
    weighted_sizes = [
        (size, weight)
        for size, weight in zip(sizes, weights, strict=True)
        if weight is not None and size
    ]
    unit = min((size / weight for size, weight in weighted_sizes), default=0.0)
    return [
        size if weight is None else min(size, math.floor(weight * unit + _EPSILON))
        for size, weight in zip(sizes, weights, strict=True)
    ]


def bundle_key(dialogue: Dialogue, seed: int) -> int:
    """Return a 64-bit hash, the same for dialogues that are taken together: of one group, or of the same content."""
    source = dialogue.lineage.source if dialogue.lineage else ""
    kind, name = ("group", dialogue.group) if dialogue.group else ("text", dialogue.content_hash)
    parts = "\0".join((str(seed), source, kind, name)).encode("utf-8", "surrogatepass")
    return int.from_bytes(hashlib.blake2b(parts, digest_size=8).digest(), "little")


def sample_bundles(keys: Sequence[int], size: int) -> set[int]:
    """Return the lowest keys that have at most `size` dialogues together, but at least one key."""
    members: dict[int, int] = {}
    for key in keys:
        members[key] = members.get(key, 0) + 1
    chosen_keys: set[int] = set()
    total = 0
    for key in sorted(members):
        if chosen_keys and total + members[key] > size:
            break
        chosen_keys.add(key)
        total += members[key]
    return chosen_keys


class Mixture:
    """Dialogues of several sources, stored on disk until their number is known; a context manager.

    Memory holds 10 bytes a dialogue.

    Args:
        path: path of the file, which is removed at the end of the block.
        weights: weight of each source (see `mixed_sizes`).
        seed: random seed of the samples.
    """

    def __init__(self, path: Path, weights: Sequence[float | None], seed: int) -> None:
        path.unlink(missing_ok=True)
        self._path = path
        self._lines = LineFile(path)
        self._weights = tuple(weights)
        self._seed = seed
        self._sources = array("H")
        self._keys = array("Q")

    def __enter__(self) -> Mixture:
        return self

    def __exit__(self, *_: object) -> None:
        self._lines.close()
        self._path.unlink(missing_ok=True)

    def add(self, source: int, dialogue: Dialogue) -> None:
        """Store a dialogue of the source with this number."""
        self._lines.append(dialogue.model_dump_json(exclude_defaults=True).encode())
        self._sources.append(source)
        self._keys.append(bundle_key(dialogue, self._seed))

    def deal(self) -> Iterator[tuple[int, Dialogue, bool]]:
        """Yield every dialogue in the order added, with its source's number and whether it is in the mixture."""
        keys: list[list[int]] = [[] for _ in self._weights]
        for source, key in zip(self._sources, self._keys, strict=True):
            keys[source].append(key)
        sizes = mixed_sizes([len(source_keys) for source_keys in keys], self._weights)
        chosen_keys = [
            sample_bundles(source_keys, size) for source_keys, size in zip(keys, sizes, strict=True)
        ]
        for source, key, line in zip(
            self._sources, self._keys, read_lines(self._path), strict=True
        ):
            yield source, Dialogue.model_validate_json(line), key in chosen_keys[source]


def is_mixed(weights: Sequence[float | None]) -> bool:
    """Return whether sources are mixed: more than one has a weight."""
    return sum(weight is not None for weight in weights) > 1
