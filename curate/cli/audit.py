"""`curate audit`: find what is wrong with a run, without labels."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape
from rich.padding import Padding

from curate.cli.console import ERR, OUT, AsJson, print_json, print_line, resumable
from curate.cli.printing import ends, number_cell, number_table
from curate.errors import UsageError
from curate.wording import plural

if TYPE_CHECKING:
    from curate.records import AuditCheck, AuditReport

_NAMED = 3
_STYLES = {"warn": "yellow", "pass": "", "not_enough_data": "dim"}
_ENDING = "A check that passes found no sign of a fault; only people's labels can show whether the judge is right."


def audit(
    run_folder: Annotated[Path, typer.Argument(metavar="RUN", help="Run folder.")],
    again: Annotated[
        float | None,
        typer.Option(
            metavar="SHARE",
            help="Judge this share of the dialogues a second time, e.g. 0.05. Makes model calls.",
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="With --again: print what it would cost, and stop.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Look for what is wrong with a run, without labels: figures, thresholds, and the ids behind them."""
    from curate.cli.progress import one_bar
    from curate.run.audit import audit_run, plan_second_judging
    from curate.run.trust_reports import write_trust_report

    if dry_run and again is None:
        raise UsageError(
            "an audit without --again makes no model calls, so there is nothing to estimate",
            got="--dry-run",
            expected="--dry-run with --again SHARE",
        )
    plan = None if again is None else plan_second_judging(run_folder, again)
    if plan is not None and (dry_run or not as_json):
        (ERR if as_json else OUT).print(
            f"judging {len(plan.keys):,} of {plural(plan.judged, 'dialogue')} again: {plural(plan.requests, 'request')}, as many as "
            "the first time",
            soft_wrap=True,
        )
    if dry_run:
        return
    with resumable(), one_bar("judged again", hidden=plan is None) as progress:
        report = audit_run(run_folder, plan, progress)
    path = write_trust_report(run_folder, report)
    if as_json:
        print_json(report)
        return
    _show(report)
    print_line(f"written: {escape(str(path))}, with the ids behind each figure")
    OUT.print(_ENDING)


def _show(report: AuditReport) -> None:
    """Print a table of the figures, what each warning means and which dialogues to read, and the sentence."""
    table = number_table("check", "figure", "95 %", "limit", "n", "", texts=("",))
    part = ""
    for check in report.checks:
        if check.status == "not_run":
            continue
        if check.part != part:
            part = check.part
            table.add_row(f"[bold]{part}[/bold]")
        table.add_row(
            Padding(escape(check.name), (0, 0, 0, 2)),
            number_cell(check.figure),
            ends(check.interval),
            f"{check.threshold:.2f}",
            f"{check.n:,}",
            check.status.replace("_", " ").replace("not enough data", "too little"),
            style=_STYLES[check.status],
        )
    if table.row_count:
        OUT.print(table)
    if report.weakest_fifths:
        shares = " ".join(f"{share:.2f}" for share in report.weakest_fifths)
        OUT.print(
            f"weakest turns by fifth of the dialogue: {shares} (0.20 each if position had no effect)"
        )
    for check in report.checks:
        if check.status == "warn":
            OUT.print(
                f"[yellow]warn[/yellow] {check.part}, {escape(check.name)}: {escape(check.detail)}."
                f"{escape(_named(check))}"
            )
    _show_not_checked(report.checks)
    OUT.print(f"\n{escape(report.sentence)}")


def _named(check: AuditCheck) -> str:
    more = f" and {check.behind - _NAMED:,} more" if check.behind > _NAMED else ""
    return f" Look at {', '.join(check.ids[:_NAMED])}{more}" if check.ids else ""


def _show_not_checked(checks: Sequence[AuditCheck]) -> None:
    """Print the checks that could not be made, one line for each reason."""
    reasons: dict[str, list[str]] = {}
    for check in checks:
        if check.status in ("not_run", "not_enough_data"):
            reasons.setdefault(check.detail, []).append(f"{check.part} ({check.name})")
    for reason, names in reasons.items():
        which = names[0] if len(names) == 1 else f"{plural(len(names), 'check')}, {names[0]} first"
        OUT.print(f"[dim]not checked: {escape(which)}: {escape(reason)}[/dim]")
