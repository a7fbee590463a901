"""Draws: honest, the same again, and in proportion."""

from __future__ import annotations

from collections import Counter

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from curate.trust.draws import draw, score_strata

IDS = [f"d{number}" for number in range(200)]


def chosen(ids: list[str], labels: int, seed: int, strata: list[int] | None = None) -> list[str]:
    places = zip(ids, draw(ids, labels, seed, strata), strict=True)
    return [name for name, place in sorted(places, key=lambda held: held[1].order) if place.drawn]


def test_a_draw_depends_on_the_members_and_the_seed_and_not_on_their_order() -> None:
    assert chosen(IDS, 20, 1) == chosen(IDS[::-1], 20, 1)
    assert chosen(IDS, 20, 1) != chosen(IDS, 20, 2)
    assert chosen(IDS, 50, 1)[:20] == chosen(IDS, 20, 1)


def test_every_member_is_drawn_as_often_as_any_other() -> None:
    counts = Counter(name for seed in range(400) for name in chosen(IDS[:40], 10, seed))
    expected = 400 * 10 / 40
    # chi-squared over 40 members: 39 degrees of freedom less what "exactly ten" takes; the 99.9 % point is about 72
    assert sum((counts[name] - expected) ** 2 / expected / 0.75 for name in IDS[:40]) < 72


def test_neighbours_in_a_draw_say_nothing_of_each_other() -> None:
    first = np.array([place.drawn for seed in range(300) for place in draw(IDS[:2], 1, seed)])
    assert 0.4 < first[::2].mean() < 0.6


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(0, 4), min_size=1, max_size=150), st.integers(1, 200))
def test_strata_give_in_proportion_and_at_least_one(strata: list[int], labels: int) -> None:
    ids = [f"d{number}" for number in range(len(strata))]
    places = draw(ids, labels, 0, strata)
    sizes, drawn = Counter(strata), Counter(p.stratum for p in places if p.drawn)
    labels = min(labels, len(ids))
    for number, size in sizes.items():
        assert 1 <= drawn[number] <= size
        assert drawn[number] == 1 or abs(drawn[number] - labels * size / len(ids)) <= 1
    assert labels <= drawn.total() <= max(labels, labels + len(sizes) - 1)


@given(st.lists(st.sampled_from((0.0, 0.5, 1.0, 2.0, 3.5)), min_size=1))
def test_equal_scores_lie_in_one_stratum_and_strata_rise(scores: list[float]) -> None:
    numbers, names = score_strata(scores)
    assert set(numbers) == set(range(len(names)))
    order = sorted(zip(scores, numbers, strict=True))
    assert [number for _, number in order] == sorted(numbers)
    assert len(set(zip(scores, numbers, strict=True))) == len(set(scores))
