"""The client through which stages ask a model: layers of `complete`, from kept replies down to the engine.

    Cached → TrunkFirst → SingleFlight → Retrying → OneByOne → Budgeted → Recorded → engine

Each layer takes calls by their cache key and passes each final reply to `answer` as soon as it arrives, so that a
reply that was paid for is delivered even if a sibling fails. `Client` puts the layers together; it is the `Ask`
that a stage gets. `Retrying` and `OneByOne` are in `retrying`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Protocol

from curate.engines.accounting import Accounting
from curate.engines.base import (
    Answer,
    Calls,
    Capability,
    Completion,
    Engine,
    Layer,
    Request,
    Splitting,
    Usage,
)
from curate.engines.config import Prices
from curate.engines.redaction import redact_request
from curate.engines.replies import storable
from curate.engines.retrying import OneByOne, Retrying
from curate.errors import BudgetReached


class Replies(Protocol):
    """Kept replies: `engines.cache.ReplyCache`, or access to one that must be awaited."""

    def get_many(
        self, keys: Sequence[str]
    ) -> dict[str, Completion] | Awaitable[dict[str, Completion]]:
        """Return the kept replies of these keys."""
        ...

    def put(self, replies: Mapping[str, Completion]) -> Awaitable[None]:
        """Keep replies by key, durably once the result has been awaited."""
        ...


class CallBudget(Protocol):
    """The rest of a budget: `Budget`, or a share of one that must be awaited."""

    def start_call(self) -> Awaitable[None] | None:
        """Take a call from the budget; raises BudgetReached where none is left."""
        ...

    def add_usage(self, usage: Usage, prices: Prices | None) -> None:
        """Add the tokens and the cost of a reply."""
        ...


class Client:
    """Answers requests from the cache or the engine; callable as `base.Ask`.

    Args:
        engine: answers requests that have no kept reply.
        cache: kept replies; None keeps nothing.
        redact: applied to every text that is sent; the cache key is that of the redacted request.
        refresh: request keys, purposes or stages (`judge`) whose kept replies are replaced: each request is
            sent again once in the life of this object.
        prices: price of the engine's tokens; None: its calls cost no money in the budget.

    Raises:
        EngineError: from a call, when the engine is given up (then from each further call too).
        BudgetReached: from a call that the budget does not allow; it is not sent.
    """

    def __init__(
        self,
        engine: Engine,
        cache: Replies | None,
        *,
        retries: int = 4,
        accounting: Accounting,
        budget: CallBudget | None = None,
        redact: Callable[[str], str] | None = None,
        refresh: Collection[str] = frozenset(),
        prices: Prices | None = None,
        fatal_after: int = 3,
        base_delay: float = 0.5,
        deadline: float | None = None,
    ) -> None:
        self._identity = engine.identity
        self._redact = redact
        self._accounting = accounting
        layer: Layer = Recorded(engine, cache, accounting, budget, prices)
        if budget is not None:
            layer = Budgeted(layer, budget)
        layer = Retrying(
            OneByOne(layer),
            self._identity,
            retries=retries,
            fatal_after=fatal_after,
            base_delay=base_delay,
            deadline=deadline,
        )
        layer = TrunkFirst(SingleFlight(layer, accounting), engine)
        self._layer = Cached(layer, cache, accounting, refresh)

    async def __call__(self, requests: Sequence[Request]) -> list[Completion]:
        """Answer siblings, in order."""
        if self._redact is not None:
            requests = [redact_request(request, self._redact) for request in requests]
        keys = [request.key(self._identity) for request in requests]
        calls: dict[str, Request] = {}
        for key, request in zip(keys, requests, strict=True):
            tally = self._accounting.of(request.purpose)
            tally.requests += 1
            if key in calls:
                tally.hits += 1
            else:
                calls[key] = request
        answers: dict[str, Completion] = {}
        await self._layer.complete(calls, answers.__setitem__)
        return [answers[key] for key in keys]


class Cached:
    """Answers from kept replies; passes on what is missing or to be refreshed, each key once."""

    def __init__(
        self,
        inner: Layer,
        cache: Replies | None,
        accounting: Accounting,
        refresh: Collection[str] = frozenset(),
    ) -> None:
        self._inner = inner
        self._cache = cache
        self._accounting = accounting
        self._refresh = frozenset(refresh)
        self._refreshed: set[str] = set()

    async def complete(self, calls: Calls, answer: Answer) -> None:
        """Answer from the cache; pass on the rest."""
        hits = await self._look_up(calls)
        missing: dict[str, Request] = {}
        for key, request in calls.items():
            if key in hits:
                self._accounting.of(request.purpose).hits += 1
                answer(key, hits[key])
            else:
                missing[key] = request

        def note(key: str, completion: Completion) -> None:
            if self._refresh and is_kept(completion):
                self._refreshed.add(key)
            answer(key, completion)

        if missing:
            await self._inner.complete(missing, note)

    async def _look_up(self, calls: Calls) -> Mapping[str, Completion]:
        if self._cache is None:
            return {}
        keys = [key for key, request in calls.items() if not self._is_to_refresh(key, request)]
        replies = self._cache.get_many(keys)
        return await replies if isinstance(replies, Awaitable) else replies

    def _is_to_refresh(self, key: str, request: Request) -> bool:
        if not self._refresh or key in self._refreshed:
            return False
        stage = request.purpose.partition(".")[0]
        return not self._refresh.isdisjoint((key, request.purpose, stage))


class TrunkFirst:
    """Makes the first call alone, which puts the siblings' trunk into the engine's prefix cache; then the others.

    Each sibling is a call of its own, so that its reply is kept as soon as it arrives; with PARALLEL the others are
    made at once. An engine with BATCH gets siblings together and shares their trunk itself.
    """

    def __init__(self, inner: Layer, engine: Engine) -> None:
        self._inner = inner
        self._engine = engine

    async def complete(self, calls: Calls, answer: Answer) -> None:
        """Answer group after group, or the first group and then all others at once."""
        groups = self._group(calls)
        is_parallel = Capability.PARALLEL in self._engine.capabilities and len(groups) > 2
        for group in groups[:1] if is_parallel else groups:
            await self._inner.complete(group, answer)
        if not is_parallel:
            return
        # Awaited one by one, most are done when their turn comes: `gather` calls back for each.
        tasks = [asyncio.create_task(self._inner.complete(group, answer)) for group in groups[1:]]
        try:
            for task in tasks:
                await task
        except BaseException as error:
            if isinstance(error, asyncio.CancelledError):
                for task in tasks:
                    task.cancel()
            # Wait for siblings in flight: their replies are kept.
            await asyncio.gather(*tasks, return_exceptions=True)
            raise

    def _group(self, calls: Calls) -> Sequence[Calls]:
        if Capability.BATCH not in self._engine.capabilities:
            return [{key: request} for key, request in calls.items()]
        if not isinstance(self._engine, Splitting):
            return [calls]
        items = list(calls.items())
        groups = self._engine.split([request for _, request in items])
        return [dict(items[index] for index in group) for group in groups]


class SingleFlight:
    """Makes one call of equal requests that are made at the same time; all of them get its reply."""

    def __init__(self, inner: Layer, accounting: Accounting) -> None:
        self._inner = inner
        self._accounting = accounting
        self._flights: dict[str, asyncio.Future[Completion]] = {}

    async def complete(self, calls: Calls, answer: Answer) -> None:
        """Make the calls that are not in flight, and wait for those that are."""
        in_flight = {key: self._flights[key] for key in calls if key in self._flights}
        new = {key: calls[key] for key in calls if key not in in_flight} if in_flight else calls
        if new:
            await self._fly(new, answer)
        for key, flight in in_flight.items():
            await self._join(key, calls[key], flight, answer)

    async def _join(
        self,
        key: str,
        request: Request,
        flight: asyncio.Future[Completion] | None,
        answer: Answer,
    ) -> None:
        while flight is not None:
            await asyncio.wait([flight])
            if not flight.cancelled():
                self._accounting.of(request.purpose).hits += 1
                answer(key, flight.result())
                return
            flight = self._flights.get(key)
        await self._fly({key: request}, answer)

    async def _fly(self, calls: Calls, answer: Answer) -> None:
        loop = asyncio.get_running_loop()
        for key in calls:
            self._flights[key] = loop.create_future()

        def land(key: str, completion: Completion) -> None:
            self._flights[key].set_result(completion)
            answer(key, completion)

        try:
            await self._inner.complete(calls, land)
        finally:
            for key in calls:
                flight = self._flights.pop(key)
                if not flight.done():
                    # Each waiting request makes its own call: the reason (a cancelled stage, a budget) may
                    # hold for this one only.
                    flight.cancel()


class Budgeted:
    """Takes each call from the budget before it is made.

    Tokens and money are counted where a reply arrives (`Recorded`), before another call can start.
    """

    def __init__(self, inner: Layer, budget: CallBudget) -> None:
        self._inner = inner
        self._budget = budget

    async def complete(self, calls: Calls, answer: Answer) -> None:
        """Make the calls that the budget allows.

        Raises:
            BudgetReached: it does not allow all of them; raised after the allowed ones are answered.
        """
        allowed: dict[str, Request] = {}
        end: BudgetReached | None = None
        for key, request in calls.items():
            try:
                waiting = self._budget.start_call()
                if waiting is not None:
                    await waiting
            except BudgetReached as error:
                end = error
                break
            allowed[key] = request
        if allowed:
            await self._inner.complete(allowed, answer)
        if end is not None:
            raise end


class Recorded:
    """Calls the engine; keeps and counts its replies before anything else happens with them.

    Every reply is kept, refusals (`refused`) included. Other faults are not: transient ones may pass, and the
    others depend on settings that can change while the identity stays (a key, the size of the context, a
    server's options), and cost no tokens when they occur again.
    """

    def __init__(
        self,
        engine: Engine,
        cache: Replies | None,
        accounting: Accounting,
        budget: CallBudget | None = None,
        prices: Prices | None = None,
    ) -> None:
        self._engine = engine
        self._cache = cache
        self._accounting = accounting
        self._budget = budget
        self._prices = prices

    async def complete(self, calls: Calls, answer: Answer) -> None:
        """Make one call of the engine."""
        tallies = [self._accounting.of(request.purpose) for request in calls.values()]
        for tally in tallies:
            tally.sent += 1
        completions = list(map(storable, await self._engine.complete(list(calls.values()))))
        # Nothing may come between the replies and the cache.
        replies = dict(zip(calls, completions, strict=True))
        to_keep = {key: reply for key, reply in replies.items() if is_kept(reply)}
        keeping = self._cache.put(to_keep) if self._cache is not None and to_keep else None
        for tally, completion in zip(tallies, completions, strict=True):
            tally.add_call(completion)
            if self._budget is not None:
                self._budget.add_usage(completion.usage, self._prices)
        if keeping is not None:
            await keeping
        for key, completion in replies.items():
            answer(key, completion)


def is_kept(completion: Completion) -> bool:
    """Tell whether a completion is kept, so that its request is never sent again."""
    return completion.fault is None or completion.fault.kind == "refused"
