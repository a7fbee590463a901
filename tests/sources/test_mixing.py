"""Sources mixed by weight: how many, which, and what becomes of the sample when a source grows."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from curate.dialogue import Dialogue, Lineage, Message
from curate.sources import SourceConfig
from curate.sources.mixing import Mixture, bundle_key, mixed_sizes, sample_bundles


def dialogue(number: int, source: str = "s", group: str | None = None) -> Dialogue:
    return Dialogue(
        id=f"{source}-{number}",
        messages=(Message(role="user", content=f"{source} {number}"),),
        group=group,
        lineage=Lineage(source=source, file="f", rows=(number,)),
    )


@pytest.mark.parametrize(
    ("sizes", "weights", "wanted"),
    [
        ((100, 100), (1, 1), [100, 100]),
        ((100, 1000), (1, 1), [100, 100]),
        ((100, 1000), (3, 1), [100, 33]),
        ((100, 1000), (0.3, 0.7), [100, 233]),
        ((100, 50, 1000), (1, 1, None), [50, 50, 1000]),
        ((10, 1000), (0.1, 0.2), [10, 20]),
        ((0, 20, 30), (1, 1, 1), [0, 20, 20]),
        ((7, 9), (None, None), [7, 9]),
        ((7, 9), (None, 0.5), [7, 9]),
        ((0, 0), (1, 1), [0, 0]),
    ],
)
def test_the_mixture_is_the_largest_with_these_shares(sizes, weights, wanted) -> None:
    assert mixed_sizes(sizes, weights) == wanted


@given(
    st.lists(
        st.tuples(st.integers(0, 10_000), st.none() | st.floats(0.01, 100)), min_size=1, max_size=6
    )
)
def test_shares_are_kept_and_one_source_is_whole(given: list[tuple[int, float | None]]) -> None:
    sizes, weights = zip(*given, strict=True)
    found = mixed_sizes(sizes, weights)
    assert all(0 <= taken <= size for taken, size in zip(found, sizes, strict=True))
    mixed = [(t, s, w) for t, s, w in zip(found, sizes, weights, strict=True) if w and s]
    if mixed:
        unit = min(size / weight for _, size, weight in mixed)
        # whole dialogues: nobody is further from its share than one
        assert all(unit * weight - 1 < taken <= unit * weight + 1e-6 for taken, _, weight in mixed)
        assert any(taken == size for taken, size, _ in mixed)
    assert all(t == s for t, s, w in zip(found, sizes, weights, strict=True) if w is None)


@given(st.lists(st.integers(0, 30), max_size=60), st.integers(0, 80))
def test_bundles_are_taken_whole_and_never_too_many(keys: list[int], size: int) -> None:
    taken = sample_bundles(keys, size)
    held = sum(key in taken for key in keys)
    assert held <= size or len(taken) == 1
    # the lowest keys: none that is left out lies below one that is taken
    assert not taken or max(taken) < min((set(keys) - taken) or {10**9})
    assert bool(taken) == bool(keys)


def test_a_group_and_equal_dialogues_are_taken_together() -> None:
    one, other = dialogue(1, group="g"), dialogue(2, group="g")
    assert bundle_key(one, 0) == bundle_key(other, 0) != bundle_key(dialogue(3, group="h"), 0)
    same = dialogue(1).model_copy(update={"id": "another"})
    assert bundle_key(dialogue(1), 0) == bundle_key(same, 0) != bundle_key(dialogue(1), 1)
    assert bundle_key(dialogue(1, "s", "g"), 0) != bundle_key(dialogue(1, "t", "g"), 0)


def deal(
    folder: Path, sources: list[list[Dialogue]], weights: list[float | None], seed: int = 0
) -> list[set[str]]:
    with Mixture(folder / "mixture", weights, seed) as mixture:
        for number, given in enumerate(sources):
            for item in given:
                mixture.add(number, item)
        dealt = list(mixture.deal())
    assert [item for _, item, _ in dealt] == [item for given in sources for item in given]
    assert not (folder / "mixture").exists()
    return [
        {item.id for number, item, is_taken in dealt if is_taken and number == source}
        for source in range(len(sources))
    ]


def test_the_sample_is_the_datas_and_the_seeds_not_the_orders(tmp_path: Path) -> None:
    small = [dialogue(n, "a") for n in range(20)]
    large = [dialogue(n, "b") for n in range(200)]
    first = deal(tmp_path, [small, large], [1, 2])
    assert [len(taken) for taken in first] == [20, 40]
    assert deal(tmp_path, [small, large[::-1]], [1, 2]) == first
    other = deal(tmp_path, [small, large], [1, 2], seed=1)
    assert len(other[1]) == 40
    assert other[1] != first[1]


@given(st.integers(0, 30), st.integers(0, 60))
def test_a_source_that_grows_brings_in_only_what_was_not_there(
    tmp_path_factory: pytest.TempPathFactory, more_small: int, more_large: int
) -> None:
    folder = tmp_path_factory.mktemp("mix")
    small = [dialogue(n, "a") for n in range(20 + more_small)]
    large = [dialogue(n, "b") for n in range(100 + more_large)]
    before = deal(folder, [small[:20], large[:100]], [1, 2])
    # the larger one grows: what comes in is new
    grown = deal(folder, [small[:20], large], [1, 2])
    assert grown[0] == before[0]
    assert grown[1] - before[1] <= {item.id for item in large[100:]}
    # the scarce one grows: nothing that was in goes out
    wider = deal(folder, [small, large[:100]], [1, 2])
    assert before[0] <= wider[0]
    assert before[1] <= wider[1]


@pytest.mark.parametrize("weight", [0, -1, float("inf"), float("nan")])
def test_a_weight_is_a_number_above_zero(weight: float) -> None:
    with pytest.raises(ValidationError):
        SourceConfig(path="x", weight=weight)
