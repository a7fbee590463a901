"""How stages ask: kept replies first, then the engine, with retries, accounting and a budget.

`Asker` is the `Ask` that a stage gets. Each call goes to the engine by itself, so that its reply is in
the log the moment it is there, whatever becomes of its siblings. The first of several siblings goes
alone: it puts their common start into the engine's prefix cache for the others.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

from curate.engines.accounting import Accounting, Budget
from curate.engines.base import Capability, Completion, Engine, Request, Usage
from curate.engines.config import Prices
from curate.errors import EngineError, UsageError

__all__ = ["Accounting", "Asker", "Budget", "CallBudget", "Replies"]


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

    @property
    def money(self) -> float | None:
        """The limit in money, where there is one."""
        ...

    def start_call(self) -> Awaitable[None] | None:
        """Take a call; raises BudgetReached."""
        ...

    def add_usage(self, usage: Usage, prices: Prices | None) -> None:
        """Count what a reply used."""
        ...


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
        prices: needed for a budget of money.
        fatal_after: after so many `auth` or `connection` faults in a row (each counted once, when its
            retries are spent) the engine is given up: better than marking every dialogue unscored.
        base_delay: seconds before the first retry; doubled for each further one, jittered, at most 60.

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
    ) -> None:
        if budget is not None and budget.money is not None and prices is None:
            raise UsageError(
                f"a budget of money needs the prices of {engine.identity.model}",
                expected="prices: {input: ..., output: ...} per million tokens, on the engine",
            )
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
        wanted = [
            key
            for key, request in zip(keys, requests, strict=True)
            if not self._is_to_refresh(key, request)
        ]
        found = self._cache.get_many(wanted)
        return await found if isinstance(found, Awaitable) else found

    def _is_to_refresh(self, key: str, request: Request) -> bool:
        if not self._refresh or key in self._refreshed:
            return False
        stage = request.purpose.partition(".")[0]
        return not self._refresh.isdisjoint((key, request.purpose, stage))

    async def _ask_all(self, missing: list[tuple[str, Request]]) -> dict[str, Completion]:
        alone = missing[:1] if Capability.PARALLEL in self.engine.capabilities else missing
        answers = {key: await self._ask_once(key, request) for key, request in alone}
        rest = missing[len(alone) :]
        # Siblings in flight are waited for also when one of them raises: their replies are kept.
        outcomes = await asyncio.gather(
            *(self._ask_once(key, request) for key, request in rest), return_exceptions=True
        )
        for (key, _), outcome in zip(rest, outcomes, strict=True):
            if isinstance(outcome, BaseException):
                raise outcome
            answers[key] = outcome
        return answers

    async def _ask_once(self, key: str, request: Request) -> Completion:
        """One call for equal requests in flight; the others wait for its reply."""
        while (flight := self._flights.get(key)) is not None:
            await asyncio.wait([flight])
            if not flight.cancelled():
                self._accounting.of(request.purpose).hits += 1
                return flight.result()
        flight = asyncio.get_running_loop().create_future()
        self._flights[key] = flight
        try:
            completion = await self._call_with_retries(key, request)
        except BaseException:
            # Whoever waited tries for itself: the reason (a cancelled stage, a budget) may be ours alone.
            flight.cancel()
            raise
        else:
            flight.set_result(completion)
            return completion
        finally:
            del self._flights[key]

    async def _call_with_retries(self, key: str, request: Request) -> Completion:
        for attempt in range(self._retries + 1):
            completion = await self._call(key, request)
            fault = completion.fault
            if fault is None or not fault.is_transient or attempt == self._retries:
                break
            backoff = min(self._base_delay * 2**attempt, 60.0)
            await asyncio.sleep(max(backoff * random.uniform(0.5, 1.0), fault.retry_after or 0.0))
        self._watch_for_the_end(completion)
        return completion

    async def _call(self, key: str, request: Request) -> Completion:
        if self._given_up is not None:
            raise self._give_up()
        if self._budget is not None:
            granted = self._budget.start_call()
            if granted is not None:
                await granted
        tally = self._accounting.of(request.purpose)
        tally.sent += 1
        [completion] = await self.engine.complete([request])
        # Nothing may come between the reply and the log.
        is_reply = completion.fault is None or completion.fault.kind == "refused"
        kept: Awaitable[None] | None = None
        if self._cache is not None and is_reply:
            kept = self._cache.put(key, completion)
            if self._refresh:
                self._refreshed.add(key)
        tally.add_call(completion)
        if self._budget is not None:
            self._budget.add_usage(completion.usage, self._prices)
        if kept is not None:
            await kept
        return completion

    def _watch_for_the_end(self, completion: Completion) -> None:
        fault = completion.fault
        if fault is None or fault.kind not in _FATAL:
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


def redact_request(request: Request, redact: Callable[[str], str]) -> Request:
    """The request with `redact` applied to message contents, tool arguments and the prefill."""
    return replace(
        request,
        messages=tuple(_redact_message(message, redact) for message in request.messages),
        prefill=redact(request.prefill) if request.prefill else "",
    )


def _redact_message(message: Mapping[str, Any], redact: Callable[[str], str]) -> Mapping[str, Any]:
    changed = dict(message)
    content = message.get("content")
    if isinstance(content, str):
        changed["content"] = redact(content)
    elif isinstance(content, list):
        changed["content"] = [
            {**part, "text": redact(part["text"])} if isinstance(part.get("text"), str) else part
            for part in content
        ]
    if message.get("tool_calls"):
        changed["tool_calls"] = [_redact_call(call, redact) for call in message["tool_calls"]]
    return changed


def _redact_call(call: Mapping[str, Any], redact: Callable[[str], str]) -> Mapping[str, Any]:
    function = call.get("function") or {}
    if not isinstance(function.get("arguments"), str):
        return call
    return {**call, "function": {**function, "arguments": redact(function["arguments"])}}
