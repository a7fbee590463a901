"""How stages ask: layers of one `complete`, from kept replies down to the engine.

    Cached → TrunkFirst → SingleFlight → Retrying → OneByOne → Budgeted → Recorded → engine

Each layer takes calls by their cache key and hands every reply that is final to `answer`, the moment it is
there: whatever becomes of its siblings, a reply that was paid for reaches whoever waits for it. `Client` puts
the layers together and is the `Ask` that a stage gets.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Protocol

from curate.engines.accounting import Accounting
from curate.engines.base import (
    Capability,
    Completion,
    Engine,
    EngineIdentity,
    Fault,
    Request,
    Splitting,
    Usage,
)
from curate.engines.config import Prices
from curate.engines.redaction import redact_request
from curate.engines.replies import checked
from curate.errors import BudgetReached, EngineError

Calls = Mapping[str, Request]
"""Requests by cache key."""
Answer = Callable[[str, Completion], None]
"""Takes the final reply to a call, by its key."""


class Layer(Protocol):
    """What takes calls and answers them."""

    async def complete(self, calls: Calls, answer: Answer) -> None:
        """Answer siblings. What it raises is no failure of one call: nothing more can be asked."""
        ...


class Replies(Protocol):
    """Kept replies: `engines.cache.ReplyCache`, or something that must be awaited to reach one."""

    def get_many(
        self, keys: Sequence[str]
    ) -> dict[str, Completion] | Awaitable[dict[str, Completion]]:
        """The replies that are there, of those asked for."""
        ...

    def put(self, replies: Mapping[str, Completion]) -> Awaitable[None]:
        """Keep replies by key; they outlive this process from the moment this was awaited."""
        ...


class CallBudget(Protocol):
    """What may still be used: `Budget`, or a share of one that must be awaited."""

    def start_call(self) -> Awaitable[None] | None:
        """Take a call; raises BudgetReached."""
        ...

    def add_usage(self, usage: Usage, prices: Prices | None) -> None:
        """Count what a reply used."""
        ...


class Client:
    """Answers requests from the cache or the engine; callable as `base.Ask`.

    Args:
        engine: where misses go.
        cache: kept replies; None keeps nothing.
        redact: applied to every text that leaves for the engine; the cache key is that of the redacted
            request, since that is what was answered.
        refresh: request keys, purposes or stages (`judge`) whose kept replies are asked for again, once
            each in the life of this object.
        prices: without them a budget of money does not count what is asked here.

    Raises:
        EngineError: on asking, when the engine is given up (then on each further call too).
        BudgetReached: on asking, before a call that the budget does not allow.
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
    """Kept replies first; the rest is asked for, and so is what is to be refreshed, once each."""

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
        """Answer from the cache; what is missing goes on."""
        kept = await self._look_up(calls)
        missing: dict[str, Request] = {}
        for key, request in calls.items():
            if key in kept:
                self._accounting.of(request.purpose).hits += 1
                answer(key, kept[key])
            else:
                missing[key] = request
        if not missing:
            return
        if not self._refresh:
            await self._inner.complete(missing, answer)
            return

        def note(key: str, completion: Completion) -> None:
            if is_kept(completion):
                self._refreshed.add(key)
            answer(key, completion)

        await self._inner.complete(missing, note)

    async def _look_up(self, calls: Calls) -> Mapping[str, Completion]:
        if self._cache is None:
            return {}
        keys = [key for key, request in calls.items() if not self._is_to_refresh(key, request)]
        found = self._cache.get_many(keys)
        return await found if isinstance(found, Awaitable) else found

    def _is_to_refresh(self, key: str, request: Request) -> bool:
        if not self._refresh or key in self._refreshed:
            return False
        stage = request.purpose.partition(".")[0]
        return not self._refresh.isdisjoint((key, request.purpose, stage))


class TrunkFirst:
    """The first call alone, since it puts the siblings' trunk into the engine's prefix cache; then the others.

    Each goes by itself, so that its reply is kept the moment it is there, and all at once where the engine
    has PARALLEL. An engine with BATCH is handed siblings together and shares their trunk itself.
    """

    def __init__(self, inner: Layer, engine: Engine) -> None:
        self._inner = inner
        self._engine = engine

    async def complete(self, calls: Calls, answer: Answer) -> None:
        """Answer group after group, or the first and then all others at once."""
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
            # Siblings in flight are waited for: their replies are kept.
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
    """Equal requests that are asked at the same time are one call, whose reply all of them get."""

    def __init__(self, inner: Layer, accounting: Accounting) -> None:
        self._inner = inner
        self._accounting = accounting
        self._flights: dict[str, asyncio.Future[Completion]] = {}

    async def complete(self, calls: Calls, answer: Answer) -> None:
        """Call for what is not in flight, and wait for what is."""
        theirs = {key: self._flights[key] for key in calls if key in self._flights}
        mine = {key: calls[key] for key in calls if key not in theirs} if theirs else calls
        if mine:
            await self._fly(mine, answer)
        for key, flight in theirs.items():
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
                    # Whoever waited tries for itself: the reason (a cancelled stage, a budget) may be
                    # ours alone.
                    flight.cancel()


class Retrying:
    """Calls that fail in passing are repeated; an engine that fails for good is given up.

    Args:
        retries: how often a call is repeated after a transient fault.
        fatal_after: after so many calls in a row (a list of siblings is one) that end in `auth` or
            `connection` faults, their retries spent, the engine is given up: better than marking every
            dialogue unscored. Such a call is repeated as often more, so that it is answered with that
            fault only where others came through meanwhile. HTTP 403 may be about one text alone, so calls
            about one dialogue that end with it count once.
        base_delay: seconds before the first retry; doubled for each further one, jittered, at most 60,
            and never less than the server asked for.
        deadline: seconds since a call's first try after which no further one begins; None for none.
    """

    def __init__(
        self,
        inner: Layer,
        identity: EngineIdentity,
        *,
        retries: int,
        fatal_after: int = 3,
        base_delay: float = 0.5,
        deadline: float | None = None,
    ) -> None:
        self._inner = inner
        self._identity = identity
        self._retries = retries
        self._fatal_after = fatal_after
        self._base_delay = base_delay
        self._deadline = deadline
        self._fatal_streak = 0
        self._forbidden: frozenset[str] = frozenset()
        self._given_up: str | None = None

    async def complete(self, calls: Calls, answer: Answer) -> None:
        """Repeat what fails in passing, and only that, until all is answered or patience ends.

        Raises:
            EngineError: the engine is given up.
        """
        began = time.monotonic()
        attempt = 0
        failed: dict[str, Completion] = {}
        faults: list[Fault | None] = []

        def sort(key: str, completion: Completion) -> None:
            fault = completion.fault
            faults.append(fault)
            # An engine that is gone is given up before anything is made of its last faults.
            more = self._fatal_after - 1 if fault is not None and fault.kind in _FATAL else 0
            if fault is not None and attempt < self._retries_of(fault) + more:
                failed[key] = completion
            else:
                answer(key, completion)

        while True:
            if self._given_up is not None:
                raise self._give_up()
            await self._inner.complete(calls, sort)
            if not failed:
                break
            if all(fault is None or attempt >= self._retries_of(fault) for fault in faults):
                self._watch_for_the_end(calls, faults)
            pause = self._pause(attempt, faults)
            if self._deadline is not None and time.monotonic() + pause - began > self._deadline:
                for key, completion in failed.items():
                    answer(key, completion)
                break
            await asyncio.sleep(pause)
            calls = {key: calls[key] for key in failed}
            failed.clear()
            faults.clear()
            attempt += 1
        self._watch_for_the_end(calls, faults)

    def _retries_of(self, fault: Fault) -> int:
        return self._retries if fault.is_transient else 0

    def _pause(self, attempt: int, faults: Sequence[Fault | None]) -> float:
        doubled: float = min(self._base_delay * 2**attempt, 60.0) * random.uniform(0.5, 1.0)
        asked = (fault.retry_after or 0.0 for fault in faults if fault and fault.is_transient)
        return max((doubled, *asked))

    def _watch_for_the_end(self, calls: Calls, faults: Sequence[Fault | None]) -> None:
        last = faults[-1]
        if last is None or any(fault is None or fault.kind not in _FATAL for fault in faults):
            self._fatal_streak = 0
            self._forbidden = frozenset()
            return
        if any(fault is not None and fault.status == 403 for fault in faults):
            about = {request.affinity or key for key, request in calls.items()}
            if about <= self._forbidden:
                return
            self._forbidden |= about
        self._fatal_streak += 1
        if self._fatal_streak >= self._fatal_after:
            self._given_up = f"{last.kind}: {last.detail}"
            raise self._give_up()

    def _give_up(self) -> EngineError:
        return EngineError(
            f"the engine {self._identity.engine} ({self._identity.model}) cannot be used any more",
            got=f"{self._fatal_after} calls in a row failed, the last with {self._given_up}",
            fix="check the server and the key, then run again; replies received so far are kept",
        )


_FATAL = frozenset({"auth", "connection"})


class OneByOne:
    """Siblings that fail together are asked one by one: a prompt that is too long fails its whole list."""

    def __init__(self, inner: Layer) -> None:
        self._inner = inner

    async def complete(self, calls: Calls, answer: Answer) -> None:
        """Answer a list, and each of its calls by itself where all of it failed."""
        if len(calls) == 1:
            await self._inner.complete(calls, answer)
            return
        replies: dict[str, Completion] = {}
        try:
            await self._inner.complete(calls, replies.__setitem__)
        except BaseException:
            for key, completion in replies.items():
                answer(key, completion)
            raise
        if len(replies) > 1 and all(map(_fails_as_a_list, replies.values())):
            for key, request in calls.items():
                await self._inner.complete({key: request}, answer)
        else:
            for key, completion in replies.items():
                answer(key, completion)


def _fails_as_a_list(completion: Completion) -> bool:
    fault = completion.fault
    return fault is not None and fault.kind in ("context_overflow", "bad_request")


class Budgeted:
    """Each call is taken from the budget before it is made; what it allows is asked, then it raises.

    What a reply used is counted where it arrives (`Recorded`): no call may start meanwhile as if it had cost nothing.
    """

    def __init__(self, inner: Layer, budget: CallBudget) -> None:
        self._inner = inner
        self._budget = budget

    async def complete(self, calls: Calls, answer: Answer) -> None:
        """Ask what the budget allows.

        Raises:
            BudgetReached: it allows less than all.
        """
        granted: dict[str, Request] = {}
        end: BudgetReached | None = None
        for key, request in calls.items():
            try:
                waiting = self._budget.start_call()
                if waiting is not None:
                    await waiting
            except BudgetReached as reached:
                end = reached
                break
            granted[key] = request

        if granted:
            await self._inner.complete(granted, answer)
        if end is not None:
            raise end


class Recorded:
    """The engine, whose replies are kept and counted before anything else happens with them.

    Kept is every reply, refusals (`refused`) included. Other faults are not: transient ones may pass, and
    the rest depend on what a user may change without changing the identity (a key, the size of the
    context, a server's options), and cost no tokens to meet again.
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
        """One call of the engine."""
        tallies = [self._accounting.of(request.purpose) for request in calls.values()]
        for tally in tallies:
            tally.sent += 1
        completions = list(map(checked, await self._engine.complete(list(calls.values()))))
        # Nothing may come between the replies and the cache.
        replies = dict(zip(calls, completions, strict=True))
        kept = {key: reply for key, reply in replies.items() if is_kept(reply)}
        keeping = self._cache.put(kept) if self._cache is not None and kept else None
        for tally, completion in zip(tallies, completions, strict=True):
            tally.add_call(completion)
            if self._budget is not None:
                self._budget.add_usage(completion.usage, self._prices)
        if keeping is not None:
            await keeping
        for key, completion in replies.items():
            answer(key, completion)


def is_kept(completion: Completion) -> bool:
    """Tell whether a completion is a reply, which is never asked for twice."""
    return completion.fault is None or completion.fault.kind == "refused"
