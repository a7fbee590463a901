"""The executor that a recipe names, ready to run, and the place where it opens models."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Protocol, TypeVar

from curate.engines.accounting import Accounting, Budget
from curate.engines.model_pool import ModelFacts
from curate.executors.local import open_local
from curate.recipe import Recipe
from curate.stages import Row, Stage, WorkItem

T = TypeVar("T")


async def call_on_worker(recipe: Recipe, work: Callable[..., Awaitable[T]], *arguments: Any) -> T:
    """`await work(*arguments)` where the recipe's models are to be opened: here, or on its Ray cluster.

    `work` is a function of a module, and it, its arguments and its result can be pickled.

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
        recipe: with a judge named.
        folder: the run folder; the reply log is in it.

    Raises:
        UsageError: a package, an address or a model's option is wrong.
        EngineError: a model cannot be reached or loaded.
    """
    replies = folder / "replies.sqlite"
    if recipe.executor.kind == "ray":
        from curate.executors.ray import open_ray

        async with open_ray(recipe, replies, accounting, budget) as on_ray:
            yield on_ray
        return
    async with open_local(recipe, replies, accounting, budget) as local:
        yield local


R = TypeVar("R", bound=Row)


class Runner(Protocol):
    """Where the rows of a stage are made."""

    async def run(
        self, stage: Stage[R], items: Iterable[WorkItem], done: Callable[[WorkItem, R], None]
    ) -> None:
        """Make the row of every item and hand it to `done`, in order of completion.

        Items are pulled as they can be worked on, never listed. The first error stops the rest and is
        raised; what was handed to `done` before is kept.

        Args:
            stage: as it is bound here. Whoever has bound it anew elsewhere refuses one of another fingerprint.

        Raises:
            BudgetReached: calls in flight were finished and kept.
            CurateError: anything else with a name.
        """
        ...


class Executor(Runner, Protocol):
    """Where models are open."""

    @property
    def models(self) -> ModelFacts:
        """What the opened models are and can do."""
        ...
