"""The event loop of a run: uvloop where it is installed, else asyncio's own.

uvloop comes with the `openai` extra (not on Windows): its loop and sockets cost about half the CPU time.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")

_YOUNG_OBJECTS = 20_000
"""New objects until the garbage collector looks. Requests in flight are many objects, and leave no circles behind:
looking at each 700, as Python does by itself, took a quarter of the CPU time of asking."""


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end in a loop of its own; what `asyncio.run` does."""
    young, *older = gc.get_threshold()
    if young:  # 0 is a collector that somebody switched off
        gc.set_threshold(max(young, _YOUNG_OBJECTS), *older)
    try:
        with asyncio.Runner(loop_factory=_factory()) as runner:
            return runner.run(work)
    finally:
        gc.set_threshold(young, *older)


def _factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ModuleNotFoundError:  # it is an extra
        return None
    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory
