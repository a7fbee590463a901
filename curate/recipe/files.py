"""Reading recipes: the files that one extends, paths beside it, and overrides of single keys."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from curate.errors import UsageError
from curate.recipe.recipe import Recipe
from curate.records.validation_errors import validated
from curate.sources.config import SourceConfig
from curate.sources.pushed_recipe import (
    check_files,
    check_servers,
    fetch_pushed,
    is_pushed,
)
from curate.storage.yaml_text import parse_yaml

_EXTENDED = 20


def load_recipe(
    path: str | Path, overrides: Sequence[str] = (), *, without: Sequence[tuple[str, ...]] = ()
) -> Recipe:
    """Read a recipe file, the files it extends, and `key.path=value` overrides (values are YAML).

    Args:
        path: the recipe file, or `hf://owner/name`: a dataset on the Hub that curate pushed.
        overrides: values that replace those of the file.
        without: keys to leave out, such as `("fork", "curve")`, for files that are not written yet.

    Raises:
        UsageError: file missing, broken YAML, unknown keys, wrong values; says which and why.
    """
    named, path = path, fetch_pushed(path) if is_pushed(path) else Path(path)
    data = _read(path, seen=())
    for override in overrides:
        _apply(data, override, path.parent)
    if is_pushed(named):
        check_servers(data, named)
    for keys in without:
        _drop(data, keys)
    if data.get("name") is None:
        data["name"] = re.sub(r"[^\w.-]+", "-", path.stem)
    recipe = parse_recipe(data, where=str(named))
    if is_pushed(named):
        check_files(recipe.source, named)
    return recipe


def parse_recipe(data: Recipe | Mapping[str, Any], where: str = "the recipe") -> Recipe:
    """Validate a recipe given as a mapping; errors as in `load_recipe`."""
    recipe: Recipe = validated(Recipe, data, f"{where} is not a valid recipe")
    return recipe


def as_recipe(recipe: Recipe | Mapping[str, Any] | str | Path) -> Recipe:
    """Return a recipe given as a `Recipe`, a mapping or the path of its file; errors as in `load_recipe`."""
    return load_recipe(recipe) if isinstance(recipe, str | Path) else parse_recipe(recipe)


def parse_source(data: Mapping[str, Any]) -> SourceConfig:
    """Validate one source given as a mapping, such as from a command's options; errors as in `load_recipe`."""
    source: SourceConfig = validated(SourceConfig, data, "the source options are not valid")
    return source


def _read(path: Path, seen: tuple[Path, ...]) -> dict[str, Any]:
    if not path.is_file():
        raise UsageError(
            "no such recipe",
            got=path,
            expected="a YAML file",
            fix="check the path; `curate init` writes a recipe for your data",
        )
    if path.resolve() in seen:
        raise UsageError(
            "recipes extend each other in a circle",
            got=" > ".join(map(str, seen)),
            fix="take `extends` out of one of them",
        )
    if len(seen) > _EXTENDED:
        raise UsageError(
            "too many recipes extend each other",
            got=f"more than {_EXTENDED} files",
            fix="put what they share into one recipe that all of them extend",
        )
    try:
        data = parse_yaml(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise UsageError(
            f"{path} is not a YAML file",
            got=str(error).replace('in "<unicode string>", ', "in "),
            fix="correct the file where the message says; it must be YAML in UTF-8",
        ) from error
    if not isinstance(data, dict):
        kind = {list: "a list", type(None): "an empty file"}.get(type(data), "a text")
        raise UsageError(
            f"{path} is not a recipe",
            got=kind,
            expected="a mapping of keys such as source and models",
        )
    for keys in PATH_KEYS:
        _anchor(data, keys, path.parent)
    base = data.pop("extends", None)
    if base is None:
        return data
    inherited = _read(path.parent / str(base), (*seen, path.resolve()))
    inherited.pop("name", None)
    return _merge(inherited, data)


PATH_KEYS: tuple[tuple[str, ...], ...] = (
    ("source", "path"),
    ("source", "mapping", "join", "path"),
    ("reuse", "run"),
    ("reuse",),
    ("judge", "prompt_file"),
    ("judge", "calibration"),
    ("adherence", "calibration"),
    ("models", "judge", "fit"),
    *(("models", role, "replies") for role in ("judge", "policy", "reviser", "metrics")),
    ("metrics", "calibration"),
    ("adherence", "reference", "baseline"),
    ("select", "decontaminate", "path"),
    ("select", "certificate"),
    ("fork", "curve"),
    ("fork", "certificate"),
    ("natural", "verify", "curve"),
)
"""Keys whose relative paths are looked for beside the recipe first; lists on the way have any length.

Models are not among them: what `model` and `tokenizer` say may as well be an id on the Hub or a name on a server.
"""


def _anchor(value: Any, keys: Sequence[str], folder: Path) -> Any:
    """Return the value with the paths at `keys` below it resolved against a recipe's folder."""
    if isinstance(value, list):
        return [_anchor(inner, keys, folder) for inner in value]
    if not keys:
        return _anchored(value, folder)
    if isinstance(value, dict) and keys[0] in value:
        value[keys[0]] = _anchor(value[keys[0]], keys[1:], folder)
    return value


def _anchored(path: Any, folder: Path) -> Any:
    """Return a relative path as one in the recipe's folder if it exists there, else unchanged."""
    if not isinstance(path, str) or Path(path).is_absolute():
        return path
    beside = str(folder / path)
    return beside if os.path.exists(beside) else path  # false, too, for what no file can be called


def _merge(base: dict[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Return `base` with the values of `over`.

    Mappings merge key by key at any depth; anything else is replaced, and so is an engine or cascade. A null is kept:
    its meaning is up to `config.Config`.
    """
    merged = dict(base)
    for key, value in over.items():
        both = isinstance(value, dict) and isinstance(merged.get(key), dict)
        is_named = isinstance(value, dict) and value.keys() & {"engine", "cascade"}
        merged[key] = _merge(merged[key], value) if both and not is_named else value
    return merged


def _drop(data: Any, keys: Sequence[str]) -> None:
    for key in keys[:-1]:
        data = data.get(key) if isinstance(data, dict) else None
    if isinstance(data, dict):
        data.pop(keys[-1], None)


def _apply(data: dict[str, Any], override: str, folder: Path) -> None:
    key, sign, text = override.partition("=")
    if not sign or not key:
        raise UsageError("an override has no value", got=override, expected="--set key.path=value")
    try:
        value = parse_yaml(text)
    except ValueError as error:
        raise UsageError(
            f"the value of --set {key} is not YAML",
            got=text,
            fix="put it in quotes, such as --set 'key=\"a: b\"'",
        ) from error
    named = tuple(part for part in key.split(".") if not part.isdigit())
    for keys in PATH_KEYS:
        if keys[: len(named)] == named:
            value = _anchor(value, keys[len(named) :], folder)
    at: Any = data
    *parents, last = key.split(".")
    for index, parent in enumerate(parents):
        if isinstance(at, list):
            at = at[_index(at, parent, override)]
        else:
            if not isinstance(at.get(parent), (dict, list)):
                at[parent] = {}
            at = at[parent]
        # `--set source.path=X` on a recipe with several sources names the one source of this run
        if (
            index == 0
            and parent == "source"
            and isinstance(at, list)
            and not ((parents[1] if len(parents) > 1 else last).isdigit())
        ):
            data["source"] = at = {}
    if isinstance(at, list):
        at[_index(at, last, override)] = value
    else:
        at[last] = value


def _index(values: list[Any], text: str, override: str) -> int:
    if not text.isdigit() or int(text) >= len(values):
        raise UsageError(
            "an override names an element that does not exist",
            got=override,
            expected=f"an index from 0 to {len(values) - 1}",
        )
    return int(text)
