"""The servers of one engine: HTTP to one or several addresses that serve the same model.

All requests about a dialogue go to one address, whose prefix cache then holds it. Rendezvous hashing (Thaler
and Ravishankar 1998) chooses it: each address has a rank for each dialogue, so the dialogues of an address
that fails are spread evenly over the others, no other dialogue moves, and they return when it does.
"""

from __future__ import annotations

import hashlib
import itertools
import time
import urllib.request
import weakref
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any
from urllib.parse import urlsplit

import aiohttp
from aiohttp.connector import Connection
from yarl import URL

from curate.engines.base import Completion
from curate.engines.limiter import Limiter

FIRST_PAUSE, LONGEST_PAUSE = 2.0, 60.0
"""Seconds for which an address that failed is not used; doubled each time it fails again."""
CONNECT_SECONDS = 10.0
"""A host that takes longer to accept a connection counts as gone."""
IDLE_SECONDS = 4.0
"""Seconds for which an idle connection is used again; common servers close theirs after 5."""
SERVER_PATHS = frozenset({"/tokenize", "/props"})
"""Paths of vLLM, SGLang and llama.cpp beside the API, not below its /v1."""
MAX_BYTES = 32 * 2**20
"""Largest body of a reply. A long reply with twenty log-probabilities a token has a third of it."""


class BrokenReplyError(Exception):
    """A reply that began and did not end within bounds, or that is not HTTP."""


class _CleanConnections(aiohttp.TCPConnector):
    """A connector that drops idle connections on which the server has sent data.

    A reply that is sent twice, the second time on an idle connection, would be read as the reply to the next call.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._used: weakref.WeakSet[Any] = weakref.WeakSet()

    async def connect(self, *arguments: Any, **options: Any) -> Connection:
        """Return an idle connection without unread data, or a new one."""
        while True:
            connection = await super().connect(*arguments, **options)
            protocol = connection.protocol
            if protocol is None:
                return connection
            # A new connection is returned as it is: early data on it is read as a reply and quoted in the error.
            if protocol not in self._used or not protocol.should_close:
                self._used.add(protocol)
                return connection
            connection.close()


class Endpoint:
    """One address: its connections, its limiter and its state.

    Args:
        url: root of the API, without a slash at the end.
        use_proxy: go through a proxy where the environment names one for the address.
    """

    def __init__(
        self, url: str, headers: Mapping[str, str], limiter: Limiter, *, use_proxy: bool
    ) -> None:
        self.url = url
        self.limiter = limiter
        parts = urlsplit(url)
        self._root = f"{parts.scheme}://{parts.netloc}{parts.path}"
        proxies = urllib.request.getproxies() if use_proxy else {}
        self._session = aiohttp.ClientSession(
            connector=_CleanConnections(limit=0, keepalive_timeout=IDLE_SECONDS),
            cookie_jar=aiohttp.DummyCookieJar(),
            headers=headers,
            skip_auto_headers=("Accept-Encoding", "User-Agent"),
            # Only where there is a proxy: aiohttp reads the environment again for each call.
            trust_env=parts.scheme in proxies
            and not urllib.request.proxy_bypass(parts.hostname or ""),
        )
        self._pause = 0.0
        self._down_until = 0.0

    @property
    def is_up(self) -> bool:
        """False while the address is not used because it failed."""
        return not self._down_until or time.monotonic() >= self._down_until

    async def call(
        self, method: str, path: str, body: bytes | None, seconds: float
    ) -> tuple[int, Mapping[str, str], bytes]:
        """Make one call; return status, headers and body of the reply. Redirects are not followed.

        Args:
            path: below the root; for those of SERVER_PATHS, below the root without its /v1.
            seconds: time limit of the whole call.

        Raises:
            TimeoutError: the reply was not complete in time.
            BrokenReplyError: the reply is incomplete, too long, or not HTTP.
            OSError: there was no connection, or it was lost before the reply began.
        """
        if self._session.closed:
            raise ConnectionError("the engine was called after it was closed")
        root = self._root.removesuffix("/v1") if path in SERVER_PATHS else self._root
        try:
            async with self._session.request(
                method,
                _url(root + path),
                data=body,
                timeout=_timeout(seconds),
                allow_redirects=False,
            ) as response:
                parts, size = [], 0
                async for part in response.content.iter_any():
                    parts.append(part)
                    size += len(part)
                    if size > MAX_BYTES:
                        raise BrokenReplyError(
                            f"its body is longer than {MAX_BYTES // 2**10:,} KiB"
                        )
                return response.status, response.headers, b"".join(parts)
        except aiohttp.ConnectionTimeoutError as error:
            raise ConnectionError(f"no connection within {CONNECT_SECONDS:g} s") from error
        except aiohttp.ClientPayloadError as error:
            raise BrokenReplyError(f"the connection ended within the body: {error}") from error
        except aiohttp.ClientResponseError as error:
            raise BrokenReplyError(f"it is not HTTP: {error.message}") from error
        except aiohttp.ServerDisconnectedError as error:
            if isinstance(error.message, str):
                raise ConnectionError("the server hung up without a reply") from error
            raise BrokenReplyError("the connection ended within the head") from error
        except aiohttp.ClientError as error:
            if isinstance(error, OSError):
                raise
            raise ConnectionError(f"{type(error).__name__}: {error}") from error

    async def close(self) -> None:
        """Close all connections. Calling it twice is harmless."""
        await self._session.close()

    def note(self, completion: Completion) -> None:
        """Adapt to a call's outcome: the number of open calls, and whether the address is used."""
        fault = completion.fault
        if fault is None:
            self._pause = self._down_until = 0.0
            self.limiter.speed_up()
            return
        if fault.kind == "rate_limited" or fault.status == 503:
            self.limiter.slow_down()
        # Calls that fail together count as one failure.
        if self.is_up and (is_down(completion) or fault.kind == "timeout"):
            self._pause = min(LONGEST_PAUSE, self._pause * 2 or FIRST_PAUSE)
            self._down_until = time.monotonic() + self._pause


def by_preference(endpoints: Sequence[Endpoint], affinity: str) -> Sequence[Endpoint]:
    """List the endpoints to ask about a dialogue, best first: those that are up by rank, then the others.

    Requests without an affinity take turns.
    """
    if len(endpoints) == 1:
        return endpoints
    key = affinity or str(next(_TURNS))
    ranked = [endpoints[index] for index in _rank(key, tuple(one.url for one in endpoints))]
    return sorted(ranked, key=lambda endpoint: not endpoint.is_up)


_TURNS = itertools.count()


def is_down(completion: Completion) -> bool:
    """Tell whether a fault means that the server is gone, so that another address can be used at once."""
    fault = completion.fault
    if fault is None:
        return False
    return fault.kind == "connection" or (fault.kind == "server" and fault.status in (502, 503))


@lru_cache(maxsize=256)
def _url(text: str) -> URL:
    return URL(text, encoded=True)


@lru_cache(maxsize=16)
def _timeout(seconds: float) -> aiohttp.ClientTimeout:
    return aiohttp.ClientTimeout(total=seconds, sock_connect=CONNECT_SECONDS)


@lru_cache(maxsize=65536)
def _rank(key: str, urls: tuple[str, ...]) -> tuple[int, ...]:
    def weight(index: int) -> bytes:
        return hashlib.blake2b(f"{key}\0{urls[index]}".encode(), digest_size=8).digest()

    return tuple(sorted(range(len(urls)), key=weight))
