"""The HTTP client against a server that says exactly the bytes it is told to."""

from __future__ import annotations

import asyncio
import sys

import pytest

from curate.engines import http
from curate.engines.http import BrokenReplyError, DirectPool, open_pool
from curate.errors import UsageError

OK = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 2\r\n\r\nok"


class Bytes:
    """Answers the n-th request on all connections together with the n-th script entry.

    An entry is a list of pieces, sent with a pause between; None hangs up, `...` never answers.
    """

    def __init__(self, *script):
        self.script = list(script)
        self.requests = []
        self.connections = 0

    async def __aenter__(self):
        self.server = await asyncio.start_server(self.serve, "127.0.0.1", 0)
        self.port = self.server.sockets[0].getsockname()[1]
        self.pool = DirectPool("http", "127.0.0.1", self.port, f"127.0.0.1:{self.port}", {"X": "y"})
        return self

    async def __aexit__(self, *_):
        await self.pool.close()
        self.server.close()

    async def call(self, body=b"{}", seconds=2.0):
        return await self.pool.call("POST", "/v1/x", body, seconds)

    async def serve(self, reader, writer):
        self.connections += 1
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
                self.requests.append((head, await reader.readexactly(length)))
                for piece in self.script.pop(0) if self.script else [OK]:
                    if piece is None:
                        writer.close()
                        return
                    if piece is ...:
                        await asyncio.sleep(60)
                    writer.write(piece)
                    await asyncio.sleep(0.005)
        except (asyncio.IncompleteReadError, asyncio.CancelledError, ConnectionError):
            writer.close()


async def until(condition):
    """Wait for something that has no event to wait for; at most ten seconds."""
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.001)


async def test_a_call_is_one_plain_request():
    async with Bytes() as server:
        reply = await server.call(b'{"a": "\xc3\xa9"}')
        assert (reply.status, reply.body) == (200, b"ok")
        assert reply.headers["content-type"] == "text/plain"
        [(head, body)] = server.requests
        assert head.startswith(b"POST /v1/x HTTP/1.1\r\n")
        assert b"\r\nHost: 127.0.0.1:" in head
        assert b"\r\nX: y\r\n" in head
        assert body == b'{"a": "\xc3\xa9"}'


async def test_calls_one_after_the_other_share_a_connection_and_calls_at_once_do_not():
    async with Bytes() as server:
        for _ in range(3):
            await server.call()
        assert server.connections == 1
        await asyncio.gather(*(server.call() for _ in range(4)))
        assert server.connections == 4
        assert len(server.requests) == 7


@pytest.mark.parametrize(
    "pieces",
    [
        [OK[:9], OK[9:30], OK[30:]],
        [
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
            b"1\r\no\r\n1\r\nk\r\n",
            b"0\r\n\r\n",
        ],
        [b"HTTP/1.1 100 Continue\r\n\r\n", OK],
        [b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" + OK],
        [b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok", None],
        [b"HTTP/1.1 200 OK\r\n\r\no", b"k", None],
        [b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok", None],
    ],
    ids=["pieces", "chunked", "continue", "hints", "close", "until the end", "1.0"],
)
async def test_a_reply_is_read_in_every_form_and_the_next_call_is_not_harmed(pieces):
    async with Bytes(pieces) as server:
        reply = await server.call()
        assert (reply.status, reply.body) == (200, b"ok")
        assert (await server.call()).body == b"ok"


@pytest.mark.parametrize(
    ("pieces", "error"),
    [
        ([None], ConnectionError),
        ([b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhal", None], BrokenReplyError),
        (
            [b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n", None],
            BrokenReplyError,
        ),
        ([b"HTTP/1.1 2", None], BrokenReplyError),
        ([b"SSH-2.0-OpenSSH_9.6\r\n"], BrokenReplyError),
        ([b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhal", ...], TimeoutError),
        ([...], TimeoutError),
    ],
    ids=["hang up", "cut", "cut chunks", "cut head", "no http", "stalls", "silence"],
)
async def test_what_is_no_whole_reply_is_an_error_and_its_connection_is_not_used_again(
    pieces, error
):
    async with Bytes(pieces) as server:
        with pytest.raises(error):
            await server.call(seconds=0.15)
        assert (await server.call()).body == b"ok"
        assert server.connections == 2


class Endless:
    """Begins a reply and never ends it, as fast as it is read."""

    def __init__(self, begin, again):
        self.begin, self.again = begin, again
        self.sent = 0

    async def __aenter__(self):
        self.server = await asyncio.start_server(self.serve, "127.0.0.1", 0)
        self.port = self.server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_):
        self.server.close()

    async def serve(self, reader, writer):
        try:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(self.begin)
            while True:
                writer.write(self.again)
                self.sent += len(self.again)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()


BITE = b"x" * 10_000
ENDLESS = {
    "length": (b"HTTP/1.1 200 OK\r\nContent-Length: 999999999999\r\n\r\n", BITE, "body"),
    "chunks": (
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"2710\r\n" + BITE + b"\r\n",
        "body",
    ),
    "until the end": (b"HTTP/1.1 200 OK\r\n\r\n", BITE, "body"),
    "trailers": (
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n",
        b"X-More: " + BITE + b"\r\n",
        "body",
    ),
    "headers": (b"HTTP/1.1 200 OK\r\n", b"X-More: " + BITE + b"\r\n", "head"),
    "one header": (b"HTTP/1.1 200 OK\r\nX-More: ", BITE, "head"),
    "hints": (b"", b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" * 300, "head"),
}


@pytest.mark.parametrize("kind", ENDLESS)
async def test_a_reply_without_end_is_given_up_with_bounded_memory(monkeypatch, kind):
    begin, again, part = ENDLESS[kind]
    monkeypatch.setattr(http, "MOST_BYTES", 2**20)
    async with Endless(begin, again) as server:
        pool = DirectPool("http", "127.0.0.1", server.port, "x", {})
        with pytest.raises(BrokenReplyError, match=f"its {part} is longer than"):
            await pool.call("POST", "/v1/x", b"", 60.0)
        # What is on its way in the buffers of both sockets comes on top.
        assert server.sent < 2**20 + 16 * 2**20
        assert not pool._idle
        await pool.close()


@pytest.mark.parametrize("kind", ["length", "chunks"])
async def test_a_reply_without_end_is_given_up_through_a_proxy_as_well(monkeypatch, kind):
    for name in ("https_proxy", "no_proxy", "HTTP_PROXY", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    begin, again, _ = ENDLESS[kind]
    monkeypatch.setattr(http, "MOST_BYTES", 2**20)
    async with Endless(begin, again) as server:
        monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{server.port}")
        pool = open_pool("http://judge.example/v1", {}, use_proxy=True)
        with pytest.raises(BrokenReplyError, match="its body is longer than"):
            await pool.call("POST", "/v1/x", b"", 60.0)
        await pool.close()


async def test_a_long_reply_within_the_bound_is_read_and_so_is_the_next(monkeypatch):
    monkeypatch.setattr(http, "MOST_BYTES", 2**20)
    body = b"y" * (2**20 - 1000)
    long = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)
    async with Bytes([long], [long], [long]) as server:
        for _ in range(3):
            assert (await server.call(seconds=30.0)).body == body
        assert server.connections == 1


async def test_a_cancelled_call_does_not_leave_its_reply_to_the_next_one():
    async with Bytes([b"", b"", b"", OK]) as server:
        task = asyncio.create_task(server.call(b"first"))
        await until(lambda: server.requests)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        server.script.append([OK.replace(b"ok", b"2!")])
        assert (await server.call()).body == b"2!"
        assert server.connections == 2


async def test_a_connection_the_server_closed_meanwhile_is_not_used_again():
    async with Bytes([OK, None]) as server:
        await server.call()
        await until(lambda: server.pool._idle[0].is_lost)
        assert (await server.call()).body == b"ok"
        assert server.connections == 2


async def test_a_connection_that_was_idle_for_long_is_not_used_again(monkeypatch):
    monkeypatch.setattr(http, "IDLE_SECONDS", 0.02)
    async with Bytes() as server:
        await server.call()
        await asyncio.sleep(0.05)
        await server.call()
        assert server.connections == 2


@pytest.mark.parametrize("more", [OK, OK[:20]], ids=["whole", "begun"])
@pytest.mark.parametrize("together", [True, False])
async def test_a_reply_that_nobody_asked_for_ends_the_connection(more, together):
    async with Bytes([OK + more] if together else [OK, more], [OK.replace(b"ok", b"2!")]) as server:
        assert (await server.call()).body == b"ok"
        await until(lambda: all(connection.is_lost for connection in server.pool._idle))
        assert (await server.call()).body == b"2!"
        assert server.connections == 2


async def test_nothing_is_asked_after_closing():
    async with Bytes() as server:
        await server.call()
        await server.pool.close()
        with pytest.raises(ConnectionError, match="closed"):
            await server.call()


async def test_a_compressed_reply_is_not_asked_for():
    async with Bytes() as server:
        await server.call()
        assert b"accept-encoding" not in server.requests[0][0].lower()


async def test_a_proxy_of_the_environment_is_gone_through_where_it_may_be(monkeypatch):
    for name in ("http_proxy", "https_proxy", "no_proxy", "HTTP_PROXY", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    async with Bytes() as proxy:
        monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{proxy.port}")
        url = "http://judge.example/v1"
        assert isinstance(open_pool(url, {}, use_proxy=False), DirectPool)
        pool = open_pool(url, {"X": "y"}, use_proxy=True)
        assert not isinstance(pool, DirectPool)
        reply = await pool.call("POST", "/v1/x", b"{}", 2.0)
        await pool.close()
        assert (reply.status, reply.body) == (200, b"ok")
        assert proxy.requests[0][0].startswith(b"POST http://judge.example/v1/x HTTP/1.1")
        monkeypatch.setenv("no_proxy", "judge.example")
        assert isinstance(open_pool(url, {}, use_proxy=True), DirectPool)


async def test_a_package_that_only_proxies_need_is_missed_only_there(monkeypatch):
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.setitem(sys.modules, "aiohttp", None)
    monkeypatch.delitem(sys.modules, "curate.engines.proxied", raising=False)
    url = "http://judge.example/v1"
    assert isinstance(open_pool(url, {}, use_proxy=False), DirectPool)
    with pytest.raises(UsageError, match=r"pip install 'curate-dialogues\[openai\]'"):
        open_pool(url, {}, use_proxy=True)
