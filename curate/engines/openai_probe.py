"""Opening an OpenAI-compatible server: is it there, does it know the model, what can it do.

Servers say little about themselves, so what matters is tried: a first token with log-probabilities, a
reply that only a schema could bring about. A handful of tiny calls before a run saves a night of it.
"""

from __future__ import annotations

import asyncio
import difflib
import hashlib
from dataclasses import dataclass, replace
from typing import Any

import aiohttp
import orjson

from curate.engines.base import Capability, Completion, Fault, Request
from curate.engines.config import OpenAIConfig
from curate.engines.openai import CONTINUING, Dialect, OpenAIEngine, read_key, read_message
from curate.engines.structured import BadReply, read_object
from curate.errors import EngineError, UsageError

_SELF_HOSTED = ("vllm", "sglang", "llamacpp")
_HELLO = Request(
    messages=({"role": "user", "content": "Is water wet? Answer yes or no."},),
    max_tokens=1,
    prefill="Answer:",
    labels=("yes", "no"),
)
# A word that no model says by chance, so that the schema must have made it.
_SCHEMA = {
    "type": "object",
    "properties": {"answer": {"enum": ["qx7-plover"]}},
    "required": ["answer"],
    "additionalProperties": False,
}
_SCHEMA_HELLO = Request(
    messages=({"role": "user", "content": "Greet me, in JSON."},), max_tokens=64, schema=_SCHEMA
)


@dataclass(frozen=True, slots=True)
class ServerFacts:
    """What a server says about itself."""

    flavour: str = ""
    models: tuple[str, ...] = ()
    context: int | None = None
    detail: tuple[tuple[str, str], ...] = ()


async def open_openai(config: OpenAIConfig) -> OpenAIEngine:
    """Reach the server, check key and model name, try what it can do.

    Raises:
        UsageError: the key's variable is empty, the model is unknown, or `prefill: on` is refused.
        EngineError: the server cannot be reached, refuses the key, or does not answer.
    """
    key = read_key(config)
    if config.api_key_env and not key:
        raise UsageError(
            f"the environment variable {config.api_key_env} is not set",
            fix=f"put the key for {config.base_url} into it, or leave api_key_env out",
        )
    session = aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0),
        timeout=aiohttp.ClientTimeout(total=config.timeout),
        headers={"Authorization": f"Bearer {key}"} if key else None,
        trust_env=config.is_hosted,
    )
    try:
        facts = await _ask_facts(config, session, key)
        _check_model_name(config, facts)
        wants_prefill = config.prefill == "on" or (
            config.prefill == "auto" and facts.flavour in (*CONTINUING, "llamacpp")
        )
        engine = OpenAIEngine(
            config,
            session,
            key,
            Dialect(facts.flavour, wants_prefill),
            detail=facts.detail,
            context=facts.context,
        )
        engine.known = await _probe(engine, config, facts)
    except BaseException:
        await session.close()
        raise
    return engine


async def _ask_facts(
    config: OpenAIConfig, session: aiohttp.ClientSession, key: str | None
) -> ServerFacts:
    status, data = await _get(config, session, f"{config.base_url}/models")
    if status in (401, 403):
        raise _key_refused(config, read_message(data)[0].replace(key or "\0", "[key]"))
    entries: list[dict[str, Any]] = []
    if status == 200:
        try:
            entries = [entry for entry in orjson.loads(data)["data"] if "id" in entry]
        except (ValueError, KeyError, TypeError):
            entries = []  # some gateways answer /models in a form of their own; the probe decides
    owners = {str(entry.get("owned_by", "")).lower() for entry in entries}
    flavour = next((name for name in _SELF_HOSTED if name in owners), "")
    models: list[str] = []
    for entry in entries:
        models += [str(entry["id"]), *map(str, entry.get("aliases") or ())]
    mine = next((entry for entry in entries if entry["id"] == config.model), {})
    context = mine.get("max_model_len") or mine.get("context_length")
    detail: tuple[tuple[str, str], ...] = ()
    if flavour == "llamacpp":
        context, detail = await _ask_llamacpp(config, session, context)
    return ServerFacts(flavour, tuple(models), int(context) if context else None, detail)


async def _ask_llamacpp(
    config: OpenAIConfig, session: aiohttp.ClientSession, context: int | None
) -> tuple[int | None, tuple[tuple[str, str], ...]]:
    """Context and what determines replies, from /props; an older or guarded server has none."""
    status, data = await _get(config, session, f"{config.base_url.removesuffix('/v1')}/props")
    try:
        props = orjson.loads(data) if status == 200 else {}
        template = hashlib.blake2b(props["chat_template"].encode(), digest_size=8).hexdigest()
        found = int(props["default_generation_settings"]["n_ctx"])
        return found, (
            ("chat_template", template),
            ("quantisation", str(props.get("model_ftype", ""))),
        )
    except (ValueError, KeyError, TypeError):
        return context, ()


async def _get(config: OpenAIConfig, session: aiohttp.ClientSession, url: str) -> tuple[int, bytes]:
    try:
        async with session.get(url, allow_redirects=False) as response:
            return response.status, await response.read()
    except TimeoutError as error:
        raise EngineError(
            f"the server at {config.base_url} does not answer",
            got=f"nothing within {config.timeout:g} s",
            fix="check that it has finished loading its model",
        ) from error
    except (aiohttp.ClientError, OSError) as error:
        raise EngineError(
            f"the server at {config.base_url} cannot be reached",
            got=f"{type(error).__name__}: {error}",
            fix="check the address and that the server is running",
        ) from error


def _check_model_name(config: OpenAIConfig, facts: ServerFacts) -> None:
    # A llama.cpp server answers to any name; a reply under a wrong name would be a wrong identity.
    # Commercial lists are incomplete (aliases), so there the first call decides.
    if facts.flavour in _SELF_HOSTED and facts.models and config.model not in facts.models:
        raise _unknown_model(config, facts)


def _unknown_model(config: OpenAIConfig, facts: ServerFacts, said: str | None = None) -> UsageError:
    near = difflib.get_close_matches(config.model, facts.models, n=3, cutoff=0.3)
    others = [name for name in facts.models if name not in near]
    shown = [*near, *others][:20]
    more = len(facts.models) - len(shown)
    return UsageError(
        f"the server at {config.base_url} has no model {config.model!r}",
        got=said,
        expected=", ".join(shown) + (f" and {more} more" if more > 0 else "") or None,
        fix="set `model` to one of these" if shown else "check the model name",
    )


def _key_refused(config: OpenAIConfig, said: str) -> EngineError:
    if config.api_key_env is None:
        return EngineError(
            f"the server at {config.base_url} asks for a key and none is configured",
            got=said,
            fix="put the key into an environment variable and name it in api_key_env",
        )
    return EngineError(
        f"the server at {config.base_url} refuses the key in {config.api_key_env}",
        got=said,
        fix=f"check the value of {config.api_key_env}",
    )


async def _probe(
    engine: OpenAIEngine, config: OpenAIConfig, facts: ServerFacts
) -> frozenset[Capability]:
    """Try the richest question first and take away what the server does not stand."""
    for has_prefill in (True, False) if engine.dialect.has_prefill else (False,):
        for labels in (_HELLO.labels, ()):
            engine.dialect = replace(engine.dialect, has_prefill=has_prefill)
            # Models that think want room for it before they say anything at all.
            limit = 1 if labels else 16
            completion = await _try(
                engine, config, replace(_HELLO, labels=labels, max_tokens=limit)
            )
            if completion.fault is None:
                return await _settle(engine, config, completion)
            if completion.fault.kind not in ("bad_request", "server"):
                raise _explain(config, facts, completion.fault)
    assert completion.fault is not None
    raise _explain(config, facts, completion.fault)


async def _settle(
    engine: OpenAIEngine, config: OpenAIConfig, completion: Completion
) -> frozenset[Capability]:
    if config.prefill == "on" and not engine.dialect.has_prefill:
        raise UsageError(
            f"the server at {config.base_url} refuses a begun reply",
            fix="set prefill: auto or prefill: off",
        )
    known = {Capability.SEED}
    if engine.dialect.flavour != "llamacpp":
        known.add(Capability.PARALLEL)
    if len(completion.first_token) > 1:
        known.add(Capability.TOP_LOGPROBS)
    if engine.dialect.has_prefill:
        known.add(Capability.PREFILL)
    reply = await _try(engine, config, _SCHEMA_HELLO)
    if reply.fault is None and not isinstance(read_object(reply, _SCHEMA), BadReply):
        known.add(Capability.JSON_SCHEMA)
    return frozenset(known)


async def _try(engine: OpenAIEngine, config: OpenAIConfig, request: Request) -> Completion:
    """One call, with patience for a server that is still starting and for a renamed field."""
    for attempt in range(config.retries + 1):
        [completion] = await engine.complete([request])
        fault = completion.fault
        if fault is None:
            return completion
        renamed = fault.kind == "bad_request" and "max_completion_tokens" in fault.detail
        if renamed and engine.dialect.limit_field == "max_tokens":
            engine.dialect = replace(engine.dialect, limit_field="max_completion_tokens")
            continue
        # A 500 is how some servers refuse a field; only one that is still loading is waited for.
        refuses = fault.kind == "server" and "HTTP 503" not in fault.detail
        if refuses or not fault.is_transient:
            return completion
        if attempt < config.retries:
            await asyncio.sleep(min(fault.retry_after or 0.5 * 2**attempt, 20.0))
    return completion


def _explain(config: OpenAIConfig, facts: ServerFacts, fault: Fault) -> EngineError | UsageError:
    if fault.kind == "auth":
        return _key_refused(config, fault.detail)
    names_model = config.model not in facts.models and (
        "HTTP 404" in fault.detail or "model" in fault.detail.lower()
    )
    if fault.kind == "bad_request" and names_model:
        return _unknown_model(config, facts, fault.detail)
    return EngineError(
        f"the server at {config.base_url} does not answer a simple question to {config.model}",
        got=f"{fault.kind}: {fault.detail}",
        fix="if it refuses a field, take it out with extra_body: {field: null}",
    )
