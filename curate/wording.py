"""Numbers in sentences."""

from __future__ import annotations


def plural(number: int, noun: str, several: str | None = None) -> str:
    """A number with its noun: `1 dialogue`, `2,004 dialogues`.

    Args:
        several: where it is not the noun with an s, as `people`.
    """
    return f"{number:,} {noun if number == 1 else several or noun + 's'}"
