"""`curate push`: push a run to the Hugging Face Hub as a dataset."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from curate.cli.console import ERR, OUT, AsJson, print_json, print_line, resumable
from curate.cli.printing import number_cell, number_table
from curate.engines.personal_data import REGIONS
from curate.run import exit_codes
from curate.wording import plural

if TYPE_CHECKING:
    from curate.publishing.hub_commit import Pushed
    from curate.publishing.push import Prepared


def push(
    run_folder: Annotated[
        Path, typer.Argument(metavar="RUN", help="Folder of a run that is done.")
    ],
    repo: Annotated[str, typer.Argument(metavar="REPO", help="Dataset repository: owner/name.")],
    license_: Annotated[
        list[str] | None,
        typer.Option(
            "--license",
            help="Licence, as the Hub names it: apache-2.0, cc-by-4.0, … Repeatable.",
        ),
    ] = None,
    language: Annotated[
        list[str] | None, typer.Option(help="Language code: en, de, … Repeatable.")
    ] = None,
    title: Annotated[
        str | None, typer.Option(help="Title of the card (default: the run's name).")
    ] = None,
    allow: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KIND",
            help="Publish findings of this kind: email, phone, card, id, name, secret or secret:<rule>. Repeatable.",
        ),
    ] = None,
    redact: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KIND",
            help="Replace findings of this kind in the rows by its name. Repeatable.",
        ),
    ] = None,
    leave_out: Annotated[
        list[str] | None,
        typer.Option(metavar="KIND", help="Leave out rows with findings of this kind. Repeatable."),
    ] = None,
    names: Annotated[
        bool,
        typer.Option(
            "--names",
            help="Look for names too; also with --redact name, --leave-out name or --allow name.",
        ),
    ] = False,
    phone_region: Annotated[
        list[str] | None,
        typer.Option(
            help="Country whose phone numbers are found without a country code "
            f"(default {', '.join(REGIONS)}). Repeatable."
        ),
    ] = None,
    public: Annotated[
        bool, typer.Option("--public", help="Make the dataset public (default: private).")
    ] = False,
    branch: Annotated[
        str | None,
        typer.Option("--branch", "--revision", help="Branch; created if missing (default main)."),
    ] = None,
    message: Annotated[str | None, typer.Option(help="Commit message.")] = None,
    shard_mb: Annotated[
        int, typer.Option(min=1, help="Largest size of a Parquet file, in megabytes.")
    ] = 500,
    report: Annotated[
        bool,
        typer.Option(
            "--report",
            help="Also push the run's page: it has the text of every dialogue, selected or not.",
        ),
    ] = False,
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run",
            help="Write and scan everything, send nothing; exit code 1 if findings would stop the push.",
        ),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Push a run to the Hub in one commit: rows, pairs, judgments and a card; scanned first, private by default."""
    from huggingface_hub.utils.tqdm import disable_progress_bars

    from curate.publishing.push import PushOptions, prepare_push, send

    options = PushOptions(
        public=public,
        licences=tuple(license_ or ()),
        languages=tuple(language or ()),
        title=title,
        allow=tuple(allow or ()),
        redact=tuple(redact or ()),
        leave_out=tuple(leave_out or ()),
        names=names,
        phone_regions=tuple(phone_region or REGIONS),
        branch=branch,
        message=message,
        shard_bytes=shard_mb * 1_000_000,
        report=report,
    )
    with resumable():
        prepared = prepare_push(run_folder, repo, options)
        OUT.quiet = as_json
        _show(prepared)
        pushed = None
        if dry_run:
            folder = escape(str(prepared.run / "push" / "files"))
            OUT.print(f"[bold]dry run[/bold]: nothing was sent; look at {folder}")
        else:
            if not ERR.is_terminal:  # no bars in a log
                disable_progress_bars()
            pushed = send(prepared)
    if pushed is not None:
        _show_pushed(pushed, public=public)
    if as_json:
        print_json(_as_dict(prepared, pushed))
    stopped = pushed is None and prepared.blocked_by
    raise typer.Exit(exit_codes.FAILED if stopped else exit_codes.DONE)


def _show_pushed(pushed: Pushed, *, public: bool) -> None:
    if pushed.is_unchanged:
        OUT.print("[bold]unchanged[/bold]: the repository holds all of this already")
    for name in pushed.removed:
        print_line(f"removed, from an earlier push: {escape(name)}")
    visibility = "private" if pushed.is_private else "public"
    print_line(f"[bold]pushed[/bold] ({visibility}): {escape(pushed.url)}")
    if public and pushed.is_private:
        OUT.print("it was private before and stays private: change that in its settings on the Hub")


def _as_dict(prepared: Prepared, pushed: Pushed | None) -> dict[str, Any]:
    """Return the object of `--json`; `pushed` is null if nothing was sent."""
    from curate.publishing.push import describe

    findings = prepared.findings
    return {
        "repo": prepared.repo,
        "files": [
            {"name": name, "bytes": size, "rows": rows} for name, size, rows in describe(prepared)
        ],
        "licences": prepared.licences,
        "languages": prepared.languages,
        "funnel": [
            {"step": step.name, "rows": step.whole, "of": step.sum} for step in prepared.funnel
        ],
        "findings": dict(findings.counts),
        "stopped_by": prepared.blocked_by,
        "pushed": None if pushed is None else asdict(pushed),
    }


def _show(prepared: Prepared) -> None:
    from curate.publishing.push import describe

    files = number_table("file", "rows", "bytes")
    files.columns[0].overflow = "fold"
    for name, size, rows in describe(prepared):
        files.add_row(escape(name), number_cell(rows, ","), f"{size:,}")
    OUT.print(files)
    OUT.print(
        f"licence {', '.join(prepared.licences)}; "
        f"language {', '.join(prepared.languages) or 'not stated (--language)'}; "
        f"{'public' if prepared.options.public else 'private'}"
    )
    for step in prepared.funnel:
        OUT.print(f"{escape(step.name)} {step.whole:,} = {escape(step.sum)}")
    for warning in prepared.manifest.warnings:
        OUT.print(f"[yellow]warning:[/yellow] {escape(warning)}")
    _show_findings(prepared)


def _show_findings(prepared: Prepared) -> None:
    findings, blocked = prepared.findings, prepared.blocked_by
    for name, rows in sorted(prepared.redacted.items()):
        OUT.print(f"{escape(name)}: redacted in {plural(rows, 'row')}")
    OUT.print(
        f"scanned {plural(findings.texts, 'text')} of {plural(findings.rows, 'row')}: "
        f"{plural(findings.counts.total(), 'finding')}"
    )
    for name, number in sorted(findings.counts.items()):
        state = "[bold red]stops the push[/bold red]" if name in blocked else "allowed"
        OUT.print(
            f"{escape(name)}: {number:,} in {plural(findings.rows_by_name[name], 'row')}, {state}"
        )
        for example in findings.examples[name]:
            place = f"{example.file} row {example.row} {example.row_id}".strip()
            print_line(f"  {escape(example.masked)}  {escape(place)}")
    if findings.counts:
        print_line(f"all of them: {escape(str(prepared.findings_file))}")
