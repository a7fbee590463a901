"""Spread a stage's work over one process: K dialogues open at a time, each one straight-line coroutine."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import TypeVar

from curate.errors import BudgetReached

T = TypeVar("T")
R = TypeVar("R")


async def for_each(
    items: Iterable[T],
    work: Callable[[T], Awaitable[R]],
    done: Callable[[T, R], None],
    *,
    open_at_once: int,
) -> None:
    """Run `work` on every item and hand each result to `done`, in order of completion.

    Workers pull from the iterator, so there is never a task a row, no barrier and no straggler. The
    first exception stops the others and is raised; what was handed to `done` before is kept. A budget
    that is reached stops nobody in the middle of a call: the others go on until they meet it too.
    """
    feed: Iterator[T] = iter(items)
    reached: list[BudgetReached] = []

    async def worker() -> None:
        for item in feed:
            if reached:
                return
            try:
                done(item, await work(item))
            except BudgetReached as stop:
                reached.append(stop)

    tasks = [asyncio.create_task(worker()) for _ in range(max(1, open_at_once))]
    try:
        await asyncio.gather(*tasks)
        if reached:
            raise reached[0]
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
