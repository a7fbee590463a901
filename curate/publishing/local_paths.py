"""Removal of local paths and addresses from what is published: folder names may hold names of people and projects."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import orjson

_PLACE = re.compile(
    r"(?<![\w/.~-])(?!//)(?:~|[A-Za-z]:)?(?:[\\/][\w.@+-](?:[\w.@ +-]*[\w.@+-])?)+[\\/]([\w.@*?+-]+)"
)
_PRIVATE = frozenset({"base_url", "address", "api_key_env", "reuse"})
"""Keys of a recipe that hold addresses and locations."""
HIDDEN = "(not published)"


def shortened(text: str) -> str:
    """Return a text with absolute paths cut to their last part."""
    return _PLACE.sub(r"\1", text)


def published(value: Any) -> Any:
    """Return a recipe for the card: addresses hidden, absolute paths cut to their last part, empty keys left out."""
    if isinstance(value, Mapping):
        return {
            key: HIDDEN if key in _PRIVATE else published(item)
            for key, item in value.items()
            if item is not None and item not in ({}, [], ())
        }
    if isinstance(value, (list, tuple)):
        return [published(item) for item in value]
    return shortened(value) if isinstance(value, str) else value


def published_figures(figures: dict[str, Any]) -> dict[str, Any]:
    """Return the figures of a report's overview for publishing: recipe as on the card, addresses hidden, paths cut."""
    recipe = published(orjson.loads(figures["run"]["recipe"]))
    shown: dict[str, Any] = _without_places(figures)
    shown["run"]["recipe"] = orjson.dumps(recipe, option=orjson.OPT_INDENT_2).decode()
    return shown


def rerunnable(recipe: Any) -> Any:
    """Return a recipe that can be run again: addresses left out, absolute paths cut to their last part."""
    return _without_places(recipe, drop=True)


def _without_places(value: Any, *, drop: bool = False) -> Any:
    if isinstance(value, Mapping):
        return {
            key: HIDDEN if key in _PRIVATE else _without_places(item, drop=drop)
            for key, item in value.items()
            if not (drop and key in _PRIVATE)
        }
    if isinstance(value, (list, tuple)):
        return [_without_places(item, drop=drop) for item in value]
    return shortened(value) if isinstance(value, str) else value
