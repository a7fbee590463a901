"""The OpenAI chat form on the wire: request to body, body to completion, error to fault.

Pure functions, shared by the engines that speak this form (`llamacpp` in process, `openai` over HTTP),
so that they are tested without a model or a socket.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from operator import itemgetter
from typing import Any, Literal

from curate.engines.base import Completion, Fault, Request, Usage

KEPT_TOKENS = 20
"""How many of a first token's alternatives are kept beside those that spell a wanted label."""

# The same fact in the words of OpenAI, vLLM, SGLang, llama.cpp, TGI, Anthropic, Mistral and Gemini.
_OVERFLOW = re.compile(
    r"context_length_exceeded|exceed_context_size"
    r"|(?:maximum|model'?s?) context (?:length|window)|available context size|context size has been exceeded"
    r"|longer than the (?:maximum model|model'?s context) length|max_model_len"
    r"|`?inputs`? (?:tokens \+ `?max_new_tokens`? )?must (?:have less than|be <=)"
    r"|prompt is too long|input token count .{0,40}exceeds|reduce the length of the (?:messages|prompt)",
    re.IGNORECASE,
)
_REFUSED = re.compile(r"content_filter|content_policy|content management policy", re.IGNORECASE)
_DETAIL_CHARS = 500


def chat_body(request: Request) -> dict[str, Any]:
    """The fields of `/chat/completions` that every server knows, prefill and schema apart."""
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
        reply: the parsed body; anything that is not such a reply gives a `server` fault.
        request: what was asked.
        echoed: a prefill that the server may repeat in front of the text.
    """
    try:
        choice = reply["choices"][0]
        message = choice["message"]
        text = message.get("content") or ""
        tool_calls = tuple(message.get("tool_calls") or ())
        refusal = message.get("refusal")
        first_token = read_first_token(choice.get("logprobs"), request) if request.labels else ()
        usage = read_usage(reply.get("usage"))
        reason = choice.get("finish_reason")
    except (KeyError, IndexError, TypeError, AttributeError, ValueError) as error:
        return failed("server", f"the reply is not a chat completion: {error!r}")
    if not isinstance(text, str):
        return failed("server", f"the reply's content is {type(text).__name__}, not text")
    if reason in ("abort", "error"):
        return failed("server", f"the server ended the reply with finish_reason {reason!r}")
    if refusal or reason == "content_filter":
        detail = str(refusal or "finish_reason content_filter")[:_DETAIL_CHARS]
        return Completion(finish="error", usage=usage, fault=Fault("refused", detail))
    finish: Literal["stop", "length", "tool_calls"] = "stop"
    if reason == "length":
        finish = "length"
    elif tool_calls:
        finish = "tool_calls"
    return Completion(
        text=text.removeprefix(echoed),
        finish=finish,
        first_token=first_token,
        tool_calls=tool_calls,
        usage=usage,
    )


def read_usage(usage: Mapping[str, Any] | None) -> Usage:
    """Token counts; what a server does not report is 0."""
    if not usage:
        return Usage()
    details = usage.get("prompt_tokens_details") or {}
    return Usage(
        prompt_tokens=int(usage.get("prompt_tokens") or 0),
        cached_tokens=int(details.get("cached_tokens") or 0),
        completion_tokens=int(usage.get("completion_tokens") or 0),
    )


def read_first_token(
    logprobs: Mapping[str, Any] | None, request: Request
) -> tuple[tuple[str, float], ...]:
    """The first token's alternatives from a chat choice's `logprobs`; see `keep_first_token`."""
    content = (logprobs or {}).get("content")
    if not content:
        return ()
    first = content[0]
    # Different tokens may read the same (bytes of a character, variants of a blank): all are kept.
    pairs = [(str(top["token"]), float(top["logprob"])) for top in first.get("top_logprobs") or ()]
    # The sampled token comes along even where it is not among the most likely ones. Where it is, the
    # list's figure stands: a grammar changes the sampled token's own.
    sampled = first["token"]
    if not any(token == sampled for token, _ in pairs):
        pairs.append((str(sampled), float(first["logprob"])))
    return keep_first_token(pairs, request)


def keep_first_token(
    pairs: list[tuple[str, float]], request: Request
) -> tuple[tuple[str, float], ...]:
    """The most likely ones and all that spell a wanted label, most likely first."""
    pairs.sort(key=_logprob, reverse=True)
    if len(pairs) <= KEPT_TOKENS:
        return tuple(pairs)
    wanted = {label.strip().casefold() for label in request.labels}
    rest = (pair for pair in pairs[KEPT_TOKENS:] if pair[0].strip().casefold() in wanted)
    return (*pairs[:KEPT_TOKENS], *rest)


_logprob = itemgetter(1)


def failed(kind: Any, detail: str, retry_after: float | None = None) -> Completion:
    """A completion that is only a fault; the detail is bounded, since servers quote whole prompts."""
    return Completion(finish="error", fault=Fault(kind, detail[:_DETAIL_CHARS], retry_after))


def read_error(
    status: int, message: str, *, retry_after: float | None = None, code: str = ""
) -> Completion:
    """The fault that an HTTP status and its message stand for."""
    said = f"{code} {message}" if code else message
    detail = f"HTTP {status}: {message}"
    if status in (400, 413, 422) or status >= 500:
        # Some servers report an over-long prompt as their own failure; it is the caller's to mend.
        if _OVERFLOW.search(said):
            return failed("context_overflow", detail)
        if status < 500:
            return failed("refused" if _REFUSED.search(said) else "bad_request", detail)
    if status in (401, 402, 403):  # 402: the account is used up
        return failed("auth", detail)
    if status in (408, 504):
        return failed("timeout", detail, retry_after)
    if status == 429:
        # A used-up account says 429 as well, and no waiting mends it.
        kind = "auth" if "insufficient_quota" in said else "rate_limited"
        return failed(kind, detail, retry_after)
    if status >= 500:
        return failed("server", detail, retry_after)
    return failed("bad_request", detail)
