"""Compare two versions of a file of a run, or of a stage's rows: which rows differ, and in which fields."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice, zip_longest
from pathlib import Path
from typing import Any

import orjson
import polars as pl
from pydantic import Field

from curate.dialogue import Frozen
from curate.storage.line_files import read_lines
from curate.storage.parquet_files import read_frames, readable
from curate.storage.whole_files import damaged
from curate.trust.run_comparison import changed_keys

_NAMED = 20
_BATCH = 20_000
_IDS = ("pair_id", "dialogue_id", "id")


class Difference(Frozen):
    """A difference in one place of a run."""

    place: str = Field(description="File below the run folder, stage, or key of the manifest.")
    problem: str = Field(description="The problem, in words.")
    rows: int = Field(0, description="Number of rows with this problem; 0 if it is not about rows.")
    units: tuple[str, ...] = Field(
        (), description="Ids of the first of them, or their numbers as `row 3`."
    )
    fields: tuple[str, ...] = Field((), description="Fields that differ in them.")


class RowDifferences:
    """Counts the rows of one place that differ, naming the first."""

    def __init__(self, place: str, problem: str) -> None:
        self._place, self._problem = place, problem
        self._rows = 0
        self._units: list[str] = []
        self._fields: dict[str, None] = {}

    def add(self, unit: str, fields: Iterable[str] = ()) -> None:
        """Count one row."""
        self._rows += 1
        if len(self._units) < _NAMED:
            self._units.append(unit)
            self._fields |= dict.fromkeys(islice(fields, _NAMED))

    def differences(self) -> Iterator[Difference]:
        """Yield what was counted, if anything."""
        if self._rows:
            yield Difference(
                place=self._place,
                problem=self._problem,
                rows=self._rows,
                units=tuple(self._units),
                fields=tuple(self._fields)[:_NAMED],
            )


def file_differences(run_file: Path, remade_file: Path, place: str) -> Iterator[Difference]:
    """Yield the differences between a file and the same file made again.

    Args:
        run_file: JSON, JSONL and Parquet are compared by content.
        remade_file: the same file, made again.
        place: the file's name in the differences.

    Raises:
        CurateError: one of them is damaged, so that it cannot be read.
    """
    if not run_file.is_file():
        yield Difference(place=place, problem="is missing")
        return
    if run_file.read_bytes() == remade_file.read_bytes():
        return
    problem = "differs from what the kept replies give"
    if run_file.suffix not in (".json", ".jsonl", ".parquet"):
        yield Difference(place=place, problem=problem)
        return
    tally = RowDifferences(place, problem)
    if run_file.suffix == ".json":
        yield value_difference(_value(run_file), _value(remade_file), place)
        return
    rows = _frame_rows if run_file.suffix == ".parquet" else _lines
    for number, (old, new) in enumerate(zip_longest(rows(run_file), rows(remade_file)), start=1):
        if old != new:
            tally.add(_unit(new or old, number), different_fields(old, new))
    yield from tally.differences()


def value_difference(old: Any, new: Any, place: str) -> Difference:
    """Return the difference of two JSON values that are not equal."""
    fields = tuple(different_fields(old, new))
    problem = "differs from what the kept replies give"
    return Difference(place=place, problem=problem, fields=fields[:_NAMED])


def different_fields(old: Any, new: Any) -> Iterator[str]:
    """Yield the dotted keys in which two JSON values differ."""
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        yield from changed_keys(old, new)
    elif old is None:
        yield "a row is missing"
    elif new is None:
        yield "a row is too much"


def _unit(row: Any, number: int) -> str:
    if isinstance(row, Mapping):
        fields = row.get("dialogue") if isinstance(row.get("dialogue"), Mapping) else row
        for name in _IDS:
            if fields is not None and isinstance(fields.get(name), str):
                return str(fields[name])
    return f"row {number}"


def _lines(path: Path) -> Iterator[Any]:
    for number, line in enumerate(read_lines(path), start=1):
        yield _parsed(line, f"{path}:{number}")


def _value(path: Path) -> Any:
    return _parsed(path.read_bytes(), path)


def _parsed(text: bytes, place: Path | str) -> Any:
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise damaged(place, error) from error


def _frame_rows(path: Path) -> Iterator[dict[str, Any]]:
    # As JSON, in which a NaN is what another NaN is.
    for frame in read_frames(path, _BATCH):
        with readable(path):
            yield from map(orjson.loads, _as_lines(frame))


def _as_lines(frame: pl.DataFrame) -> list[bytes]:
    return [line for line in frame.write_ndjson().encode().splitlines() if line]
