"""The rows of each stage that a run already has, in its folder or in the run it reuses, and how many are still to make.

The estimate of the rest of a run (`estimate.estimate_left`) and the warnings about judgments that cannot be reused are made
from it. After `settled` it can be passed to another process that has no access to the run folder.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import orjson
import polars as pl

from curate.engines.model_pool import ModelsByRole
from curate.errors import CurateError, UsageError
from curate.planning.estimate import FORK_SHARE, PAIR_SHARE, AssumedShare, Owed
from curate.recipe import Recipe
from curate.records import (
    SCORING,
    DropReason,
    Estimate,
    Manifest,
    StageName,
)
from curate.run.cleaning_inputs import prepare_cleaning
from curate.run.ingest import INDEX, read_index
from curate.run.natural_pairs import natural_keys
from curate.run.outputs import DROPPED_PAIRS, SCORES, pair_file, read_scores
from curate.run.read_back import last_manifest, read_manifest
from curate.run.staging import stage_rows
from curate.selection.rules import matches
from curate.stages import Stage, bind_stages
from curate.storage.line_files import read_lines
from curate.storage.run_folder import REPLIES
from curate.wording import plural

_SHOWN = 60  # characters of a value in a message
_NO_KEYS = pl.Series("key", [], dtype=pl.String)


@dataclass(slots=True)
class KeptRows:
    """The rows that a run finds when it starts.

    Attributes:
        folder: the run folder; may be missing.
        dialogues: `id` and `content_hash` of each dialogue of the run, in order.
        fork_share, pair_share: assumed for dialogues that no earlier run tells about.
    """

    recipe: Recipe
    folder: Path
    dialogues: pl.DataFrame
    fork_share: AssumedShare
    pair_share: AssumedShare
    _done: dict[tuple[StageName, str], pl.Series] = field(default_factory=dict)
    _forks: tuple[pl.Series, pl.Series] | None = None
    _natural: pl.Series | None = None
    _judge: str = ""

    @classmethod
    def of(
        cls,
        recipe: Recipe,
        folder: Path,
        dialogues: pl.DataFrame,
        natural: pl.Series | None = None,
    ) -> KeptRows:
        """Return the rows of a folder, with the shares of its last run.

        Args:
            recipe, folder, dialogues: as the attributes.
            natural: ids of the natural pairs to verify, where they are known already.
        """
        shares = last_fork_share(recipe, folder), last_pair_share(folder)
        return cls(recipe, folder, dialogues, *shares, _natural=natural)

    @property
    def replies(self) -> Path | None:
        """The kept replies; None where there are none."""
        path = (self.folder / REPLIES).absolute()
        return path if path.is_file() else None

    @property
    def is_empty(self) -> bool:
        """Whether nothing is kept."""
        return self.replies is None and not any(self._folders())

    def settled(self) -> KeptRows:
        """Read everything that is in the folder, and return self, which does not need the folder any more."""
        for folder in self._folders():
            self.done(StageName(folder.parent.name), folder.name)
        self._forkable()
        self._natural_keys()
        return self

    def done(self, stage: StageName, fingerprint: str) -> pl.Series:
        """Return the keys of a stage's rows under a fingerprint, each once."""
        if (stage, fingerprint) not in self._done:
            reused = self.recipe.reused_run
            runs = [self.folder] if reused is None else [self.folder, reused]
            keys = [
                stage_rows(run, stage, fingerprint).done()
                for run in runs
                if (run / stage / fingerprint).is_dir()
            ]
            self._done[stage, fingerprint] = pl.concat([_NO_KEYS, *keys]).unique()
        return self._done[stage, fingerprint]

    def owed(self, stage: StageName, fingerprint: str) -> Owed:
        """Return what of a stage has no row yet. Ask about the judge before the forks, which depend on its rows."""
        done = self.done(stage, fingerprint)
        hashes = self.dialogues["content_hash"].unique()
        if stage is StageName.NATURAL:
            keys = self._natural_keys()
            if keys is not None:
                return Owed(keys.filter(~keys.is_in(done.implode())).n_unique(), _NO_KEYS)
            count = self.pair_share.value * self.dialogues.height - len(done)
            return Owed(max(0.0, count), _NO_KEYS)
        if stage is StageName.FORK:
            scored, forkable = self._forkable()
            is_judged = hashes.is_in(scored.implode())
            is_judged &= hashes.is_in(self.done(StageName.JUDGE, self._judge).implode())
            to_fork = is_judged & hashes.is_in(forkable.implode()) & ~hashes.is_in(done.implode())
            assumed = self.fork_share.value * int((~is_judged).sum())
            return Owed(int(to_fork.sum()) + assumed, _NO_KEYS)
        if stage is StageName.PERSONA:
            size = self.recipe.judge.persona_check if self.recipe.judge else 0
            return Owed(max(0, min(size, len(hashes)) - len(done)), _NO_KEYS)
        if stage is StageName.JUDGE:
            self._judge = fingerprint
        missing = hashes.filter(~hashes.is_in(done.implode()))
        return Owed(len(missing), missing)

    def _folders(self) -> Iterator[Path]:
        reused = self.recipe.reused_run
        for stage in StageName:
            yield from filter(Path.is_dir, (self.folder / stage).glob("*"))
            if reused is not None and stage in SCORING:
                yield from filter(Path.is_dir, (reused / stage).glob("*"))

    def _forkable(self) -> tuple[pl.Series, pl.Series]:
        """Return the content hashes of the last score table, and those of them that give a fork."""
        if self._forks is None:
            self._forks = _NO_KEYS, _NO_KEYS
            if self.recipe.fork and (self.folder / SCORES).is_file():
                try:
                    table = read_scores(self.folder)
                except CurateError:
                    return self._forks  # the run makes it again
                judged = table.filter(pl.col("verdict").is_not_null())
                admitted = [] if judged.is_empty() else [*matches(judged, self.recipe.fork.where)]
                tainted = _contaminated(self.folder)
                clean = [key for key in admitted if key not in tainted]
                self._forks = table["content_hash"], pl.Series("key", clean, dtype=pl.String)
        return self._forks

    def _natural_keys(self) -> pl.Series | None:
        """Return the ids of the natural pairs to verify; None where the folder does not have these dialogues."""
        if self._natural is None and (self.folder / INDEX).is_file():
            try:
                in_folder = read_index(self.folder, "id", "content_hash")
                if in_folder.equals(self.dialogues):
                    select = self.recipe.select
                    cleaning = prepare_cleaning(select) if select else None
                    self._natural = natural_keys(self.folder, self.recipe.natural, cleaning)
            except CurateError:
                return None  # the run makes damaged files again
        return self._natural


def _contaminated(run: Path) -> set[str]:
    """Return the content hashes of dialogues that were not forked because they share text with an eval set."""
    path = pair_file(run, DROPPED_PAIRS)
    hashes = set()
    for line in read_lines(path) if path.is_file() else ():
        try:
            pair = orjson.loads(line)
            if pair["drop_reason"] == DropReason.CONTAMINATED:
                hashes.add(str(pair["content_hash"]))
        except (ValueError, KeyError, TypeError):
            continue  # damaged; the run writes the file again
    return hashes


@dataclass(frozen=True, slots=True)
class Reused:
    """The run whose judgments are taken over.

    Attributes:
        run: its folder.
        manifest: its manifest.
        dialogues: `id` and `content_hash` of its dialogues; None where the folder has no index.
    """

    run: Path
    manifest: Manifest
    dialogues: pl.DataFrame | None

    @classmethod
    def of(cls, run: Path) -> Reused:
        """Read a run folder.

        Raises:
            UsageError, CurateError: as `read_back.read_manifest`.
        """
        manifest = read_manifest(run)
        if not (run / INDEX).is_file():
            return cls(run, manifest, None)
        return cls(run, manifest, read_index(run, "id", "content_hash"))

    def gap(self, stage: Stage[Any], section: Mapping[str, Any], kept_rows: KeptRows) -> str | None:
        """Return why some or all rows of a stage cannot be taken over; None where each dialogue has one.

        Args:
            stage: as the recipe binds it.
            section: the recipe's section of the stage.
            kept_rows: the rows that there are.
        """
        missing = kept_rows.owed(stage.name, stage.fingerprint).missing
        if missing.is_empty():
            return None
        total = kept_rows.dialogues["content_hash"].n_unique()
        fingerprint = self.manifest.fingerprints.get(stage.name)
        begin = f"reuse: {len(missing):,} of {plural(total, 'dialogue')} have no {stage.name} row in {self.run}: "
        if fingerprint is None:
            return f"{begin}that run has no such stage"
        # A run with a calibration names the calibrated rows; the judge's own rows are in the folder beside theirs.
        if fingerprint == stage.fingerprint or (self.run / stage.name / stage.fingerprint).is_dir():
            return begin + self._other_content(missing, kept_rows.dialogues)
        return begin + "; ".join(self._differences(stage, section))

    def _other_content(self, missing: pl.Series, dialogues: pl.DataFrame) -> str:
        """Return in words how the dialogues without a row differ from those of this run."""
        ours = dialogues.filter(pl.col("content_hash").is_in(missing.implode()))
        if self.dialogues is not None:
            both = ours.join(self.dialogues, on="id", suffix="_there").unique(
                "id", keep="first", maintain_order=True
            )
            both = both.filter(pl.col("content_hash") != pl.col("content_hash_there"))
            if not both.is_empty():
                name, here, there = both.row(0)
                others = ours["content_hash"].n_unique() - both["content_hash"].n_unique()
                more = f"; {others:,} are not in that run" if others > 0 else ""
                return (
                    f"{both.height:,} differ in content (messages, role or scenario) from the dialogue of the same "
                    f"id, as {name!r}: {there[:8]} there, {here[:8]} here{more}"
                )
        return f"they are not in that run, as {ours['id'][0]!r}"

    def _differences(self, stage: Stage[Any], section: Mapping[str, Any]) -> Iterator[str]:
        """Yield what made the fingerprint another one, with both values."""
        theirs = self.manifest.identities.get(stage.name)
        is_calibrated = stage.name in (StageName.JUDGE, StageName.METRICS)
        if theirs is not None and is_calibrated:
            theirs = theirs.uncalibrated()
        is_explained = False
        if theirs is not None:
            ours = stage.identity.model_dump(mode="json")
            for name, there in theirs.model_dump(mode="json").items():
                if there != ours[name]:
                    is_explained = True
                    yield _pair(
                        f"judge {name}" if name != "prompt_version" else "prompts",
                        there,
                        ours[name],
                    )
        # How the mode was chosen makes no difference: the mode that was used is part of the identity.
        ignored = {"mode", "output_mode", "reference"} | (
            {"calibration", "persona_check", "jury"} if is_calibrated else set()
        )
        configured = self.manifest.recipe.get(stage.name)
        for name, there in configured.items() if isinstance(configured, dict) else ():
            if name not in ignored and there != section.get(name):
                is_explained = True
                yield _pair(f"config {stage.name}.{name}", there, section.get(name))
        if not is_explained:
            version = self.manifest.versions.get("curate-dialogues")
            yield f"the code of the stage differs (that run: curate {version})"


def _pair(name: str, there: object, here: object) -> str:
    texts = [
        value if isinstance(value, str) else orjson.dumps(value).decode() for value in (there, here)
    ]
    if max(map(len, texts)) > _SHOWN:
        return f"{name} differs"
    return f"{name} is {texts[0]} there, {texts[1]} here"


def reuse_gaps(
    recipe: Recipe, models: ModelsByRole, kept_rows: KeptRows, reused: Reused | None
) -> list[str]:
    """Return a sentence for each stage whose rows a run does not find in the one it reuses, where it has a judge."""
    if reused is None:
        return []
    stages = {stage.name: stage for stage in bind_stages(recipe, models)}
    gaps = (
        reused.gap(stages[name], section.model_dump(mode="json"), kept_rows)
        for name, section in recipe.scoring_sections.items()
    )
    return [gap for gap in gaps if gap is not None]


def taken_over_gaps(recipe: Recipe, kept_rows: KeptRows, reused: Reused | None) -> list[str]:
    """Return the same sentences where the run has no judge, and takes the rows as they are."""
    if reused is None:
        return []
    gaps = []
    for stage in recipe.scoring_sections:
        fingerprint = reused.manifest.fingerprints.get(stage)
        if fingerprint is None:
            gaps.append(f"reuse: {reused.run} has no {stage} rows to take over")
        elif missing := len(kept_rows.owed(stage, fingerprint).missing):
            gaps.append(
                f"reuse: {plural(missing, 'dialogue')} without a row of stage {stage} in {reused.run}"
            )
    return gaps


def gap_warnings(recipe: Recipe, gaps: list[str], left: Estimate | None) -> list[str]:
    """Return the gaps and how many calls follow from them, to print before any call.

    Args:
        recipe: the recipe of the run.
        gaps: as `reuse_gaps` or `taken_over_gaps` gives them.
        left: the estimate of the rest of the run; None where there is none.

    Raises:
        UsageError: there are gaps, and the recipe has `reuse.required`.
    """
    if not gaps:
        return []
    calls = None
    if left is not None:
        calls = sum(left.stages[name].requests for name in SCORING if name in left.stages)
    if recipe.reuse is not None and recipe.reuse.required:
        about = "" if calls is None else f" (about {plural(calls, 'call')})"
        raise UsageError(
            "judgments that `reuse.required` asks for are missing",
            got="\n    ".join(gaps),
            expected="a row for each dialogue, in each stage",
            fix="use the recipe and the dialogues of that run; or leave out `required: true`"
            + (f", and the missing judgments are made{about}" if about else ""),
        )
    return (
        gaps
        if calls is None
        else [*gaps, f"reuse: about {plural(calls, 'call')} follow to judge them"]
    )


def last_pair_share(folder: Path) -> AssumedShare:
    """Return the share of natural pairs that the last run of a folder verified."""
    manifest = last_manifest(folder)
    natural = None if manifest is None else manifest.stages.get(StageName.NATURAL)
    if manifest is None or natural is None or not manifest.dialogues:
        return PAIR_SHARE
    return AssumedShare(natural.rows / manifest.dialogues, f"as in the last run of {folder}")


def last_fork_share(recipe: Recipe, folder: Path) -> AssumedShare:
    """Return the share of dialogues that `fork.where` admits in the scores of an earlier run in the folder."""
    if not recipe.fork or not (folder / SCORES).is_file():
        return FORK_SHARE
    try:
        table = read_scores(folder)
    except CurateError:
        source = f"assumed; {folder / SCORES} is damaged; a run rebuilds it"
        return replace(FORK_SHARE, source=source)
    if not len(table):
        return FORK_SHARE
    admitted = matches(table, recipe.fork.where)
    share = table["content_hash"].is_in(list(admitted)).mean()
    return AssumedShare(float(share), f"as in the last scores of {folder}")  # type: ignore[arg-type]
