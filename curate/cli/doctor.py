"""`curate doctor`: check what is installed and what each engine of a recipe can do."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from curate.cli.console import OUT, AsJson, OptionalRecipe, Overrides, print_json, print_line
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
        _show(report)
    raise typer.Exit(exit_codes.DONE if report.is_usable else exit_codes.FAILED)


def _show(report: Report) -> None:
    versions = ", ".join(f"{name} {number}" for name, number in report.versions.items())
    OUT.print(escape(versions))
    for extra in report.extras:
        state = f"not installed: {escape(extra.install or '')}" if extra.missing else "installed"
        print_line(f"extra {extra.name}: {state}")
    machine = report.machine
    gpus = ", ".join(machine.gpus) or "no GPU found"
    OUT.print(
        f"{plural(machine.cores, 'core')}, {machine.memory_gib:.1f} GiB memory, {escape(gpus)}"
    )
    folder = report.folder
    state = "can be written" if folder.is_writable else "[red]cannot be written[/red]"
    OUT.print(f"{escape(folder.path)}: {state}, {folder.free_gib:.1f} GiB free")
    for engine in report.engines:
        _show_engine(engine)
    for warning in report.warnings:
        OUT.print(f"[yellow]warning:[/yellow] {escape(warning)}")
    if report.is_usable and any(engine.warnings for engine in report.engines):
        OUT.print("[bold]usable; read the warnings[/bold]")
    elif report.is_usable:
        OUT.print("[bold]all usable[/bold]")
    else:
        OUT.print("[bold red]not usable as it is[/bold red]")


def _show_engine(engine: EngineReport) -> None:
    roles = ", ".join(engine.roles)
    OUT.print(f"\n[bold]{roles}[/bold]: {escape(engine.model)} ({engine.engine})")
    if engine.problem is not None:
        print_line(f"  [red]cannot be used:[/red] {escape(engine.problem)}")
        return
    if engine.facts:
        for name, value in engine.facts.items():
            OUT.print(f"  {escape(name)}: {escape(value)}")
    else:
        abilities = [name for name, has in engine.capabilities.items() if has]
        missing = [name for name, has in engine.capabilities.items() if not has]
        OUT.print(f"  can: {', '.join(abilities) or 'text in, text out'}")
        if missing:
            OUT.print(f"  cannot: {', '.join(missing)}")
        context = plural(engine.context_tokens, "token") if engine.context_tokens else "unknown"
        OUT.print(f"  context {context}; {plural(engine.open_dialogues, 'dialogue')} open at once")
    for mode in engine.modes:
        if mode.mode is None:
            print_line(f"  [red]{mode.stage}:[/red] {escape(mode.why)}")
        else:
            OUT.print(f"  {mode.stage}: mode [bold]{mode.mode}[/bold], {escape(mode.why)}")
    for warning in engine.warnings:
        OUT.print(f"  [yellow]warning:[/yellow] {escape(warning)}")
