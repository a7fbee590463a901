"""`curate ingest`: detect a source's shape and normalise its dialogues."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape

from curate.cli.console import ERR, OUT, AsJson, Quiet, print_json, resumable
from curate.cli.printing import clip, listed, show_message, show_source
from curate.run import exit_codes
from curate.wording import plural

if TYPE_CHECKING:
    from collections.abc import Sequence

    from curate.dialogue import Dialogue, Message
    from curate.run.ingest_source import IngestReport
    from curate.sources.proposal import Proposal, UnknownShapeError


def ingest(
    source: Annotated[
        str | None,
        typer.Argument(help="File, folder, glob or Hub dataset id (default: the recipe's)."),
    ] = None,
    shape: Annotated[str, typer.Option(help="Name the shape instead of detecting it.")] = "auto",
    recipe: Annotated[
        Path | None, typer.Option(help="Recipe to take source.mapping and other settings from.")
    ] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Read only the first rows.")] = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder for dialogues.jsonl and quarantine.jsonl.")
    ] = None,
    accept: Annotated[
        bool,
        typer.Option("--accept", help="Accept the proposed mapping and write it as a recipe."),
    ] = False,
    as_json: AsJson = False,
    _quiet: Quiet = False,
) -> None:
    """Read a source, detect its shape and normalise its dialogues; no model calls.

    If no shape is certain, a mapping that would read it is proposed, with an example, and nothing is read.
    """
    from curate.run.ingest_source import ingest_source
    from curate.sources.proposal import UnknownShapeError

    try:
        with resumable():
            report = ingest_source(
                source, shape=shape, recipe=recipe, limit=limit, out=out, accept=accept
            )
    except UnknownShapeError as unknown:
        if unknown.proposal is None:
            raise
        if as_json:
            print_json({"proposal": unknown.proposal.as_dict()})
        else:
            show_proposal(ERR if OUT.quiet else OUT, unknown, unknown.proposal)
        raise typer.Exit(exit_codes.BAD_USAGE) from None
    if as_json:
        accepted = str(report.accepted) if report.accepted else None
        print_json(report.report.as_dict() | {"folder": str(report.folder), "accepted": accepted})
    else:
        _show(report)


def _show(report: IngestReport) -> None:
    """Print shape, confidence, the row sum, one normalised example and why rows were quarantined."""
    described = report.report.as_dict()
    show_source(OUT, described)
    if report.example is not None:
        OUT.print("one dialogue, normalised:")
        _show_dialogue(report.example)
    for row in report.quarantine_examples:
        OUT.print(f"  {escape(row.file)}:{row.row} {row.reason}: {escape(clip(row.detail))}")
    OUT.print(f"written: {escape(str(report.folder))}/dialogues.jsonl, quarantine.jsonl")
    if report.accepted is not None:
        OUT.print(
            f"the mapping is in {escape(str(report.accepted))}: check it and continue from there"
        )


def show_proposal(
    console: Console, unknown: UnknownShapeError, proposal: Proposal, *, ends_here: bool = True
) -> None:
    """Print the mapping that would read a source of no known shape, an example, and what to check.

    Args:
        ends_here: the command ends without the mapping, so print how to accept it.
    """
    console.print(f"[bold]{escape(unknown.problem)}[/bold]{', and nothing was read' * ends_here}.")
    console.print(
        f"This mapping would read {proposal.rows_read} of {proposal.rows} sampled rows "
        f"({escape(proposal.description)}):\n"
    )
    lines = ["source:", "  mapping:", *(f"    {line}" for line in proposal.yaml.splitlines())]
    console.print(escape("\n".join(lines)), soft_wrap=True)
    console.print("\none dialogue, as it would be read:")
    _show_messages(console, proposal.example)
    if proposal.unread:
        console.print(f"not read by this mapping: {listed(proposal.unread)}")
    for doubt in proposal.doubts:
        console.print(f"check this: {escape(doubt)}")
    if not ends_here:
        return
    console.print(
        "To accept it, run the same command with --accept: it writes a recipe and reads the source. "
        "Otherwise write source.mapping yourself (docs/sources.md)."
    )


def _show_dialogue(dialogue: Dialogue) -> None:
    OUT.print(f"  id: {escape(clip(dialogue.id))}")
    for label, text in (("role", dialogue.role_definition), ("scenario", dialogue.scenario)):
        if text:
            OUT.print(f"  {label}: {escape(clip(text))}")
    _show_messages(OUT, dialogue.messages)


def _show_messages(console: Console, messages: Sequence[Message]) -> None:
    for message in messages[:6]:
        show_message(console, message)
    if len(messages) > 6:
        console.print(f"  … {plural(len(messages) - 6, 'more message')}")
