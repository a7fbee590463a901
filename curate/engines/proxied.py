"""HTTP through the proxy that the environment names, by aiohttp.

A module of its own: aiohttp takes longer to import than the rest of the client together, and few need it.
"""

from __future__ import annotations

from collections.abc import Mapping

import aiohttp

from curate.engines import http
from curate.engines.http import BrokenReplyError, Reply


class ProxiedPool:
    """Connections through the proxy that the environment names, by aiohttp."""

    def __init__(self, root: str, headers: Mapping[str, str]) -> None:
        self._root = root
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0), headers=dict(headers), trust_env=True
        )

    async def call(self, method: str, path: str, body: bytes, seconds: float) -> Reply:
        """See `HttpPool.call`."""
        try:
            async with self._session.request(
                method,
                f"{self._root}{path}",
                data=body or None,
                timeout=aiohttp.ClientTimeout(total=seconds),
                allow_redirects=False,
            ) as response:
                parts, size = [], 0
                async for part in response.content.iter_any():
                    parts.append(part)
                    size += len(part)
                    if size > http.MOST_BYTES:
                        raise http.too_long("body")
                return Reply(response.status, response.raw_headers, b"".join(parts))
        except aiohttp.ClientPayloadError as error:
            raise BrokenReplyError(f"the connection ended within the body: {error}") from error
        except aiohttp.ClientError as error:
            if isinstance(error, OSError):
                raise
            raise ConnectionError(f"{type(error).__name__}: {error}") from error

    async def close(self) -> None:
        """See `HttpPool.close`."""
        await self._session.close()
