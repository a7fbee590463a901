"""The one protocol through which a model is asked.

An engine is a thin thing: it turns a `Request` into a `Completion`. What fails in a call is data
(`Completion.fault`), so that a stage can say why a row is unscored; only an engine that cannot work at
all raises `EngineError`. Replies, retries and accounting are `engines.asking`, not the engine.
"""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import lru_cache
from typing import Any, Literal, Protocol, runtime_checkable

import orjson


class Capability(StrEnum):
    """What an engine can do beyond text in, text out."""

    JSON_SCHEMA = "json_schema"
    TOP_LOGPROBS = "top_logprobs"
    LABEL_LOGPROBS = "label_logprobs"
    PREFILL = "prefill"
    TOKEN_PROMPTS = "token_prompts"
    SEED = "seed"
    PARALLEL = "parallel"
    """Siblings may be asked at once. Without it they are best asked one after the other, because the
    engine serves them from one slot whose cache holds their common start."""
    BATCH = "batch"
    """Siblings are best handed over together in one `complete`, which serves them from one trunk."""


@dataclass(frozen=True, slots=True)
class EngineIdentity:
    """All that determines an engine's reply to a request; the first half of the cache key."""

    engine: str
    model: str
    revision: str = ""
    quantisation: str = ""
    detail: tuple[tuple[str, str], ...] = ()

    @property
    def key(self) -> str:
        """128-bit hash, 32 hex digits."""
        return _identity_key(self)


@dataclass(frozen=True, slots=True)
class Request:
    """One question to a model.

    Attributes:
        messages: chat messages in OpenAI's wire form. Whatever requests about one dialogue share
            stands first, byte for byte (see `engines.layout`).
        max_tokens: bound of the reply.
        prefill: forced start of the reply, not part of `Completion.text`. An engine without
            `Capability.PREFILL` leaves it out, so the question must stand without it; so does every
            engine that has `JSON_SCHEMA` when there is a schema, which forces the start by itself.
        temperature: 0 is greedy.
        schema: JSON schema the reply must follow, where the engine has `JSON_SCHEMA`.
        labels: when not empty, the first token's distribution is read and these labels are wanted.
        sample: index among repeated samples of the same prompt; part of the cache key and, where the
            engine has `SEED`, its seed.
        tools: tool definitions shown to a policy model.
        purpose: what the call is for, as `stage.step`; accounting only, not part of the key.
        affinity: names what the request is about (a dialogue's content hash): an engine with several
            servers sends equal affinities to one of them. Not part of the key.
        turns: numbers of the turns that the reply scores; empty where it scores none. Not part of the key.
        verbatim: the messages are a chat as it stands, as a policy is asked; else an only message is one of
            `engines.layout`, in which an engine may take apart what its tokenizer holds for a special token. Not
            part of the key.
    """

    messages: tuple[Mapping[str, Any], ...]
    max_tokens: int
    prefill: str = ""
    temperature: float = 0.0
    top_p: float = 1.0
    schema: Mapping[str, Any] | None = None
    labels: tuple[str, ...] = ()
    sample: int = 0
    tools: tuple[Mapping[str, Any], ...] = ()
    purpose: str = ""
    affinity: str = ""
    turns: tuple[int, ...] = ()
    verbatim: bool = False

    def key(self, identity: EngineIdentity) -> str:
        """Cache key: 128-bit hash of the engine's identity and the canonical request."""
        return hash_texts([self.canonical(identity)])[0]

    def canonical(self, identity: EngineIdentity) -> bytes:
        """What the cache key is the hash of: the engine's identity and the request, as sorted JSON."""
        return _canonical(
            [
                identity.key,
                self.messages,
                self.max_tokens,
                self.prefill,
                self.temperature,
                self.top_p,
                self.schema,
                self.labels,
                self.sample,
                self.tools,
            ]
        )


def request_keys(requests: Sequence[Request], identity: EngineIdentity) -> list[str]:
    """The key of each of some siblings, `Request.key`, at the cost of hashing their trunk once."""
    return hash_texts([request.canonical(identity) for request in requests])


FaultKind = Literal[
    "timeout",
    "rate_limited",
    "server",
    "connection",
    "malformed_reply",
    "context_overflow",
    "refused",
    "auth",
    "bad_request",
]
TRANSIENT: frozenset[str] = frozenset(
    {"timeout", "rate_limited", "server", "connection", "malformed_reply"}
)
"""Faults worth trying again, and never stored."""


@dataclass(frozen=True, slots=True)
class Fault:
    """Why a call gave no reply.

    Attributes:
        detail: in the server's own words, without keys.
        retry_after: seconds that the server asks to wait.
        status: of the HTTP reply; None where there was none.
    """

    kind: FaultKind
    detail: str = ""
    retry_after: float | None = None
    status: int | None = None

    @property
    def is_transient(self) -> bool:
        """True when the same call may succeed later."""
        return self.kind in TRANSIENT

    @property
    def reason(self) -> str:
        """The reason code of what is unscored for it: whether the row was too long, or the engine failed."""
        return "context_overflow" if self.kind == "context_overflow" else "engine_error"


@dataclass(frozen=True, slots=True)
class Usage:
    """Token counts of one call, as the engine reports them."""

    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Completion:
    """What came back.

    Attributes:
        text: the reply, without the prefill.
        finish: `stop`, `length` (cut by max_tokens), `tool_calls`, or `error`.
        first_token: for a request with labels: (token text, log-probability) pairs of the first
            position, most likely first, from the full softmax before temperature.
        exact_labels: True when `first_token` holds exactly the wanted labels (LABEL_LOGPROBS), so that
            a label that is missing has no token rather than a small probability.
        tool_calls: in OpenAI's wire form.
        fault: set when there is no reply.
    """

    text: str = ""
    finish: Literal["stop", "length", "tool_calls", "error"] = "stop"
    first_token: tuple[tuple[str, float], ...] = ()
    exact_labels: bool = False
    tool_calls: tuple[Mapping[str, Any], ...] = ()
    usage: Usage = field(default_factory=Usage)
    fault: Fault | None = None


@runtime_checkable
class Engine(Protocol):
    """A model that can be asked. See DESIGN for the contract; `engines.scripted` is the smallest one."""

    @property
    def identity(self) -> EngineIdentity:
        """All that determines a reply, but the request."""
        ...

    @property
    def capabilities(self) -> frozenset[Capability]:
        """What the engine can do; settled when it is opened."""
        ...

    @property
    def open_dialogues(self) -> int:
        """How many dialogues are best kept open at once (slots, or requests in flight)."""
        ...

    @property
    def context_tokens(self) -> int | None:
        """Size of the context window in tokens, where known."""
        ...

    async def complete(self, requests: Sequence[Request]) -> list[Completion]:
        """Answer siblings on one trunk, in order. Never raises for a single failed call."""
        ...

    async def close(self) -> None:
        """Free the model or the connections. Calling it twice is harmless."""
        ...


@runtime_checkable
class Splitting(Protocol):
    """An engine with BATCH that answers siblings in several calls of its own.

    Who keeps replies must not wait for one call until another is done, so it hands over each by itself.
    """

    def split(self, requests: Sequence[Request]) -> list[list[int]]:
        """Indices of the requests that go in one call, in groups; every index once."""
        ...


Ask = Callable[[Sequence[Request]], Awaitable[list[Completion]]]
"""Engine, cache, retries and accounting, bound to a model role (judge, policy, reviser)."""


@lru_cache(maxsize=256)
def _identity_key(identity: EngineIdentity) -> str:
    return _hash(
        [
            identity.engine,
            identity.model,
            identity.revision,
            identity.quantisation,
            *map(list, identity.detail),
        ]
    )


def _hash(value: object) -> str:
    return hash_texts([_canonical(value)])[0]


def _canonical(value: object) -> bytes:
    # `default` is for mappings that are no dicts.
    return orjson.dumps(value, default=dict, option=orjson.OPT_SORT_KEYS)


_PIECE = 256
"""Bytes by which a common start is found; a multiple of the hash's block of 128."""


def hash_texts(texts: Sequence[bytes]) -> list[str]:
    """128-bit blake2b of each text, in 32 hex digits; what all begin with is hashed once."""
    shared = _common_start(texts[0], texts[1]) if len(texts) > 1 else 0
    start = texts[0][:shared] if texts else b""
    state = hashlib.blake2b(start, digest_size=16)
    keys = []
    for text in texts:
        if text.startswith(start):
            mine = state.copy()
            mine.update(text[shared:])
        else:
            mine = hashlib.blake2b(text, digest_size=16)
        keys.append(mine.hexdigest())
    return keys


def _common_start(one: bytes, other: bytes) -> int:
    """Length of a start that both have, in whole pieces."""
    known, beyond = 0, min(len(one), len(other)) // _PIECE + 1
    while beyond - known > 1:
        middle = (known + beyond) // 2
        if one[known * _PIECE : middle * _PIECE] == other[known * _PIECE : middle * _PIECE]:
            known = middle
        else:
            beyond = middle
    return known * _PIECE
