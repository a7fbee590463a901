"""Sources mixed by weight: how many dialogues each gives, and which.

Weights are shares of the mixture, whatever the sizes of the files. Nothing is taken twice, so the mixture
is as large as the source that is scarcest for its weight allows: that one is taken whole. Which dialogues the
others give is decided by a seeded hash of what they say, not by where they stand: the same data gives the same
sample, and a source that grows changes its sample only by dialogues that were not there before (a larger
mixture takes more of every source, and keeps what it had).

Dialogues of one group are alternatives of which pairs are made; they are taken together or not at all.
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
"""Slack for products of floats, so that a share that comes to a whole number is that number."""


def mixed_sizes(sizes: Sequence[int], weights: Sequence[float | None]) -> list[int]:
    """Count the dialogues that each source gives to the largest mixture with these shares.

    Args:
        sizes: dialogues there are, by source.
        weights: by source, above 0; None: outside the mixture, taken whole.

    Returns:
        By source, at most its size. A source without dialogues takes no part, and bounds nobody.
    """
    weighted = [
        (size, weight)
        for size, weight in zip(sizes, weights, strict=True)
        if weight is not None and size
    ]
    unit = min((size / weight for size, weight in weighted), default=0.0)
    return [
        size if weight is None else min(size, math.floor(weight * unit + _EPSILON))
        for size, weight in zip(sizes, weights, strict=True)
    ]


def bundle_key(dialogue: Dialogue, seed: int) -> int:
    """A 64-bit hash, the same for dialogues that are taken together: one group, or the same content."""
    source = dialogue.lineage.source if dialogue.lineage else ""
    kind, name = ("group", dialogue.group) if dialogue.group else ("text", dialogue.content_hash)
    said = "\0".join((str(seed), source, kind, name)).encode("utf-8", "surrogatepass")
    return int.from_bytes(hashlib.blake2b(said, digest_size=8).digest(), "little")


def sample_bundles(keys: Sequence[int], size: int) -> set[int]:
    """The keys that are taken: the lowest, as many as hold no more than `size` dialogues, but at least one."""
    members: dict[int, int] = {}
    for key in keys:
        members[key] = members.get(key, 0) + 1
    taken: set[int] = set()
    held = 0
    for key in sorted(members):
        if taken and held + members[key] > size:
            break
        taken.add(key)
        held += members[key]
    return taken


class Mixture:
    """Dialogues of several sources on disk, until it is known how many there are; a context manager.

    Held in memory are 10 bytes a dialogue.

    Args:
        path: of the file, gone when the block ends.
        seed: other seeds give other samples.
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
        """Put a dialogue aside, of the source with this number."""
        self._lines.append(dialogue.model_dump_json(exclude_defaults=True).encode())
        self._sources.append(source)
        self._keys.append(bundle_key(dialogue, self._seed))

    def deal(self) -> Iterator[tuple[int, Dialogue, bool]]:
        """Every dialogue with its source's number and whether it is in the mixture, in the order they came."""
        keys: list[list[int]] = [[] for _ in self._weights]
        for source, key in zip(self._sources, self._keys, strict=True):
            keys[source].append(key)
        sizes = mixed_sizes([len(own) for own in keys], self._weights)
        taken = [sample_bundles(own, size) for own, size in zip(keys, sizes, strict=True)]
        for source, key, line in zip(
            self._sources, self._keys, read_lines(self._path), strict=True
        ):
            yield source, Dialogue.model_validate_json(line), key in taken[source]


def is_mixed(weights: Sequence[float | None]) -> bool:
    """True where weights bind: there is more than one source with a weight."""
    return sum(weight is not None for weight in weights) > 1
