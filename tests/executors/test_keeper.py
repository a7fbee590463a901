"""A worker's side of the reply log: safe on its own disk first, with the keeper next, then used."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import pytest

from curate.engines.accounting import Accounting, Budget
from curate.engines.base import Completion, Usage
from curate.engines.cache import ReplyCache
from curate.errors import BudgetReached, CurateError
from curate.executors.keeper import Batch, Keeper, KeeperAnswer, KeptReplies, Spool
from curate.executors.ray import _places

KEYS = [f"{number:032x}" for number in range(2000)]


class Wire:
    """Carries batches to a keeper, slowly, and can be cut."""

    def __init__(self, keeper: Keeper) -> None:
        self.keeper = keeper
        self.batches: list[Batch] = []
        self.is_cut = False

    async def __call__(self, batch: Batch) -> KeeperAnswer:
        await asyncio.sleep(0.005)
        if self.is_cut:
            raise CurateError("the wire is cut")
        self.batches.append(batch)
        return self.keeper.exchange(batch)


def make(tmp_path: Path, budget: Budget | None = None) -> tuple[Keeper, Path]:
    spools = tmp_path / "spools"
    return Keeper(tmp_path / "replies.sqlite", spools, budget or Budget()), spools


def client(wire: Wire, spools: Path, limits: Budget | None = None) -> KeptReplies:
    return KeptReplies(wire, Spool(spools), Accounting(), limits or Budget())


async def test_a_reply_is_in_the_log_when_put_was_awaited(tmp_path: Path) -> None:
    keeper, spools = make(tmp_path)
    one, other = client(Wire(keeper), spools), client(Wire(keeper), spools)
    await one.put({KEYS[0]: Completion(text="kept")})
    assert await other.get_many(KEYS[:2]) == {KEYS[0]: Completion(text="kept")}
    keeper.close()
    with ReplyCache(tmp_path / "replies.sqlite") as cache:
        assert cache.get_many(KEYS[:1])[KEYS[0]].text == "kept"


async def test_what_comes_together_travels_together(tmp_path: Path) -> None:
    keeper, spools = make(tmp_path)
    wire = Wire(keeper)
    replies = client(wire, spools)
    await asyncio.gather(*(replies.put({key: Completion(text=key)}) for key in KEYS))
    found = await asyncio.gather(*(client(wire, spools).get_many([key]) for key in KEYS[:3]))
    assert [list(part) for part in found] == [[key] for key in KEYS[:3]]
    assert len(wire.batches) <= len(KEYS) // 500 + 1 + 3


async def test_a_reply_that_comes_during_a_look_up_is_found(tmp_path: Path) -> None:
    keeper, spools = make(tmp_path)
    replies = client(Wire(keeper), spools)
    looking = asyncio.create_task(replies.get_many(KEYS[:1]))
    await asyncio.sleep(0.002)
    await asyncio.gather(looking, replies.put({KEYS[0]: Completion(text="just now")}))
    assert looking.result()[KEYS[0]].text == "just now"


async def test_what_a_killed_worker_did_not_hand_over_is_taken_from_its_disk(
    tmp_path: Path,
) -> None:
    keeper, spools = make(tmp_path)
    code = f"""
import asyncio, os, signal
from pathlib import Path
from curate.engines.accounting import Accounting, Budget
from curate.engines.base import Completion
from curate.executors.keeper import KeptReplies, Spool

async def never(batch):
    await asyncio.sleep(60)

async def main():
    spool = Spool(Path({str(spools)!r}))
    kept = KeptReplies(never, spool, Accounting(), Budget())
    for number in range(700):
        kept.put({{f"{{number:032x}}": Completion(text=str(number))}})
    spool.append([("{KEYS[1000]}", b'{{"text":"damaged"}}')])
    spool._store._base.execute("UPDATE kept SET value = CAST('{{\\"text\\":\\"other\\"}}' AS BLOB) WHERE number = 701")
    os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(main())
"""
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", code)
    await process.wait()
    living = Spool(spools)
    living.append([(KEYS[0], b"not yet handed over")])
    assert keeper.sweep(process.pid) == 700
    assert keeper.sweep() == 0
    assert len(list(spools.glob("*.sqlite"))) == 1, "a living worker's spool stays"
    found = await client(Wire(keeper), spools).get_many(KEYS[:701])
    assert [found[key].text for key in KEYS[:700]] == [str(number) for number in range(700)]
    assert KEYS[700] not in found
    assert await client(Wire(keeper), spools).get_many([KEYS[1000]]) == {}


async def test_calls_are_granted_exactly_over_all_workers(tmp_path: Path) -> None:
    budget = Budget(calls=7)
    keeper, spools = make(tmp_path, budget)
    wire = Wire(keeper)
    workers = [client(wire, spools, budget) for _ in range(3)]

    async def take(worker: KeptReplies) -> bool:
        granted = worker.start_call()
        assert granted is not None
        try:
            await granted
        except BudgetReached:
            return False
        return True

    taken = await asyncio.gather(*(take(worker) for worker in workers for _ in range(5)))
    assert sum(taken) == 7
    assert client(wire, spools).start_call() is None, "without limits nobody is asked"


async def test_tokens_of_all_workers_use_up_one_budget(tmp_path: Path) -> None:
    budget = Budget(tokens=100)
    keeper, spools = make(tmp_path, budget)
    one, other = (client(Wire(keeper), spools, budget) for _ in range(2))
    one.add_usage(Usage(prompt_tokens=60, completion_tokens=1), None)
    other.add_usage(Usage(prompt_tokens=60, completion_tokens=1), None)
    await one.settle()
    await one.settle()
    await other.settle()
    assert keeper.totals()[1].used_tokens == 122, "totals, not sums of totals"
    granted = one.start_call()
    assert granted is not None
    with pytest.raises(BudgetReached):
        await granted


async def test_everybody_who_waits_hears_of_a_failure(tmp_path: Path) -> None:
    keeper, spools = make(tmp_path, Budget(calls=5))
    wire = Wire(keeper)
    wire.is_cut = True
    replies = client(wire, spools, Budget(calls=5))
    call = replies.start_call()
    assert call is not None
    waiting = [replies.put({KEYS[0]: Completion(text="x")}), replies.get_many(KEYS[1:2]), call]
    outcomes = await asyncio.wait_for(asyncio.gather(*waiting, return_exceptions=True), 2)
    assert all(isinstance(outcome, CurateError) for outcome in outcomes)
    wire.is_cut = False
    assert (await replies.get_many(KEYS[:1]))[KEYS[0]].text == "x"


async def test_a_spool_goes_only_when_the_keeper_has_all_of_it(tmp_path: Path) -> None:
    keeper, spools = make(tmp_path)
    wire = Wire(keeper)
    replies = client(wire, spools)
    await replies.put({KEYS[0]: Completion(text="x")})
    await replies.close()
    assert not list(spools.glob("*"))
    other = client(wire, spools)
    wire.is_cut = True
    with pytest.raises(CurateError):
        await other.put({KEYS[1]: Completion(text="y")})
    wire.is_cut = False
    await other.close()
    assert len(list(spools.glob("*.sqlite"))) == 1


def test_a_folder_of_another_user_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "spools").mkdir()
    monkeypatch.setattr("os.getuid", lambda: 4711)
    with pytest.raises(CurateError, match="belongs to another user"):
        Spool(tmp_path / "spools")


def test_spools_are_for_their_owner_only(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "spools")
    assert (tmp_path / "spools").stat().st_mode & 0o077 == 0
    assert next((tmp_path / "spools").glob(f"{spool.owner}.sqlite")).stat().st_mode & 0o077 == 0


def test_spools_are_where_nobody_else_can_know_or_look(tmp_path: Path) -> None:
    replies, spools = _places(tmp_path / "replies.sqlite")
    assert _places(replies) == (replies, spools), "a later run finds what an earlier one left"
    assert _places(tmp_path / "other.sqlite")[1] != spools
    assert len(spools.name) >= 32
    kept = tmp_path / "replies.sqlite.spools"
    assert kept.stat().st_mode & 0o077 == 0
    before = os.umask(0)
    try:
        spool = Spool(tmp_path / "spools")
        spool.append([(KEYS[0], b"{}")])
    finally:
        os.umask(before)
    paths = [tmp_path / "spools", *(tmp_path / "spools").iterdir()]
    assert len(paths) == 5
    assert [path for path in paths if path.stat().st_mode & 0o077] == []


@pytest.mark.parametrize("kind", ["open", "link"])
def test_a_spool_folder_made_by_somebody_else_is_not_used(tmp_path: Path, kind: str) -> None:
    folder = tmp_path / "spools"
    if kind == "open":
        folder.mkdir()
        folder.chmod(0o777)
    else:
        (tmp_path / "elsewhere").mkdir(mode=0o700)
        folder.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(CurateError, match="open to others"):
        Spool(folder)


def test_the_name_that_a_model_first_replied_under_is_remembered(tmp_path: Path) -> None:
    keeper, _ = make(tmp_path)
    assert keeper.first_served("identity", "judge-v1") == "judge-v1"
    keeper.close()
    keeper, _ = make(tmp_path)
    assert keeper.first_served("identity", "judge-v2") == "judge-v1"
    assert keeper.first_served("another", "judge-v2") == "judge-v2"
    keeper.close()
