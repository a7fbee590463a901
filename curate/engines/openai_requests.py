"""Requests to an OpenAI-compatible server, and the errors that it returns.

Pure functions over a `Dialect`, so that each server's ways are tested without one.

Label reads go as token ids where the recipe names the tokenizer: one `/completions` call carries all
questions about a dialogue, so that a dozen of them cost one HTTP call and no template on the server. vLLM gives
the log-probabilities of exactly the tokens that spell a label (`logprob_token_ids`), from the full
softmax: none is missing because others were likelier. Servers without that field give the most likely
tokens, as they do over chat. Text, JSON and tool calls stay with `/chat/completions`, where the server's
own parsers are.
"""

# No `from __future__ import annotations`: pydantic reads the types below as they stand.

import email.utils
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal, Required

import orjson
from pydantic import Field, TypeAdapter
from typing_extensions import TypedDict

from curate.engines.base import Completion, Request, Usage
from curate.engines.chat_completions import (
    Logprob,
    WireUsage,
    chat_body,
    keep_first_token,
    label_logprobs,
    malformed,
    read_first_token,
    read_usage,
)
from curate.engines.config import OpenAIConfig
from curate.engines.structured import strict

CONTINUING = ("vllm", "sglang")
"""Servers that continue the last message when told to, and do not repeat it."""
RAW_LOGPROBS = ("vllm", "llamacpp")
"""Servers known to give log-probabilities from before temperature."""


@dataclass(frozen=True, slots=True)
class Dialect:
    """The request format of a server, determined once when the engine is opened.

    Attributes:
        flavour: `vllm`, `sglang`, `llamacpp`, or what else /models says; empty when unknown.
        has_prefill: whether a begun reply is sent.
        limit_field: the name of the reply's token limit.
        label_lists: how label reads go as lists of token ids: with the log-probabilities of the labels' own
            tokens, or of the most likely ones; empty where they go as chats.
    """

    flavour: str = ""
    has_prefill: bool = False
    limit_field: str = "max_tokens"
    label_lists: Literal["exact", "most likely", ""] = ""


def to_body(request: Request, config: OpenAIConfig, dialect: Dialect) -> dict[str, Any]:
    """Return the body of a request in this server's dialect."""
    body = {"model": config.model, **chat_body(request)}
    if dialect.limit_field != "max_tokens":
        body[dialect.limit_field] = body.pop("max_tokens")
    if request.temperature > 0 or request.sample:
        body["seed"] = request.seed
    if dialect.flavour == "llamacpp":
        # Its own defaults would narrow the sampling beyond the request.
        body["top_k"], body["min_p"] = 0, 0.0
    if config.reasoning_effort is not None:
        body["reasoning_effort"] = config.reasoning_effort
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
    """Return the body with the recipe's `extra_body`; a null there removes a field."""
    if not config.extra_body:
        return body
    body |= config.extra_body
    return {name: value for name, value in body.items() if value is not None}


def read_error_body(data: bytes) -> tuple[str, str]:
    """Return message and code of an error body, in any of the forms that servers use."""
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


def _seconds(date: str) -> float:
    return email.utils.parsedate_to_datetime(date).timestamp()


def read_retry_after(headers: Mapping[str, str]) -> float | None:
    """Return the seconds to wait, from `retry-after-ms` or `Retry-After` (seconds or a date).

    A date is compared with the server's own clock where the reply has its time: this machine's may be hours off.
    """
    named = {name.lower(): value for name, value in headers.items()}
    try:
        if "retry-after-ms" in named:
            return max(0.0, float(named["retry-after-ms"]) / 1000)
        value = named.get("retry-after")
        if value is None:
            return None
        if value.strip().replace(".", "", 1).isdigit():
            return float(value)
        now = _seconds(named["date"]) if "date" in named else time.time()
        return max(0.0, _seconds(value) - now)
    except (ValueError, TypeError):
        return None


MOST_LABEL_IDS = 128
"""vLLM's own bound of `logprob_token_ids` (MAX_LOGPROB_TOKEN_IDS in 0.32)."""
MOST_PROMPTS = 32
"""Prompts in a call: by then HTTP costs nothing, and a slow server still answers within its timeout."""
_TOKEN_ID = "token_id:"


class _CompletionChoice(TypedDict, total=False):
    index: int
    text: str | None
    finish_reason: str | None
    logprobs: Any


class _Completions(TypedDict, total=False):
    choices: Required[list[_CompletionChoice]]
    usage: WireUsage | None


_COMPLETIONS = TypeAdapter(_Completions)
_FIRST_TOKENS = TypeAdapter(
    Annotated[list[Annotated[dict[str, Logprob], Field(min_length=1)]], Field(min_length=1)]
)


def is_label_read(request: Request) -> bool:
    """Tell whether only the first token's distribution is read."""
    return bool(request.labels) and request.max_tokens == 1 and not request.schema


def group_requests(
    requests: Sequence[Request], label_tokens: Sequence[Mapping[int, str]]
) -> list[list[int]]:
    """Return the indices of the requests that go in one call each.

    Args:
        label_tokens: for each request the tokens that spell its labels; none for one that is no label read.
    """
    groups: list[list[int]] = []
    growing: dict[tuple[object, ...], tuple[list[int], set[int]]] = {}
    for index, request in enumerate(requests):
        if not is_label_read(request):
            groups.append([index])
            continue
        kind = (request.sample, request.temperature, request.affinity)
        group, ids = growing.get(kind, ([], set()))
        is_full = (
            len(group) == MOST_PROMPTS or len(ids | label_tokens[index].keys()) > MOST_LABEL_IDS
        )
        if not group or is_full:
            group, ids = growing[kind] = ([], set())
            groups.append(group)
        group.append(index)
        ids |= label_tokens[index].keys()
    return groups


def to_list_body(
    prompts: Sequence[Sequence[int]],
    request: Request,
    labels: Sequence[Mapping[int, str]],
    config: OpenAIConfig,
    dialect: Dialect,
) -> dict[str, Any]:
    """Return the body of a call for prompts that differ only in text, `request` being the first."""
    label_ids = sorted(set().union(*labels))
    body: dict[str, Any] = {
        "model": config.model,
        "prompt": prompts,
        "max_tokens": 1,
        "temperature": request.temperature,
        "logprobs": config.top_logprobs,
    }
    if request.temperature > 0 or request.sample:
        body["seed"] = request.seed
    if dialect.flavour == "llamacpp":
        body["top_k"], body["min_p"] = 0, 0.0
    if dialect.label_lists == "exact" and label_ids:
        body |= {
            "logprobs": len(label_ids),
            "logprob_token_ids": label_ids,
            "return_tokens_as_token_ids": True,
        }
    return with_extra(body, config)


def read_list(
    reply: Any,
    group: Sequence[Request],
    prompts: Sequence[Sequence[int]],
    labels: Sequence[Mapping[int, str]],
    dialect: Dialect,
) -> list[Completion]:
    """Return a completion for each prompt of a call; the same fault for all if the reply has another form."""
    try:
        validated = _COMPLETIONS.validate_python(reply)
        choices = _in_order(validated["choices"], len(group))
        # Servers report the cached tokens of one prompt of a list at most: a lower bound.
        cached = read_usage(validated.get("usage")).cached_tokens
        is_exact = dialect.label_lists == "exact" and any(labels)
        completions = [
            _read_choice(choice, request, label_ids if is_exact else None)
            for choice, request, label_ids in zip(choices, group, labels, strict=True)
        ]
    except ValueError as error:
        fault = malformed("the reply is not a list of completions for these prompts", error)
        return [fault] * len(group)
    usages = [Usage(len(prompt), 0, 1) for prompt in prompts]
    usages[-1] = replace(usages[-1], cached_tokens=min(cached, usages[-1].prompt_tokens))
    return [
        replace(completion, usage=usage)
        for completion, usage in zip(completions, usages, strict=True)
    ]


def _in_order(choices: list[_CompletionChoice], count: int) -> list[_CompletionChoice]:
    """Return the choices by index, one a prompt; as they stand where none has an index."""
    indices = [choice["index"] for choice in choices if "index" in choice]
    if not indices and len(choices) == count:
        return choices
    if len(indices) < len(choices) or sorted(indices) != list(range(count)):
        raise ValueError(f"{len(choices)} choices, numbered {indices}, for {count} prompts")
    return sorted(choices, key=lambda choice: choice["index"])


def _read_choice(
    choice: _CompletionChoice, request: Request, label_ids: Mapping[int, str] | None
) -> Completion:
    """Return one prompt's completion; `label_ids` are the requested tokens, None where none could be."""
    logprobs = choice.get("logprobs")
    if not isinstance(logprobs, dict) or not isinstance(logprobs.get("top_logprobs"), list):
        # llama.cpp: the form of chats. It passes over the ids it was given, so nothing here is exact.
        label_ids = None
        pairs = read_first_token(logprobs, request)
    else:
        top = _FIRST_TOKENS.validate_python(logprobs["top_logprobs"][:1])[0]
        if label_ids is None:
            pairs = keep_first_token(list(top.items()), request)
        else:
            by_id = {name.removeprefix(_TOKEN_ID): value for name, value in top.items()}
            if missing_ids := [index for index in label_ids if str(index) not in by_id]:
                raise ValueError(f"the log-probabilities of the tokens {missing_ids} are missing")
            pairs = label_logprobs((text, by_id[str(index)]) for index, text in label_ids.items())
    return Completion(
        text=choice.get("text") or "",
        finish="length" if choice.get("finish_reason") == "length" else "stop",
        first_token=pairs,
        exact_labels=label_ids is not None,
    )
