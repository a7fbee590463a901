"""The event loop of a run: uvloop if it is installed, else asyncio's own.

uvloop comes with the `openai` extra (not on Windows): its loop and sockets take about half the CPU time.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import gc
import signal
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future, wait
from typing import Any, TypeVar

T = TypeVar("T")

_SECONDS_TO_A_SIGNAL = 1.0
"""Longest time until a signal is noticed that did not wake its thread."""

_YOUNG_OBJECTS = 20_000
"""New objects before the garbage collector runs. Requests in flight are many objects without reference cycles:
Python's default of 700 took a quarter of the CPU time of a run."""


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end in an event loop of its own, as `asyncio.run` does.

    Where a loop is already running, as in a notebook, it runs in a thread.

    Raises:
        KeyboardInterrupt: Ctrl-C, or a SIGTERM in its place; what the coroutine holds has been closed.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return _run(work)
    return _run_in_thread(work)


def _run_in_thread(work: Coroutine[Any, Any, T]) -> T:
    begun: list[tuple[asyncio.AbstractEventLoop, asyncio.Task[Any]]] = []
    is_interrupted = threading.Event()

    async def known() -> T:
        task = asyncio.current_task()
        assert task is not None
        begun.append((asyncio.get_running_loop(), task))
        if is_interrupted.is_set():
            task.cancel()
        return await work

    context, outcome = contextvars.copy_context(), Future[T]()

    def thread() -> None:
        try:
            outcome.set_result(context.run(_run, known()))
        except BaseException as error:
            outcome.set_exception(error)

    try:
        threading.Thread(target=thread, name="curate").start()
        # Ctrl-C may reach another thread of the process, or this one just before it waits: then nothing wakes it.
        while not wait([outcome], _SECONDS_TO_A_SIGNAL).done:
            pass
        return outcome.result()
    except KeyboardInterrupt:
        is_interrupted.set()
        for loop, task in begun:
            with contextlib.suppress(RuntimeError):  # it has ended meanwhile
                loop.call_soon_threadsafe(task.cancel)
        outcome.exception()  # waits until the work has closed what it holds
        raise


def _run(work: Coroutine[Any, Any, T]) -> T:
    young, *older = gc.get_threshold()
    if young:  # 0: the collector was switched off
        gc.set_threshold(max(young, _YOUNG_OBJECTS), *older)
    try:
        with asyncio.Runner(loop_factory=_factory()) as runner:
            if not _only_sigterm_interrupts():
                return runner.run(work)
            try:
                return runner.run(_ended_by_sigterm(work))
            except asyncio.CancelledError:
                raise KeyboardInterrupt from None
    finally:
        gc.set_threshold(young, *older)


def _only_sigterm_interrupts() -> bool:
    """Return whether Ctrl-C is ignored, as in a script's background job, and SIGTERM has a handler."""
    if threading.current_thread() is not threading.main_thread():
        return False
    ignores = signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    return ignores and callable(signal.getsignal(signal.SIGTERM))


async def _ended_by_sigterm(work: Coroutine[Any, Any, T]) -> T:
    """Cancel the work at SIGTERM, as the runner does at Ctrl-C.

    An exception raised by a signal handler would appear in whatever code is running: uvloop logs one in its own callbacks,
    with its traceback, and goes on.
    """
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None
    before = signal.signal(signal.SIGTERM, lambda *_: loop.call_soon_threadsafe(task.cancel))
    try:
        return await work
    finally:
        signal.signal(signal.SIGTERM, before)


def _factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ModuleNotFoundError:  # optional
        return None
    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory
