"""What a run still owes: which rows of each stage are there already, in its folder or in the run it reuses.

An estimate of what is left (`estimate.estimate_left`) and the word about judgments that do not fit are made
from it. It can be handed to another process (`settled`), where the run folder may not be.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson
import polars as pl

from curate.engines.model_pool import ModelsByRole
from curate.errors import CurateError, UsageError
from curate.planning.estimate import AssumedShare, Owed, last_fork_share, last_pair_share
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
from curate.run.read_back import read_manifest
from curate.run.staging import stage_rows
from curate.selection.rules import matches
from curate.stages import Stage, bind_stages
from curate.storage.line_files import read_lines
from curate.wording import plural

_SHOWN = 60  # characters of a value in a message
_NO_KEYS = pl.Series("key", [], dtype=pl.String)


@dataclass(slots=True)
class KeptRows:
    """The rows that a run finds when it starts.

    Attributes:
        folder: the run folder; may be missing.
        dialogues: `id` and `content_hash` of each dialogue of the run, in order.
        fork_share, pair_share: of dialogues that no earlier run tells about.
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
        """The rows of a folder, with the shares that its last run tells.

        Args:
            natural: ids of the natural pairs to verify, where they have been found already.
        """
        shares = last_fork_share(recipe, folder), last_pair_share(folder)
        return cls(recipe, folder, dialogues, *shares, _natural=natural)

    @property
    def replies(self) -> Path | None:
        """The kept replies; None where there are none."""
        path = (self.folder / "replies.sqlite").absolute()
        return path if path.is_file() else None

    @property
    def is_empty(self) -> bool:
        """True where nothing is kept."""
        return self.replies is None and not any(self._folders())

    def settled(self) -> KeptRows:
        """This, with all of it read; it needs the folder no more."""
        for folder in self._folders():
            self.done(StageName(folder.parent.name), folder.name)
        self._forkable()
        self._natural_keys()
        return self

    def done(self, stage: StageName, fingerprint: str) -> pl.Series:
        """Keys of a stage's rows under a fingerprint, each once."""
        if (stage, fingerprint) not in self._done:
            reused = self.recipe.reused_run
            runs = [self.folder] if reused is None else [self.folder, reused]
            found = [
                stage_rows(run, stage, fingerprint).done()
                for run in runs
                if (run / stage / fingerprint).is_dir()
            ]
            self._done[stage, fingerprint] = pl.concat([_NO_KEYS, *found]).unique()
        return self._done[stage, fingerprint]

    def owed(self, stage: StageName, fingerprint: str) -> Owed:
        """What of a stage has no row yet; of the judge it is to be asked first."""
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
            known = hashes.is_in(scored.implode())
            known &= hashes.is_in(self.done(StageName.JUDGE, self._judge).implode())
            left = known & hashes.is_in(forkable.implode()) & ~hashes.is_in(done.implode())
            return Owed(int(left.sum()) + self.fork_share.value * int((~known).sum()), _NO_KEYS)
        if stage is StageName.PERSONA:
            wanted = self.recipe.judge.persona_check if self.recipe.judge else 0
            return Owed(max(0, min(wanted, len(hashes)) - len(done)), _NO_KEYS)
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
        """Content hashes that the last scores tell of, and of these the ones that give a fork."""
        if self._forks is None:
            self._forks = _NO_KEYS, _NO_KEYS
            if self.recipe.fork and (self.folder / SCORES).is_file():
                try:
                    table = read_scores(self.folder)
                except CurateError:
                    return self._forks  # the run makes it anew
                judged = table.filter(pl.col("verdict").is_not_null())
                admitted = [] if judged.is_empty() else [*matches(judged, self.recipe.fork.where)]
                tainted = _contaminated(self.folder)
                fine = [key for key in admitted if key not in tainted]
                self._forks = table["content_hash"], pl.Series("key", fine, dtype=pl.String)
        return self._forks

    def _natural_keys(self) -> pl.Series | None:
        """Ids of the natural pairs to verify; None where the folder does not hold these dialogues."""
        if self._natural is None and (self.folder / INDEX).is_file():
            try:
                there = read_index(self.folder, "id", "content_hash")
                if there.equals(self.dialogues):
                    select = self.recipe.select
                    cleaning = prepare_cleaning(select) if select else None
                    self._natural = natural_keys(self.folder, self.recipe.natural, cleaning)
            except CurateError:
                return None  # what is damaged is made anew
        return self._natural


def _contaminated(run: Path) -> set[str]:
    """Content hashes of dialogues that were not forked since they share text with an eval set."""
    path = pair_file(run, DROPPED_PAIRS)
    found = set()
    for line in read_lines(path) if path.is_file() else ():
        try:
            pair = orjson.loads(line)
            if pair["drop_reason"] == DropReason.CONTAMINATED:
                found.add(str(pair["content_hash"]))
        except (ValueError, KeyError, TypeError):
            continue  # damaged; the run writes the file anew
    return found


@dataclass(frozen=True, slots=True)
class Reused:
    """The run whose judgments are taken over, as it describes itself.

    Attributes:
        run: its folder.
        dialogues: `id` and `content_hash` of its dialogues; None where it does not tell.
    """

    run: Path
    manifest: Manifest
    dialogues: pl.DataFrame | None

    @classmethod
    def of(cls, run: Path) -> Reused:
        """Read a run folder; raises as `runs.read_manifest`."""
        manifest = read_manifest(run)
        if not (run / INDEX).is_file():
            return cls(run, manifest, None)
        return cls(run, manifest, read_index(run, "id", "content_hash"))

    def misfit(self, stage: Stage[Any], section: Mapping[str, Any], kept: KeptRows) -> str | None:
        """Why rows of a stage cannot be taken over, some or all; None where each dialogue has one."""
        missing = kept.owed(stage.name, stage.fingerprint).missing
        if missing.is_empty():
            return None
        whole = kept.dialogues["content_hash"].n_unique()
        there = self.manifest.fingerprints.get(stage.name)
        begin = f"reuse: {len(missing):,} of {plural(whole, 'dialogue')} find no {stage.name} row in {self.run}: "
        if there is None:
            return f"{begin}that run has no such stage"
        # A run with a calibration names the calibrated rows; the judge's own lie beside them.
        if there == stage.fingerprint or (self.run / stage.name / stage.fingerprint).is_dir():
            return begin + self._other_content(missing, kept.dialogues)
        return begin + "; ".join(self._differences(stage, section))

    def _other_content(self, missing: pl.Series, dialogues: pl.DataFrame) -> str:
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
        """What made the fingerprint another one, with both values."""
        theirs = self.manifest.identities.get(stage.name)
        is_calibrated = stage.name in (StageName.JUDGE, StageName.METRICS)
        if theirs is not None and is_calibrated:
            theirs = theirs.uncalibrated()
        found = False
        if theirs is not None:
            ours = stage.identity.model_dump(mode="json")
            for name, there in theirs.model_dump(mode="json").items():
                if there != ours[name]:
                    found = True
                    yield _pair(
                        f"judge {name}" if name != "prompt_version" else "prompts",
                        there,
                        ours[name],
                    )
        # How the mode was chosen is no difference: which one it came to is part of the identity.
        left_out = {"mode", "output_mode", "reference"} | (
            {"calibration", "persona_check", "jury"} if is_calibrated else set()
        )
        configured = self.manifest.recipe.get(stage.name)
        for name, there in configured.items() if isinstance(configured, dict) else ():
            if name not in left_out and there != section.get(name):
                found = True
                yield _pair(f"config {stage.name}.{name}", there, section.get(name))
        if not found:
            package = "curate-dialogues"
            there = self.manifest.versions.get(package)
            yield f"the code of the stage is another (that run: curate {there}), and made its rows otherwise"


def _pair(name: str, there: object, here: object) -> str:
    shown = [
        value if isinstance(value, str) else orjson.dumps(value).decode() for value in (there, here)
    ]
    if max(map(len, shown)) > _SHOWN:
        return f"{name} differs"
    return f"{name} is {shown[0]} there, {shown[1]} here"


def reuse_gaps(
    recipe: Recipe, models: ModelsByRole, kept: KeptRows, reused: Reused | None
) -> list[str]:
    """Which judgments a run does not find in the one it reuses, a sentence a stage, where a judge is at hand."""
    if reused is None:
        return []
    sections = (recipe.judge, recipe.judged_adherence, recipe.metrics, recipe.factuality)
    stages = {stage.name: stage for stage in bind_stages(recipe, models)}
    gaps = (
        reused.misfit(stages[name], section.model_dump(mode="json"), kept)
        for name, section in zip(SCORING, sections, strict=True)
        if section
    )
    return [text for text in gaps if text is not None]


def taken_over_gaps(recipe: Recipe, kept: KeptRows, reused: Reused | None) -> list[str]:
    """The same where no judge is at hand, and rows are taken as they are."""
    found = []
    sections = (recipe.judge, recipe.judged_adherence, recipe.metrics, recipe.factuality)
    for stage, section in zip(SCORING, sections, strict=True):
        if reused is None or not section:
            continue
        there = reused.manifest.fingerprints.get(stage)
        if there is None:
            found.append(f"reuse: {reused.run} has no {stage} rows to take over")
        elif missing := len(kept.owed(stage, there).missing):
            found.append(
                f"reuse: {plural(missing, 'dialogue')} without a {stage} row in {reused.run}"
            )
    return found


def gap_warnings(recipe: Recipe, gaps: list[str], left: Estimate | None) -> list[str]:
    """The gaps and what follows from them, to be said before any call.

    Raises:
        UsageError: there are some, and the recipe has `reuse.required`.
    """
    if not gaps:
        return []
    calls = None
    if left is not None:
        judged = [left.stages[name] for name in SCORING if name in left.stages]
        calls = sum(stage.requests for stage in judged)
    if recipe.reuse is not None and recipe.reuse.required:
        asked = "" if calls is None else f" (about {plural(calls, 'call')})"
        raise UsageError(
            "the judgments that `reuse.required` asks for are not there",
            got="\n    ".join(gaps),
            expected="a row for each dialogue, in each stage",
            fix="have recipe and dialogues be those of that run; or leave out `required: true`"
            + (f", and what is missing is asked for{asked}" if asked else ""),
        )
    return (
        gaps
        if calls is None
        else [*gaps, f"reuse: about {plural(calls, 'call')} follow to judge them"]
    )
