"""The reply log's memory is bounded where the engine is faster than the disk."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from curate.engines import cache as module
from curate.engines.base import Completion
from curate.engines.cache import ReplyCache
from curate.errors import CurateError

KEYS = [f"{number:032x}" for number in range(12)]


def put_all(cache: ReplyCache, done: Callable[[BaseException | None], None]) -> threading.Thread:
    def work() -> None:
        try:
            for key in KEYS:
                cache.put(key, Completion(text=key))
        except CurateError as error:
            done(error)
        else:
            done(None)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread


def test_putting_waits_for_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk, insert = threading.Event(), module._insert

    def slow(connection: Any, records: Iterable[Any]) -> None:
        disk.wait()
        insert(connection, records)

    monkeypatch.setattr(module, "_insert", slow)
    monkeypatch.setattr(module, "_PENDING", 5)
    outcomes: list[BaseException | None] = []
    with ReplyCache(tmp_path / "replies.sqlite") as cache:
        thread = put_all(cache, outcomes.append)
        thread.join(0.3)
        assert thread.is_alive()
        assert len(cache._pending) == 5
        disk.set()
        thread.join()
        assert outcomes == [None]
        assert cache.get_many(KEYS).keys() == set(KEYS)


def test_a_disk_that_fails_wakes_who_waits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(connection: Any, records: Iterable[Any]) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(module, "_insert", failing)
    monkeypatch.setattr(module, "_PENDING", 5)
    outcomes: list[BaseException | None] = []
    cache = ReplyCache(tmp_path / "replies.sqlite")
    thread = put_all(cache, outcomes.append)
    thread.join()
    assert isinstance(outcomes[0], CurateError)
    with pytest.raises(CurateError, match="disk is full"):
        cache.close()
