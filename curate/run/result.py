"""The result of a run: its folder, its manifest, its rows as datasets and frames; shown as HTML in a notebook."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Self

import polars as pl
from markupsafe import Markup

from curate.errors import UsageError
from curate.notebook import badge, bars, cell, element, histogram
from curate.records import VERDICTS, Manifest
from curate.run import exit_codes
from curate.run.outputs import SCORES, read_scores
from curate.run.read_back import JudgedDialogue, read_judged, read_manifest
from curate.run.report_figures import funnel_steps
from curate.run.trust_reports import trust_sentences
from curate.wording import plural

if TYPE_CHECKING:
    from datasets import Dataset

RowSet = Literal["sft", "dpo", "dpo_natural", "reward", "kto", "kto_natural"]
_TRAINER = "trl"
_SHOWN = (
    "mean_helpfulness",
    "mean_context_use",
    "mean_safety",
    "coherence",
    "task_completion",
    "adherence",
    "overall_score",
    "factual_precision",
)


@dataclass(frozen=True, slots=True)
class RunResult:
    """The result of a run."""

    folder: Path
    manifest: Manifest

    @classmethod
    def of(cls, folder: str | Path) -> Self:
        """Return the result of an earlier run.

        Raises:
            UsageError: the folder is no run.
            CurateError: its manifest is damaged.
        """
        return cls(Path(folder), read_manifest(Path(folder)))

    @property
    def exit_code(self) -> int:
        """0 done, 1 failed or stopped, 3 more unscored than allowed."""
        return exit_codes.of_run(self.manifest.status)

    @property
    def sft(self) -> Dataset:
        """The dialogues to train on, as TRL takes them; see `rows`."""
        return self.rows("sft")

    @property
    def pairs(self) -> Dataset:
        """The forked pairs that passed, as TRL takes them; natural pairs are `rows("dpo_natural")`."""
        return self.rows("dpo")

    @property
    def scores(self) -> pl.DataFrame:
        """The score table, a row a dialogue.

        Raises:
            UsageError: the run has none yet.
        """
        return read_scores(self.folder)

    def rows(self, name: RowSet, split: Literal["train", "validation"] = "train") -> Dataset:
        """Return an export for TRL as a dataset, read from the run folder.

        Args:
            name: the file of the export.
            split: `validation` where the recipe divides what it exports.

        Raises:
            UsageError: the run has no such export.
        """
        from datasets import Dataset

        folder = self.folder / "export" / _TRAINER
        path = (folder if split == "train" else folder / split) / f"{name}.parquet"
        if not path.is_file():
            raise UsageError(
                "the run has no such export",
                got=path,
                expected="`trl` among export.trainers and `parquet` among export.formats"
                + (", and select.split" if split != "train" else ""),
                fix="add it to the recipe and run it again: existing rows need no model calls",
            )
        table = pl.scan_parquet(path)
        if table.select(pl.len()).collect().item() == 0:  # from_parquet finds no split in it
            return Dataset.from_polars(table.collect())
        return Dataset.from_parquet(str(path))

    def dialogue(self, dialogue_id: str) -> JudgedDialogue:
        """Return a dialogue with its records.

        Raises:
            UsageError: the run has no such dialogue.
        """
        return read_judged(self.folder, dialogue_id)

    def _repr_html_(self) -> str:
        manifest = self.manifest
        parts = [
            element("h3", f"{manifest.name} ", badge(manifest.status)),
            element(
                "p", f"{plural(manifest.dialogues, 'dialogue')} in {self.folder}", class_="note"
            ),
            *(element("p", warning, class_="warning") for warning in manifest.warnings),
        ]
        if (self.folder / SCORES).is_file():
            parts += self._figures()
        trust = (
            element("div", element("dt", kind.replace("_", " ")), element("dd", sentence))
            for kind, sentence in trust_sentences(self.folder, manifest.fingerprints).items()
        )
        return cell(*parts, element("dl", *trust, class_="trust"))

    def _figures(self) -> list[Markup]:
        """Return the funnel, the verdicts and the distributions of the scores."""
        scores, manifest = self.scores, self.manifest
        steps = funnel_steps(manifest, scores)
        parts = [
            bars([(f"{step['name']}", step["passed"])], step["whole"], lambda _: "")
            for step in steps
        ]
        if manifest.verdicts:
            order = [(name, manifest.verdicts.get(name, 0)) for name in reversed(VERDICTS)]
            total = sum(manifest.verdicts.values())
            parts += [
                element("h4", "Verdicts"),
                bars(order, total, lambda name: f"verdict-{name}"),
            ]
        columns = [name for name in _SHOWN if name in scores.columns]
        values = {name: scores[name].drop_nulls().to_list() for name in columns}
        histograms = (histogram(name, column) for name, column in values.items() if column)
        return [*parts, element("div", *histograms, class_="grid")]
