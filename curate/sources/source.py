"""A source opened for reading: its files, what their shapes are, and the dialogues in them.

Files are sampled when the source is opened and read when it is read, row by row. In memory are
one row at a time (all rows of a file where rows have to be joined) and the ids given so far.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

import orjson

from curate.dialogue import Dialogue
from curate.errors import CurateError, SourceError, UsageError
from curate.sources.assemble import Part, UnitMaker, capped
from curate.sources.config import RoleFrom, SourceConfig
from curate.sources.detect import (
    SAMPLE,
    Abstention,
    Detection,
    as_row,
    detect,
    is_flat,
    key_names,
    refuse,
    summarise,
)
from curate.sources.formats import NAMES, fitting, format_named
from curate.sources.hub_datasets import Rows, hub_rows, is_hub_source
from curate.sources.input_files import SkippedFile, list_files
from curate.sources.raw_rows import RawRow, read_rows
from curate.sources.trees import read_flat
from curate.sources.turns_table import read_table
from curate.sources.unit_result import Row, RowFault, UnitResult, UnreadableError, type_name
from curate.sources.units import RowCounts, Unit

_ODD_ROW = (TypeError, ValueError, LookupError, AttributeError, RecursionError)
"""What reading a row of a kind nobody foresaw can raise."""


@dataclass(frozen=True)
class Source:
    """What `open_source` gives.

    Attributes:
        config: as given.
        detection: the shape of the source; `mixed` where its files differ.
        detections: the shape of each file that is read.
        files: labels of the files that are read.
        skipped_files: files met on the way that are not read, each with the reason.
    """

    config: SourceConfig
    detection: Detection
    detections: dict[str, Detection]
    parts: tuple[Part, ...]
    skipped_files: tuple[SkippedFile, ...] = ()

    @property
    def files(self) -> tuple[str, ...]:
        """Labels of the files that are read, in order."""
        return tuple(part.label for part in self.parts)

    def check_read(self, tally: RowCounts, see: str | None = None) -> None:
        """Refuse a source of which, once it was read, no row gave a dialogue.

        Args:
            tally: of all that `read` gave.
            see: where each row's reason stands.

        Raises:
            UsageError: the recipe's mapping or shape reads none of the rows; names the keys they have.
            SourceError: none can be read though the shape was detected.
        """
        if tally.rows_used or not tally.rows_in:
            return
        counted = ", ".join(f"{reason} {n:,}" for reason, n in tally.reasons.most_common(4))
        rows = (as_row(raw.value) for part in self.parts for raw in islice(part.rows(), SAMPLE))
        keys = key_names(row for row in rows if row)
        named = {"mapping": self.config.mapping is not None, "shape": self.config.shape != "auto"}
        wrong = " or ".join(f"source.{key}" for key, is_set in named.items() if is_set)
        where = f"; {see} has each row's reason" if see else ""
        raise (UsageError if wrong else SourceError)(
            f"no row of {', '.join(self.config.paths)} can be read",
            got=f"0 of {tally.rows_in:,} rows as {self.detection.shape} ({counted})",
            expected=f"what fits the keys there are: {keys}" if keys else "rows with keys",
            fix=f"fix {wrong or 'the rows, or describe them as source.mapping'}{where}",
        )

    def read(
        self,
        role: str | None = None,
        scenario: str | None = None,
        role_from: RoleFrom = "data",
    ) -> Iterator[Unit]:
        """Read all units, up to the config's `limit` and `cap`.

        Args:
            role: role definition for dialogues whose data has none, in a field or a system message.
            scenario: scenario for dialogues whose data has none.
            role_from: `recipe` puts `role` before what the data says.

        Raises:
            SourceError: a file has gone or has become unreadable since it was opened.
        """
        maker = UnitMaker(self.config, role, scenario, role_from)
        units = (unit for part in self.parts for unit in _part_units(part, self.detections, maker))
        made = 0
        for unit in islice(units, min(self.config.limit or sys.maxsize, sys.maxsize)):
            whole = unit if self.config.cap is None else capped(unit, self.config.cap - made)
            made += len(whole.dialogues)
            yield whole
            if self.config.cap is not None and made >= self.config.cap:
                return


def open_source(config: SourceConfig) -> Source:
    """List a source's files, read a sample of each and find out its shape.

    A file of a folder or glob that is not dialogue data is skipped with a reason, as long as another
    file is.

    Raises:
        UsageError: the shape is unknown or ambiguous, or a Hub source needs `datasets`.
        SourceError: a path is missing or empty, or holds nothing that can be read.
    """
    if is_hub_source(config):
        label = "@".join(filter(None, (config.paths[0], config.revision)))
        part = Part(label, config.source_name, _numbered(hub_rows(config)))
        return _opened(config, (part,), ())
    files, skipped = list_files(config)
    parts = tuple(
        Part(file.label, file.prefix, _file_rows(file.path, config.encoding)) for file in files
    )
    return _opened(config, parts, skipped)


def open_rows(rows: Iterable[Any], config: SourceConfig) -> Source:
    """A source of rows in memory: a list, a `datasets.Dataset`, or any iterable that can be read twice.

    Args:
        rows: mappings; column values are made plain JSON as for files.
        config: `path` only names the source.

    Raises:
        UsageError, SourceError: see `open_source`.
    """
    part = Part(config.paths[0], config.source_name, _numbered(Rows(rows)))
    return _opened(config, (part,), ())


def _numbered(rows: Iterable[Any]) -> Callable[[], Iterator[RawRow]]:
    return lambda: (_raw_row(number, row) for number, row in enumerate(rows, start=1))


def _raw_row(number: int, row: Any) -> RawRow:
    """A row from memory; files are checked as they are parsed, these have to be here."""
    try:
        orjson.dumps(row)
    except (orjson.JSONEncodeError, TypeError, RecursionError) as problem:
        reason = "bad_encoding" if "surrogate" in str(problem) else "unreadable"
        return RawRow(number, repr(row)[:10_000], reason, f"the row is not JSON: {problem}")
    return RawRow(number, row)


def _file_rows(path: Any, encoding: str | None) -> Callable[[], Iterator[RawRow]]:
    return lambda: read_rows(path, encoding)


def _opened(
    config: SourceConfig, parts: tuple[Part, ...], skipped: tuple[SkippedFile, ...]
) -> Source:
    detections: dict[str, Detection] = {}
    abstained: dict[str, Abstention] = {}
    passed = list(skipped)
    for part in parts:
        sample = list(islice(part.rows(), SAMPLE))
        if not sample:
            passed.append(SkippedFile(part.label, "holds no rows"))
            continue
        found = _detect(config, sample)
        if isinstance(found, Detection):
            detections[part.label] = found
        else:
            abstained[part.label] = found
    _settle(detections, abstained, passed)
    if not detections:
        if len(abstained) == 1:
            raise refuse(*next((found, label) for label, found in abstained.items()))
        raise _nothing(config, passed, abstained)
    kept = tuple(part for part in parts if part.label in detections)
    return Source(config, summarise(detections), detections, kept, tuple(passed))


def _detect(config: SourceConfig, sample: list[RawRow]) -> Detection | Abstention:
    if config.mapping is None and config.shape == "auto":
        return detect(sample, config.columns)
    name = "mapping" if config.mapping is not None else config.shape
    rows = [as_row(raw.value) for raw in sample if raw.fault is None]
    flat = config.mapping is None and is_flat(name, rows)
    read = None if flat else _reader(config, name)
    if read is None:
        hits = sum(name in fitting(row or {}, config.columns) for row in rows)
    else:
        hits = sum(_is_readable(raw, read) for raw in sample)
    given = f"source.{'mapping' if config.mapping is not None else 'shape'} is set"
    reason = f"{given}; it fits {hits} of {len(sample)} sampled rows"
    return Detection(name, hits / len(sample), len(sample), reason=reason, flat=flat)


def _reader(config: SourceConfig, shape: str) -> Callable[[Row], UnitResult] | None:
    """What makes dialogues of a single row; None where rows have to be joined."""
    return config.mapping.read if config.mapping is not None else format_named(shape).read


def _is_readable(raw: RawRow, read: Callable[[Row], UnitResult]) -> bool:
    try:
        return bool(_reading_of(raw, read).drafts)
    except (UnreadableError, *_ODD_ROW):
        return False


def _settle(
    detections: dict[str, Detection],
    abstained: dict[str, Abstention],
    passed: list[SkippedFile],
) -> None:
    """Decide on files without a shape by the others, once some have one.

    A file that fits one of their shapes, if badly or not only, takes that one; so does a file of which
    nothing can be parsed, so that its rows are quarantined. One of no known shape is skipped.

    Raises:
        UsageError: an ambiguous file that the others do not settle.
    """
    if not detections:
        return
    shapes = [found.shape for found in detections.values()]
    usual = max(sorted(set(shapes)), key=shapes.count)
    for label, found in abstained.items():
        shared = [name for name in found.shares if name in shapes]
        if found.parsed == 0 or shared:
            shape = shared[0] if shared else usual
            reason = f"{found.reason}; taken for {shape} like other files"
            share = found.shares.get(shape, 0.0)
            detections[label] = Detection(shape, share, found.sampled, reason=reason)
        elif found.ambiguous:
            raise refuse(found, label)
        else:
            passed.append(SkippedFile(label, found.reason))


def _nothing(
    config: SourceConfig, passed: list[SkippedFile], abstained: dict[str, Abstention]
) -> CurateError:
    """The error for a source without a single file to read; each file is named with its reason."""
    named = [f"{label}: {found.reason}" for label, found in abstained.items()]
    named += [f"{item.file}: {item.reason}" for item in passed]
    more = f" (and {len(named) - 4} more)" if len(named) > 4 else ""
    got = "; ".join(named[:4]) + more
    where = ", ".join(config.paths)
    if abstained:
        return UsageError(
            f"no file under {where} has a known shape",
            got=got,
            expected=f"one of: {', '.join(NAMES)}",
            fix="set source.shape if it is one of these, or describe it as source.mapping (docs/sources.md)",
        )
    return SourceError(
        f"{where} is empty", got=got, expected="at least one row", fix="check source.path"
    )


# ---- reading ------------------------------------------------------------------------------------


def _part_units(part: Part, detections: dict[str, Detection], maker: UnitMaker) -> Iterator[Unit]:
    found = detections[part.label]
    if found.flat:
        yield from _joined_units(part, found, maker)
        return
    read = _reader(maker.config, found.shape)
    if read is None:
        yield from _joined_units(part, found, maker)
        return
    for raw in part.rows():
        yield maker.unit(
            part, (raw.number,), {raw.number: raw.value}, _read_row(raw, read, maker, found)
        )


def _read_row(
    raw: RawRow, read: Callable[[Row], UnitResult], maker: UnitMaker, found: Detection
) -> UnitResult:
    try:
        return _reading_of(raw, read)
    except UnreadableError as fault:
        reason, detail = _refined(raw, fault, maker.config, found)
    except _ODD_ROW as problem:
        # A row of a kind nobody foresaw must not stop the others; it is quarantined under a code of its own.
        reason, detail = "unreadable", f"{type(problem).__name__}: {problem}"[:300]
    return UnitResult(None, (), rows=(RowFault(raw.number, reason, detail),))


def _reading_of(raw: RawRow, read: Callable[[Row], UnitResult]) -> UnitResult:
    reading = read(_row_of(raw))
    # Dialogue's own checks belong to the row, too: they run once here, on what was read.
    for draft in reading.drafts:
        Dialogue(id="-", messages=draft.messages, **draft.fields)
    return reading


def _row_of(raw: RawRow) -> Row:
    if raw.fault is not None:
        raise UnreadableError(raw.fault, raw.detail)
    row = as_row(raw.value)
    if row is None:
        raise UnreadableError("not_an_object", f"the row is {type_name(raw.value)}")
    return row


def _refined(
    raw: RawRow, fault: UnreadableError, config: SourceConfig, found: Detection
) -> tuple[str, str]:
    """A missing field means another shape where the row fits one."""
    if fault.reason == "missing_field" and config.mapping is None:
        row = as_row(raw.value)
        others = [name for name in fitting(row or {}, config.columns) if name != found.shape]
        if others:
            return "shape_mismatch", f"the row looks like {others[0]}; {fault.detail}"
    return fault.reason, fault.detail


def _joined_units(part: Part, found: Detection, maker: UnitMaker) -> Iterator[Unit]:
    rows: list[tuple[int, Row]] = []
    raws: dict[int, Any] = {}
    for raw in part.rows():
        raws[raw.number] = raw.value
        try:
            rows.append((raw.number, _row_of(raw)))
        except UnreadableError as fault:
            bad = RowFault(raw.number, fault.reason, fault.detail)
            yield maker.unit(part, (raw.number,), raws, UnitResult(None, (), rows=(bad,)))
    groups = read_flat(rows) if found.shape == "oasst" else read_table(rows, maker.config.columns)
    for numbers, reading in groups:
        yield maker.unit(part, numbers, raws, reading)
