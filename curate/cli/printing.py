"""What several commands print: sources, estimates beside what came, messages, tables of numbers."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from curate.cli.console import OUT
from curate.wording import plural

if TYPE_CHECKING:
    from curate.dialogue import Message
    from curate.records import (
        AdherenceDecay,
        FactualityReport,
        JudgeChecks,
        Manifest,
        MetricsReport,
    )
    from curate.trust.gold import Unused

_CLIP = 300


def clip(text: str) -> str:
    """The text in one line, cut where it is long."""
    flat = " ".join(text.split())
    return flat if len(flat) <= _CLIP else flat[: _CLIP - 1] + "…"


def duration(seconds: float) -> str:
    """Seconds as a person says them."""
    if seconds < 100:
        return f"{seconds:.3g} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 120 else f"{minutes // 60} h {minutes % 60} min"


def listed(counts: Mapping[str, object]) -> str:
    """Names with their numbers, in one line."""
    return ", ".join(f"{name} {number}" for name, number in sorted(counts.items()))


def number_table(first: str, *columns: str, texts: Collection[str] = (), **options: Any) -> Table:
    """A table of names and right-aligned numbers; columns of `texts` stand left, too. Options are those of `Table`."""
    table = Table(box=None, pad_edge=False, **options)
    table.add_column(first)
    for column in columns:
        table.add_column(column, justify="left" if column in texts else "right")
    return table


def show_unused(unused: Unused, of: int | None = None) -> None:
    """Labels that were not used, by reason; `of` is how many there are."""
    whole = "" if of is None else f" of {plural(of, 'row')}"
    for reason, number in unused.counts.items():
        OUT.print(
            f"[yellow]not used:[/yellow] {number:,}{whole}: {escape(reason)}; the first is {escape(unused.first[reason])}",
            soft_wrap=True,
        )


def show_source(console: Console, source: Mapping[str, Any]) -> None:
    """What a source is and what became of its rows."""
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


def short(value: float | None) -> str:
    """Two decimals without the leading zero; empty for None."""
    if value is None:
        return ""
    text = f"{value:.2f}"
    if text == "-0.00":
        return ".00"
    return text.replace("0.", ".", 1) if text.lstrip("-").startswith("0.") else text


def with_interval(
    value: float | None, interval: tuple[float, float] | None, *, tight: bool = False
) -> str:
    """A figure with its interval: `.39 (.34 to .44)`, or `.39 .34:.44` where there is little room."""
    if value is None or interval is None:
        return short(value)
    low, high = map(short, interval)
    return f"{short(value)} {low}:{high}" if tight else f"{short(value)} ({low} to {high})"


def show_message(console: Console, message: Message) -> None:
    """A message in a line: role, calls, clipped text."""
    calls = "".join(f" calls {call.name}" for call in message.tool_calls)
    console.print(f"  [cyan]{message.role}[/cyan]{escape(calls)}: {escape(clip(message.content))}")


def show_comparison(console: Console, manifest: Manifest) -> None:
    """What was expected beside what happened, where the run was estimated at its start."""
    from curate.planning.estimate_beside_actual import compare

    compared = compare(manifest)
    if compared is None:
        return
    table = number_table("", "expected", "actual")
    for row in compared.rows:
        table.add_row(row.name, row.shown(row.expected), row.shown(row.actual))
    console.print(table)
    for note in compared.notes:
        console.print(f"  [dim]{escape(note)}[/dim]")


def show_funnels(console: Console, manifest: Manifest) -> None:
    """From dialogues to pairs: what entered each stage, what it dropped and why, what passed it."""
    for kind, stages in manifest.funnels.items():
        columns = ("stage", "of", "in", "passed", "dropped")
        title = f"pairs: {kind}"
        table = number_table(*columns, texts=("of", "dropped"), title=title, title_justify="left")
        unit = ""
        for stage in stages:
            shown = stage.unit if stage.unit != unit else ""
            unit = stage.unit
            numbers = (f"{stage.entered:,}", f"{stage.passed:,}")
            dropped = ", ".join(f"{code} {number}" for code, number in stage.dropped.items())
            table.add_row(stage.name, shown, *numbers, dropped)
        console.print(table)


def show_judge_checks(console: Console, checks: JudgeChecks, *, whole: bool = False) -> None:
    """How often the judge of a run disagrees with itself, and the ways to fail that it shows.

    Args:
        whole: a table of all ways, not only those that it shows.
    """
    from curate.trust.failure_modes import mode_rows, summary_lines
    from curate.trust.judge_checks import described

    for line in described(checks) + ([] if whole else summary_lines(checks.failure_modes)):
        console.print(escape(line))
    if not whole:
        return
    table = number_table("known way of judges to fail", "figure", "at most", "", "", texts=("",))
    for *cells, detail in mode_rows(checks.failure_modes):
        style = {"warn": "yellow", "pass": ""}.get(cells[-1], "dim")
        table.add_row(*cells, escape(detail), style=style)
    console.print(table)


def show_metrics(console: Console, report: MetricsReport) -> None:
    """The weighted metrics over all dialogues that they score: a line for the whole, and one a metric."""
    if not report.dialogues:
        return
    console.print(
        f"metrics: overall {report.overall_mean:.1f} of 100 on average, {report.passed:,} of {report.dialogues:,} "
        f"pass; weights changed by up to 20 % would turn {report.flippable:,} of them round"
    )
    table = number_table("metric", "weight", "mean", "scored", "n/a", "poor")
    table.add_column("commonest failures")
    for name, held in report.metrics.items():
        codes = ", ".join(f"{code} {number}" for code, number in [*held.failure_codes.items()][:3])
        table.add_row(
            name,
            f"{held.weight:.3f}",
            "" if held.mean is None else f"{held.mean:.2f}",
            f"{held.scored:,}",
            f"{held.na:,}",
            f"{held.poor:,}",
            escape(codes),
        )
    console.print(table)


def show_factuality(console: Console, report: FactualityReport) -> None:
    """The facts over all dialogues: precision, claims by label, and what they were held against."""
    if not report.dialogues:
        return
    mean = report.mean_precision
    console.print(
        "facts: "
        + ("no claims" if mean is None else f"precision {mean:.2f} a dialogue on average")
        + f"; claims: {listed(report.labels) or 'none'}; held against: {listed(report.evidence) or 'nothing'}"
    )


def show_decay(console: Console, decay: AdherenceDecay, positions: int = 10) -> None:
    """How role adherence changes with the turns: a line for the whole, a table of the first positions."""
    slope, median = decay.slope, decay.median_turns_in_role
    said = []
    if slope is not None:
        ends = decay.slope_interval
        shown = "" if ends is None else f" ({ends[0]:+.3f} to {ends[1]:+.3f})"
        said.append(f"{slope:+.3f}{shown} from one turn to the next")
    said.append(
        "fewer than half of the dialogues break their role"
        if median is None
        else f"half of the dialogues have broken their role by turn {median}"
    )
    console.print(f"role adherence by turn: {'; '.join(said)}")
    if not positions:
        return
    table = Table(box=None, pad_edge=False)
    for column in (
        "reply",
        "scored",
        "mean",
        "95 %",
        "first broken",
        "of",
        "still in role",
        "95 %",
    ):
        table.add_column(column, justify="right")
    for held in decay.positions[:positions]:
        low, high = held.interval or (None, None)
        table.add_row(
            str(held.position),
            f"{held.scored:,}",
            "" if held.mean is None else f"{held.mean:.3f}",
            "" if low is None else f"{low:.3f}-{high:.3f}",
            f"{held.violations:,}",
            f"{held.at_risk:,}",
            f"{held.survival:.3f}",
            "{:.3f}-{:.3f}".format(*held.survival_interval),
        )
    console.print(table)
    if len(decay.positions) > positions:
        console.print(f"[dim]… {len(decay.positions) - positions} more in manifest.json[/dim]")
