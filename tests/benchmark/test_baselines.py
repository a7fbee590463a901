from __future__ import annotations

import random

import pytest

from curate.benchmark.baselines import baselines
from curate.trust.agreement import auc
from tests.benchmark.rows import FOUR, turn


def test_orientation_and_what_each_reads() -> None:
    found = baselines(FOUR, block=2)
    assert found["word_count"] == [3, 4, 1, 1]
    assert found["position"] == [0, 1, 0, 1]
    assert found["overlap"] == [pytest.approx(2 / 3), None, None, None]


def test_overlap_without_words_or_references_is_no_score() -> None:
    found = baselines([turn("...", "adherent", "a"), turn("a b", "tone", "a"), turn("c", "tone")])
    assert found["overlap"][0] is None
    assert found["overlap"][2] is None


def test_a_short_adherent_turn_turns_the_word_count_round() -> None:
    found = baselines([turn("a", "adherent"), turn("b c d", "tone")])
    assert found["word_count"] == [-1, -3]


def test_unigram_learns_words_of_the_classes() -> None:
    turns = [
        turn(f"{word} {row}", label)
        for row in range(20)
        for word, label in (("gladly", "adherent"), ("whatever", "tone"))
    ]
    found = baselines(turns)["unigram"]
    assert all(a > 0 > b for a, b in zip(found[::2], found[1::2], strict=True) if a and b)
    assert None not in found
    assert 0 not in found


def test_unigram_never_sees_the_rows_it_scores() -> None:
    """Words that no other tenth holds say nothing, whatever the row's own label is."""
    alone = [turn(f"word{row}", "adherent" if row % 2 else "tone") for row in range(30)]
    assert set(baselines(alone)["unigram"]) == {0.0}
    flipped = [turn(f"word{row}", "tone" if row % 2 else "adherent") for row in range(30)]
    assert baselines(flipped)["unigram"] == baselines(alone)["unigram"]


def test_unigram_finds_nothing_in_words_dealt_at_random() -> None:
    """Leaving single rows out would put this far below 0.5."""
    rng = random.Random(3)
    turns = [
        turn(" ".join(rng.choices("abcdefghijklmnopqrst", k=12)), "adherent" if row % 2 else "tone")
        for row in range(300)
    ]
    found = baselines(turns)["unigram"]
    area = auc([s for s in found if s is not None], [one.is_adherent for one in turns])
    assert area == pytest.approx(0.5, abs=0.08)
