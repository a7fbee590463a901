"""A completion as JSON and back: what the response cache, the cache and recordings hold.

Only what differs from the default is written. Reading is strict, so that a damaged record is an error
and never an empty reply.
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
"""Stands for minus infinity, which is no JSON; what vLLM writes as well."""


@with_config(ConfigDict(extra="forbid"))
class _Kept(TypedDict, total=False):
    text: Required[str]
    thought: str
    finish: Literal["stop", "length", "tool_calls", "error"]
    first_token: list[tuple[str, Logprob]]
    exact_labels: bool
    tool_calls: list[dict[str, Any]]
    usage: tuple[Count, Count, Count]
    fault: tuple[FaultKind, str] | None


_KEPT = TypeAdapter(_Kept)


def checked(completion: Completion) -> Completion:
    """A reply of any engine, fit to be kept: a `malformed_reply` where its log-probabilities are none.

    Engines over a wire check all of a reply where they read it (`engines.chat_completions`). A model in this process
    can give no text for a number, but not-a-number and minus infinity.
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
    """The completion as plain data; round-trips through `completion_from_json`."""
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
        ValueError: it is something else.
    """
    kept = _KEPT.validate_python(row)
    fault = kept.get("fault")
    return Completion(
        text=kept["text"],
        thought=kept.get("thought", ""),
        finish=kept.get("finish", "stop"),
        first_token=tuple(kept.get("first_token", ())),
        exact_labels=kept.get("exact_labels", False),
        tool_calls=tuple(kept.get("tool_calls", ())),
        usage=Usage(*kept.get("usage", ())),
        fault=None if fault is None else Fault(*fault),
    )


def read_reply(reply: bytes) -> Completion | None:
    """A completion from its JSON; None where it is damaged."""
    try:
        return completion_from_json(orjson.loads(reply))
    except ValueError:
        return None
