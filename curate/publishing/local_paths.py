"""Removal of local paths and addresses from what is published: folder names may hold names of people and projects."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

import orjson

_PLACE = re.compile(
    r"(?<![\w/.~-])(?!//)(?:~|[A-Za-z]:)?(?:[\\/][\w.@+-](?:[\w.@ +-]*[\w.@+-])?)+[\\/]([\w.@*?+-]+)"
)
_PRIVATE = frozenset({"base_url", "address", "api_key_env", "reuse"})
"""Keys of a recipe that hold addresses and locations."""
HIDDEN = "(not published)"


def without_folders(text: str) -> str:
    """Return a text with absolute paths cut to their last part."""
    return _PLACE.sub(r"\1", text)


def published(recipe: Any) -> Any:
    """Return a recipe for the card: addresses hidden, absolute paths cut to their last part, empty keys left out."""
    return _without_places(recipe, lambda _, item: item is not None and item not in ({}, [], ()))


def published_figures(figures: dict[str, Any]) -> dict[str, Any]:
    """Return the figures of a report's overview for publishing: recipe as on the card, addresses hidden, paths cut."""
    recipe = published(orjson.loads(figures["run"]["recipe"]))
    shown: dict[str, Any] = _without_places(figures, lambda *_: True)
    shown["run"]["recipe"] = orjson.dumps(recipe, option=orjson.OPT_INDENT_2).decode()
    return shown


def rerunnable(recipe: Any) -> Any:
    """Return a recipe that can be run again: addresses left out, absolute paths cut to their last part."""
    return _without_places(recipe, lambda key, _: key not in _PRIVATE)


def _without_places(value: Any, stays: Callable[[Any, Any], bool]) -> Any:
    """Return a value with addresses hidden and paths cut; of mappings only the items that stay."""
    if isinstance(value, Mapping):
        return {
            key: HIDDEN if key in _PRIVATE else _without_places(item, stays)
            for key, item in value.items()
            if stays(key, item)
        }
    if isinstance(value, (list, tuple)):
        return [_without_places(item, stays) for item in value]
    return without_folders(value) if isinstance(value, str) else value
