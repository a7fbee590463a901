"""Export a run: for each trainer the train and validation sides, with the good turns of rejected dialogues.

The export room gets dialogues, pairs and turns; this module takes them from the score table, the decisions and the
judges' rows. No model calls.
"""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TypeVar, get_args

import orjson
import polars as pl

from curate.dialogue import Dialogue
from curate.export.config import ExportConfig
from curate.export.counts import ExportCounts
from curate.export.good_turns import (
    LabelledTurns,
    MaybeJudged,
    MaybeScored,
    MixedDialogue,
    mixed_dialogue,
    with_turn_labels,
)
from curate.export.writing import ExportData, write_export
from curate.records import Judgment, StageName, Unscored
from curate.run.ingest import read_dialogues, read_index
from curate.run.outputs import (
    NATURAL_PAIRS,
    PAIRS,
    VALIDATION,
    ExportPart,
    export_parts,
    read_pairs,
)
from curate.run.review_answers import REVIEWED, Reviews
from curate.run.scoring import ScoreRows
from curate.selection.columns import NOT_SCORED, REJECTED_SIDES
from curate.selection.config import Removal
from curate.selection.rules import matching, narrowed
from curate.storage.stage_rows import StageRows
from curate.storage.whole_files import atomic_file

JUDGMENTS = "judgments.jsonl"
"""File of the kind `judgments`, beside the trainers' folders."""

C = TypeVar("C")
T = TypeVar("T")


def export_run(
    run: Path,
    config: ExportConfig,
    table: pl.LazyFrame,
    decided: pl.DataFrame | None,
    scores: ScoreRows,
    reviews: Reviews,
) -> dict[str, dict[str, int]]:
    """Write every trainer's folder: train into it, and if there is a split, validation into a folder within it.

    Args:
        run: the run folder, its pairs written.
        config: the recipe's section.
        table: the score table.
        decided: as `selection.rules.decide` gives it; None without a selection, and then no dialogue is
            exported, only pairs.
        scores: of the same dialogues.
        reviews: what people decided about pairs.

    Returns:
        Counts for the manifest, by `<trainer>` or `<trainer>/validation`.
    """
    counts = {}
    if "judgments" in config.kinds and scores.judgments is not None:
        counts["judgments"] = _write_judgments(run, scores.judgments)
    else:
        (run / "export" / JUDGMENTS).unlink(missing_ok=True)  # of an earlier export
    turns = None if decided is None else _Turns(run, config, table, decided, scores)
    for trainer in dict.fromkeys(config.trainers):
        folder = run / "export" / trainer
        for part in export_parts(decided):
            data = ExportData(
                sft=() if part.selected is None else read_dialogues(run, part.selected),
                pairs=reviews.pairs(part.pairs(read_pairs(run, PAIRS))),
                natural=reviews.pairs(part.pairs(read_pairs(run, NATURAL_PAIRS))),
                mixed=() if turns is None else turns.mixed(part),
                labelled=() if turns is None else turns.labelled(part),
                turned=reviews.turned,
            )
            name = "/".join(filter(None, (trainer, part.name)))
            inside = folder / part.name if part.name else folder
            counts[name] = write_export(inside, trainer, data, config).as_dict()
        if decided is None or not decided["split"].is_not_null().any():
            # of an earlier run with a split: what it holds is in train now
            shutil.rmtree(folder / VALIDATION, ignore_errors=True)
    return counts


def _write_judgments(run: Path, judgments: StageRows[Judgment | Unscored]) -> dict[str, int]:
    """Write each dialogue's judgment in the judge card's form, or the reason why it has none, a line each; return the counts."""
    index = read_index(run, "id", "content_hash")
    counts = ExportCounts({"judgments": 0}, {"judgments": Counter()})
    with atomic_file(run / "export" / JUDGMENTS) as out:
        rows = judgments.aligned(index["content_hash"])
        for dialogue_id, row in zip(index["id"], rows, strict=True):
            line: dict[str, object] = {"dialogue_id": dialogue_id}
            if isinstance(row, Judgment):
                line |= row.card_form
                counts.rows["judgments"] += 1
            else:
                line["unscored"] = NOT_SCORED if row is None else row.reason
                counts.refused["judgments"][str(line["unscored"])] += 1
            out.write(orjson.dumps(line) + b"\n")
    return counts.as_dict()


class _Turns:
    """Good and bad turns of the dialogues that a condition admits."""

    def __init__(
        self,
        run: Path,
        config: ExportConfig,
        table: pl.LazyFrame,
        decided: pl.DataFrame,
        scores: ScoreRows,
    ) -> None:
        self.run = run
        self.config = config
        self.scores = scores
        self.hashes = read_index(run, "content_hash").to_series()
        # What people reject is not trained on in part either.
        removed = _has_reason(decided, (*get_args(Removal), REVIEWED))
        selected = decided["reasons"].list.len() == 0
        self.to_salvage = self.to_label = None
        if config.salvage is not None:
            admitted = self._admitted(table, config.salvage.where, "export.salvage.where")
            in_sft = self.hashes.filter(selected).unique()
            sides = _has_reason(decided, REJECTED_SIDES)
            admitted &= ~selected & ~removed & ~sides & ~self.hashes.is_in(in_sft.implode())
            self.to_salvage = self._first(admitted)
        if config.kto_turns is not None:
            admitted = self._admitted(table, config.kto_turns.where, "export.kto_turns.where")
            self.to_label = self._first(admitted & ~removed)

    def _admitted(self, table: pl.LazyFrame, where: str, place: str) -> pl.Series:
        return matching(narrowed(table, {place: where}), where, place)

    def _first(self, admitted: pl.Series) -> pl.Series:
        """Keep the first admitted of equal dialogues: the others would repeat its rows."""
        both = pl.struct("hash", "admitted").is_first_distinct() & pl.col("admitted")
        return pl.DataFrame({"hash": self.hashes, "admitted": admitted}).select(both).to_series()

    def mixed(self, part: ExportPart) -> Iterator[MixedDialogue]:
        """Yield the dialogues on this side to train on in part."""
        if self.to_salvage is not None and self.config.salvage is not None:
            yield from self._rows_of(self.to_salvage, part, mixed_dialogue, self.config.salvage)

    def labelled(self, part: ExportPart) -> Iterator[LabelledTurns]:
        """Yield the dialogues on this side with good and bad turns."""
        if self.to_label is not None and self.config.kto_turns is not None:
            yield from self._rows_of(self.to_label, part, with_turn_labels, self.config.kto_turns)

    def _rows_of(
        self,
        is_included: pl.Series,
        part: ExportPart,
        make: Callable[[Dialogue, MaybeJudged, MaybeScored, C], T],
        config: C,
    ) -> Iterator[T]:
        if part.side is not None:
            is_included = is_included & part.side
        dialogues = read_dialogues(self.run, is_included)
        judged = self._scores(self.scores.judgments, StageName.JUDGE, is_included)
        scored = self._scores(self.scores.adherence, StageName.ADHERENCE, is_included)
        for dialogue, judgment, score in zip(dialogues, judged, scored, strict=True):
            yield make(dialogue, judgment, score, config)

    def _scores(
        self, rows: StageRows[T | Unscored] | None, stage: StageName, is_included: pl.Series
    ) -> Iterator[T | Unscored | None]:
        """Yield the row of each included dialogue; None if the stage is not part of the run."""
        if rows is None:
            yield from (None for _ in range(int(is_included.sum())))
            return
        hashes = self.hashes.filter(is_included)
        for key, row in zip(hashes, rows.aligned(self.hashes, is_included), strict=True):
            missing = Unscored(dialogue_id="", content_hash=key, stage=stage, reason=NOT_SCORED)
            yield missing if row is None else row


def _has_reason(decided: pl.DataFrame, codes: Iterable[str]) -> pl.Series:
    """Return for each dialogue whether one of these codes is among its reasons."""
    return decided["reasons"].list.eval(pl.element().is_in(list(codes))).list.any()
