"""Our own CPU time at 1,000 requests a second: what is left of a core for everything else.

    python benchmarks/overhead.py [--json] [--rate 1000] [--seconds 5]

Requests are started at a steady pace, whatever the server does, against the loopback server of
`http_client.py`, and the CPU time of this process is divided by the requests. `asker` is the whole path
(cache key, look-up, engine, reply log with its SQLite writer, accounting), ten siblings a dialogue;
`engine` is `OpenAIEngine.complete` alone; `raw` sends prebuilt bytes and reads a parsed body: the floor of
sockets and event loop, of which nothing is ours. At a steady pace every reply wakes the loop by itself,
so a request costs more here than under full load.
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

import http_client as shared

CLIENTS = ("raw", "engine", "asker")
WIDTH = 256


async def at_pace(ask: Callable[[int], Awaitable[object]], count: int, rate: float) -> None:
    """Start `ask(0) … ask(count - 1)` at `rate` a second; late ones at once."""
    began, open_ = time.perf_counter(), set[asyncio.Task[object]]()
    for index in range(count):
        wait = began + index / rate - time.perf_counter()
        if wait > 0:
            await asyncio.sleep(wait)
        task = asyncio.ensure_future(ask(index))
        open_.add(task)
        task.add_done_callback(open_.discard)
    await asyncio.gather(*open_)


async def measure(ask: Callable[[int], Awaitable[object]], count: int, rate: float) -> None:
    await at_pace(ask, max(1, count // 5), rate)
    cpu, wall = time.process_time(), time.perf_counter()
    await at_pace(ask, count, rate)
    print(json.dumps({"cpu": time.process_time() - cpu, "wall": time.perf_counter() - wall}))


async def run_raw(url: str, count: int, rate: float) -> None:
    connections, payloads = await shared.open_raw(url, WIDTH)

    async def ask(index: int) -> None:
        connection = connections.pop()
        await connection.ask(payloads[index % len(payloads)])
        connections.append(connection)

    await measure(ask, count, rate)


async def run_engine(url: str, count: int, rate: float) -> None:
    from curate.engines.config import OpenAIConfig, open_engine

    engine = await open_engine(OpenAIConfig(model=shared.MODEL, base_url=url, in_flight=WIDTH))
    await measure(lambda index: engine.complete([shared.make_request(index)]), count, rate)
    await engine.close()


async def run_asker(url: str, count: int, rate: float) -> None:
    from curate.engines.accounting import Accounting
    from curate.engines.asking import Asker
    from curate.engines.cache import ReplyCache
    from curate.engines.config import OpenAIConfig, open_engine

    engine = await open_engine(OpenAIConfig(model=shared.MODEL, base_url=url, in_flight=WIDTH))
    asked = 0
    with (
        tempfile.TemporaryDirectory() as folder,
        ReplyCache(Path(folder) / "replies.sqlite") as cache,
    ):
        asker = Asker(engine, cache, accounting=Accounting())

        async def dialogue(_: int) -> None:
            nonlocal asked
            first, asked = asked, asked + shared.SIBLINGS
            await asker([shared.make_request(first + n) for n in range(shared.SIBLINGS)])

        await measure(dialogue, count // shared.SIBLINGS, rate / shared.SIBLINGS)
    await engine.close()


def run_client(name: str, url: str, count: int, rate: float) -> None:
    client = {"raw": run_raw, "engine": run_engine, "asker": run_asker}[name]
    shared.run_on_uvloop(client(url, count, rate))


def take_turns(url: str, seconds: float, rate: float, rounds: int) -> dict[str, dict[str, float]]:
    """Median CPU milliseconds for 1,000 requests, and the rate that was kept, by client."""
    count = int(seconds * rate)
    taken: dict[str, list[dict[str, float]]] = {name: [] for name in CLIENTS}
    for _ in range(rounds):
        for name in CLIENTS:
            command = [sys.executable, __file__, "--client", name, "--url", url]
            command += ["--rate", str(rate), "--seconds", str(seconds)]
            done = subprocess.run(command, stdout=subprocess.PIPE, check=True)
            spent = json.loads(done.stdout.splitlines()[-1])
            taken[name].append({"ms": spent["cpu"] * 1e6 / count, "rate": count / spent["wall"]})
    return {
        name: {kind: statistics.median(one[kind] for one in all_) for kind in ("ms", "rate")}
        for name, all_ in taken.items()
    }


def report(spent: dict[str, dict[str, float]], how: str) -> dict[str, Any]:
    floor, whole = spent["raw"]["ms"], spent["asker"]["ms"]
    ours = whole - floor
    rows = [
        shared.row(
            "whole path, sockets and loop taken off",
            ours,
            "ms CPU a 1,000 requests",
            "<= 50",
            ours <= 50,
            f"{ours / 10:.1f} % of a core at 1,000 requests/s",
        ),
        shared.row(
            "whole path, all of the process",
            whole,
            "ms CPU a 1,000 requests",
            "<= 50",
            whole <= 50,
            f"{whole / 10:.1f} % of a core at 1,000 requests/s",
        ),
    ]
    for name, one in spent.items():
        kept = f"at {one['rate']:.0f} requests/s"
        rows.append(
            shared.row(f"{name} client", one["ms"], "ms CPU a 1,000 requests", "", None, kept)
        )
    return {"target": 10, "name": "Our overhead", "rows": rows, "how": how}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--rate", type=float, default=1000.0)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--client", help=argparse.SUPPRESS)
    parser.add_argument("--url", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.client is not None:
        run_client(options.client, options.url, int(options.seconds * options.rate), options.rate)
        return
    with shared.running_server() as url:
        spent = take_turns(url, options.seconds, options.rate, options.rounds)
    how = (
        f"median of {options.rounds} rounds of {options.seconds:g} s at {options.rate:g} requests/s; "
        f"prompts of {len(shared.TRUNK)} bytes, replies of {len(shared.CHAT)}; uvloop"
    )
    result = report(spent, how)
    print(json.dumps(result)) if options.json else shared.show(result)


if __name__ == "__main__":
    main()
