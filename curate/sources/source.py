"""A source opened for reading: its files, their shapes, and the dialogues in them.

Files are sampled when the source is opened and read when it is read, row by row. In memory are
one row at a time (all rows of a file where rows have to be joined) and the ids given so far.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import Any

import orjson

from curate.dialogue import Dialogue
from curate.errors import CurateError, SourceError, UsageError
from curate.sources.assemble import SourcePart, UnitMaker, capped
from curate.sources.config import RoleFrom, SourceConfig
from curate.sources.detect import (
    SAMPLE,
    Abstention,
    Detection,
    as_mapped_row,
    as_row,
    detect,
    is_flat,
    key_names,
    summarise,
)
from curate.sources.formats import fitting, format_named
from curate.sources.hub_datasets import Rows, hub_rows, is_hub_source
from curate.sources.input_files import SkippedFile, list_files
from curate.sources.mapping import Mapping
from curate.sources.proposal import (
    LEAST,
    Proposal,
    UnknownShapeError,
    detect_structure,
    propose,
    refuse_shape,
    share_read,
)
from curate.sources.raw_rows import read_rows
from curate.sources.row_layout import Joined, join_rows, laid_out
from curate.sources.selectors import first_failing
from curate.sources.trees import read_flat
from curate.sources.turns_table import read_table
from curate.sources.unit_result import (
    RawRow,
    Reader,
    Row,
    RowCounts,
    RowFault,
    Unit,
    UnitResult,
    UnreadableError,
    type_name,
)
from curate.wording import plural

_ODD_ROW = (TypeError, ValueError, LookupError, AttributeError, RecursionError)
"""Errors that reading a row of an unforeseen kind may raise."""


@dataclass(frozen=True)
class Source:
    """What `open_source` gives.

    Attributes:
        detection: the shape of the source; `mixed` where its files differ.
        detections: the shape of each file that is read.
        skipped_files: files met on the way that are not read, each with the reason.
        joined: the rows of the file that the mapping joins.
    """

    config: SourceConfig
    detection: Detection
    detections: dict[str, Detection]
    parts: tuple[SourcePart, ...]
    skipped_files: tuple[SkippedFile, ...] = ()
    joined: Joined | None = None

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
            UsageError: the recipe's mapping or shape reads none of the rows, and names the keys they have; or
                its `where` leaves out all of them.
            SourceError: none can be read though the shape was detected.
        """
        if tally.rows_left_out and not tally.rows_in:
            shown = ", ".join(f"{name} {n:,}" for name, n in tally.rows_left_out.most_common(4))
            raise UsageError(
                f"source.where leaves out every row of {', '.join(self.config.paths)}",
                got=f"{plural(tally.rows_left_out.total(), 'row')}, left out by {shown}",
                fix="compare source.where with the values that the data has",
            )
        if tally.rows_used or not tally.rows_in:
            return
        shown = ", ".join(f"{reason} {n:,}" for reason, n in tally.reasons.most_common(4))
        values = (raw.value for part in self.parts for raw in islice(part.rows(), SAMPLE))
        rows = map(as_mapped_row if self.config.mapping else as_row, values)
        keys = key_names(row for row in rows if row)
        named = {"mapping": self.config.mapping is not None, "shape": self.config.shape != "auto"}
        wrong = " or ".join(f"source.{key}" for key, is_set in named.items() if is_set)
        where = f"; {see} has each row's reason" if see else ""
        if tally.reasons["unknown_role"]:
            name = "mapping" if self.config.mapping else "columns"
            where = f", or say who speaks as source.{name}.roles or in_order{where}"
        raise (UsageError if wrong else SourceError)(
            f"no row of {', '.join(self.config.paths)} can be read",
            got=f"0 of {plural(tally.rows_in, 'row')} as {self.detection.shape} ({shown})",
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
            role_from: `recipe` puts `role` before what the data says.

        Raises:
            SourceError: a file has gone or has become unreadable since it was opened.
        """
        maker = UnitMaker(self.config, role, scenario, role_from)
        units = (
            unit
            for part in self.parts
            for unit in _part_units(part, self.detections[part.label], maker, self.joined)
        )
        taken = made = 0
        for unit in units:
            whole = unit if self.config.cap is None else capped(unit, self.config.cap - made)
            taken += bool(unit.rows)
            made += len(whole.dialogues)
            yield whole
            if taken == self.config.limit or (self.config.cap or sys.maxsize) <= made:
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
        part = SourcePart(label, config.source_name, _numbered(hub_rows(config)))
        return _opened(config, (part,), ())
    files, skipped = list_files(config)
    parts = tuple(
        SourcePart(file.label, file.prefix, partial(read_rows, file.path, config.encoding))
        for file in files
    )
    return _opened(config, parts, skipped)


def open_rows(rows: Iterable[Any], config: SourceConfig) -> Source:
    """Open rows in memory as a source: a list, a `datasets.Dataset`, or any iterable that can be read twice.

    Args:
        rows: mappings; column values are made plain JSON as for files.
        config: `path` only names the source.

    Raises:
        UsageError, SourceError: see `open_source`.
    """
    part = SourcePart(config.paths[0], config.source_name, _numbered(Rows(rows)))
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


def _opened(
    config: SourceConfig, parts: tuple[SourcePart, ...], skipped: tuple[SkippedFile, ...]
) -> Source:
    mapping = config.mapping
    joined = join_rows(mapping.join, config.encoding) if mapping and mapping.join else None
    detections: dict[str, Detection] = {}
    abstained: dict[str, Abstention] = {}
    samples: dict[str, list[Any]] = {}
    passed = list(skipped)
    parts = tuple(_laid_out(part, mapping) for part in parts)
    for part in parts:
        sample = list(islice(part.rows(), SAMPLE))
        if not sample:
            passed.append(SkippedFile(part.label, "holds no rows"))
            continue
        found = _detect(config, sample, joined)
        if isinstance(found, Abstention) and found.parsed and not found.shares:
            values = [raw.value for raw in sample if raw.fault is None]
            structure = detect_structure(values, len(sample))
            samples[part.label] = values
            found = structure or found
        if isinstance(found, Detection):
            detections[part.label] = found
        else:
            abstained[part.label] = found
    _settle(detections, abstained, passed, samples)
    if not detections:
        proposal = propose(list(samples.values())) if len(samples) == len(abstained) else None
        if len(abstained) == 1:
            [(label, found)] = abstained.items()
            raise refuse_shape(found, label, proposal)
        raise _nothing(config, passed, abstained, proposal)
    kept = tuple(part for part in parts if part.label in detections)
    if mapping is None:
        kept = tuple(_laid_out(part, detections[part.label].mapping) for part in kept)
    return Source(config, summarise(detections), detections, kept, tuple(passed), joined)


def _laid_out(part: SourcePart, mapping: Mapping | None) -> SourcePart:
    """Return the part with its rows laid out by the mapping."""
    if mapping is None or mapping.rows is None:
        return part
    rows, selector = part.rows, mapping.rows
    return replace(part, rows=lambda: laid_out(rows(), selector))


def _detect(
    config: SourceConfig, sample: list[RawRow], joined: Joined | None
) -> Detection | Abstention:
    if config.mapping is None and config.shape == "auto":
        return detect(sample, config.columns)
    name = "mapping" if config.mapping is not None else config.shape
    rows = [as_row(raw.value) for raw in sample if raw.fault is None]
    flat = config.mapping is None and is_flat(name, rows)
    set_to = Detection(name, 0.0, len(sample), flat=flat, mapping=config.mapping)
    read = None if flat else _reader(set_to, joined)
    if read is None:
        hits = sum(name in fitting(row or {}, config.columns) for row in rows)
    else:
        hits = sum(_is_readable(raw, read, set_to) for raw in sample)
    given = f"source.{'mapping' if config.mapping is not None else 'shape'} is set"
    reason = f"{given}; it fits {hits} of {len(sample)} sampled rows"
    return replace(set_to, confidence=hits / len(sample), reason=reason)


def _reader(found: Detection, joined: Joined | None) -> Reader | None:
    """Return the function that makes dialogues of a single row; None where rows have to be joined."""
    if found.mapping is None:
        return format_named(found.shape).read
    return found.mapping.read if joined is None else joined.reader(found.mapping)


def _is_readable(raw: RawRow, read: Reader, found: Detection) -> bool:
    try:
        return bool(_reading_of(raw, read, found).drafts)
    except (UnreadableError, *_ODD_ROW):
        return False


def _settle(
    detections: dict[str, Detection],
    abstained: dict[str, Abstention],
    passed: list[SkippedFile],
    samples: dict[str, list[Any]],
) -> None:
    """Decide on files without a shape by the others, once some have one.

    A file that fits one of their shapes, if badly or not only, takes that one; so does a file of which
    nothing can be parsed, so that its rows are quarantined, and one of which a mapping that structure gave
    for others reads half. One of no known shape is skipped.

    Raises:
        UsageError: an ambiguous file that the others do not settle.
    """
    if not detections:
        return
    shapes = [found.shape for found in detections.values()]
    usual = max(sorted(set(shapes)), key=shapes.count)
    mappings = {
        found.mapping.model_dump_json(): found for found in detections.values() if found.mapping
    }
    for label, found in abstained.items():
        shared = [name for name in found.shares if name in shapes]
        shares = {
            key: share_read(one.mapping, samples.get(label, [])) for key, one in mappings.items()
        }
        best = max(shares, key=lambda key: shares[key], default=None)
        if found.parsed == 0 or shared:
            shape = shared[0] if shared else usual
            reason = f"{found.reason}; taken for {shape} like other files"
            like = next(one for one in detections.values() if one.shape == shape)
            share = found.shares.get(shape, 0.0)
            detections[label] = Detection(
                shape, share, found.sampled, reason=reason, mapping=like.mapping
            )
        elif best is not None and shares[best] >= LEAST:
            like = mappings[best]
            reason = f"{like.reason}; taken like other files"
            detections[label] = Detection(
                "mapping", shares[best], found.sampled, reason=reason, mapping=like.mapping
            )
        elif found.ambiguous:
            raise refuse_shape(found, label)
        else:
            passed.append(SkippedFile(label, found.reason))


def _nothing(
    config: SourceConfig,
    passed: list[SkippedFile],
    abstained: dict[str, Abstention],
    proposal: Proposal | None,
) -> CurateError:
    """The error for a source without a single file to read; each file is named with its reason."""
    named = [f"{label}: {found.reason}" for label, found in abstained.items()]
    named += [f"{item.file}: {item.reason}" for item in passed]
    more = f" (and {len(named) - 4} more)" if len(named) > 4 else ""
    got = "; ".join(named[:4]) + more
    where = ", ".join(config.paths)
    if abstained:
        return UnknownShapeError(f"no file under {where} has a known shape", got, proposal)
    return SourceError(
        f"{where} is empty", got=got, expected="at least one row", fix="check source.path"
    )


# ---- reading ------------------------------------------------------------------------------------


def _part_units(
    part: SourcePart, found: Detection, maker: UnitMaker, joined: Joined | None
) -> Iterator[Unit]:
    read = None if found.flat else _reader(found, joined)
    rows = _kept(part, found, maker.config)
    if read is None:
        yield from _joined_units(part, rows, found, maker)
        return
    for raw in rows:
        if isinstance(raw, Unit):
            yield raw
        else:
            reading = _read_row(raw, read, maker, found)
            yield maker.unit(part, (raw.number,), {raw.number: raw.value}, reading)


def _kept(part: SourcePart, found: Detection, config: SourceConfig) -> Iterator[RawRow | Unit]:
    """Yield the part's rows; instead of each row that `source.where` leaves out, a unit that counts it."""
    if not config.where:
        yield from part.rows()
        return
    for raw in part.rows():
        row = None if raw.fault is not None else _as_row(raw.value, found)
        failing = None if row is None else first_failing(config.where, row)
        if failing is None:
            yield raw
        else:
            yield Unit((), part.label, (), (), rows_left_out={f"where.{failing}": 1})


def _read_row(raw: RawRow, read: Reader, maker: UnitMaker, found: Detection) -> UnitResult:
    try:
        return _reading_of(raw, read, found)
    except UnreadableError as fault:
        reason, detail = _refined(raw, fault, maker.config, found)
    except _ODD_ROW as problem:
        # A row of a kind nobody foresaw must not stop the others; it is quarantined under a code of its own.
        reason, detail = "unreadable", f"{type(problem).__name__}: {problem}"[:300]
    return UnitResult(None, (), rows=(RowFault(raw.number, reason, detail),))


def _reading_of(raw: RawRow, read: Reader, found: Detection) -> UnitResult:
    reading = read(_row_of(raw, found))
    # Dialogue's own checks belong to the row, too: they run once here, on what was read.
    for draft in reading.drafts:
        Dialogue(id="-", messages=draft.messages, **draft.fields)
    return reading if reading.id is not None else replace(reading, id=raw.key)


def _as_row(value: Any, found: Detection) -> Row | None:
    return as_row(value) if found.mapping is None else as_mapped_row(value)


def _row_of(raw: RawRow, found: Detection) -> Row:
    if raw.fault is not None:
        raise UnreadableError(raw.fault, raw.detail)
    row = _as_row(raw.value, found)
    if row is None:
        raise UnreadableError("not_an_object", f"the row is {type_name(raw.value)}")
    return row


def _refined(
    raw: RawRow, fault: UnreadableError, config: SourceConfig, found: Detection
) -> tuple[str, str]:
    """Return the reason and detail of a fault: `shape_mismatch` for a missing field if the row fits another shape."""
    if fault.reason == "missing_field" and config.mapping is None:
        row = as_row(raw.value)
        others = [name for name in fitting(row or {}, config.columns) if name != found.shape]
        if others:
            return "shape_mismatch", f"the row looks like {others[0]}; {fault.detail}"
    return fault.reason, fault.detail


def _joined_units(
    part: SourcePart, kept: Iterator[RawRow | Unit], found: Detection, maker: UnitMaker
) -> Iterator[Unit]:
    rows: list[tuple[int, Row]] = []
    raws: dict[int, Any] = {}
    for raw in kept:
        if isinstance(raw, Unit):
            yield raw
            continue
        raws[raw.number] = raw.value
        try:
            rows.append((raw.number, _row_of(raw, found)))
        except UnreadableError as fault:
            bad = RowFault(raw.number, fault.reason, fault.detail)
            yield maker.unit(part, (raw.number,), raws, UnitResult(None, (), rows=(bad,)))
    groups = read_flat(rows) if found.shape == "oasst" else read_table(rows, maker.config.columns)
    for numbers, reading in groups:
        yield maker.unit(part, numbers, raws, reading)
