"""A server that counts and fails, fast enough for a million replies, in a process of its own.

    python benchmarks/fault_server.py --port-file FILE [--about TEXT] [--faults 0.02]

It speaks `/v1/chat/completions` on bare sockets. A reply follows from the body alone: a label read gets the canned
distribution of `loopback.py`, a schema an object that fits it, anything else YES or NO. Bodies that hold TEXT are
counted; the others are an engine's probes. A share of the counted ones, drawn by a checksum of the body, meets one fault
before its right answer. `GET /v1/counts` tells what came so far, as `Counts`.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
import random
import subprocess
import sys
import tempfile
import time
import urllib.request
import zlib
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import loopback as shared
import orjson

from curate.executors.loop import run as run_in_loop

WHOLE = shared.CHAT
FAULTS: dict[str, bytes] = {
    "429": b"HTTP/1.1 429 Too Many Requests\r\nRetry-After: 0\r\nContent-Length: 2\r\n\r\n{}",
    "500": b"HTTP/1.1 500 Internal Server Error\r\nContent-Length: 4\r\n\r\noops",
    "503": b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 2\r\n\r\n{}",
    "HTML": shared.http_response(b"<html>Welcome</html>"),
    "truncated JSON": shared.http_response(shared.canned_reply()[:-20]),
    "no choices": shared.http_response(b'{"choices": []}'),
    "cut": WHOLE[: len(WHOLE) // 2],
    "reset": b"",
}
HANGS_UP = ("cut", "reset")


class Counts(NamedTuple):
    """A server's counts of requests about TEXT.

    Attributes:
        requests: bodies that came.
        bodies: different ones among them.
        answers: right answers that were sent.
        again: right answers to a body that had one before.
        faults: other answers that were sent.
        probes: bodies without TEXT.
    """

    requests: int
    bodies: int
    answers: int
    again: int
    faults: int
    probes: int


class Plan:
    """Counts bodies and chooses what each of them gets."""

    def __init__(self, about: str, faults: float) -> None:
        self._about, self._share = about.encode(), faults
        self._failed: set[bytes] = set()
        self._answered: set[bytes] = set()
        self._counted: Counter[str] = Counter()

    @property
    def counts(self) -> Counts:
        counted = self._counted
        return Counts(
            requests=counted["requests"],
            bodies=len(self._answered) + len(self._failed - self._answered),
            answers=counted["answers"],
            again=counted["answers"] - len(self._answered),
            faults=counted["faults"],
            probes=counted["probes"],
        )

    def answer(self, data: bytes) -> tuple[bytes, bool]:
        """Return what is sent for a body, and whether the connection is closed then."""
        if self._about not in data:
            self._counted["probes"] += 1
            return right_answer(data), False
        self._counted["requests"] += 1
        key = hashlib.blake2b(data, digest_size=8).digest()
        draw = int.from_bytes(key[:4]) / 2**32
        if draw < self._share and key not in self._failed:
            self._failed.add(key)
            self._counted["faults"] += 1
            name = list(FAULTS)[key[7] % len(FAULTS)]
            return FAULTS[name], name in HANGS_UP
        self._answered.add(key)
        self._counted["answers"] += 1
        return right_answer(data), False


def right_answer(data: bytes) -> bytes:
    body = orjson.loads(data)
    if body.get("logprobs"):
        return WHOLE
    drawn = random.Random(zlib.crc32(data))
    text = "YES" if drawn.random() < 0.97 else "NO"
    if body.get("response_format"):
        text = json.dumps(instance(body["response_format"]["json_schema"]["schema"], drawn))
    choice = {"index": 0, "message": {"role": "assistant", "content": text}}
    usage = {"prompt_tokens": len(data) // 4, "completion_tokens": len(text) // 4 + 1}
    reply = {
        "model": shared.MODEL,
        "choices": [choice | {"finish_reason": "stop"}],
        "usage": usage,
    }
    return shared.http_response(orjson.dumps(reply))


def instance(schema: dict[str, Any], drawn: random.Random) -> Any:
    """A value that fits a schema of the judge's replies."""
    if "properties" in schema:
        return {name: instance(inner, drawn) for name, inner in schema["properties"].items()}
    if "anyOf" in schema:
        return instance(drawn.choice(schema["anyOf"]), drawn)
    if "items" in schema:
        return [instance(schema["items"], drawn) for _ in range(schema["minItems"])]
    if "enum" in schema:
        return drawn.choice(schema["enum"])
    if schema["type"] == "null":
        return None
    raise ValueError(f"no value is known for {schema}")


class Responder(asyncio.Protocol):
    """One connection."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan

    def connection_made(self, transport: Any) -> None:
        self.transport, self.buffer = transport, b""

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        while (end := shared.message_end(self.buffer)) is not None:
            message, self.buffer = self.buffer[:end], self.buffer[end:]
            head, _, body = message.partition(b"\r\n\r\n")
            path = head.split(b" ", 2)[1]
            if path == b"/v1/chat/completions":
                reply, is_last = self._plan.answer(body)
            elif path == b"/v1/counts":
                reply = shared.http_response(orjson.dumps(self._plan.counts._asdict()))
                is_last = False
            else:
                reply, is_last = shared.MODELS, False
            if reply:
                self.transport.write(reply)
            if is_last:
                self.transport.close()
                return


async def serve(port_file: Path, plan: Plan) -> None:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Responder(plan), "127.0.0.1", 0, backlog=4096)
    # Renamed into place, so that whoever waits for the file never reads half a number.
    part = port_file.with_suffix(".part")
    part.write_text(str(server.sockets[0].getsockname()[1]))
    part.replace(port_file)
    await server.serve_forever()


class Server(NamedTuple):
    """A server that runs."""

    url: str

    @property
    def counts(self) -> Counts:
        """Return the counts so far."""
        with urllib.request.urlopen(f"{self.url}/counts") as reply:
            return Counts(**json.load(reply))


@contextmanager
def running(about: str, faults: float = 0.0) -> Iterator[Server]:
    """The server in a process of its own, while the block runs."""
    with tempfile.TemporaryDirectory() as folder:
        port_file = Path(folder) / "port"
        command = [sys.executable, __file__, "--port-file", str(port_file), "--about", about]
        process = subprocess.Popen([*command, "--faults", str(faults)])
        try:
            while not port_file.exists():
                if process.poll() is not None:
                    raise RuntimeError("the server did not start")
                time.sleep(0.02)
            yield Server(f"http://127.0.0.1:{port_file.read_text()}/v1")
        finally:
            process.terminate()
            process.wait()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--port-file", type=Path, required=True, help="gets the port's number")
    parser.add_argument("--about", default="", help="bodies that hold this are counted")
    parser.add_argument("--faults", type=float, default=0.0, help="the share of them that fails")
    given = parser.parse_args()
    run_in_loop(serve(given.port_file, Plan(given.about, given.faults)))


if __name__ == "__main__":
    main()
