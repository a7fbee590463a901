"""Detection of a file's shape from a sample of its rows.

Confidence is the share of sampled rows, of those that could be parsed, that fit the shape. Below one half, or where
another shape fits about as many rows, detection abstains: a wrong guess would silently misread the data.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from curate.sources.config import Columns
from curate.sources.formats import NAMES, fitting, is_flat_message
from curate.sources.json_rows import is_message_list
from curate.sources.mapping import Mapping
from curate.sources.preferences import is_transcript
from curate.sources.unit_result import RawRow, SourceRow
from curate.wording import first_of, plural

SAMPLE = 200
LEAST = 0.5
LEAD = 0.2


@dataclass(frozen=True, slots=True)
class Detection:
    """The shape of a sample of rows.

    Attributes:
        shape: name of a shape, `mapping`, or `mixed` where files of one source differ.
        confidence: share of the sample that fits, 0-1.
        sampled: number of sampled rows.
        runner_up: shape that fits the next most rows.
        reason: explanation for reports.
        flat: rows are single messages that have to be joined (oasst, turns_table).
        mapping: mapping that reads the rows; None for a shape that curate knows.
    """

    shape: str
    confidence: float
    sampled: int
    runner_up: str | None = None
    reason: str = ""
    flat: bool = False
    mapping: Mapping | None = None


@dataclass(frozen=True, slots=True)
class Abstention:
    """A sample whose shape could not be decided.

    Attributes:
        shares: share of the sample (0-1) that fits each shape, for shapes that fit some rows; best first.
        sampled: number of sampled rows.
        parsed: number of sampled rows that could be parsed.
        reason: explanation for messages.
        ambiguous: several shapes fit about as well (otherwise too few rows fit any).
    """

    shares: dict[str, float]
    sampled: int
    parsed: int
    reason: str
    ambiguous: bool = False

    @property
    def is_unknown(self) -> bool:
        """Return whether rows could be parsed and none of them fits a shape."""
        return self.parsed > 0 and not self.shares


def as_row(value: Any) -> SourceRow | None:
    """Return a raw value as a row: an object as it is, a list of messages or a transcript inside one; None for others."""
    if isinstance(value, dict):
        return value
    if is_message_list(value):
        return {"messages": value}
    return {"text": value} if is_transcript(value) else None


def as_mapped_row(value: Any) -> SourceRow | None:
    """Return a raw value as a row for a mapping, which also reads lists (under `items`) and texts (under `text`)."""
    if isinstance(value, list) and not is_message_list(value):
        return {"items": value}
    return {"text": value} if isinstance(value, str) else as_row(value)


def detect(sample: Sequence[RawRow], columns: Columns) -> Detection | Abstention:
    """Detect the shape of a sample of rows, or abstain."""
    rows = [as_row(raw.value) for raw in sample if raw.fault is None]
    if not rows:
        first = f": {sample[0].fault}, {sample[0].detail}" if sample else ""
        return Abstention(
            {}, len(sample), 0, f"none of {plural(len(sample), 'row')} can be parsed{first}"
        )
    hits: Counter[str] = Counter()
    for row in rows:
        hits.update(fitting(row, columns) if row is not None else ())
    shapes = sorted(hits, key=lambda name: (-hits[name], NAMES.index(name)))
    shares = {name: hits[name] / len(rows) for name in shapes}
    if not shapes or shares[shapes[0]] < LEAST:
        keys = Counter(key for row in rows for key in row or {})
        key_list = ", ".join(key for key, _ in keys.most_common(12)) or "no objects"
        few = f" (only {shares[shapes[0]]:.0%} fit {shapes[0]})" if shapes else ""
        reason = f"the rows fit no known shape{few}; they have: {key_list}"
        return Abstention(shares, len(sample), len(rows), reason)
    best = shapes[0]
    second = shapes[1] if len(shapes) > 1 else None
    if second is not None and shares[best] - shares[second] < LEAD:
        close = {name: shares[name] for name in shapes if shares[best] - shares[name] < LEAD}
        reason = "the rows fit " + " and ".join(f"{name} ({close[name]:.0%})" for name in close)
        return Abstention(close, len(sample), len(rows), reason, ambiguous=True)
    fits = f"{hits[best]} of {len(rows)} sampled rows fit {best}"
    also = f", {hits[second]} fit {second}" if second else ""
    return Detection(best, shares[best], len(sample), second, fits + also, is_flat(best, rows))


def is_flat(shape: str, rows: Iterable[SourceRow | None]) -> bool:
    """Return whether a row is a single message, as in tables and OASST's flat form."""
    if shape == "turns_table":
        return True
    objects = [row for row in rows if row is not None]
    return shape == "oasst" and sum(map(is_flat_message, objects)) * 2 > len(objects)


def key_names(rows: Iterable[SourceRow]) -> str:
    """Return the keys of rows as selectors, with the keys of objects inside them: `turns[*] (who, says)`."""
    keys: dict[str, dict[str, None]] = {}
    for row in rows:
        for key, value in row.items():
            is_list = isinstance(value, list)
            inner = keys.setdefault(f"{key}[*]" if is_list else str(key), {})
            for item in value[:3] if is_list else [value]:
                inner.update(dict.fromkeys(map(str, item)) if isinstance(item, dict) else {})
    names = [
        f"{key} ({', '.join(list(inner)[:8])})" if inner else key for key, inner in keys.items()
    ]
    return first_of(names, 20)


def summarise(detections: dict[str, Detection]) -> Detection:
    """Combine the detections of several files into one; its shape is `mixed` where they differ."""
    parts = list(detections.values())
    sampled = sum(item.sampled for item in parts)
    weight = sum(item.confidence * item.sampled for item in parts)
    confidence = weight / sampled if sampled else min(item.confidence for item in parts)
    shapes = Counter(item.shape for item in parts)
    if len(shapes) == 1:
        first = parts[0]
        if len(parts) == 1:
            return first
        runner_up = next((item.runner_up for item in parts if item.runner_up), None)
        reason = f"all {plural(len(parts), 'file')} are {first.shape}"
        return Detection(first.shape, confidence, sampled, runner_up, reason, first.flat)
    shape_counts = ", ".join(f"{count} {name}" for name, count in shapes.most_common())
    return Detection("mixed", confidence, sampled, None, f"files by shape: {shape_counts}")
