"""Which shape a file has, judged by a sample of its rows.

Confidence is the share of readable sample rows that fit the shape. Below a half, or where another shape
fits about as many rows, detection abstains: a wrong guess would silently turn data into other data.
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
from curate.sources.unit_result import RawRow, Row
from curate.wording import first_of, plural

SAMPLE = 200
LEAST = 0.5
LEAD = 0.2


@dataclass(frozen=True, slots=True)
class Detection:
    """What a sample says about the shape.

    Attributes:
        shape: a shape's name, `mapping`, or `mixed` where files of one source differ.
        confidence: share of the sample that fits, 0 to 1; 1 where the shape was set.
        flat: rows are single messages that have to be joined (oasst, turns_table).
        mapping: what reads the rows where their shape was found by structure.
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
    """No shape could be named.

    Attributes:
        shares: share of the sample that fits, for shapes that fit some rows; best first.
        parsed: of these, rows that could be parsed.
        ambiguous: several shapes fit about as well (else too few rows fit any).
    """

    shares: dict[str, float]
    sampled: int
    parsed: int
    reason: str
    ambiguous: bool = False


def as_row(value: Any) -> Row | None:
    """A raw value as a row: an object, or a list of messages or a transcript put into one."""
    if isinstance(value, dict):
        return value
    if is_message_list(value):
        return {"messages": value}
    return {"text": value} if is_transcript(value) else None


def as_mapped_row(value: Any) -> Row | None:
    """A raw value as a row for a mapping, which also reads lists, under `items`, and texts, under `text`."""
    if isinstance(value, list) and not is_message_list(value):
        return {"items": value}
    return {"text": value} if isinstance(value, str) else as_row(value)


def detect(sample: Sequence[RawRow], columns: Columns) -> Detection | Abstention:
    """Judge a sample of rows."""
    rows = [as_row(raw.value) for raw in sample if raw.fault is None]
    if not rows:
        first = f": {sample[0].fault}, {sample[0].detail}" if sample else ""
        return Abstention(
            {}, len(sample), 0, f"none of {plural(len(sample), 'row')} can be parsed{first}"
        )
    hits: Counter[str] = Counter()
    for row in rows:
        hits.update(fitting(row, columns) if row is not None else ())
    ranked = sorted(hits, key=lambda name: (-hits[name], NAMES.index(name)))
    shares = {name: hits[name] / len(rows) for name in ranked}
    if not ranked or shares[ranked[0]] < LEAST:
        keys = Counter(key for row in rows for key in row or {})
        seen = ", ".join(key for key, _ in keys.most_common(12)) or "no objects"
        few = f" (only {shares[ranked[0]]:.0%} fit {ranked[0]})" if ranked else ""
        reason = f"the rows fit no known shape{few}; they have: {seen}"
        return Abstention(shares, len(sample), len(rows), reason)
    best = ranked[0]
    second = ranked[1] if len(ranked) > 1 else None
    if second is not None and shares[best] - shares[second] < LEAD:
        close = {name: shares[name] for name in ranked if shares[best] - shares[name] < LEAD}
        reason = "the rows fit " + " and ".join(f"{name} ({close[name]:.0%})" for name in close)
        return Abstention(close, len(sample), len(rows), reason, ambiguous=True)
    fits = f"{hits[best]} of {len(rows)} sampled rows fit {best}"
    also = f", {hits[second]} fit {second}" if second else ""
    return Detection(best, shares[best], len(sample), second, fits + also, is_flat(best, rows))


def is_flat(shape: str, rows: Iterable[Row | None]) -> bool:
    """True where a row is a single message: tables, and OASST's flat form."""
    if shape == "turns_table":
        return True
    known = [row for row in rows if row is not None]
    return shape == "oasst" and sum(map(is_flat_message, known)) * 2 > len(known)


def key_names(rows: Iterable[Row]) -> str:
    """The keys of rows as a selector names them, and below them those of what they hold: `turns[*] (who, says)`."""
    held: dict[str, dict[str, None]] = {}
    for row in rows:
        for key, value in row.items():
            is_list = isinstance(value, list)
            inner = held.setdefault(f"{key}[*]" if is_list else str(key), {})
            for item in value[:3] if is_list else [value]:
                inner.update(dict.fromkeys(map(str, item)) if isinstance(item, dict) else {})
    shown = [
        f"{key} ({', '.join(list(inner)[:8])})" if inner else key for key, inner in held.items()
    ]
    return first_of(shown, 20)


def summarise(detections: dict[str, Detection]) -> Detection:
    """One detection for a source of several files: `mixed`, with the files of each shape, where they differ."""
    found = list(detections.values())
    sampled = sum(item.sampled for item in found)
    weight = sum(item.confidence * item.sampled for item in found)
    confidence = weight / sampled if sampled else min(item.confidence for item in found)
    shapes = Counter(item.shape for item in found)
    if len(shapes) == 1:
        first = found[0]
        if len(found) == 1:
            return first
        runner_up = next((item.runner_up for item in found if item.runner_up), None)
        reason = f"all {plural(len(found), 'file')} are {first.shape}"
        return Detection(first.shape, confidence, sampled, runner_up, reason, first.flat)
    counted = ", ".join(f"{count} {name}" for name, count in shapes.most_common())
    return Detection("mixed", confidence, sampled, None, f"files by shape: {counted}")
