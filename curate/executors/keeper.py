"""One reply log and one budget for stage functions that run in other processes, on any machine.

The run's `ReplyCache` has one owner, a `Keeper` on the machine that holds the run folder; a `KeptReplies`
in each worker stands where the cache would. Two steps make a received reply safe, in this order:

1. `put` writes it to a store on the worker's own disk (`Spool`) before it returns. From then on a kill of the
   worker cannot lose it.
2. It goes to the keeper, and only when the keeper has it in the reply log does the stage get it.

What a killed worker had not handed over is moved from its spool to the keeper (`sweep`) before its
dialogues are given to anybody else. So a kill repeats calls in flight and nothing more; the loss of a whole
machine repeats, besides, what was between the two steps: one round trip.

Everything goes through one call, `Keeper.exchange`, that takes replies and answers look-ups and requests
for calls together. While one is under way the next is collected, so a busy worker makes few large exchanges
and an idle one a quick small one. A worker's counts travel along as running totals: the last word of each
worker counts, and nothing is counted twice. Nothing here knows how the call travels.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import stat
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import orjson
from filelock import FileLock, Timeout

from curate.engines.accounting import Accounting, Budget
from curate.engines.base import Completion, Usage
from curate.engines.cache import ReplyCache
from curate.engines.open import Prices
from curate.engines.replies import completion_to_json, read_reply
from curate.errors import BudgetReached, CurateError
from curate.storage.store import Store

_REPLIES = 500
_SPOOLED = 1_000
_RECENT = 10_000
_DYING_SECONDS = 5.0


Entry = tuple[str, bytes]
"""A key and the reply, as JSON."""


@dataclass(slots=True)
class Batch:
    """What a worker says in one exchange.

    Attributes:
        owner: the worker's process, by a name that no other ever had.
        replies: keys, and replies as JSON.
        wanted: keys to look up.
        calls: how many calls it would like to start.
        accounting, tokens, money: running totals of this owner.
    """

    owner: str
    replies: list[Entry] = field(default_factory=list)
    wanted: list[str] = field(default_factory=list)
    calls: int = 0
    accounting: Accounting = field(default_factory=Accounting)
    tokens: int = 0
    money: float = 0.0


@dataclass(slots=True)
class KeeperAnswer:
    """What it gets: replies that were there, how many calls it may start, and why not more."""

    found: dict[str, bytes] = field(default_factory=dict)
    granted: int = 0
    reached: BudgetReached | None = None
    error: CurateError | None = None


class Keeper:
    """Owner of a run's reply log and budget, called by one thread.

    Args:
        replies: the SQLite file of the `ReplyCache`.
        spool: folder of the spools of workers on this machine.
        budget: limits, and what was used before.
    """

    def __init__(self, replies: Path, spool: Path, budget: Budget) -> None:
        self._cache = ReplyCache(replies)
        self._spool = spool
        self._budget = budget
        self._last: dict[str, Batch] = {}

    def exchange(self, batch: Batch) -> KeeperAnswer:
        """Keep, look up and grant; replies are in the log when this returns."""
        answer = KeeperAnswer()
        try:
            self._cache.store.put(batch.replies)
            answer.found = self._cache.store.get(batch.wanted)
        except CurateError as error:
            answer.error = error
        self._count(batch)
        try:
            for _ in range(batch.calls):
                self._budget.start_call()
                answer.granted += 1
        except BudgetReached as reached:
            answer.reached = reached
        return answer

    def _count(self, batch: Batch) -> None:
        before = self._last.get(batch.owner, Batch(batch.owner))
        self._budget.used_tokens += batch.tokens - before.tokens
        self._budget.used_money += batch.money - before.money
        self._last[batch.owner] = Batch(
            batch.owner, accounting=batch.accounting, tokens=batch.tokens, money=batch.money
        )

    def sweep(self, dead: int | None = None) -> int | CurateError:
        """Take over what killed workers on this machine left; as `sweep`, an error as a value."""
        try:
            return sweep(self._spool, lambda some: checked(self.exchange(Batch("", some))), dead)
        except CurateError as error:
            return error

    def first_served(self, identity: str, served: str) -> str | CurateError:
        """As `ReplyCache.first_served`; an error as a value."""
        try:
            return self._cache.first_served(identity, served)
        except CurateError as error:
            return error

    def totals(self) -> tuple[Accounting, Budget]:
        """All owners' counts added up, and the budget as it is."""
        total = Accounting()
        for batch in self._last.values():
            total.merge(batch.accounting)
        total.damaged = self._cache.damaged
        return total, self._budget

    def close(self) -> None:
        """Close the reply log."""
        self._cache.close()


class Spool:
    """Replies of one process that are on their way; on this machine's disk, locked while it lives.

    Args:
        folder: made when missing, readable by its owner only (replies are people's data).
    """

    def __init__(self, folder: Path) -> None:
        _make_private(folder)
        self.owner = f"{os.uname().nodename}-{os.getpid()}-{secrets.token_hex(4)}"
        self._lock = FileLock(folder / f"{self.owner}.lock", mode=0o600, blocking=False)
        self._lock.acquire()
        self._store = Store(folder / f"{self.owner}.sqlite")
        self._count = 0

    def append(self, replies: Sequence[Entry]) -> None:
        """Write replies; they outlive this process from the moment this returns."""
        self._store.put(replies)
        self._count += len(replies)

    def clear(self) -> None:
        """All of it is with the keeper; emptied when it is worth the time."""
        if self._count > _SPOOLED:
            self._store.clear()
            self._count = 0

    def remove(self) -> None:
        """All of it is with the keeper, and nothing more will come."""
        self._store.delete()
        self._lock.release()
        Path(self._lock.lock_file).unlink(missing_ok=True)


def _make_private(folder: Path) -> None:
    """A folder in a place that all users write: this user's alone, or not to be used."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise CurateError(
            f"{folder} belongs to another user or is open to others",
            expected="a folder that only this user reads and writes: replies are kept there, and read back",
            fix="remove it, or set TMPDIR to a place of your own before the workers start",
        )


def sweep(folder: Path, send: Callable[[list[Entry]], object], dead: int | None = None) -> int:
    """Hand the replies in every spool whose process is gone to `send`, and remove it.

    Args:
        folder: the spools of this machine.
        send: takes some replies; when it returns they are safe.
        dead: id of a process that is just dying: its spool is waited for, some seconds.

    Returns:
        How many replies there were.
    """
    swept = 0
    _make_private(folder)
    for lock_file in sorted(folder.glob("*.lock")):
        is_dying = dead is not None and lock_file.stem.rsplit("-", 2)[1] == str(dead)
        lock = FileLock(lock_file, timeout=_DYING_SECONDS if is_dying else 0)
        try:
            lock.acquire()
        except Timeout:
            continue  # its process lives
        store = Store(lock_file.with_suffix(".sqlite"))
        replies = ((key, reply) for _, key, reply in store.items())
        while some := list(islice(replies, _REPLIES)):
            send(some)
            swept += len(some)
        store.delete()
        lock.release()
        lock_file.unlink(missing_ok=True)
    return swept


class KeptReplies:
    """A worker's side: the `Replies` and the `CallBudget` of its askers, both behind one keeper.

    Args:
        exchange: carries a batch to the keeper.
        spool: of this process.
        accounting: the worker's; sent along as it stands.
        limits: the run's budget, for its limits only.
    """

    def __init__(
        self,
        exchange: Callable[[Batch], Awaitable[KeeperAnswer]],
        spool: Spool,
        accounting: Accounting,
        limits: Budget,
    ) -> None:
        self._exchange = exchange
        self._spool = spool
        self._accounting = accounting
        self._used = Budget()
        self._is_limited = any(
            limit is not None for limit in (limits.calls, limits.tokens, limits.money)
        )
        self._puts: list[tuple[list[Entry], asyncio.Future[None]]] = []
        self._gets: list[tuple[Sequence[str], asyncio.Future[dict[str, Completion]]]] = []
        self._calls: list[asyncio.Future[None]] = []
        self._recent: OrderedDict[str, Completion] = OrderedDict()
        self._sending: asyncio.Task[None] | None = None
        self._failed = False

    def put(self, replies: Mapping[str, Completion]) -> Awaitable[None]:
        """Keep replies: in the spool when this returns, in the reply log when it was awaited."""
        entries = [(key, orjson.dumps(completion_to_json(reply))) for key, reply in replies.items()]
        self._spool.append(entries)
        self._recent.update(replies)
        while len(self._recent) > _RECENT:
            self._recent.popitem(last=False)
        arrived = asyncio.get_running_loop().create_future()
        self._puts.append((entries, arrived))
        self._send()
        return arrived

    async def get_many(self, keys: Sequence[str]) -> dict[str, Completion]:
        """The replies that are there, of those asked for, whichever worker got them."""
        wanted = [key for key in dict.fromkeys(keys) if key not in self._recent]
        found: dict[str, Completion] = {}
        if wanted:
            answered = asyncio.get_running_loop().create_future()
            self._gets.append((wanted, answered))
            self._send()
            found = await answered
        # Looked at last: a reply may have come here while the look-up was under way.
        return found | {key: self._recent[key] for key in keys if key in self._recent}

    def start_call(self) -> Awaitable[None] | None:
        """Take a call from the run's budget; when awaited, raises BudgetReached."""
        if not self._is_limited:
            return None
        granted = asyncio.get_running_loop().create_future()
        self._calls.append(granted)
        self._send()
        return granted

    def add_usage(self, usage: Usage, prices: Prices | None) -> None:
        """Count what a reply used; the keeper hears of it with the next exchange."""
        self._used.add_usage(usage, prices)

    async def settle(self) -> None:
        """Tell the keeper the counts as they stand."""
        while self._sending is not None:
            await asyncio.wait([self._sending])
        checked(await self._exchange(self._batch()))

    async def close(self) -> None:
        """The last word; the spool goes when the keeper has all of it."""
        await self.settle()
        if not self._failed:
            self._spool.remove()

    def _batch(self) -> Batch:
        used = self._used
        return Batch(
            self._spool.owner,
            accounting=self._accounting,
            tokens=used.used_tokens,
            money=used.used_money,
        )

    def _send(self) -> None:
        if self._sending is None:
            self._sending = asyncio.create_task(self._send_all())

    async def _send_all(self) -> None:
        try:
            await asyncio.sleep(0)  # siblings that ask in the same moment travel together
            while self._puts or self._gets or self._calls:
                await self._send_one()
        finally:
            self._sending = None

    async def _send_one(self) -> None:
        puts, self._puts = self._puts[:_REPLIES], self._puts[_REPLIES:]
        gets, self._gets = self._gets, []
        calls, self._calls = self._calls, []
        batch = self._batch()
        batch.replies = [entry for entries, _ in puts for entry in entries]
        batch.wanted = list(dict.fromkeys(key for keys, _ in gets for key in keys))
        batch.calls = len(calls)
        waiting: list[asyncio.Future[Any]] = [
            *(arrived for _, arrived in puts),
            *(answered for _, answered in gets),
            *calls,
        ]
        try:
            answer = checked(await self._exchange(batch))
            read = ((key, read_reply(reply)) for key, reply in answer.found.items())
            found = {key: reply for key, reply in read if reply is not None}
        except Exception as error:
            # Whatever it was, those who wait must hear of it.
            self._failed = True
            for future in waiting:
                if not future.done():
                    future.set_exception(error)
            return
        if not self._puts and not self._failed:
            self._spool.clear()
        for _, arrived in puts:
            if not arrived.done():
                arrived.set_result(None)
        for keys, answered in gets:
            if not answered.done():
                answered.set_result({key: found[key] for key in keys if key in found})
        for number, granted in enumerate(calls):
            if granted.done():
                continue
            if number < answer.granted or answer.reached is None:
                granted.set_result(None)
            else:
                granted.set_exception(answer.reached)


def checked(answer: KeeperAnswer) -> KeeperAnswer:
    """The answer, or the error that the keeper met."""
    if answer.error is not None:
        raise answer.error
    return answer
