"""llama.cpp in this process, through xllamacpp: the embedded engine.

A slot is a context with a cache of its last prompt; llama.cpp gives a request to the free slot that
shares the longest start with it, and siblings come one after the other, so that a dialogue is read
once. Prompts that lost their slot are kept in memory up to `cache_mib`: a judge and a policy that take
turns then do not read their dialogues again each time.

Findings by trial (xllamacpp 2026.10), each with a test:
- the context is divided among the slots, so it is set to that of a slot times their number;
- `response_format` does not bind the reply (arrays overrun `maxItems`, or the call fails in the
  reply parser); a grammar made from the schema does;
- a grammar starts after a prefill and would repeat it, so a schema replaces the prefill;
- a prefill goes behind the template's own start unchanged, also where that opens a thought: so a thought is put there;
- a reply that meets the end of the context is reported as cut by `max_tokens`;
- a request that names its slot goes past that memory, so none does;
- log-probabilities are those of the raw softmax, whatever the temperature, top_p or grammar.
"""

from __future__ import annotations

import asyncio
import http.client
import os
import re
import secrets
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import jsonschema
import orjson

from curate.engines.base import (
    ONE_TOKEN,
    Capability,
    Completion,
    EngineIdentity,
    Request,
    closed_error,
    short_hash,
    sorted_json,
)
from curate.engines.chat_completions import chat_body, cut_by_context, failed, read_chat, read_error
from curate.engines.config import LlamaCppConfig
from curate.engines.layout import Trunk, special_pattern, take_apart
from curate.engines.model_files import find_model, hash_model, special_tokens
from curate.engines.redaction import redact_request
from curate.engines.structured import for_grammar
from curate.engines.thinking import OPENING, begun_reply
from curate.errors import EngineError

ALTERNATIVES = 1000
"""First tokens in a label read: takes 3 ms more than 20, and a label that is not among them is below 1e-4."""


class LlamaCppEngine:
    """A loaded model. Made by `open_llamacpp`."""

    def __init__(
        self,
        server: Any,
        identity: EngineIdentity,
        config: LlamaCppConfig,
        context: int,
        special: re.Pattern[str],
        *,
        opens_thought: bool = False,
    ) -> None:
        self._server = server
        self._config = config
        self.identity = identity
        self.context_tokens = context
        self.open_dialogues = config.slots
        self._special = special
        self._opens_thought = opens_thought
        self._threads = ThreadPoolExecutor(config.slots, thread_name_prefix="llamacpp")
        self._has_prefill = True

    @property
    def capabilities(self) -> frozenset[Capability]:
        """Return all but exact labels, token prompts and parallel siblings."""
        known = {Capability.JSON_SCHEMA, Capability.TOP_LOGPROBS, Capability.SEED}
        if self._has_prefill:
            known |= {Capability.PREFILL, Capability.THOUGHTS}
        return frozenset(known)

    async def complete(self, requests: Sequence[Request]) -> list[Completion]:
        """Answer one after the other, each on the slot that has most of it cached.

        With one request a call the client chooses the order (see `client`).
        """
        return [await self._answer(request) for request in requests]

    async def close(self) -> None:
        """Free the model once the calls in flight have ended; those that wait for their turn are cancelled."""
        await asyncio.to_thread(self._threads.shutdown, cancel_futures=True)
        self._server = None

    async def _answer(self, request: Request) -> Completion:
        if isinstance(request.trunk, Trunk):
            trunk = request.trunk.derived(self, lambda text: Trunk(take_apart(text, self._special)))
            question = take_apart(request.question, self._special)
            request = replace(request, trunk=trunk, question=question)
        else:
            request = redact_request(request, lambda text: take_apart(text, self._special))
        begun = ""
        if self._has_prefill:
            begun = begun_reply(request, self._special, opens_thought=self._opens_thought)
        try:
            body = llama_body(request, begun, self._config.chat_template_kwargs)
        except jsonschema.SchemaError as error:
            return failed("bad_request", f"the schema is not a JSON schema: {error.message}")
        loop = asyncio.get_running_loop()
        reply = await loop.run_in_executor(self._threads, self._call, body)
        if isinstance(reply, Completion):
            return reply
        return read_response(reply, request, self.context_tokens, body)

    def _call(self, body: dict[str, Any]) -> dict[str, Any] | Completion:
        if self._server is None:
            raise closed_error()
        try:
            reply: dict[str, Any] = self._server.handle_chat_completions(body)
            return reply
        # The binding turns every failure inside llama.cpp into one of these two. The same call would
        # fail again, so neither is transient.
        except (RuntimeError, ValueError) as error:
            return failed("bad_request", f"llama.cpp: {error}")

    async def probe(self) -> None:
        """Check that the model runs and that its template lets a reply be begun, by one token."""
        [completion] = await self.complete([ONE_TOKEN])
        if completion.fault is not None:
            self._has_prefill = False
            [completion] = await self.complete([ONE_TOKEN])
        if completion.fault is not None or not completion.first_token:
            await self.close()
            detail = completion.fault.detail if completion.fault else "no log-probabilities"
            raise EngineError(
                f"the model {self.identity.model} does not answer",
                got=detail,
                fix="check that the file is a complete GGUF file of a chat model, and that there is memory for `context`",
            )


def llama_body(request: Request, begun: str, template_kwargs: dict[str, Any]) -> dict[str, Any]:
    """Return a request in the form that `handle_chat_completions` takes.

    The samplers that llama.cpp adds by default (top_k, min_p) are turned off.

    Args:
        begun: forced start of the reply, put behind the template's own start as it is.

    Raises:
        jsonschema.SchemaError: the schema is none. (llama.cpp would answer without any constraint.)
    """
    body = chat_body(request) | {
        "top_k": 0,
        "min_p": 0.0,
        "seed": request.seed,
        "cache_prompt": True,
    }
    if template_kwargs:
        body["chat_template_kwargs"] = template_kwargs
    if request.labels:
        body |= {"logprobs": True, "top_logprobs": ALTERNATIVES}
    if request.schema is not None:
        body["grammar"] = _grammar(orjson.dumps(request.schema))
    if begun:
        body["messages"].append({"role": "assistant", "content": begun})
    return body


def read_response(
    reply: dict[str, Any], request: Request, context: int, body: dict[str, Any]
) -> Completion:
    """Return the completion of a reply from `handle_chat_completions` to `body`."""
    error = reply.get("error")
    if error is not None:
        return read_error(
            int(error.get("code", 500)),
            str(error.get("message", "")),
            code=str(error.get("type", "")),
        )
    last = body["messages"][-1]
    echoed = str(last["content"]) if last["role"] == "assistant" else ""
    completion = read_chat(reply, request, echoed=echoed)
    if completion.finish != "length":
        return completion
    return cut_by_context(completion.usage, request, context) or completion


@lru_cache(maxsize=256)
def _grammar(schema: bytes) -> str:
    from xllamacpp import json_schema_to_grammar

    grammar: str = json_schema_to_grammar(orjson.dumps(for_grammar(orjson.loads(schema))).decode())
    # Builds without llguidance give GBNF, where whitespace is a separate rule.
    return "\n".join(
        'space ::= " "?' if line.startswith("space ::=") else line for line in grammar.split("\n")
    )


async def open_llamacpp(config: LlamaCppConfig) -> LlamaCppEngine:
    """Load a model and ask it for one token.

    Raises:
        UsageError: the model file or a package is not there.
        EngineError: llama.cpp cannot load it, or it does not answer.
    """
    path = await asyncio.to_thread(find_model, config)
    revision = await asyncio.to_thread(hash_model, path)
    server, props, prompt = await asyncio.to_thread(_load, config, path)
    detail = [("chat_template", short_hash(str(props.get("chat_template", ""))))]
    if config.chat_template_kwargs:
        kwargs = sorted_json(config.chat_template_kwargs).decode()
        detail.append(("chat_template_kwargs", kwargs))
    identity = EngineIdentity(
        engine="llamacpp",
        model=path.name,
        revision=revision,
        quantisation=str(props.get("model_ftype", "")),
        detail=tuple(detail),
    )
    context = int(props["default_generation_settings"]["n_ctx"])
    special = special_pattern(await asyncio.to_thread(special_tokens, path))
    opens = prompt.rstrip().endswith(OPENING)
    engine = LlamaCppEngine(server, identity, config, context, special, opens_thought=opens)
    await engine.probe()
    return engine


def _load(config: LlamaCppConfig, path: Path) -> tuple[Any, dict[str, Any], str]:
    """Return the server, its properties, and a short message as its template renders it."""
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = str(path)
    params.n_ctx = config.context * config.slots
    params.n_parallel = config.slots
    params.n_gpu_layers = config.gpu_layers
    params.cpuparams.n_threads = config.threads or os.cpu_count() or 1
    params.ctx_shift = False  # it would drop the start of a prompt without a word
    params.cache_ram_mib = config.cache_mib
    params.warmup = False
    params.verbosity = -1
    # The binding always listens on a local port; no other program is to use the model through it.
    key = secrets.token_hex(16)
    params.api_keys = [key]
    params.ui = False
    params.endpoint_slots = False
    try:
        server = xllamacpp.Server(params)
    except RuntimeError as error:
        raise EngineError(
            f"llama.cpp cannot load {path}",
            got=f"{path.stat().st_size} bytes; llama.cpp says: {error}",
            expected="a GGUF model that fits in memory with its context",
            fix=f"check the file; or lower context ({config.context}) and slots ({config.slots})",
        ) from error
    address = str(server.listening_address)
    chat: dict[str, Any] = {"messages": [{"role": "user", "content": "Hello."}]}
    if config.chat_template_kwargs:
        chat["chat_template_kwargs"] = config.chat_template_kwargs
    rendered = _ask_server(address, key, "POST", "/apply-template", orjson.dumps(chat))
    return server, _ask_server(address, key, "GET", "/props"), str(rendered.get("prompt", ""))


def _ask_server(
    address: str, key: str, method: str, path: str, body: bytes | None = None
) -> dict[str, Any]:
    # http.client and not urllib, which would use a proxy from the environment.
    connection = http.client.HTTPConnection(address.removeprefix("http://"), timeout=30)
    headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
    try:
        connection.request(method, path, body, headers)
        response = connection.getresponse()
        reply = response.read()
    finally:
        connection.close()
    if response.status != 200:
        raise EngineError(
            f"llama.cpp does not answer {path}",
            got=reply[:200],
            fix="install a newer xllamacpp, or use another model file",
        )
    value: dict[str, Any] = orjson.loads(reply)
    return value
