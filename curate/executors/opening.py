"""The executor that a recipe names, ready to run."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from curate.engines.accounting import Accounting, Budget
from curate.executors.local import open_local
from curate.executors.work import Executor
from curate.recipe import Recipe


@asynccontextmanager
async def open_executor(
    recipe: Recipe, folder: Path, accounting: Accounting, budget: Budget
) -> AsyncIterator[Executor]:
    """Open the recipe's models where its `executor` section says; they are closed at the end.

    Args:
        recipe: with a judge named.
        folder: the run folder; the reply log is in it.
        accounting: gets the counts of all processes.
        budget: holds over all processes.

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
