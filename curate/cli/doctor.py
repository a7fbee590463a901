"""`curate doctor`: check what is installed and what each engine of a recipe can do."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape

from curate.cli.console import OUT, AsJson, OptionalRecipe, Overrides, print_json
from curate.run import exit_codes
from curate.wording import plural

if TYPE_CHECKING:
    from curate.planning.doctor import EngineReport, Report


def doctor(
    recipe: OptionalRecipe = None,
    set_: Overrides = None,
    out: Annotated[Path | None, typer.Option(help="Run folder (default runs/<name>).")] = None,
    as_json: AsJson = False,
) -> None:
    """Check what is installed and what each engine of a recipe can do; exit code 1 if one cannot be used."""
    from curate.executors.loop import run as run_in_loop
    from curate.planning.doctor import examine
    from curate.recipe import load_recipe

    loaded = load_recipe(recipe, set_ or []) if recipe is not None else None
    report = run_in_loop(examine(loaded, out))
    if as_json:
        print_json(report.model_dump(mode="json") | {"usable": report.is_usable})
    else:
        _show(OUT, report)
    raise typer.Exit(exit_codes.DONE if report.is_usable else exit_codes.FAILED)


def _show(console: Console, report: Report) -> None:
    versions = ", ".join(f"{name} {number}" for name, number in report.versions.items())
    console.print(escape(versions))
    for extra in report.extras:
        state = (
            "installed" if not extra.missing else f"not installed: {escape(extra.install or '')}"
        )
        console.print(f"extra {extra.name}: {state}", soft_wrap=True)
    machine = report.machine
    gpus = ", ".join(machine.gpus) or "no GPU found"
    cores = f"{plural(machine.cores, 'core')}"
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
        abilities = [name for name, has in engine.capabilities.items() if has]
        missing = [name for name, has in engine.capabilities.items() if not has]
        console.print(f"  can: {', '.join(abilities) or 'text in, text out'}")
        if missing:
            console.print(f"  cannot: {', '.join(missing)}")
        context = plural(engine.context_tokens, "token") if engine.context_tokens else "unknown"
        console.print(
            f"  context {context}; {plural(engine.open_dialogues, 'dialogue')} open at once"
        )
    for mode in engine.modes:
        if mode.mode is None:
            console.print(f"  [red]{mode.stage}:[/red] {escape(mode.why)}", soft_wrap=True)
        else:
            console.print(f"  {mode.stage}: mode [bold]{mode.mode}[/bold], {escape(mode.why)}")
    for warning in engine.warnings:
        console.print(f"  [yellow]warning:[/yellow] {escape(warning)}")
