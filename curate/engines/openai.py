"""Any server that speaks OpenAI's `/chat/completions`.

One HTTP session, a bounded number of calls in flight, a total deadline for each. Retrying is not done
here (`engines.asking` does it for every engine). The key is read from its environment variable, lives
in the session's headers alone, and is taken out of whatever a server says.
"""

from __future__ import annotations

import asyncio
import email.utils
import os
import time
from collections import deque
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import aiohttp
import orjson

from curate.engines.base import Capability, Completion, EngineIdentity, Request
from curate.engines.config import OpenAIConfig
from curate.engines.structured import strict
from curate.engines.wire import chat_body, failed, read_chat, read_error

CONTINUING = ("vllm", "sglang")
"""Servers that continue the last message when told to, and do not repeat it."""
RAW_LOGPROBS = ("vllm", "llamacpp")
"""Servers known to give log-probabilities from before temperature."""


@dataclass(frozen=True, slots=True)
class Dialect:
    """How this server is spoken to; found out once, when the engine is opened.

    Attributes:
        flavour: `vllm`, `sglang`, `llamacpp`, or what else /models says; empty when unknown.
        has_prefill: whether a begun reply is sent.
        limit_field: the name of the reply's token limit.
    """

    flavour: str = ""
    has_prefill: bool = False
    limit_field: str = "max_tokens"


class OpenAIEngine:
    """A server that has answered. Made by `openai_probe.open_openai`."""

    def __init__(
        self,
        config: OpenAIConfig,
        session: aiohttp.ClientSession,
        key: str | None,
        dialect: Dialect,
        *,
        detail: tuple[tuple[str, str], ...] = (),
        context: int | None = None,
    ) -> None:
        self._config = config
        self._session = session
        self._key = key
        self._url = f"{config.base_url}/chat/completions"
        self._gate = Gate(config.in_flight)
        self._detail = detail
        self._context = context
        self.dialect = dialect
        self.known: frozenset[Capability] = frozenset()

    def __repr__(self) -> str:
        return f"OpenAIEngine({self._config.model!r}, {self._config.base_url!r})"

    @property
    def identity(self) -> EngineIdentity:
        """The model, what else changes replies, and the address unless a revision was given."""
        config = self._config
        detail = list(self._detail)
        if not config.revision:
            detail.append(("base_url", config.base_url))
        for name in ("extra_body", "chat_template_kwargs"):
            value = getattr(config, name)
            if value:
                text = orjson.dumps(value, option=orjson.OPT_SORT_KEYS).decode()
                detail.append((name, text))
        if self.dialect.has_prefill:
            detail.append(("prefill", "on"))
        return EngineIdentity("openai", config.model, config.revision or "", detail=tuple(detail))

    @property
    def capabilities(self) -> frozenset[Capability]:
        """What the server was seen to do when the engine was opened."""
        return self.known

    @property
    def open_dialogues(self) -> int:
        """As many as calls may be in flight."""
        return self._config.in_flight

    @property
    def context_tokens(self) -> int | None:
        """From the recipe, else from the server, else unknown."""
        return self._config.context or self._context

    async def complete(self, requests: Sequence[Request]) -> list[Completion]:
        """Answer all at once, as far as calls in flight are allowed; completions in order."""
        return list(await asyncio.gather(*(self._answer(request) for request in requests)))

    async def close(self) -> None:
        """Close the connections."""
        await self._session.close()

    async def _answer(self, request: Request) -> Completion:
        body = to_body(request, self._config, self.dialect)
        async with self._gate.hold():
            completion = await self._post(request, body)
            fault = completion.fault
            if fault is None:
                self._gate.speed_up()
            elif fault.kind == "rate_limited" or "HTTP 503" in fault.detail:
                self._gate.slow_down()
        return completion

    async def _post(self, request: Request, body: dict[str, Any]) -> Completion:
        try:
            async with self._session.post(
                self._url,
                data=orjson.dumps(body),
                headers={"Content-Type": "application/json"},
                allow_redirects=False,
            ) as response:
                status, headers, data = response.status, response.headers, await response.read()
        except TimeoutError:
            return failed("timeout", f"no whole reply within {self._config.timeout:g} s")
        except aiohttp.ClientPayloadError as error:
            return failed("server", self.scrub(f"the reply was cut off: {error}"))
        except (aiohttp.ClientError, OSError) as error:
            return failed("connection", self.scrub(f"{type(error).__name__}: {error}"))
        if status != 200:
            message, code = read_message(data)
            return read_error(
                status, self.scrub(message), retry_after=read_retry_after(headers), code=code
            )
        try:
            reply = orjson.loads(data)
        except ValueError as error:
            return failed("server", f"the reply is not JSON ({len(data)} bytes): {error}")
        if isinstance(reply, dict) and reply.get("error") and not reply.get("choices"):
            # Gateways wrap the failure of the server behind them in a 200.
            message, code = read_message(data)
            return read_error(int(code) if code.isdigit() else 502, self.scrub(message), code=code)
        echoes = self.dialect.has_prefill and self.dialect.flavour not in CONTINUING
        echoed = request.prefill if echoes and request.schema is None else ""
        return read_chat(reply, request, echoed=echoed)

    def scrub(self, text: str) -> str:
        """The text without the key: some servers quote it."""
        return text.replace(self._key, "[key]") if self._key else text


def to_body(request: Request, config: OpenAIConfig, dialect: Dialect) -> dict[str, Any]:
    """A request in this server's dialect."""
    body = {"model": config.model, **chat_body(request)}
    if dialect.limit_field != "max_tokens":
        body[dialect.limit_field] = body.pop("max_tokens")
    if request.temperature > 0 or request.sample:
        body["seed"] = request.sample
    if dialect.flavour == "llamacpp":
        # Its own defaults would narrow what is sampled beyond what the request says.
        body |= {"top_k": 0, "min_p": 0.0}
    if config.chat_template_kwargs:
        body["chat_template_kwargs"] = config.chat_template_kwargs
    if request.labels:
        body |= {"logprobs": True, "top_logprobs": config.top_logprobs}
        if request.max_tokens == 1 and dialect.flavour not in RAW_LOGPROBS:
            # Only the distribution is read; at 1 it is the model's own wherever it is taken.
            body["temperature"] = 1.0
            body.pop("top_p", None)
            body.pop("seed", None)
    if request.schema is not None:
        body["response_format"] = {
            "type": "json_schema",
            "json_schema": {"name": "reply", "strict": True, "schema": strict(request.schema)},
        }
    elif request.prefill and dialect.has_prefill:
        body["messages"].append({"role": "assistant", "content": request.prefill})
        if dialect.flavour in CONTINUING:
            body |= {"add_generation_prompt": False, "continue_final_message": True}
    body |= config.extra_body
    return {name: value for name, value in body.items() if value is not None}


def read_message(data: bytes) -> tuple[str, str]:
    """Message and code of an error body, in any of the forms that servers use."""
    try:
        body = orjson.loads(data)
    except ValueError:
        return data[:300].decode(errors="replace"), ""
    if isinstance(body, Mapping):
        error = body.get("error") or body
        if isinstance(error, str):
            return error, ""
        if isinstance(error, Mapping):
            message = error.get("message") or error.get("detail") or error
            code = " ".join(str(error[name]) for name in ("code", "type") if error.get(name))
            return str(message), str(error.get("code") or code)
    return str(body)[:300], ""


def read_retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds to wait, from `retry-after-ms` or `Retry-After` (seconds or a date)."""
    try:
        if "retry-after-ms" in headers:
            return max(0.0, float(headers["retry-after-ms"]) / 1000)
        value = headers.get("Retry-After")
        if value is None:
            return None
        if value.strip().replace(".", "", 1).isdigit():
            return float(value)
        return max(0.0, email.utils.parsedate_to_datetime(value).timestamp() - time.time())
    except (ValueError, TypeError):
        return None


class Gate:
    """How many calls may be open: halved when the server says it is too much, then grown slowly.

    A server that never complains is always asked at the full width.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._open = 0
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._slowed = 0.0
        self.limit = float(most)

    @asynccontextmanager
    async def hold(self) -> AsyncIterator[None]:
        """A place among the open calls, in order of asking."""
        await self._enter()
        try:
            yield
        finally:
            self._open -= 1
            self._admit()

    async def _enter(self) -> None:
        place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(place)
        self._admit()
        try:
            await place
        except asyncio.CancelledError:
            if place.done() and not place.cancelled():
                self._open -= 1  # admitted in the very moment of being cancelled
                self._admit()
            raise

    def _admit(self) -> None:
        while self._waiting and self._open < int(self.limit):
            place = self._waiting.popleft()
            if not place.done():
                self._open += 1
                place.set_result(None)

    def slow_down(self) -> None:
        """Halve, at most once a second: one burst of refusals is one piece of news."""
        now = time.monotonic()
        if now - self._slowed >= 1.0:
            self._slowed = now
            self.limit = max(1.0, self.limit / 2)

    def speed_up(self) -> None:
        """One more call for each round of successes."""
        self.limit = min(float(self._most), self.limit + 1 / self.limit)
        self._admit()


def read_key(config: OpenAIConfig) -> str | None:
    """The key from the variable that the config names, None when it names none."""
    return os.environ.get(config.api_key_env) if config.api_key_env else None
