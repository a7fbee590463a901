"""The one protocol through which a model is asked.

An engine is a thin thing: it turns a `Request` into a `Completion`. What fails in a call is data
(`Completion.fault`), so that a stage can say why a row is unscored; only an engine that cannot work at
all raises `EngineError`. Replies, retries and accounting are `engines.client`, not the engine.
"""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from enum import StrEnum
from functools import lru_cache
from typing import Any, Literal, Protocol, runtime_checkable

import orjson

from curate.engines.layout import Chat, Trunk


class Capability(StrEnum):
    """What an engine can do beyond text in, text out."""

    JSON_SCHEMA = "json_schema"
    TOP_LOGPROBS = "top_logprobs"
    LABEL_LOGPROBS = "label_logprobs"
    PREFILL = "prefill"
    TOKEN_PROMPTS = "token_prompts"
    THOUGHTS = "thoughts"
    """A thought may be put before the forced start of a reply."""
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
        trunk: what the request shares with others about the same dialogue, or a whole chat.
        question: what stands behind the trunk; empty where the trunk asks all, and behind a chat.
        max_tokens: bound of the reply.
        prefill: forced start of the reply, not part of `Completion.text`. An engine without
            `Capability.PREFILL` leaves it out, so the question must stand without it; so does every
            engine that has `JSON_SCHEMA` when there is a schema, which forces the start by itself.
        thought: what the model thought about the question before, put before the prefill in the marks of a
            thought; of label reads, on engines with `THOUGHTS`.
        temperature: 0 is greedy.
        schema: JSON schema the reply must follow, where the engine has `JSON_SCHEMA`.
        labels: when not empty, the first token's distribution is read and these labels are wanted.
        sample: index among repeated samples of the same prompt; part of the cache key and of the seed.
        tools: tool definitions shown to a policy model.
        purpose: what the call is for, as `stage.step`; accounting only, not part of the key.
        affinity: names what the request is about (a dialogue's content hash): an engine with several
            servers sends equal affinities to one of them. Not part of the key.
        turns: numbers of the turns that the reply scores; empty where it scores none. Not part of the key.
    """

    trunk: Trunk | Chat
    question: str = ""
    _: KW_ONLY
    max_tokens: int
    prefill: str = ""
    thought: str = ""
    temperature: float = 0.0
    top_p: float = 1.0
    schema: Mapping[str, Any] | None = None
    labels: tuple[str, ...] = ()
    sample: int = 0
    tools: tuple[Mapping[str, Any], ...] = ()
    purpose: str = ""
    affinity: str = ""
    turns: tuple[int, ...] = ()

    @property
    def messages(self) -> tuple[Mapping[str, Any], ...]:
        """The chat messages, in OpenAI's form."""
        if isinstance(self.trunk, Chat):
            return self.trunk.messages
        return ({"role": "user", "content": self.trunk.text + self.question},)

    @property
    def seed(self) -> int:
        """Seed of what is drawn on engines that have `SEED`, 31 bits, from the messages and the sample.

        Draws of one seed go the same way in every prompt: by the sample alone, the same turn of all dialogues would
        get the same luck.
        """
        content = _canonical([self.messages, self.sample])
        return int.from_bytes(hashlib.blake2b(content, digest_size=4).digest(), "big") >> 1

    def key(self, identity: EngineIdentity) -> str:
        """Cache key: 128-bit hash of the engine's identity and the request, as sorted JSON, in 32 hex digits.

        What siblings share is hashed once, with their trunk.
        """
        asked: list[object] = [
            self.max_tokens,
            self.prefill,
            self.temperature,
            self.top_p,
            self.schema,
            self.labels,
            self.sample,
            self.tools,
        ]
        # Left out where there is none, so that replies from before there were thoughts are found.
        rest = _canonical([*asked, self.thought] if self.thought else asked)[1:]
        if isinstance(self.trunk, Chat):
            start = _canonical([identity.key, self.trunk.messages])[:-1]
            return hashlib.blake2b(start + b"," + rest, digest_size=16).hexdigest()
        state = self.trunk.derived(identity.key, lambda text: _begin_key(identity, text)).copy()
        state.update(b'%b","role":"user"}],%b' % (orjson.dumps(self.question)[1:-1], rest))
        key: str = state.hexdigest()
        return key


def _begin_key(identity: EngineIdentity, text: str) -> Any:
    content = orjson.dumps(text)[1:-1]
    return hashlib.blake2b(
        b'["%b",[{"content":"%b' % (identity.key.encode(), content), digest_size=16
    )


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
        thought: what a server parsed off the reply as the model's thinking; elsewhere it stands in the text.
        finish: `stop`, `length` (cut by max_tokens), `tool_calls`, or `error`.
        first_token: for a request with labels: (token text, log-probability) pairs of the first
            position, most likely first, from the full softmax before temperature.
        exact_labels: True when `first_token` holds exactly the wanted labels (LABEL_LOGPROBS), so that
            a label that is missing has no token rather than a small probability.
        tool_calls: in OpenAI's wire form.
        fault: set when there is no reply.
    """

    text: str = ""
    thought: str = ""
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
    described = [
        identity.engine,
        identity.model,
        identity.revision,
        identity.quantisation,
        *map(list, identity.detail),
    ]
    return hashlib.blake2b(_canonical(described), digest_size=16).hexdigest()


def _canonical(value: object) -> bytes:
    # `default` is for mappings that are no dicts.
    return orjson.dumps(value, default=dict, option=orjson.OPT_SORT_KEYS)
