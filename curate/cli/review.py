"""`curate review`: apply what people decided in a report's page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from curate.cli.console import AsJson, print_json, print_line
from curate.wording import first_of, plural


def review(
    run_folder: Annotated[Path, typer.Argument(metavar="RUN", help="Run folder.")],
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="JSONL file that the report's page exported.")
    ],
    as_json: AsJson = False,
) -> None:
    """Apply a review: people's decisions replace the rules', and sets and exports are written again.

    No model calls. The answers stay in the run folder, so a resumed run keeps them.
    """
    from curate.run.review import review_run

    applied = review_run(run_folder, file)
    if as_json:
        print_json(
            {
                "answers": applied.answers,
                "kept": applied.kept,
                "review": applied.report.model_dump(),
                "disagreed": applied.disagreed,
                "selected": applied.manifest.selected,
                "exports": applied.manifest.exports,
            }
        )
        return
    answers = ", ".join(f"{name} {count:,}" for name, count in sorted(applied.answers.items()))
    print_line(f"applied: {escape(answers)}; the run holds {plural(applied.kept, 'answer')}")
    print_line(escape(applied.report.described))
    if applied.disagreed:
        print_line(
            f"[yellow]as many accept as reject, so the rules decide:[/yellow] {escape(first_of(applied.disagreed, 5))}"
        )
    for name, counts in applied.manifest.exports.items():
        rows = ", ".join(
            f"{file} {counts[file]:,}" for file in counts if f"refused_{file}" in counts
        )
        print_line(f"exported {escape(name)}: {escape(rows)}")
    print_line(
        f"{plural(applied.manifest.selected, 'dialogue')} in the SFT set now. The file also serves as labels for `curate "
        "agreement`, `curate calibrate` and `curate certify`."
    )
