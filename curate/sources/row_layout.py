"""Layouts of rows: `mapping.rows` for rows inside a file's entries, `mapping.join` for rows split over two files."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from curate.errors import UsageError
from curate.sources.config import SourceConfig
from curate.sources.input_files import list_files
from curate.sources.mapping import Mapping
from curate.sources.mapping_parts import Join
from curate.sources.raw_rows import read_rows
from curate.sources.selectors import parse_selector, select_value
from curate.sources.unit_result import RawRow, SourceRow, UnitResult, UnreadableError, scalar_id
from curate.wording import plural


def laid_out(raws: Iterable[RawRow], rows: str) -> Iterator[RawRow]:
    """Yield the rows that a selector finds in each entry of a file, renumbered; `.` makes one row of all entries.

    Values of an object keep their keys as keys of the rows. An entry that cannot be parsed stays a row of its own.
    """
    if rows == ".":
        yield from _whole_file(raws)
        return
    number = 0
    steps = parse_selector(rows)
    for raw in raws:
        inner = [(raw.key, raw.value)] if raw.fault is None else []
        for step in steps:
            inner = [pair for key, value in inner for pair in _step(key, value, step)]
        for key, value in inner:
            number += 1
            yield RawRow(number, value, key=key)
        if not inner:
            number += 1
            reason = raw.fault or "missing_field"
            detail = raw.detail or f"mapping.rows '{rows}' points at nothing"
            yield RawRow(number, raw.value, reason, detail)


def _step(key: str | None, value: Any, step: str | int | None) -> Iterator[tuple[str | None, Any]]:
    """Yield the values that one step of a selector leads to, with its key where the step is `*`."""
    if step == "*":
        yield from (
            ((str(name), inner) for name, inner in value.items()) if isinstance(value, dict) else ()
        )
    elif isinstance(step, str):
        if isinstance(value, dict) and step in value:
            yield key, value[step]
    elif isinstance(value, list):
        yield from ((key, inner) for inner in (value if step is None else value[step : step + 1]))


def _whole_file(raws: Iterable[RawRow]) -> Iterator[RawRow]:
    entries = []
    for raw in raws:
        if raw.fault is not None:
            yield RawRow(1, raw.value, raw.fault, f"entry {raw.number}: {raw.detail}")
            return
        entries.append(raw.value)
    if entries:
        yield RawRow(1, {"items": entries})


@dataclass(slots=True)
class Joined:
    """The rows of a joined file by id.

    Attributes:
        rows: rows of each id.
        used: ids that rows of the source had so far.
        without_id: number of rows without an id.
    """

    join: Join
    rows: dict[str, list[Any]]
    without_id: int = 0
    used: set[str] = field(default_factory=set)

    def reader(self, mapping: Mapping) -> Callable[[SourceRow], UnitResult]:
        """Return a reader of a source's row with the row of the joined file added."""
        return lambda row: mapping.read(self._with(row))

    def _with(self, row: SourceRow) -> SourceRow:
        name = scalar_id(select_value(row, self.join.by))
        if name is None:
            raise UnreadableError("missing_field", f"no '{self.join.by}' to join by")
        matches = self.rows.get(name, [])
        if len(matches) != 1:
            raise UnreadableError(
                "no_match", f"{plural(len(matches), 'row')} of {self.join.path} have id {name}"
            )
        self.used.add(name)
        return {**row, self.join.under: matches[0]}

    def counts(self) -> dict[str, int]:
        """Return the number of rows of the joined file, and of those whose id no row of the source had (`unused`)."""
        total = sum(map(len, self.rows.values())) + self.without_id
        used = sum(len(rows) for name, rows in self.rows.items() if name in self.used)
        return {"rows": total, "unused": total - used}


def join_rows(join: Join, encoding: str | None) -> Joined:
    """Read the file to join.

    Raises:
        SourceError: the file is missing.
        UsageError: none of its rows has an id.
    """
    files, _ = list_files(SourceConfig(path=join.path, encoding=encoding))
    joined = Joined(join, {})
    for file in files:
        for raw in read_rows(file.path, encoding):
            name = (
                scalar_id(select_value(raw.value, join.key or join.by))
                if raw.fault is None
                else None
            )
            if name is None:
                joined.without_id += 1
            else:
                joined.rows.setdefault(name, []).append(raw.value)
    if not joined.rows:
        raise UsageError(
            f"no row of {join.path} has an id to join by",
            got=f"{plural(joined.without_id, 'row')} without '{join.key or join.by}'",
            fix="name it as source.mapping.join.key",
        )
    return joined
