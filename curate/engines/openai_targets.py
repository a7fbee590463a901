"""The servers behind one engine: several addresses that serve the same model.

All requests about one dialogue go to one of them, whose prefix cache then holds it. Which one follows
from rendezvous hashing (Thaler and Ravishankar 1998): each address has a rank for each dialogue, so that
an address that fails hands its dialogues to all the others in equal parts, moves nobody else's, and gets
back its own when it returns.
"""

from __future__ import annotations

import hashlib
import itertools
import time
from collections.abc import Sequence
from functools import lru_cache
from urllib.parse import urlsplit

from curate.engines.base import Completion
from curate.engines.gate import Gate
from curate.engines.http import HttpPool

FIRST_PAUSE, LONGEST_PAUSE = 2.0, 60.0
"""Seconds an address that failed is passed over: doubled each time it fails again."""


class Target:
    """One address: its connections, its places for calls, and whether it answers."""

    def __init__(self, url: str, pool: HttpPool, gate: Gate) -> None:
        self.url = url
        self.path = urlsplit(url).path
        self.pool = pool
        self.gate = gate
        self._pause = 0.0
        self._down_until = 0.0

    @property
    def is_up(self) -> bool:
        """False while it is passed over."""
        return not self._down_until or time.monotonic() >= self._down_until

    def note(self, completion: Completion) -> None:
        """Learn from a call's outcome: how wide to open the gate, and whether to pass it over."""
        fault = completion.fault
        if fault is None:
            self._pause = self._down_until = 0.0
            self.gate.speed_up()
            return
        if fault.kind == "rate_limited" or "HTTP 503" in fault.detail:
            self.gate.slow_down()
        # A burst of calls that fail together is one piece of news.
        if self.is_up and (is_down(completion) or fault.kind == "timeout"):
            self._pause = min(LONGEST_PAUSE, self._pause * 2 or FIRST_PAUSE)
            self._down_until = time.monotonic() + self._pause


class Targets:
    """The addresses of an engine, in the recipe's order."""

    def __init__(self, targets: Sequence[Target]) -> None:
        self._targets = tuple(targets)
        self._turns = itertools.count()

    def __iter__(self) -> itertools.chain[Target]:
        return itertools.chain(self._targets)

    def __len__(self) -> int:
        return len(self._targets)

    def order(self, affinity: str) -> Sequence[Target]:
        """Where to ask, best first: those that are up by rank, then the others.

        Requests without an affinity take turns.
        """
        if len(self._targets) == 1:
            return self._targets
        key = affinity or str(next(self._turns))
        ranked = [self._targets[index] for index in _rank(key, tuple(t.url for t in self._targets))]
        return sorted(ranked, key=lambda target: not target.is_up)


def is_down(completion: Completion) -> bool:
    """Whether a fault tells of a server that is not there, so that another may be asked at once."""
    fault = completion.fault
    if fault is None:
        return False
    gone = any(code in fault.detail for code in ("HTTP 502", "HTTP 503"))
    return fault.kind == "connection" or (fault.kind == "server" and gone)


@lru_cache(maxsize=65536)
def _rank(key: str, urls: tuple[str, ...]) -> tuple[int, ...]:
    def weight(index: int) -> bytes:
        return hashlib.blake2b(f"{key}\0{urls[index]}".encode(), digest_size=8).digest()

    return tuple(sorted(range(len(urls)), key=weight))
