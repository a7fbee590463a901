"""Taking personal data out of requests to a hosted model.

Only the request is changed: dialogues, records and exports keep their text. Personal data is replaced by its kind in
brackets, the same everywhere, so that a judge can still follow who gave what. Every string of a request goes through
it: contents, names, tool calls with their arguments, tool definitions down to the last enum, the start of the reply.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from curate.engines.base import Request
from curate.engines.layout import Chat, Trunk
from curate.engines.personal_data import PersonalData, replace_personal_data

Redact = Callable[[str], str]

_NO_IDENTIFIER = re.compile(r"[^\w-]+")


def redactor(kinds: Collection[PersonalData]) -> Redact | None:
    """Return a function that replaces these kinds of personal data in a text; None for no kinds."""
    if not kinds:
        return None
    return lambda text: replace_personal_data(text, kinds)


def redact_request(request: Request, redact: Redact) -> Request:
    """Return the request with `redact` applied to every string that is sent.

    Text that is JSON is decoded first, so that nothing hides behind an escape; where nothing changes it stays as it
    is. Names of tools and ids of calls stay such as servers take them, and equal where they were equal.
    """
    ids: dict[str, str] = {}
    trunk: Trunk | Chat
    if isinstance(request.trunk, Chat):
        trunk = Chat(tuple(_redact_message(one, redact, ids) for one in request.trunk.messages))
    else:
        neutralised = request.trunk.neutralised
        trunk = request.trunk.derived(redact, lambda text: Trunk(redact(text), neutralised))
    return replace(
        request,
        trunk=trunk,
        question=redact(request.question),
        prefill=redact(request.prefill),
        thought=redact(request.thought),
        schema=None if request.schema is None else _redact(request.schema, redact, is_schema=True),
        tools=tuple(_redact_tool(tool, redact) for tool in request.tools),
    )


def _redact_message(
    message: Mapping[str, Any], redact: Redact, ids: dict[str, str]
) -> Mapping[str, Any]:
    def field(name: str, value: Any) -> Any:
        match name:
            case "content":
                return _redact_content(value, redact)
            case "tool_calls":
                return value and [_redact_call(call, redact, ids) for call in value]
            case "tool_call_id":
                return _redact_id(value, redact, ids)
            case "name" if message.get("role") == "tool" and isinstance(value, str):
                return _redact_name(value, redact)
        return _redact(value, redact)

    return {name: field(name, value) for name, value in message.items()}


def _redact_content(content: Any, redact: Redact) -> Any:
    if isinstance(content, list):
        return [
            _redact_content(part, redact) if isinstance(part, str) else _redact(part, redact)
            for part in content
        ]
    return _redact_text(content, redact) if isinstance(content, str) else _redact(content, redact)


def _redact_call(call: Mapping[str, Any], redact: Redact, ids: dict[str, str]) -> Mapping[str, Any]:
    def field(name: str, value: Any) -> Any:
        if name == "id":
            return _redact_id(value, redact, ids)
        if name == "function" and isinstance(value, Mapping):
            return {
                key: _redact_name(inner, redact)
                if key == "name"
                else _redact_content(inner, redact)
                for key, inner in value.items()
            }
        return _redact(value, redact)

    return {name: field(name, value) for name, value in call.items()}


def _redact_tool(tool: Mapping[str, Any], redact: Redact) -> Mapping[str, Any]:
    redacted: dict[str, Any] = _redact(tool, redact)
    function = tool.get("function")
    if isinstance(function, Mapping) and "name" in function:
        redacted["function"] |= {"name": _redact_name(function["name"], redact)}
    if "name" in tool:
        redacted["name"] = _redact_name(tool["name"], redact)
    return redacted


def _redact_name(name: Any, redact: Redact) -> Any:
    """Return a name in the form that servers take: `call_[phone]` would be refused."""
    redacted = _redact(name, redact)
    return redacted if redacted == name else _NO_IDENTIFIER.sub("", str(redacted))


def _redact_id(value: Any, redact: Redact, ids: dict[str, str]) -> Any:
    """Return an id that holds personal data as a number; `ids` are those numbered so far."""
    if not isinstance(value, str) or redact(value) == value:
        return value
    return ids.setdefault(value, f"call_{len(ids) + 1}")


def _redact_text(text: str, redact: Redact) -> str:
    if text.lstrip()[:1] not in ("{", "["):
        return redact(text)
    try:
        value = json.loads(text)
        redacted = _redact(value, redact)
    except (ValueError, RecursionError):
        return redact(text)
    return text if redacted == value else json.dumps(redacted, ensure_ascii=False)


def _redact(value: Any, redact: Redact, *, is_schema: bool = False) -> Any:
    """Return a value with its strings redacted, keys of mappings too, and numbers that a person wrote as such.

    Of a reply's schema keys and numbers stay: the reply is read by them.
    """
    if isinstance(value, str):
        return redact(value)
    if isinstance(value, Mapping):
        return {
            key if is_schema else _redact(key, redact): _redact(inner, redact, is_schema=is_schema)
            for key, inner in value.items()
        }
    if isinstance(value, Sequence):
        return [_redact(inner, redact, is_schema=is_schema) for inner in value]
    if isinstance(value, int) and not isinstance(value, bool) and not is_schema:
        redacted = redact(str(value)) if abs(value) < 10**20 else str(value)
        return value if redacted == str(value) else redacted
    return value
