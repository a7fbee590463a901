"""How plans look in a terminal of 80 columns: what a run will ask, beside what it asked, and `doctor`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from curate.planning.actual import compare
from curate.planning.doctor import EngineReport, Report
from curate.planning.plan import Plan
from curate.recipe import left_out_of_cost
from curate.records import Estimate, Manifest, StageEstimate

_COLUMNS = {
    "requests": "requests",
    "prompt_tokens": "tokens in",
    "prefilled_tokens": "after sharing",
    "completion_tokens": "tokens out",
}


def show_plan(console: Console, plan: Plan) -> None:
    """What would be read, who would be asked, and how much."""
    asked = "nothing was asked"
    if plan.measured is not None:
        usage = plan.measured.usage
        asked = (
            f"{plan.measured.calls} calls were made to measure the rates: {usage.prompt_tokens:,} tokens in, "
            f"{usage.completion_tokens:,} out"
        )
    console.print(f"[bold]plan[/bold] of recipe '{escape(plan.recipe.name)}' ({asked})")
    for source in plan.sources:
        show_source(console, source)
    for name, identity in plan.identities.items():
        console.print(
            f"{name}: {escape(identity.model)} ({identity.engine}), mode [bold]{identity.mode}[/bold]"
        )
    if plan.policy is not None:
        console.print(f"policy: {escape(plan.policy.model)} ({plan.policy.engine})")
    if plan.estimate is not None:
        _show_estimate(console, plan.estimate)
        if plan.left is not None:
            _show_left(console, plan.left, plan.estimate)
    for warning in plan.warnings:
        console.print(f"[yellow]warning:[/yellow] {escape(warning)}")
    console.print(f"would write {escape(str(plan.folder))}")


def _show_estimate(console: Console, expected: Estimate) -> None:
    table = _table("stage", *_COLUMNS.values())
    rows: dict[str, StageEstimate] = dict(expected.stages)
    if len(rows) > 1:
        rows["all"] = expected.total
    for name, stage in rows.items():
        table.add_row(name, *(f"{getattr(stage, column):,}" for column in _COLUMNS))
    intervals = [
        _between(expected.total.intervals.get(column), "{:,.0f}".format) for column in _COLUMNS
    ]
    if any(intervals):
        table.add_row("95 %", *intervals, style="dim")
    console.print(table)
    console.print(f"estimated from {expected.sampled} of {expected.dialogues} dialogues")
    if expected.seconds is not None:
        about = _between(expected.seconds_interval, duration)
        console.print(f"time: {duration(expected.seconds)}" + (f" ({about})" if about else ""))
    else:
        console.print("time: no rate is known; give --rate, --rate-from or --measure")
    if expected.cost is not None:
        about = _between(expected.cost_interval, "{:,.4g}".format)
        console.print(
            f"cost at the recipe's prices: {expected.cost:,.4g}"
            + (f" ({about})" if about else "")
            + f"; with nothing cached {expected.cost_without_cache or 0:,.4g}"
        )
        if expected.unpriced:
            console.print(f"  {left_out_of_cost(expected.unpriced)}")
    for assumption in expected.assumptions:
        console.print(f"  assumed: {escape(assumption)}")


def _show_left(console: Console, left: Estimate, whole: Estimate) -> None:
    """What of it is not there yet, from kept rows and replies."""
    total = left.total
    said = f"left to do: {total.requests:,} of {whole.total.requests:,} requests"
    if not total.requests:
        console.print(f"[bold]{said}[/bold]; all is kept from before")
        return
    parts = [
        f"{total.prompt_tokens:,} tokens in",
        f"{total.prefilled_tokens:,} after sharing",
        f"{total.completion_tokens:,} out",
    ]
    if left.seconds is not None:
        parts.append(duration(left.seconds))
    if left.cost is not None:
        parts.append(f"cost {left.cost:,.4g}")
    stages = {name: f"{stage.requests:,}" for name, stage in left.stages.items()}
    console.print(f"[bold]{said}[/bold] ({', '.join(f'{n} {of}' for n, of in stages.items())})")
    console.print(f"  {', '.join(parts)}")


def _between(interval: tuple[float, float] | None, write: Any) -> str:
    if interval is None or interval[0] == interval[1]:
        return ""
    return f"{write(interval[0])} to {write(interval[1])}"


def duration(seconds: float) -> str:
    """Seconds as a person says them."""
    if seconds < 100:
        return f"{seconds:.3g} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 120 else f"{minutes // 60} h {minutes % 60} min"


def show_comparison(console: Console, manifest: Manifest) -> None:
    """What was expected beside what happened, where the run was estimated at its start."""
    compared = compare(manifest)
    if compared is None:
        return
    table = _table("", "expected", "actual")
    for row in compared.rows:
        table.add_row(row.name, row.shown(row.expected), row.shown(row.actual))
    console.print(table)
    for note in compared.notes:
        console.print(f"  [dim]{escape(note)}[/dim]")


def show_report(console: Console, report: Report) -> None:
    """What `curate doctor` found."""
    versions = ", ".join(f"{name} {number}" for name, number in report.versions.items())
    console.print(escape(versions))
    for extra in report.extras:
        state = (
            "installed" if not extra.missing else f"not installed: {escape(extra.install or '')}"
        )
        console.print(f"extra {extra.name}: {state}", soft_wrap=True)
    machine = report.machine
    gpus = ", ".join(machine.gpus) or "no GPU found"
    cores = f"{machine.cores} core{'s' * (machine.cores != 1)}"
    console.print(f"{cores}, {machine.memory_gib:.1f} GiB memory, {escape(gpus)}")
    folder = report.folder
    state = "can be written" if folder.is_writable else "[red]cannot be written[/red]"
    console.print(f"{escape(folder.path)}: {state}, {folder.free_gib:.1f} GiB free")
    for engine in report.engines:
        _show_engine(console, engine)
    for warning in report.warnings:
        console.print(f"[yellow]warning:[/yellow] {escape(warning)}")
    if report.is_usable and any(engine.warnings for engine in report.engines):
        console.print("[bold]usable; read the warnings[/bold]")
    elif report.is_usable:
        console.print("[bold]all usable[/bold]")
    else:
        console.print("[bold red]not usable as it is[/bold red]")


def _show_engine(console: Console, engine: EngineReport) -> None:
    roles = ", ".join(engine.roles)
    console.print(f"\n[bold]{roles}[/bold]: {escape(engine.model)} ({engine.engine})")
    if engine.problem is not None:
        console.print(f"  [red]cannot be used:[/red] {escape(engine.problem)}", soft_wrap=True)
        return
    if engine.facts:
        for name, value in engine.facts.items():
            console.print(f"  {escape(name)}: {escape(value)}")
    else:
        can = [name for name, has in engine.capabilities.items() if has]
        cannot = [name for name, has in engine.capabilities.items() if not has]
        console.print(f"  can: {', '.join(can) or 'text in, text out'}")
        if cannot:
            console.print(f"  cannot: {', '.join(cannot)}")
        context = f"{engine.context_tokens:,} tokens" if engine.context_tokens else "not told"
        console.print(f"  context {context}; {engine.open_dialogues} dialogues open at once")
    for mode in engine.modes:
        if mode.mode is None:
            console.print(f"  [red]{mode.stage}:[/red] {escape(mode.why)}", soft_wrap=True)
        else:
            console.print(f"  {mode.stage}: mode [bold]{mode.mode}[/bold], {escape(mode.why)}")
    for warning in engine.warnings:
        console.print(f"  [yellow]warning:[/yellow] {escape(warning)}")


def show_source(console: Console, source: Mapping[str, Any]) -> None:
    """What a source is and what became of its rows."""
    console.print(
        f"[bold]{escape(str(source['path']))}[/bold]: shape [bold]{source['shape']}[/bold], "
        f"confidence {source['confidence']:.2f}"
    )
    for name, why in source["skipped_files"].items():
        console.print(f"  not read: {escape(name)} ({escape(why)})")
    console.print(
        f"  rows in {source['rows_in']} = used {source['rows_used']} + "
        f"quarantined {source['quarantined']}; dialogues {source['dialogues']}"
    )
    for key, label in (("reasons", "quarantined for"), ("part_reasons", "parts put aside for")):
        if source[key]:
            console.print(f"  {label}: {escape(listed(source[key]))}")


def _table(first: str, *columns: str) -> Table:
    table = Table(box=None, pad_edge=False)
    table.add_column(first)
    for column in columns:
        table.add_column(column, justify="right")
    return table


def listed(counts: Mapping[str, object]) -> str:
    """Names with their numbers, in one line."""
    return ", ".join(f"{name} {number}" for name, number in sorted(counts.items()))
