"""`curate calibrate`: makes one judge's adherence scores probabilities, by labelled turns."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape
from rich.table import Table

from curate.cli.console import OUT, print_json
from curate.errors import UsageError

if TYPE_CHECKING:
    from curate.records import JudgeCalibration


def calibrate(
    scores: Annotated[
        Path, typer.Argument(metavar="SCORES", help="Run folder, or JSONL of adherence records.")
    ],
    labels: Annotated[
        str | None,
        typer.Option(help="Labelled source, in any shape; the run's own dialogues by default."),
    ] = None,
    label: Annotated[str, typer.Option(help="Label that says what a turn is.")] = "label",
    adherent: Annotated[
        str, typer.Option(help="Its value for a turn that keeps its role.")
    ] = "adherent",
    method: Annotated[str, typer.Option(help="'platt' or 'isotonic'.")] = "platt",
    shape: Annotated[str, typer.Option(help="Name the labels' shape.")] = "auto",
    out: Annotated[Path, typer.Option(help="File to write.")] = Path("calibration.json"),
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Fit a threshold and a curve to labelled turns, for the judge that scored them and no other."""
    from curate.calibrating import Labels, calibrate_run, write_calibration
    from curate.recipe import parse_source

    if method not in ("platt", "isotonic"):
        raise UsageError("unknown value of --method", got=method, expected="platt or isotonic")
    source = None if labels is None else parse_source({"path": labels, "shape": shape})
    found = calibrate_run(
        scores,
        source,
        labels=Labels(label, adherent),
        method="platt" if method == "platt" else "isotonic",
    )
    write_calibration(out, found)
    if as_json:
        print_json(found.model_dump(mode="json"))
        return
    _show(found)
    OUT.print(
        f"written: {escape(str(out))}; a recipe uses it as `adherence: {{calibration: {escape(str(out))}}}`",
        soft_wrap=True,
    )


def _show(found: JudgeCalibration) -> None:
    judge = found.identity
    OUT.print(
        f"{escape(judge.model or found.scoring_method)} ({judge.engine}), {found.scoring_method}, "
        f"{found.definition}: {found.turns} labelled turns, {found.adherent} adherent, "
        f"of {found.groups} dialogues"
    )
    grid = Table(box=None, pad_edge=False)
    for column in ("by cross-validation", "Brier", "lower by", "ECE (10 bins)", "accuracy at 0.5"):
        grid.add_column(column, justify="left" if column.startswith("by") else "right")
    for name, figures in found.figures.items():
        gain = figures.brier_gain
        kept = " (stored)" if name == found.method else ""
        grid.add_row(
            f"{name}{kept}",
            f"{figures.brier:.3f}",
            "" if gain is None else f"{gain[0]:+.3f} to {gain[1]:+.3f}",
            f"{figures.ece:.3f}",
            f"{figures.accuracy_at_half:.3f}",
        )
    OUT.print(grid)
    OUT.print(
        f"threshold of the raw score: {found.threshold:.4g}; accuracy at a threshold fitted without the "
        f"turns it decides on: {found.figures['raw'].accuracy_at_threshold:.3f}",
        soft_wrap=True,
    )
