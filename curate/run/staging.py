"""The rows of a stage: where they are stored, how they are checked, and how missing ones are made."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final, TypeVar, cast

import orjson
import polars as pl
from pydantic import BaseModel, Discriminator, TypeAdapter, ValidationError

from curate.dialogue import Dialogue
from curate.executors.first_rows import FirstRows
from curate.executors.opening import Runner
from curate.recipe import Recipe
from curate.records import (
    AdherenceScore,
    FactualityScore,
    Judgment,
    MetricsScore,
    PreferencePair,
    StageName,
    Unscored,
    UnscoredReason,
)
from curate.records.validation import load_record
from curate.run.ingest import read_dialogues, read_index
from curate.run.runlog import RunLog
from curate.stages import Calibrated, Stage, StageRow, WorkItem
from curate.storage.run_folder import RunFolder
from curate.storage.stage_rows import StageRows

R = TypeVar("R", bound=StageRow)

RECORD_OF: Final[Mapping[StageName, type[BaseModel]]] = {
    StageName.JUDGE: Judgment,
    StageName.PERSONA: Judgment,
    StageName.ADHERENCE: AdherenceScore,
    StageName.METRICS: MetricsScore,
    StageName.FACTUALITY: FactualityScore,
}
"""The record of a scoring stage's row that has scores."""
_PAIRS = TypeAdapter(list[PreferencePair])
_BY_KIND: TypeAdapter[Judgment | AdherenceScore | MetricsScore | FactualityScore | Unscored] = (
    TypeAdapter(
        Annotated[
            Judgment | AdherenceScore | MetricsScore | FactualityScore | Unscored,
            Discriminator("kind"),
        ]
    )
)

Progress = Callable[[str, int, int], None]
"""Called with a stage's name, how many of its rows are done, and how many it has."""


@dataclass(frozen=True, slots=True)
class Job:
    """A run in progress, as every part of it needs it.

    Attributes:
        folder: the run folder, locked by this process.
        retry_unscored: ask again where an earlier run's judge could not answer.
        keep_going: go on where the first rows of a stage all fail, see `FirstRows`.
        progress: called with how far each stage is.
        notify: called with each message that the user should read before a model is asked, a sentence at a time.
    """

    recipe: Recipe
    folder: RunFolder
    log: RunLog
    retry_unscored: bool = False
    keep_going: bool = False
    progress: Progress = lambda *_: None
    notify: Callable[[str], None] = lambda _: None

    @property
    def path(self) -> Path:
        """Path of the run folder."""
        return self.folder.path

    def hashes(self) -> pl.Series:
        """Return the content hash of each of this run's dialogues, in order."""
        return read_index(self.path, "content_hash").to_series()

    def dialogues(self, mask: pl.Series | None = None) -> Iterator[Dialogue]:
        """Yield the dialogues of the run, in order; with a mask only those where it is true."""
        return read_dialogues(self.path, mask)

    async def make_rows(
        self,
        stage: Stage[R],
        rows: StageRows[R],
        keys: pl.Series,
        items: Iterator[WorkItem],
        runner: Runner,
    ) -> None:
        """Make the rows of `items`, each on disk as soon as it is made; then compact them in the order of `keys`."""
        name = stage.name
        if rows.damage_note:
            self.log.warn(f"{rows.damage_note} Those rows are made again, from kept replies.")
        report = self.log.stage(name)
        report.fingerprint = stage.fingerprint
        total = keys.n_unique()
        finished = report.reused = total - len(_missing(keys, rows))
        first = FirstRows(name, keep_going=self.keep_going)

        def done(item: WorkItem, row: R) -> None:
            nonlocal finished
            rows.append(item.key, row)
            finished += 1
            self.progress(name, finished, total)
            first.see(row)

        self.progress(name, finished, total)
        try:
            await runner.run(stage, items, done)
        finally:
            rows.close()
        rows.compact(keys)


_UNSETTLED = re.compile(r'"(?:reason|unscored)": ?"' + UnscoredReason.INTERNAL_ERROR + '"')


def is_settled(record: str) -> bool:
    """Return False for the JSON of a row that was not made because of a bug: every run makes it again.

    The text is searched, not parsed, because all rows are checked whenever a stage's rows are opened. Text of the data
    never matches: its quotation marks are escaped.
    """
    return UnscoredReason.INTERNAL_ERROR not in record or _UNSETTLED.search(record) is None


def scored_rows(run: Path, name: StageName, fingerprint: str) -> StageRows[Any]:
    """Return the rows of a judging stage, by content hash: records of `RECORD_OF`, or unscored ones."""
    return StageRows(
        run / name / fingerprint,
        dump=lambda record: record.model_dump_json().encode(),
        load=_adapter(name).validate_json,
        check=lambda line: _check_record(RECORD_OF[name], line),
        is_settled=is_settled,
    )


def _adapter(name: StageName) -> TypeAdapter[Any]:
    return TypeAdapter(cast("Any", RECORD_OF[name] | Unscored))


def calibrated_rows(
    run: Path, name: StageName, rows: StageRows[R], calibrated: Calibrated[R], keys: pl.Series
) -> StageRows[R]:
    """Return a judge's rows with the calibration applied; existing ones are kept, unless a retry may change them."""
    result: StageRows[Any] = scored_rows(run, name, calibrated.fingerprint)
    result.forget(
        key for key, record in result.read() if isinstance(record, Unscored) or record.missing_turns
    )
    missing = _missing(keys, result)
    adapter = _adapter(name)
    try:
        for key, record in rows.stored(missing):
            result.append(key, calibrated.apply(adapter.validate_json(record)))
    finally:
        result.close()
    result.compact(keys)
    return result


def stage_rows(run: Path, stage: StageName, fingerprint: str) -> StageRows[Any]:
    """Return the rows of any stage."""
    if stage is StageName.FORK:
        return fork_rows(run, fingerprint)
    if stage is StageName.NATURAL:
        return verified_rows(run, fingerprint)
    return scored_rows(run, stage, fingerprint)


def fork_rows(run: Path, fingerprint: str) -> StageRows[list[PreferencePair]]:
    """Return the records of each forked dialogue, by content hash."""
    return StageRows(
        run / StageName.FORK / fingerprint,
        dump=lambda pairs: orjson.dumps([pair.model_dump(mode="json") for pair in pairs]),
        load=_PAIRS.validate_json,
        check=_check_pairs,
        is_settled=is_settled,
    )


def verified_rows(run: Path, fingerprint: str) -> StageRows[PreferencePair]:
    """Return the natural pairs that a judge verified, by pair id."""
    return StageRows(
        run / StageName.NATURAL / fingerprint,
        dump=lambda pair: pair.model_dump_json().encode(),
        load=PreferencePair.model_validate_json,
        check=_check_pair,
        is_settled=is_settled,
    )


def _missing(keys: pl.Series, rows: StageRows[R]) -> pl.Series:
    """Return those of `keys` that have no row, each once."""
    return keys.filter(~keys.is_in(rows.done().implode())).unique()


def _check_record(kind: type[BaseModel], line: bytes) -> None:
    try:
        # Strict validation accepts only what fits the schema, at a tenth of the cost; other rows get the schema's message.
        _BY_KIND.validate_json(line, strict=True)
    except ValidationError:
        value = orjson.loads(line)
        is_unscored = isinstance(value, dict) and value.get("kind") == "unscored"
        load_record(Unscored if is_unscored else kind, value)


def _check_pair(line: bytes) -> None:
    load_record(PreferencePair, orjson.loads(line))


def _check_pairs(line: bytes) -> None:
    for value in orjson.loads(line):
        load_record(PreferencePair, value)
