"""Spread a stage's work over one process: K dialogues open at a time, each one straight-line coroutine."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import TypeVar

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
    first exception stops the others and is raised; what was handed to `done` before is kept.
    """
    feed: Iterator[T] = iter(items)

    async def worker() -> None:
        for item in feed:
            done(item, await work(item))

    tasks = [asyncio.create_task(worker()) for _ in range(max(1, open_at_once))]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
