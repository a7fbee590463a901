"""The reply log against a commit a row, and what a kill -9 costs.

    python benchmarks/reply_log.py [--json] [--records 20000] [--kills 20]

Speed: replies of about 1 kB are kept, 16 askers at once, each of whom waits until its reply is safe against a kill of
the process. `reply log` is `ReplyCache.put`, until the file is closed. Beside it SQLite as it comes (`DELETE` journal,
`synchronous=FULL`), and a statement a reply in the mode of the log (WAL, `synchronous=NORMAL`), which give the same
promise.

Kills: a process asks a loopback server that counts its requests, with so many calls in flight, through
`Client` and the log; it is killed at a random moment and started again until all is answered. Calls lost
are those whose reply had not been put into the log when the kill came (asked, and found in no log
afterwards); calls re-issued are those that the server saw again. Their ratio is to be exactly 1.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import loopback as shared

from curate.engines.accounting import Accounting
from curate.engines.base import Completion, Request, Usage
from curate.engines.cache import ReplyCache
from curate.engines.client import Client
from curate.engines.config import OpenAIConfig
from curate.engines.layout import Trunk
from curate.engines.open import open_engine
from curate.engines.replies import completion_to_json
from curate.executors.loop import run as run_in_loop

PRAGMAS = {
    "sqlite, a commit a row, defaults": (),
    "sqlite, a commit a row, WAL and NORMAL": ("journal_mode=WAL", "synchronous=NORMAL"),
}
REPLY = Completion(
    text="1",
    finish="length",
    first_token=tuple((f"label {rank}", -0.5 - rank) for rank in range(40)),
    usage=Usage(1200, 1000, 1),
)
IN_FLIGHT = 16
CALLS = 3000


def make_key(number: int) -> str:
    return f"{random.Random(number).getrandbits(128):032x}"


# -- speed


def time_log(folder: Path, records: int) -> float:
    """Records a second until the log is closed."""
    keys = [make_key(number) for number in range(records)]
    cache = ReplyCache(folder / "replies.sqlite")
    began = time.perf_counter()
    run_in_loop(shared.in_workers(lambda index: keep(cache, keys[index]), records, IN_FLIGHT))
    cache.close()
    return records / (time.perf_counter() - began)


async def keep(cache: ReplyCache, key: str) -> None:
    await cache.put({key: REPLY})


def time_commits(folder: Path, records: int, pragmas: tuple[str, ...]) -> float:
    keys = [bytes.fromhex(make_key(number)) for number in range(records)]
    connection = sqlite3.connect(folder / "rows.sqlite", isolation_level=None)
    for pragma in pragmas:
        connection.execute(f"PRAGMA {pragma}")
    connection.execute("CREATE TABLE replies (key BLOB PRIMARY KEY, reply BLOB NOT NULL)")
    began = time.perf_counter()
    for key in keys:
        reply = json.dumps(completion_to_json(REPLY)).encode()
        connection.execute("INSERT INTO replies VALUES (?, ?)", (key, reply))
    seconds = time.perf_counter() - began
    connection.close()
    return records / seconds


# -- kills


def tell_port(port_file: Path, port: int) -> None:
    # Renamed into place, so that whoever waits for the file never reads half a number.
    part = port_file.with_suffix(".part")
    part.write_text(str(port))
    part.replace(port_file)


async def count_requests(port_file: Path, log: Path) -> None:
    """A server that writes the question of each request to a file as it comes, and answers slowly."""
    from aiohttp import web

    seen = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    async def answer(request: web.Request) -> web.Response:
        body = await request.json()
        os.write(seen, f"{body['messages'][0]['content']}\n".encode())
        await asyncio.sleep(random.uniform(0.001, 0.01))
        return web.Response(body=shared.canned_reply(), content_type="application/json")

    async def models(_: web.Request) -> web.Response:
        return web.json_response({"data": [{"id": shared.MODEL, "owned_by": "bench"}]})

    app = web.Application()
    app.router.add_post("/v1/chat/completions", answer)
    app.router.add_get("/v1/models", models)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    tell_port(port_file, runner.addresses[0][1])
    await asyncio.Event().wait()


def make_request(number: int) -> Request:
    return Request(Trunk(f"call {number}"), max_tokens=1)


async def ask_all(url: str, cache_file: Path) -> None:
    engine = await open_engine(
        OpenAIConfig(model=shared.MODEL, base_url=url, in_flight=IN_FLIGHT, revision="1")
    )
    with ReplyCache(cache_file) as cache:
        ask = Client(engine, cache, accounting=Accounting())
        await shared.in_workers(lambda index: ask([make_request(index)]), CALLS, IN_FLIGHT)
    await engine.close()


async def identity_of(url: str) -> Any:
    engine = await open_engine(OpenAIConfig(model=shared.MODEL, base_url=url, revision="1"))
    await engine.close()
    return engine.identity


def kill_and_resume(folder: Path, kills: int) -> tuple[int, int]:
    """Calls lost and calls re-issued over so many kills."""
    port_file, log, cache_file = folder / "port", folder / "seen", folder / "replies.sqlite"
    server = subprocess.Popen([sys.executable, __file__, "--serve", str(port_file), str(log)])
    try:
        while not port_file.exists():
            time.sleep(0.02)
        url = f"http://127.0.0.1:{port_file.read_text()}/v1"
        identity = asyncio.run(identity_of(url))
        keys = [make_request(number).key(identity) for number in range(CALLS)]
        lost, seen_before = 0, len(log.read_text().splitlines())
        asked: Counter[int] = Counter()
        rng, process = random.Random(7), None
        for round_ in range(kills + 1):
            command = [sys.executable, __file__, "--ask", url, str(cache_file)]
            process = subprocess.Popen(command)
            if round_ == kills:
                process.wait()
                break
            # Killed once it is at work, so that no kill is spent on a process that is only starting.
            known = len(log.read_text().splitlines())
            while len(log.read_text().splitlines()) < known + 20 and process.poll() is None:
                time.sleep(0.01)
            time.sleep(rng.uniform(0.0, 0.1))
            process.send_signal(signal.SIGKILL)
            process.wait()
            time.sleep(0.05)  # what was on the wire arrives
            lines = log.read_text().splitlines()
            new, seen_before = lines[seen_before:], len(lines)
            numbers = [int(line.removeprefix("call ")) for line in new if line.startswith("call ")]
            asked.update(numbers)
            with ReplyCache(cache_file) as cache:
                kept = cache.get_many([keys[number] for number in numbers])
            lost += sum(keys[number] not in kept for number in numbers)
        for line in log.read_text().splitlines()[seen_before:]:
            if line.startswith("call "):
                asked[int(line.removeprefix("call "))] += 1
        return lost, sum(count - 1 for count in asked.values())
    finally:
        server.terminate()
        server.wait()


# -- report


def report(records: int, kills: int) -> dict[str, Any]:
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        stored = time_log(Path(folder), records)
    # The default commits to the disk each time: fewer rows tell its rate as well.
    for number, (name, pragmas) in enumerate(PRAGMAS.items()):
        with tempfile.TemporaryDirectory() as folder:
            rate = time_commits(Path(folder), records if pragmas else records // 20, pragmas)
        target, met = (">= 20", stored / rate >= 20) if number == 0 else ("", None)
        beside = f"{stored:.0f} against {rate:.0f} records/s"
        rows.append(shared.row(f"reply log / {name}", stored / rate, "x", target, met, beside))
    rows.append(shared.row("until a reply is safe", 1e6 / stored, "us a record", "", None, ""))
    with tempfile.TemporaryDirectory() as folder:
        lost, again = kill_and_resume(Path(folder), kills)
    beside = f"{again} re-issued, {lost} lost, over {kills} kills of {CALLS} calls"
    ratio = again / lost if lost else 0.0
    rows.append(
        shared.row("calls re-issued / calls lost", ratio, "", "1.0", lost == again > 0, beside)
    )
    how = (
        f"{records} replies of {len(json.dumps(completion_to_json(REPLY)))} bytes, on a local disk"
    )
    return {"target": 6, "name": "Reply log", "rows": rows, "how": how}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--records", type=int, default=20_000)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--serve", nargs=2, type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--ask", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        asyncio.run(count_requests(*options.serve))
    elif options.ask:
        asyncio.run(ask_all(options.ask[0], Path(options.ask[1])))
    else:
        result = report(options.records, options.kills)
        shared.show(result, as_json=options.json)


if __name__ == "__main__":
    main()
