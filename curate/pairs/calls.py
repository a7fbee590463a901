"""Tool calls in what a model replied, and whether they fit the tools that were offered. Pure.

Servers give calls as objects. A model in this process writes them as text, in the form it was trained
on: `<tool_call>` blocks, `[TOOL_CALLS]` and a list, or bare objects with a name and arguments. Such a text
taken for an answer would end up as one in training data, so all three are read.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jsonschema

from curate.dialogue import Message, ToolCall
from curate.engines.base import Completion
from curate.engines.structured import only_values

_BLOCK = re.compile(r"<tool_call>\s*(.*?)\s*(?:</tool_call>|\Z)", re.DOTALL)
_LIST = re.compile(r"\[TOOL_CALLS\]\s*(.*)\Z", re.DOTALL)
_FENCE = re.compile(r"\A```\w*\n(.*)\n```\Z", re.DOTALL)


@dataclass(frozen=True, slots=True)
class ReadCalls:
    """A reply taken apart.

    Attributes:
        text: what is not part of a call.
        calls: in order, without ids.
        problem: why a call cannot be used; empty where there is none.
    """

    text: str
    calls: tuple[ToolCall, ...] = ()
    problem: str = ""


def read_calls(completion: Completion, text: str, offered: Collection[str]) -> ReadCalls:
    """The tool calls of a reply.

    Args:
        completion: a reply without a fault.
        text: its text, thinking parsed off.
        offered: names of the tools; a bare object counts as a call only if it names one of them.
    """
    if completion.tool_calls:
        return _read(text, [call.get("function", call) for call in completion.tool_calls])
    if blocks := _BLOCK.findall(text):
        return _parsed(_BLOCK.sub("", text).strip(), blocks)
    if found := _LIST.search(text):
        return _parsed(text[: found.start()].strip(), [found[1]])
    fenced = _FENCE.match(text)
    objects = only_values(fenced[1] if fenced else text)
    if objects and all(_names_one(value, offered) for value in objects):
        return _read("", objects)
    return ReadCalls(text)


def tool_names(tools: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    """The names of tool definitions, in whatever form they are."""
    return tuple(name for tool in tools if isinstance(name := _definition(tool).get("name"), str))


def misfit(calls: Sequence[ToolCall], tools: Sequence[Mapping[str, Any]]) -> str | None:
    """Why calls do not fit the tools offered: another name, or arguments against its schema; else None."""
    known = {
        name: definition
        for tool in tools
        if isinstance(name := (definition := _definition(tool)).get("name"), str)
    }
    for call in calls:
        if call.name not in known:
            return f"calls {call.name!r}, which is not offered"
        schema = known[call.name].get("parameters", known[call.name].get("input_schema"))
        if not isinstance(schema, Mapping):
            continue
        try:
            error = jsonschema.exceptions.best_match(
                jsonschema.Draft202012Validator(schema).iter_errors(call.arguments)
            )
        except Exception:  # a broken schema raises anything, and says nothing about the call
            continue
        if error is not None:
            where = ".".join(map(str, error.absolute_path)) or "arguments"
            return f"call of {call.name!r} against its schema: {where}: {error.message[:120]}"
    return None


def with_ids_of(calls: Sequence[ToolCall], original: Message) -> tuple[ToolCall, ...]:
    """The calls with the ids that the original's have at the same places; ids are no difference."""
    ids = [call.id for call in original.tool_calls]
    return tuple(
        call.model_copy(update={"id": ids[at] if at < len(ids) else None})
        for at, call in enumerate(calls)
    )


def _definition(tool: Mapping[str, Any]) -> Mapping[str, Any]:
    inner = tool.get("function")
    return inner if isinstance(inner, Mapping) else tool


def _parsed(text: str, bodies: Sequence[str]) -> ReadCalls:
    found: list[Any] = []
    for body in bodies:
        objects = only_values(body)
        if objects is None:
            return ReadCalls(text, problem=f"a tool call is no JSON: {body[:80]!r}")
        found.extend(objects)
    return _read(text, found)


def _names_one(value: Any, offered: Collection[str]) -> bool:
    return isinstance(value, Mapping) and value.get("name") in offered


def _read(text: str, values: Sequence[Any]) -> ReadCalls:
    calls: list[ToolCall] = []
    for value in values:
        name = value.get("name") if isinstance(value, Mapping) else None
        if not isinstance(name, str) or not name:
            return ReadCalls(text, problem=f"a tool call without a name: {str(value)[:80]!r}")
        arguments = value.get("arguments", value.get("parameters", {}))
        if isinstance(arguments, str):
            try:
                arguments = json.loads(arguments or "{}")
            except ValueError:
                arguments = None
        if not isinstance(arguments, dict):
            return ReadCalls(text, problem=f"the arguments of {name!r} are no JSON object")
        calls.append(ToolCall(name=name, arguments=arguments))
    return ReadCalls(text, tuple(calls))
