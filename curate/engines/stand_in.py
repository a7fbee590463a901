"""A stand-in for a model: answers at once, in the form and length of a model's replies, and records the requests.

Stages run against it as they run against a model, so their expected calls follow windows, ledgers, modes and
question wordings by construction. The content of its replies has no meaning.
"""

from __future__ import annotations

import zlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import orjson

from curate.engines.base import Completion, Request
from curate.engines.thinking import THOUGHT

T = TypeVar("T")

CHARACTERS_PER_TOKEN = 4.0
FREE_REPLY_TOKENS = 100
"""Assumed length of a reply in words that has no other bound."""
_SENTENCE = "a sentence of the usual length about what went wrong in it"

LookUp = Callable[[str, Request], tuple[Request, Completion | None]]
"""From a model's role and a request: the request as it is sent, and the reply kept of it, if there is one."""


@dataclass(frozen=True, slots=True)
class Expected:
    """A call that a model is expected to get.

    Attributes:
        role: which model's: judge, policy, reviser, metrics or, of several judges, one of `Models.judges_by_role`.
        reply: a reply of the expected length.
        share: of the dialogues that it is expected for, 0-1.
    """

    role: str
    request: Request
    reply: Completion
    share: float = 1.0


def nothing_kept(_: str, request: Request) -> tuple[Request, Completion | None]:
    """Return the request unchanged, without a kept reply."""
    return request, None


@dataclass(slots=True)
class StandIn:
    """An `Ask` that answers without a model.

    Attributes:
        role: the model that it replaces.
        look_up: answers before it does, where a reply is kept.
        calls: expected calls, in order; may be shared by the stand-ins of several roles.
        share: of the dialogues that it is called for, 0-1.
        gives_last: of a choice it takes the last option instead of the first; of a scale the best score.
    """

    role: str = "judge"
    look_up: LookUp = nothing_kept
    calls: list[Expected] = field(default_factory=list)
    gives_last: bool = False
    share: float = 1.0

    async def __call__(self, requests: Sequence[Request]) -> list[Completion]:
        """Answer siblings, in order."""
        return [self._answer(request) for request in requests]

    def _answer(self, request: Request) -> Completion:
        request, kept = self.look_up(self.role, request)
        if kept is not None:
            return kept
        reply = self._reply(request)
        self.calls.append(Expected(self.role, request, reply, self.share))
        return reply

    def _reply(self, request: Request) -> Completion:
        if request.labels:
            best = request.labels[-1 if self.gives_last else 0]
            first = tuple((label, -0.1 if label == best else -4.0) for label in request.labels)
            return Completion(text=best, first_token=first)
        if request.schema is not None:
            value = likely_instance(request.schema, last=self.gives_last)
            return Completion(text=orjson.dumps(value).decode())
        if request.purpose.startswith("adherence") or request.purpose.endswith(".role"):
            return Completion(text="YES")
        if request.purpose.endswith(THOUGHT):
            # A model that thinks uses the room it has.
            return Completion(text="word " * int(request.max_tokens * CHARACTERS_PER_TOKEN / 5))
        # A number makes each reply differ in substance from the others, as candidates do.
        number = zlib.crc32(f"{request.sample} {plain_text(request)}".encode())
        words = int(min(request.max_tokens, FREE_REPLY_TOKENS) * CHARACTERS_PER_TOKEN / 5)
        return Completion(text=f"{number} " + "word " * words)


def plain_text(request: Request) -> str:
    """Return the whole text of a request that a model reads, without a chat template's additions."""
    parts = [orjson.dumps([dict(tool) for tool in request.tools]).decode() if request.tools else ""]
    for message in request.messages:
        parts.append(str(message.get("content") or ""))
        if message.get("tool_calls"):
            parts.append(orjson.dumps(list(message["tool_calls"])).decode())
    return "".join(parts) + request.thought + request.prefill


def settled(work: Awaitable[T]) -> T:
    """Return the result of a coroutine that awaits nothing but stand-ins."""
    steps = work.__await__()
    try:
        next(steps)
    except StopIteration as end:
        result: T = end.value
        return result
    raise AssertionError("a stage that is only expected waits for something")


def likely_instance(schema: Mapping[str, Any], *, last: bool = False) -> Any:
    """Return a value of likely size that the schema allows; covers the keywords of curate's own schemas.

    Args:
        last: take the last value of each enumeration instead of the first.
    """
    if "const" in schema:
        return schema["const"]
    if "enum" in schema:
        return schema["enum"][-1 if last else 0]
    for union in ("anyOf", "oneOf"):
        if union in schema:
            return likely_instance(schema[union][0], last=last)
    kind = schema.get("type")
    match kind[0] if isinstance(kind, list) else kind:
        case "object":
            properties = schema.get("properties", {})
            return {
                key: likely_instance(properties[key], last=last)
                for key in schema.get("required", ())
            }
        case "array":
            number = schema.get("minItems", 0)
            return [likely_instance(schema["items"], last=last) for _ in range(number)]
        case "integer" | "number":
            return schema.get("maximum" if last else "minimum", 0)
        case "boolean":
            return last
        case "null":
            return None
        case _:
            return _SENTENCE
