import asyncio
import sys

import pytest

from curate.executors.loop import run


async def name_the_loop() -> str:
    await asyncio.sleep(0)
    return type(asyncio.get_running_loop()).__module__


def test_the_faster_loop_is_taken_where_it_is_installed():
    pytest.importorskip("uvloop")
    assert run(name_the_loop()).startswith("uvloop")


def test_without_it_asyncios_own_does(monkeypatch):
    monkeypatch.setitem(sys.modules, "uvloop", None)
    assert run(name_the_loop()).startswith("asyncio")


def test_errors_come_through():
    async def fail() -> None:
        raise ValueError("as it was")

    with pytest.raises(ValueError, match="as it was"):
        run(fail())
