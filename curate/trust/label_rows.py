"""People's labels as rows, read from a file or from the data itself.

A row names a dialogue (by id, content hash or text) or a pair, where it is about a turn that turn, a dimension, a value
and, where there are several, the rater. What cannot be used is counted by its reason and the first of each named;
nothing is dropped silently. `gold` puts the rows on levels.
"""

from __future__ import annotations

import codecs
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson
import polars as pl
from polars.exceptions import PanicException, PolarsError

from curate.dialogue import Dialogue
from curate.errors import UsageError
from curate.records import CONVERSATION_DIMENSIONS, TURN_DIMENSIONS
from curate.storage.csv_text import csv_delimiter
from curate.trust.labelling_tools import exported_rows
from curate.wording import plural

ADHERENCE = "adherence"
GOOD = ("verdict", "accept")
"""Dimensions that say whether a dialogue is good as a whole."""
DIMENSIONS = (*TURN_DIMENSIONS, *CONVERSATION_DIMENSIONS, *GOOD, ADHERENCE)
NO_VALUE = "no value"
_YES = frozenset(
    {"true", "1", "1.0", "yes", "accept", "accepted", "pass", "good", "excellent", "adherent"}
)
_NO = frozenset(
    {"false", "0", "0.0", "no", "reject", "rejected", "fail", "borderline", "poor", "violation"}
)
_NA = frozenset({"n/a", "na", "not applicable"})


@dataclass(frozen=True, slots=True)
class GoldRow:
    """One label as it was read; `place` says where."""

    place: str
    dimension: str
    value: Any
    dialogue_id: str | None = None
    content: str | None = None
    turn: int | None = None
    rater: str | None = None
    language: str | None = None
    time: str | None = None


@dataclass(frozen=True, slots=True)
class GivenLabels:
    """Labels as they came, in the columns of a file.

    Attributes:
        origin: name of the file, or which label of the data.
        rows: each with its place, for whoever must find it again.
    """

    origin: str
    rows: list[tuple[str, dict[str, Any]]]


@dataclass(frozen=True, slots=True)
class PairVote:
    """The side of a pair that a person calls better."""

    place: str
    pair_id: str
    chosen_is_better: bool
    rater: str | None = None
    time: str | None = None


@dataclass(slots=True)
class Unused:
    """Rows that could not be used, by reason: how many, and where the first is."""

    counts: dict[str, int] = field(default_factory=dict)
    first: dict[str, str] = field(default_factory=dict)

    def add(self, reason: str, place: str, rows: int = 1) -> None:
        """Count rows; the first place of a reason is kept."""
        self.counts[reason] = self.counts.get(reason, 0) + rows
        self.first.setdefault(reason, place)

    def merge(self, other: Unused) -> None:
        """Count the rows of another, too."""
        for reason, rows in other.counts.items():
            self.add(reason, other.first[reason], rows)

    def reasons(self) -> list[str]:
        """Return each reason with the number of its rows, in words."""
        return [f"{plural(rows, 'row')}: {reason}" for reason, rows in self.counts.items()]


def read_gold(path: str | Path) -> list[GoldRow]:
    """Read labels from a CSV, JSON Lines or Parquet file, or an export of Label Studio or Argilla.

    Columns: `id` (or `dialogue_id`) or `content` (or `content_hash`), `dimension`, `value`; optional `turn`,
    `rater`, `language` and `time`. Others are let be.

    Raises:
        UsageError: no such file, another kind, or columns that are missing.
    """
    labels = labels_in_file(Path(path))
    _check_columns(labels.origin, [row for _, row in labels.rows])
    return [gold_row(place, row) for place, row in labels.rows]


def labels_in_file(path: Path) -> GivenLabels:
    """Return the rows of a file of labels, whatever they are about; errors as `read_rows`."""
    rows = enumerate(read_label_rows(path), 1)
    return GivenLabels(path.name, [(f"{path.name}:{number}", row) for number, row in rows])


def _check_columns(origin: str, rows: Sequence[Mapping[str, Any]]) -> None:
    columns = {name for row in rows for name in row}
    if not (columns & {"id", "dialogue_id", "content", "content_hash"}) or not (
        {"dimension", "value"} <= columns
    ):
        raise UsageError(
            f"{origin} is not a file of labels",
            got=f"columns: {', '.join(sorted(columns)) or 'none'}",
            expected="columns `id` or `content`, `dimension` and `value`; where needed, `turn` and `rater`",
        )


def split_labels(labels: GivenLabels) -> tuple[list[GoldRow], list[PairVote], Unused]:
    """Return the labels of dialogues and of pairs, which may stand in one file.

    A row with a `pair_id` says which side of that pair is `better`, `chosen` or `rejected`; all others are as in
    `read_gold`.

    Returns:
        Labels of dialogues, labels of pairs, and the rows of pairs that name no side.

    Raises:
        UsageError: as in `read_gold`.
    """
    unused = Unused()
    votes = []
    others = []
    for place, row in labels.rows:
        pair_id, better = _text(row.get("pair_id")), _text(row.get("better"))
        if pair_id is None:
            others.append((place, row))
        elif better in ("chosen", "rejected"):
            rater, time = _text(row.get("rater")), _text(row.get("time"))
            votes.append(PairVote(place, pair_id, better == "chosen", rater, time))
        else:
            unused.add(f"better is neither chosen nor rejected: {str(better)[:40]!r}", place)
    if others or not labels.rows:
        _check_columns(labels.origin, [row for _, row in others])
    return [gold_row(place, row) for place, row in others], votes, unused


def read_label_rows(path: Path) -> list[dict[str, Any]]:
    """Return the rows of a CSV, JSON Lines or Parquet file; the answers of an export of Label Studio or Argilla.

    Raises:
        UsageError: no such file, another kind, or one that cannot be read.
    """
    if not path.is_file():
        raise UsageError(
            "no such file of labels",
            got=path,
            expected="a CSV, JSONL or Parquet file, or the JSON that Label Studio or Argilla exports",
        )
    try:
        return list(_table(path))
    except (PolarsError, PanicException, ValueError) as error:  # ValueError: a time that is none
        raise UsageError(
            "the labels cannot be read",
            got=f"{path}: {str(error).splitlines()[0]}",
            fix="write them as CSV with a header, JSON lines or Parquet, in UTF-8",
        ) from error


def _table(path: Path) -> Iterator[dict[str, Any]]:
    kind = path.suffix.lower()
    if kind == ".csv":
        data = path.read_bytes()
        wide = data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
        text = data.decode("utf-16" if wide else "utf-8-sig")
        delimiter = csv_delimiter(text.partition("\n")[0])
        table = pl.read_csv(text.encode(), separator=delimiter, infer_schema=False)
        yield from table.iter_rows(named=True)
    elif kind == ".parquet":
        yield from pl.read_parquet(path).iter_rows(named=True)
    elif kind in (".jsonl", ".ndjson"):
        for line in path.read_bytes().splitlines():
            if line.strip():
                row = orjson.loads(line)
                yield row if isinstance(row, dict) else {}
    elif kind == ".json":
        yield from exported_rows(orjson.loads(path.read_bytes()), path)
    else:
        raise UsageError(
            "labels of an unknown kind", got=path, expected=".csv, .jsonl, .parquet or .json"
        )


def labels_in_data(dialogues: Iterable[Dialogue], label: str, dimension: str) -> list[GoldRow]:
    """Return the labels that dialogues carry: one value, or for a turn's dimension a list with one for each scored turn.

    Of adherence one value is of the last assistant turn, and a list has one for each assistant turn.

    Raises:
        UsageError: a dimension there is not, or a list that does not fit the turns.
    """
    if dimension not in DIMENSIONS:
        raise UsageError("no such dimension", got=dimension, expected=", ".join(DIMENSIONS))
    rows = []
    for dialogue in dialogues:
        value = dialogue.labels.get(label)
        if value is None:
            continue
        place = f"dialogue {dialogue.id}"
        if dimension == ADHERENCE:
            scored = [turn.number for turn in dialogue.turns if turn.has_assistant]
        else:
            scored = [turn.number for turn in dialogue.turns if turn.in_rubric]
        is_of_turns = dimension in TURN_DIMENSIONS or (
            dimension == ADHERENCE and isinstance(value, list)
        )
        if not is_of_turns:
            rows.append(GoldRow(place, dimension, value, content=dialogue.content_hash))
            continue
        values = value if isinstance(value, list) else [value]
        if len(values) != len(scored):
            raise UsageError(
                f"the label '{label}' of {place} does not fit its turns",
                got=f"{str(value)[:80]} for {len(scored)} scored turns",
                expected="a list with one value for each",
            )
        rows += [
            GoldRow(place, dimension, one, content=dialogue.content_hash, turn=turn)
            for turn, one in zip(scored, values, strict=True)
            if one is not None
        ]
    return rows


def gold_row(place: str, row: Mapping[str, Any], dimension: str = "") -> GoldRow:
    """Return a row of a file as a label; a row that names no dimension has the default one."""
    turn = finite_number(row.get("turn"))
    return GoldRow(
        place=place,
        dimension=_text(row.get("dimension")) or dimension,
        value=row.get("value"),
        dialogue_id=_text(row.get("id")) or _text(row.get("dialogue_id")),
        content=_text(row.get("content")) or _text(row.get("content_hash")),
        turn=None if turn is None else int(turn),
        rater=_text(row.get("rater")),
        language=_text(row.get("language")),
        time=_text(row.get("time")),
    )


def refuse_empty(unused: Unused, column: str = "value") -> None:
    """Refuse labels of which none was filled in, in that column.

    Raises:
        UsageError: no row has a value.
    """
    if {*unused.counts} == {NO_VALUE}:
        raise UsageError(
            "no label has a value",
            got=f"{plural(unused.counts[NO_VALUE], 'row')}, none of them filled in",
            fix=f"fill in the column `{column}`",
        )


def _text(value: Any) -> str | None:
    return None if value is None or not str(value).strip() else str(value).strip()


def finite_number(value: Any) -> float | None:
    """Return a value as a number; None where it is none, or is infinite or NaN."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        return None
    return number if math.isfinite(number) else None


def is_not_applicable(value: Any) -> bool:
    """Return whether a value says that the question does not apply."""
    return str(value).strip().lower() in _NA


def truth_of(value: Any) -> bool | None:
    """Return True for yes and False for no, as people write them; None for anything else."""
    text = str(value).strip().lower()
    return True if text in _YES else False if text in _NO else None
