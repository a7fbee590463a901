"""How many requests to one address are in flight, and how a refusal (429, 503) slows them down."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from typing import Self


class Limiter:
    """Places for open calls, given in the order of asking: `async with limiter: ...`.

    A server of one's own queues what it cannot serve yet, and is fastest with a full queue: a fixed limit. A
    hosted API counts and refuses: an adaptive limit is halved when it does and grows again by one call a
    round (additive increase, multiplicative decrease, as in TCP; Chiu and Jain 1989).

    Args:
        most: places when nothing was refused.
        is_adaptive: False keeps the limit whatever the server says.
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
                await self.__aexit__()  # admitted in the very moment of being cancelled
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
        """Halve, at most once a second: one burst of refusals is one piece of news."""
        now = time.monotonic()
        if self._is_adaptive and now - self._slowed >= 1.0:
            self._slowed = now
            self.limit = max(1.0, self.limit / 2)

    def speed_up(self) -> None:
        """One more call for each round of successes."""
        if self.limit < self._most:
            self.limit = min(float(self._most), self.limit + 1 / self.limit)
            self._admit()
