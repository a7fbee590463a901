"""The form of OpenAI's `/chat/completions`: request to body, body to completion, error to fault.

Pure functions, shared by the engines that use it (`llamacpp` in process, `openai` over HTTP), and tested without
a model or a socket. A reply is validated here, once, against the types below; one that does not fit them is
a `malformed_reply`.
"""

# No `from __future__ import annotations`: pydantic reads the types below as they stand.

import re
from collections.abc import Iterable
from dataclasses import replace
from operator import itemgetter
from typing import Annotated, Any, Literal, Required

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError, with_config
from typing_extensions import TypedDict

from curate.engines.base import Completion, Fault, FaultKind, Request, Usage

MOST_LOGPROB = 0.01
"""Largest log-probability that is accepted: rounding may lift that of a certain token a little above 0."""
Logprob = Annotated[float, Field(strict=True, le=MOST_LOGPROB, allow_inf_nan=False)]
"""A finite log-probability, as a number and not as text."""
Count = Annotated[int, Field(ge=0, le=10**9)]
"""Tokens of one call; the bound lies above every context."""


class _Alternative(TypedDict):
    token: str
    logprob: Logprob


class _FirstToken(_Alternative, total=False):
    top_logprobs: Required[Annotated[list[_Alternative], Field(min_length=1)]]


class _Logprobs(TypedDict):
    content: Annotated[list[Any], Field(min_length=1)]
    """Only the first entry is used, so only that is validated."""


@with_config(ConfigDict(extra="allow"))
class _Function(TypedDict, total=False):
    name: Required[str]
    arguments: str | dict[str, Any] | None


@with_config(ConfigDict(extra="allow"))
class ChatToolCall(TypedDict, total=False):
    """A tool call in OpenAI's form; further fields are kept."""

    function: Required[_Function]


class _Message(TypedDict, total=False):
    content: str | None
    tool_calls: list[ChatToolCall] | None
    refusal: str | None
    reasoning_content: str | None
    reasoning: Any


class _Choice(TypedDict, total=False):
    message: Required[_Message]
    finish_reason: str | None
    logprobs: Any


class _CountDetails(TypedDict, total=False):
    cached_tokens: Count | None


class WireUsage(TypedDict, total=False):
    """Token counts as servers report them."""

    prompt_tokens: Count | None
    completion_tokens: Count | None
    prompt_tokens_details: _CountDetails | None


class _Chat(TypedDict, total=False):
    choices: Required[Annotated[list[_Choice], Field(min_length=1)]]
    usage: WireUsage | None


_CHAT = TypeAdapter(_Chat)
_LOGPROBS = TypeAdapter(_Logprobs)
_FIRST_TOKEN = TypeAdapter(_FirstToken)

KEPT_TOKENS = 20
"""Number of a first token's alternatives that are kept, besides those that spell a requested label."""

# The wording of OpenAI, vLLM, SGLang, llama.cpp, TGI, Anthropic, Mistral and Gemini.
_OVERFLOW = re.compile(
    r"context_length_exceeded|exceed_context_size"
    r"|(?:maximum|model'?s?) context (?:length|window)|available context size|context size has been exceeded"
    r"|longer than the (?:maximum model|model'?s context) length|max_model_len"
    r"|`?inputs`? (?:tokens \+ `?max_new_tokens`? )?must (?:have less than|be <=)"
    r"|prompt is too long|input token count .{0,40}exceeds|reduce the length of the (?:messages|prompt)",
    re.IGNORECASE,
)
_REFUSED = re.compile(
    r"content_filter|content_policy|content management policy|requires moderation", re.IGNORECASE
)
_DETAIL_CHARS = 500


def chat_body(request: Request) -> dict[str, Any]:
    """Return the request's fields of `/chat/completions` that every server knows, without prefill and schema."""
    body: dict[str, Any] = {
        "messages": [dict(message) for message in request.messages],
        "max_tokens": request.max_tokens,
        "temperature": request.temperature,
    }
    if request.top_p != 1.0:
        body["top_p"] = request.top_p
    if request.tools:
        body["tools"] = [dict(tool) for tool in request.tools]
    return body


def read_chat(reply: Any, request: Request, *, echoed: str = "") -> Completion:
    """Read a `/chat/completions` reply.

    Args:
        reply: the parsed body. A `malformed_reply` fault is returned for anything that is no such reply, for
            requested log-probabilities that are missing, and for content that is null without tool calls, a cut
            within the thinking, or thinking alone.
        echoed: a prefill that the server may repeat before the text.
    """
    try:
        chat = _CHAT.validate_python(reply)
    except ValidationError as error:
        return malformed("the reply is not a chat completion", error)
    choice = chat["choices"][0]
    message = choice["message"]
    usage = read_usage(chat.get("usage"))
    reason = choice.get("finish_reason")
    if reason in ("abort", "error"):
        return failed("server", f"the server ended the reply with finish_reason {reason!r}")
    refusal = message.get("refusal")
    if refusal or reason == "content_filter":
        detail = str(refusal or "finish_reason content_filter")
        return replace(failed("refused", detail), usage=usage)
    first_token: tuple[tuple[str, float], ...] = ()
    if request.labels:
        try:
            first_token = read_first_token(choice.get("logprobs"), request)
        except ValueError as error:
            return malformed("the reply cannot be used", error)
    tool_calls = tuple(message.get("tool_calls") or ())
    text = message.get("content")
    thought = message.get("reasoning_content") or message.get("reasoning") or ""
    if text is None and not (tool_calls or first_token or reason == "length" or thought):
        return failed("malformed_reply", "the reply's content is null and it calls no tool")
    finish: Literal["stop", "length", "tool_calls"] = "stop"
    if reason == "length":
        finish = "length"
    elif tool_calls:
        finish = "tool_calls"
    return Completion(
        text=(text or "").removeprefix(echoed),
        thought=thought if isinstance(thought, str) else "",
        finish=finish,
        first_token=first_token,
        tool_calls=tool_calls,
        usage=usage,
    )


def read_usage(usage: WireUsage | None) -> Usage:
    """Return the token counts; those that a server does not report are 0."""
    if not usage:
        return Usage()
    details = usage.get("prompt_tokens_details") or {}
    return Usage(
        prompt_tokens=usage.get("prompt_tokens") or 0,
        cached_tokens=details.get("cached_tokens") or 0,
        completion_tokens=usage.get("completion_tokens") or 0,
    )


def read_first_token(logprobs: Any, request: Request) -> tuple[tuple[str, float], ...]:
    """Return the first token's alternatives from a chat choice's `logprobs`, reduced by `keep_first_token`.

    Raises:
        ValueError: they are missing, or have another form.
    """
    if logprobs is None:
        raise ValueError("the requested log-probabilities are missing")
    first = _FIRST_TOKEN.validate_python(_LOGPROBS.validate_python(logprobs)["content"][0])
    # Different tokens may have the same text (bytes of a character, kinds of blanks): all are kept.
    pairs = [(top["token"], top["logprob"]) for top in first["top_logprobs"]]
    # The sampled token is added where it is not among the most likely ones. Otherwise the list's figure is used:
    # a grammar changes the figure that is given for the sampled token itself.
    sampled = first["token"]
    if not any(token == sampled for token, _ in pairs):
        pairs.append((sampled, first["logprob"]))
    return keep_first_token(pairs, request)


def keep_first_token(
    pairs: list[tuple[str, float]], request: Request
) -> tuple[tuple[str, float], ...]:
    """Return the most likely pairs and all that spell a requested label, most likely first."""
    pairs.sort(key=_logprob, reverse=True)
    if len(pairs) <= KEPT_TOKENS:
        return tuple(pairs)
    labels = {label.strip().casefold() for label in request.labels}
    rest = (pair for pair in pairs[KEPT_TOKENS:] if pair[0].strip().casefold() in labels)
    return (*pairs[:KEPT_TOKENS], *rest)


def label_logprobs(pairs: Iterable[tuple[str, float]]) -> tuple[tuple[str, float], ...]:
    """Return label tokens and their log-probabilities, most likely first, as a completion has them."""
    return tuple(sorted(pairs, key=_logprob, reverse=True))


_logprob = itemgetter(1)


def failed(
    kind: FaultKind, detail: str, retry_after: float | None = None, status: int | None = None
) -> Completion:
    """Return a completion that is a fault; its detail is cut to 500 characters, since servers quote whole prompts."""
    return Completion(
        finish="error", fault=Fault(kind, detail[:_DETAIL_CHARS], retry_after, status)
    )


def cut_by_context(usage: Usage, request: Request, context: int) -> Completion | None:
    """Return the fault of a cut reply that reached the end of the context before its own limit; None for others."""
    prompt, reply = usage.prompt_tokens, usage.completion_tokens
    if reply >= request.max_tokens or prompt + reply < context:
        return None
    return failed(
        "context_overflow",
        f"the prompt of {prompt} tokens left room for {reply} of {request.max_tokens} reply tokens "
        f"in a context of {context}",
    )


def overflow(prompt: int, context: int) -> Completion | None:
    """Return the fault of a prompt, in tokens, that leaves no room for a reply; None where there is room."""
    if prompt < context:
        return None
    return failed(
        "context_overflow",
        f"the prompt of {prompt} tokens does not fit into a context of {context}",
    )


def malformed(problem: str, error: ValueError) -> Completion:
    """Return the fault of a 200 reply that is not of the requested form."""
    detail = str(error)
    if isinstance(error, ValidationError):
        first = error.errors(include_url=False, include_context=False)[0]
        place = ".".join(map(str, first["loc"])) or "the whole"
        detail = f"{place}: {first['msg']}, not {str(first['input'])[:80]!r}"
    return failed("malformed_reply", f"{problem}: {detail}")


def read_error(
    status: int, message: str, *, retry_after: float | None = None, code: str = ""
) -> Completion:
    """Return the fault of an HTTP error, from its status, message and error code."""
    kind = _kind_of_error(status, f"{code} {message}" if code else message)
    waits = kind in ("timeout", "rate_limited", "server") or status == 429
    return failed(kind, f"HTTP {status}: {message}", retry_after if waits else None, status)


def _kind_of_error(status: int, text: str) -> FaultKind:
    # Some servers report an over-long prompt as a failure of their own (5xx).
    if (status in (400, 413, 422) or status >= 500) and _OVERFLOW.search(text):
        return "context_overflow"
    if status in (400, 403, 413, 422) and _REFUSED.search(text):
        return "refused"
    if status in (401, 402, 403):  # 402: the account is used up
        return "auth"
    if status == 429:
        # A used-up account says 429 as well, and no waiting helps.
        return "auth" if "insufficient_quota" in text else "rate_limited"
    if status in (408, 504):
        return "timeout"
    return "server" if status >= 500 else "bad_request"
