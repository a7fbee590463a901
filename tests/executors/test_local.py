"""K open at a time, every item once, the first failure stops the rest."""

from __future__ import annotations

import asyncio

import pytest

from curate.executors.local import for_each


async def test_every_item_is_worked_once_and_no_more_than_k_are_open() -> None:
    open_now = largest = 0
    finished: list[int] = []

    async def work(item: int) -> int:
        nonlocal open_now, largest
        open_now += 1
        largest = max(largest, open_now)
        await asyncio.sleep(0.001 * (item % 3))
        open_now -= 1
        return item * 10

    await for_each(range(50), work, lambda item, _: finished.append(item), open_at_once=4)
    assert sorted(finished) == list(range(50))
    assert largest == 4


async def test_the_first_failure_is_raised_and_earlier_results_are_kept() -> None:
    finished: list[int] = []

    async def work(item: int) -> int:
        if item == 5:
            raise ValueError("five")
        return item

    with pytest.raises(ValueError, match="five"):
        await for_each(range(100), work, lambda item, _: finished.append(item), open_at_once=1)
    assert finished == [0, 1, 2, 3, 4]


async def test_items_are_pulled_not_listed() -> None:
    pulled = 0

    def endless():
        nonlocal pulled
        while True:
            pulled += 1
            yield pulled

    async def work(item: int) -> int:
        if item >= 10:
            raise ValueError("enough")
        return item

    with pytest.raises(ValueError, match="enough"):
        await for_each(endless(), work, lambda *_: None, open_at_once=2)
    assert pulled < 15
