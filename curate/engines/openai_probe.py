"""Opening an OpenAI-compatible server: does it answer, does it have the model, which capabilities does it have.

Servers say little about themselves, so their capabilities are tried: a first token with log-probabilities, a
reply that only a schema could produce, a list of prompts as token ids. A handful of tiny calls
before a run can save a night's run. Of several addresses the first is tried in full; the others must say
the same of themselves and answer.
"""

from __future__ import annotations

import asyncio
import contextlib
import difflib
import os
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import orjson

from curate.engines.base import Capability, Completion, Fault, Request, short_hash
from curate.engines.config import OpenAIConfig
from curate.engines.endpoints import BrokenReplyError, Endpoint
from curate.engines.layout import Trunk
from curate.engines.limiter import Limiter
from curate.engines.openai import OpenAIEngine
from curate.engines.openai_requests import CONTINUING, Dialect, read_error_body, to_body
from curate.engines.prompt_length import PromptRoom
from curate.engines.structured import BadReply, closed_object, read_object
from curate.engines.tokens import PromptTokens, load_tokenizer
from curate.errors import EngineError, UsageError
from curate.wording import first_of

_CACHED = "cached-token counts"
_SECOND_LOOKS = 2
_MOST_LISTED = 20
_SELF_HOSTED = ("vllm", "sglang", "llamacpp")
_HELLO = Request(
    Trunk("Is water wet? Answer yes or no."),
    max_tokens=1,
    prefill="Answer:",
    labels=("yes", "no"),
)
# A word that no model says by chance, so that the schema must have made it.
_SCHEMA = closed_object({"answer": {"enum": ["qx7-plover"]}})
_SCHEMA_HELLO = Request(Trunk("Greet me, in JSON."), max_tokens=64, schema=_SCHEMA)


@dataclass(frozen=True, slots=True)
class ServerFacts:
    """Facts that a server states about itself."""

    flavour: str = ""
    models: tuple[str, ...] = ()
    context: int | None = None
    detail: tuple[tuple[str, str], ...] = ()


async def open_openai(config: OpenAIConfig) -> OpenAIEngine:
    """Reach the servers, check key and model name, try their capabilities.

    Raises:
        UsageError: the key's variable is empty, the model is unknown, `prefill: on` is refused, several
            addresses do not serve the same, or the tokenizer is not the server's.
        EngineError: a server cannot be reached, refuses the key, or does not answer.
    """
    key = os.environ.get(config.api_key_env) if config.api_key_env else None
    if config.api_key_env and not key:
        raise UsageError(
            f"the environment variable {config.api_key_env} is not set",
            fix=f"put the key for {config.base_urls[0]} into it, or leave api_key_env out",
        )
    prompts = None
    if config.tokenizer is not None:
        tokenizer = await asyncio.to_thread(load_tokenizer, config.tokenizer)
        prompts = PromptTokens(tokenizer, config.chat_template_kwargs)
    headers = {"Content-Type": "application/json", "Accept": "application/json"}
    if key:
        headers["Authorization"] = f"Bearer {key}"
    endpoints = [
        Endpoint(
            url,
            headers,
            Limiter(config.in_flight, is_adaptive=config.is_adaptive),
            use_proxy=config.is_hosted,
        )
        for url in config.base_urls
    ]
    try:
        return await _open_on(config, endpoints, key, prompts)
    except BaseException:
        for endpoint in endpoints:
            await endpoint.close()
        raise


async def _open_on(
    config: OpenAIConfig, endpoints: list[Endpoint], key: str | None, prompts: PromptTokens | None
) -> OpenAIEngine:
    servers = [await _ask_facts(config, endpoint, key) for endpoint in endpoints]
    facts = servers[0]
    for endpoint, server in zip(endpoints, servers, strict=True):
        # A llama.cpp server answers to any name; a reply under a wrong name would be a wrong identity.
        # Other lists are incomplete (aliases, gateways), so there the first call decides, see `_name_warning`.
        if server.flavour in _SELF_HOSTED and server.models and config.model not in server.models:
            raise _unknown_model(config, endpoint.url, server)
        if (server.flavour, server.detail) != (facts.flavour, facts.detail):
            raise UsageError(
                f"{endpoint.url} does not serve what {endpoints[0].url} serves",
                got=f"{server.flavour or 'another server'} {dict(server.detail)}",
                expected=f"{facts.flavour or 'another server'} {dict(facts.detail)}",
                fix="give addresses that serve the same model with the same settings",
            )
    engine = OpenAIEngine(
        config,
        endpoints,
        key,
        Dialect(
            facts.flavour,
            config.prefill == "on"
            or (config.prefill == "auto" and facts.flavour in (*CONTINUING, "llamacpp")),
        ),
        detail=facts.detail,
        context=min((server.context for server in servers if server.context), default=None),
        prompts=prompts,
    )
    warnings = []
    for endpoint, server in zip(endpoints, servers, strict=True):
        if endpoint is endpoints[0]:
            await _probe(engine, endpoint, server)
        else:
            await _say_hello(engine, endpoint)
        warnings.append(_name_warning(config, endpoint, server, engine.served))
    engine.warnings = tuple(filter(None, warnings))
    if prompts is not None:
        await _try_tokens(engine, endpoints[0], prompts)
    if engine.room is not None and prompts is None and facts.flavour in _SELF_HOSTED:
        count = await engine.count_tokens("Is water wet?", "")
        if not isinstance(count, Completion):
            engine.room = PromptRoom(engine.room.context, count=engine.count_tokens)
    engine.facts = _describe(engine)
    return engine


async def _ask_facts(config: OpenAIConfig, endpoint: Endpoint, key: str | None) -> ServerFacts:
    status, data = await _get(config, endpoint, "/models")
    if status in (401, 403):
        message = read_error_body(data)[0].replace(key or "\0", "[key]")
        raise _key_refused(config, endpoint.url, message)
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
    own_entry = next((entry for entry in entries if entry["id"] == config.model), {})
    context = own_entry.get("max_model_len") or own_entry.get("context_length")
    detail: tuple[tuple[str, str], ...] = ()
    if flavour == "llamacpp":
        # An older or guarded server has no /props.
        status, data = await _get(config, endpoint, "/props")
        with contextlib.suppress(ValueError, KeyError, TypeError):
            props = orjson.loads(data) if status == 200 else {}
            template = short_hash(props["chat_template"])
            context = int(props["default_generation_settings"]["n_ctx"])
            detail = (
                ("chat_template", template),
                ("quantisation", str(props.get("model_ftype", ""))),
            )
    return ServerFacts(flavour, tuple(models), int(context) if context else None, detail)


async def _get(config: OpenAIConfig, endpoint: Endpoint, path: str) -> tuple[int, bytes]:
    try:
        status, _, body = await endpoint.call("GET", path, None, config.timeout)
    except TimeoutError as error:
        raise EngineError(
            f"the server at {endpoint.url} does not answer",
            got=f"nothing within {config.timeout:g} s",
            fix="check that it has finished loading its model",
        ) from error
    except (BrokenReplyError, OSError) as error:
        raise EngineError(
            f"the server at {endpoint.url} cannot be reached",
            got=f"{type(error).__name__}: {error}",
            fix="check the address and that the server is running",
        ) from error
    return status, body


def _name_warning(
    config: OpenAIConfig, endpoint: Endpoint, facts: ServerFacts, served: str
) -> str | None:
    """Warn of a server that does not list the name it answered to, or replies under another one."""
    requested, replied = config.model.casefold(), served.casefold()
    if config.model in facts.models:
        # A path, an owner or a date besides, or no name at all.
        if requested in replied or replied in requested:
            return None
        return (
            f"{config.model!r} was asked for, and replies from {endpoint.url} say that they are from {served!r}: "
            "an alias, or another model. Make sure that this is the model you mean: scores are kept under the "
            "name in the recipe."
        )
    return (
        f"The server at {endpoint.url} answers to the model name {config.model!r} and does not list it "
        f"(listed: {_listed(config, facts) or 'none at all'}). Its replies say that they are from {served or 'none'!r}. "
        "Make sure that this is the model you mean: scores are kept under the name in the recipe."
    )


def _listed(config: OpenAIConfig, facts: ServerFacts) -> str:
    """Return the models of a server, first those with a name like the requested one; many are cut short."""
    near = difflib.get_close_matches(config.model, facts.models, n=3, cutoff=0.3)
    return first_of([*near, *(name for name in facts.models if name not in near)], _MOST_LISTED)


def _unknown_model(
    config: OpenAIConfig, url: str, facts: ServerFacts, detail: str | None = None
) -> UsageError:
    return UsageError(
        f"the server at {url} has no model {config.model!r}",
        got=detail,
        expected=_listed(config, facts) or None,
        fix="set `model` to one of these"
        if facts.models
        else "check the model name, and that base_url ends where the API begins, usually with /v1",
    )


def _key_refused(config: OpenAIConfig, url: str, message: str) -> EngineError:
    name = config.api_key_env
    if name is None:
        return EngineError(
            f"the server at {url} asks for a key and none is configured",
            got=message,
            fix="put the key into an environment variable and name it in api_key_env",
        )
    return EngineError(
        f"the server at {url} refuses the key in {name}",
        got=message,
        fix=f"check the value of {name}",
    )


async def _probe(engine: OpenAIEngine, endpoint: Endpoint, facts: ServerFacts) -> None:
    """Set the capabilities: try the richest question first and leave out what the server refuses.

    A request that it refuses in every form is tried again with the token limit under its newer name.
    """
    plain = engine.dialect
    prefills = (True, False) if plain.has_prefill else (False,)
    refusals: list[Fault] = []
    for limit_field in (plain.limit_field, "max_completion_tokens"):
        for has_prefill, labels in product(prefills, (_HELLO.labels, ())):
            engine.dialect = replace(plain, limit_field=limit_field, has_prefill=has_prefill)
            completion = await _try(engine, endpoint, _hello(labels))
            fault = completion.fault
            if fault is None:
                await _set_capabilities(engine, endpoint, completion)
                return
            tells_more = fault.kind in ("bad_request", "server", "malformed_reply")
            if fault.status == 404 or not tells_more:
                raise _explain(engine.config, endpoint, facts, fault)
            refusal = fault
        refusals.append(refusal)  # of the plainest question
        if refusal.kind != "bad_request":
            break
    refusal, *others = refusals
    if others and others[0].detail != refusal.detail:
        detail = f"{refusal.detail}; with max_completion_tokens: {others[0].detail}"
        refusal = replace(refusal, detail=detail)
    raise _explain(engine.config, endpoint, facts, refusal)


def _hello(labels: tuple[str, ...]) -> Request:
    """Return the question with or without labels; a model that thinks needs room before it says anything at all."""
    return replace(_HELLO, labels=labels, max_tokens=1 if labels else 16)


async def _set_capabilities(
    engine: OpenAIEngine, endpoint: Endpoint, completion: Completion
) -> None:
    if engine.config.prefill == "on" and not engine.dialect.has_prefill:
        raise UsageError(
            f"the server at {endpoint.url} does not continue a prefilled reply",
            fix="set prefill: auto or prefill: off",
        )
    known = {Capability.SEED}
    if engine.dialect.flavour != "llamacpp":
        known.add(Capability.PARALLEL)
    if len(completion.first_token) > 1:
        known.add(Capability.TOP_LOGPROBS)
    if engine.dialect.has_prefill:
        known.add(Capability.PREFILL)
    reply = await _try(engine, endpoint, _SCHEMA_HELLO)
    if reply.fault is None and not isinstance(read_object(reply, _SCHEMA), BadReply):
        known.add(Capability.JSON_SCHEMA)
    engine.capabilities = frozenset(known)


async def _say_hello(engine: OpenAIEngine, endpoint: Endpoint) -> None:
    """Check that a further address answers as the first one did."""
    labels = _HELLO.labels if Capability.TOP_LOGPROBS in engine.capabilities else ()
    completion = await _try(engine, endpoint, _hello(labels))
    fault = completion.fault
    has_none = bool(labels) and fault is not None and fault.kind == "malformed_reply"
    if fault is not None and not has_none:
        raise _explain(engine.config, endpoint, ServerFacts(), fault)
    if labels and len(completion.first_token) < 2:
        raise UsageError(
            f"{endpoint.url} gives no log-probabilities, but {engine.config.base_urls[0]} does",
            fix="give addresses that serve the same model with the same settings",
        )


async def _try(engine: OpenAIEngine, endpoint: Endpoint, request: Request) -> Completion:
    """Make one call, with patience for a server that is still starting."""
    retries = engine.config.retries
    for attempt in range(retries + 1):
        body = orjson.dumps(to_body(request, engine.config, engine.dialect))
        reply = await engine.ask_endpoint(endpoint, "/chat/completions", body)
        completion = engine.read_chat(reply, request)
        fault = completion.fault
        if fault is None:
            engine.facts[_CACHED] = bool((reply.get("usage") or {}).get("prompt_tokens_details"))
            return completion
        # Once more, for a server that gives log-probabilities most of the time; most others never give them.
        if fault.kind == "malformed_reply" and attempt < min(retries, _SECOND_LOOKS):
            continue
        # A 500 is how some servers refuse a field; only one that is still loading is waited for.
        refuses = fault.kind == "malformed_reply" or (
            fault.kind == "server" and fault.status != 503
        )
        if refuses or not fault.is_transient:
            return completion
        if attempt < retries:
            await asyncio.sleep(min(fault.retry_after or 0.5 * 2**attempt, 20.0))
    return completion


async def _try_tokens(engine: OpenAIEngine, endpoint: Endpoint, prompts: PromptTokens) -> None:
    """Send label reads as token ids if the server takes them, and takes them for the same prompt."""
    config, plain = engine.config, engine.dialect
    hello = _HELLO if plain.has_prefill else replace(_HELLO, prefill="")
    chat = replace(hello, labels=(), max_tokens=16)
    own_count = len(prompts.prompt_ids(chat))
    served_count = (await _try(engine, endpoint, chat)).usage.prompt_tokens
    if served_count not in (0, own_count):
        raise UsageError(
            f"the tokenizer {config.tokenizer} is not the one that {endpoint.url} uses",
            got=f"{own_count} tokens for a prompt that the server counts as {served_count}",
            expected="the same tokenizer, chat template and chat_template_kwargs",
            fix="name the served model's own tokenizer, or leave `tokenizer` out",
        )
    for label_lists in ("exact", "most likely"):
        engine.dialect = replace(plain, label_lists=label_lists)
        first, second = await engine.complete([hello, replace(hello, labels=("1", "2"))])
        if first.fault is None and second.fault is None and first.first_token:
            # A server that does not know a field may pass over it: then other tokens came back.
            is_exact = label_lists == "exact"
            if is_exact and not (first.exact_labels and second.exact_labels):
                continue
            # Prompts hold the begun reply, and a thought before it, as they hold everything else.
            engine.capabilities |= {
                Capability.TOKEN_PROMPTS,
                Capability.BATCH,
                Capability.TOP_LOGPROBS,
                Capability.PREFILL,
                Capability.THOUGHTS,
            }
            if is_exact:
                engine.capabilities |= {Capability.LABEL_LOGPROBS}
            return
    engine.dialect = plain


def _describe(engine: OpenAIEngine) -> dict[str, str | bool]:
    """Describe the findings for `curate doctor`."""
    known, config = engine.capabilities, engine.config
    width = "fewer when refused" if config.is_adaptive else "fixed"
    return {
        "server": engine.dialect.flavour or "unknown",
        "addresses": str(len(config.base_urls)),
        "context tokens": str(engine.context_tokens or "unknown"),
        "length of prompts": engine.room.description if engine.room else "not bounded",
        "calls in flight": f"{config.in_flight} at each address, {width}",
        "log-probabilities": Capability.TOP_LOGPROBS in known,
        "exact label log-probabilities": Capability.LABEL_LOGPROBS in known,
        "JSON schema": Capability.JSON_SCHEMA in known,
        "begun replies": Capability.PREFILL in known,
        "prompts as token ids": Capability.TOKEN_PROMPTS in known,
        _CACHED: engine.facts.get(_CACHED, False),
        "name in replies": engine.served or "none",
    }


def _explain(
    config: OpenAIConfig, endpoint: Endpoint, facts: ServerFacts, fault: Fault
) -> EngineError | UsageError:
    if fault.kind == "auth":
        return _key_refused(config, endpoint.url, fault.detail)
    is_listed = config.model in facts.models
    if fault.status == 404 and not is_listed:
        return _unknown_model(config, endpoint.url, facts, fault.detail)
    problem = f"the server at {endpoint.url} does not answer a simple question to {config.model}"
    got = f"{fault.kind}: {fault.detail}"
    if fault.kind != "bad_request":
        fix = "see that base_url is that of an OpenAI-compatible API, which as a rule ends in /v1"
        return EngineError(problem, got=got, fix=fix)
    fix = "if it refuses a field, take it out with extra_body: {field: null}"
    if is_listed:
        return EngineError(problem, got=got, fix=fix)
    return UsageError(
        problem,
        got=got,
        expected=_listed(config, facts) or None,
        fix=f"check `model`, which the server does not list; {fix}",
    )
