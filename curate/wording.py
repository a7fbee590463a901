"""Numbers and long lists in sentences."""

from __future__ import annotations

from collections.abc import Sequence


def plural(number: int, noun: str, several: str | None = None) -> str:
    """Return a number with its noun: `1 dialogue`, `2,004 dialogues`.

    Args:
        several: the plural, where it is not the noun with an s, such as `people`.
    """
    return f"{number:,} {noun if number == 1 else several or noun + 's'}"


def first_of(items: Sequence[object], most: int) -> str:
    """Return the first of some items, and how many more there are: `a, b and 3 more`.

    Args:
        most: how many are named.
    """
    named = ", ".join(str(item) for item in items[:most])
    return named if len(items) <= most else f"{named} and {len(items) - most:,} more"


def joined(parts: Sequence[object], word: str = "and") -> str:
    """Join parts as `3`, `3 and 4`, `3, 4 and 5`."""
    *most, last = map(str, parts)
    return f"{', '.join(most)} {word} {last}" if most else last
