"""Validation errors of recipes in the user's terms: the place in the YAML, what is wrong, the nearest key."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from typing import Any, Final, TypeVar, get_args

from pydantic import BaseModel, TypeAdapter, ValidationError

from curate.errors import UsageError

T = TypeVar("T")
Location = tuple[int | str, ...]
ModelTypes = Sequence[type[BaseModel]]

_SCHEMA: Final = "`curate schema recipe` prints every key with its type and meaning"
_EXPECTED: Final = {
    "model_type": "a mapping is expected",
    "model_attributes_type": "a mapping is expected",
    "dict_type": "a mapping is expected",
    "tuple_type": "a list is expected",
    "missing": "this key is needed",
}
"""Said in the words of YAML, where pydantic speaks of Python."""


def validated(kind: Any, value: object, what: str) -> Any:
    """Return a model made from a user's mapping.

    Args:
        kind: a model, or an annotated union of models.
        value: a mapping.
        what: beginning of the message, such as "x.yaml is not a valid recipe".

    Raises:
        UsageError: unknown keys, wrong values; each with its place and the nearest key.
    """
    try:
        return TypeAdapter(kind).validate_python(value)
    except ValidationError as error:
        raise _explained(error, what, _models_in(kind)) from error


def _explained(error: ValidationError, what: str, roots: ModelTypes) -> UsageError:
    problems = [(*_walk(problem["loc"], roots), problem) for problem in error.errors()]
    lines = []
    for place, section, inside, problem in problems:
        # "Should be False" or "has no items" where another line says what is wrong there or further in.
        is_echo = problem["type"] in ("literal_error", "too_short", "bool_type") and any(
            other.startswith(f"{place}.") or (other == place and beside["type"] == "value_error")
            for other, _, _, beside in problems
        )
        if is_echo:
            continue
        value = repr(problem.get("input"))[:80]
        match problem["type"]:
            case "extra_forbidden":
                key = str(problem["loc"][-1])
                lines.append(f"{place}: no such key{_hint(key, section, roots)}")
            case "union_tag_not_found":
                names = ", ".join(filter(None, map(_tag, inside)))
                lines.append(f"{_below(place, 'engine')}: this key is needed, one of: {names}")
            case "union_tag_invalid":
                tags = [tag for tag in map(_tag, inside) if tag is not None]
                engine = str(problem["ctx"]["tag"])
                near = _nearest(engine, tags) or f"; one of: {', '.join(tags)}"
                lines.append(f"{_below(place, 'engine')}: no engine is called '{engine}'{near}")
            case kind:
                expectation = _EXPECTED.get(kind, problem["msg"].removeprefix("Value error, "))
                got = "" if kind == "missing" else f" (got {value})"
                lines.append(f"{place}: {expectation}{got}" if place else f"{expectation}{got}")
    return UsageError(what, got="\n    ".join(dict.fromkeys(lines)), fix=_SCHEMA)


def _walk(location: Location, roots: ModelTypes) -> tuple[str, ModelTypes, ModelTypes]:
    """Return a place as a user writes it, the models its last key could belong to, and those that stand there.

    pydantic's names for the branch of a union are left out; an engine's name chooses the branch.
    """
    keys: list[str] = []
    models = section = roots
    for part in location:
        section = models
        branch = [model for model in models if _tag(model) == part]
        if branch:
            models = branch
        elif not _is_internal(part):
            keys.append(str(part))
            fields = [
                model.model_fields[str(part)] for model in models if part in model.model_fields
            ]
            models = [inner for field in fields for inner in _models_in(field.annotation)] or models
    return ".".join(keys), section, models


def _hint(key: str, models: ModelTypes, roots: ModelTypes) -> str:
    """Return what replaced an unknown key, the nearest key, or the engine that has it, in words."""
    for model in models:
        if key in (removed := getattr(model, "gone", {})):
            return f" any more; {removed[key]}"
    tagged = [model for model in models if _tag(model) is not None]
    others = [model for model in _models_in_all(roots) if _tag(model) and key in model.model_fields]
    if len(tagged) == len(models) == 1 and others:
        names = " or ".join(f"`engine: {_tag(model)}`" for model in others)
        about = f": {_first_sentence(others[0])}" if len(others) == 1 else ""
        return f" of `engine: {_tag(tagged[0])}`, but of {names}{about}"
    return _nearest(key, [name for model in models for name in model.model_fields])


def _nearest(key: str, keys: Sequence[str]) -> str:
    close = difflib.get_close_matches(key, keys, n=1)
    return f"; did you mean '{close[0]}'?" if close else ""


def _first_sentence(model: type[BaseModel]) -> str:
    return (model.__doc__ or "").split("\n")[0].rstrip(".")


def _below(place: str, key: str) -> str:
    return f"{place}.{key}" if place else key


def _tag(model: type[BaseModel]) -> str | None:
    """Return the value that a model's key `engine` must have, where it has one."""
    field = model.model_fields.get("engine")
    return None if field is None else str(field.default)


def _is_internal(part: object) -> bool:
    return isinstance(part, str) and (
        part.startswith(("literal", "function", "lax", "tuple["))
        or part == "bool"
        or part[:1].isupper()
    )


def _models_in(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for inner in get_args(annotation) for model in _models_in(inner)]


def _models_in_all(models: ModelTypes) -> list[type[BaseModel]]:
    """Return these models and all models in their fields, each once."""
    all_models: dict[type[BaseModel], None] = {}
    queue = list(models)
    while queue:
        model = queue.pop(0)
        if model not in all_models:
            all_models[model] = None
            queue += [
                inner for f in model.model_fields.values() for inner in _models_in(f.annotation)
            ]
    return list(all_models)
