"""Running a stage on actors of a Ray cluster, each with its own engines.

An actor binds and runs `stages`, as this process does in a local run; replies, budget and counts go through `keeper`;
rows come back one by one to this process, the run folder's only writer.

This uses actors of Ray core, not Ray Data's `map_batches`, although that also restarts killed actors and repeats their
blocks. It was tried (Ray 2.60, an actor class over 8 blocks on two actors, three times in a row), and differs in what
matters here:

- its actors live for one execution: each execution created new ones (6 starts for 3 executions). Judging, adherence
  and forks are three executions, with a selection over all rows between them, so each model would be loaded three
  times, and once more to learn what it can do. Here it is loaded once per run.
- it gives a block to whichever actor is free. A dialogue that was judged on one replica would be forked on another,
  whose prefix cache does not have its beginning. Here a dialogue's hash names its actor for the whole run; another
  actor takes it only when it would be idle.
- its rows come when their block is done: in that run up to a second late for blocks of five rows of 0.1 s. Here a row
  is in the run folder as soon as it is made, and no block's end leaves slots empty.

When an actor is killed, Ray starts it again. The calls that died with it return errors here; its dialogues are handed
out again, to any actor, and all replies they received are in the response cache.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from curate.engines.accounting import Accounting, Budget
from curate.engines.base import EngineIdentity
from curate.engines.model_pool import ModelFacts, check_served
from curate.errors import BudgetReached, CurateError, EngineError, first_line
from curate.executors.feed import MOST_LOSSES, Feed
from curate.executors.ray_cluster import count_workers, joined_cluster, losses
from curate.executors.ray_worker import Worker
from curate.executors.shared_reply_log import Keeper
from curate.recipe import Recipe
from curate.stages import Stage, WorkItem

_AHEAD = 4
_PATIENCE = 600.0
_POLL = 0.5
_CALLS = 10_000
_SETTLE_SECONDS = 10.0


class _Actor:
    """An actor as this process sees it."""

    def __init__(self, handle: Any) -> None:
        self.handle = handle
        self.is_open = False
        self.deaths = 0
        self.reviving: asyncio.Task[None] | None = None


class RayExecutor:
    """Runs stages in actors; see `opening.Executor`. Created by `open_ray`."""

    def __init__(self, ray: Any, recipe: Recipe, accounting: Accounting, budget: Budget) -> None:
        self._ray = ray
        self._recipe = recipe
        self._accounting = accounting
        self._budget = budget
        self._actors: list[_Actor] = []
        self._models: ModelFacts | None = None
        self._lost = losses(ray)

    @property
    def models(self) -> ModelFacts:
        """Return what the first actor's models are and can do; those of the others are the same."""
        if self._models is None:
            raise ValueError("no worker has been started")
        return self._models

    async def start(self, replies: Path, workers: int) -> None:
        """Start the keeper on this machine and the workers anywhere; return when one can work.

        Raises:
            CurateError: the response cache cannot be used, a model cannot be opened.
        """
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        ray, config = self._ray, self._recipe.executor
        here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
        # Workers get the keeper's name: Ray drops the arguments of an actor, and could not restart one that was
        # given a handle.
        name = f"curate-keeper-{secrets.token_hex(8)}"
        options = {"name": name, "num_cpus": 0, "scheduling_strategy": here}
        log = Path.cwd() / replies  # the keeper's process has another working directory
        self._keeper = ray.remote(Keeper).options(**options).remote(log, self._budget)
        worker = ray.remote(Worker).options(
            num_cpus=config.cpus_per_worker,
            num_gpus=config.gpus_per_worker,
            max_restarts=-1,
            max_concurrency=_CALLS,
        )
        arguments = (self._recipe, name, Path.cwd())
        self._actors = [_Actor(worker.remote(*arguments)) for _ in range(workers)]
        for actor in self._actors:
            actor.reviving = asyncio.create_task(self._revive(actor))
        ready = [actor.reviving for actor in self._actors if actor.reviving]
        await asyncio.wait(ready, return_when=asyncio.FIRST_COMPLETED)
        for task in ready:
            if task.done():
                task.result()
        for facts in self.models.served:
            first = await self._keeper.first_served.remote(facts.identity.key, facts.served)
            if isinstance(first, CurateError):
                raise first
            check_served(facts, first)

    async def run(
        self, stage: Stage[Any], items: Iterable[WorkItem], done: Callable[[WorkItem, Any], None]
    ) -> None:
        """As `opening.Runner.run`; each actor has as many dialogues open as its engines say."""
        slots = self.models.open_dialogues(stage.name)
        feed = Feed(stage.name, items, len(self._actors), _AHEAD * slots * len(self._actors))
        reached: list[BudgetReached] = []
        tasks = [
            asyncio.create_task(self._serve(stage, index, feed, done, reached))
            for index in range(len(self._actors))
            for _ in range(slots)
        ]
        # Slots of an actor that does not come back never end; `over` ends the run without them.
        over = asyncio.create_task(feed.over.wait())
        all_slots = asyncio.gather(*tasks)
        try:
            ends: tuple[asyncio.Future[Any], ...] = (all_slots, over)
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            if all_slots.done():
                all_slots.result()
        finally:
            for task in (*tasks, over):
                task.cancel()
            await asyncio.gather(*tasks, over, all_slots, return_exceptions=True)
            await self._collect()
        if reached:
            raise reached[0]

    async def _serve(
        self,
        stage: Stage[Any],
        index: int,
        feed: Feed,
        done: Callable[[WorkItem, Any], None],
        reached: list[BudgetReached],
    ) -> None:
        """Run one slot of one actor: one item after the other until there are none."""
        actor = self._actors[index]
        await _finished(actor.reviving)
        while (item := await feed.take(index)) is not None:
            try:
                row = await actor.handle.work.remote(stage.name, stage.fingerprint, item)
            except self._lost as error:
                if actor.reviving is None or actor.reviving.done():
                    _bury(actor, error)
                    actor.reviving = asyncio.create_task(self._revive(actor))
                feed.give_back(item)
                await _finished(actor.reviving)
                continue
            if isinstance(row, BudgetReached):
                reached.append(row)
                feed.stop()
            elif isinstance(row, CurateError):
                raise row
            else:
                actor.deaths = 0
                done(item, row)
            feed.finish()

    async def _revive(self, actor: _Actor) -> None:
        """Wait until an actor can work; raise if its models differ from the run's."""
        until = time.monotonic() + _PATIENCE
        while True:
            try:
                started = await actor.handle.start.remote()
                break
            except self._lost as error:
                if time.monotonic() > until:
                    raise EngineError(
                        f"a worker could not be started within {_PATIENCE:.0f} seconds",
                        got=first_line(error),
                        fix="look for the reason in Ray's logs and run again",
                    ) from error
                await asyncio.sleep(_POLL)
        if isinstance(started, CurateError):
            raise started
        actor.is_open = True
        if self._models is None:
            self._models = started
        expected, got = _what_scores(self._models), _what_scores(started)
        if got != expected:
            raise EngineError(
                "two workers have opened different models, whose scores cannot be compared",
                got=got,
                expected=expected,
                fix="put the same files and versions on every machine",
            )

    async def _collect(self) -> None:
        """Update counts and budget of this process."""
        await self._ask_all("settle")
        try:
            totals, budget = await self._keeper.totals.remote()
        except self._lost:
            return  # the error that ended it is already being raised
        self._accounting.purposes = totals.purposes
        self._accounting.damaged = totals.damaged
        self._budget.used_calls = budget.used_calls
        self._budget.used_tokens = budget.used_tokens
        self._budget.used_money = budget.used_money

    async def _ask_all(self, method: str) -> None:
        """Call every living actor; those that do not answer in time are ignored."""
        calls = [
            asyncio.ensure_future(getattr(actor.handle, method).remote())
            for actor in self._actors
            if actor.is_open
        ]
        if calls:
            await asyncio.wait(calls, timeout=_SETTLE_SECONDS)
        for call in calls:
            call.cancel()
        await asyncio.gather(*calls, return_exceptions=True)

    async def close(self) -> None:
        """Stop the workers, then the keeper; replies received so far are kept."""
        ray = self._ray
        reviving = [actor.reviving for actor in self._actors if actor.reviving]
        for task in reviving:
            task.cancel()
        await asyncio.gather(*reviving, return_exceptions=True)
        await self._ask_all("close")
        for actor in self._actors:
            ray.kill(actor.handle)
        try:
            await self._keeper.close.remote()
        except self._lost:
            return  # its replies are on disk, and the next run reads them
        ray.kill(self._keeper)


@asynccontextmanager
async def open_ray(
    recipe: Recipe, replies: Path, accounting: Accounting, budget: Budget
) -> AsyncIterator[RayExecutor]:
    """Open the recipe's models in actors on the cluster that the recipe names.

    Args:
        recipe: its `executor` section gives the number of actors and the resources of each.
        replies: the response cache, a SQLite file on this machine.
        accounting: gets the counts of all actors at the end of each stage.
        budget: held by the keeper; a limit on calls is exact, those on tokens and money can be exceeded by what is in
            flight in all actors together.

    Raises:
        UsageError: Ray is missing, the address or the resources are wrong.
        EngineError: a model cannot be opened.
    """
    with joined_cluster(recipe.executor) as ray:
        workers = count_workers(ray, recipe.executor)
        executor = RayExecutor(ray, recipe, accounting, budget)
        try:
            await executor.start(replies, workers)
            yield executor
        finally:
            await executor.close()


def _bury(actor: _Actor, error: Exception) -> None:
    """Count a death of an actor; raise when it has died too often in a row."""
    actor.is_open = False
    actor.deaths += 1
    if actor.deaths >= MOST_LOSSES:
        raise EngineError(
            f"a worker died {actor.deaths} times and finished no dialogue in between",
            got=first_line(error),
            fix="look for the reason in Ray's logs (most often, memory ran out) and run again",
        )


def _what_scores(models: ModelFacts) -> list[tuple[EngineIdentity, list[str], str]]:
    """Return what must be the same on every machine; the number of open dialogues may differ."""
    return [
        (facts.identity, sorted(facts.capabilities), facts.served)
        for facts in (*models.judges, models.judge, models.policy, models.reviser, models.metrics)
    ]


async def _finished(task: asyncio.Task[None] | None) -> None:
    """Wait for a task that several wait for: all get its error, and cancelling one does not cancel the task."""
    if task is not None:
        await asyncio.shield(task)
