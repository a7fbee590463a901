"""A lean HTTP/1.1 client for one server: what `aiohttp` does for us, at a tenth of its CPU time.

A judge server on the same machine or rack is asked thousands of small questions a second, and there a
general client costs more than all else this program does. This one keeps connections open, sends a
prebuilt head and a body in one write, and lets `httptools` (llhttp, the parser of Node.js) read the
reply; redirects, cookies, compression and pipelining are left out on purpose. Where the environment
names a proxy for the server, `proxied.ProxiedPool` goes through aiohttp, which knows how to talk to proxies.

A call ends in a `Reply`, or in an `OSError` (no connection, or lost before the reply began),
`TimeoutError` (no whole reply in time) or `BrokenReplyError` (what came is no whole HTTP reply).
"""

from __future__ import annotations

import asyncio
import ssl
import time
import urllib.request
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol
from urllib.parse import urlsplit

import httptools

from curate.errors import missing_extra

CONNECT_SECONDS = 10.0
"""A host that takes longer to accept a connection is taken for gone."""
IDLE_SECONDS = 4.0
"""An idle connection is used again for so long; common servers close theirs after 5 seconds."""
MOST_BYTES = 32 * 2**20
"""Of a reply's body. A long reply with twenty log-probabilities a token takes a third of it."""
MOST_HEAD_BYTES = 256 * 2**10
"""Of a reply's headers, those of `100 Continue` and the like before it included."""
_FRAMING = frozenset({b"content-length", b"transfer-encoding"})
"""Headers that say where a body ends; without them it ends with the connection."""


class BrokenReplyError(Exception):
    """The server began a reply and did not end it in any bounds, or sent something that is no HTTP."""


def too_long(part: str) -> BrokenReplyError:
    """The error for a reply that goes on and on."""
    most = MOST_BYTES if part == "body" else MOST_HEAD_BYTES
    return BrokenReplyError(f"its {part} is longer than {most // 2**10:,} KiB")


class Reply(NamedTuple):
    """Status, headers as they came, and the whole body."""

    status: int
    pairs: Sequence[tuple[bytes, bytes]]
    body: bytes

    @property
    def headers(self) -> dict[str, str]:
        """By name in lower case; of headers that came twice the last one."""
        return {
            name.decode("latin-1").lower(): value.decode("latin-1") for name, value in self.pairs
        }


class HttpPool(Protocol):
    """Connections to one server. As many are opened as there are calls at once."""

    async def call(self, method: str, path: str, body: bytes, seconds: float) -> Reply:
        """One call, given up after some seconds; `path` is taken from the server's root."""
        ...

    async def close(self) -> None:
        """Close all connections. Calling it twice is harmless."""
        ...


def open_pool(url: str, headers: Mapping[str, str], *, use_proxy: bool) -> HttpPool:
    """A pool for the server of a URL; through a proxy where the environment names one and it may be used."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    proxies = urllib.request.getproxies() if use_proxy else {}
    if proxies.get(parts.scheme) and not urllib.request.proxy_bypass(host):
        try:
            from curate.engines.proxied import ProxiedPool
        except ModuleNotFoundError as error:
            raise missing_extra("aiohttp", "openai") from error
        return ProxiedPool(f"{parts.scheme}://{parts.netloc}", headers)
    return DirectPool(parts.scheme, host, parts.port, parts.netloc, headers)


class DirectPool:
    """Connections straight to the server."""

    def __init__(
        self, scheme: str, host: str, port: int | None, netloc: str, headers: Mapping[str, str]
    ) -> None:
        self._host = host
        self._port = port or (443 if scheme == "https" else 80)
        self._tls = ssl.create_default_context() if scheme == "https" else None
        lines = {"Host": netloc, **headers}
        self._headers = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
        self._heads: dict[tuple[str, str], bytes] = {}
        # The last one used is the first to be used again, so that those not needed any more grow old.
        self._idle: deque[_Connection] = deque()
        self._closed = False

    async def call(self, method: str, path: str, body: bytes, seconds: float) -> Reply:
        """See `HttpPool.call`."""
        head = self._heads.get((method, path)) or self._make_head(method, path)
        payload = b"%b%d\r\n\r\n%b" % (head, len(body), body)
        connection = self._take_idle()
        if connection is None:
            began = time.monotonic()
            connection = await self._connect(min(seconds, CONNECT_SECONDS))
            seconds -= time.monotonic() - began
        timer = asyncio.get_running_loop().call_later(seconds, connection.expire)
        try:
            reply = await connection.ask(payload)
        except BaseException:
            # Whatever was not read to its end must not be taken for the reply to the next call.
            connection.abort()
            raise
        finally:
            timer.cancel()
        if connection.is_reusable and not self._closed:
            self._idle.append(connection)
        else:
            connection.abort()
        return reply

    async def close(self) -> None:
        """See `HttpPool.close`."""
        self._closed = True
        while self._idle:
            self._idle.pop().abort()
        await asyncio.sleep(0)  # lets the transports go

    def _make_head(self, method: str, path: str) -> bytes:
        head = f"{method} {path} HTTP/1.1\r\n{self._headers}Content-Length: ".encode("latin-1")
        self._heads[method, path] = head
        return head

    def _take_idle(self) -> _Connection | None:
        oldest = time.monotonic() - IDLE_SECONDS
        while self._idle and (self._idle[0].since < oldest or self._idle[0].is_lost):
            self._idle.popleft().abort()
        while self._idle:
            connection = self._idle.pop()
            if not connection.is_lost:
                return connection
        return None

    async def _connect(self, seconds: float) -> _Connection:
        if self._closed:
            raise ConnectionError("the engine was asked after it had been closed")
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(seconds):
                _, connection = await loop.create_connection(
                    _Connection, self._host, self._port, ssl=self._tls
                )
        except TimeoutError as error:
            raise ConnectionError(f"no connection within {seconds:g} s") from error
        return connection


class _Connection(asyncio.Protocol):
    """One connection with at most one call on it."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._transport: Any = None
        self._waiter: asyncio.Future[Reply] | None = None
        self._parser = httptools.HttpResponseParser(self)
        self._headers: list[tuple[bytes, bytes]] = []
        self._parts: list[bytes] = []
        self._has_begun = self._has_headers = False
        self._received = 0
        self.is_lost = False
        self.is_reusable = False
        self.since = 0.0

    def ask(self, payload: bytes) -> asyncio.Future[Reply]:
        """Send a request; its whole reply is to come."""
        if self.is_lost:
            raise ConnectionResetError("the server closed the connection")
        self.is_reusable = False
        self._waiter = waiter = self._loop.create_future()
        self._transport.write(payload)
        return waiter

    def abort(self) -> None:
        """Close at once, whatever is in the buffers."""
        self.is_lost = True
        if self._transport is not None:
            self._transport.abort()

    def expire(self) -> None:
        """End the call: its time is up."""
        self._fail(TimeoutError())

    def _fail(self, error: Exception) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_exception(error)

    # -- asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._has_begun = True
        self._received += len(data)
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self._fail(BrokenReplyError(f"it is not HTTP: {error}"))
            self.abort()
        # Counted as it comes over the wire, so that no framing, trailer or header gets round it.
        if self._received > (MOST_BYTES if self._has_headers else MOST_HEAD_BYTES):
            self._fail(too_long("body" if self._has_headers else "head"))
            self.abort()

    def connection_lost(self, error: Exception | None) -> None:
        self.is_lost = True
        if self._waiter is None or self._waiter.done():
            return
        if self._has_headers and error is None and not self._has_length():
            self._finish()  # a body without a length ends with the connection
        elif self._has_begun:
            size = sum(map(len, self._parts))
            self._fail(BrokenReplyError(f"the connection ended after {size} bytes of the body"))
        else:
            self._fail(error or ConnectionResetError("the server hung up without a reply"))

    def _has_length(self) -> bool:
        return any(name.lower() in _FRAMING for name, _ in self._headers)

    # -- httptools

    def on_message_begin(self) -> None:
        if self._waiter is None:
            self.abort()  # a reply nobody asked for: what comes after it could not be trusted

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers.append((name, value))

    def on_headers_complete(self) -> None:
        self._has_headers = True

    def on_body(self, data: bytes) -> None:
        self._parts.append(data)

    def on_message_complete(self) -> None:
        if 100 <= self._parser.get_status_code() < 200:
            self._headers, self._parts, self._has_headers = [], [], False  # the real one follows
            return
        self.is_reusable = bool(self._parser.should_keep_alive())
        self._finish()

    def _finish(self) -> None:
        waiter, self._waiter = self._waiter, None
        reply = Reply(self._parser.get_status_code(), self._headers, b"".join(self._parts))
        self._headers, self._parts, self._has_begun, self._has_headers = [], [], False, False
        self._received = 0
        self.since = time.monotonic()
        if waiter is not None and not waiter.done():
            waiter.set_result(reply)
