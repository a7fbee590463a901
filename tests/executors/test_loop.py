import asyncio
import gc
import os
import signal
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


@pytest.mark.parametrize(("before", "within"), [((700, 10, 10), 20_000), ((0, 10, 10), 0)])
def test_garbage_is_looked_for_less_often_for_as_long_as_the_loop_runs(before, within):
    async def threshold() -> int:
        return gc.get_threshold()[0]

    usual = gc.get_threshold()
    gc.set_threshold(*before)
    try:
        assert run(threshold()) == within
        assert gc.get_threshold() == before
    finally:
        gc.set_threshold(*usual)


def test_sigterm_cancels_what_ignores_ctrl_c():
    ended = []

    async def work() -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            ended.append("closed what it held")
            raise

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = {
        signal.SIGINT: signal.signal(signal.SIGINT, signal.SIG_IGN),
        signal.SIGTERM: signal.signal(signal.SIGTERM, interrupt),
    }
    try:
        with pytest.raises(KeyboardInterrupt):
            run(work())
        assert ended
        assert signal.getsignal(signal.SIGTERM) is interrupt
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def test_it_runs_within_a_loop_as_in_a_notebook():
    async def cell() -> str:
        return run(name_the_loop())

    assert asyncio.run(cell())


@pytest.mark.parametrize("reaches", ["this thread", "another thread"])
def test_ctrl_c_within_a_loop_ends_the_work(reaches: str) -> None:
    ended = []

    async def work() -> None:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
        os.kill(os.getpid(), signal.SIGINT)
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            ended.append("closed what it held")
            raise

    async def cell() -> None:
        # A kernel leaves Ctrl-C to Python's own handler while a cell runs.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        if reaches == "another thread":
            signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        run(work())

    try:
        with pytest.raises(KeyboardInterrupt):
            asyncio.run(cell())
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    assert ended
