"""How stages ask: kept replies first, then the engine, with retries, accounting and a budget.

`Asker` is the `Ask` that a stage gets. Each request goes to the engine by itself, so that its reply is in
the log the moment it is there, whatever becomes of its siblings. The first of several siblings goes
alone: it puts their common start into the engine's prefix cache for the others. An engine with
`Capability.BATCH` is handed all siblings in one call and shares their start itself; their replies are in
the log the moment the call returns, and only those that failed are asked for again.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from typing import Protocol

from curate.engines.accounting import Accounting
from curate.engines.base import (
    Capability,
    Completion,
    Engine,
    Request,
    Splitting,
    Usage,
)
from curate.engines.config import Prices
from curate.engines.redaction import redact_request
from curate.engines.replies import checked
from curate.errors import BudgetReached, EngineError


class Replies(Protocol):
    """Kept replies: `engines.cache.ReplyCache`, or something that must be awaited to reach one."""

    def get_many(
        self, keys: Sequence[str]
    ) -> dict[str, Completion] | Awaitable[dict[str, Completion]]:
        """The replies that are there, of those asked for."""
        ...

    def put(self, key: str, completion: Completion) -> Awaitable[None] | None:
        """Keep a reply; it outlives this process from the moment this returns, awaited or not."""
        ...


class CallBudget(Protocol):
    """What may still be used: `Budget`, or a share of one that must be awaited."""

    def start_call(self) -> Awaitable[None] | None:
        """Take a call; raises BudgetReached."""
        ...

    def add_usage(self, usage: Usage, prices: Prices | None) -> None:
        """Count what a reply used."""
        ...


Calls = list[tuple[str, Request]]
"""Cache key and request of each call."""

_FATAL = frozenset({"auth", "connection"})


class Asker:
    """Answers requests from the cache or the engine; callable as `base.Ask`.

    What is kept: every reply, refusals (`refused`) included. Other faults are not: transient ones may
    pass, and the rest depend on what a user may change without changing the identity (a key, the
    size of the context, a server's options), and cost no tokens to meet again.

    Args:
        engine: where misses go.
        cache: kept replies; None keeps nothing.
        retries: how often a call is repeated after a transient fault.
        accounting: gets the counts.
        budget: checked before each call.
        redact: applied to every text that leaves for the engine; the cache key is that of the redacted
            request, since that is what was answered.
        refresh: request keys, purposes or stages (`judge`) whose kept replies are asked for again, once
            each in the life of this object.
        prices: without them a budget of money does not count what is asked here.
        fatal_after: after so many `auth` or `connection` faults in a row (each counted once, when its
            retries are spent) the engine is given up: better than marking every dialogue unscored.
        base_delay: seconds before the first retry; doubled for each further one, jittered, at most 60.
        deadline: seconds since a request's first try after which no further one begins; None for none.

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
        self.engine = engine
        self._cache = cache
        self._retries = retries
        self._accounting = accounting
        self._budget = budget
        self._redact = redact
        self._refresh = frozenset(refresh)
        self._refreshed: set[str] = set()
        self._prices = prices
        self._fatal_after = fatal_after
        self._base_delay = base_delay
        self._deadline = deadline
        self._identity = engine.identity
        self._flights: dict[str, asyncio.Future[Completion]] = {}
        self._fatal_streak = 0
        self._given_up: str | None = None

    async def __call__(self, requests: Sequence[Request]) -> list[Completion]:
        """Answer siblings, in order."""
        if self._redact is not None:
            requests = [redact_request(request, self._redact) for request in requests]
        keys = [request.key(self._identity) for request in requests]
        kept = await self._look_up(keys, requests)
        missing: dict[str, Request] = {}
        for key, request in zip(keys, requests, strict=True):
            tally = self._accounting.of(request.purpose)
            tally.requests += 1
            if key in kept or key in missing:
                tally.hits += 1
            else:
                missing[key] = request
        answers = kept | await self._ask_all(list(missing.items()))
        return [answers[key] for key in keys]

    async def _look_up(
        self, keys: Sequence[str], requests: Sequence[Request]
    ) -> dict[str, Completion]:
        if self._cache is None:
            return {}
        if self._refresh:
            asked = zip(keys, requests, strict=True)
            keys = [key for key, request in asked if not self._is_to_refresh(key, request)]
        found = self._cache.get_many(keys)
        return await found if isinstance(found, Awaitable) else found

    def _is_to_refresh(self, key: str, request: Request) -> bool:
        if key in self._refreshed:
            return False
        stage = request.purpose.partition(".")[0]
        return not self._refresh.isdisjoint((key, request.purpose, stage))

    async def _ask_all(self, missing: Calls) -> dict[str, Completion]:
        """The first call alone, for the trunk; then the others, at once where the engine likes that."""
        if not missing:
            return {}
        groups = self._group(missing)
        alone = groups[:1] if Capability.PARALLEL in self.engine.capabilities else groups
        answers: dict[str, Completion] = {}
        for group in alone:
            answers |= await self._ask_group(group)
        rest = groups[len(alone) :]
        if len(rest) == 1:
            return answers | await self._ask_group(rest[0])
        if not rest:
            return answers
        # Awaited one by one, most are done when their turn comes: `gather` calls back for each.
        tasks = [asyncio.create_task(self._ask_group(group)) for group in rest]
        try:
            for task in tasks:
                answers |= await task
        except BaseException as error:
            if isinstance(error, asyncio.CancelledError):
                for task in tasks:
                    task.cancel()
            # Siblings in flight are waited for: their replies are kept.
            await asyncio.gather(*tasks, return_exceptions=True)
            raise
        return answers

    def _group(self, missing: Calls) -> list[Calls]:
        """What goes to the engine in one call: each by itself, or as the engine batches them."""
        if Capability.BATCH not in self.engine.capabilities:
            return [[call] for call in missing]
        if not isinstance(self.engine, Splitting):
            return [missing]
        groups = self.engine.split([request for _, request in missing])
        return [[missing[index] for index in group] for group in groups]

    async def _ask_group(self, group: Calls) -> dict[str, Completion]:
        """One call, but for those that are in flight already, whose replies are waited for."""
        flights = self._flights
        theirs = {key: flights[key] for key, _ in group if key in flights}
        if not theirs:
            return await self._fly(group)
        mine = [(key, request) for key, request in group if key not in theirs]
        answers = await self._fly(mine) if mine else {}
        for key, request in group:
            if key in theirs:
                answers[key] = await self._join(key, request, theirs[key])
        return answers

    async def _join(
        self, key: str, request: Request, flight: asyncio.Future[Completion] | None
    ) -> Completion:
        """The reply to an equal request in flight; a call of its own where that came to nothing."""
        while flight is not None:
            await asyncio.wait([flight])
            if not flight.cancelled():
                self._accounting.of(request.purpose).hits += 1
                return flight.result()
            flight = self._flights.get(key)
        return (await self._fly([(key, request)]))[key]

    async def _fly(self, calls: Calls) -> dict[str, Completion]:
        """Call for requests that are not in flight, and give their replies to whoever waits for them."""
        loop = asyncio.get_running_loop()
        for key, _ in calls:
            self._flights[key] = loop.create_future()
        try:
            return await self._call_with_retries(calls)
        finally:
            for key, _ in calls:
                flight = self._flights.pop(key)
                if not flight.done():
                    # Whoever waited tries for itself: the reason (a cancelled stage, a budget) may be
                    # ours alone.
                    flight.cancel()

    async def _call_with_retries(self, calls: Calls) -> dict[str, Completion]:
        """Repeat what fails in passing, and only that, until all is answered or patience ends."""
        answers: dict[str, Completion] = {}
        began = time.monotonic()
        for attempt in range(self._retries + 1):
            granted, stop = await self._grant(calls)
            completions = await self._call(granted)
            if len(granted) > 1 and all(map(_fails_as_a_list, completions)):
                # One prompt that is too long fails its whole list; the others can be answered.
                for call in granted:
                    answers |= await self._call_with_retries([call])
                granted, completions = [], []
            failed: dict[str, Completion] = {}
            for (key, _), completion in zip(granted, completions, strict=True):
                fault = completion.fault
                if fault is not None and fault.is_transient and attempt < self._retries:
                    failed[key] = completion
                else:
                    answers[key] = completion
                    self._flights[key].set_result(completion)
            if stop is not None:
                raise stop
            if not failed:
                break
            pause = self._pause(attempt, failed.values())
            if self._deadline is not None and time.monotonic() + pause - began > self._deadline:
                for key, completion in failed.items():
                    answers[key] = completion
                    self._flights[key].set_result(completion)
                break
            await asyncio.sleep(pause)
            calls = [call for call in calls if call[0] in failed]
        if completions:
            self._watch_for_the_end(completions)
        return answers

    def _pause(self, attempt: int, failed: Iterable[Completion]) -> float:
        """Seconds before the next try: doubled each time, jittered, never less than a server asked for."""
        doubled: float = self._base_delay * 2**attempt
        asked = (completion.fault.retry_after for completion in failed if completion.fault)
        return max(
            min(doubled, 60.0) * random.uniform(0.5, 1.0), *(seconds or 0.0 for seconds in asked)
        )

    async def _grant(self, calls: Calls) -> tuple[Calls, BudgetReached | None]:
        """Take the calls from the budget: those that it allows, and the end where it is reached."""
        if self._given_up is not None:
            raise self._give_up()
        if self._budget is None:
            return calls, None
        for index in range(len(calls)):
            try:
                waiting = self._budget.start_call()
                if waiting is not None:
                    await waiting
            except BudgetReached as reached:
                if index == 0:
                    raise
                return calls[:index], reached
        return calls, None

    async def _call(self, calls: Calls) -> list[Completion]:
        tallies = [self._accounting.of(request.purpose) for _, request in calls]
        for tally in tallies:
            tally.sent += 1
        replies = await self.engine.complete([request for _, request in calls])
        completions = [checked(reply) for reply in replies]
        # Nothing may come between the replies and the log.
        waiting: list[Awaitable[None]] = []
        if self._cache is not None:
            for (key, _), completion in zip(calls, completions, strict=True):
                if completion.fault is None or completion.fault.kind == "refused":
                    kept = self._cache.put(key, completion)
                    if kept is not None:
                        waiting.append(kept)
                    if self._refresh:
                        self._refreshed.add(key)
        for tally, completion in zip(tallies, completions, strict=True):
            tally.add_call(completion)
            if self._budget is not None:
                self._budget.add_usage(completion.usage, self._prices)
        for kept in waiting:
            await kept
        return completions

    def _watch_for_the_end(self, completions: Sequence[Completion]) -> None:
        """Count calls in a row (a list of siblings is one) of which nothing came back but the same end."""
        fault = completions[-1].fault
        if fault is None or any(
            one.fault is None or one.fault.kind not in _FATAL for one in completions
        ):
            self._fatal_streak = 0
            return
        self._fatal_streak += 1
        if self._fatal_streak >= self._fatal_after:
            self._given_up = f"{fault.kind}: {fault.detail}"
            raise self._give_up()

    def _give_up(self) -> EngineError:
        return EngineError(
            f"the engine {self._identity.engine} ({self._identity.model}) cannot be used any more",
            got=f"{self._fatal_after} calls in a row failed, the last with {self._given_up}",
            fix="check the server and the key, then run again; replies received so far are kept",
        )


def _fails_as_a_list(completion: Completion) -> bool:
    fault = completion.fault
    return fault is not None and fault.kind in ("context_overflow", "bad_request")
