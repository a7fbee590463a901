"""People's labels as they are given, from a file or from a run's own data, and as the run folder keeps them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
from pydantic import TypeAdapter

from curate.errors import UsageError
from curate.records import TrustKind
from curate.run.ingest import read_dialogues
from curate.run.read_back import read_manifest
from curate.storage.line_files import read_records
from curate.storage.whole_files import write_atomically
from curate.trust.label_rows import GivenLabels, labels_in_data, labels_in_file

_KEPT_LABEL: TypeAdapter[tuple[str, str, dict[str, Any]]] = TypeAdapter(
    tuple[str, str, dict[str, Any]]
)


def given_labels(
    run: Path, gold: Path | None, dimension: str | None = None, label: str = "label"
) -> GivenLabels:
    """Return people's labels from a file, or those that the run's dialogues have.

    Args:
        run: run folder.
        gold: CSV, JSONL or Parquet; None for the data's own.
        dimension: that the data's own labels are of; None for a file.
        label: name of the data's own.

    Raises:
        UsageError: neither or both; no file, or no dialogue with such a label.
    """
    if (gold is None) == (dimension is None):
        raise UsageError(
            "labels are needed from exactly one place",
            got="no labels" if gold is None else f"{gold} and --dimension {dimension}",
            expected="a file GOLD, or --dimension with the data's own labels",
        )
    read_manifest(run)
    if gold is not None:
        return labels_in_file(gold)
    labels = labels_in_data(read_dialogues(run), label, dimension or "")
    if not labels:
        raise UsageError("no dialogue has that label", got=label, fix="name the label with --label")
    names = ("content", "dimension", "value", "turn")
    rows = [(row.place, {name: getattr(row, name) for name in names}) for row in labels]
    return GivenLabels(f"the data's label '{label}'", rows)


def labels_path(run: Path, kind: TrustKind) -> Path:
    """Return the path of the labels behind a run's report of the kind."""
    return run / "trust" / "labels" / f"{kind}.jsonl"


def keep_labels(run: Path, kind: TrustKind, labels: GivenLabels) -> None:
    """Write the labels behind a report into the run folder."""
    write_atomically(labels_path(run, kind), labels_as_kept(labels))


def labels_as_kept(labels: GivenLabels) -> bytes:
    """Return labels as the lines of a file, each with their origin and its place."""
    lines = ([labels.origin, place, row] for place, row in labels.rows)
    return b"".join(orjson.dumps(line, default=str) + b"\n" for line in lines)


def read_kept_labels(path: Path) -> GivenLabels:
    """Return the labels that `keep_labels` wrote.

    Raises:
        CurateError: a line is damaged.
    """
    rows = list(read_records(path, _KEPT_LABEL.validate_json))
    return GivenLabels(rows[0][0] if rows else path.name, [(place, row) for _, place, row in rows])
