"""Counts of the rows, dialogues and pairs of a run at each step, as sums that must add up.

Each step is a whole and its parts by reason. A step that does not add up is an error, so no card hides rows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from curate.errors import CurateError
from curate.export.counts import refusals
from curate.publishing.judgments import DialogueCounts
from curate.publishing.published_tables import TRAINER, PublishedFile
from curate.records import Manifest, PreferencePair, StageName
from curate.storage.line_files import read_records


@dataclass(frozen=True, slots=True)
class FunnelStep:
    """A whole and its parts; parts of 0 are left out.

    Attributes:
        name: name of the step.
        whole: number of rows, dialogues or pairs that enter it.
        parts: number in each part.
        note: words after the sum.
    """

    name: str
    whole: int
    parts: dict[str, int]
    note: str = ""

    @property
    def sum(self) -> str:
        """The parts as a sum, and the note."""
        parts = " + ".join(f"{number:,} {name}" for name, number in self.parts.items())
        return f"{parts}; {self.note}" if self.note else parts

    @property
    def adds_up(self) -> bool:
        """True if the parts add up to the whole."""
        return self.whole == sum(self.parts.values())


def make_funnel(
    run: Path,
    manifest: Manifest,
    tally: DialogueCounts,
    files: Iterable[PublishedFile],
    left_out: Mapping[str, Counter[str]],
) -> list[FunnelStep]:
    """Return the steps of a run, from its sources to the pushed rows.

    Args:
        run: the run folder.
        manifest: the run's manifest.
        tally: counts of the judgments.
        files: the pushed tables.
        left_out: rows left out of the push, by config and kind of finding.

    Raises:
        CurateError: a step does not add up, so the folder holds files of different runs.
    """
    funnel = _Funnel(manifest, tally, files, left_out)
    funnel.add_sources()
    funnel.add_scoring()
    funnel.add_selection()
    funnel.add_pairs(*_dropped(run))
    return funnel.steps


class _Funnel:
    """The steps of a run so far, and the counts that they are made of."""

    def __init__(
        self,
        manifest: Manifest,
        tally: DialogueCounts,
        files: Iterable[PublishedFile],
        left_out: Mapping[str, Counter[str]],
    ) -> None:
        self.manifest = manifest
        self.tally = tally
        self.left_out = left_out
        self.pushed: Counter[str] = Counter()
        for file in files:
            self.pushed[f"{file.config}, {file.split}"] += file.rows
        self.exports = [
            counts
            for name, counts in manifest.exports.items()
            if name.partition("/")[0] == TRAINER  # or its validation folder
        ]
        self.steps: list[FunnelStep] = []

    def add(self, name: str, whole: int, *parts: Mapping[str, int], note: str = "") -> None:
        """Add a step; parts of 0 are left out, but for the first."""
        together = {key: number for part in parts for key, number in part.items()}
        first = next(iter(together))
        shown = {key: number for key, number in together.items() if number or key == first}
        step = FunnelStep(name, whole, shown, note)
        if not step.adds_up:
            raise CurateError(
                f"the figures of the run do not add up: {name}",
                got=" + ".join(f"{number} {part}" for part, number in shown.items()),
                expected=whole,
                fix="run the recipe again, and push when it is done: the folder holds files of another run",
            )
        self.steps.append(step)

    def add_sources(self) -> None:
        """Add the rows of the sources, and the dialogues read from them."""
        manifest = self.manifest
        reasons: Counter[str] = Counter()
        for source in manifest.sources:
            reasons.update(source.get("reasons", {}))
        used, quarantined = {"used": manifest.rows_used}, _prefixed("quarantined", reasons)
        self.add("rows in", manifest.rows_in, used, quarantined)
        parts = {
            "in the run": self.tally.dialogues,
            "left out to keep to the sources' weights": manifest.not_sampled,
        }
        self.add("dialogues read", manifest.dialogues + manifest.not_sampled, parts)

    def add_scoring(self) -> None:
        """Add the dialogues that each stage scored."""
        for stage, title in (
            (StageName.JUDGE, "judged"),
            (StageName.ADHERENCE, "scored for adherence"),
            (StageName.METRICS, "scored by metrics"),
            (StageName.FACTUALITY, "with their claims checked"),
        ):
            if stage in self.manifest.fingerprints:
                scored = {title: self.tally.scored[stage]}
                unscored = _prefixed("unscored", self.tally.unscored.get(stage, {}))
                self.add(f"dialogues, {title}", self.tally.dialogues, scored, unscored)

    def add_selection(self) -> None:
        """Add the selected dialogues, and those of them that are pushed."""
        if not self.manifest.recipe.get("select"):
            return
        tally, selected = self.tally, self.tally.sets["sft"]
        note = ""
        if tally.reasons:
            reasons = sorted(tally.reasons.items())
            counts = ", ".join(f"{name} {number:,}" for name, number in reasons)
            note = f"rejected by the first reason of each; with each reason at all: {counts}"
        rejected = _prefixed("rejected", tally.rejections)
        self.add(
            "dialogues, selection", tally.dialogues, {"selected": selected}, rejected, note=note
        )
        self._add_pushed("selected", selected, "sft")

    def add_pairs(self, from_forks: Counter[str], from_data: Counter[str]) -> None:
        """Add the candidates of pairs with those dropped, and the pairs that are pushed; no step without any."""
        manifest = self.manifest
        for kind, stages in manifest.funnels.items():
            for stage in stages:
                if stage.entered:
                    name = f"{kind}: {stage.name} ({stage.unit})"
                    losses = _prefixed("dropped", stage.dropped)
                    self.add(name, stage.entered, {"passed": stage.passed}, losses)
        origins = [("candidates in the data", {"natural pairs": manifest.natural_pairs}, from_data)]
        if manifest.recipe.get("fork"):
            origins.insert(0, ("candidates of forks", {"pairs": manifest.pairs}, from_forks))
        for name, pairs, dropped in origins:
            if whole := sum(pairs.values()) + dropped.total():
                self.add(name, whole, pairs, _prefixed("dropped", dropped))
        if manifest.dropped:
            both = {"of both": from_forks.total() + from_data.total()}
            self.add("dropped pairs", manifest.dropped, both)
        if count := manifest.pairs + manifest.natural_pairs:
            self._add_pushed("pairs and natural pairs", count, "dpo", "dpo_natural")

    def _add_pushed(self, name: str, whole: int, *configs: str) -> None:
        """Add the rows of these configs, if they were exported: those pushed, those that the trainer's format cannot
        hold, and those left out."""
        if not any({*configs} & counts.keys() for counts in self.exports):
            return
        pushed = {
            place: self.pushed[place]
            for config in configs
            for place in (f"{config}, train", f"{config}, validation")
        }
        refused, left_out = Counter[str](), Counter[str]()
        for config in configs:
            left_out.update(self.left_out.get(config, {}))
            for counts in self.exports:
                refused.update(refusals(counts).get(config, {}))
        not_carried = _prefixed("not carried", refused)
        self.add(name, whole, pushed, not_carried, _prefixed("left out of the push", left_out))


def _dropped(run: Path) -> tuple[Counter[str], Counter[str]]:
    """Return dropped pairs by reason: those made in forks, and those of the data."""
    from_forks: Counter[str] = Counter()
    from_data: Counter[str] = Counter()
    path = run / "pairs" / "dropped_pairs.jsonl"
    for pair in read_records(path, PreferencePair.model_validate_json) if path.is_file() else ():
        (from_forks if pair.basis == "judge" else from_data)[str(pair.drop_reason)] += 1
    return from_forks, from_data


def _prefixed(prefix: str, reasons: Mapping[str, int]) -> dict[str, int]:
    return {f"{prefix}: {name}": number for name, number in sorted(reasons.items())}
