"""The event loop of a run: uvloop where it is installed, else asyncio's own.

uvloop comes with the `openai` extra (not on Windows): its loop and sockets cost about half the CPU time.
"""

from __future__ import annotations

import asyncio
import gc
import signal
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")

_YOUNG_OBJECTS = 20_000
"""New objects until the garbage collector looks. Requests in flight are many objects, and leave no circles behind:
looking at each 700, as Python does by itself, took a quarter of the CPU time of asking."""


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end in a loop of its own; what `asyncio.run` does.

    Raises:
        KeyboardInterrupt: Ctrl-C, or a SIGTERM that stands for it; what the coroutine holds has been closed.
    """
    young, *older = gc.get_threshold()
    if young:  # 0 is a collector that somebody switched off
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
    """Whether Ctrl-C is ignored, as in a script's background, and SIGTERM is not left to the system."""
    if threading.current_thread() is not threading.main_thread():
        return False
    ignores = signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    return ignores and callable(signal.getsignal(signal.SIGTERM))


async def _ended_by_sigterm(work: Coroutine[Any, Any, T]) -> T:
    """Cancel the work at SIGTERM, as the runner does at Ctrl-C where that is not ignored.

    An exception raised by a handler would strike in whatever runs just then: uvloop logs one that strikes in
    its own callbacks, with its traceback, and goes on.
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
    except ModuleNotFoundError:  # it is an extra
        return None
    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory
