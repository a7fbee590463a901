"""The one loop over stages: ingest, judge, adherence, select, fork, export.

Each stage reads rows and appends rows to the run folder, so a run that ends early (kill, Ctrl-C, budget,
an unreachable server) is resumed by running it again: rows that are there are reused, replies that were
received are not asked for twice.
"""

from __future__ import annotations

import asyncio
from collections.abc import (
    Callable,
    Collection,
    Iterable,
    Iterator,
    Mapping,
)
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Literal, TypeVar, cast

import orjson
import polars as pl
from pydantic import BaseModel, TypeAdapter

from curate.dialogue import Dialogue
from curate.errors import BudgetReached, SourceError
from curate.executors.opening import open_executor
from curate.executors.work import Executor, WorkItem
from curate.export.trl import export_trl
from curate.ingesting import QUARANTINE, read_dialogues, read_sources
from curate.models import ModelFacts, trust_warning
from curate.pairs.natural import natural_pairs
from curate.recipe import Recipe
from curate.records import AdherenceScore, Decision, Judgment, Manifest, PreferencePair, Unscored
from curate.runlog import RunLog, Status
from curate.runs import read_manifest
from curate.selection.rules import matches, select
from curate.selection.table import mixed_identities, score_table
from curate.sources import Source, open_source
from curate.steps import Step, adherence_step, fork_step, judge_step
from curate.store import RunFolder, StageRows, write_atomically
from curate.validation import load_record

S = TypeVar("S", Judgment, AdherenceScore)
R = TypeVar("R")
ScoringStage = Literal["judge", "adherence"]

_PAIRS = TypeAdapter(list[PreferencePair])

Progress = Callable[[str, int, int], None]
"""Told a stage's name, how many of its rows are done, and how many it has."""


@dataclass(frozen=True, slots=True)
class RunResult:
    """What a run came to."""

    folder: Path
    manifest: Manifest

    @property
    def exit_code(self) -> int:
        """0 done, 1 failed or stopped, 3 over the allowed share of unscored."""
        return {"done": 0, "unscored": 3}.get(self.manifest.status, 1)


def run_recipe(
    recipe: Recipe,
    *,
    out: str | Path | None = None,
    limit: int | None = None,
    retry_unscored: bool = False,
    progress: Progress | None = None,
) -> RunResult:
    """Run a recipe from source to export, or resume it.

    Args:
        recipe: what to do; see `curate.recipe.load_recipe`.
        out: run folder; `runs/<recipe name>` by default.
        limit: read only the first rows (conversations, where one spans several rows) of each source.
        retry_unscored: ask again for dialogues that an earlier run could not score.
        progress: told how far each stage is.

    Returns:
        The result; its `exit_code` is what the command line exits with.

    Raises:
        UsageError: the recipe cannot run as it is (no judge, unreadable source, missing extra).
        EngineError: a model cannot be reached or used at all.
        RunLockedError: another process writes the folder.
        CurateError: anything else with a name, a full disk for one. What was done is kept.
    """
    recipe = recipe.checked()
    sources = open_sources(recipe, limit)
    with RunFolder(Path(out) if out is not None else Path("runs") / recipe.name) as folder:
        run = _Run(recipe, sources, folder, retry_unscored, progress or (lambda *_: None))
        return asyncio.run(run.go())


def open_sources(recipe: Recipe, limit: int | None = None) -> list[Source]:
    """Open every source of a recipe: files found, shapes detected."""
    update = {} if limit is None else {"limit": limit}
    return [open_source(source.model_copy(update=update)) for source in recipe.source]


class _Run:
    """One run in progress; its methods are the stages, in order."""

    def __init__(
        self,
        recipe: Recipe,
        sources: list[Source],
        folder: RunFolder,
        retry_unscored: bool,
        progress: Progress,
    ) -> None:
        self.recipe = recipe
        self.sources = sources
        self.folder = folder
        self.retry_unscored = retry_unscored
        self.progress = progress
        self.log = RunLog(recipe)

    async def go(self) -> RunResult:
        """All stages; the manifest is written at the start and however it ends."""
        self._write_manifest("running")
        try:
            with self.log.timed("ingest"):
                self._ingest()
            if self.recipe.asks_models:
                log, folder = self.log, self.folder.path
                opened = open_executor(self.recipe, folder, log.accounting, log.budget)
                async with opened as executor:
                    await self._ask(executor)
            else:
                judge = self._take_over("judge", Judgment) if self.recipe.judge else None
                adherence = (
                    self._take_over("adherence", AdherenceScore) if self.recipe.adherence else None
                )
                self._export(self._select(self._table(judge, adherence)), [])
        except BudgetReached as reached:
            self.log.warn(str(reached))
            return self._write_manifest("budget")
        except BaseException:
            self._write_manifest("failed")
            raise
        limit = self.recipe.max_unscored
        over = any(share > limit for share in self.log.shares().values())
        return self._write_manifest("unscored" if over else "done")

    async def _ask(self, executor: Executor) -> None:
        """The stages that ask models, and what follows from them."""
        models = executor.models
        self._warn_about(models)
        judged = judge_step(self.recipe.judge, models.judge) if self.recipe.judge else None
        judgments = adherence = None
        if judged is not None:
            with self.log.timed("judge"):
                judgments = await self._score("judge", Judgment, judged, executor)
        if self.recipe.adherence:
            step = adherence_step(self.recipe.adherence, models.judge)
            with self.log.timed("adherence"):
                adherence = await self._score("adherence", AdherenceScore, step, executor)
        with self.log.timed("table"):
            table = self._table(judgments, adherence)
        with self.log.timed("select"):
            decisions = self._select(table)
        forked = []
        if self.recipe.fork and self.recipe.judge and judged and judgments is not None:
            _, print_ = fork_step(self.recipe.fork, self.recipe.judge, judged, models)
            admitted = matches(table, self.recipe.fork.where)
            with self.log.timed("fork"):
                forked = await self._fork(print_, admitted, judgments, executor)
        with self.log.timed("export"):
            self._export(decisions, forked)

    def _write_manifest(self, status: Status) -> RunResult:
        manifest = self.log.manifest(status)
        self.folder.write_manifest(manifest.model_dump(mode="json"))
        return RunResult(self.folder.path, manifest)

    def _dialogues(self) -> Iterator[Dialogue]:
        return read_dialogues(self.folder.path)

    def _ingest(self) -> None:
        recipe = self.recipe
        reports = read_sources(
            self.sources,
            self.folder.path,
            role=recipe.role,
            scenario=recipe.scenario,
            progress=lambda made: self.progress("ingest", made, made),
        )
        self.log.sources.extend(reports)
        if not self.log.rows("dialogues"):
            raise SourceError(
                "no dialogue could be read from the source",
                got=f"{self.log.rows('rows_in')} rows, none of them used",
                expected="at least one dialogue with an assistant turn",
                fix=f"see {self.folder.path / QUARANTINE} for each row's reason",
            )

    def _warn_about(self, models: ModelFacts) -> None:
        self.log.warn(trust_warning(models.judge.identity))
        if self.recipe.fork and models.judge.identity.key == models.policy.identity.key:
            self.log.warn(
                "Judge and policy are the same model: it judges its own writing, and favours it."
            )

    async def _score(
        self, name: ScoringStage, kind: type[S], step: Step[S | Unscored], executor: Executor
    ) -> StageRows[S | Unscored]:
        """Run a judging stage on every dialogue that has no row yet; equal dialogues share one."""
        self.log.warn(step.warning)
        self.log.fingerprints[name] = step.fingerprint
        self.log.identities[name] = step.identity
        rows = self._rows(name, step.fingerprint, kind)
        hashes = self._hashes()
        if self.recipe.reuse is not None:
            _copy_rows(_stored_rows(self.recipe.reuse, name, step.fingerprint, kind), rows, hashes)
        again: frozenset[str] = frozenset()
        if self.retry_unscored:
            again = frozenset(k for k, record in rows.read() if isinstance(record, Unscored))
            rows.forget(again)

        def item(dialogue: Dialogue) -> WorkItem:
            return WorkItem(name, dialogue, again=dialogue.content_hash in again)

        await self._complete(name, rows, hashes, item, executor)
        self._count(name, rows, hashes)
        return rows

    def _take_over(self, name: str, kind: type[S]) -> StageRows[S | Unscored] | None:
        """The rows of another run as they are, without asking anybody; None where it has none."""
        run = self.recipe.reuse
        if run is None:
            return None
        manifest = read_manifest(run)
        print_ = manifest.fingerprints.get(name)
        if print_ is None:
            self.log.warn(f"{run} has no {name} rows to take over.")
            return None
        self.log.fingerprints[name] = print_
        self.log.identities[name] = manifest.identities[name]
        rows, hashes = self._rows(name, print_, kind), self._hashes()
        _copy_rows(_stored_rows(run, name, print_, kind), rows, hashes)
        rows.compact(hashes)
        self.log.tally(name).reused = len(rows.keys & hashes.keys())
        self._count(name, rows, hashes)
        if missing := len(hashes) - self.log.tally(name).reused:
            self.log.warn(
                f"{missing} dialogues have no {name} row in {run}; they fail every filter."
            )
        return rows

    def _rows(self, name: str, print_: str, kind: type[S]) -> StageRows[S | Unscored]:
        return _stored_rows(self.folder.path, name, print_, kind)

    def _hashes(self) -> dict[str, None]:
        """Content hashes of this run's dialogues, in order, each once."""
        return dict.fromkeys(dialogue.content_hash for dialogue in self._dialogues())

    def _count(
        self, name: str, rows: StageRows[S | Unscored], hashes: Mapping[str, object]
    ) -> None:
        for key, record in rows.read():
            if key in hashes:
                self.log.add_row(name, record)
        self.log.warn_about_data(name)

    async def _complete(
        self,
        name: str,
        rows: StageRows[R],
        keys: Mapping[str, object],
        item: Callable[[Dialogue], WorkItem],
        executor: Executor,
    ) -> None:
        """Make the rows that are owed for `keys`, each on disk as soon as it is there; then compact."""
        finished = self.log.tally(name).reused = sum(key in rows for key in keys)

        def owed() -> Iterator[WorkItem]:
            taken: set[str] = set()
            for dialogue in self._dialogues():
                key = dialogue.content_hash
                if key in keys and key not in rows and key not in taken:
                    taken.add(key)
                    yield item(dialogue)

        def done(made: WorkItem, row: R) -> None:
            nonlocal finished
            rows.append(made.dialogue.content_hash, row)
            finished += 1
            self.progress(name, finished, len(keys))

        try:
            await executor.run(owed(), done)
        finally:
            rows.close()
        rows.compact(keys)

    def _table(
        self,
        judgments: StageRows[Judgment | Unscored] | None,
        adherence: StageRows[AdherenceScore | Unscored] | None,
    ) -> pl.DataFrame:
        table = score_table(
            self._dialogues(),
            dict(judgments.read()) if judgments is not None else None,
            dict(adherence.read()) if adherence is not None else None,
        )
        for stage, keys in mixed_identities(table).items():
            self.log.warn(
                f"{stage} scores come from several judges and do not compare: {', '.join(keys)}."
            )
        buffer = BytesIO()
        table.write_parquet(buffer)
        write_atomically(self.folder.path / "scores.parquet", buffer.getvalue())
        return table

    def _select(self, table: pl.DataFrame) -> list[Decision]:
        if not self.recipe.select:
            return []
        decisions = select(table, self.recipe.select)
        self.log.add_decisions(decisions)
        folder = self.folder.path / "select"
        _write_lines(folder / "decisions.jsonl", decisions)
        for name in ("sft", "rejected", "review", "active"):
            chosen = {d.dialogue_id: d.reasons for d in decisions if name in d.sets}
            lines = (
                orjson.dumps(
                    {
                        "reasons": chosen[dialogue.id],
                        "dialogue": dialogue.model_dump(mode="json", exclude_defaults=True),
                    }
                )
                for dialogue in self._dialogues()
                if dialogue.id in chosen
            )
            write_atomically(folder / f"{name}.jsonl", b"".join(line + b"\n" for line in lines))
        return decisions

    async def _fork(
        self,
        print_: str,
        admitted: Collection[str],
        judgments: StageRows[Judgment | Unscored],
        executor: Executor,
    ) -> list[PreferencePair]:
        """Fork the dialogues that `fork.where` admits; those forked before are not asked for again."""
        self.log.fingerprints["fork"] = print_
        rows: StageRows[list[PreferencePair]] = StageRows(
            self.folder.path / "fork" / print_,
            dump=lambda pairs: orjson.dumps([pair.model_dump(mode="json") for pair in pairs]),
            load=_PAIRS.validate_json,
            check=_check_pairs,
        )
        by_hash = {
            key: record
            for key, record in judgments.read()
            if key in admitted and isinstance(record, Judgment)
        }

        def item(dialogue: Dialogue) -> WorkItem:
            return WorkItem("fork", dialogue, by_hash[dialogue.content_hash])

        await self._complete("fork", rows, by_hash, item, executor)
        made = [pairs for key, pairs in rows.read() if key in by_hash]
        self.log.tally("fork").rows = len(made)
        return [pair for pairs in made for pair in pairs]

    def _export(self, decisions: Iterable[Decision], forked: list[PreferencePair]) -> None:
        kept = {decision.dialogue_id for decision in decisions if "sft" in decision.sets}
        natural = natural_pairs(self._dialogues(), self.recipe.natural)
        sets = {
            "pairs": [pair for pair in forked if pair.refusal is None],
            "natural_pairs": [pair for pair in natural if pair.refusal is None],
            "refused_pairs": [pair for pair in (*forked, *natural) if pair.refusal is not None],
        }
        self.log.add_pairs(*sets.values())
        for name, pairs in sets.items():
            _write_lines(self.folder.path / "pairs" / f"{name}.jsonl", pairs)
        if not self.recipe.export:
            return
        for trainer in self.recipe.export.trainers:
            self.log.exports[trainer] = export_trl(
                self.folder.path / "export" / trainer,
                sft=(dialogue for dialogue in self._dialogues() if dialogue.id in kept),
                pairs=sets["pairs"],
                natural=sets["natural_pairs"],
                config=self.recipe.export,
            ).as_dict()


def _stored_rows(run: Path, name: str, print_: str, kind: type[S]) -> StageRows[S | Unscored]:
    adapter: TypeAdapter[S | Unscored] = TypeAdapter(cast("type[S | Unscored]", kind | Unscored))
    return StageRows(
        run / name / print_,
        dump=lambda record: record.model_dump_json().encode(),
        load=adapter.validate_json,
        check=lambda line: _check_record(kind, line),
    )


def _check_record(kind: type[BaseModel], line: bytes) -> None:
    value = orjson.loads(line)
    load_record(Unscored if "stage" in value else kind, value)


def _copy_rows(
    source: StageRows[S | Unscored],
    target: StageRows[S | Unscored],
    wanted: Mapping[str, object],
) -> None:
    for key, record in source.read():
        if key in wanted and key not in target:
            target.append(key, record)


def _check_pairs(line: bytes) -> None:
    for value in orjson.loads(line):
        load_record(PreferencePair, value)


def _write_lines(path: Path, records: Iterable[Decision | PreferencePair]) -> None:
    write_atomically(
        path, b"".join(record.model_dump_json().encode() + b"\n" for record in records)
    )
