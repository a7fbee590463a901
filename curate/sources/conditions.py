"""`where:`: which rows of a source, or items of a conversation, are read. What is left out is counted by condition."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from curate.records.config import Config
from curate.sources.selectors import Parse, Selector, parse_selector, select

Scalar = str | int | float | bool | None


class Condition(Config):
    """What a value has to be, where it is not said by a value or a list of values."""

    min: float | None = Field(None, description="At least this number.")
    max: float | None = Field(None, description="At most this number.")
    none_of: tuple[Scalar, ...] = Field((), description="None of these; [null]: there is a value.")

    def holds(self, value: Any) -> bool:
        """Whether one value passes."""
        if any(_same(value, other) for other in self.none_of):
            return False
        if self.min is None and self.max is None:
            return True
        if isinstance(value, bool) or not isinstance(value, int | float):
            return False
        return (self.min is None or value >= self.min) and (self.max is None or value <= self.max)


Wanted = Annotated[
    Condition | tuple[Scalar, ...] | Scalar,
    Field(description="The value, a list of which it is one, or a test such as {min: 2}."),
]
Conditions = dict[Selector, Wanted]
"""By selector: what stands there. With `[*]` in it, every value has to pass."""


def first_failing(conditions: Conditions, value: Any, parse: Parse | None = None) -> str | None:
    """The selector of the first condition that a value does not meet, or None."""
    for selector, wanted in conditions.items():
        at = select(value, selector, parse)
        several = None in parse_selector(selector)
        if not all(_holds(wanted, one) for one in (at if several else (at,))):
            return selector
    return None


def _holds(wanted: Condition | tuple[Scalar, ...] | Scalar, value: Any) -> bool:
    if isinstance(wanted, Condition):
        return wanted.holds(value)
    if isinstance(wanted, tuple):
        return any(_same(value, one) for one in wanted)
    return _same(value, wanted)


def _same(value: Any, other: Scalar) -> bool:
    """Equal, where true is not 1."""
    return isinstance(value, bool) == isinstance(other, bool) and bool(value == other)
