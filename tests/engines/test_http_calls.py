"""Calls over HTTP against a server that says exactly the bytes it is told to."""

from __future__ import annotations

import asyncio
import shutil
import ssl
import subprocess

import pytest

from curate.engines import endpoints
from curate.engines.endpoints import BrokenReplyError, Endpoint
from curate.engines.limiter import Limiter
from tests.engines.waiting import settle, until


def make_endpoint(url, *, use_proxy=False):
    return Endpoint(url, {"X": "y"}, Limiter(64), use_proxy=use_proxy)


OK = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 2\r\n\r\nok"


class Bytes:
    """Answers the n-th request on all connections together with the n-th script entry.

    An entry is a list of pieces, sent with a pause between; None hangs up, `...` never answers, an event is waited
    for.
    """

    def __init__(self, *script):
        self.script = list(script)
        self.requests = []
        self.connections = self.sent = self.hung_up = 0

    async def __aenter__(self):
        self.server = await asyncio.start_server(self.serve, "127.0.0.1", 0)
        self.port = self.server.sockets[0].getsockname()[1]
        self.endpoint = make_endpoint(f"http://127.0.0.1:{self.port}/v1")
        return self

    async def __aexit__(self, *_):
        await self.endpoint.close()
        self.server.close()

    async def call(self, body=b"{}", seconds=60.0):
        return await self.endpoint.call("POST", "/x", body, seconds)

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
                        await writer.wait_closed()
                        self.hung_up += 1
                        return
                    if piece is ...:
                        await asyncio.sleep(60)
                    if isinstance(piece, asyncio.Event):
                        await piece.wait()
                        continue
                    writer.write(piece)
                    self.sent += 1
                    await asyncio.sleep(0.005)
        except (asyncio.IncompleteReadError, asyncio.CancelledError, ConnectionError):
            writer.close()


async def test_a_call_is_one_plain_request():
    async with Bytes() as server:
        status, headers, body = await server.call(b'{"a": "\xc3\xa9"}')
        assert (status, body) == (200, b"ok")
        assert headers["content-type"] == "text/plain"
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
        for _ in range(2):
            status, _, body = await server.call()
            assert (status, body) == (200, b"ok")


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
    # Only who waits in vain is told soon: a busy machine may take its time over the others.
    seconds = 0.5 if error is TimeoutError else 60.0
    async with Bytes(pieces) as server:
        with pytest.raises(error):
            await server.call(seconds=seconds)
        assert (await server.call())[2] == b"ok"
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
    "length": (
        b"HTTP/1.1 200 OK\r\nContent-Length: 999999999999\r\n\r\n",
        BITE,
        "its body is longer than",
    ),
    "chunks": (
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"2710\r\n" + BITE + b"\r\n",
        "its body is longer than",
    ),
    "until the end": (b"HTTP/1.1 200 OK\r\n\r\n", BITE, "its body is longer than"),
    "trailers": (
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n",
        b"X-More: " + BITE[:1000] + b"\r\n",
        "it is not HTTP|Too many headers",
    ),
    "headers": (b"HTTP/1.1 200 OK\r\n", b"X-More: " + BITE[:1000] + b"\r\n", "it is not HTTP"),
    "one header": (b"HTTP/1.1 200 OK\r\nX-More: ", BITE, "it is not HTTP"),
}


@pytest.mark.parametrize("kind", ENDLESS)
async def test_a_reply_without_end_is_given_up_with_bounded_memory(monkeypatch, kind):
    begin, again, says = ENDLESS[kind]
    monkeypatch.setattr(endpoints, "MAX_BYTES", 2**20)
    async with Endless(begin, again) as server:
        endpoint = make_endpoint(f"http://127.0.0.1:{server.port}")
        with pytest.raises(BrokenReplyError, match=says):
            await endpoint.call("POST", "/x", b"", 60.0)
        # What is on its way in the buffers of both sockets comes on top.
        assert server.sent < 2**20 + 16 * 2**20
        await endpoint.close()


async def test_hints_without_end_are_given_up_at_the_deadline():
    hints = b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n"
    async with Endless(b"", hints) as server:
        endpoint = make_endpoint(f"http://127.0.0.1:{server.port}")
        with pytest.raises(TimeoutError):
            await endpoint.call("POST", "/x", b"", 0.2)
        await endpoint.close()


@pytest.mark.parametrize("kind", ["length", "chunks"])
async def test_a_reply_without_end_is_given_up_through_a_proxy_as_well(monkeypatch, kind):
    for name in ("https_proxy", "no_proxy", "HTTP_PROXY", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    begin, again, _ = ENDLESS[kind]
    monkeypatch.setattr(endpoints, "MAX_BYTES", 2**20)
    async with Endless(begin, again) as server:
        monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{server.port}")
        endpoint = make_endpoint("http://judge.example/v1", use_proxy=True)
        with pytest.raises(BrokenReplyError, match="its body is longer than"):
            await endpoint.call("POST", "/x", b"", 60.0)
        await endpoint.close()


async def test_a_long_reply_within_the_bound_is_read_and_so_is_the_next(monkeypatch):
    monkeypatch.setattr(endpoints, "MAX_BYTES", 2**20)
    body = b"y" * (2**20 - 1000)
    long = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)
    async with Bytes([long], [long], [long]) as server:
        for _ in range(3):
            assert (await server.call(seconds=30.0))[2] == body
        assert server.connections == 1


async def test_a_cancelled_call_does_not_leave_its_reply_to_the_next_one():
    async with Bytes([b"", b"", b"", OK]) as server:
        task = asyncio.create_task(server.call(b"first"))
        await until(lambda: server.requests)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        server.script.append([OK.replace(b"ok", b"2!")])
        assert (await server.call())[2] == b"2!"
        assert server.connections == 2


async def test_a_connection_the_server_closed_meanwhile_is_not_used_again():
    async with Bytes([OK, None]) as server:
        await server.call()
        await until(lambda: server.hung_up)
        await settle()
        assert (await server.call())[2] == b"ok"
        assert server.connections == 2


async def test_a_connection_that_was_idle_for_long_is_not_used_again(monkeypatch):
    monkeypatch.setattr(endpoints, "IDLE_SECONDS", 0.02)
    async with Bytes() as server:
        await server.call()
        await asyncio.sleep(0.05)
        await server.call()
        assert server.connections == 2


async def test_a_second_reply_to_one_call_ends_the_connection():
    async with Bytes([OK + OK], [OK.replace(b"ok", b"2!")]) as server:
        assert (await server.call())[2] == b"ok"
        assert (await server.call())[2] == b"2!"
        assert server.connections == 2


async def test_a_second_reply_while_the_connection_is_idle_is_not_the_next_calls_answer():
    returned = asyncio.Event()
    async with Bytes([OK, returned, OK], [OK.replace(b"ok", b"2!")]) as server:
        assert (await server.call())[2] == b"ok"
        returned.set()
        await until(lambda: server.sent == 2)
        await settle()
        assert (await server.call())[2] == b"2!"
        assert server.connections == 2


async def test_nothing_is_asked_after_closing():
    async with Bytes() as server:
        await server.call()
        await server.endpoint.close()
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
        through = make_endpoint(url, use_proxy=True)
        status, _, body = await through.call("POST", "/x", b"{}", 2.0)
        assert (status, body) == (200, b"ok")
        assert proxy.requests[0][0].startswith(b"POST http://judge.example/v1/x HTTP/1.1")
        beside = [make_endpoint(url, use_proxy=False)]
        monkeypatch.setenv("no_proxy", "judge.example")
        beside.append(make_endpoint(url, use_proxy=True))
        for endpoint in beside:
            with pytest.raises(OSError, match=r"judge\.example"):
                await endpoint.call("POST", "/x", b"{}", 2.0)
        assert len(proxy.requests) == 1
        for endpoint in (through, *beside):
            await endpoint.close()


async def test_a_redirect_is_not_followed():
    moved = b"HTTP/1.1 307 Moved\r\nLocation: http://127.0.0.1:9/\r\nContent-Length: 0\r\n\r\n"
    async with Bytes([moved]) as server:
        status, _, _ = await server.call()
        assert status == 307
        assert len(server.requests) == 1


async def test_a_password_of_netrc_and_a_cookie_are_not_sent(monkeypatch, tmp_path):
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login ann password secret")
    monkeypatch.setenv("NETRC", str(netrc))
    cookie = OK.replace(b"Content-Type", b"Set-Cookie: a=b\r\nContent-Type")
    async with Bytes([cookie], [OK]) as server:
        for _ in range(2):
            await server.call()
        heads = b"".join(head.lower() for head, _ in server.requests)
        assert b"authorization" not in heads
        assert b"cookie" not in heads


@pytest.fixture
def self_signed(tmp_path):
    certificate, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    if shutil.which("openssl") is None:
        pytest.skip("needs openssl")
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", "/CN=localhost",
         "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", key, "-out", certificate],
        check=True, capture_output=True,
    )  # fmt: skip
    return certificate, key


async def test_a_certificate_that_nobody_vouches_for_is_refused(self_signed):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*self_signed)
    seen = []

    async def answer(reader, writer):
        seen.append(await reader.read(100))
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0, ssl=context)
    port = server.sockets[0].getsockname()[1]
    endpoint = make_endpoint(f"https://127.0.0.1:{port}/v1", use_proxy=False)
    with pytest.raises(OSError, match="certificate"):
        await endpoint.call("POST", "/x", b"{}", 5.0)
    assert seen == []
    await endpoint.close()
    server.close()
