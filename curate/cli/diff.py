"""`curate diff`: compare two runs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from curate.cli.console import OUT, AsJson, print_json, print_line
from curate.cli.printing import clip, ends, number_table
from curate.cli.report import show_written
from curate.wording import first_of

if TYPE_CHECKING:
    from curate.run.diff import RunChange, RunDiff
    from curate.trust.run_comparison import TableDiff

_NAMED = 5
_VALUE = 60


def diff(
    first: Annotated[Path, typer.Argument(metavar="RUN1", help="Run folder to compare with.")],
    second: Annotated[Path, typer.Argument(metavar="RUN2", help="Run folder.")],
    page: Annotated[
        Path | None,
        typer.Option(
            "--html",
            metavar="FILE",
            help="Also write a page that shows each dialogue with both scorings.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Compare two runs: recipes and judges, verdicts, sets, scores, pairs."""
    from curate.run.diff import diff_runs
    from curate.run.diff_page import write_diff_page

    difference = diff_runs(first, second)
    written = None if page is None else write_diff_page(difference, page)
    if as_json:
        print_json(difference)
        return
    _show(difference)
    if written is not None:
        show_written(written, "dialogues that came out differently")


def _show(difference: RunDiff) -> None:
    """Print what is different, causes first and the sentence last."""
    table = difference.dialogues
    print_line(f"{escape(difference.first)} -> {escape(difference.second)}")
    OUT.print(
        f"dialogues in both {table.both:,}, only in the first {len(table.only_first):,}, only in the second "
        f"{len(table.only_second):,}"
    )
    if table.other_content:
        OUT.print(
            f"[yellow]compared although content, role or scenario differ:[/yellow] "
            f"{escape(_ids(table.other_content))}"
        )
    _show_changes("recipe", difference.recipe)
    for stage, changes in difference.judges.items():
        _show_changes(f"model of stage {stage}", changes)
    _show_changes("versions", difference.versions)
    _show_changes("figures", difference.figures)
    for trust in difference.trust:
        OUT.print(f"[bold]{escape(trust.key)}[/bold], first: {escape(str(trust.before))}")
        OUT.print(f"  second: {escape(str(trust.after))}")
    _show_verdicts(table)
    _show_shifts(table)
    sets = {f"set {name}": change for name, change in table.sets.items()}
    pairs = {kind.replace("_", " "): change for kind, change in difference.pairs.items()}
    for name, change in (sets | pairs).items():
        OUT.print(
            f"{name}: {change.before:,} -> {change.after:,}; gained {escape(_ids(change.gained))}; "
            f"lost {escape(_ids(change.lost))}"
        )
    _show_changes("dropped pairs by reason", difference.drop_reasons)
    OUT.print(f"\n{escape(difference.sentence)}")


def _show_changes(title: str, changes: Sequence[RunChange]) -> None:
    if not changes:
        return
    OUT.print(f"[bold]{title}[/bold]")
    for change in changes:
        OUT.print(
            f"  {escape(change.key)}: {escape(_value(change.before))} -> {escape(_value(change.after))}"
        )


def _value(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    return "(none)" if value is None else clip(str(value), _VALUE)


def _ids(ids: Sequence[str]) -> str:
    if not ids:
        return "0"
    more = ", …" if len(ids) > _NAMED else ""
    return f"{len(ids):,} ({', '.join(ids[:_NAMED])}{more})"


def _show_verdicts(table: TableDiff) -> None:
    rate, interval = table.same_verdict, table.same_verdict_interval
    if not rate.of or interval is None:
        return
    columns = list(dict.fromkeys(name for row in table.verdicts.values() for name in row))
    grid = number_table("verdict, first run down", *columns)
    for before, row in table.verdicts.items():
        grid.add_row(before, *(f"{row[name]:,}" if name in row else "" for name in columns))
    OUT.print(grid)
    OUT.print(
        f"same verdict: {rate.described}, 95 % {ends(interval, '.0%')}; better {table.better:,}, worse "
        f"{table.worse:,}"
    )
    if table.changed_verdicts:
        shown = [f"{one.id} ({one.before} -> {one.after})" for one in table.changed_verdicts]
        OUT.print(f"  {escape(first_of(shown, _NAMED))}")


def _show_shifts(table: TableDiff) -> None:
    if not table.shifts:
        return
    grid = number_table("score", "n", "first", "second", "shift", "95 %", "gained", "lost")
    for shift in table.shifts:
        grid.add_row(
            escape(shift.column),
            f"{shift.n:,}",
            f"{shift.before:.2f}",
            f"{shift.after:.2f}",
            f"{shift.shift:+.2f}",
            ends(shift.interval, "+.2f"),
            f"{shift.gained:,}",
            f"{shift.lost:,}",
        )
    OUT.print(grid)
