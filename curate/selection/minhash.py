"""Candidates for near-duplicates by MinHash and banding, confirmed by exact Jaccard similarity.

Only the bands of a text are held in memory (4 bytes a band, 84 bytes a text with the defaults). Texts that share a band
are candidates, and a second reading writes only their shingles to a file on disk. Signatures come from rensa. A
reported near-duplicate is therefore a true one, up to a collision of 64-bit hashes. MinHash may miss one: the bands are
chosen so that fewer than one in a hundred pairs exactly at the threshold is missed, and far fewer above it.
"""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Any, cast

import numpy as np
import numpy.typing as npt

from curate.selection.shingles import U64, Runs

U32 = npt.NDArray[np.uint32]
I64 = npt.NDArray[np.int64]

_RECALL = 0.99
_PRIME = np.uint64(0x100000001B3)


def banding(threshold: float, permutations: int) -> tuple[int, int]:
    """Return the number of bands and of rows a band, with the most rows that find a pair at the threshold in 99 % of cases.

    Two texts of Jaccard similarity s share at least one of b bands of r rows with probability
    1 - (1 - s^r)^b (Leskovec, Rajaraman and Ullman, Mining of Massive Datasets, 3.4.2).
    """
    fitting = [
        rows
        for rows in range(1, permutations + 1)
        if 1 - (1 - threshold**rows) ** (permutations // rows) >= _RECALL
    ]
    rows = max(fitting, default=1)
    return permutations // rows, rows


def signatures(runs: Runs, permutations: int, seed: int) -> U32:
    """Return the MinHash signatures of a batch, shape (texts, permutations)."""
    from rensa import RMinHash

    matrix = RMinHash.digest_matrix_from_flat_token_hashes(
        runs.hashes, runs.offsets.astype(np.uint64), permutations, seed
    )
    return digest_rows(matrix, permutations)


def digest_rows(matrix: Any, permutations: int) -> U32:
    """Convert a digest matrix of rensa; through `array`, its lists of integers convert three times as fast."""
    flat = array("I")
    for row in matrix.to_rows():
        flat.fromlist(row)
    return np.frombuffer(flat, np.uint32).reshape(-1, permutations)


class Bands:
    """The bands of many texts, numbered in the order they are added; a text may be added as absent."""

    def __init__(self, threshold: float, permutations: int, seed: int) -> None:
        self.bands, self.rows = banding(threshold, permutations)
        self._permutations = permutations
        self._seed = seed
        self._chunks: list[U32] = []
        self._present: list[npt.NDArray[np.bool_]] = []

    def add(self, runs: Runs, present: Sequence[bool]) -> None:
        """Add a batch; texts not `present` (too short to compare) are never candidates."""
        if len(present):
            self.add_signatures(signatures(runs, self._permutations, self._seed), present)

    def add_signatures(self, signature: U32, present: Sequence[bool]) -> None:
        """Add texts by their signatures, one row each."""
        self._chunks.append(self.of(signature))
        self._present.append(np.array(present, dtype=np.bool_))

    def of(self, signature: U32) -> U32:
        """Return the bands of signatures, shape (texts, bands), each hashed to 32 bits.

        Candidates by a hash collision are refuted later by their Jaccard similarity.
        """
        columns = signature[:, : self.bands * self.rows].astype(np.uint64)
        rows = columns.reshape(-1, self.bands, self.rows)
        hashes = np.full(rows.shape[:2], 0xCBF29CE484222325, np.uint64)
        for row in range(self.rows):
            hashes = (hashes ^ rows[:, :, row]) * _PRIME
            hashes ^= hashes >> np.uint64(29)
        return (hashes >> np.uint64(32)).astype(np.uint32)

    def buckets(self, among: I64) -> Buckets:
        """Group those of the texts `among` (numbers, ascending) that share a band."""
        if not self._chunks:
            return Buckets(np.empty(0, np.uint32), np.empty(0, np.uint32))
        # keep only the joined array: the chunks would double the memory
        self._chunks = [np.concatenate(self._chunks)]
        self._present = [np.concatenate(self._present)]
        among = among[self._present[0][among]]
        items: list[U32] = []
        numbers: list[U32] = []
        first = 0
        for band in range(self.bands):
            values = self._chunks[0][among, band]
            order = np.argsort(values, kind="stable")
            ordered_values = values[order]
            begins = np.ones(len(ordered_values), np.bool_)
            begins[1:] = ordered_values[1:] != ordered_values[:-1]
            group = np.cumsum(begins) - 1
            is_shared = np.bincount(group)[group] > 1
            items.append(among[order[is_shared]].astype(np.uint32))
            numbers.append((group[is_shared] + first).astype(np.uint32))
            first += len(ordered_values)
        return Buckets(np.concatenate(items), np.concatenate(numbers))


class Buckets:
    """The buckets of each text that shares a band with another.

    Attributes:
        items: numbers of these texts, ascending.
    """

    def __init__(self, items: U32, numbers: U32) -> None:
        order = np.argsort(items, kind="stable")
        self._numbers = numbers[order]
        self.items, starts = np.unique(items[order], return_index=True)
        self._starts = np.append(starts, len(items))

    def place(self, item: int) -> int | None:
        """Return the index of a text in `items`; None where it shares a band with no other."""
        place = int(np.searchsorted(self.items, item))
        return place if place < len(self.items) and self.items[place] == item else None

    def of(self, item: int) -> list[int]:
        """Return the bucket numbers of a text; empty where it shares a band with no other."""
        place = self.place(item)
        if place is None:
            return []
        return cast(
            "list[int]", self._numbers[self._starts[place] : self._starts[place + 1]].tolist()
        )


class NearTexts:
    """The texts that share a band with another, and their shingles: sorted 64-bit hashes in a temporary file.

    The shingles must be added in the order of `candidates`.

    Attributes:
        candidates: numbers of these texts, ascending.
    """

    def __init__(self, buckets: Buckets, folder: Path | None) -> None:
        self.candidates: list[int] = buckets.items.tolist()
        self.buckets = buckets
        self._file: IO[bytes] = TemporaryFile(dir=folder)  # noqa: SIM115 (closed by __exit__)
        self._offsets = np.zeros(len(self.candidates) + 1, np.int64)
        self._added = 0
        self._hashes: U64 | None = None

    def __enter__(self) -> NearTexts:
        return self

    def __exit__(self, *_: object) -> None:
        self._hashes = None
        self._file.close()

    def add(self, hashes: U64) -> None:
        """Write the shingles of the next candidate."""
        unique = np.unique(hashes)
        self._file.write(unique.tobytes())
        self._offsets[self._added + 1] = self._offsets[self._added] + len(unique)
        self._added += 1

    def jaccard(self, item: int, other: int, at_least: float) -> float:
        """Return the Jaccard similarity of two candidates, 0-1; 0 where their sizes rule out `at_least`."""
        first, second = self._shingles(item), self._shingles(other)
        small, large = sorted((len(first), len(second)))
        if small / large < at_least:
            return 0.0
        intersection = len(np.intersect1d(first, second, assume_unique=True))
        return intersection / (small + large - intersection)

    def _shingles(self, item: int) -> U64:
        place = self.buckets.place(item)
        if place is None or place >= self._added:
            raise RuntimeError(f"the shingles of text {item} were not added")
        if self._hashes is None:
            self._file.flush()
            self._hashes = np.memmap(self._file, np.uint64, mode="r")
        return self._hashes[self._offsets[place] : self._offsets[place + 1]]

    def join(self, groups: Groups, threshold: float) -> None:
        """Unite the groups of all near-duplicates, so that chains of them end up in one group.

        Texts of a bucket that are already united are compared as one, so a large cluster costs one comparison a text.
        """
        clusters: dict[int, dict[int, list[int]]] = defaultdict(dict)
        for item in self.candidates:
            for bucket in self.buckets.of(item):
                clusters_in_bucket = clusters[bucket]
                for key, members in clusters_in_bucket.items():
                    for other in members:
                        if groups.find(key) == groups.find(item):
                            break
                        if self.jaccard(item, other, threshold) >= threshold:
                            groups.unite(item, other)
                root = groups.find(item)
                cluster = next(
                    (key for key in clusters_in_bucket if groups.find(key) == root), item
                )
                clusters_in_bucket.setdefault(cluster, []).append(item)


class KeptTexts:
    """Kept texts of which no two are near-duplicates."""

    def __init__(self, texts: NearTexts, threshold: float) -> None:
        self._texts = texts
        self._threshold = threshold
        self._kept: dict[int, list[int]] = defaultdict(list)
        self._turn: dict[int, int] = {}

    def nearest(self, item: int) -> tuple[int, float] | None:
        """Return the most similar kept text and its similarity (the earliest where several tie); None where none reaches the threshold."""
        candidates = {
            other for bucket in self._texts.buckets.of(item) for other in self._kept.get(bucket, ())
        }
        best: tuple[int, float] | None = None
        for other in sorted(candidates, key=self._turn.__getitem__):
            similarity = self._texts.jaccard(item, other, self._threshold)
            if similarity >= self._threshold and (best is None or similarity > best[1]):
                best = other, similarity
        return best

    def add(self, item: int) -> None:
        """Keep a text."""
        buckets = self._texts.buckets.of(item)
        if buckets:
            self._turn[item] = len(self._turn)
        for bucket in buckets:
            self._kept[bucket].append(item)


class Groups:
    """Union-find over the numbers 0 to n - 1."""

    def __init__(self, count: int) -> None:
        self._parent = np.arange(count, dtype=np.int64)

    def find(self, item: int) -> int:
        """Return the root of an item's group."""
        parent = self._parent
        root = item
        while parent[root] != root:
            root = int(parent[root])
        while parent[item] != root:
            parent[item], item = root, int(parent[item])
        return root

    def unite(self, item: int, other: int) -> None:
        """Unite the groups of two items; the lower root becomes the root of both."""
        item, other = self.find(item), self.find(other)
        self._parent[max(item, other)] = min(item, other)

    def unite_equal(self, items: npt.ArrayLike, keys: npt.ArrayLike) -> None:
        """Unite items that have a key in common.

        Args:
            items: item numbers; an item with several keys is repeated.
            keys: one key for each entry of `items`.
        """
        rows, values = np.asarray(items), np.asarray(keys)
        order = np.argsort(values, kind="stable")
        rows, values = rows[order], values[order]
        same = np.flatnonzero(values[1:] == values[:-1])
        for item, other in zip(rows[same].tolist(), rows[same + 1].tolist(), strict=True):
            self.unite(item, other)

    def roots(self) -> Iterator[int]:
        """Yield the root of every number, in order."""
        return (self.find(item) for item in range(len(self._parent)))
