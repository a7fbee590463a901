"""A completion as JSON and back: what the reply log, the cache and recordings hold.

Only what differs from the default is written. Reading is strict, so that a damaged record is an error
and never an empty reply.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from curate.engines.base import Completion, Fault, Usage

_FINISHES = ("stop", "length", "tool_calls", "error")
_FIELDS = {
    "text",
    "finish",
    "first_token",
    "exact_labels",
    "tool_calls",
    "usage",
    "fault",
}


def completion_to_json(completion: Completion) -> dict[str, Any]:
    """The completion as plain data; round-trips through `completion_from_json`."""
    row: dict[str, Any] = {"text": completion.text}
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
        ValueError, TypeError, KeyError: it is something else.
    """
    unknown = row.keys() - _FIELDS
    if unknown:
        raise ValueError(f"unknown fields {sorted(unknown)}")
    text, finish = row["text"], row.get("finish", "stop")
    if not isinstance(text, str) or finish not in _FINISHES:
        raise ValueError("text or finish is not what a reply has")
    fault = row.get("fault")
    return Completion(
        text=text,
        finish=finish,
        first_token=tuple(
            (str(token), float(logprob)) for token, logprob in row.get("first_token", ())
        ),
        exact_labels=bool(row.get("exact_labels", False)),
        tool_calls=tuple(row.get("tool_calls", ())),
        usage=Usage(*(int(count) for count in row.get("usage", ()))),
        fault=None if fault is None else Fault(fault[0], str(fault[1])),
    )
