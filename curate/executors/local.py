"""Spread a stage's work over one process: K dialogues open at a time, each one straight-line coroutine."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from curate.engines.accounting import Accounting, Budget
from curate.engines.cache import ReplyCache
from curate.errors import BudgetReached
from curate.executors.work import StageWorker, WorkItem
from curate.models import Asks, ModelFacts, check_served, open_models
from curate.recipe import Recipe

T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class LocalExecutor:
    """Stage functions in this process; see `work.Executor`."""

    models: ModelFacts
    worker: StageWorker

    async def run(self, items: Iterable[WorkItem], done: Callable[[WorkItem, Any], None]) -> None:
        """As `work.Executor.run`; as many dialogues are open as the judge's engine likes best."""
        await for_each(items, self.worker, done, open_at_once=self.models.judge.open_dialogues)


@asynccontextmanager
async def open_local(
    recipe: Recipe, replies: Path, accounting: Accounting, budget: Budget
) -> AsyncIterator[LocalExecutor]:
    """Open the recipe's models in this process, behind the reply log `replies` (a SQLite file)."""
    async with open_models(recipe) as models:
        with ReplyCache(replies) as cache:
            for facts in models.facts.served:
                check_served(facts, cache.first_served(facts.identity.key, facts.served))
            asks = Asks(recipe, models, cache, accounting, budget)
            try:
                yield LocalExecutor(models.facts, StageWorker(recipe, models, asks))
            finally:
                accounting.damaged += cache.damaged


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
