"""Selectors: dotted paths into a row. `a.b`, `a[0]`, `a[*].b`, `["a.b"]` for a key with a dot in it, `.` for the
value itself; keys may hold spaces.

Conditions on selectors filter the rows of a source or the items of a conversation; those left out are counted by
condition.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Annotated, Any, Literal

import orjson
from pydantic import AfterValidator, Field

from curate.records.config import Config

STEP = re.compile(r"""\["([^"]*)"\]|\[(\*|-?\d+)\]|\.?([^.\[\]]+)""")
Parse = Literal["json", "python"]
"""Format of text that a selector looks into: JSON, or lists and dicts as Python prints them."""


@lru_cache(maxsize=1024)
def parse_selector(selector: str) -> tuple[str | int | None, ...]:
    """Split a selector into steps: a key, an index, or None for `[*]`; none for `.`.

    Raises:
        ValueError: the selector is empty or malformed.
    """
    if selector == ".":
        return ()
    steps: list[str | int | None] = []
    position = 0
    while position < len(selector):
        match = STEP.match(selector, position)
        if match is None:
            raise ValueError(f"'{selector}' is no selector; write a.b, a[0], a[*].b or [\"a.b\"]")
        quoted_key, index, key = match.groups()
        steps.append(
            quoted_key if quoted_key is not None else key or (None if index == "*" else int(index))
        )
        position = match.end()
    if not steps:
        raise ValueError("a selector is empty")
    return tuple(steps)


def _check_selector(selector: str) -> str:
    parse_selector(selector)
    return selector


Selector = Annotated[str, AfterValidator(_check_selector)]


def select_value(value: Any, selector: str, parse: Parse | None = None) -> Any:
    """Return the value that a selector points at: None where it points nowhere, a list where it has `[*]`."""
    steps = parse_selector(selector)
    values = [value]
    for step in steps:
        following: list[Any] = []
        for item in values:
            inner = parsed(item, parse) if parse and isinstance(item, str) else item
            if step is None:
                following.extend(inner if isinstance(inner, list) else ())
            elif isinstance(step, int):
                inside = isinstance(inner, list) and -len(inner) <= step < len(inner)
                following.extend([inner[step]] if inside else ())
            elif isinstance(inner, dict) and step in inner:
                following.append(inner[step])
        values = following
    if None in steps:
        return values
    return values[0] if values else None


def parsed(text: str, parse: Parse) -> Any:
    """Return the list or object that a text represents; the text itself where it represents none."""
    if text.lstrip()[:1] not in ("[", "{"):
        return text
    try:
        value = orjson.loads(text) if parse == "json" else ast.literal_eval(text.strip())
        orjson.dumps(value)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return text
    return value if isinstance(value, list | dict) else text


def first_key(selector: str) -> str | None:
    """Return the key that a selector begins with; None where it begins with an index or is `.`."""
    steps = parse_selector(selector)
    return steps[0] if steps and isinstance(steps[0], str) else None


def selector_of(steps: Iterable[str | int | None]) -> str:
    """Return the selector of steps; the inverse of `parse_selector`."""
    text = ""
    for step in steps:
        if step is None or isinstance(step, int):
            text += "[*]" if step is None else f"[{step}]"
        elif re.fullmatch(r"[^.\[\]\"]+", step):
            text += f".{step}" if text else step
        else:
            text += f'["{step}"]'
    return text or "."


Scalar = str | int | float | bool | None


class Condition(Config):
    """A test of one value, for what a value or a list of values cannot express."""

    min: float | None = Field(None, description="Smallest number that passes.")
    max: float | None = Field(None, description="Largest number that passes.")
    none_of: tuple[Scalar, ...] = Field(
        (), description="Values that do not pass; [null] requires that there is a value."
    )

    def holds(self, value: Any) -> bool:
        """Return whether a value passes."""
        if any(_same(value, other) for other in self.none_of):
            return False
        if self.min is None and self.max is None:
            return True
        if isinstance(value, bool) or not isinstance(value, int | float):
            return False
        return (self.min is None or value >= self.min) and (self.max is None or value <= self.max)


Wanted = Annotated[
    Condition | tuple[Scalar, ...] | Scalar,
    Field(description="The value itself, a list of allowed values, or a test such as {min: 2}."),
]
Conditions = dict[Selector, Wanted]
"""Condition on the value at each selector; with `[*]` in a selector, every value has to pass."""


def first_failing(conditions: Conditions, value: Any, parse: Parse | None = None) -> str | None:
    """Return the selector of the first condition that a value does not meet; None where it meets all."""
    for selector, condition in conditions.items():
        selected = select_value(value, selector, parse)
        several = None in parse_selector(selector)
        if not all(
            _holds(condition, element) for element in (selected if several else (selected,))
        ):
            return selector
    return None


def _holds(condition: Condition | tuple[Scalar, ...] | Scalar, value: Any) -> bool:
    if isinstance(condition, Condition):
        return condition.holds(value)
    if isinstance(condition, tuple):
        return any(_same(value, allowed) for allowed in condition)
    return _same(value, condition)


def _same(value: Any, other: Scalar) -> bool:
    """Return whether two values are equal, with true unequal to 1."""
    return isinstance(value, bool) == isinstance(other, bool) and bool(value == other)
