"""The rows of one file to units, as its detection says: each row alone, or joined where a row is a single message."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from curate.dialogue import Dialogue
from curate.sources.assemble import SourcePart, UnitMaker
from curate.sources.config import SourceConfig
from curate.sources.detect import Detection, as_mapped_row, as_row
from curate.sources.formats import fitting, format_named
from curate.sources.row_layout import Joined
from curate.sources.selectors import first_failing
from curate.sources.trees import read_flat
from curate.sources.turns_table import read_turns_table
from curate.sources.unit_result import (
    ODD_ROW,
    RawRow,
    Reader,
    SourceRow,
    Unit,
    UnitResult,
    UnreadableError,
    type_name,
)


@dataclass(frozen=True, slots=True)
class PartReader:
    """Reads the rows of a file.

    Attributes:
        joined: the rows of the file that the mapping joins.
    """

    config: SourceConfig
    detection: Detection
    joined: Joined | None = None

    def units(self, part: SourcePart, maker: UnitMaker) -> Iterator[Unit]:
        """Yield all units of a part; a row that `source.where` leaves out is a unit that counts it."""
        raws: dict[int, Any] = {}
        rows: list[tuple[int, SourceRow]] = []
        read = self._reader
        for raw in part.rows():
            if failing := self._failing(raw):
                yield Unit((), part.label, (), (), rows_left_out={f"where.{failing}": 1})
            elif read is not None:
                yield maker.unit(
                    part, (raw.number,), {raw.number: raw.value}, self._read(raw, read)
                )
            else:
                raws[raw.number] = raw.value
                try:
                    rows.append((raw.number, self._row(raw)))
                except UnreadableError as error:
                    result = UnitResult(None, faults=(error.at(raw.number),))
                    yield maker.unit(part, (raw.number,), raws, result)
        is_tree = self.detection.shape == "oasst"
        for numbers, result in (
            read_flat(rows) if is_tree else read_turns_table(rows, self.config.columns)
        ):
            yield maker.unit(part, numbers, raws, result)

    def readable(self, sample: list[RawRow]) -> int:
        """Return how many rows of a sample can be read; where rows are joined, how many fit the shape."""
        read = self._reader
        if read is not None:
            return sum(bool(self._read(raw, read).drafts) for raw in sample)
        rows = [as_row(raw.value) or {} for raw in sample if raw.fault is None]
        return sum(self.detection.shape in fitting(row, self.config.columns) for row in rows)

    @property
    def _reader(self) -> Reader | None:
        """Return the function that makes dialogues of a single row; None where rows have to be joined."""
        mapping = self.detection.mapping
        if mapping is not None:
            return mapping.read if self.joined is None else self.joined.reader(mapping)
        return None if self.detection.flat else format_named(self.detection.shape).read

    def _failing(self, raw: RawRow) -> str | None:
        """Return the condition of `source.where` that leaves a row out; None for a row that stays."""
        row = self._as_row(raw) if self.config.where and raw.fault is None else None
        return None if row is None else first_failing(self.config.where, row)

    def _as_row(self, raw: RawRow) -> SourceRow | None:
        return (as_row if self.detection.mapping is None else as_mapped_row)(raw.value)

    def _row(self, raw: RawRow) -> SourceRow:
        if raw.fault is not None:
            raise UnreadableError(raw.fault, raw.detail)
        row = self._as_row(raw)
        if row is None:
            raise UnreadableError("not_an_object", f"the row is {type_name(raw.value)}")
        return row

    def _read(self, raw: RawRow, read: Reader) -> UnitResult:
        """Return what a row gives; a row of a kind nobody foresaw must not stop the others."""
        try:
            result = read(self._row(raw))
            # Dialogue's own checks belong to the row, too: they run once here, on what was read.
            for draft in result.drafts:
                Dialogue(id="-", messages=draft.messages, **draft.fields)
        except UnreadableError as error:
            return UnitResult(None, faults=(self._refined(raw, error).at(raw.number),))
        except ODD_ROW as problem:
            detail = f"{type(problem).__name__}: {problem}"[:300]
            return UnitResult(None, faults=(UnreadableError("unreadable", detail).at(raw.number),))
        return result if result.id is not None else replace(result, id=raw.key)

    def _refined(self, raw: RawRow, error: UnreadableError) -> UnreadableError:
        """Return the error of a row; `shape_mismatch` for a missing field if the row fits another shape."""
        if error.reason == "missing_field" and self.config.mapping is None:
            row = as_row(raw.value) or {}
            for name in fitting(row, self.config.columns):
                if name != self.detection.shape:
                    detail = f"the row looks like {name}; {error.detail}"
                    return UnreadableError("shape_mismatch", detail)
        return error
