"""`curate show`: print a run's dialogues and figures, or one dialogue turn by turn with its scores and pairs."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape

from curate.cli.agreement import show_agreement
from curate.cli.console import OUT, print_json, print_line
from curate.cli.printing import clip, number_cell
from curate.cli.show_dialogue import show_judged, show_pairs, unscored_line
from curate.cli.show_run import show_figures
from curate.errors import UsageError
from curate.wording import plural


def show(
    run_folder: Annotated[Path, typer.Argument(metavar="RUN", help="Run folder.")],
    dialogue_id: Annotated[str | None, typer.Argument(metavar="ID", help="Dialogue id.")] = None,
    where: Annotated[
        str | None,
        typer.Option(
            help="Only dialogues that meet this SQL condition, e.g. \"verdict = 'poor'\"."
        ),
    ] = None,
    sort: Annotated[
        str | None,
        typer.Option(help="Highest first by this SQL expression, e.g. mean_score or -adherence."),
    ] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="List at most this many.")] = None,
    verbose: Annotated[
        bool,
        typer.Option(
            "--verbose",
            "-v",
            help="Also print details of agreement: confusion matrices, slices and each rater.",
        ),
    ] = False,
    as_json: Annotated[
        bool,
        typer.Option(
            "--json",
            help="Print one JSON object: manifest and table rows; for a dialogue its judgment in the judge card's form.",
        ),
    ] = False,
) -> None:
    """Print a run's dialogues and all its figures, or one dialogue turn by turn with its scores and pairs.

    Columns for --where and --sort: docs/selecting.md.
    """
    from curate.run.labels.agreement_marks import current_agreement
    from curate.run.read_back import pairs_of_dialogue, read_judged, read_manifest, read_table

    if dialogue_id is not None:
        if where is not None or sort is not None or limit is not None:
            raise UsageError(
                "--where, --sort and --limit are for the list of dialogues",
                got=f"ID {dialogue_id}",
                fix="leave out ID, or these options",
            )
        judged = read_judged(run_folder, dialogue_id)
        if as_json:
            print_json(_card_form(judged.judgment))
            return
        show_judged(OUT, judged)
        show_pairs(OUT, pairs_of_dialogue(run_folder, dialogue_id))
        return
    rows = read_table(run_folder, where, sort)
    manifest = read_manifest(run_folder)
    if as_json:
        listed = [*islice(rows, limit)]
        print_json({"manifest": manifest.model_dump(mode="json"), "dialogues": listed})
        return
    number = 0
    for row in islice(rows, limit):
        if not number:
            show_head()
        number += 1
        show_row(OUT, row)
    if where is not None or sort is not None or limit is not None:
        OUT.print(f"[dim]{number:,} of {plural(manifest.dialogues, 'dialogue')}[/dim]")
        return
    show_figures(OUT, manifest)
    agreement = current_agreement(run_folder, manifest.fingerprints)
    if agreement is not None:
        show_agreement(OUT, agreement, details=verbose)


def _card_form(record: Mapping[str, Any] | None) -> dict[str, Any]:
    from curate.records import Judgment

    if record is None or record["kind"] != "judgment":
        raise UsageError(
            "the dialogue has no judgment",
            got=f"judge: {unscored_line(record)}",
            fix="`curate show RUN ID` without --json prints what there is of it",
        )
    return Judgment.model_validate(record).card_form


def show_head() -> None:
    """Print the names of the columns of `show_row`."""
    names = "".join(name.ljust(width) for name, width in _WIDTHS.items())
    print_line(f"[dim]{names}dialogue, sets[/dim]")


def show_row(console: Console, row: Mapping[str, Any]) -> None:
    """Print one line of `curate show RUN`: verdict, scores, id and sets; the reason if it is unscored."""
    weakest = row.get("weakest_turn")
    cells = {
        "verdict": row.get("verdict") or "unscored",
        "mean": number_cell(row.get("mean_score")),
        "role": number_cell(row.get("adherence")),
        "metrics": number_cell(row.get("overall_score"), ".1f"),
        "weakest": "" if weakest is None else f"turn {weakest}",
    }
    line = "".join(cells[name].ljust(width) for name, width in _WIDTHS.items())
    about = ", ".join(row["sets"])
    if not row.get("verdict"):
        about = f"({row.get('judge_unscored') or 'not judged'})  {about}"
    name = escape(clip(str(row["id"])))
    console.print(f"{line}[bold]{name}[/bold]  [dim]{about}[/dim]", soft_wrap=True)


_WIDTHS = {"verdict": 12, "mean": 6, "role": 6, "metrics": 9, "weakest": 9}
"""Widths of the columns before the id. They are fixed, so that a list of any length is printed as it is read."""
