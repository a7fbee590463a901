"""Each worker gets its own dialogues, others' when it would be idle, and lost ones go to whoever asks."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from curate.dialogue import Dialogue, Message
from curate.errors import EngineError
from curate.executors.feed import Feed
from curate.records import StageName
from curate.stages import WorkItem


def item(number: int) -> WorkItem:
    messages = (Message(role="user", content=str(number)),)
    return WorkItem(Dialogue(id=f"d{number}", messages=messages))


def home(made: WorkItem, workers: int) -> int:
    return int(made.dialogue.content_hash[:8], 16) % workers


async def test_a_dialogue_goes_to_its_own_worker_while_that_keeps_all_busy() -> None:
    items = [item(number) for number in range(400)]
    feed = Feed(StageName.JUDGE, iter(items), 4, ahead=64)
    taken = [(index % 4, await feed.take(index % 4)) for index in range(300)]
    strangers = sum(home(made, 4) != worker for worker, made in taken if made)
    assert strangers <= 30
    rest = [await feed.take(0) for _ in range(100)]
    assert {made.dialogue.id for _, made in taken if made} | {
        made.dialogue.id for made in rest if made
    } == {made.dialogue.id for made in items}, "an idle worker takes what others hold"


async def test_items_are_pulled_only_as_far_ahead_as_allowed() -> None:
    pulled = 0

    def endless() -> Iterator[WorkItem]:
        nonlocal pulled
        while True:
            pulled += 1
            yield item(pulled)

    feed = Feed(StageName.JUDGE, endless(), 3, ahead=10)
    for _ in range(50):
        await feed.take(0)
    assert pulled <= 60


async def test_a_lost_item_is_given_to_another_and_not_for_ever() -> None:
    feed = Feed(StageName.JUDGE, [item(1)], 2, ahead=4)
    first = await feed.take(0)
    waiting = asyncio.create_task(feed.take(1))
    await asyncio.sleep(0)
    assert not waiting.done(), "it may still come back"
    assert first is not None
    feed.give_back(first)
    assert await waiting is first
    assert not feed.over.is_set()
    feed.give_back(first)
    assert await feed.take(0) is first
    with pytest.raises(EngineError, match="died 3 times while it worked on dialogue d1"):
        feed.give_back(first)


async def test_it_is_over_when_all_are_finished_or_it_was_stopped() -> None:
    for stopped in (False, True):
        feed = Feed(StageName.JUDGE, [item(1), item(2)] if stopped else [item(1)], 1, ahead=4)
        assert await feed.take(0) is not None
        waiting = asyncio.create_task(feed.take(0))
        if stopped:
            assert await waiting is not None
            feed.stop()
            feed.finish()
            assert await feed.take(0) is None
            assert not feed.over.is_set(), "one is still out"
            feed.finish()
            assert await feed.take(0) is None
        else:
            await asyncio.sleep(0)
            feed.finish()
            assert await waiting is None
        assert feed.over.is_set()
