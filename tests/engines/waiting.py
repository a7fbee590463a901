"""Waiting in a test's event loop for what comes about, and not for a time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


async def until(condition: Callable[[], object]) -> None:
    """Wait for something that has no event to wait for; a minute, which only a hang takes."""
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.001)


async def settle() -> None:
    """Let everything run that waits for nothing more: ready tasks, and what a socket of this process has been sent."""
    for _ in range(20):
        await asyncio.sleep(0)
