"""Counts of the rows, dialogues and pairs of a run at each step, as sums that must add up.

Each step is a whole and its parts by reason. A step that does not add up is an error, so no card hides rows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType

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
    left_out: Mapping[str, Counter[str]] = MappingProxyType({}),
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
    pushed: Counter[tuple[str, str]] = Counter()
    for file in files:
        pushed[file.config, file.split] += file.rows
    exports = [counts for name, counts in manifest.exports.items() if _is_trainers(name)]
    steps = [
        _step(
            "rows in",
            manifest.rows_in,
            {"used": manifest.rows_used},
            _prefixed("quarantined", _reasons(manifest)),
        ),
        _step(
            "dialogues read",
            manifest.dialogues + manifest.not_sampled,
            {"in the run": tally.dialogues},
            {"left out to keep to the sources' weights": manifest.not_sampled},
        ),
    ]
    steps += _scoring_steps(manifest, tally)
    steps += _selection_steps(manifest, tally, exports, pushed, left_out)
    steps += _pair_steps(run, manifest, exports, pushed, left_out)
    for step in steps:
        if not step.adds_up:
            raise CurateError(
                f"the figures of the run do not add up: {step.name}",
                got=" + ".join(f"{number} {name}" for name, number in step.parts.items()),
                expected=step.whole,
                fix="run the recipe again, and push when it is done: the folder holds files of another run",
            )
    return steps


def _scoring_steps(manifest: Manifest, tally: DialogueCounts) -> list[FunnelStep]:
    steps = []
    for stage, title in (
        (StageName.JUDGE, "judged"),
        (StageName.ADHERENCE, "scored for adherence"),
        (StageName.METRICS, "scored by metrics"),
        (StageName.FACTUALITY, "with their claims checked"),
    ):
        if stage in manifest.fingerprints:
            unscored = _prefixed("unscored", tally.unscored.get(stage, {}))
            steps.append(
                _step(
                    f"dialogues, {title}", tally.dialogues, {title: tally.scored[stage]}, unscored
                )
            )
    return steps


def _selection_steps(
    manifest: Manifest,
    tally: DialogueCounts,
    exports: list[dict[str, int]],
    pushed: Counter[tuple[str, str]],
    left_out: Mapping[str, Counter[str]],
) -> list[FunnelStep]:
    if not manifest.recipe.get("select"):
        return []
    rejected = _prefixed("rejected", tally.rejections)
    selected = {"selected": tally.sets["sft"]}
    step = _step("dialogues, selection", tally.dialogues, selected, rejected)
    steps = [replace(step, note=_all_reasons(tally))]
    if any("sft" in counts for counts in exports):
        steps.append(
            _step(
                "selected",
                tally.sets["sft"],
                {f"sft, {split}": pushed["sft", split] for split in ("train", "validation")},
                _not_carried(exports, "sft"),
                _left_out(left_out, "sft"),
            )
        )
    return steps


def _all_reasons(tally: DialogueCounts) -> str:
    """Return a note: the sum counts each dialogue under its first reason; and the counts under all reasons."""
    if not tally.reasons:
        return ""
    counts = ", ".join(f"{name} {number:,}" for name, number in sorted(tally.reasons.items()))
    return f"rejected by the first reason of each; with each reason at all: {counts}"


def _pair_steps(
    run: Path,
    manifest: Manifest,
    exports: list[dict[str, int]],
    pushed: Counter[tuple[str, str]],
    left_out: Mapping[str, Counter[str]],
) -> list[FunnelStep]:
    from_forks, from_data = _dropped(run)
    carried = {
        f"{config}, {split}": pushed[config, split]
        for config in ("dpo", "dpo_natural")
        for split in ("train", "validation")
    }
    steps = [
        _step(
            f"{kind}: {stage.name} ({stage.unit})",
            stage.entered,
            {"passed": stage.passed},
            _prefixed("dropped", stage.dropped),
        )
        for kind, stages in manifest.funnels.items()
        for stage in stages
        if stage.entered
    ]
    if manifest.recipe.get("fork"):
        steps.append(
            _step(
                "candidates of forks",
                manifest.pairs + from_forks.total(),
                {"pairs": manifest.pairs},
                _prefixed("dropped", from_forks),
            )
        )
    steps += [
        _step(
            "candidates in the data",
            manifest.natural_pairs + from_data.total(),
            {"natural pairs": manifest.natural_pairs},
            _prefixed("dropped", from_data),
        ),
        _step(
            "dropped pairs", manifest.dropped, {"of both": from_forks.total() + from_data.total()}
        ),
    ]
    if any({"dpo", "dpo_natural"} & counts.keys() for counts in exports):
        whole = manifest.pairs + manifest.natural_pairs
        not_carried = _not_carried(exports, "dpo", "dpo_natural")
        left = _left_out(left_out, "dpo", "dpo_natural")
        steps.append(_step("pairs and natural pairs", whole, carried, not_carried, left))
    return [step for step in steps if step.whole]


def _dropped(run: Path) -> tuple[Counter[str], Counter[str]]:
    """Return dropped pairs by reason: those made in forks, and those of the data."""
    from_forks: Counter[str] = Counter()
    from_data: Counter[str] = Counter()
    path = run / "pairs" / "dropped_pairs.jsonl"
    for pair in read_records(path, PreferencePair.model_validate_json) if path.is_file() else ():
        (from_forks if pair.basis == "judge" else from_data)[str(pair.drop_reason)] += 1
    return from_forks, from_data


def _is_trainers(name: str) -> bool:
    return name.partition("/")[0] == TRAINER


def _not_carried(exports: list[dict[str, int]], *files: str) -> dict[str, int]:
    """Return the rows that the trainer's format cannot hold, by reason."""
    total: Counter[str] = Counter()
    for counts in exports:
        for name, reasons in refusals(counts).items():
            if name in files:
                total.update(reasons)
    return _prefixed("not carried", total)


def _left_out(left_out: Mapping[str, Counter[str]], *configs: str) -> dict[str, int]:
    total = sum((left_out.get(config, Counter()) for config in configs), Counter[str]())
    return _prefixed("left out of the push", total)


def _reasons(manifest: Manifest) -> Counter[str]:
    total: Counter[str] = Counter()
    for source in manifest.sources:
        total.update(source.get("reasons", {}))
    return total


def _prefixed(prefix: str, reasons: Mapping[str, int]) -> dict[str, int]:
    return {f"{prefix}: {name}": number for name, number in sorted(reasons.items())}


def _step(name: str, whole: int, *parts: Mapping[str, int]) -> FunnelStep:
    together = {key: number for part in parts for key, number in part.items()}
    first = next(iter(together))
    return FunnelStep(name, whole, {key: n for key, n in together.items() if n or key == first})
