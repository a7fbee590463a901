"""A limit on the requests in flight to one address, lowered when the server refuses (429, 503)."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from typing import Self


class Limiter:
    """Places for open calls, in order of arrival: `async with limiter: ...`.

    A server on your own machines queues requests and is fastest with a full queue: use a fixed limit. A hosted
    API refuses requests: an adaptive limit is halved then, and grows again by one call a round (additive
    increase, multiplicative decrease, as in TCP; Chiu and Jain 1989).

    Args:
        most: largest number of open calls.
        is_adaptive: False keeps the limit fixed.
    """

    def __init__(self, most: int, *, is_adaptive: bool = True) -> None:
        self._most = most
        self._is_adaptive = is_adaptive
        self._open = 0
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._slowed = 0.0
        self.limit = float(most)

    async def __aenter__(self) -> Self:
        if not self._waiting and self._open < int(self.limit):
            self._open += 1
            return self
        place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(place)
        try:
            await place
        except asyncio.CancelledError:
            if place.done() and not place.cancelled():
                await self.__aexit__()  # admitted and cancelled at once
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        self._open -= 1
        self._admit()

    def _admit(self) -> None:
        while self._waiting and self._open < int(self.limit):
            place = self._waiting.popleft()
            if not place.done():
                self._open += 1
                place.set_result(None)

    def slow_down(self) -> None:
        """Halve the limit, at most once a second, since refusals come in bursts."""
        now = time.monotonic()
        if self._is_adaptive and now - self._slowed >= 1.0:
            self._slowed = now
            self.limit = max(1.0, self.limit / 2)

    def speed_up(self) -> None:
        """Raise the limit after a success, by one call for each round of successes."""
        if self.limit < self._most:
            self.limit = min(float(self._most), self.limit + 1 / self.limit)
            self._admit()
