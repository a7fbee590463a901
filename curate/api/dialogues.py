"""Steps that call no model: reading dialogues, and selecting them by their scores."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import polars as pl

from curate.api.arguments import Given, section
from curate.dialogue import Dialogue
from curate.errors import UsageError
from curate.recipe import parse_source
from curate.records import (
    AdherenceScore,
    Calibration,
    Decision,
    FactualityScore,
    Judgment,
    MetricsScore,
    QuarantinedRow,
    Unscored,
)
from curate.records.calibration_file import read_calibration
from curate.run.cleaning_inputs import prepare_cleaning
from curate.selection.config import SelectConfig
from curate.selection.rules import select as select_rows
from curate.selection.table import score_table
from curate.sources import Detection, RowCounts, Source, SourceConfig, open_rows, open_source


@dataclass(frozen=True, slots=True)
class LoadedDialogues:
    """The content of a source: `tally.rows_in == tally.rows_used + tally.quarantined`."""

    dialogues: list[Dialogue]
    quarantined: list[QuarantinedRow]
    detection: Detection
    tally: RowCounts


def load_dialogues(
    source: str | Path | SourceConfig | Mapping[str, Any] | Iterable[Mapping[str, Any]],
    *,
    role: str | None = None,
    scenario: str | None = None,
    role_from: Literal["data", "recipe"] = "data",
    **keys: Any,
) -> LoadedDialogues:
    """Read a file, folder, glob, Hub id or rows in memory; the shape is detected unless it is named.

    Args:
        source: a path or Hub id; rows: a list of mappings, a `datasets.Dataset`, a pandas or polars frame; or the
            content of a recipe's `source`, as a mapping or a `SourceConfig`.
        role: role definition of dialogues that have none.
        scenario: scenario of dialogues that have none.
        role_from: `recipe` uses `role` for all dialogues, also those with a role of their own.
        keys: other keys of a recipe's `source`: `shape`, `mapping`, `columns`, `limit`, `split`, …

    Raises:
        UsageError: a key is wrong; the shape is ambiguous (names the candidates); or a `shape` or `mapping` reads no
            row (lists the keys of the data).
        SourceError: nothing can be read there.
    """
    opened = _open(source, keys)
    tally = RowCounts()
    dialogues: list[Dialogue] = []
    quarantined: list[QuarantinedRow] = []
    for unit in opened.read(role, scenario, role_from):
        tally.add(unit)
        dialogues.extend(unit.dialogues)
        quarantined.extend(unit.quarantined)
    opened.check_read(tally)
    return LoadedDialogues(dialogues, quarantined, opened.detection, tally)


def _open(source: object, keys: Mapping[str, Any]) -> Source:
    if isinstance(source, SourceConfig):
        return open_source(parse_source(source.model_dump(exclude_unset=True) | dict(keys)))
    if isinstance(source, str | Path):
        return open_source(parse_source({"path": str(source), **keys}))
    if isinstance(source, Mapping):
        if hasattr(source, "column_names"):
            raise UsageError(
                "a DatasetDict holds several datasets",
                got=", ".join(source),
                expected="one dataset",
                fix='give one split, such as dataset["train"]',
            )
        return open_source(parse_source({**source, **keys}))
    if not isinstance(source, Iterable) and not isinstance(source, pl.LazyFrame):
        raise UsageError(
            "dialogues cannot be read from an object of this type",
            got=type(source).__name__,
            expected="a path, rows, a frame, a Dataset, or the content of a recipe's `source`",
        )
    rows: Any = list(source) if isinstance(source, Iterator) else source
    return open_rows(rows, parse_source({"path": "rows", **keys}))


def select(
    dialogues: Iterable[Dialogue],
    judgments: Iterable[Judgment | Unscored],
    adherence: Iterable[AdherenceScore | Unscored] | None = None,
    config: SelectConfig | Given = None,
    *,
    calibration: Calibration | str | Path | None = None,
    metrics: Iterable[MetricsScore | Unscored] | None = None,
    factuality: Iterable[FactualityScore | Unscored] | None = None,
) -> list[Decision]:
    """Put every dialogue into sets by named conditions; no model calls.

    Args:
        dialogues: the dialogues; each gets one decision.
        judgments: judgments of these dialogues.
        adherence: adherence scores of these dialogues, if conditions use them.
        config: as the recipe's section `select`. With `dedup`, `decontaminate` or `split` all dialogues are held in
            memory.
        calibration: file written by `curate calibrate`, or its content; gives the column `p_good`.
        metrics, factuality: scores of these dialogues, if conditions use them.

    Raises:
        UsageError: a key is wrong, or a condition names a column that does not exist.
    """
    config = section(SelectConfig, config, "select")
    fitted = read_calibration(calibration, "calibration")
    rows = dialogues if not config.needs_cleaning else list(dialogues)
    table = score_table(
        rows,
        {record.content_hash: record for record in judgments},
        None if adherence is None else {record.content_hash: record for record in adherence},
        None if fitted is None else fitted.good,
        None if metrics is None else {record.content_hash: record for record in metrics},
        None if factuality is None else {record.content_hash: record for record in factuality},
    )
    cleaning = prepare_cleaning(config)
    if cleaning is None:
        return select_rows(table, config)
    with cleaning.open(lambda: rows) as cleaner:
        return select_rows(table, config, cleaner)
