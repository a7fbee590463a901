"""`curate verify`: make a finished run again from its kept replies, in a temporary folder, and compare the two.

The run's own code does it, with engines that have only the kept replies (`engines.scripted.KeptEngine`), so there is no second
version of a rule that could be right where the first is wrong. These are taken as they are: the dialogues (sources may
have changed since), kept replies, people's answers, embeddings, and trust reports that the run did not make. No model
calls.
"""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import orjson
import polars as pl
from pydantic import BaseModel, Field

from curate.dialogue import Dialogue, Frozen
from curate.engines.accounting import Accounting
from curate.engines.base import Capability, EngineIdentity, FaultKind
from curate.engines.config import EngineConfig
from curate.engines.model_pool import Asks, ModelFacts
from curate.engines.scripted import KeptEngine
from curate.errors import UsageError
from curate.executors.loop import run as run_in_loop
from curate.recipe import Recipe, parse_recipe
from curate.records import EngineRecord, Manifest, StageName
from curate.run.file_differences import (
    Difference,
    RowDifferences,
    different_fields,
    file_differences,
    value_difference,
)
from curate.run.ingest import DIALOGUES, FILES, INDEX, DialogueFile
from curate.run.labels.populations import fitted_files
from curate.run.pipeline import after_ingest, cleaning_of, write_manifest
from curate.run.read_back import read_manifest
from curate.run.review_answers import answers_path
from curate.run.runlog import RunLog
from curate.run.staging import Job, Progress, stage_rows
from curate.run.verify_trust import TrustCheck
from curate.stages import Stage, StageRow, WorkItem, make_row, model_pool
from curate.storage.line_files import read_lines
from curate.storage.run_folder import MANIFEST, REPLIES, RunFolder
from curate.storage.stage_rows import StageRows
from curate.storage.whole_files import damaged, file_hash, make_folder
from curate.wording import first_of

_FAULTS: Final[tuple[FaultKind, ...]] = ("context_overflow", "bad_request")
"""Faults that a call without a kept reply may have had in the run; what a stage asks next depends on the kind."""
_NOT_COMPARED: Final = frozenset(
    {
        *("format", "started", "finished", "seconds", "seconds_by_stage"),
        *("requests", "tokens_in", "tokens_cached", "tokens_out", "cost", "unpriced", "estimate"),
        *("versions", "recipe", "warnings"),
        *("rows_in", "rows_used", "quarantined", "not_sampled", "dialogues", "roles"),
        *("sources", "hashes"),
    }
)
"""Keys of a manifest that do not follow from replies and dialogues."""

_MADE_WHOLE: Final = frozenset({"select", "pairs", "export"})
"""Folders that hold nothing but what the run makes."""
_TAKEN: Final = frozenset({MANIFEST, *FILES, INDEX, REPLIES, "embeddings.sqlite", "answers.jsonl"})
"""Names of files that the run is made again from, and of those that are compared in another way."""


class Verification(Frozen):
    """The result of making a run again from its kept replies."""

    run: str
    sentence: str
    rows: dict[str, int] = Field(description="Rows that were made again, by stage.")
    files: int = Field(description="Files that were compared.")
    certificates: int = Field(0, description="Certificates that were made again from their labels.")
    no_reply: dict[str, int] = Field(
        default_factory=dict,
        description="By stage, rows that say themselves that calls of theirs failed: there is no reply to make them from.",
    )
    not_verified: tuple[str, ...] = Field((), description="Files that were not checked, and why.")
    differences: tuple[Difference, ...] = ()


def verify_run(run: str | Path, *, progress: Progress = lambda *_: None) -> Verification:
    """Make all results of a run again from its kept replies, and compare.

    Args:
        run: folder of a finished run.
        progress: called with how far each stage is.

    Raises:
        UsageError: no finished run, or one whose replies were not kept.
        RunLockedError: another process writes it.
        CurateError: a file is damaged so that nothing can be compared.
    """
    run = Path(run)
    manifest = read_manifest(run)
    if manifest.status not in ("done", "unscored"):
        raise UsageError(
            "the run has not ended",
            got=f"status {manifest.status}",
            fix="run its recipe to the end",
        )
    recipe = parse_recipe(manifest.recipe, "the manifest's recipe").checked()
    if recipe.asks_models and not (manifest.engines and (run / REPLIES).is_file()):
        raise UsageError(
            "the run's scores cannot be recomputed",
            got="no replies.sqlite" if manifest.engines else "a manifest that names no engines",
            expected="the replies of its models, and their identities",
            fix="run its recipe again with this version of curate; cached replies are not requested again",
        )
    with RunFolder(run), TemporaryDirectory(prefix="curate-verify-") as remade:
        return _Verifier(run, Path(remade), manifest, recipe, progress).verify()


@dataclass(slots=True)
class _Verifier:
    """Makes one run again in another folder, and compares the two.

    Attributes:
        run: the run folder.
        remade: the folder that the run is made again in.
        no_reply, rows, files, certificates, not_verified: as in `Verification`.
    """

    run: Path
    remade: Path
    manifest: Manifest
    recipe: Recipe
    progress: Progress
    no_reply: Counter[str] = field(default_factory=Counter)
    rows: dict[str, int] = field(default_factory=dict)
    files: int = 0
    certificates: int = 0
    not_verified: list[str] = field(default_factory=list)

    def verify(self) -> Verification:
        self._copy()
        with RunFolder(self.remade) as folder:
            job = Job(
                self.recipe, folder, RunLog(self.recipe), keep_going=True, progress=self.progress
            )
            cleaning = cleaning_of(job)
            run_in_loop(after_ingest(job, cleaning, self._open(job.log.accounting)))
            over = job.log.is_over(self.recipe.max_unscored)
            remade = write_manifest(job, "unscored" if over else "done").manifest
        differences = [*self._differences(remade, job.hashes())]
        if damaged_replies := job.log.accounting.damaged:
            problem = "kept replies do not fit their checksums"
            differences.insert(0, Difference(place=REPLIES, problem=problem, rows=damaged_replies))
        return Verification(
            run=str(self.run),
            sentence=self._sentence(differences),
            rows=self.rows,
            files=self.files,
            certificates=self.certificates,
            no_reply=dict(self.no_reply),
            not_verified=tuple(self.not_verified),
            differences=tuple(differences),
        )

    # ---- make the run again

    def _copy(self) -> None:
        """Copy what is taken as it is; make the dialogues' index again."""
        for path in (
            *(self.run / "trust").rglob("*.json*"),
            *(self.run / "trust" / "draws").glob("*.parquet"),
            answers_path(self.run),
            self.run / "embeddings.sqlite",
        ):
            if path.is_file():
                copy = self.remade / path.relative_to(self.run)
                make_folder(copy.parent)
                shutil.copyfile(path, copy)
        with DialogueFile(self.remade / DIALOGUES, self.remade / INDEX) as dialogues:
            for number, line in enumerate(read_lines(self.run / DIALOGUES), start=1):
                try:
                    dialogues.append(Dialogue.model_validate_json(line))
                except ValueError as error:
                    raise damaged(f"{self.run / DIALOGUES}:{number}", error) from error

    @asynccontextmanager
    async def _open(self, accounting: Accounting) -> AsyncIterator[_KeptExecutor]:
        engines: list[KeptEngine] = []

        async def opener(role: str, _: EngineConfig) -> KeptEngine:
            engines.append(_engine(self.manifest.engines[role]))
            return engines[-1]

        budget = RunLog(
            self.recipe.model_copy(update={"budget": type(self.recipe.budget)()})
        ).budget
        replies = self.run / REPLIES
        async with (
            model_pool(self.recipe, opener) as models,
            models.asking(replies, accounting, budget) as asks,
        ):
            yield _KeptExecutor(models.facts, asks, engines, self.run, self.no_reply)

    # ---- compare

    def _differences(self, remade: Manifest, hashes: pl.Series) -> Iterator[Difference]:
        yield from self._dialogue_differences()
        for stage in map(StageName, [*filter(_is_stage, self.manifest.fingerprints)]):
            yield from self._row_differences(stage, remade, hashes)
        yield from self._file_differences()
        yield from self._manifest_differences(remade)
        for key in fitted_files(self.manifest):
            self.not_verified.append(f"{key}: the labels that it was fitted to are not kept")
        trust = TrustCheck(self.run, self.remade, self.manifest)
        yield from trust.differences()
        self.files += len(trust.checked)
        self.certificates = trust.certificates
        self.not_verified += trust.not_checked

    def _file_differences(self) -> Iterator[Difference]:
        """Compare all files but those of the dialogues, of the stages' rows and of `trust/`."""
        remade_files, run_files = _other_files(self.remade), _other_files(self.run)
        for name in remade_files:
            self.files += 1
            yield from file_differences(self.run / name, self.remade / name, name)
        for name in sorted({*run_files} - {*remade_files}):
            if Path(name).parts[0] in _MADE_WHOLE:
                yield Difference(place=name, problem="is no file that this run makes")
            else:
                self.not_verified.append(f"{name}: the run does not make it")

    def _dialogue_differences(self) -> Iterator[Difference]:
        for name in FILES:
            path, expected = self.run / name, self.manifest.hashes.get(name)
            if expected is None:
                self.not_verified.append(f"{name}: the run has not recorded its hash")
                continue
            self.files += 1
            if not path.is_file():
                yield Difference(place=name, problem="is missing")
            elif file_hash(path) != expected:
                yield Difference(place=name, problem="was changed: its SHA-256 is another")
        self.files += 1
        for difference in file_differences(self.run / INDEX, self.remade / INDEX, INDEX):
            problem = "does not fit the dialogues: their content is not what the run has judged"
            yield difference.model_copy(update={"problem": problem})
        counts = {
            name: sum(1 for _ in read_lines(self.run / file)) if (self.run / file).is_file() else 0
            for name, file in zip(("dialogues", "quarantined", "not_sampled"), FILES, strict=True)
        } | {
            "rows_in": self.manifest.rows_used + self.manifest.quarantined,
        }
        in_manifest = {name: getattr(self.manifest, name) for name in counts}
        if counts != in_manifest:
            yield value_difference(in_manifest, counts, MANIFEST)

    def _row_differences(
        self, stage: StageName, remade: Manifest, hashes: pl.Series
    ) -> Iterator[Difference]:
        then, now = self.manifest.fingerprints.get(stage), remade.fingerprints.get(stage)
        if then is None or now is None or then != now:
            yield Difference(
                place=stage,
                problem="was made by other code, prompts or models than are here, so its rows are of another kind",
                fields=(f"fingerprint {then} -> {now}",),
            )
            return
        for folder in sorted((self.remade / stage).glob("*")):
            if not folder.is_dir():
                continue
            run_rows = _raw_rows(self.run / stage / folder.name)
            remade_rows = _raw_rows(folder)
            if run_rows.damage_note:
                yield Difference(place=stage, problem=run_rows.damage_note)
            keys = remade_rows.done()
            self.rows[stage] = self.rows.get(stage, 0) + (len(keys) if folder.name == now else 0)
            yield from _record_differences(
                stage, dict(run_rows.stored(keys)), remade_rows.stored(keys)
            )
            run_keys = run_rows.done()
            of_dialogues = run_keys.filter(run_keys.is_in(hashes.implode()))
            extra = of_dialogues.filter(~of_dialogues.is_in(keys.implode())).to_list()
            if extra and stage not in (StageName.FORK, StageName.NATURAL, StageName.PERSONA):
                problem = "has rows that the run does not make"
                yield Difference(
                    place=stage, problem=problem, rows=len(extra), units=tuple(extra[:5])
                )

    def _manifest_differences(self, remade: Manifest) -> Iterator[Difference]:
        then, now = _compared_part(self.manifest), _compared_part(remade)
        if then != now:
            yield value_difference(then, now, MANIFEST)

    def _sentence(self, differences: list[Difference]) -> str:
        if differences:
            places = list(dict.fromkeys(difference.place for difference in differences))
            return f"The run is not what its kept replies give: {first_of(places, 6)}."
        rows = ", ".join(f"{count:,} {stage}" for stage, count in self.rows.items() if count)
        certificates = f", certificates: {self.certificates}" if self.certificates else ""
        return (
            f"The run is what its kept replies give: rows ({rows or 'none'}), files ({self.files}{certificates}) came out "
            "the same again; no model was asked."
        )


@dataclass(frozen=True, slots=True)
class _KeptExecutor:
    """Makes rows from kept replies; see `executors.work.Executor`.

    Where a reply is missing, the run's row is taken if it says itself that the call failed and nothing else differs.
    """

    models: ModelFacts
    asks: Asks
    engines: list[KeptEngine]
    run_folder: Path
    no_reply: Counter[str]

    async def run(
        self, stage: Stage[Any], items: Iterable[WorkItem], done: Callable[[WorkItem, Any], None]
    ) -> None:
        """Make the rows one after the other."""
        run_rows = stage_rows(self.run_folder, stage.name, stage.fingerprint)
        for item in items:
            row: StageRow = await self._row(stage, item, run_rows)
            done(item, row)

    async def _row(self, stage: Stage[Any], item: WorkItem, run_rows: StageRows[Any]) -> StageRow:
        for fault in _FAULTS:
            before = sum(engine.missing for engine in self.engines)
            for engine in self.engines:
                engine.fault = fault
            row = await make_row(stage, item, self.asks)
            if sum(engine.missing for engine in self.engines) == before:
                return row
            run_row = run_rows.get(item.key)
            if run_row is not None and _without_faults(run_row) == _without_faults(row):
                self.no_reply[stage.name] += 1
                return run_row  # type: ignore[no-any-return]
        return row


def _engine(record: EngineRecord) -> KeptEngine:
    identity = EngineIdentity(
        record.engine, record.model, record.revision, record.quantisation, record.detail
    )
    return KeptEngine(identity, [*map(Capability, record.capabilities)])


def _raw_rows(folder: Path) -> StageRows[Any]:
    return StageRows(folder, dump=orjson.dumps, load=orjson.loads, check=orjson.loads)


def _record_differences(
    stage: StageName, run_records: dict[str, bytes], remade: Iterable[tuple[str, bytes]]
) -> Iterator[Difference]:
    different = RowDifferences(
        stage, "differs from what the kept replies give, or its replies are not kept"
    )
    missing = RowDifferences(stage, "is missing")
    for key, record in remade:
        if key not in run_records:
            missing.add(key)
        elif run_records[key] != record:
            old, new = orjson.loads(run_records[key]), orjson.loads(record)
            row = new[0] if isinstance(new, list) and new else new
            unit = row.get("dialogue_id", key) if isinstance(row, dict) else key
            different.add(unit, different_fields(_mapping(old), _mapping(new)))
    yield from different.differences()
    yield from missing.differences()


def _mapping(row: Any) -> Any:
    return {str(number): one for number, one in enumerate(row)} if isinstance(row, list) else row


def _without_faults(value: Any) -> Any:
    """Return records as JSON values, without the kind of a call's failure and its details."""
    if isinstance(value, BaseModel):
        value = value.model_dump(mode="json")
    if isinstance(value, dict):
        return {
            name: _without_faults(part)
            for name, part in value.items()
            if name not in ("detail", "requests")
        }
    if isinstance(value, list):
        return [_without_faults(part) for part in value]
    return "engine_error" if value == "context_overflow" else value


def _compared_part(manifest: Manifest) -> dict[str, Any]:
    """Return the part of a manifest that follows from dialogues and replies."""
    values = manifest.model_dump(mode="json", exclude=set(_NOT_COMPARED))
    counts = ("rows", "unscored", "reasons")
    values["stages"] = {
        name: {key: stage[key] for key in counts} for name, stage in values["stages"].items()
    }
    return values


def _is_stage(name: str) -> bool:
    return name in {stage.value for stage in StageName}


def _other_files(run: Path) -> list[str]:
    """Return the files of a run but its inputs, its manifest, the rows of its stages and its trust reports; relative, sorted."""
    paths = (path.relative_to(run) for path in sorted(run.rglob("*")) if path.is_file())
    return [
        path.as_posix()
        for path in paths
        if not (path.name.startswith(".") or path.name in _TAKEN or path.parts[0] == "trust")
        and not (_is_stage(path.parts[0]) and len(path.parts) > 2)
    ]
