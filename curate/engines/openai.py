"""Any server that speaks OpenAI's `/chat/completions`.

A bounded number of calls in flight to each address, a deadline for each call. Retrying is not done here
(`engines.asking` does it for every engine), but for one thing: where several addresses serve the model
and one is gone, the next is asked at once. The key is read from its environment variable, lives in the
prebuilt headers alone, and is taken out of whatever a server says.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from typing import Any

import orjson

from curate.engines.base import Capability, Completion, EngineIdentity, Request
from curate.engines.config import OpenAIConfig
from curate.engines.http import BrokenReplyError
from curate.engines.openai_bodies import (
    CONTINUING,
    Dialect,
    read_message,
    read_retry_after,
    to_body,
)
from curate.engines.openai_targets import Target, Targets, is_down
from curate.engines.openai_tokens import TokenReads
from curate.engines.prompt_length import PromptRoom
from curate.engines.tokens import PromptTokens
from curate.engines.wire import failed, read_chat, read_error
from curate.errors import EngineError

TOKENIZE = "/tokenize"
"""Of vLLM, SGLang and llama.cpp, beside the API and not below its /v1."""


class OpenAIEngine:
    """A server that has answered. Made by `openai_probe.open_openai`.

    Attributes:
        dialect: how it is spoken to.
        known: what it was seen to do.
        room: refuses what does not fit into the context; None where that is not known.
        facts: what was found out when it was opened, for a reader: name to text or yes/no.
        warnings: what a user should know of it before a run.
    """

    def __init__(
        self,
        config: OpenAIConfig,
        targets: Sequence[Target],
        key: str | None,
        dialect: Dialect,
        *,
        detail: tuple[tuple[str, str], ...] = (),
        context: int | None = None,
        prompts: PromptTokens | None = None,
    ) -> None:
        self._config = config
        self._targets = Targets(targets)
        self._key = key
        self._detail = detail
        self._context = context
        self._prompts = prompts
        self._reads: TokenReads | None = None
        context = self.context_tokens
        self.room = PromptRoom(context, prompts) if context is not None else None
        self.dialect = dialect
        self.known: frozenset[Capability] = frozenset()
        self.facts: dict[str, str | bool] = {}
        self.served = ""
        self._served_at = ""
        self.warnings: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"OpenAIEngine({self._config.model!r}, {self._config.base_urls[0]!r})"

    @property
    def identity(self) -> EngineIdentity:
        """The model, what else changes replies, and the first address unless a revision was given."""
        config = self._config
        detail = dict(self._detail)
        if not config.revision:
            # The first stands for all: they serve the same, and one more must not change the identity.
            detail["base_url"] = config.base_urls[0]
        for name in ("extra_body", "chat_template_kwargs"):
            value = getattr(config, name)
            if value:
                detail[name] = orjson.dumps(value, option=orjson.OPT_SORT_KEYS).decode()
        if self.dialect.has_prefill:
            detail["prefill"] = "on"
        if self._reads is not None:
            detail |= dict(self._reads.identity_detail)
        return EngineIdentity(
            "openai", config.model, config.revision or "", detail=tuple(detail.items())
        )

    @property
    def capabilities(self) -> frozenset[Capability]:
        """What the server was seen to do when the engine was opened."""
        return self.known

    @property
    def open_dialogues(self) -> int:
        """As many as calls may be in flight, at all addresses together."""
        return self._config.in_flight * len(self._targets)

    @property
    def context_tokens(self) -> int | None:
        """From the recipe, else from the server, else unknown."""
        return self._config.context or self._context

    @property
    def prompts(self) -> PromptTokens | None:
        """Renders and tokenises as the server does, where the recipe names its `tokenizer`."""
        return self._prompts

    def read_by_tokens(self, reads: TokenReads | None) -> None:
        """Send label reads as token ids, a list of prompts a call; None sends them as chats."""
        self._reads = reads

    async def complete(self, requests: Sequence[Request]) -> list[Completion]:
        """Answer all at once, as far as calls in flight are allowed; completions in order.

        Label reads go in lists, a call each, where the server takes prompts as token ids.

        Raises:
            EngineError: a reply names another model than the first one did.
        """
        if self._reads is not None:
            return await self._reads.complete(requests, self._exchange, self._chat, self.room)
        if len(requests) == 1:
            return [await self._chat(requests[0])]
        return list(await asyncio.gather(*map(self._chat, requests)))

    def split(self, requests: Sequence[Request]) -> list[list[int]]:
        """Which requests go in one HTTP call; see `base.Splitting`."""
        if self._reads is not None:
            return self._reads.split(requests)
        return [[index] for index in range(len(requests))]

    async def close(self) -> None:
        """Close the connections."""
        for target in self._targets:
            await target.pool.close()

    async def count_tokens(self, text: str, affinity: str) -> int | Completion:
        """How many tokens the server makes of a text, by its `/tokenize`; or a fault."""
        field = "content" if self.dialect.flavour == "llamacpp" else "prompt"
        reply = await self._exchange(TOKENIZE, {"model": self._config.model, field: text}, affinity)
        if isinstance(reply, Completion):
            return reply
        tokens = reply.get("tokens") if isinstance(reply, dict) else None
        if not isinstance(tokens, list):
            return failed("server", f"{TOKENIZE} gave no list of tokens")
        return len(tokens)

    async def _chat(self, request: Request) -> Completion:
        if self.room is not None and (refusal := await self.room.refuse(request)) is not None:
            return refusal
        body = to_body(request, self._config, self.dialect)
        reply = await self._exchange("/chat/completions", body, request.affinity)
        return self.read_chat(reply, request)

    def read_chat(self, reply: Any, request: Request) -> Completion:
        """A completion from what `ask_target` gave for a chat."""
        if isinstance(reply, Completion):
            return reply
        echoed = ""
        if request.prefill and request.schema is None and self.dialect.has_prefill:
            echoed = "" if self.dialect.flavour in CONTINUING else request.prefill
        return read_chat(reply, request, echoed=echoed)

    async def _exchange(self, path: str, body: dict[str, Any], affinity: str) -> Any:
        """The parsed reply of the first address that is there, or a completion that is a fault."""
        data = orjson.dumps(body)
        for target in self._targets.order(affinity):
            reply = await self.ask_target(target, path, data)
            if not (isinstance(reply, Completion) and is_down(reply)):
                break
        return reply

    async def ask_target(self, target: Target, path: str, data: bytes) -> Any:
        """One call to one address: the parsed reply, or a completion that is a fault."""
        was_up = target.is_up
        await target.gate.enter()
        try:
            if was_up and not target.is_up and len(self._targets) > 1:
                # It went while this call waited for its place.
                return failed("connection", f"{target.url} does not answer")
            reply = await self._post(target, path, data)
        finally:
            target.gate.leave()
        target.note(reply if isinstance(reply, Completion) else _FINE)
        return reply

    async def _post(self, target: Target, path: str, data: bytes) -> Any:
        root = target.path.removesuffix("/v1") if path == TOKENIZE else target.path
        try:
            reply = await target.pool.call("POST", root + path, data, self._config.timeout)
        except TimeoutError:
            return failed("timeout", f"no whole reply within {self._config.timeout:g} s")
        except BrokenReplyError as error:
            return failed("server", self.scrub(f"the reply was cut off: {error}"))
        except OSError as error:
            return failed("connection", self.scrub(f"{type(error).__name__}: {error}"))
        if reply.status != 200:
            message, code = read_message(reply.body)
            after = read_retry_after(reply.headers)
            return read_error(reply.status, self.scrub(message), retry_after=after, code=code)
        try:
            value = orjson.loads(reply.body)
        except ValueError as error:
            return failed("server", f"the reply is not JSON ({len(reply.body)} bytes): {error}")
        if isinstance(value, dict) and value.get("error") and not value.get("choices"):
            # Gateways wrap the failure of the server behind them in a 200.
            message, code = read_message(reply.body)
            status = int(code) if code.isdigit() else 502
            return read_error(status, self.scrub(message), code=code)
        self._note_model(value, target)
        return value

    def _note_model(self, reply: Any, target: Target) -> None:
        """Hold the name of the model that replied against the name that the first reply had."""
        name = reply.get("model") if isinstance(reply, dict) else None
        if not isinstance(name, str) or not name or name == self.served:
            return
        if self.served:
            raise EngineError(
                f"{target.url} replies as another model than before; scores of two models do not compare",
                got=name,
                expected=f"{self.served}, as {self._served_at} replied at first",
                fix="serve one model, under one name at every address, and run again; what was received "
                "before is kept",
            )
        self.served, self._served_at = name, target.url

    def scrub(self, text: str) -> str:
        """The text without the key: some servers quote it."""
        return text.replace(self._key, "[key]") if self._key else text


_FINE = Completion()


def read_key(config: OpenAIConfig) -> str | None:
    """The key from the variable that the config names, None when it names none."""
    return os.environ.get(config.api_key_env) if config.api_key_env else None
