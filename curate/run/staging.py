"""The rows of a stage: where they lie, what makes one sound, and how those that are owed are made."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar, cast

import orjson
import polars as pl
from pydantic import BaseModel, TypeAdapter, ValidationError

from curate.executors.comparing import Runner
from curate.executors.first_rows import FirstRows
from curate.executors.work import WorkItem
from curate.records import INTERNAL_ERROR, AdherenceScore, Judgment, PreferencePair, Unscored
from curate.records.validation import load_record
from curate.run.runlog import RunLog
from curate.steps import Calibrated
from curate.storage.store import StageRows

S = TypeVar("S", Judgment, AdherenceScore)
R = TypeVar("R")

_PAIRS = TypeAdapter(list[PreferencePair])

Progress = Callable[[str, int, int], None]
"""Told a stage's name, how many of its rows are done, and how many it has."""


@dataclass(frozen=True, slots=True)
class RowMaker:
    """Makes the rows that a stage owes, whoever answers.

    Attributes:
        keep_going: go on where the first rows of a stage all came to nothing, see `FirstRows`.
    """

    log: RunLog
    progress: Progress
    keep_going: bool = False

    async def make(
        self,
        name: str,
        rows: StageRows[R],
        keys: pl.Series,
        items: Iterator[WorkItem],
        executor: Runner,
    ) -> None:
        """Make the rows of `items`, each on disk as soon as it is there; then compact in the order of `keys`."""
        if rows.damage_note:
            self.log.warn(f"{rows.damage_note} Those rows are made again, from kept replies.")
        total = keys.n_unique()
        finished = self.log.tally(name).reused = total - len(_missing(keys, rows))
        first = FirstRows(name, keep_going=self.keep_going)

        def done(made: WorkItem, row: R) -> None:
            nonlocal finished
            rows.append(made.key, row)
            finished += 1
            self.progress(name, finished, total)
            first.see(row)

        self.progress(name, finished, total)
        try:
            await executor.run(items, done)
        finally:
            rows.close()
        rows.compact(keys)


_UNSETTLED = re.compile(r'"(?:reason|unscored)": ?"' + INTERNAL_ERROR + '"')


def is_settled(record: str) -> bool:
    """False for the JSON of a row that a bug stands in for: every run makes it again.

    Read from the text, since all rows are looked at whenever a stage's rows are opened; within a string of the
    data those quotation marks would be escaped.
    """
    return INTERNAL_ERROR not in record or _UNSETTLED.search(record) is None


def scored_rows(run: Path, name: str, print_: str, kind: type[S]) -> StageRows[S | Unscored]:
    """The rows of a judging stage, by content hash."""
    adapter: TypeAdapter[S | Unscored] = TypeAdapter(cast("type[S | Unscored]", kind | Unscored))
    return StageRows(
        run / name / print_,
        dump=lambda record: record.model_dump_json().encode(),
        load=adapter.validate_json,
        check=lambda line: _check_record(kind, line),
        is_settled=is_settled,
    )


def calibrated_rows(
    run: Path,
    name: str,
    kind: type[S],
    rows: StageRows[S | Unscored],
    made: Calibrated[S | Unscored],
    keys: pl.Series,
) -> StageRows[S | Unscored]:
    """The rows a calibration makes of a judge's own; those that are there are kept, unless a retry may change them."""
    result = scored_rows(run, name, made.fingerprint, kind)
    result.forget(
        key for key, record in result.read() if isinstance(record, Unscored) or record.missing_turns
    )
    missing = _missing(keys, result)
    adapter: TypeAdapter[S | Unscored] = TypeAdapter(cast("type[S | Unscored]", kind | Unscored))
    try:
        for key, record in rows.stored(missing):
            result.append(key, made.apply(adapter.validate_json(record)))
    finally:
        result.close()
    result.compact(keys)
    return result


def fork_rows(run: Path, print_: str) -> StageRows[list[PreferencePair]]:
    """The records of each forked dialogue, by content hash."""
    return StageRows(
        run / "fork" / print_,
        dump=lambda pairs: orjson.dumps([pair.model_dump(mode="json") for pair in pairs]),
        load=_PAIRS.validate_json,
        check=_check_pairs,
        is_settled=is_settled,
    )


def verified_rows(run: Path, print_: str) -> StageRows[PreferencePair]:
    """The natural pairs that a judge verified, by pair id."""
    return StageRows(
        run / "natural" / print_,
        dump=lambda pair: pair.model_dump_json().encode(),
        load=PreferencePair.model_validate_json,
        check=_check_pair,
        is_settled=is_settled,
    )


def _missing(keys: pl.Series, rows: StageRows[R]) -> pl.Series:
    """Those of `keys` that have no row, each once."""
    return keys.filter(~keys.is_in(rows.done().implode())).unique()


def _check_record(kind: type[BaseModel], line: bytes) -> None:
    try:
        # What a strict reading takes fits the schema, at a tenth of the cost; the rest gets the schema's words.
        (Unscored if b'"stage":' in line else kind).model_validate_json(line, strict=True)
    except ValidationError:
        value = orjson.loads(line)
        load_record(Unscored if "stage" in value else kind, value)


def _check_pair(line: bytes) -> None:
    load_record(PreferencePair, orjson.loads(line))


def _check_pairs(line: bytes) -> None:
    for value in orjson.loads(line):
        load_record(PreferencePair, value)
