"""Requests a second and core of the `openai` engine, beside raw asyncio + httptools and the openai SDK.

    python benchmarks/http_client.py [--json] [--requests 4000] [--in-flight 64]

Every client asks the same loopback server (asyncio + httptools on uvloop, in a process of its own, a
fixed reply) the same questions: the prompt of a ten-turn dialogue, one token out, twenty
log-probabilities back. Each client is a process of its own too; what is compared is the CPU time it
used for its requests (start and imports left out), since wall time depends on what else the machine does.

- `raw`: prebuilt bytes out, a parsed head and body back; no JSON on either side. The floor of the wire.
- `aiohttp`: a bare session, prebuilt body out, JSON back.
- `engine`: `OpenAIEngine.complete`: body, JSON out and in, first token read, places for calls, deadlines.
- `asker`: the whole path: requests as a stage builds them, cache key, look-up, engine, reply log,
  accounting; ten siblings a dialogue.
- `openai`: `AsyncOpenAI().chat.completions.create`, in the venv that CURATE_PEERS_PYTHON names.

The rounds take turns and the median of each client's rounds is reported.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

OURS, PEERS = ("raw", "aiohttp", "engine", "asker"), ("openai",)
SIBLINGS = 10
MODEL = "bench"
TURN = "The agent says that the refund was sent on Monday and asks for the number of the order. "
TRUNK = "You rate a dialogue.\n" + "".join(
    f"[{turn}.user]\nWhere is my refund?\n[{turn}.assistant]\n{TURN * 6}\n" for turn in range(10)
)
"""About 5.7 kB: a rubric's line and ten turns."""


def question(index: int, trunk: str = TRUNK) -> str:
    """The prompt of one request: a trunk by dialogue, a question by sibling."""
    return f"{trunk}Dialogue {index // SIBLINGS}, score {index % SIBLINGS}? Answer with a digit."


def chat_body(index: int, trunk: str = TRUNK) -> dict[str, Any]:
    return {
        "model": MODEL,
        "messages": [{"role": "user", "content": question(index, trunk)}],
        "max_tokens": 1,
        "temperature": 0.0,
        "logprobs": True,
        "top_logprobs": 20,
    }


# -- server


def canned_reply() -> bytes:
    tops = [{"token": str(rank), "logprob": -0.5 - rank, "bytes": [49]} for rank in range(20)]
    reply = {
        "id": "chatcmpl-0",
        "object": "chat.completion",
        "created": 1,
        "model": MODEL,
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": "1"},
                "logprobs": {"content": [{**tops[0], "top_logprobs": tops}]},
                "finish_reason": "length",
            }
        ],
        "usage": {"prompt_tokens": 1200, "completion_tokens": 1, "total_tokens": 1201},
    }
    return json.dumps(reply, separators=(",", ":")).encode()


def http_response(body: bytes) -> bytes:
    head = (
        f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


CHAT = http_response(canned_reply())
MODELS = http_response(
    json.dumps({"object": "list", "data": [{"id": MODEL, "owned_by": "bench"}]}).encode()
)


class Responder(asyncio.Protocol):
    """Answers each whole request with fixed bytes."""

    def connection_made(self, transport: Any) -> None:
        import httptools

        self.transport, self.answer = transport, CHAT
        self.parser = httptools.HttpRequestParser(self)

    def data_received(self, data: bytes) -> None:
        self.parser.feed_data(data)

    def on_url(self, url: bytes) -> None:
        self.answer = MODELS if url.endswith(b"/models") else CHAT

    def on_message_complete(self) -> None:
        self.transport.write(self.answer)


async def serve(port_file: Path) -> None:
    server = await asyncio.get_running_loop().create_server(Responder, "127.0.0.1", 0)
    port_file.with_suffix(".part").write_text(str(server.sockets[0].getsockname()[1]))
    port_file.with_suffix(".part").replace(port_file)
    await server.serve_forever()


@contextmanager
def running_server() -> Iterator[str]:
    """Base URL of the server while it runs."""
    with tempfile.TemporaryDirectory() as folder:
        port_file = Path(folder) / "port"
        process = subprocess.Popen([sys.executable, __file__, "--serve", str(port_file)])
        try:
            while not port_file.exists():
                if process.poll() is not None:
                    raise RuntimeError("the server did not start")
                time.sleep(0.02)
            yield f"http://127.0.0.1:{port_file.read_text()}/v1"
        finally:
            process.terminate()
            process.wait()


# -- clients


async def in_workers(ask: Callable[[int], Awaitable[object]], count: int, width: int) -> None:
    """`ask(0) … ask(count - 1)`, `width` at a time."""
    feed = iter(range(count))

    async def worker() -> None:
        for index in feed:
            await ask(index)

    await asyncio.gather(*(worker() for _ in range(width)))


async def measure(ask: Callable[[int], Awaitable[object]], count: int, width: int) -> None:
    """Warm the connections, then print CPU and wall seconds of `count` calls as JSON."""
    await in_workers(ask, 2 * width, width)
    cpu, wall = time.process_time(), time.perf_counter()
    await in_workers(ask, count, width)
    seconds = {"cpu": time.process_time() - cpu, "wall": time.perf_counter() - wall}
    print(json.dumps(seconds), flush=True)


class RawConnection(asyncio.Protocol):
    """One request at a time, bytes in and bytes out."""

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def ask(self, payload: bytes) -> asyncio.Future[bytes]:
        import httptools

        self.waiter: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self.parser, self.parts = httptools.HttpResponseParser(self), []
        self.transport.write(payload)
        return self.waiter

    def data_received(self, data: bytes) -> None:
        self.parser.feed_data(data)

    def on_body(self, data: bytes) -> None:
        self.parts.append(data)

    def on_message_complete(self) -> None:
        self.waiter.set_result(b"".join(self.parts))


async def open_raw(
    url: str, width: int, trunk: str = TRUNK
) -> tuple[list[RawConnection], list[bytes]]:
    """Open connections, and the whole bytes of some requests."""
    host, port = url.removeprefix("http://").removesuffix("/v1").split(":")
    loop = asyncio.get_running_loop()
    connections = [
        (await loop.create_connection(RawConnection, host, int(port)))[1] for _ in range(width)
    ]
    payloads = []
    for index in range(SIBLINGS):
        body = json.dumps(chat_body(index, trunk), separators=(",", ":")).encode()
        head = (
            f"POST /v1/chat/completions HTTP/1.1\r\nHost: {host}:{port}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        payloads.append(head.encode() + body)
    return connections, payloads


async def run_raw(url: str, count: int, width: int) -> None:
    idle, payloads = await open_raw(url, width)

    async def ask(index: int) -> None:
        connection = idle.pop()
        await connection.ask(payloads[index % SIBLINGS])
        idle.append(connection)

    await measure(ask, count, width)


async def run_aiohttp(url: str, count: int, width: int) -> None:
    import aiohttp
    import orjson

    bodies = [orjson.dumps(chat_body(index)) for index in range(SIBLINGS)]
    headers = {"Content-Type": "application/json"}
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:

        async def ask(index: int) -> None:
            data = bodies[index % SIBLINGS]
            async with session.post(f"{url}/chat/completions", data=data, headers=headers) as reply:
                orjson.loads(await reply.read())

        await measure(ask, count, width)


def make_request(index: int, trunk: str = TRUNK) -> Any:
    from curate.engines.base import Request
    from curate.engines.layout import Trunk

    return Request(
        Trunk(question(index, trunk)),
        max_tokens=1,
        labels=("1", "2", "3", "4", "5"),
        purpose="judge.turns",
    )


async def run_engine(url: str, count: int, width: int) -> None:
    from curate.engines.config import OpenAIConfig, open_engine

    engine = await open_engine(OpenAIConfig(model=MODEL, base_url=url, in_flight=width))
    requests = [make_request(index) for index in range(SIBLINGS)]

    async def ask(index: int) -> None:
        [completion] = await engine.complete([requests[index % SIBLINGS]])
        assert completion.first_token, completion

    await measure(ask, count, width)
    await engine.close()


async def run_asker(url: str, count: int, width: int) -> None:
    from curate.engines.accounting import Accounting
    from curate.engines.cache import ReplyCache
    from curate.engines.client import Client
    from curate.engines.config import OpenAIConfig, open_engine

    engine = await open_engine(OpenAIConfig(model=MODEL, base_url=url, in_flight=width))
    asked = 0
    with (
        tempfile.TemporaryDirectory() as folder,
        ReplyCache(Path(folder) / "replies.sqlite") as cache,
    ):
        asker = Client(engine, cache, accounting=Accounting())

        async def dialogue(_: int) -> None:
            nonlocal asked
            first, asked = asked, asked + SIBLINGS
            for completion in await asker([make_request(first + n) for n in range(SIBLINGS)]):
                assert completion.first_token, completion

        await measure(dialogue, count // SIBLINGS, width)
    await engine.close()


async def run_openai(url: str, count: int, width: int) -> None:
    from openai import AsyncOpenAI

    client = AsyncOpenAI(base_url=url, api_key="none", max_retries=0)

    async def ask(index: int) -> None:
        reply = await client.chat.completions.create(**chat_body(index))
        assert reply.choices[0].logprobs

    await measure(ask, count, width)
    await client.close()


def run_client(name: str, url: str, count: int, width: int) -> None:
    client = {
        "raw": run_raw,
        "aiohttp": run_aiohttp,
        "engine": run_engine,
        "asker": run_asker,
        "openai": run_openai,
    }[name]
    run_on_uvloop(client(url, count, width))


def run_on_uvloop(work: Any) -> None:
    """Every client gets the faster loop, the SDK too."""
    try:
        import uvloop
    except ModuleNotFoundError:  # a peers' venv may lack it; said in the result
        print("no uvloop", file=sys.stderr)
        asyncio.run(work)
    else:
        uvloop.run(work)


# -- report


def spawn(python: str, name: str, url: str, count: int, width: int) -> dict[str, float]:
    command = [python, __file__, "--client", name, "--url", url]
    command += ["--requests", str(count), "--in-flight", str(width)]
    environment = os.environ | {"PYTHONPATH": ""} if name in PEERS else None
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True, env=environment)
    seconds: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return seconds


def take_turns(url: str, count: int, width: int, rounds: int) -> dict[str, dict[str, float]]:
    """Median requests a second, by client, of CPU and of wall time."""
    peers = os.environ.get("CURATE_PEERS_PYTHON")
    clients = [(name, sys.executable, count) for name in OURS]
    if peers:
        clients += [(name, peers, max(200, count // 8)) for name in PEERS]
    taken: dict[str, list[dict[str, float]]] = {}
    for _ in range(rounds):
        for name, python, asked in clients:
            seconds = spawn(python, name, url, asked, width)
            rates = {kind: asked / value for kind, value in seconds.items()}
            taken.setdefault(name, []).append(rates)
    return {
        name: {kind: statistics.median(rates[kind] for rates in all_) for kind in ("cpu", "wall")}
        for name, all_ in taken.items()
    }


def row(metric: str, value: float, unit: str, target: str, met: bool | None, beside: str) -> Any:
    return {
        "metric": metric,
        "value": round(value, 3),
        "unit": unit,
        "target": target,
        "met": met,
        "beside": beside,
    }


def report(rates: dict[str, dict[str, float]], how: str) -> dict[str, Any]:
    cpu = {name: rate["cpu"] for name, rate in rates.items()}
    rows = []
    if "openai" in cpu:
        ratio = cpu["engine"] / cpu["openai"]
        beside = f"{cpu['engine']:.0f} against {cpu['openai']:.0f} requests/s/core"
        rows.append(row("engine / openai SDK", ratio, "x", ">= 15", ratio >= 15, beside))
    else:
        missing = "CURATE_PEERS_PYTHON is not set: the SDK was not run"
        rows.append(row("engine / openai SDK", 0.0, "x", ">= 15", None, missing))
    share = cpu["engine"] / cpu["raw"]
    beside = f"{cpu['engine']:.0f} against {cpu['raw']:.0f} requests/s/core"
    rows.append(
        row("engine / raw asyncio + httptools", share, "", ">= 0.15", share >= 0.15, beside)
    )
    for name, rate in rates.items():
        wall = f"{rate['wall']:.0f} requests/s of wall time"
        rows.append(row(f"{name} client", rate["cpu"], "requests/s/core", "", None, wall))
    return {"target": 4, "name": "HTTP client", "rows": rows, "how": how}


def show(result: dict[str, Any]) -> None:
    print(f"{result['name']} (row {result['target']} of the targets)\n")
    for entry in result["rows"]:
        met = {True: "met", False: "NOT MET", None: ""}[entry["met"]]
        print(
            f"{entry['metric']:36}{entry['value']:>12.3f} {entry['unit']:16}"
            f"{entry['target']:8}{met:8} {entry['beside']}"
        )
    print(f"\n{result['how']}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--requests", type=int, default=4000)
    parser.add_argument("--in-flight", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--serve", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--client", help=argparse.SUPPRESS)
    parser.add_argument("--url", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve is not None:
        run_on_uvloop(serve(options.serve))
    elif options.client is not None:
        run_client(options.client, options.url, options.requests, options.in_flight)
    else:
        with running_server() as url:
            rates = take_turns(url, options.requests, options.in_flight, options.rounds)
        how = (
            f"median of {options.rounds} rounds of {options.requests} requests "
            f"(an eighth for the SDK), {options.in_flight} in flight, prompts of {len(TRUNK)} bytes, "
            f"replies of {len(CHAT)}; CPU time of the client's process, uvloop for every client"
        )
        result = report(rates, how)
        print(json.dumps(result)) if options.json else show(result)


if __name__ == "__main__":
    main()
