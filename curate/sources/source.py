"""A source opened for reading: its files, their shapes, and the dialogues in them.

Files are sampled when the source is opened and read when it is read, row by row. In memory are
one row at a time (all rows of a file where rows have to be joined) and the ids given so far.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import Any

import orjson

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
from curate.sources.hub_datasets import PlainRows, hub_rows, is_hub_source
from curate.sources.input_files import SkippedFile, list_files
from curate.sources.mapping import Mapping
from curate.sources.part_reader import PartReader
from curate.sources.proposal import (
    LEAST,
    UnknownShapeError,
    detect_structure,
    propose,
    refuse_shape,
    share_read,
)
from curate.sources.raw_rows import read_rows
from curate.sources.row_layout import Joined, join_rows, laid_out
from curate.sources.unit_result import (
    RawRow,
    RowCounts,
    Unit,
)
from curate.wording import plural


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
        """Return the labels of the files that are read, in order."""
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
            conditions = ", ".join(
                f"{name} {n:,}" for name, n in tally.rows_left_out.most_common(4)
            )
            raise UsageError(
                f"source.where leaves out every row of {', '.join(self.config.paths)}",
                got=f"{plural(tally.rows_left_out.total(), 'row')}, left out by {conditions}",
                fix="compare source.where with the values that the data has",
            )
        if tally.rows_used or not tally.rows_in:
            return
        reasons = ", ".join(f"{reason} {n:,}" for reason, n in tally.reasons.most_common(4))
        values = (raw.value for part in self.parts for raw in islice(part.rows(), SAMPLE))
        rows = map(as_mapped_row if self.config.mapping else as_row, values)
        keys = key_names(row for row in rows if row)
        fix = "fix the rows, or describe them as source.mapping"
        is_set = self.config.mapping is not None or self.config.shape != "auto"
        if is_set:
            fix = f"fix source.{'mapping' if self.config.mapping else 'shape'}"
        if tally.reasons["unknown_role"]:
            name = "mapping" if self.config.mapping else "columns"
            fix += f", or say who speaks as source.{name}.roles or in_order"
        raise (UsageError if is_set else SourceError)(
            f"no row of {', '.join(self.config.paths)} can be read",
            got=f"0 of {plural(tally.rows_in, 'row')} as {self.detection.shape} ({reasons})",
            expected=f"a shape or mapping that fits the rows' keys: {keys}"
            if keys
            else "rows with keys",
            fix=f"{fix}; {see} has each row's reason" if see else fix,
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
        readers = {
            label: PartReader(self.config, detection, self.joined)
            for label, detection in self.detections.items()
        }
        units = (unit for part in self.parts for unit in readers[part.label].units(part, maker))
        n_units = n_dialogues = 0
        cap = self.config.cap or sys.maxsize
        for unit in units:
            within_cap = capped(unit, cap - n_dialogues)
            n_units += bool(unit.rows)
            n_dialogues += len(within_cap.dialogues)
            yield within_cap
            if n_units == self.config.limit or n_dialogues >= cap:
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
    part = SourcePart(config.paths[0], config.source_name, _numbered(PlainRows(rows)))
    return _opened(config, (part,), ())


def _numbered(rows: Iterable[Any]) -> Callable[[], Iterator[RawRow]]:
    return lambda: (_raw_row(number, row) for number, row in enumerate(rows, start=1))


def _raw_row(number: int, row: Any) -> RawRow:
    """Return a row from memory; files are checked as they are parsed, these have to be here."""
    try:
        orjson.dumps(row)
    except (orjson.JSONEncodeError, TypeError, RecursionError) as problem:
        reason = "bad_encoding" if "surrogate" in str(problem) else "unreadable"
        return RawRow(number, repr(row)[:10_000], reason, f"the row is not JSON: {problem}")
    return RawRow(number, row)


def _opened(
    config: SourceConfig, parts: Iterable[SourcePart], skipped: tuple[SkippedFile, ...]
) -> Source:
    mapping = config.mapping
    joined = join_rows(mapping.join, config.encoding) if mapping and mapping.join else None
    opened: list[SourcePart] = []
    detections: dict[str, Detection] = {}
    abstained: dict[str, Abstention] = {}
    samples: dict[str, list[Any]] = {}
    not_read = list(skipped)
    for part in (_laid_out(part, mapping) for part in parts):
        sample = list(islice(part.rows(), SAMPLE))
        if not sample:
            not_read.append(SkippedFile(part.label, "holds no rows"))
            continue
        opened.append(part)
        result = _detect(config, sample, joined)
        values = [raw.value for raw in sample if raw.fault is None]
        if isinstance(result, Abstention) and result.is_unknown:
            result = detect_structure(values, len(sample)) or result
        if isinstance(result, Detection):
            detections[part.label] = result
        else:
            abstained[part.label], samples[part.label] = result, values
    if not detections:
        raise _refused(config, not_read, abstained, samples)
    others = list(detections.values())
    for label, abstention in abstained.items():
        like = _like_others(abstention, samples[label], others)
        if like is not None:
            detections[label] = like
        elif abstention.ambiguous:
            raise refuse_shape(abstention, label)
        else:
            not_read.append(SkippedFile(label, abstention.reason))
    opened = [part for part in opened if part.label in detections]
    if mapping is None:
        opened = [_laid_out(part, detections[part.label].mapping) for part in opened]
    summary = summarise(detections)
    return Source(config, summary, detections, tuple(opened), tuple(not_read), joined)


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
    key = "shape" if config.mapping is None else "mapping"
    name = config.shape if config.mapping is None else "mapping"
    rows = [as_row(raw.value) for raw in sample if raw.fault is None]
    flat = config.mapping is None and is_flat(name, rows)
    detection = Detection(name, 0.0, len(sample), flat=flat, mapping=config.mapping)
    hits = PartReader(config, detection, joined).readable(sample)
    reason = f"source.{key} is set; it fits {hits} of {len(sample)} sampled rows"
    return replace(detection, confidence=hits / len(sample), reason=reason)


def _like_others(
    abstention: Abstention, values: list[Any], others: Sequence[Detection]
) -> Detection | None:
    """Return the detection of a file without a shape, taken from the other files; None where it fits none of theirs.

    A file that fits one of their shapes, if badly or not only, takes that one; so does a file of which nothing can be
    parsed, so that its rows are quarantined, and one of which a mapping that structure gave for others reads half.
    """
    shapes = [other.shape for other in others]
    shared = [name for name in abstention.shares if name in shapes]
    if shared or not abstention.parsed:
        shape = shared[0] if shared else max(sorted(set(shapes)), key=shapes.count)
        like = others[shapes.index(shape)]
        share = abstention.shares.get(shape, 0.0)
        reason = f"{abstention.reason}; taken for {shape} like other files"
    elif not abstention.is_unknown:
        return None
    else:
        mapped = {other.mapping.model_dump_json(): other for other in others if other.mapping}
        shares = {key: share_read(other.mapping, values) for key, other in mapped.items()}
        best = max(shares, key=lambda key: shares[key], default=None)
        if best is None or shares[best] < LEAST:
            return None
        share, like = shares[best], mapped[best]
        reason = f"{like.reason}; taken like other files"
    flat = is_flat(like.shape, map(as_row, values))
    return Detection(
        like.shape, share, abstention.sampled, reason=reason, flat=flat, mapping=like.mapping
    )


def _refused(
    config: SourceConfig,
    not_read: list[SkippedFile],
    abstained: dict[str, Abstention],
    samples: dict[str, list[Any]],
) -> CurateError:
    """Return the error for a source without a single file to read; each file is named with its reason."""
    are_unknown = all(abstention.is_unknown for abstention in abstained.values())
    proposal = propose(list(samples.values())) if are_unknown else None
    if len(abstained) == 1:
        [(label, abstention)] = abstained.items()
        return refuse_shape(abstention, label, proposal)
    reasons = [f"{label}: {abstention.reason}" for label, abstention in abstained.items()]
    reasons += [f"{item.file}: {item.reason}" for item in not_read]
    more = f" (and {len(reasons) - 4} more)" if len(reasons) > 4 else ""
    got = "; ".join(reasons[:4]) + more
    where = ", ".join(config.paths)
    if abstained:
        return UnknownShapeError(f"no file under {where} has a known shape", got, proposal)
    return SourceError(
        f"{where} is empty", got=got, expected="at least one row", fix="check source.path"
    )
