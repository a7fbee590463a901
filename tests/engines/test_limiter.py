"""How many requests are in flight: halved where a server refuses, grown again, and given back."""

from __future__ import annotations

import asyncio

import pytest

from curate.engines.config import OpenAIConfig
from curate.engines.limiter import Limiter


async def test_the_limit_is_halved_when_it_is_too_much_and_grows_slowly():
    limiter = Limiter(8)
    limiter.slow_down()
    limiter.slow_down()
    assert limiter.limit == 4.0
    for _ in range(3):
        limiter.speed_up()
    assert 4.5 < limiter.limit < 5.0
    for _ in range(200):
        limiter.speed_up()
    assert limiter.limit == 8.0


async def test_a_cancelled_call_gives_its_place_back():
    limiter = Limiter(1)
    entered = []

    async def use(name):
        async with limiter:
            entered.append(name)
            await asyncio.sleep(0.01)

    first, second = asyncio.create_task(use(1)), asyncio.create_task(use(2))
    third = asyncio.create_task(use(3))
    await asyncio.sleep(0)
    second.cancel()
    await asyncio.gather(first, third)
    assert entered == [1, 3]
    await use(4)


@pytest.mark.parametrize(
    ("urls", "concurrency", "hosted", "adaptive"),
    [
        ("http://localhost:8000/v1", "auto", False, False),
        (["http://127.0.0.1:1/v1", "http://[::1]:2/v1"], "auto", False, False),
        (["http://127.0.0.1:1/v1", "https://api.example/v1"], "auto", True, True),
        ("https://api.example/v1", "fixed", True, False),
        ("http://localhost/v1", "adaptive", False, True),
    ],
)
def test_the_width_adapts_at_hosted_addresses_or_as_told(urls, concurrency, hosted, adaptive):
    config = OpenAIConfig(model="m", base_url=urls, concurrency=concurrency)
    assert config.is_hosted is hosted
    assert config.is_adaptive is adaptive
    limiter = Limiter(8, is_adaptive=config.is_adaptive)
    limiter.slow_down()
    assert limiter.limit == (4.0 if adaptive else 8.0)
