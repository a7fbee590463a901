"""Any server that speaks OpenAI's `/chat/completions`.

A bounded number of calls in flight to each address, a deadline for each call. Retrying is not done here
(`engines.client` does it for every engine), but for one thing: where several addresses serve the model
and one is gone, the next is asked at once. The key is read from its environment variable, lives in the
prebuilt headers alone, and is taken out of whatever a server says.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

import orjson

from curate.engines.base import Capability, Completion, EngineIdentity, Request, sorted_json
from curate.engines.chat_completions import failed, read_chat, read_error
from curate.engines.config import OpenAIConfig
from curate.engines.endpoints import BrokenReplyError, Endpoint, by_preference, is_down
from curate.engines.openai_requests import (
    CONTINUING,
    Dialect,
    group_requests,
    is_label_read,
    read_error_body,
    read_list,
    read_retry_after,
    to_body,
    to_list_body,
)
from curate.engines.prompt_length import PromptRoom
from curate.engines.tokens import PromptRefused, PromptTokens
from curate.errors import EngineError


class OpenAIEngine:
    """A server that has answered. Made by `openai_probe.open_openai`.

    Attributes:
        dialect: the form of its requests.
        capabilities: those that it showed when it was opened.
        context_tokens: from the recipe, else from the server, else unknown.
        prompts: renders and tokenises as the server does, where the recipe names its `tokenizer`.
        room: refuses prompts that do not fit into the context; None where that is not known.
        facts: findings from when it was opened, for a reader: name to text or yes/no.
        warnings: sentences that a user should read before a run.
        served: name of the model that its replies give; empty until one does.
    """

    def __init__(
        self,
        config: OpenAIConfig,
        endpoints: Sequence[Endpoint],
        key: str | None,
        dialect: Dialect,
        *,
        detail: tuple[tuple[str, str], ...] = (),
        context: int | None = None,
        prompts: PromptTokens | None = None,
    ) -> None:
        self.config = config
        self._endpoints = tuple(endpoints)
        self._key = key
        self._detail = detail
        self.context_tokens = config.context or context
        self.prompts = prompts
        self.room = PromptRoom(self.context_tokens, prompts) if self.context_tokens else None
        self.dialect = dialect
        self.capabilities: frozenset[Capability] = frozenset()
        self.facts: dict[str, str | bool] = {}
        self.served = ""
        self._served_at = ""
        self.warnings: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"OpenAIEngine({self.config.model!r}, {self.config.base_urls[0]!r})"

    @property
    def identity(self) -> EngineIdentity:
        """Return the model, options that change replies, and the first address unless a revision is set."""
        config = self.config
        detail = dict(self._detail)
        if not config.revision:
            # Only the first: all serve the same, and one more must not change the identity.
            detail["base_url"] = config.base_urls[0]
        for name in ("extra_body", "chat_template_kwargs"):
            if value := getattr(config, name):
                detail[name] = sorted_json(value).decode()
        if config.reasoning_effort is not None:
            detail["reasoning_effort"] = config.reasoning_effort
        if self.dialect.has_prefill:
            detail["prefill"] = "on"
        if self.dialect.label_lists and self.prompts is not None:
            detail |= dict(self.prompts.identity_detail)
            detail["label_reads"] = f"{self.dialect.label_lists}, token prompts"
        return EngineIdentity(
            "openai", config.model, config.revision or "", detail=tuple(detail.items())
        )

    @property
    def open_dialogues(self) -> int:
        """Number of calls that may be in flight at all addresses together."""
        return self.config.in_flight * len(self._endpoints)

    async def complete(self, requests: Sequence[Request]) -> list[Completion]:
        """Answer all at once, as far as calls in flight are allowed; completions in order.

        Raises:
            EngineError: a reply names another model than the first one did.
        """
        groups = self.split(requests)
        if len(groups) == 1:
            return await self._answer(requests)
        answers = await asyncio.gather(
            *(self._answer([requests[index] for index in group]) for group in groups)
        )
        by_index = dict(zip(chain(*groups), chain(*answers), strict=True))
        return [by_index[index] for index in range(len(requests))]

    def split(self, requests: Sequence[Request]) -> list[list[int]]:
        """Return the indices of the requests that go in one HTTP call each; see `base.Splitting`."""
        if not self.dialect.label_lists or self.prompts is None:
            return [[index] for index in range(len(requests))]
        return group_requests(requests, list(map(self.prompts.label_ids, requests)))

    async def close(self) -> None:
        """Close the connections."""
        for endpoint in self._endpoints:
            await endpoint.close()

    async def _answer(self, group: Sequence[Request]) -> list[Completion]:
        """Make one HTTP call."""
        if self.dialect.label_lists and self.prompts is not None and is_label_read(group[0]):
            return await self._read_labels(group, self.prompts)
        [request] = group
        if self.room is not None and (refusal := await self.room.refuse(request)) is not None:
            return [refusal]
        body = to_body(request, self.config, self.dialect)
        reply = await self._exchange("/chat/completions", body, request.affinity)
        return [self.read_chat(reply, request)]

    async def _read_labels(
        self, group: Sequence[Request], prompts: PromptTokens
    ) -> list[Completion]:
        answers: dict[int, Completion] = {}
        ids: dict[int, list[int]] = {}
        for index, request in enumerate(group):
            try:
                ids[index] = prompts.prompt_ids(request)
            except PromptRefused as error:
                answers[index] = failed("bad_request", str(error))
                continue
            if self.room and (refusal := self.room.refuse_tokens(len(ids[index]), request)):
                answers[index] = refusal
                del ids[index]
        if ids:
            requests = [group[index] for index in ids]
            labels = list(map(prompts.label_ids, requests))
            sent = list(ids.values())
            body = to_list_body(sent, requests[0], labels, self.config, self.dialect)
            reply = await self._exchange("/completions", body, requests[0].affinity)
            if isinstance(reply, Completion):
                completions = [reply] * len(requests)
            else:
                completions = read_list(reply, requests, sent, labels, self.dialect)
            answers.update(zip(ids, completions, strict=True))
        return [answers[index] for index in range(len(group))]

    async def count_tokens(self, text: str, affinity: str) -> int | Completion:
        """Return the number of tokens that the server makes of a text, by its `/tokenize`; or a fault."""
        field = "content" if self.dialect.flavour == "llamacpp" else "prompt"
        body = {"model": self.config.model, field: text}
        reply = await self._exchange("/tokenize", body, affinity)
        if isinstance(reply, Completion):
            return reply
        tokens = reply.get("tokens") if isinstance(reply, dict) else None
        if not isinstance(tokens, list):
            return failed("server", "/tokenize gave no list of tokens")
        return len(tokens)

    def read_chat(self, reply: Any, request: Request) -> Completion:
        """Return the completion of a chat reply from `ask_endpoint`."""
        if isinstance(reply, Completion):
            return reply
        dialect = self.dialect
        may_echo = (
            request.schema is None and dialect.has_prefill and dialect.flavour not in CONTINUING
        )
        return read_chat(reply, request, echoed=request.prefill if may_echo else "")

    async def _exchange(self, path: str, body: Mapping[str, Any], affinity: str) -> Any:
        """Return the parsed reply of the first address that answers, or a completion that is a fault."""
        data = orjson.dumps(body)
        for endpoint in by_preference(self._endpoints, affinity):
            reply = await self.ask_endpoint(endpoint, path, data)
            if not (isinstance(reply, Completion) and is_down(reply)):
                break
        return reply

    async def ask_endpoint(self, endpoint: Endpoint, path: str, data: bytes) -> Any:
        """Make one call to one address; return the parsed reply, or a completion that is a fault."""
        was_up = endpoint.is_up
        async with endpoint.limiter:
            if was_up and not endpoint.is_up and len(self._endpoints) > 1:
                # It went while this call waited for its place.
                return failed("connection", f"{endpoint.url} does not answer")
            reply = await self._post(endpoint, path, data)
        endpoint.note(reply if isinstance(reply, Completion) else _FINE)
        return reply

    async def _post(self, endpoint: Endpoint, path: str, data: bytes) -> Any:
        try:
            status, headers, body = await endpoint.call("POST", path, data, self.config.timeout)
        except TimeoutError:
            return failed("timeout", f"no whole reply within {self.config.timeout:g} s")
        except BrokenReplyError as error:
            return failed("server", self.scrub(f"the reply was cut off: {error}"))
        except OSError as error:
            return failed("connection", self.scrub(f"{type(error).__name__}: {error}"))
        if status != 200:
            message, code = read_error_body(body)
            after = read_retry_after(headers)
            return read_error(status, self.scrub(message), retry_after=after, code=code)
        if self._key and len(self._key) >= _SHORTEST_KEY:
            body = body.replace(self._key.encode(), b"[key]")  # a reply is kept as it came
        try:
            value = orjson.loads(body)
        except ValueError as error:
            return failed("server", f"the reply is not JSON ({len(body)} bytes): {error}")
        if isinstance(value, dict) and value.get("error") and not value.get("choices"):
            # Gateways wrap the failure of the server behind them in a 200.
            message, code = read_error_body(body)
            status = int(code) if code.isdigit() else 502
            return read_error(status, self.scrub(message), code=code)
        self._note_model(value, endpoint)
        return value

    def _note_model(self, reply: Any, endpoint: Endpoint) -> None:
        """Compare the name of the model that replied with the name that the first reply had."""
        name = reply.get("model") if isinstance(reply, dict) else None
        if not isinstance(name, str) or not name or name == self.served:
            return
        if self.served:
            raise EngineError(
                f"{endpoint.url} now replies as another model; scores of two models cannot be compared",
                got=name,
                expected=f"{self.served}, as {self._served_at} first replied",
                fix="serve one model, under one name at every address, and run again; what was received "
                "before is kept",
            )
        self.served, self._served_at = name, endpoint.url

    def scrub(self, text: str) -> str:
        """Return the text without the key, which some servers quote."""
        return text.replace(self._key, "[key]") if self._key else text


_FINE = Completion()
_SHORTEST_KEY = 12
"""Characters of a key that is removed from replies. Servers of one's own have words as keys, such as EMPTY."""
