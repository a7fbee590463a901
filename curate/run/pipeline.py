"""The one loop over stages: ingest, judge, adherence, select, fork, export.

Each stage reads rows and appends rows to the run folder, so a run that ends early (kill, Ctrl-C, budget,
an unreachable server) is resumed by running it again: rows that are there are reused, replies that were
received are not asked for twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

import orjson
import polars as pl

from curate.adherence.config import AdherenceConfig
from curate.adherence.decay import AdherenceTally
from curate.adherence.reference.config import EVALUATION_ONLY
from curate.dialogue import Dialogue
from curate.errors import BudgetReached, CurateError
from curate.executors.comparing import ComparingExecutor, Runner
from curate.executors.loop import run as run_in_loop
from curate.executors.opening import open_executor
from curate.executors.work import Executor, WorkItem
from curate.judging.calibrated import check_adherence, describe_levels
from curate.judging.config import RubricConfig
from curate.models import ModelFacts, trust_warning
from curate.planning.estimate import PairShare, Reservoir, estimate, estimate_left, last_fork_share
from curate.planning.rates import rates_of
from curate.recipe import Recipe, as_recipe
from curate.records import (
    AdherenceScore,
    JudgeIdentity,
    Judgment,
    Manifest,
    Unscored,
)
from curate.run.cleaning_inputs import Cleaning, prepare_cleaning
from curate.run.export import Scores, export_run
from curate.run.ingest import (
    INDEX,
    read_dialogues,
    read_index,
    read_sources,
)
from curate.run.outputs import (
    rejections,
    write_scores,
    write_selection,
)
from curate.run.owed import KeptRows, Reused, reuse_gaps, taken_over_gaps, told_of_gaps
from curate.run.pairs import Pairing, Records, no_records
from curate.run.read_back import last_manifest, read_manifest
from curate.run.runlog import RunLog, Status
from curate.run.staging import Progress, RowMaker, S, calibrated_rows, scored_rows
from curate.selection.rules import decide, narrowed, questions
from curate.selection.table import mixed_identities
from curate.sources import Source, open_source
from curate.steps import (
    Calibrated,
    Step,
    adherence_step,
    calibrate_judge,
    fork_step,
    judge_step,
    natural_step,
    pair_identity,
    reference_step,
)
from curate.storage.files import make_folder, readable
from curate.storage.remote import open_run_folder
from curate.storage.store import RunFolder, StageRows

ScoringStage = Literal["judge", "adherence"]


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
    recipe: Recipe | Mapping[str, Any] | str | Path,
    *,
    out: str | Path | None = None,
    limit: int | None = None,
    retry_unscored: bool = False,
    keep_going: bool = False,
    progress: Progress | None = None,
    notify: Callable[[str], None] | None = None,
) -> RunResult:
    """Run a recipe from source to export, or resume it.

    Args:
        recipe: what to do: the path of a recipe file, the same as a mapping, or what `load_recipe` gives.
        out: run folder, or the URL of one (see `curate.storage.remote`); `runs/<recipe name>` by default.
        limit: read only the first rows (conversations, where one spans several rows) of each source.
        retry_unscored: ask again for dialogues that an earlier run could not score.
        keep_going: go through all dialogues even where the first 50 of a stage all came to nothing for one reason.
        progress: told how far each stage is.
        notify: told what is worth hearing before a model is asked, a sentence at a time; it is in the
            manifest's warnings, too.

    Returns:
        The result; its `exit_code` is what the command line exits with.

    Raises:
        UsageError: the recipe cannot be read, or cannot run as it is (no judge, unreadable source, missing extra,
            judgments that `reuse.required` asks for).
        EngineError: a model cannot be reached or used at all, or nothing came of a stage's first 50 dialogues.
        RunLockedError: another process writes the folder.
        CurateError: anything else with a name, a full disk for one. What was done is kept.
    """
    recipe = as_recipe(recipe).checked()
    sources = open_sources(recipe, limit)
    with open_run_folder(out if out is not None else Path("runs") / recipe.name) as folder:
        maker = RowMaker(RunLog(recipe), progress or (lambda *_: None), keep_going)
        run = _Run(recipe, sources, folder, retry_unscored, maker, notify or (lambda _: None))
        return run_in_loop(run.go())


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
        maker: RowMaker,
        notify: Callable[[str], None],
    ) -> None:
        self.recipe = recipe
        self.sources = sources
        self.folder = folder
        self.retry_unscored = retry_unscored
        self.notify = notify
        self.progress = maker.progress
        self.log = maker.log
        self.sample = Reservoir()
        earlier = last_manifest(folder.path)
        if earlier is None and folder.manifest_path.exists():
            self.log.warn(f"{folder.manifest_path} could not be read back; it is made anew.")
        self.rates = None if earlier is None else rates_of(earlier, str(folder.path))
        self.maker = maker
        self.pairing = Pairing(recipe, folder.path, self.maker, retry_unscored=retry_unscored)
        if earlier is not None and (name := earlier.recipe.get("name")) != recipe.name:
            self.log.warn(
                f"The folder held the run of another recipe, {name!r}: its sets, pairs, exports and manifest "
                "make way for those of this one. Its scores are kept: run again, it asks nobody."
            )

    @property
    def cleaning(self) -> Cleaning | None:
        """What is looked for in dialogues, shared with the pairs made of them; None until eval sets are read."""
        return self.pairing.cleaning

    async def go(self) -> RunResult:
        """All stages; the manifest is written at the start and however it ends."""
        self._write_manifest("running")
        try:
            self._prepare_cleaning()
            with self.log.timed("ingest"):
                self._ingest()
            if self.recipe.asks_models:
                log, folder = self.log, self.folder.path
                opened = open_executor(self.recipe, folder, log.accounting, log.budget)
                async with opened as executor:
                    await self._ask(executor)
            else:
                if self.recipe.reuse is not None and self.recipe.reuse.required:
                    reused = Reused.of(self.recipe.reuse.run)
                    told_of_gaps(
                        self.recipe, taken_over_gaps(self.recipe, self._kept(), reused), None
                    )
                judge = None
                if self.recipe.judge:
                    bind = partial(calibrate_judge, self.recipe.judge)
                    judge = self._take_over("judge", Judgment, bind)
                adherence = None
                if self.recipe.judged_adherence:
                    adherence = self._take_over("adherence", AdherenceScore)
                elif self.recipe.compared_adherence:
                    adherence = await self._compare(self.recipe.compared_adherence)
                if self.recipe.judge:
                    known = self.log.identities.get("adherence") if adherence else None
                    check_adherence(self.recipe.judge.calibration, known)
                self._finish(self._tabulate(judge, adherence), Scores(judge, adherence))
        except BudgetReached as reached:
            self.log.warn(str(reached))
            return self._write_manifest("budget")
        except BaseException as error:
            if isinstance(error, CurateError):
                self.log.warn(str(error))
            self._write_manifest("failed")
            raise
        over = self.log.is_over(self.recipe.max_unscored)
        return self._write_manifest("unscored" if over else "done")

    async def _ask(self, executor: Executor) -> None:
        """The stages that ask models, and what follows from them."""
        models = executor.models
        self._warn_about(models)
        judged = judge_step(self.recipe.judge, models.judge) if self.recipe.judge else None
        scored = None
        if self.recipe.judged_adherence:
            scored = adherence_step(self.recipe.judged_adherence, models.judge)
        if self.recipe.judge:
            check_adherence(self.recipe.judge.calibration, scored.identity if scored else None)
        await self._estimate(models)
        judgments = adherence = None
        if judged is not None:
            with self.log.timed("judge"):
                judgments = await self._score("judge", Judgment, judged, executor)
        if scored is not None:
            with self.log.timed("adherence"):
                adherence = await self._score("adherence", AdherenceScore, scored, executor)
        elif self.recipe.compared_adherence:
            adherence = await self._compare(self.recipe.compared_adherence)
        table = self._tabulate(judgments, adherence)
        forked = no_records
        if self.recipe.fork and self.recipe.judge and judged and judgments is not None:
            _, print_ = fork_step(
                self.recipe.fork,
                self.recipe.judge,
                judged,
                models,
                self.recipe.judged_adherence,
            )
            with self.log.timed("fork"):
                forked = await self.pairing.fork(
                    self.recipe.fork, print_, table, judgments, executor
                )
        if self.recipe.natural.verification is not None:
            recipe = self.recipe
            _, print_ = natural_step(
                recipe.natural, recipe.judge, models.judge, recipe.judged_adherence
            )
            judge = judge_step(recipe.judge or RubricConfig(), models.judge)
            self.log.identities["natural"] = pair_identity(judge.identity)
            with self.log.timed("natural"):
                await self.pairing.verify_natural(print_, executor)
        self._finish(table, Scores(judgments, adherence), forked)

    async def _estimate(self, models: ModelFacts) -> None:
        """Foretell the run from the sample that ingestion drew, for the manifest of its end."""
        recipe, sample = self.recipe, self.sample
        share = last_fork_share(recipe, self.folder.path)
        pairs = None
        if recipe.natural.verification is not None:
            pairs = PairShare(len(self.pairing.natural.keys()) / max(1, sample.seen), "counted")
        try:
            self.log.estimate = await estimate(
                recipe,
                sample.kept,
                sample.seen,
                models,
                rates=self.rates,
                fork_share=share,
                pair_share=pairs,
            )
        except CurateError:
            raise
        except Exception as error:
            # The stages' own code runs here; where it fails, it is to fail one dialogue, not the run.
            self.log.warn(f"no estimate could be made: {type(error).__name__}: {error}")
        await self._tell_of_gaps(models)
        self.sample = Reservoir()

    def _kept(self) -> KeptRows:
        path = self.folder.path
        with readable(path / INDEX):
            dialogues = read_index(path).select("id", "content_hash").collect()
        return KeptRows.of(self.recipe, path, dialogues)

    async def _tell_of_gaps(self, models: ModelFacts) -> None:
        """Say which judgments `reuse` does not find, and how many calls follow, before any of them."""
        if self.recipe.reused_run is None:
            return
        kept, sample = self._kept(), self.sample
        gaps = reuse_gaps(self.recipe, models, kept, Reused.of(self.recipe.reused_run))
        left = None
        if gaps and self.log.estimate is not None:
            left = await estimate_left(self.recipe, sample.kept, sample.seen, models, kept)
        for said in told_of_gaps(self.recipe, gaps, left):
            self.log.warn(f"{said}.")
            self.notify(f"{said}.")

    def _write_manifest(self, status: Status) -> RunResult:
        manifest = self.log.manifest(status)
        self.folder.write_manifest(manifest.model_dump(mode="json"))
        return RunResult(self.folder.path, manifest)

    def _dialogues(self, wanted: pl.Series | None = None) -> Iterator[Dialogue]:
        return read_dialogues(self.folder.path, wanted)

    def _prepare_cleaning(self) -> None:
        """Read eval sets before any model is asked."""
        if self.recipe.select:
            self.pairing.cleaning = prepare_cleaning(self.recipe.select)
        for warning in self.cleaning.warnings if self.cleaning else ():
            self.log.warn(warning)

    def _ingest(self) -> None:
        recipe = self.recipe
        reports = read_sources(
            self.sources,
            self.folder.path,
            role=recipe.role,
            scenario=recipe.scenario,
            role_from=recipe.role_from,
            mix_seed=recipe.mix_seed,
            progress=lambda made: self.progress("ingest", made, made),
            see=self.sample.add,
        )
        self.log.sources.extend(reports)

    def _warn_about(self, models: ModelFacts) -> None:
        for warning in models.warnings:
            self.log.warn(warning)
        self.log.warn(trust_warning(models.judge.identity))
        if self.recipe.fork and models.judge.identity.key == models.policy.identity.key:
            self.log.warn(
                "Judge and policy are the same model: it judges its own writing, and favours it."
            )

    async def _score(
        self, name: ScoringStage, kind: type[S], step: Step[S | Unscored], executor: Runner
    ) -> StageRows[S | Unscored]:
        """Run a judging stage on every dialogue that has no row yet; equal dialogues share one."""
        self.log.warn(step.warning)
        self.log.fingerprints[name] = step.fingerprint
        self.log.identities[name] = step.identity
        rows = self._rows(name, step.fingerprint, kind)
        hashes = self._hashes()
        if self.recipe.reuse is not None:
            there = scored_rows(self.recipe.reuse.run, name, step.fingerprint, kind)
            self._adopt(rows, there, hashes)
        again = self._forget_unscored(name, rows) if self.retry_unscored else {}
        owed = hashes.is_first_distinct() & ~hashes.is_in(rows.done().implode())
        items = (
            WorkItem(
                name,
                dialogue,
                again=dialogue.content_hash in again,
                turns=again.get(dialogue.content_hash, frozenset()),
            )
            for dialogue in self._dialogues(owed)
        )
        await self.maker.make(name, rows, hashes, items, executor)
        return self._settled(name, kind, rows, step.calibrated)

    def _forget_unscored(
        self, name: ScoringStage, rows: StageRows[S | Unscored]
    ) -> dict[str, frozenset[int]]:
        """Owe again what is unscored: dialogues, and of dialogues that are scored the turns given for their key."""
        again = {
            key: frozenset() if isinstance(record, Unscored) else record.missing_turns
            for key, record in rows.read()
            if isinstance(record, Unscored) or record.missing_turns
        }
        rows.forget(again)
        if name == "judge":
            self.pairing.rejudged = frozenset(again)
        return again

    async def _compare(self, config: AdherenceConfig) -> StageRows[AdherenceScore | Unscored]:
        """Adherence by comparison with references; asks no model."""
        if config.scoring_method in EVALUATION_ONLY and self.recipe.filters_on_adherence:
            self.log.warn(
                f"adherence: {config.scoring_method} is for evaluation only, and this recipe filters on "
                "it: it does not tell adherent turns from others. Choose another scoring_method."
            )
        with self.log.timed("adherence"):
            store = self.folder.path / "embeddings.sqlite"
            step = reference_step(config, self._dialogues, store)
            executor = ComparingExecutor(step)
            return await self._score("adherence", AdherenceScore, step, executor)

    def _take_over(
        self,
        name: str,
        kind: type[S],
        bind: Callable[[JudgeIdentity, str], Calibrated[S | Unscored] | None] = lambda *_: None,
    ) -> StageRows[S | Unscored] | None:
        """The rows of another run, without asking anybody; None where it has none.

        `bind` gives what is made of rows by a judge with this identity and fingerprint.
        """
        run = self.recipe.reused_run
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
        self._adopt(rows, scored_rows(run, name, print_, kind), hashes)
        rows.compact(hashes)
        has_row = hashes.is_in(rows.done().implode())
        self.log.tally(name).reused = hashes.filter(has_row).n_unique()
        if missing := hashes.filter(~has_row).n_unique():
            self.log.warn(
                f"{missing} dialogues have no {name} row in {run}; they fail every filter."
            )
        calibrated = bind(manifest.identities[name].uncalibrated(), print_)
        return self._settled(name, kind, rows, calibrated)

    def _adopt(
        self, rows: StageRows[S | Unscored], there: StageRows[S | Unscored], hashes: pl.Series
    ) -> None:
        if there.damage_note:
            self.log.warn(f"{there.damage_note} Those rows are not taken over.")
        rows.adopt(there, hashes)

    def _settled(
        self,
        name: str,
        kind: type[S],
        rows: StageRows[S | Unscored],
        calibrated: Calibrated[S | Unscored] | None,
    ) -> StageRows[S | Unscored]:
        """A stage's rows as all that follows reads them, counted: calibrated, where they are."""
        hashes = self._hashes()
        if calibrated is not None:
            rows = calibrated_rows(self.folder.path, name, kind, rows, calibrated, hashes)
            self.log.fingerprints[name] = calibrated.fingerprint
            self.log.identities[name] = calibrated.identity
        if name == "judge" and self.recipe.judge:
            identity = self.log.identities[name]
            self.log.levels = describe_levels(self.recipe.judge.calibration, identity)
        self._count(name, rows, hashes)
        return rows

    def _rows(self, name: str, print_: str, kind: type[S]) -> StageRows[S | Unscored]:
        return scored_rows(self.folder.path, name, print_, kind)

    def _hashes(self) -> pl.Series:
        """The content hash of each of this run's dialogues, in order."""
        return read_index(self.folder.path).select("content_hash").collect().to_series()

    def _count(self, name: str, rows: StageRows[S | Unscored], hashes: pl.Series) -> None:
        adherence = AdherenceTally()
        turns = in_part = 0
        for key, record in rows.stored(hashes):
            said = orjson.loads(record)
            self.log.add_row(name, key, verdict=said.get("verdict"), reason=said.get("reason"))
            if name == "adherence" and "reason" not in said:
                adherence.add(said)
            missing = len(said.get("unscored_turns", ())) if name == "judge" else 0
            if name == "adherence":
                missing = sum(turn["score"] is None for turn in said.get("per_turn", ()))
            turns += missing
            in_part += missing > 0
        self.log.warn_about_data(name)
        if turns:
            self.log.warn(
                f"{name}: {turns} turns of {in_part} dialogues that have other scores could not be scored; "
                "--retry unscored asks for these turns again."
            )
        if name == "adherence":
            self.log.adherence = adherence.decay()
            for warning in adherence.warnings():
                self.log.warn(warning)

    def _tabulate(
        self,
        judgments: StageRows[Judgment | Unscored] | None,
        adherence: StageRows[AdherenceScore | Unscored] | None,
    ) -> pl.LazyFrame:
        """The score table, on disk."""
        with self.log.timed("table"):
            judge, role = self.recipe.judge, self.recipe.adherence
            fitted = judge.calibration if judge else None
            table = write_scores(
                self.folder.path,
                judgments,
                adherence,
                judged_share=judge.min_scored_share if judge else None,
                adherence_share=role.min_scored_share if role else None,
                good=None if fitted is None else fitted.good,
            )
            for stage, keys in mixed_identities(table).items():
                self.log.warn(
                    f"{stage} scores come from several judges and do not compare: {', '.join(keys)}."
                )
        return table

    def _finish(
        self,
        table: pl.LazyFrame,
        scores: Scores,
        forked: Records = no_records,
    ) -> None:
        """What follows from the scores and asks nobody."""
        with self.log.timed("select"):
            decided = self._select(table)
        with self.log.timed("pairs"):
            self.pairing.write(forked, decided)
        with self.log.timed("export"):
            self._export(table, decided, scores)

    def _select(self, table: pl.LazyFrame) -> pl.DataFrame | None:
        """What was decided, as `decide` gives it; None where the recipe leaves selection out."""
        config = self.recipe.select
        if not config:
            return None
        read = narrowed(table, questions(config))
        if self.cleaning is None:
            decided = decide(read, config)
        else:
            folder = self.folder.path / "select"
            make_folder(folder)
            with self.cleaning.open(self._dialogues, folder) as cleaner:
                decided = decide(read, config, cleaner)
        self.log.sets.update(write_selection(self.folder.path, decided))
        first, every = rejections(decided)
        self.log.rejections.update(first)
        self.log.rejection_reasons.update(every)
        if decided.height and not self.log.sets["sft"]:
            reasons = self.log.rejection_reasons.most_common(3)
            why = ", ".join(f"{name} {of:,}" for name, of in reasons)
            self.log.warn(f"No dialogue came into the SFT set; what most of them fail: {why}.")
        return decided

    def _export(self, table: pl.LazyFrame, decided: pl.DataFrame | None, scores: Scores) -> None:
        """Every trainer's folder."""
        if self.recipe.export:
            self.log.exports.update(
                export_run(self.folder.path, self.recipe.export, table, decided, scores)
            )
