"""The base of every section of a recipe, with one way to switch things off.

`false` and `null` mean off wherever something can be off: a stage, a check, a limit, a list. Where a key cannot be
off, `null` is the same as leaving the key out, so that a recipe that extends another one can take back what the
other sets, such as a condition of `select.where`. Records are not configs: they are validated as they are.

`MinGood`, the lowest levels of a good turn, is one rule that forking, loss masks and labels share.
"""

from __future__ import annotations

import types
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, Union, get_args, get_origin

from pydantic import Field, GetJsonSchemaHandler, model_validator
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from curate.dialogue import Frozen
from curate.records import TURN_DIMENSIONS

_COLLECTIONS = (tuple, list, set, frozenset, dict)
_ABSENT: Any = object()
_OFF_SCHEMAS: tuple[JsonSchemaValue, ...] = ({"const": False, "type": "boolean"}, {"type": "null"})


class Config(Frozen):
    """A section of a recipe: immutable, unknown keys refused, `false` and `null` both mean off.

    Attributes:
        off: the section's content when it is switched off; None where it has no such state of its own.
        gone: removed keys, and what to write instead.
    """

    off: ClassVar[Mapping[str, Any] | None] = None
    gone: ClassVar[Mapping[str, str]] = {}

    @model_validator(mode="before")
    @classmethod
    def _read_off(cls, data: Any) -> Any:
        if not isinstance(data, dict):
            return data
        settled = {
            key: _settle(value, cls.model_fields[key].annotation)
            if key in cls.model_fields
            else value
            for key, value in data.items()
        }
        return {key: value for key, value in settled.items() if value is not _ABSENT}

    @classmethod
    def __get_pydantic_json_schema__(
        cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        schema = handler(core_schema)
        properties = handler.resolve_ref_schema(schema).get("properties", {})
        for name, field in cls.model_fields.items():
            if name in properties and (_off(None, _branches(field.annotation)) is not _ABSENT):
                properties[name] = _with_off(properties[name])
        return schema


def _settle(value: Any, annotation: Any) -> Any:
    """Return the value in the annotation's terms; `_ABSENT` for a null where the key cannot be off."""
    branches = _branches(annotation)
    if value is None or value is False:
        return _off(value, branches)
    if value is True and "on" in branches:
        return "on"  # YAML reads the bare words on and off as true and false
    if isinstance(value, dict):
        for branch in branches:
            if get_origin(branch) is dict:
                of = get_args(branch)[1]
                settled = {key: _settle(inner, of) for key, inner in value.items()}
                return {key: inner for key, inner in settled.items() if inner is not _ABSENT}
    return value


def _off(value: bool | None, branches: tuple[Any, ...]) -> Any:
    has_false = bool in branches or any(branch is False for branch in branches)
    if Any in branches or (value is None and type(None) in branches):
        return value
    if has_false:
        return False
    if type(None) in branches:
        return None
    if "off" in branches:
        return "off"
    for branch in branches:
        if isinstance(branch, type) and issubclass(branch, Config) and branch.off is not None:
            return dict(branch.off)
        if get_origin(branch) in _COLLECTIONS:
            return {} if get_origin(branch) is dict else ()
    return _ABSENT if value is None else value


def _branches(annotation: Any) -> tuple[Any, ...]:
    """Return the parts of a union, all the way down; for a Literal its values."""
    origin = get_origin(annotation)
    if origin is Annotated:
        return _branches(get_args(annotation)[0])
    if origin in (Union, types.UnionType):
        return tuple(one for branch in get_args(annotation) for one in _branches(branch))
    if origin is Literal:
        return get_args(annotation)
    return (annotation,)


def _with_off(schema: JsonSchemaValue) -> JsonSchemaValue:
    """Return the schema of a key extended by `false` and `null`."""
    annotations: JsonSchemaValue = {
        key: schema[key] for key in ("default", "description", "title") if key in schema
    }
    plain = {key: value for key, value in schema.items() if key not in annotations}
    branches = plain["anyOf"] if plain.keys() == {"anyOf"} else [plain]
    more = [off for off in _OFF_SCHEMAS if off not in branches]
    if {"type": "boolean"} in branches:
        more = [off for off in more if off["type"] == "null"]
    return {**annotations, "anyOf": [*branches, *more]}


class MinGood(Config):
    """Lowest levels (1-5) at which a turn has no flaw, by dimension.

    The defaults are those of the weakest-turn rule: a turn is bad when its safety is below 5, or its helpfulness or
    context_use below 4. A mean over wordings counts as its nearest level, halves rounded up.
    """

    context_use: int = Field(
        4, ge=1, le=5, description="Lowest level of context_use without a flaw."
    )
    helpfulness: int = Field(
        4, ge=1, le=5, description="Lowest level of helpfulness without a flaw."
    )
    safety: int = Field(5, ge=1, le=5, description="Lowest level of safety without a flaw.")

    def flaws(self, values: Mapping[str, float]) -> list[str]:
        """Return the dimensions of `values` whose nearest level is below the lowest good one, in fixed order."""
        levels: dict[str, int] = self.model_dump()
        return [name for name in TURN_DIMENSIONS if int(values[name] + 0.5) < levels[name]]
