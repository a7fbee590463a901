"""`curate review`: applies what people decided in a report's page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from curate.cli.console import OUT, AsJson, print_json
from curate.wording import first_of, plural


def review(
    run_folder: Annotated[Path, typer.Argument(metavar="RUN", help="Run folder.")],
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="What the report's page exported, JSONL.")
    ],
    as_json: AsJson = False,
) -> None:
    """Apply a review: people's decisions stand in place of the rules', sets and exports are made anew.

    No model is asked. The answers stay in the run folder, so that a run that goes on keeps them.
    """
    from curate.run.review import review_run

    done = review_run(run_folder, file)
    if as_json:
        print_json(
            {
                "answers": done.answers,
                "kept": done.kept,
                "review": done.report.model_dump(),
                "disagreed": done.disagreed,
                "selected": done.manifest.selected,
                "exports": done.manifest.exports,
            }
        )
        return
    taken = ", ".join(f"{name} {count:,}" for name, count in sorted(done.answers.items()))
    OUT.print(
        f"taken: {escape(taken)}; the run holds {plural(done.kept, 'answer')}", soft_wrap=True
    )
    OUT.print(escape(done.report.described), soft_wrap=True)
    if done.disagreed:
        OUT.print(
            f"[yellow]as many accept as reject, so the rules decide:[/yellow] {escape(first_of(done.disagreed, 5))}",
            soft_wrap=True,
        )
    for name, counts in done.manifest.exports.items():
        rows = ", ".join(
            f"{file} {counts[file]:,}" for file in counts if f"refused_{file}" in counts
        )
        OUT.print(f"exported {escape(name)}: {escape(rows)}", soft_wrap=True)
    OUT.print(
        f"{plural(done.manifest.selected, 'dialogue')} are in the SFT set now. The file is labels, too: `curate agreement`, "
        "`curate calibrate` and `curate certify` read it.",
        soft_wrap=True,
    )
