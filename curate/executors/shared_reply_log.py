"""One response cache and one budget for stages that run in other processes, on any machine.

The run's `ReplyCache` has one owner, a `Keeper` on the machine with the run folder; workers use a `KeptReplies` in
place of the cache. A call is in flight until its reply is in the cache; only then does a stage get it. So killing a
worker, or its machine, repeats calls in flight and nothing more.

Everything goes through one call, `Keeper.exchange`. While one is under way the next is collected, so a busy worker
makes few large exchanges and an idle one a quick small one. A worker's counts are sent as running totals: the last
totals of each worker count, and nothing is counted twice. Nothing here depends on how the call is transported.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import orjson

from curate.engines.accounting import Accounting, Budget
from curate.engines.base import Completion, Usage
from curate.engines.cache import ReplyCache
from curate.engines.config import Prices
from curate.engines.replies import completion_to_json, read_stored
from curate.errors import CurateError

Wish = tuple[str, Any]
"""`put` with keys and replies as JSON, `get` with keys, or `call` for permission to start one."""


@dataclass(slots=True)
class Counts:
    """Running totals of one worker: a unique name of its process, and what it used."""

    owner: str
    accounting: Accounting
    used: Budget = field(default_factory=Budget)


class Keeper:
    """Owner of a run's response cache and budget, called by one thread.

    Args:
        replies: the SQLite file of the `ReplyCache`.
        budget: limits, and what was used before.
    """

    def __init__(self, replies: Path, budget: Budget) -> None:
        self._cache = ReplyCache(replies)
        self._budget = budget
        self._counts: dict[str, Counts] = {}

    def exchange(self, counts: Counts, wishes: Sequence[Wish]) -> list[Any]:
        """Store, look up and grant in order; return one answer per wish, an error as a value."""
        before = self._counts.get(counts.owner, Counts(counts.owner, Accounting())).used
        self._budget.used_tokens += counts.used.used_tokens - before.used_tokens
        self._budget.used_money += counts.used.used_money - before.used_money
        self._counts[counts.owner] = Counts(counts.owner, counts.accounting, replace(counts.used))
        return [self._answer(kind, value) for kind, value in wishes]

    def _answer(self, kind: str, value: Any) -> Any:
        try:
            if kind == "put":
                return self._cache.store.put(value)
            return self._budget.start_call() if kind == "call" else self._cache.store.get(value)
        except CurateError as error:
            return error

    def first_served(self, identity: str, served: str) -> str | CurateError:
        """As `ReplyCache.first_served`; an error is returned as a value."""
        try:
            return self._cache.first_served(identity, served)
        except CurateError as error:
            return error

    def totals(self) -> tuple[Accounting, Budget]:
        """Return the sum of all workers' counts, and the budget."""
        total = Accounting(damaged=self._cache.damaged)
        for counts in self._counts.values():
            total.merge(counts.accounting)
        return total, self._budget

    def close(self) -> None:
        """Close the response cache."""
        self._cache.close()


class KeptReplies:
    """A worker's side: the `Replies` and the `CallBudget` of its askers, both backed by one keeper.

    Args:
        exchange: sends counts and wishes to the keeper.
        counts: the worker's counts, sent along with every exchange.
        limits: the run's budget, for its limits only.
    """

    def __init__(
        self,
        exchange: Callable[[Counts, Sequence[Wish]], Awaitable[list[Any]]],
        counts: Counts,
        limits: Budget,
    ) -> None:
        self._exchange = exchange
        self._counts = counts
        self._is_limited = {limits.calls, limits.tokens, limits.money} != {None}
        self._wishes: list[tuple[Wish, asyncio.Future[Any]]] = []
        self._sending: asyncio.Task[None] | None = None

    async def put(self, replies: Mapping[str, Completion]) -> None:
        """Store replies; they are in the response cache once this has been awaited."""
        items = replies.items()
        entries = [(key, orjson.dumps(completion_to_json(reply))) for key, reply in items]
        await self._wish("put", entries)

    async def get_many(self, keys: Sequence[str]) -> dict[str, Completion]:
        """Return the replies that exist for these keys, whichever worker received them."""
        stored = await self._wish("get", list(keys))
        replies = {key: read_stored(reply) for key, reply in stored.items()}
        return {key: reply for key, reply in replies.items() if reply is not None}

    def start_call(self) -> Awaitable[None] | None:
        """Take a call from the run's budget; raises BudgetReached when awaited."""
        return self._wish("call", None) if self._is_limited else None

    def add_usage(self, usage: Usage, prices: Prices | None) -> None:
        """Count what a reply used; the keeper gets it with the next exchange."""
        self._counts.used.add_usage(usage, prices)

    async def settle(self) -> None:
        """Send the current counts to the keeper."""
        await self._exchange(self._counts, [])

    def _wish(self, kind: str, value: Any) -> asyncio.Future[Any]:
        answered = asyncio.get_running_loop().create_future()
        self._wishes.append(((kind, value), answered))
        if self._sending is None:
            self._sending = asyncio.create_task(self._send())
        return answered

    async def _send(self) -> None:
        await asyncio.sleep(0)  # wishes made in the same moment are sent together
        while self._wishes:
            waiting, self._wishes = self._wishes, []
            try:
                answers = await self._exchange(self._counts, [wish for wish, _ in waiting])
            except Exception as error:  # whatever it was, everyone waiting must get it
                answers = [error] * len(waiting)
            for (_, answered), answer in zip(waiting, answers, strict=True):
                if answered.done():
                    continue  # its waiter was cancelled
                if isinstance(answer, Exception):
                    answered.set_exception(answer)
                else:
                    answered.set_result(answer)
        self._sending = None
