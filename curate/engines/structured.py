"""JSON schema in, checked object out.

A reply is never repaired by guessing: it is one whole JSON object that follows the schema, or it is a
`BadReply` whose reason a stage can tell the judge. Fences and prose around the object are ignored,
for engines that cannot be held to a schema.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

import jsonschema
import orjson

from curate.engines.base import Completion

_OBJECT_START = re.compile(r"\{(?=\s*[\"}])")
_DETAIL_CHARS = 300
_SHOWN = 60  # characters of a value


@dataclass(frozen=True, slots=True)
class BadReply:
    """Why a reply is not the requested object.

    Attributes:
        reason: `cut` (by its token limit), `not_json`, or `schema`.
        detail: one line, fit to be shown to the model that is asked again.
    """

    reason: Literal["cut", "not_json", "schema"]
    detail: str


def read_object(completion: Completion, schema: Mapping[str, Any]) -> dict[str, Any] | BadReply:
    """Return the object in a reply, checked against `schema`, or why there is none.

    Args:
        completion: a reply without a fault.
        schema: JSON schema, draft 2020-12.

    Raises:
        ValueError: the completion is a fault, which is no reply to read.
    """
    if completion.fault is not None:
        raise ValueError(f"there is no reply to read: {completion.fault.kind}")
    if completion.finish == "length":
        tokens = completion.usage.completion_tokens
        return BadReply("cut", f"the reply was cut at its token limit (after {tokens} tokens)")
    try:
        value = only_object(completion.text)
    except NoObjectError as broken:
        return BadReply("not_json", f"{broken} {completion.text.strip()[:80]!r}")
    except SeveralObjectsError as broken:
        return BadReply("not_json", str(broken))
    except ValueError as broken:
        detail = f"the JSON in the reply is broken: {broken}"
        return BadReply("not_json", detail[:_DETAIL_CHARS])
    error = jsonschema.exceptions.best_match(
        _validator(orjson.dumps(schema, option=orjson.OPT_SORT_KEYS)).iter_errors(value)
    )
    if error is not None:
        where = "/".join(str(part) for part in error.absolute_path) or "the object"
        return BadReply("schema", f"{where}: {error.message}"[:_DETAIL_CHARS])
    return value


def closed_object(properties: Mapping[str, Any]) -> dict[str, Any]:
    """Return the JSON schema of an object that has exactly these keys."""
    return {
        "type": "object",
        "properties": dict(properties),
        "required": list(properties),
        "additionalProperties": False,
    }


def as_shown(value: Any) -> str:
    """Return a value of a reply as JSON, shortened, for a message to the judge."""
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…"


def strict(schema: Mapping[str, Any], without: Collection[str] = ()) -> dict[str, Any]:
    """Return the schema in the form that strict modes require: objects closed, all their keys required.

    Objects without `properties` (maps) and those that say what further keys may hold are left open:
    closing them would change what they mean. Keywords in `without` are taken out.
    """

    def inside(part: Any) -> Any:
        return strict(part, without) if isinstance(part, Mapping) else part

    result: dict[str, Any] = {}
    for key, value in schema.items():
        if key in ("properties", "$defs", "definitions", "patternProperties"):
            result[key] = {name: inside(part) for name, part in value.items()}
        elif key in ("items", "additionalProperties", "not", "if", "then", "else"):
            result[key] = inside(value)
        elif key in ("anyOf", "oneOf", "allOf", "prefixItems"):
            result[key] = [inside(part) for part in value]
        elif key != "default" and key not in without:
            result[key] = value
    if "properties" in result and not isinstance(result.get("additionalProperties"), Mapping):
        result["additionalProperties"] = False
        result["required"] = list(result["properties"])
    return result


# Where a grammar allows any blanks, a small model writes newlines up to its token limit.
_SPACING = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}


def for_grammar(schema: Mapping[str, Any], without: Collection[str] = ()) -> dict[str, Any]:
    """Return the strict schema for llguidance, with the spacing of ordinary JSON.

    Raises:
        jsonschema.SchemaError: it is none. (A grammar made of it could bind nothing.)
    """
    jsonschema.Draft202012Validator.check_schema(schema)
    return {**strict(schema, without), "x-guidance": _SPACING}


@lru_cache(maxsize=256)
def _validator(schema: bytes) -> jsonschema.Draft202012Validator:
    return jsonschema.Draft202012Validator(orjson.loads(schema))


class NoObjectError(ValueError):
    """There is no JSON object in a text."""


class SeveralObjectsError(ValueError):
    """There are several JSON objects in a text."""


def only_object(text: str) -> dict[str, Any]:
    """Return the one JSON object in a text; fences and prose around it are ignored.

    Raises:
        NoObjectError, SeveralObjectsError: there is no object, or more than one.
        ValueError: the object is broken or has a key twice; the message says how, positions counted from its start.
    """
    start = _OBJECT_START.search(text)
    if start is None:
        raise NoObjectError("there is no JSON object in the reply")
    text = text[start.start() :]
    decoder = json.JSONDecoder(object_pairs_hook=_no_key_twice, parse_constant=_refuse_constant)
    try:
        value, end = decoder.raw_decode(text)
        # What JSON can spell and UTF-8 or 64 bits cannot hold would fail much later, when it is stored.
        orjson.dumps(value)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    except TypeError as error:
        raise ValueError(str(error)) from error
    if _OBJECT_START.search(text, end):
        raise SeveralObjectsError("the reply holds more than one JSON object")
    assert isinstance(value, dict)
    return value


def only_values(text: str) -> list[Any] | None:
    """Return the JSON values of a text that holds nothing else, lists as their elements; None for any other text."""
    decoder, at, values = json.JSONDecoder(), 0, []
    text = text.strip()
    while at < len(text):
        if text[at] not in "{[":
            return None
        try:
            value, at = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            return None
        values.extend(value if isinstance(value, list) else [value])
        while at < len(text) and text[at] in " \t\r\n,;":
            at += 1
    return values


def _no_key_twice(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the key {twice!r} stands twice")
    return value


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")
