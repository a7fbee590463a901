"""Scales of people's labels: any ordinal scale is put on levels 1-5."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from curate.errors import UsageError
from curate.records import CONVERSATION_DIMENSIONS, TURN_DIMENSIONS
from curate.records.readings import METRIC
from curate.trust.label_rows import finite_number, is_not_applicable, truth_of

_RANGE = re.compile(r"\s*(-?\d+(?:\.\d+)?)\s*-\s*(-?\d+(?:\.\d+)?)\s*")


@dataclass(frozen=True, slots=True)
class Scale:
    """The scale that maps values of one dimension to levels: the lowest and the highest value, or words, worst first.

    On a scale from 0 to 1 yes and no, pass and fail are values, too.
    """

    low: float = 1.0
    high: float = 5.0
    words: tuple[str, ...] = ()

    def level(self, value: Any) -> float | None:
        """Return the place of a value, 1.0-5.0, linear between the ends; None where it is not on the scale."""
        text = str(value).strip().lower()
        if self.words:
            number = float(self.words.index(text)) if text in self.words else None
        else:
            number = finite_number(value)
        if number is None and (self.low, self.high) == (0, 1):
            answer = truth_of(value)
            number = None if answer is None else float(answer)
        if number is None or not self.low <= number <= self.high:
            return None
        return 1 + 4 * (number - self.low) / (self.high - self.low)

    def __str__(self) -> str:
        if self.words:
            return ", ".join(self.words)
        return f"{self.low:g}-{self.high:g}"


def parse_scales(texts: Sequence[str]) -> dict[str, Scale]:
    """Return the scales as the command line gives them: `0-2`, `helpfulness=0-2`, `bad,fair,good` (worst first).

    Returns:
        By dimension; one without a dimension under `*`.
    """
    scales = {}
    for text in texts:
        name, sign, ends = text.rpartition("=")
        match = _RANGE.fullmatch(ends)
        words = tuple(word.strip().lower() for word in ends.split(","))
        if match is not None and float(match[1]) < float(match[2]):
            scale = Scale(float(match[1]), float(match[2]))
        elif len(words) > 1 and len(set(words)) == len(words):
            scale = Scale(0, len(words) - 1, words)
        else:
            raise UsageError(
                "not a scale",
                got=text,
                expected="the lowest and the highest value, such as 0-2 or helpfulness=0-2, or words from worst to "
                "best, such as bad,fair,good",
            )
        if (
            sign
            and name not in (*TURN_DIMENSIONS, *CONVERSATION_DIMENSIONS)
            and not name.startswith(METRIC)
        ):
            raise UsageError(
                "--scale names a dimension that does not exist",
                got=name,
                expected=", ".join((*TURN_DIMENSIONS, *CONVERSATION_DIMENSIONS)),
            )
        scales[name if sign else "*"] = scale
    return scales


def scale_of(dimension: str, values: Iterable[Any]) -> Scale:
    """Return the scale of a dimension's values where none is stated: 1-5 where all are whole numbers of it, else from the lowest to the highest.

    Raises:
        UsageError: they are words, which nothing orders.
    """
    applicable = [value for value in values if not is_not_applicable(value)]
    numbers = {number for value in applicable if (number := finite_number(value)) is not None}
    if applicable and not numbers:
        words = sorted({str(value).strip()[:40] for value in applicable})
        raise UsageError(
            f"the values of {dimension} are words, and nothing says how they are ordered",
            got=", ".join(words[:8]),
            expected="numbers, or a scale",
            fix=f"state their order, the worst first: --scale {dimension}=WORST,...,BEST",
        )
    if not numbers or numbers <= {1.0, 2.0, 3.0, 4.0, 5.0}:
        return Scale()
    low, high = min(numbers), max(numbers)
    return Scale(low, high) if low < high else Scale(low, low + 1)


def assumed_scale(scale: Scale, values: Iterable[Any]) -> str | None:
    """Return the scale that was assumed, with the values it was assumed for; None where these reach both ends of 1-5."""
    numbers = sorted({number for value in values if (number := finite_number(value)) is not None})
    if not numbers or (scale == Scale() and (numbers[0], numbers[-1]) == (1.0, 5.0)):
        return None
    return (
        f"{'1-5' if scale == Scale() else scale} for values from {numbers[0]:g} to {numbers[-1]:g}"
    )
