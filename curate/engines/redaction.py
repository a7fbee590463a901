"""Taking personal data out of what is sent to a hosted model.

Only the request is changed: dialogues, records and exports keep their text. What is found is replaced by its kind in
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
    """A function that replaces the given kinds of personal data in a text; None for no kinds."""
    if not kinds:
        return None
    return lambda text: replace_personal_data(text, kinds)


def redact_request(request: Request, redact: Redact) -> Request:
    """The request with `redact` applied to every string that is sent.

    Text that is JSON is decoded first, so that nothing hides behind an escape; where nothing is found it stays as it
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
    changed = {
        name: _redact_content(value, redact) if name == "content" else _redact(value, redact)
        for name, value in message.items()
        if name not in ("tool_calls", "tool_call_id")
    }
    if message.get("role") == "tool" and isinstance(message.get("name"), str):
        changed["name"] = _redact_name(message["name"], redact)
    if "tool_calls" in message:
        calls = message["tool_calls"]
        changed["tool_calls"] = calls and [_redact_call(call, redact, ids) for call in calls]
    if "tool_call_id" in message:
        changed["tool_call_id"] = _redact_id(message["tool_call_id"], redact, ids)
    return {name: changed[name] for name in message}


def _redact_content(content: Any, redact: Redact) -> Any:
    if isinstance(content, list):
        return [
            _redact_content(part, redact) if isinstance(part, str) else _redact(part, redact)
            for part in content
        ]
    return _redact_text(content, redact) if isinstance(content, str) else _redact(content, redact)


def _redact_call(call: Mapping[str, Any], redact: Redact, ids: dict[str, str]) -> Mapping[str, Any]:
    changed = {name: _redact(value, redact) for name, value in call.items() if name != "function"}
    if "id" in call:
        changed["id"] = _redact_id(call["id"], redact, ids)
    function = call.get("function")
    if isinstance(function, Mapping):
        changed["function"] = {
            name: _redact_name(value, redact) if name == "name" else _redact_content(value, redact)
            for name, value in function.items()
        }
    elif "function" in call:
        changed["function"] = _redact(function, redact)
    return {name: changed[name] for name in call}


def _redact_tool(tool: Mapping[str, Any], redact: Redact) -> Mapping[str, Any]:
    changed: dict[str, Any] = _redact(tool, redact)
    function = tool.get("function")
    if isinstance(function, Mapping) and "name" in function:
        changed["function"] = {
            **changed["function"],
            "name": _redact_name(function["name"], redact),
        }
    if "name" in tool:
        changed["name"] = _redact_name(tool["name"], redact)
    return changed


def _redact_name(name: Any, redact: Redact) -> Any:
    """A name as servers take them: `call_[phone]` would be refused."""
    found = _redact(name, redact)
    return found if found == name else _NO_IDENTIFIER.sub("", str(found))


def _redact_id(given: Any, redact: Redact, ids: dict[str, str]) -> Any:
    """An id that holds personal data, by its number; `ids` are those met so far."""
    if not isinstance(given, str) or redact(given) == given:
        return given
    return ids.setdefault(given, f"call_{len(ids) + 1}")


def _redact_text(text: str, redact: Redact) -> str:
    if text.lstrip()[:1] not in ("{", "["):
        return redact(text)
    try:
        value = json.loads(text)
        found = _redact(value, redact)
    except (ValueError, RecursionError):
        return redact(text)
    return text if found == value else json.dumps(found, ensure_ascii=False)


def _redact(value: Any, redact: Redact, *, is_schema: bool = False) -> Any:
    """Strings within a value, keys of mappings too, and numbers that a person wrote as such.

    Of a schema of replies keys and numbers stay: by them a reply is read.
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
        found = redact(str(value)) if abs(value) < 10**20 else str(value)
        return value if found == str(value) else found
    return value
