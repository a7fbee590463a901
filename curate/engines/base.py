"""The protocol of engines, and the types that pass through it.

An engine turns a `Request` into a `Completion`. A failed call is data (`Completion.fault`), so that a stage
can say why a row is unscored; only an engine that cannot work at all raises `EngineError`. Kept replies,
retries and accounting are in `engines.client`, not in the engine.
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
from curate.errors import EngineError


class Capability(StrEnum):
    """A feature of an engine beyond text in, text out."""

    JSON_SCHEMA = "json_schema"
    TOP_LOGPROBS = "top_logprobs"
    LABEL_LOGPROBS = "label_logprobs"
    PREFILL = "prefill"
    TOKEN_PROMPTS = "token_prompts"
    THOUGHTS = "thoughts"
    """A thought may be put before the forced start of a reply."""
    SEED = "seed"
    PARALLEL = "parallel"
    """Siblings may be sent at once. Without it they are best sent one after the other, because the
    engine serves them from one slot whose cache holds their common prefix."""
    BATCH = "batch"
    """Siblings are best given together to one `complete`, which serves them from one trunk."""


@dataclass(frozen=True, slots=True)
class EngineIdentity:
    """Everything that determines replies besides the request; the first half of the cache key."""

    engine: str
    model: str
    revision: str = ""
    quantisation: str = ""
    detail: tuple[tuple[str, str], ...] = ()

    @property
    def key(self) -> str:
        """Return a 128-bit hash of the identity, 32 hex digits."""
        return _identity_key(self)


@dataclass(frozen=True, slots=True)
class Request:
    """One question to a model.

    Attributes:
        trunk: the prompt's start, shared with other requests about the same dialogue; or a whole chat.
        question: the text after the trunk; empty where the trunk holds the question, and after a chat.
        max_tokens: upper bound of the reply, in tokens.
        prefill: forced start of the reply, not part of `Completion.text`. An engine without
            `Capability.PREFILL` leaves it out, so the question must make sense without it. With a schema,
            engines that have `JSON_SCHEMA` leave it out too: the schema forces the start.
        thought: the model's own thought about the question from an earlier reply, placed before the prefill between
            thinking tags; for label reads on engines with `THOUGHTS`.
        temperature: 0 is greedy.
        schema: JSON schema that the reply must follow, where the engine has `JSON_SCHEMA`.
        labels: when not empty, the first token's distribution is read for these labels.
        sample: index among repeated samples of the same prompt; part of the cache key and of the seed.
        tools: tool definitions shown to a policy model.
        purpose: `stage.step`, for accounting; not part of the key.
        affinity: name of the request's subject (a dialogue's content hash); an engine with several servers sends
            requests of equal affinity to one of them. Not part of the key.
        turns: numbers of the turns that the reply scores. Not part of the key.
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
        """Return the chat messages in OpenAI's form."""
        if isinstance(self.trunk, Chat):
            return self.trunk.messages
        return ({"role": "user", "content": self.trunk.text + self.question},)

    @property
    def seed(self) -> int:
        """Return the sampling seed for engines that have `SEED`, 31 bits, from the messages and the sample index.

        With a seed from the sample index alone, all prompts would share their random draws.
        """
        content = sorted_json([self.messages, self.sample])
        return int.from_bytes(hashlib.blake2b(content, digest_size=4).digest(), "big") >> 1

    def key(self, identity: EngineIdentity) -> str:
        """Return the cache key: a 128-bit hash of the engine's identity and the request as sorted JSON, 32 hex digits.

        The part that siblings share is hashed once, with their trunk.
        """
        options: list[object] = [
            self.max_tokens,
            self.prefill,
            self.temperature,
            self.top_p,
            self.schema,
            self.labels,
            self.sample,
            self.tools,
        ]
        # Left out where there is none: replies kept before requests had thoughts stay valid.
        rest = sorted_json([*options, self.thought] if self.thought else options)[1:]
        if isinstance(self.trunk, Chat):
            start = sorted_json([identity.key, self.trunk.messages])[:-1]
            return hashlib.blake2b(start + b"," + rest, digest_size=16).hexdigest()
        state = self.trunk.derived(identity.key, lambda text: _begin_key(identity, text)).copy()
        state.update(b'%b","role":"user"}],%b' % (orjson.dumps(self.question)[1:-1], rest))
        key: str = state.hexdigest()
        return key


ONE_TOKEN = Request(Trunk("Say yes."), max_tokens=1, prefill="Answer:", labels=("yes",))
"""A request by which an engine that was just loaded is tried."""


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
"""Kinds of faults that are retried, and never stored."""


@dataclass(frozen=True, slots=True)
class Fault:
    """Why a call gave no reply.

    Attributes:
        detail: the server's own message, without keys.
        retry_after: seconds that the server asks to wait.
        status: HTTP status of the reply; None where there was no reply.
    """

    kind: FaultKind
    detail: str = ""
    retry_after: float | None = None
    status: int | None = None

    @property
    def is_transient(self) -> bool:
        """Tell whether the same call may succeed later."""
        return self.kind in TRANSIENT

    @property
    def reason(self) -> str:
        """Return the reason code of a row that is unscored because of this fault."""
        return "context_overflow" if self.kind == "context_overflow" else "engine_error"


@dataclass(frozen=True, slots=True)
class Usage:
    """Token counts of one call, as the engine reports them; cached tokens are part of the prompt's."""

    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Completion:
    """The outcome of a request: a reply or a fault.

    Attributes:
        text: the reply without the prefill.
        thought: the model's thinking, where the server separates it; elsewhere it is part of the text.
        finish: `stop`, `length` (cut by max_tokens), `tool_calls`, or `error`.
        first_token: for a request with labels: (token text, log-probability) pairs of the first
            position, most likely first, from the full softmax before temperature.
        exact_labels: True if `first_token` holds exactly the requested labels (LABEL_LOGPROBS): a missing label
            then has no token, rather than a small probability.
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
    """A model that answers requests; `engines.scripted` is the smallest implementation."""

    @property
    def identity(self) -> EngineIdentity:
        """Return everything that determines replies besides the request."""
        ...

    @property
    def capabilities(self) -> frozenset[Capability]:
        """Return the features of the engine, fixed when it is opened."""
        ...

    @property
    def open_dialogues(self) -> int:
        """Return the number of dialogues that are best kept open at once (slots, or requests in flight)."""
        ...

    @property
    def context_tokens(self) -> int | None:
        """Return the size of the context window in tokens; None where it is not known."""
        ...

    async def complete(self, requests: Sequence[Request]) -> list[Completion]:
        """Answer siblings on one trunk, in order. A failed call is a completion with a fault, never an exception."""
        ...

    async def close(self) -> None:
        """Free the model or the connections. Calling it twice is harmless."""
        ...


@runtime_checkable
class Splitting(Protocol):
    """An engine with BATCH that answers siblings in several calls.

    The client makes each call by itself, so that a reply is kept as soon as its call returns.
    """

    def split(self, requests: Sequence[Request]) -> list[list[int]]:
        """Group the indices of the requests that go into one call; every index occurs once."""
        ...


Ask = Callable[[Sequence[Request]], Awaitable[list[Completion]]]
"""Answers requests through cache, retries and accounting of one model role (judge, policy, reviser)."""


Calls = Mapping[str, Request]
"""Requests by cache key."""
Answer = Callable[[str, Completion], None]
"""Takes the final reply to a call, by its key."""


class Layer(Protocol):
    """One step of the client: takes calls and answers them."""

    async def complete(self, calls: Calls, answer: Answer) -> None:
        """Answer siblings. An exception means that no more calls can be made; one failed call is a completion."""
        ...


@lru_cache(maxsize=256)
def _identity_key(identity: EngineIdentity) -> str:
    described = [
        identity.engine,
        identity.model,
        identity.revision,
        identity.quantisation,
        *map(list, identity.detail),
    ]
    return hashlib.blake2b(sorted_json(described), digest_size=16).hexdigest()


def sorted_json(value: object) -> bytes:
    """Return a value as JSON with sorted keys, as keys and identities hold it; mappings need not be dicts."""
    return orjson.dumps(value, default=dict, option=orjson.OPT_SORT_KEYS)


def short_hash(text: str) -> str:
    """Return a 64-bit hash of a text, such as a chat template's, for an identity."""
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def closed_error() -> EngineError:
    """Return the error of an engine that gets a request after it was closed."""
    return EngineError(
        "the engine was called after it was closed", expected="an engine that is open"
    )
