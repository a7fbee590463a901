"""Read sources into `dialogues.jsonl` and `quarantine.jsonl`, with every row accounted for.

A run starts with this, and `curate ingest` does nothing else.

`dialogues.parquet` is the index of `dialogues.jsonl`: one row a dialogue, in the same order, with those columns of
the score table that need no model call, and the place of its line. Code that needs no more than an id, a content hash
or a group reads the index, and parses no dialogue.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import repeat
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import orjson
import polars as pl

from curate.dialogue import Dialogue
from curate.records import QuarantinedRow, SourcesReport
from curate.selection.table import CHUNK, facts_frame, facts_row
from curate.sources import RowCounts, Source
from curate.sources.config import RoleFrom
from curate.sources.mixing import Mixture, is_mixed
from curate.storage.line_files import LineFile, read_lines
from curate.storage.parquet_files import FrameFile, readable, row_count
from curate.storage.whole_files import damaged, file_hash

DIALOGUES = "dialogues.jsonl"
QUARANTINE = "quarantine.jsonl"
NOT_SAMPLED = "not_sampled.jsonl"
"""Dialogues that were left out of a source with a `weight`."""
FILES = (DIALOGUES, QUARANTINE, NOT_SAMPLED)
INDEX = "dialogues.parquet"
OFFSET = "offset"
"""Column of the index: byte at which the dialogue's line begins."""


@dataclass(frozen=True, slots=True)
class SourceReport:
    """A source, and what reading it came to."""

    source: Source
    tally: RowCounts

    def as_dict(self) -> dict[str, Any]:
        """Return the source's entry in a manifest and in `--json`: path, shape, confidence, row counts, reasons, files not read."""
        config, detection, tally = self.source.config, self.source.detection, self.tally
        described: dict[str, Any] = {
            "path": config.path if isinstance(config.path, str) else list(config.path),
            "name": config.source_name,
            "shape": detection.shape,
            "confidence": detection.confidence,
            "why": detection.reason,
            "files": len(self.source.files),
            "skipped_files": {
                skipped.file: skipped.reason for skipped in self.source.skipped_files
            },
            "rows_in": tally.rows_in,
            "rows_used": tally.rows_used,
            "quarantined": tally.quarantined,
            "dialogues": tally.dialogues,
            "roles": dict(+tally.roles),
            "not_sampled": tally.not_sampled,
            "parts_quarantined": tally.parts_quarantined,
            "reasons": dict(tally.reasons),
            "part_reasons": dict(tally.part_reasons),
            "rows_left_out": dict(tally.rows_left_out),
            "items_left_out": dict(tally.items_left_out),
        }
        if self.source.joined is not None:
            described["joined"] = self.source.joined.counts()
        if self.source.config.mapping is None and detection.mapping is not None:
            described["mapping"] = detection.mapping.model_dump(mode="json", exclude_defaults=True)
        return described


def sum_reports(reports: Sequence[SourceReport], folder: Path) -> SourcesReport:
    """Return the totals of all sources, which were read into that folder, and the hashes of its files."""

    def total(name: str) -> int:
        return sum(getattr(report.tally, name) for report in reports)

    return SourcesReport(
        rows_in=total("rows_in"),
        rows_used=total("rows_used"),
        quarantined=total("quarantined"),
        dialogues=total("dialogues"),
        not_sampled=total("not_sampled"),
        roles=dict(sum((report.tally.roles for report in reports), Counter())),
        sources=[report.as_dict() for report in reports],
        hashes={name: file_hash(folder / name) for name in FILES},
    )


def read_sources(
    sources: Sequence[Source],
    folder: Path,
    *,
    role: str | None,
    scenario: str | None,
    role_from: RoleFrom = "data",
    mix_seed: int = 0,
    progress: Callable[[int], None] = lambda _: None,
    see: Callable[[Dialogue], None] = lambda _: None,
) -> list[SourceReport]:
    """Write dialogues, their index and the quarantine of a folder anew, whole or not at all.

    A source gives each of its dialogues an id of its own; where two sources give the same, the later
    dialogue's is prefixed with its source's name, so that ids are unique in the run.

    Args:
        sources: opened sources, read in order.
        folder: made where it is missing.
        role: role definition of dialogues that carry none.
        scenario: scenario of dialogues that carry none.
        role_from: `recipe` puts `role` before what the data says.
        mix_seed: of the sample drawn from sources that have a weight.
        progress: called with the number of dialogues read so far.
        see: called with each dialogue as it is written.

    Raises:
        UsageError, SourceError: no row of a source could be read; its quarantine is written.
    """
    parts = [folder / f"{name}.part" for name in FILES]
    for part in parts:
        part.unlink(missing_ok=True)
    reports = [SourceReport(source, RowCounts()) for source in sources]
    with (
        DialogueFile(parts[0], folder / INDEX) as dialogues,
        LineFile(parts[1]) as quarantine,
        LineFile(parts[2]) as left_out,
    ):

        def put_aside(row: QuarantinedRow) -> None:
            quarantine.append(row.model_dump_json().encode())

        def leave_out(dialogue: Dialogue) -> None:
            left_out.append(_named(dialogue))

        all_dialogues = _dialogues(reports, role, scenario, role_from, put_aside, progress)
        mixture = folder / f"{DIALOGUES}.mixture"
        for dialogue in mixed(all_dialogues, reports, mix_seed, mixture, leave_out):
            dialogues.append(dialogue)
            see(dialogue)
    for part in parts:
        part.replace(part.with_suffix(""))
    for report in reports:
        report.source.check_read(report.tally, str(folder / QUARANTINE))
    return reports


def _dialogues(
    reports: Sequence[SourceReport],
    role: str | None,
    scenario: str | None,
    role_from: RoleFrom,
    put_aside: Callable[[QuarantinedRow], None] = lambda _: None,
    progress: Callable[[int], None] = lambda _: None,
) -> Iterator[tuple[int, Dialogue]]:
    """Yield all dialogues of the sources, each with its source's number; count tallies as rows are read."""
    taken_ids: set[str] = set()
    number_read = 0
    for number, report in enumerate(reports):
        source = report.source
        for unit in source.read(role, scenario, role_from):
            report.tally.add(unit)
            for dialogue in unit.dialogues:
                if len(reports) > 1:
                    dialogue = _renamed(dialogue, source.config.source_name, taken_ids)
                yield number, dialogue
            for row in unit.quarantined:
                put_aside(row)
            number_read += len(unit.dialogues)
            progress(number_read)


def mixed(
    dialogues: Iterable[tuple[int, Dialogue]],
    reports: Sequence[SourceReport],
    seed: int,
    file: Path,
    leave_out: Callable[[Dialogue], None] = lambda _: None,
) -> Iterator[Dialogue]:
    """Yield the dialogues of the mixture by the sources' weights; all of them if there are no weights.

    Args:
        dialogues: each with its source's number.
        reports: of the sources; their tallies count dialogues that are left out.
        seed: of the sample.
        file: where dialogues wait until all are read.
        leave_out: called with each dialogue that is not in the mixture.
    """
    weights = [report.source.config.weight for report in reports]
    if not is_mixed(weights):
        yield from (dialogue for _, dialogue in dialogues)
        return
    with Mixture(file, weights, seed) as mixture:
        for number, dialogue in dialogues:
            mixture.add(number, dialogue)
        for number, dialogue, is_taken in mixture.deal():
            if is_taken:
                yield dialogue
            else:
                reports[number].tally.leave_out(dialogue)
                leave_out(dialogue)


def sample_sources(
    sources: Sequence[Source],
    see: Callable[[Dialogue], None],
    *,
    role: str | None,
    scenario: str | None,
    role_from: RoleFrom = "data",
    mix_seed: int = 0,
) -> list[SourceReport]:
    """Read sources as `read_sources` does without writing anything: `see` is called with each dialogue."""
    reports = [SourceReport(source, RowCounts()) for source in sources]
    with TemporaryDirectory() as folder:
        all_dialogues = _dialogues(reports, role, scenario, role_from)
        for dialogue in mixed(all_dialogues, reports, mix_seed, Path(folder) / DIALOGUES):
            see(dialogue)
    for report in reports:
        report.source.check_read(report.tally)
    return reports


def _named(dialogue: Dialogue) -> bytes:
    """Return the line about a dialogue that was not sampled."""
    lineage = dialogue.lineage
    return orjson.dumps(
        {
            "dialogue_id": dialogue.id,
            "content_hash": dialogue.content_hash,
            "group": dialogue.group,
            "source": lineage.source if lineage else None,
            "file": lineage.file if lineage else None,
            "rows": lineage.rows if lineage else (),
        }
    )


def _renamed(dialogue: Dialogue, source: str, taken_ids: set[str]) -> Dialogue:
    new = dialogue.id
    while new in taken_ids:
        new = f"{source}:{new}"
    taken_ids.add(new)
    return dialogue if new == dialogue.id else dialogue.model_copy(update={"id": new})


class DialogueFile:
    """Writes `dialogues.jsonl` and its index; a context manager."""

    def __init__(self, lines: Path, index: Path) -> None:
        self._lines = LineFile(lines)
        self._index = FrameFile(index)
        self._facts: list[dict[str, Any]] = []
        self._offsets: list[int] = []
        self._written = 0

    def append(self, dialogue: Dialogue) -> None:
        """Write a dialogue's line, and its row of the index."""
        line = dialogue.model_dump_json(exclude_defaults=True).encode()
        self._lines.append(line)
        self._facts.append(facts_row(dialogue))
        self._offsets.append(self._written)
        self._written += len(line) + 1
        if len(self._facts) >= CHUNK:
            self._settle()

    def _settle(self) -> None:
        offsets = pl.Series(OFFSET, self._offsets, dtype=pl.Int64)
        self._index.append(facts_frame(self._facts).with_columns(offsets))
        self._facts, self._offsets = [], []

    def __enter__(self) -> DialogueFile:
        self._index.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._lines.close()
        if error[1] is None and (self._facts or not self._written):
            self._settle()
        self._index.__exit__(*error)


def read_index(folder: Path, *columns: str) -> pl.DataFrame:
    """Return columns of the index of the folder's dialogues: the facts of the score table, and `offset`.

    Raises:
        CurateError: it is damaged.
    """
    with readable(folder / INDEX):
        return pl.scan_parquet(folder / INDEX).select(columns).collect()


def read_dialogues(folder: Path, is_included: pl.Series | None = None) -> Iterator[Dialogue]:
    """Yield the dialogues that `read_sources` wrote, one at a time.

    Args:
        folder: folder of the dialogues.
        is_included: for each dialogue whether to yield it; the others are not parsed. None: all.

    Raises:
        CurateError: a line is damaged, or there are fewer than the index has.
    """
    keys = read_index(folder, "content_hash").to_series()
    marks: Iterable[bool] = repeat(True, len(keys)) if is_included is None else is_included
    lines = zip(dialogue_lines(folder), keys, marks, strict=True)
    for number, (line, key, mark) in enumerate(lines, start=1):
        if mark:
            try:
                yield Dialogue.from_json(line, key)
            except ValueError as error:
                raise damaged(f"{folder / DIALOGUES}:{number}", error) from error


def dialogue_lines(folder: Path) -> Iterator[bytes]:
    """Yield the lines of the folder's dialogues, as many as its index has.

    Raises:
        CurateError: there are more or fewer.
    """
    path, expected = folder / DIALOGUES, row_count(folder / INDEX)
    number = 0
    for number, line in enumerate(read_lines(path), start=1):
        if number > expected:
            break
        yield line
    if number != expected:
        raise damaged(path, f"it has {number} lines or more, {INDEX} {expected}")


def read_dialogues_at(folder: Path, offsets: pl.Series) -> Iterator[Dialogue]:
    """Yield the dialogues whose lines begin at `offsets` (of the index), in that order."""
    with (folder / DIALOGUES).open("rb") as lines:
        for offset in offsets:
            lines.seek(offset)
            yield Dialogue.model_validate_json(lines.readline())
