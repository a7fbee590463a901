"""`curate ingest`: what a source is, and its dialogues, normalised."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape

from curate.cli.console import OUT, print_json, resumable
from curate.cli.printing import (
    clip,
    show_message,
    show_source,
)

if TYPE_CHECKING:
    from curate.dialogue import Dialogue
    from curate.run.ingest import IngestReport


def ingest(
    source: Annotated[str, typer.Argument(help="File, folder, glob or Hub dataset id.")],
    shape: Annotated[str, typer.Option(help="Name the shape instead of detecting it.")] = "auto",
    recipe: Annotated[
        Path | None, typer.Option(help="Take source.mapping and the rest from this recipe.")
    ] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Read only the first rows.")] = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder for dialogues.jsonl and quarantine.jsonl.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Read a source, say what it is, and normalise it; no model calls."""
    from curate.run.ingest import ingest_source

    with resumable():
        report = ingest_source(source, shape=shape, recipe=recipe, limit=limit, out=out)
    if as_json:
        print_json(report.report.as_dict() | {"folder": str(report.folder)})
    else:
        _show(OUT, report)


def _show(console: Console, report: IngestReport) -> None:
    """Shape, confidence, one normalised example, the row sum, and why rows were put aside."""
    described = report.report.as_dict()
    show_source(console, described)
    if report.example is not None:
        console.print("one dialogue, normalised:")
        _show_dialogue(console, report.example)
    for row in report.quarantine_examples:
        console.print(f"  {escape(row.file)}:{row.row} {row.reason}: {escape(clip(row.detail))}")
    console.print(f"written: {escape(str(report.folder))}/dialogues.jsonl, quarantine.jsonl")


def _show_dialogue(console: Console, dialogue: Dialogue) -> None:
    console.print(f"  id: {escape(clip(dialogue.id))}")
    for label, text in (("role", dialogue.role_definition), ("scenario", dialogue.scenario)):
        if text:
            console.print(f"  {label}: {escape(clip(text))}")
    for message in dialogue.messages[:6]:
        show_message(console, message)
    if len(dialogue.messages) > 6:
        console.print(f"  … {len(dialogue.messages) - 6} more messages")
