"""Running a stage in this process: K dialogues open at a time, each one straight-line coroutine."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from curate.engines.accounting import Accounting, Budget
from curate.engines.base import Completion, Request
from curate.engines.model_pool import Asks, ModelFacts
from curate.errors import BudgetReached
from curate.recipe import Recipe
from curate.stages import Stage, WorkItem, make_row, model_pool

T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class LocalExecutor:
    """Runs stages in this process; see `opening.Executor`."""

    models: ModelFacts
    asks: Asks

    async def run(
        self, stage: Stage[Any], items: Iterable[WorkItem], done: Callable[[WorkItem, Any], None]
    ) -> None:
        """As `opening.Runner.run`; the engines say how many dialogues are open at the same time."""
        work = partial(make_row, stage, asks=self.asks)
        await for_each(items, work, done, open_at_once=self.models.open_dialogues(stage.name))


class WithoutModels:
    """Runs a stage that makes no model calls."""

    async def run(
        self, stage: Stage[Any], items: Iterable[WorkItem], done: Callable[[WorkItem, Any], None]
    ) -> None:
        """As `opening.Runner.run`."""
        work = partial(make_row, stage, asks=Asks.of(_refuse))
        await for_each(items, work, done, open_at_once=1)


async def _refuse(requests: Sequence[Request]) -> list[Completion]:
    raise AssertionError(f"a stage without model calls made {len(requests)} requests")


@asynccontextmanager
async def open_local(
    recipe: Recipe, replies: Path, accounting: Accounting, budget: Budget
) -> AsyncIterator[LocalExecutor]:
    """Open the recipe's models in this process, behind the response cache `replies` (a SQLite file)."""
    async with (
        model_pool(recipe) as models,
        models.asking(replies, accounting, budget) as asks,
    ):
        yield LocalExecutor(models.facts, asks)


async def for_each(
    items: Iterable[T],
    work: Callable[[T], Awaitable[R]],
    done: Callable[[T, R], None],
    *,
    open_at_once: int,
) -> None:
    """Run `work` on every item and pass each result to `done`, in order of completion.

    Workers pull from the iterator, so there is no task per row, no barrier and no straggler. The first exception stops the
    others and is raised; what was passed to `done` before is kept. A budget that is reached does not interrupt calls: the
    others go on until they reach it too.
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
