"""A loopback server with a fixed reply, and clients' common parts, for the benchmarks of our own work.

The server is a process of its own on uvloop: `python benchmarks/loopback.py --serve PORT_FILE`. Prompts are those
of a ten-turn dialogue, ten questions each, one token out, twenty log-probabilities back.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from curate.executors.loop import run as run_in_loop

SIBLINGS = 10
MODEL = "bench"
TURN = "The agent says that the refund was sent on Monday and asks for the number of the order. "
TRUNK = "You rate a dialogue.\n" + "".join(
    f"[{turn}.user]\nWhere is my refund?\n[{turn}.assistant]\n{TURN * 6}\n" for turn in range(10)
)
"""About 5.7 kB: a rubric's line and ten turns."""


def question(index: int, trunk: str = TRUNK) -> str:
    """The prompt of one request: a trunk by dialogue, a question by sibling."""
    return f"{trunk}Dialogue {index // SIBLINGS}.\nScore {index % SIBLINGS}? Answer with a digit."


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
        self.transport, self.buffer = transport, b""

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        while (end := message_end(self.buffer)) is not None:
            is_list = b"/models" in self.buffer[: self.buffer.index(b"\r\n")]
            self.buffer = self.buffer[end:]
            self.transport.write(MODELS if is_list else CHAT)


def message_end(data: bytes) -> int | None:
    """Where the first HTTP message in some bytes ends; None where it is not whole."""
    head, found, _ = data.partition(b"\r\n\r\n")
    if not found:
        return None
    length = re.search(rb"content-length: *(\d+)", head, re.IGNORECASE)
    end = len(head) + 4 + (int(length[1]) if length else 0)
    return end if len(data) >= end else None


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


class RawConnection(asyncio.Protocol):
    """One request at a time, bytes in and bytes out."""

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def ask(self, payload: bytes) -> asyncio.Future[bytes]:
        self.waiter: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self.buffer = b""
        self.transport.write(payload)
        return self.waiter

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        if message_end(self.buffer) is not None:
            self.waiter.set_result(self.buffer)


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


def make_requests(dialogue: int, trunk: str = TRUNK) -> list[Any]:
    """The siblings about one dialogue, as a stage builds them."""
    from curate.engines.base import Request
    from curate.engines.layout import Trunk

    shared = Trunk(f"{trunk}Dialogue {dialogue}.\n")
    return [
        Request(
            shared,
            f"Score {number}? Answer with a digit.",
            max_tokens=1,
            labels=("1", "2", "3", "4", "5"),
            purpose="judge.turns",
        )
        for number in range(SIBLINGS)
    ]


# -- report


def row(metric: str, value: float, unit: str, target: str, met: bool | None, beside: str) -> Any:
    return {
        "metric": metric,
        "value": round(value, 3),
        "unit": unit,
        "target": target,
        "met": met,
        "beside": beside,
    }


def show(result: dict[str, Any], *, as_json: bool = False) -> None:
    if as_json:
        print(json.dumps(result))
        return
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
    parser.add_argument("--serve", type=Path, required=True)
    run_in_loop(serve(parser.parse_args().serve))


if __name__ == "__main__":
    main()
