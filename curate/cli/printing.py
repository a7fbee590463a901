"""Printing that several commands share: sources, messages, labels that were not used, tables of numbers."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from curate.cli.console import print_line
from curate.wording import plural

if TYPE_CHECKING:
    from curate.dialogue import Message
    from curate.records import JudgeIdentity
    from curate.trust.label_rows import Unused


def clip(text: str, most: int = 300) -> str:
    """Return the text in one line of at most so many characters."""
    flat = " ".join(text.split())
    return flat if len(flat) <= most else flat[: most - 1] + "…"


def duration(seconds: float) -> str:
    """Return seconds for people: `3.2 s`, `12 min`, `2 h 5 min`."""
    if seconds < 100:
        return f"{seconds:.3g} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 120 else f"{minutes // 60} h {minutes % 60} min"


def listed(counts: Mapping[str, object]) -> str:
    """Return names with their numbers, sorted by name, in one line."""
    return ", ".join(f"{name} {number}" for name, number in sorted(counts.items()))


def number_table(first: str, *columns: str, texts: Collection[str] = (), **options: Any) -> Table:
    """Return an empty table: the first column and those in `texts` are left-aligned, the others right-aligned.

    Args:
        options: those of `rich.table.Table`.
    """
    table = Table(box=None, pad_edge=False, **options)
    table.add_column(first)
    for column in columns:
        table.add_column(column, justify="left" if column in texts else "right")
    return table


def show_unused(unused: Unused, of: int | None = None) -> None:
    """Print how many labels were not used, by reason; `of` is the number of all labels."""
    whole = "" if of is None else f" of {plural(of, 'row')}"
    for reason, number in unused.counts.items():
        print_line(
            f"[yellow]not used:[/yellow] {number:,}{whole}: {escape(reason)}; the first is {escape(unused.first[reason])}"
        )


def show_assumed_scales(assumed: Mapping[str, str]) -> None:
    """Print the scales assumed for labels whose scale was not stated and cannot be seen from their values."""
    if assumed:
        print_line(
            f"[yellow]assumed scales:[/yellow] {escape('; '.join(f'{name} {scale}' for name, scale in assumed.items()))}"
            f" (state another: --scale {next(iter(assumed))}=LOWEST-HIGHEST)"
        )


def show_source(console: Console, source: Mapping[str, Any]) -> None:
    """Print a source's shape and what became of its rows."""
    console.print(
        f"[bold]{escape(str(source['path']))}[/bold]: shape [bold]{source['shape']}[/bold], "
        f"confidence {source['confidence']:.2f}"
    )
    if "mapping" in source:
        console.print(f"  found by structure: {escape(str(source['why']))}")
    for name, why in source["skipped_files"].items():
        console.print(f"  not read: {escape(name)} ({escape(why)})")
    console.print(
        f"  rows in {source['rows_in']:,} = used {source['rows_used']:,} + "
        f"quarantined {source['quarantined']:,}; dialogues {source['dialogues']:,}"
    )
    for key, label in (
        ("reasons", "quarantined for"),
        ("part_reasons", "parts put aside for"),
        ("rows_left_out", "rows left out before these"),
        ("items_left_out", "left out of conversations"),
        ("joined", "the joined file's rows"),
    ):
        if source.get(key):
            console.print(f"  {label}: {escape(listed(source[key]))}")


def number_cell(value: float | None, form: str = ".2f") -> str:
    """Return a number in a format of Python's; empty for None."""
    return "" if value is None else format(value, form)


def ends(interval: tuple[float, float] | None, form: str = ".2f") -> str:
    """Return the two ends of an interval: `0.12 to 0.34`; empty for None."""
    return "" if interval is None else f"{interval[0]:{form}} to {interval[1]:{form}}"


def short(value: float | None) -> str:
    """Return two decimals without the leading zero; empty for None."""
    if value is None:
        return ""
    text = f"{value:.2f}"
    if text == "-0.00":
        return ".00"
    return text.replace("0.", ".", 1) if text.lstrip("-").startswith("0.") else text


def with_interval(
    value: float | None, interval: tuple[float, float] | None, *, tight: bool = False
) -> str:
    """Return a figure with its interval: `.39 (.34 to .44)`, or `.39 .34:.44` if `tight`."""
    if value is None or interval is None:
        return short(value)
    low, high = map(short, interval)
    return f"{short(value)} {low}:{high}" if tight else f"{short(value)} ({low} to {high})"


def model_line(stage: str, identity: JudgeIdentity) -> str:
    """Return a stage's model and mode in one line."""
    return (
        f"{stage}: {escape(identity.model)} ({identity.engine}), mode [bold]{identity.mode}[/bold]"
    )


def show_message(console: Console, message: Message) -> None:
    """Print a message in one line: role, calls, clipped text."""
    calls = "".join(f" calls {call.name}" for call in message.tool_calls)
    console.print(f"  [cyan]{message.role}[/cyan]{escape(calls)}: {escape(clip(message.content))}")
