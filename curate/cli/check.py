"""`curate check`: report what a trainer would do with the rows of a file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Literal

import typer
from rich.markup import escape
from rich.text import Text

from curate.cli.console import OUT, AsJson, print_json
from curate.errors import UsageError
from curate.run import exit_codes
from curate.wording import first_of, plural

if TYPE_CHECKING:
    from curate.trainer_check.findings import CheckReport, FileReport, Finding, Lengths, Replay

_SHOWN: Final = 8  # row numbers printed for one kind of finding
_COLORS: Final = {
    "stops": "bold red",
    "dropped": "red",
    "corrupted": "red",
    "mis_masked": "red",
    "truncated": "yellow",
    "noted": "dim",
}


def _trainers() -> list[str]:
    from curate.export.trainers import TRAINERS

    return [*TRAINERS]


def check(
    path: Annotated[Path, typer.Argument(help="JSON Lines, JSON or Parquet file, or a folder.")],
    trainer: Annotated[
        str,
        typer.Option(
            "--for", metavar="TRAINER", help="Trainer to check for.", autocompletion=_trainers
        ),
    ],
    tokenizer: Annotated[
        str | None, typer.Option(help="Folder, tokenizer.json or Hub id; needed for lengths.")
    ] = None,
    max_length: Annotated[
        int | None, typer.Option(min=1, help="The trainer's limit (default: its own).")
    ] = None,
    stage: Annotated[
        str | None, typer.Option(help="sft, dpo, kto or reward (default: by the columns).")
    ] = None,
    through: Annotated[
        Literal["auto", "installed", "restated"],
        typer.Option(
            help="'installed' insists on running the trainer's own code, 'restated' does not run it."
        ),
    ] = "auto",
    python: Annotated[
        str | None, typer.Option(help="Interpreter that has the trainer, to run its own code.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List the rows that a trainer would drop, cut, corrupt or mis-mask; exit code 1 if there are any."""
    from curate.export.trainers import TRAINERS
    from curate.storage.run_folder import MANIFEST
    from curate.trainer_check.check import STAGES, check_path

    known = "swift" if trainer == "ms-swift" else trainer
    if known not in TRAINERS:
        raise UsageError("unknown trainer", got=trainer, expected=", ".join(TRAINERS))
    if stage is not None and stage not in STAGES[known]:
        raise UsageError(f"unknown stage of {known}", got=stage, expected=", ".join(STAGES[known]))
    if (path / MANIFEST).is_file():
        raise UsageError(
            "a trainer does not read a run folder",
            got=path,
            expected="an export",
            fix=f"curate check {path / 'export' / known} --for {trainer}",
        )
    report = check_path(
        path,
        known,
        stage=stage,
        tokenizer=tokenizer,
        max_length=max_length,
        through=through,
        python=python,
    )
    if as_json:
        print_json(report.as_dict())
    else:
        _show(report)
    raise typer.Exit(exit_codes.DONE if report.is_clean else exit_codes.FAILED)


def _show(report: CheckReport) -> None:
    for file in report.files:
        _show_file(file, report.trainer)
    for why in dict.fromkeys(reason for _, reason in report.skipped):
        names = ", ".join(name for name, reason in report.skipped if reason == why)
        OUT.print(f"[dim]not read ({why}): {escape(names)}[/dim]")
    if report.tokenizer is None:
        OUT.print("[dim]lengths and templates were not checked: give --tokenizer[/dim]")
    if report.not_replayed:
        OUT.print(Text(report.not_replayed, style="dim"))
    if report.is_clean:
        OUT.print(f"[green]clean[/green]: {report.trainer} would take every row as it stands")
    else:
        OUT.print(f"[red]not clean[/red]: {report.trainer} would lose or change rows")


def _show_file(file: FileReport, trainer: str) -> None:
    from curate.trainer_check.findings import EFFECTS

    OUT.print(f"[bold]{escape(file.file)}[/bold]  {file.stage} for {trainer}")
    names = ["intact", *(name for name in EFFECTS if file.effects[name])]
    counts = ", ".join(f"{file.effects[name]:,} {_word(name)}" for name in names)
    OUT.print(f"  {plural(file.rows, 'row')}: {counts}")
    for group in _by_kind(file.findings):
        _show_group(group, trainer)
    if file.lengths is not None:
        _show_lengths(file.lengths)
    if file.replay is not None:
        _show_replay(file.replay)
    OUT.print()


def _by_kind(findings: Sequence[Finding]) -> Iterator[list[Finding]]:
    """Group findings that say the same of different rows, the worst first."""
    from curate.trainer_check.findings import EFFECTS

    def kind(finding: Finding) -> tuple[int, str, str, str]:
        return EFFECTS.index(finding.effect), finding.code, finding.does, finding.basis

    for _, group in groupby(sorted(findings, key=kind), key=kind):
        yield list(group)


def _show_group(group: Sequence[Finding], trainer: str) -> None:
    first = group[0]
    rows = [finding.row for finding in group if finding.row is not None]
    color = _COLORS[first.effect]
    noun = "row" if len(rows) == 1 else "rows"
    where = f": {noun} {first_of(rows, _SHOWN)}" if rows else ""
    OUT.print(Text.assemble(("  " + _word(first.effect), color), f"  {first.code}{where}"))
    _print_indented(f"{trainer} would {first.does} ({first.basis}, {first.version})")
    _print_indented(f"do: {first.do}")
    if first.detail:
        _print_indented(("e.g. " if len(rows) > 1 else "") + first.detail, "dim")


def _print_indented(text: str, style: str = "") -> None:
    for line in OUT.render_str(escape(text), style=style).wrap(OUT, min(OUT.width, 80) - 4):
        OUT.print(Text("    ") + line)


def _word(effect: str) -> str:
    return effect.replace("_", "-")


def _show_lengths(lengths: Lengths) -> None:
    limit = "none" if lengths.limit is None else f"{lengths.limit:,}"
    OUT.print(Text(f"  {lengths.setting} {limit}"))
    if not lengths.needed:
        return
    ninety_nine, longest = lengths.keeping(99), lengths.keeping(100)
    _print_indented(f"tokens a row: median {lengths.keeping(50):,}, longest {longest:,}")
    if ninety_nine < longest:
        _print_indented(f"{lengths.setting}={ninety_nine} keeps 99 % of the rows whole")
    _print_indented(f"{lengths.setting}={longest} keeps all of them whole")
    if not lengths.exact:
        _print_indented(
            "counted with the tokenizer's template; the trainer's own may differ a little"
        )


def _show_replay(replay: Replay) -> None:
    result = replay.error or f"keeps {replay.rows_kept:,} of {plural(replay.rows_in, 'row')}"
    OUT.print(Text(f"  {replay.version} itself:"))
    _print_indented(result)
