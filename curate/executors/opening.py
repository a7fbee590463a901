"""Opening the executor that a recipe names, and the place where it opens models."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Protocol, TypeVar

from curate.engines.accounting import Accounting, Budget
from curate.engines.model_pool import ModelFacts
from curate.executors.local import open_local
from curate.recipe import Recipe
from curate.stages import Stage, StageRow, WorkItem
from curate.storage.run_folder import REPLIES

T = TypeVar("T")


async def call_on_worker(recipe: Recipe, work: Callable[..., Awaitable[T]], *arguments: Any) -> T:
    """Return `await work(*arguments)`, run where the recipe's models are opened: here, or on its Ray cluster.

    `work` must be a function of a module; it, its arguments and its result must be picklable.

    Raises:
        UsageError: Ray is missing, the address or the resources are wrong.
        EngineError: the process on the cluster died.
    """
    if recipe.executor.kind == "ray":
        from curate.executors import ray_cluster

        return await ray_cluster.call_on_worker(recipe.executor, work, *arguments)
    return await work(*arguments)


@asynccontextmanager
async def open_executor(
    recipe: Recipe, folder: Path, accounting: Accounting, budget: Budget
) -> AsyncIterator[Executor]:
    """Open the recipe's models where its `executor` section says; they are closed at the end.

    Args:
        recipe: must name a judge.
        folder: the run folder; the response cache is in it.

    Raises:
        UsageError: a package, an address or a model's option is wrong.
        EngineError: a model cannot be reached or loaded.
    """
    replies = folder / REPLIES
    if recipe.executor.kind == "ray":
        from curate.executors.ray import open_ray

        async with open_ray(recipe, replies, accounting, budget) as on_ray:
            yield on_ray
        return
    async with open_local(recipe, replies, accounting, budget) as local:
        yield local


R = TypeVar("R", bound=StageRow)


class Runner(Protocol):
    """Makes the rows of a stage."""

    async def run(
        self, stage: Stage[R], items: Iterable[WorkItem], done: Callable[[WorkItem, R], None]
    ) -> None:
        """Make the row of every item and pass it to `done`, in order of completion.

        Items are pulled when they can be worked on, never listed. The first error stops the rest and is raised; what was
        passed to `done` before is kept.

        Args:
            stage: the stage as bound here; an executor that binds it again elsewhere refuses another fingerprint.

        Raises:
            BudgetReached: calls in flight were finished and kept.
            CurateError: any other known error.
        """
        ...


class Executor(Runner, Protocol):
    """A runner with open models."""

    @property
    def models(self) -> ModelFacts:
        """Return what the open models are and can do."""
        ...
