"""The actor of `executors.ray`: engines, and the stage functions bound to them."""

from __future__ import annotations

import asyncio
import os
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from curate.engines.accounting import Accounting, Budget
from curate.errors import CurateError, first_line
from curate.executors.keeper import Answer, Batch, KeptReplies, Spool
from curate.executors.work import StageWorker, WorkItem
from curate.models import Asks, ModelFacts, open_models
from curate.recipe import Recipe


@dataclass(frozen=True, slots=True)
class Started:
    """An actor that is ready: what its models are, and where it runs."""

    models: ModelFacts
    node: str
    process: int


class Worker:
    """The actor: engines, and the stage functions bound to them. Opened by the first call."""

    def __init__(self, recipe: Recipe, keeper: str, spool: Path, folder: Path) -> None:
        if folder.is_dir():
            os.chdir(folder)  # paths in the recipe are meant from there
        self._recipe = recipe
        self._keeper = keeper
        self._spool = spool
        self._stack = AsyncExitStack()
        self._opening: asyncio.Task[tuple[StageWorker, ModelFacts, KeptReplies]] | None = None

    async def start(self) -> Started | CurateError:
        """Open the engines, once; an error comes back as a value, so that it stays what it is."""
        import ray

        try:
            _, models, _ = await self._opened()
        except CurateError as error:
            return error
        return Started(models, ray.get_runtime_context().get_node_id(), os.getpid())

    async def work(self, item: WorkItem) -> Any:
        """The row of an item, or the CurateError that stops the run."""
        try:
            worker, _, _ = await self._opened()
            return await worker(item)
        except CurateError as error:
            return error

    async def settle(self) -> None:
        """Hand the last counts to the keeper."""
        _, _, kept = await self._opened()
        await kept.settle()

    async def close(self) -> None:
        """Close the engines; what comes after this is not kept."""
        _, _, kept = await self._opened()
        await self._stack.aclose()
        await kept.close()

    async def _opened(self) -> tuple[StageWorker, ModelFacts, KeptReplies]:
        if self._opening is None:
            self._opening = asyncio.create_task(self._open())
        return await asyncio.shield(self._opening)

    async def _open(self) -> tuple[StageWorker, ModelFacts, KeptReplies]:
        import ray

        models = await self._stack.enter_async_context(open_models(self._recipe))
        accounting, keeper = Accounting(), ray.get_actor(self._keeper)

        async def exchange(batch: Batch) -> Answer:
            try:
                answer: Answer = await keeper.exchange.remote(batch)
            except ray.exceptions.RayActorError as error:
                raise CurateError(
                    "the process that holds the reply log has died",
                    got=first_line(error),
                    fix="run again; what was received is kept",
                ) from error
            return answer

        limits = Budget(**self._recipe.budget.model_dump())
        kept = KeptReplies(exchange, Spool(self._spool), accounting, limits)
        asks = Asks(self._recipe, models, kept, accounting, kept)
        return StageWorker(self._recipe, models, asks), models.facts, kept
