"""A worker's side of the reply log: with the keeper first, then used."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from curate.engines.accounting import Accounting, Budget
from curate.engines.base import Completion, Usage
from curate.engines.cache import ReplyCache
from curate.errors import BudgetReached, CurateError
from curate.executors.shared_reply_log import Counts, Keeper, KeptReplies, Wish

KEYS = [f"{number:032x}" for number in range(2000)]


class Wire:
    """Carries wishes to a keeper, slowly, and can be cut."""

    def __init__(self, folder: Path, budget: Budget | None = None) -> None:
        self.limits = budget or Budget()
        self.keeper = Keeper(folder / "replies.sqlite", self.limits)
        self.exchanges = 0
        self.is_cut = False

    async def __call__(self, counts: Counts, wishes: Sequence[Wish]) -> list[Any]:
        await asyncio.sleep(0.005)
        if self.is_cut:
            raise CurateError("the wire is cut")
        self.exchanges += 1
        return self.keeper.exchange(counts, wishes)

    def worker(self, name: str = "one") -> KeptReplies:
        return KeptReplies(self, Counts(name, Accounting()), self.limits)


async def test_a_reply_is_in_the_log_when_put_was_awaited(tmp_path: Path) -> None:
    wire = Wire(tmp_path)
    await wire.worker().put({KEYS[0]: Completion(text="kept")})
    assert await wire.worker("other").get_many(KEYS[:2]) == {KEYS[0]: Completion(text="kept")}
    wire.keeper.close()
    with ReplyCache(tmp_path / "replies.sqlite") as cache:
        assert cache.get_many(KEYS[:1])[KEYS[0]].text == "kept"


async def test_a_damaged_reply_is_none(tmp_path: Path) -> None:
    wire = Wire(tmp_path)
    wire.keeper.exchange(Counts("x", Accounting()), [("put", [(KEYS[0], b'{"text":')])])
    assert await wire.worker().get_many(KEYS[:1]) == {}


async def test_what_comes_together_travels_together(tmp_path: Path) -> None:
    wire = Wire(tmp_path)
    worker = wire.worker()
    await asyncio.gather(*(worker.put({key: Completion(text=key)}) for key in KEYS))
    assert wire.exchanges == 1
    found = await asyncio.gather(*(worker.get_many([key]) for key in KEYS[:3]))
    assert [list(part) for part in found] == [[key] for key in KEYS[:3]]
    assert wire.exchanges == 2


async def test_calls_are_granted_exactly_over_all_workers(tmp_path: Path) -> None:
    wire = Wire(tmp_path, Budget(calls=7))

    async def take(worker: KeptReplies) -> bool:
        granted = worker.start_call()
        assert granted is not None
        try:
            await granted
        except BudgetReached:
            return False
        return True

    workers = [wire.worker(str(number)) for number in range(3)]
    assert sum(await asyncio.gather(*(take(one) for one in workers for _ in range(5)))) == 7
    assert KeptReplies(wire, Counts("x", Accounting()), Budget()).start_call() is None, "no limits"


async def test_tokens_of_all_workers_use_up_one_budget(tmp_path: Path) -> None:
    wire = Wire(tmp_path, Budget(tokens=100))
    one, other = wire.worker(), wire.worker("other")
    one.add_usage(Usage(prompt_tokens=60, completion_tokens=1), None)
    other.add_usage(Usage(prompt_tokens=60, completion_tokens=1), None)
    for worker in (one, one, other):
        await worker.settle()
    assert wire.keeper.totals()[1].used_tokens == 122, "totals, not sums of totals"
    granted = one.start_call()
    assert granted is not None
    with pytest.raises(BudgetReached):
        await granted


async def test_everybody_who_waits_hears_of_a_failure(tmp_path: Path) -> None:
    wire = Wire(tmp_path, Budget(calls=5))
    worker = wire.worker()
    wire.is_cut = True
    call = worker.start_call()
    assert call is not None
    waiting = [worker.put({KEYS[0]: Completion(text="x")}), worker.get_many(KEYS[1:2]), call]
    outcomes = await asyncio.wait_for(asyncio.gather(*waiting, return_exceptions=True), 60)
    assert all(isinstance(outcome, CurateError) for outcome in outcomes)
    wire.is_cut = False
    await worker.put({KEYS[0]: Completion(text="x")})
    assert (await worker.get_many(KEYS[:1]))[KEYS[0]].text == "x"


def test_the_name_that_a_model_first_replied_under_is_remembered(tmp_path: Path) -> None:
    keeper = Wire(tmp_path).keeper
    assert keeper.first_served("identity", "judge-v1") == "judge-v1"
    keeper.close()
    keeper = Wire(tmp_path).keeper
    assert keeper.first_served("identity", "judge-v2") == "judge-v1"
    assert keeper.first_served("another", "judge-v2") == "judge-v2"
    keeper.close()
