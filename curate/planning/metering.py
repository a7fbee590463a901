"""A stand-in for a model that answers at once and counts what it was asked.

Stage functions run against it as they run against a model, so what is counted follows windows, ledgers,
modes and question wordings by construction. Replies are the likely ones in length and as short a value as
the schema allows in form; what they say is of no account, except that a fork goes all its way.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import orjson

from curate.engines.base import Completion, Request

CHARACTERS_PER_TOKEN = 4.0
FREE_REPLY_TOKENS = 100
"""Assumed length of a reply in words that nothing else bounds."""
_SENTENCE = "a sentence of the usual length about what went wrong in it"


@runtime_checkable
class Tokens(Protocol):
    """What `engines.tokens.PromptTokens` offers: the prompt as the model gets it, and its token ids."""

    def prompt_text(self, request: Request) -> str:
        """The rendered prompt."""
        ...

    def encode(self, text: str) -> list[int]:
        """Token ids of a rendered text."""
        ...


@dataclass(frozen=True, slots=True)
class TokenCounter:
    """How requests become texts and texts become token counts.

    Attributes:
        render: the text a model is given for a request.
        count: tokens of a text; additive enough for texts to be counted piece by piece.
        described: said beside every figure that rests on it.
    """

    render: Callable[[Request], str]
    count: Callable[[str], float]
    described: str


def token_counter(engine: object) -> TokenCounter:
    """The engine's own tokenizer where it is at hand in this process, else 4 characters a token."""
    prompts = getattr(engine, "prompts", None)
    if isinstance(prompts, Tokens):
        encode = prompts.encode
        return TokenCounter(
            prompts.prompt_text, lambda text: float(len(encode(text))), "the judge's own tokenizer"
        )
    return TokenCounter(
        plain_text, lambda text: len(text) / CHARACTERS_PER_TOKEN, "4 characters a token"
    )


def plain_text(request: Request) -> str:
    """Everything of a request that a model reads, without a chat template's additions."""
    parts = [orjson.dumps([dict(tool) for tool in request.tools]).decode() if request.tools else ""]
    for message in request.messages:
        parts.append(str(message.get("content") or ""))
        if message.get("tool_calls"):
            parts.append(orjson.dumps(list(message["tool_calls"])).decode())
    return "".join(parts) + request.prefill


@dataclass(frozen=True, slots=True)
class Load:
    """What one dialogue asks of one model; tokens may be fractions of one when they are guessed."""

    requests: float = 0
    prompt: float = 0
    prefilled: float = 0
    completion: float = 0

    def __add__(self, other: Load) -> Load:
        return Load(
            self.requests + other.requests,
            self.prompt + other.prompt,
            self.prefilled + other.prefilled,
            self.completion + other.completion,
        )

    def times(self, factor: float) -> Load:
        """The load of so many of it."""
        return Load(
            self.requests * factor,
            self.prompt * factor,
            self.prefilled * factor,
            self.completion * factor,
        )


@dataclass(slots=True)
class Meter:
    """An `Ask` that answers by itself and counts; `take` gives the count since the last `take`.

    Attributes:
        counter: how tokens are counted.
        scores_high: scores are the best there are instead of the worst. A fork's original has to score
            badly and its candidates well, or it would end before everything has been asked.
        on_request: told of each request.
    """

    counter: TokenCounter
    scores_high: bool = False
    on_request: Callable[[Request], None] | None = None
    _load: Load = field(default_factory=Load)
    _last: str = ""
    _pieces: list[tuple[int, float]] = field(default_factory=list)

    async def __call__(self, requests: Sequence[Request]) -> list[Completion]:
        """Answer siblings, in order."""
        return [self._answer(request) for request in requests]

    def take(self) -> Load:
        """What was asked since the last time."""
        load, self._load = self._load, Load()
        return load

    def _answer(self, request: Request) -> Completion:
        if self.on_request is not None:
            self.on_request(request)
        text = self.counter.render(request)
        prompt, prefilled = self._measure(text)
        completion = self._reply(request, text)
        tokens = 1.0 if request.labels else self.counter.count(completion.text)
        self._load += Load(1, prompt, prefilled, tokens)
        return completion

    def _reply(self, request: Request, text: str) -> Completion:
        if request.labels:
            best = request.labels[-1 if self.scores_high else 0]
            first = tuple((label, -0.1 if label == best else -4.0) for label in request.labels)
            return Completion(text=best, first_token=first)
        if request.schema is not None:
            value = likely_instance(request.schema, last=self.scores_high)
            return Completion(text=orjson.dumps(value).decode())
        if request.purpose.startswith("adherence") or request.purpose.endswith(".role"):
            return Completion(text="YES")
        # A number of its own makes each reply differ in substance from the others, or a fork would drop
        # candidates as duplicates.
        number = zlib.crc32(f"{request.sample} {text}".encode())
        words = int(min(request.max_tokens, FREE_REPLY_TOKENS) * CHARACTERS_PER_TOKEN / 5)
        return Completion(text=f"{number} " + "word " * words)

    def _measure(self, text: str) -> tuple[float, float]:
        """Tokens of a prompt, and of what it does not share with the start of the one before it.

        The text before is kept in pieces with their counts, so that only what is new is tokenised.
        """
        shared = len(os.path.commonprefix((text, self._last)))  # noqa: RUF071 (characters are meant)
        self._last = text
        while self._pieces and self._pieces[-1][0] > shared:
            self._pieces.pop()
        start = self._pieces[-1][0] if self._pieces else 0
        if start < shared:
            self._pieces.append((shared, self.counter.count(text[start:shared])))
        new = self.counter.count(text[shared:])
        known = sum(count for _, count in self._pieces)
        self._pieces.append((len(text), new))
        return known + new, new


def likely_instance(schema: Mapping[str, Any], *, last: bool = False) -> Any:
    """A value that the schema allows, of a likely size; covers the keywords that our own schemas use.

    Args:
        schema: of the reply.
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
