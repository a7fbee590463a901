"""Two layers of the client: `Retrying` repeats calls that failed, `OneByOne` splits siblings that failed together."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Sequence

from curate.engines.base import Answer, Calls, Completion, EngineIdentity, Fault, Layer
from curate.errors import EngineError


class Retrying:
    """Retries calls that fail with a transient fault; gives up an engine that keeps failing.

    Args:
        retries: most retries of a call after transient faults.
        fatal_after: the engine is given up after this number of calls in a row (a list of siblings is one call)
            that end in `auth` or `connection` faults, their retries used up; otherwise every further dialogue
            would be unscored. Such a call gets as many further retries, so that the fault is its answer only if
            other calls succeeded meanwhile. HTTP 403 may concern one text only, so such calls about one
            dialogue count once.
        base_delay: seconds before the first retry, doubled for each further one, with jitter, at most 60; never
            less than the server asks for.
        deadline: seconds after a call's first try in which retries may begin; None: no limit.
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
        """Retry transient faults until all calls are answered, the retries are used up or the deadline is over.

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
            # More retries for these: an engine that is gone is given up before its last faults become answers.
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
                self._count_fatal(calls, faults)
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
        self._count_fatal(calls, faults)

    def _retries_of(self, fault: Fault) -> int:
        return self._retries if fault.is_transient else 0

    def _pause(self, attempt: int, faults: Sequence[Fault | None]) -> float:
        doubled: float = min(self._base_delay * 2**attempt, 60.0) * random.uniform(0.5, 1.0)
        requested = (fault.retry_after or 0.0 for fault in faults if fault and fault.is_transient)
        return max((doubled, *requested))

    def _count_fatal(self, calls: Calls, faults: Sequence[Fault | None]) -> None:
        last = faults[-1]
        if last is None or any(fault is None or fault.kind not in _FATAL for fault in faults):
            self._fatal_streak = 0
            self._forbidden = frozenset()
            return
        if any(fault is not None and fault.status == 403 for fault in faults):
            subjects = {request.affinity or key for key, request in calls.items()}
            if subjects <= self._forbidden:
                return
            self._forbidden |= subjects
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
    """Repeats siblings one by one when all fail together: one prompt that is too long fails its whole list."""

    def __init__(self, inner: Layer) -> None:
        self._inner = inner

    async def complete(self, calls: Calls, answer: Answer) -> None:
        """Answer the calls together, and one by one where all of them failed."""
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
