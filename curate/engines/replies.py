"""Completions as JSON and back, the form in which caches and recordings store replies.

Fields that have their default are left out. Reading is strict, so that a damaged record is an error and never an
empty reply.
"""

# No `from __future__ import annotations`: pydantic reads the types below as they stand.

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal, Required

import orjson
from pydantic import ConfigDict, TypeAdapter, with_config
from typing_extensions import TypedDict

from curate.engines.base import Completion, Fault, FaultKind, Usage
from curate.engines.chat_completions import MOST_LOGPROB, Count, Logprob, failed

_LOWEST = -9999.0
"""Stands for minus infinity, which JSON cannot hold; vLLM writes the same number."""


@with_config(ConfigDict(extra="forbid"))
class _Kept(TypedDict, total=False):
    text: Required[str]
    thought: str
    finish: Literal["stop", "length", "tool_calls", "error"]
    first_token: tuple[tuple[str, Logprob], ...]
    exact_labels: bool
    tool_calls: tuple[dict[str, Any], ...]
    usage: tuple[Count, Count, Count]
    fault: tuple[FaultKind, str] | None


_KEPT = TypeAdapter(_Kept)


def storable(completion: Completion) -> Completion:
    """Return a completion that can be stored: minus infinity replaced, a `malformed_reply` for other bad log-probabilities.

    Engines over HTTP check the whole reply where they read it (`engines.chat_completions`). A model in this process
    cannot give text for a number, but it can give NaN and minus infinity.
    """
    pairs = completion.first_token
    if all(_LOWEST <= value <= MOST_LOGPROB for _, value in pairs):
        return completion
    for token, value in pairs:
        if math.isnan(value) or value > MOST_LOGPROB:
            return failed("malformed_reply", f"the log-probability of {token!r} is {value}")
    if not any(math.isinf(value) for _, value in pairs):
        return completion
    return replace(
        completion, first_token=tuple((token, max(value, _LOWEST)) for token, value in pairs)
    )


def completion_to_json(completion: Completion) -> dict[str, Any]:
    """Return the completion as plain data, which `completion_from_json` reads back."""
    row: dict[str, Any] = {"text": completion.text}
    if completion.thought:
        row["thought"] = completion.thought
    if completion.finish != "stop":
        row["finish"] = completion.finish
    if completion.first_token:
        row["first_token"] = completion.first_token
    if completion.exact_labels:
        row["exact_labels"] = True
    if completion.tool_calls:
        row["tool_calls"] = [dict(call) for call in completion.tool_calls]
    usage = completion.usage
    counts = (usage.prompt_tokens, usage.cached_tokens, usage.completion_tokens)
    if any(counts):
        row["usage"] = counts
    if completion.fault is not None:
        row["fault"] = [completion.fault.kind, completion.fault.detail]
    return row


def completion_from_json(row: Mapping[str, Any]) -> Completion:
    """Read what `completion_to_json` wrote.

    Raises:
        ValueError: the data has another form.
    """
    fields: dict[str, Any] = {**_KEPT.validate_python(row)}
    fields["usage"] = Usage(*fields.get("usage", ()))
    if fields.get("fault") is not None:
        fields["fault"] = Fault(*fields["fault"])
    return Completion(**fields)


def read_stored(reply: bytes) -> Completion | None:
    """Return the completion of some JSON; None where it is damaged."""
    try:
        return completion_from_json(orjson.loads(reply))
    except ValueError:
        return None
