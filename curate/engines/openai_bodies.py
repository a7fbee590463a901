"""What is sent to an OpenAI-compatible server, and what it says when it cannot answer.

Pure functions over a `Dialect`, so that each server's ways are tested without one.
"""

from __future__ import annotations

import email.utils
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from curate.engines.base import Request
from curate.engines.config import OpenAIConfig
from curate.engines.structured import strict
from curate.engines.wire import chat_body

CONTINUING = ("vllm", "sglang")
"""Servers that continue the last message when told to, and do not repeat it."""
RAW_LOGPROBS = ("vllm", "llamacpp")
"""Servers known to give log-probabilities from before temperature."""


@dataclass(frozen=True, slots=True)
class Dialect:
    """How this server is spoken to; found out once, when the engine is opened.

    Attributes:
        flavour: `vllm`, `sglang`, `llamacpp`, or what else /models says; empty when unknown.
        has_prefill: whether a begun reply is sent.
        limit_field: the name of the reply's token limit.
    """

    flavour: str = ""
    has_prefill: bool = False
    limit_field: str = "max_tokens"


def to_body(request: Request, config: OpenAIConfig, dialect: Dialect) -> dict[str, Any]:
    """A request in this server's dialect."""
    body = {"model": config.model, **chat_body(request)}
    if dialect.limit_field != "max_tokens":
        body[dialect.limit_field] = body.pop("max_tokens")
    if request.temperature > 0 or request.sample:
        body["seed"] = request.sample
    if dialect.flavour == "llamacpp":
        # Its own defaults would narrow what is sampled beyond what the request says.
        body["top_k"], body["min_p"] = 0, 0.0
    if config.chat_template_kwargs:
        body["chat_template_kwargs"] = config.chat_template_kwargs
    if request.labels:
        body["logprobs"], body["top_logprobs"] = True, config.top_logprobs
        if request.max_tokens == 1 and dialect.flavour not in RAW_LOGPROBS:
            # Only the distribution is read; at 1 it is the model's own wherever it is taken.
            body["temperature"] = 1.0
            body.pop("top_p", None)
            body.pop("seed", None)
    if request.schema is not None:
        body["response_format"] = {
            "type": "json_schema",
            "json_schema": {"name": "reply", "strict": True, "schema": strict(request.schema)},
        }
    elif request.prefill and dialect.has_prefill:
        body["messages"].append({"role": "assistant", "content": request.prefill})
        if dialect.flavour in CONTINUING:
            body |= {"add_generation_prompt": False, "continue_final_message": True}
    return with_extra(body, config)


def with_extra(body: dict[str, Any], config: OpenAIConfig) -> dict[str, Any]:
    """The body with the recipe's own fields; its nulls take fields out."""
    if not config.extra_body:
        return body
    body |= config.extra_body
    return {name: value for name, value in body.items() if value is not None}


def read_message(data: bytes) -> tuple[str, str]:
    """Message and code of an error body, in any of the forms that servers use."""
    try:
        body = orjson.loads(data)
    except ValueError:
        return data[:300].decode(errors="replace"), ""
    if isinstance(body, Mapping):
        error = body.get("error") or body
        if isinstance(error, str):
            return error, ""
        if isinstance(error, Mapping):
            message = error.get("message") or error.get("detail") or error
            code = " ".join(str(error[name]) for name in ("code", "type") if error.get(name))
            return str(message), str(error.get("code") or code)
    return str(body)[:300], ""


def read_retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds to wait, from `retry-after-ms` or `Retry-After` (seconds or a date)."""
    named = {name.lower(): value for name, value in headers.items()}
    try:
        if "retry-after-ms" in named:
            return max(0.0, float(named["retry-after-ms"]) / 1000)
        value = named.get("retry-after")
        if value is None:
            return None
        if value.strip().replace(".", "", 1).isdigit():
            return float(value)
        return max(0.0, email.utils.parsedate_to_datetime(value).timestamp() - time.time())
    except (ValueError, TypeError):
        return None
