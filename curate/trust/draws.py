"""Draws the members of a set that people are asked to label: at random, with known chances.

A draw is a random order of the whole set and the first so many of it, as a whole or in each stratum. The order
follows from the seed and the members' ids alone, so the same draw made again is the same, and a larger one begins
with the smaller.
"""

from __future__ import annotations

import hashlib
import math
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise


@dataclass(frozen=True, slots=True)
class DrawnPlace:
    """The place of a member in a draw.

    Attributes:
        order: in the random order of its stratum, from 0; of the whole set where there is one stratum.
        stratum: its number.
        drawn: it is among the members to label.
    """

    order: int
    stratum: int
    drawn: bool


def draw(
    ids: Sequence[str], labels: int, seed: int, strata: Sequence[int] | None = None
) -> list[DrawnPlace]:
    """Draw members of a set at random, without replacement.

    Args:
        ids: of the members, each once.
        labels: how many are drawn; all where there are fewer.
        seed: of the random order.
        strata: of each member, from 0; each gives as many as its share of the set, to whole members by the largest
            remainders, and at least one. None: the set is drawn from as a whole.

    Returns:
        A place for each member, in the order of `ids`.
    """
    numbers = [0] * len(ids) if strata is None else list(strata)
    members: dict[int, list[int]] = {}
    for at in sorted(range(len(ids)), key=lambda at: _random(ids[at], seed)):
        members.setdefault(numbers[at], []).append(at)
    sizes = {number: len(order_of) for number, order_of in members.items()}
    quotas = _quotas(sizes, min(labels, len(ids)))
    places: list[DrawnPlace | None] = [None] * len(ids)
    for number, order_of in members.items():
        for order, at in enumerate(order_of):
            places[at] = DrawnPlace(order, number, order < quotas[number])
    return [place for place in places if place is not None]


def score_strata(scores: Sequence[float]) -> tuple[list[int], list[str]]:
    """Return the fifth of the set that each member is in by a score, low to high; equal scores share one.

    Returns:
        The part of each member, and the parts' names, `low to high` of the scores.
    """
    ranked = sorted(scores)
    starts = sorted({ranked[part * len(ranked) // 5] for part in range(5)} if ranked else ())
    names = [
        f"{start:.4g} to {ranked[bisect_left(ranked, after) - 1]:.4g}"
        for start, after in pairwise((*starts, math.inf))
    ]
    return [bisect_right(starts, score) - 1 for score in scores], names


def word_strata(words: Sequence[str]) -> tuple[list[int], list[str]]:
    """Return the part of each member, one part for each word in alphabetical order.

    Returns:
        The part of each member, and the parts' names.
    """
    names = sorted(set(words))
    return [names.index(word) for word in words], names


def _quotas(sizes: dict[int, int], labels: int) -> dict[int, int]:
    """Return how many members each stratum gives, in proportion to its size, at least one each."""
    total = sum(sizes.values())
    exact = {number: labels * size / total for number, size in sizes.items()}
    quotas = {number: max(1, math.floor(share)) for number, share in exact.items()}
    by_remainder = sorted(exact, key=lambda number: (quotas[number] - exact[number], number))
    for number in by_remainder:
        if sum(quotas.values()) >= labels:
            break
        if quotas[number] < sizes[number]:
            quotas[number] += 1
    return quotas


def _random(member: str, seed: int) -> bytes:
    """Return a member's pseudo-random sort key, which follows from seed and id alone."""
    return hashlib.blake2b(f"{seed}\x1f{member}".encode(), digest_size=16).digest()
