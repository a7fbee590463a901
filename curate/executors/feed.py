"""Distribution of items to workers: by hash, then to idle workers; lost items go first."""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Iterable, Iterator

from curate.errors import EngineError
from curate.records import StageName
from curate.stages import WorkItem

MOST_LOSSES = 3
"""Number of times a worker may die over one dialogue, or in a row, before a run gives up."""


class Feed:
    """Hands out items to workers: each to the worker its hash names, as long as that keeps all of them busy.

    Args:
        ahead: how many items may be held for workers that have not asked for them yet.

    Attributes:
        over: set when every item is finished, or when it was stopped and everything handed out is finished.
    """

    def __init__(
        self, stage: StageName, items: Iterable[WorkItem], workers: int, ahead: int
    ) -> None:
        self._stage = stage
        self._items: Iterator[WorkItem] | None = iter(items)
        self._held: list[deque[WorkItem]] = [deque() for _ in range(workers)]
        self._returned: deque[WorkItem] = deque()
        self._ahead = ahead
        self._losses: Counter[str] = Counter()
        self._changed = asyncio.Event()
        self._out = 0
        self._stopped = False
        self.over = asyncio.Event()

    async def take(self, worker: int) -> WorkItem | None:
        """Return the worker's next item; None when there is none left. Waits while items may still be given back."""
        while not self._stopped:
            item = self._next(worker)
            if item is not None:
                self._out += 1
                return item
            if self._out == 0:
                break
            self._changed.clear()
            await self._changed.wait()
        if self._out == 0:
            self.over.set()
        return None

    def stop(self) -> None:
        """Hand out no more items; those handed out may still be finished."""
        self._stopped = True
        self._changed.set()

    def finish(self) -> None:
        """Note that an item that was taken is done."""
        self._out -= 1
        if self._out == 0:
            self._changed.set()

    def give_back(self, item: WorkItem) -> None:
        """Take back an item that was lost with its worker; the next worker that asks gets it.

        Raises:
            EngineError: it was lost too often to go on.
        """
        key = item.key
        self._losses[key] += 1
        if self._losses[key] >= MOST_LOSSES:
            raise EngineError(
                f"a worker died {MOST_LOSSES} times while it worked on dialogue {item.dialogue.id} "
                f"({self._stage})",
                fix="look for the reason in Ray's logs (most often, memory ran out) and run again",
            )
        self._returned.append(item)
        self._out -= 1
        self._changed.set()

    def _next(self, worker: int) -> WorkItem | None:
        if self._returned:
            return self._returned.popleft()
        if self._held[worker]:
            return self._held[worker].popleft()
        while self._items is not None and sum(map(len, self._held)) < self._ahead:
            item = next(self._items, None)
            if item is None:
                self._items = None
                break
            home = int(item.dialogue.content_hash[:8], 16) % len(self._held)
            if home == worker:
                return item
            self._held[home].append(item)
        longest = max(self._held, key=len)
        return longest.popleft() if longest else None
