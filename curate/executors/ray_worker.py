"""The actor of `executors.ray`: engines, and the stages bound to them."""

from __future__ import annotations

import asyncio
import os
import secrets
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from curate.engines.accounting import Accounting, Budget
from curate.engines.model_pool import Asks, ModelFacts
from curate.errors import CurateError, first_line
from curate.executors.shared_reply_log import Counts, KeptReplies, Wish
from curate.recipe import Recipe
from curate.records import StageName
from curate.stages import Stages, WorkItem, bind_stages, make_row, model_pool


@dataclass(frozen=True, slots=True)
class _Opened:
    """What an actor works with once it is open."""

    models: ModelFacts
    stages: Stages
    asks: Asks
    kept: KeptReplies


class Worker:
    """An actor with engines and the stages bound to them. The first call opens the engines."""

    def __init__(self, recipe: Recipe, keeper: str, folder: Path) -> None:
        if folder.is_dir():
            os.chdir(folder)  # paths in the recipe are relative to it
        self._recipe = recipe
        self._keeper = keeper
        self._stack = AsyncExitStack()
        self._opening: asyncio.Task[_Opened] | None = None

    async def start(self) -> ModelFacts | CurateError:
        """Open the engines, once, and return what they are; a CurateError is returned, so that it keeps its type."""
        try:
            return (await self._opened()).models
        except CurateError as error:
            return error

    async def work(self, name: StageName, fingerprint: str, item: WorkItem) -> Any:
        """Return the row of an item, or the CurateError that stops the run.

        Args:
            fingerprint: the stage's fingerprint in the run; a stage with another one here is refused.
        """
        try:
            opened = await self._opened()
            return await make_row(opened.stages.of(name, fingerprint), item, opened.asks)
        except CurateError as error:
            return error

    async def settle(self) -> None:
        """Send the last counts to the keeper."""
        await (await self._opened()).kept.settle()

    async def close(self) -> None:
        """Close the engines and send the last counts."""
        replies = (await self._opened()).kept
        await self._stack.aclose()
        await replies.settle()

    async def _opened(self) -> _Opened:
        if self._opening is None:
            self._opening = asyncio.create_task(self._open())
        return await asyncio.shield(self._opening)

    async def _open(self) -> _Opened:
        import ray

        models = await self._stack.enter_async_context(model_pool(self._recipe))
        keeper = ray.get_actor(self._keeper)

        async def exchange(counts: Counts, wishes: Sequence[Wish]) -> list[Any]:
            try:
                answers: list[Any] = await keeper.exchange.remote(counts, wishes)
            except ray.exceptions.RayActorError as error:
                raise CurateError(
                    "the process that holds the response cache has died",
                    got=first_line(error),
                    fix="run again; replies received so far are kept",
                ) from error
            return answers

        counts = Counts(secrets.token_hex(8), Accounting())
        replies = KeptReplies(exchange, counts, Budget(**self._recipe.budget.model_dump()))
        asks = models.asks(replies, counts.accounting, replies)
        return _Opened(models.facts, bind_stages(self._recipe, models), asks, replies)
