"""Our own CPU time at 1,000 requests a second: what is left of a core for everything else.

    python benchmarks/overhead.py [--json] [--rate 1000] [--seconds 4] [--rounds 3]

What counts is the CPU time of the whole client process, all threads, user and system, for 1,000 label
reads at a steady pace: prompts of 2 kB, one token out, twenty log-probabilities back. A dialogue of ten
siblings is started every hundredth of a second, whatever the server does; its first request goes alone,
the other nine when that is answered, as a judge's do. The server is that of `loopback.py`.

- `whole`: the whole path. Requests as a stage builds them, cache key, look-up, `OpenAIEngine`, reply log
  with its SQLite writer, accounting, budget, as a run has them.
- `engine`: `OpenAIEngine.complete` alone, on requests that are there already.
- `aiohttp`: prebuilt bodies out and bodies back through a bare `aiohttp.ClientSession`, what the engine stands on.
- `raw`: prebuilt bytes out, a parsed head and the body back, in the same order at the same pace: the
  floor of sockets, event loop and pace-maker, of which nothing is ours.

All run in the loop of a run (`curate.executors.loop`). Clients take turns in processes of their own. Each figure is the least of all slices of one second: what
else the machine does can only add to it. The median stands beside it.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import loopback as shared
import orjson

from curate.executors.loop import run as run_in_loop

CLIENTS = ("raw", "aiohttp", "engine", "whole")
WIDTH = 256
TRUNK = shared.TRUNK[:2000]
Dialogue = Callable[[int], Awaitable[object]]


async def at_pace(dialogue: Dialogue, count: int, rate: float) -> None:
    """Start `dialogue(0) … dialogue(count - 1)` at `rate` a second; late ones at once."""
    began, open_ = time.perf_counter(), set[asyncio.Task[object]]()
    for index in range(count):
        wait = began + index / rate - time.perf_counter()
        if wait > 0:
            await asyncio.sleep(wait)
        task = asyncio.ensure_future(dialogue(index))
        open_.add(task)
        task.add_done_callback(open_.discard)
    await asyncio.gather(*open_)


async def measure(dialogue: Dialogue, rate: float, seconds: int) -> None:
    """Warm up, then print for each second what 1,000 requests took, in ms of CPU, and the rate kept."""
    count = max(1, round(rate / shared.SIBLINGS))
    slices = []
    for second in range(seconds + 1):
        cpu, wall = time.process_time(), time.perf_counter()
        await at_pace(dialogue, count, rate / shared.SIBLINGS)
        asked = count * shared.SIBLINGS
        spent, took = time.process_time() - cpu, time.perf_counter() - wall
        if second:
            slices.append({"ms": spent * 1e6 / asked, "rate": asked / took})
    print(json.dumps(slices))


async def run_raw(url: str, rate: float, seconds: int) -> None:
    connections, payloads = await shared.open_raw(url, WIDTH, TRUNK)

    async def dialogue(_: int) -> None:
        for some in (payloads[:1], payloads[1:]):
            taken = [connections.pop() for _ in some]
            for waiter in [one.ask(payload) for one, payload in zip(taken, some, strict=True)]:
                await waiter
            connections.extend(taken)

    await measure(dialogue, rate, seconds)


async def run_aiohttp(url: str, rate: float, seconds: int) -> None:
    import aiohttp

    bodies = [orjson.dumps(shared.chat_body(index, TRUNK)) for index in range(shared.SIBLINGS)]
    async with aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0),
        cookie_jar=aiohttp.DummyCookieJar(),
        headers={"Content-Type": "application/json"},
    ) as session:

        async def post(body: bytes) -> bytes:
            async with session.post(f"{url}/chat/completions", data=body) as response:
                return await response.read()

        async def dialogue(_: int) -> None:
            for some in (bodies[:1], bodies[1:]):
                assert all(await asyncio.gather(*map(post, some)))

        await measure(dialogue, rate, seconds)


async def run_engine(url: str, rate: float, seconds: int) -> None:
    from curate.engines.config import OpenAIConfig
    from curate.engines.open import open_engine

    engine = await open_engine(OpenAIConfig(model=shared.MODEL, base_url=url, in_flight=WIDTH))
    requests = shared.make_requests(0, TRUNK)

    async def dialogue(_: int) -> None:
        for some in (requests[:1], requests[1:]):
            assert all(reply.first_token for reply in await engine.complete(some))

    await measure(dialogue, rate, seconds)
    await engine.close()


async def run_whole(url: str, rate: float, seconds: int) -> None:
    from curate.engines.accounting import Accounting, Budget
    from curate.engines.cache import ReplyCache
    from curate.engines.client import Client
    from curate.engines.config import OpenAIConfig
    from curate.engines.open import open_engine

    engine = await open_engine(OpenAIConfig(model=shared.MODEL, base_url=url, in_flight=WIDTH))
    asked = 0
    with (
        tempfile.TemporaryDirectory() as folder,
        ReplyCache(Path(folder) / "replies.sqlite") as cache,
    ):
        ask = Client(engine, cache, accounting=Accounting(), budget=Budget(), deadline=600)

        async def dialogue(_: int) -> None:
            nonlocal asked
            asked += 1
            replies = await ask(shared.make_requests(asked, TRUNK))
            assert all(reply.first_token for reply in replies)

        await measure(dialogue, rate, seconds)
    await engine.close()


def run_client(name: str, url: str, rate: float, seconds: int) -> None:
    clients = {"raw": run_raw, "aiohttp": run_aiohttp, "engine": run_engine, "whole": run_whole}
    run_in_loop(clients[name](url, rate, seconds))


def take_turns(
    url: str, rate: float, seconds: int, rounds: int
) -> dict[str, list[dict[str, float]]]:
    """Every slice of every round, by client."""
    taken: dict[str, list[dict[str, float]]] = {name: [] for name in CLIENTS}
    for _ in range(rounds):
        for name in CLIENTS:
            command = [sys.executable, __file__, "--client", name, "--url", url]
            command += ["--rate", str(rate), "--seconds", str(seconds)]
            done = subprocess.run(command, stdout=subprocess.PIPE, check=True)
            taken[name] += json.loads(done.stdout.splitlines()[-1])
    return taken


def report(taken: dict[str, list[dict[str, float]]], how: str) -> dict[str, Any]:
    least = {name: min(one["ms"] for one in slices) for name, slices in taken.items()}
    whole, ours = least["whole"], least["whole"] - least["raw"]
    unit = "ms CPU a 1,000 requests"
    share = f"{whole / 10:.1f} % of a core at 1,000 requests/s; {ours:.1f} above the raw client"
    bare = f"bare aiohttp / the raw client {least['aiohttp'] / least['raw']:.2f} x"
    rows = [
        shared.row("whole path", whole, unit, "<= 150", whole <= 150, share),
        shared.row("whole path / bare aiohttp", whole / least["aiohttp"], "x", "", None, bare),
    ]
    for name, slices in taken.items():
        median = {kind: statistics.median(one[kind] for one in slices) for kind in slices[0]}
        beside = f"median {median['ms']:.1f}, at {median['rate']:.0f} requests/s"
        rows.append(shared.row(f"{name} client", least[name], unit, "", None, beside))
    return {"target": 10, "name": "Our overhead", "rows": rows, "how": how}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--rate", type=float, default=1000.0)
    parser.add_argument("--seconds", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--client", help=argparse.SUPPRESS)
    parser.add_argument("--url", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.client is not None:
        run_client(options.client, options.url, options.rate, options.seconds)
        return
    with shared.running_server() as url:
        taken = take_turns(url, options.rate, options.seconds, options.rounds)
    how = (
        f"CPU time of the client's process, all threads; least of {options.rounds} x "
        f"{options.seconds} slices of a second at {options.rate:g} requests/s, dialogues of "
        f"{shared.SIBLINGS} siblings; prompts of {len(shared.question(0, TRUNK))} bytes, replies of "
        f"{len(shared.CHAT)}; uvloop"
    )
    result = report(taken, how)
    shared.show(result, as_json=options.json)


if __name__ == "__main__":
    main()
