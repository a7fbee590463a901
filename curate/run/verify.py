"""`curate verify`: a finished run made again from its kept replies, in a temporary place, and held against itself.

The run's own code does it, with engines that have only the kept replies (`engines.kept_replies`), so there is no second version of
a rule that could be right where the first is wrong. Taken as they are: the dialogues (sources may have changed since),
kept replies, people's answers, embeddings, and reports of trust that were not made by the run. No model is asked.
"""

from __future__ import annotations

import re
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
from pydantic import Field

from curate.dialogue import Dialogue, Frozen
from curate.engines.accounting import Accounting
from curate.engines.base import Capability, EngineIdentity, FaultKind
from curate.engines.kept_replies import KeptEngine
from curate.engines.model_pool import Asks, ModelFacts
from curate.engines.open import EngineConfig
from curate.errors import CurateError, UsageError
from curate.executors.loop import run as run_in_loop
from curate.recipe import Recipe, parse_recipe
from curate.records import Certificate, EngineRecord, Manifest, StageName, TrustKind
from curate.run.certify import (
    after_questions,
    certify_run,
    labels_path,
    question_of,
    read_kept_labels,
)
from curate.run.file_differences import (
    Difference,
    RowDifferences,
    different_fields,
    file_differences,
    value_difference,
)
from curate.run.ingest import DIALOGUES, INDEX, QUARANTINE, DialogueFile
from curate.run.outputs import SCORES
from curate.run.pipeline import after_ingest, cleaning_of, write_manifest
from curate.run.read_back import read_manifest
from curate.run.reviews import answers_path
from curate.run.runlog import RunLog
from curate.run.staging import Job, Progress, stage_rows
from curate.run.trust_reports import read_trust_report
from curate.stages import Row, Stage, WorkItem, make_row, model_pool
from curate.storage.line_files import read_lines
from curate.storage.run_folder import RunFolder
from curate.storage.stage_rows import StageRows
from curate.storage.whole_files import damaged, make_folder

_FAULTS: Final[tuple[FaultKind, ...]] = ("context_overflow", "bad_request")
"""How a stage may have been told of a call that failed: what it asks next depends on that."""
_OF_THE_PROCESS: Final = frozenset(
    {
        *("format", "name", "status", "started", "finished", "seconds", "seconds_by_stage"),
        *("requests", "tokens_in", "tokens_cached", "tokens_out", "cost", "unpriced", "estimate"),
        *("versions", "recipe", "warnings"),
        *("rows_in", "rows_used", "quarantined", "dialogues", "roles", "not_sampled", "sources"),
    }
)
"""Keys of a manifest that do not follow from replies and dialogues."""


class Verification(Frozen):
    """What came of making a run again from its kept replies."""

    run: str
    sentence: str
    rows: dict[str, int] = Field(description="Rows that were made again, by stage.")
    files: int = Field(description="Files that were compared.")
    certificates: int = Field(0, description="Certificates that were made again from their labels.")
    no_reply: dict[str, int] = Field(
        default_factory=dict,
        description="By stage, rows that say themselves that calls of theirs failed: there is no reply to make them from.",
    )
    not_verified: tuple[str, ...] = Field((), description="What was taken as it is, and why.")
    differences: tuple[Difference, ...] = ()


def verify_run(run: str | Path, *, progress: Progress = lambda *_: None) -> Verification:
    """Make everything that a run says anew from its kept replies, and compare.

    Args:
        run: folder of a finished run.
        progress: told how far each stage is.

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
    if recipe.asks_models and not (manifest.engines and (run / "replies.sqlite").is_file()):
        raise UsageError(
            "there is nothing to make the run's scores from again",
            got="no replies.sqlite" if manifest.engines else "a manifest that names no engines",
            expected="the replies of its models, and who they are",
            fix="run its recipe again with this version of curate; kept replies are not asked for twice",
        )
    with RunFolder(run), TemporaryDirectory(prefix="curate-verify-") as place:
        return _Verifying(run, Path(place), manifest, recipe, progress).verify()


@dataclass(slots=True)
class _Verifying:
    """One run, and the folder that it is made again in."""

    run: Path
    again: Path
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
        with RunFolder(self.again) as folder:
            job = Job(
                self.recipe, folder, RunLog(self.recipe), keep_going=True, progress=self.progress
            )
            cleaning = cleaning_of(job)
            run_in_loop(after_ingest(job, cleaning, self._open(job.log.accounting)))
            made = write_manifest(job, self.manifest.status).manifest
        found = [*self._differences(made, job.hashes())]
        if job.log.accounting.damaged:
            problem = "kept replies do not fit their checksums"
            damaged_replies = job.log.accounting.damaged
            found.insert(
                0, Difference(place="replies.sqlite", problem=problem, rows=damaged_replies)
            )
        return Verification(
            run=str(self.run),
            sentence=self._sentence(found),
            rows=self.rows,
            files=self.files,
            certificates=self.certificates,
            no_reply=dict(self.no_reply),
            not_verified=tuple(self.not_verified),
            differences=tuple(found),
        )

    # ---- made again

    def _copy(self) -> None:
        """What is taken as it is; the dialogues' index is made anew."""
        for path in (
            *(self.run / "trust").rglob("*.json*"),
            *(self.run / "trust" / "draws").glob("*.parquet"),
            answers_path(self.run),
            self.run / "embeddings.sqlite",
        ):
            if path.is_file():
                copy = self.again / path.relative_to(self.run)
                make_folder(copy.parent)
                shutil.copyfile(path, copy)
        with DialogueFile(self.again / DIALOGUES, self.again / INDEX) as dialogues:
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
        replies = self.run / "replies.sqlite"
        async with (
            model_pool(self.recipe, opener) as models,
            models.asking(replies, accounting, budget) as asks,
        ):
            yield _KeptExecutor(models.facts, asks, engines, self.run, self.no_reply)

    # ---- compared

    def _differences(self, made: Manifest, hashes: pl.Series) -> Iterator[Difference]:
        yield from self._dialogue_differences()
        for stage in map(StageName, [*filter(_is_stage, self.manifest.fingerprints)]):
            yield from self._row_differences(stage, made, hashes)
        names = [SCORES, *_below(self.again, "select", "pairs", "export")]
        for name in names:
            if (self.again / name).is_file():
                self.files += 1
                yield from file_differences(self.run / name, self.again / name, name)
        yield from self._manifest_differences(made)
        yield from self._certificate_differences()

    def _dialogue_differences(self) -> Iterator[Difference]:
        self.files += 2
        yield from file_differences(self.run / DIALOGUES, self.again / DIALOGUES, DIALOGUES)
        for difference in file_differences(self.run / INDEX, self.again / INDEX, INDEX):
            problem = "does not fit the dialogues: their content is another than the run has judged"
            yield difference.model_copy(update={"problem": problem})
        quarantined = self.run / QUARANTINE
        counts = {
            "dialogues": sum(1 for _ in read_lines(self.run / DIALOGUES)),
            "quarantined": sum(1 for _ in read_lines(quarantined)) if quarantined.is_file() else 0,
            "rows_in": self.manifest.rows_used + self.manifest.quarantined,
        }
        said = {name: getattr(self.manifest, name) for name in counts}
        if counts != said:
            yield value_difference(said, counts, "manifest.json")

    def _row_differences(
        self, stage: StageName, made: Manifest, hashes: pl.Series
    ) -> Iterator[Difference]:
        then, now = (held.fingerprints.get(stage) for held in (self.manifest, made))
        if then is None or now is None or then != now:
            yield Difference(
                place=stage,
                problem="was made by other code, prompts or models than are here, so its rows are of another kind",
                fields=(f"fingerprint {then} -> {now}",),
            )
            return
        for folder in sorted((self.again / stage).iterdir()):
            if not folder.is_dir():
                continue
            kept = _raw_rows(self.run / stage / folder.name)
            again = _raw_rows(folder)
            if kept.damage_note:
                yield Difference(place=stage, problem=kept.damage_note)
            keys = again.done()
            self.rows[stage] = self.rows.get(stage, 0) + (len(keys) if folder.name == now else 0)
            yield from _unlike(stage, dict(kept.stored(keys)), again.stored(keys))
            own = kept.done().filter(kept.done().is_in(hashes.implode()))
            extra = own.filter(~own.is_in(keys.implode())).to_list()
            if extra and stage not in (StageName.FORK, StageName.NATURAL, StageName.PERSONA):
                problem = "has rows that the run does not make"
                yield Difference(
                    place=stage, problem=problem, rows=len(extra), units=tuple(extra[:5])
                )

    def _manifest_differences(self, made: Manifest) -> Iterator[Difference]:
        kept, again = (_counted(held) for held in (self.manifest, made))
        if kept != again:
            yield value_difference(kept, again, "manifest.json")

    def _certificate_differences(self) -> Iterator[Difference]:
        for kind in (TrustKind.CERTIFICATE, TrustKind.PAIR_CERTIFICATE):
            certificate = read_trust_report(self.run, Certificate, kind)
            if certificate is None:
                continue
            place, labels = f"trust/{kind}.json", labels_path(self.run, kind)
            if not labels.is_file():
                self.not_verified.append(f"{place}: its labels do not lie with this run")
                continue
            self.certificates += 1
            try:
                made = certify_run(self.again, read_kept_labels(labels), question_of(certificate))
            except CurateError as error:
                yield Difference(place=place, problem=f"cannot be made again: {error.problem}")
                continue
            made = after_questions(
                made.model_copy(update={"made": certificate.made}), certificate.earlier_attempts
            )
            then, now = (held.model_dump(mode="json") for held in (certificate, made))
            if made != certificate:
                problem = f"differs from what its labels ({labels.relative_to(self.run)}) give"
                yield value_difference(then, now, place).model_copy(update={"problem": problem})

    def _sentence(self, found: list[Difference]) -> str:
        if found:
            places = list(dict.fromkeys(one.place for one in found))
            shown = ", ".join(places[:6]) + (f" and {len(places) - 6} more" if places[6:] else "")
            return f"The run is not what its kept replies give: {shown}."
        made = ", ".join(f"{count:,} {stage}" for stage, count in self.rows.items() if count)
        certificates = f", certificates: {self.certificates}" if self.certificates else ""
        return (
            f"The run is what its kept replies give: rows ({made or 'none'}), files ({self.files}{certificates}) came out "
            "the same again; no model was asked."
        )


@dataclass(frozen=True, slots=True)
class _KeptExecutor:
    """Makes rows from kept replies; see `executors.work.Executor`.

    A row that met a missing reply is the run's own where that says of itself that the call failed, and nothing else
    differs: it claims no answer.
    """

    models: ModelFacts
    asks: Asks
    engines: list[KeptEngine]
    kept: Path
    no_reply: Counter[str]

    async def run(
        self, stage: Stage[Any], items: Iterable[WorkItem], done: Callable[[WorkItem, Any], None]
    ) -> None:
        """Make the rows one after the other."""
        rows = stage_rows(self.kept, stage.name, stage.fingerprint)
        for item in items:
            row: Row = await self._made(stage, item, rows)
            done(item, row)

    async def _made(self, stage: Stage[Any], item: WorkItem, rows: StageRows[Any]) -> Row:
        for fault in _FAULTS:
            before = sum(engine.missing for engine in self.engines)
            for engine in self.engines:
                engine.fault = fault
            row = await make_row(stage, item, self.asks)
            if sum(engine.missing for engine in self.engines) == before:
                return row
            kept = rows.get(item.key)
            if kept is not None and _but_faults(_plain(kept)) == _but_faults(_plain(row)):
                self.no_reply[stage.name] += 1
                return kept  # type: ignore[no-any-return]
        return row


def _engine(record: EngineRecord) -> KeptEngine:
    identity = EngineIdentity(
        record.engine, record.model, record.revision, record.quantisation, record.detail
    )
    return KeptEngine(identity, [*map(Capability, record.capabilities)])


def _raw_rows(folder: Path) -> StageRows[Any]:
    return StageRows(folder, dump=orjson.dumps, load=orjson.loads, check=orjson.loads)


def _unlike(
    stage: StageName, kept: dict[str, bytes], made: Iterable[tuple[str, bytes]]
) -> Iterator[Difference]:
    tally = RowDifferences(
        stage, "differs from what the kept replies give, or its replies are not kept"
    )
    missing = RowDifferences(stage, "is missing")
    for key, record in made:
        if key not in kept:
            missing.add(key)
        elif kept[key] != record:
            old, new = orjson.loads(kept[key]), orjson.loads(record)
            row = new[0] if isinstance(new, list) and new else new
            unit = row.get("dialogue_id", key) if isinstance(row, dict) else key
            tally.add(unit, different_fields(_mapping(old), _mapping(new)))
    yield from tally.differences()
    yield from missing.differences()


def _mapping(row: Any) -> Any:
    return {str(number): one for number, one in enumerate(row)} if isinstance(row, list) else row


def _plain(row: Any) -> Any:
    return (
        [one.model_dump(mode="json") for one in row]
        if isinstance(row, list)
        else row.model_dump(mode="json")
    )


def _but_faults(value: Any) -> Any:
    """A record without what it says of the kind of a call's failure."""
    if isinstance(value, dict):
        held = {name: part for name, part in value.items() if name not in ("detail", "requests")}
        return {name: _but_faults(part) for name, part in held.items()}
    if isinstance(value, list):
        return [_but_faults(part) for part in value]
    return "engine_error" if value == "context_overflow" else value


def _counted(manifest: Manifest) -> dict[str, Any]:
    """What a manifest says that follows from dialogues and replies."""
    held = manifest.model_dump(mode="json", exclude=set(_OF_THE_PROCESS))
    stages = held["stages"].items()
    counts = ("rows", "unscored", "reasons")
    held["stages"] = {name: {key: one[key] for key in counts} for name, one in stages}
    return held


def _is_stage(name: str) -> bool:
    return name in {stage.value for stage in StageName}


def _below(folder: Path, *names: str) -> list[str]:
    paths = (path for name in names for path in sorted((folder / name).rglob("*")))
    return [
        str(path.relative_to(folder))
        for path in paths
        if re.fullmatch(r"\.(json|jsonl|parquet)", path.suffix)
    ]
