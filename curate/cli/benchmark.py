"""`curate benchmark`: measure role adherence methods on labelled turns, beside trivial baselines."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich.markup import escape
from rich.table import Table as Grid

from curate.cli.console import ERR, OUT, AsJson, Overrides, print_json, print_line, resumable

if TYPE_CHECKING:
    from curate.benchmark.benchmark_run import Benchmark
    from curate.benchmark.paper_tables import Table

_HEADING = 12


def benchmark(
    source: Annotated[str, typer.Argument(metavar="FILE", help="Labelled turns, in any shape.")],
    methods: Annotated[
        str | None,
        typer.Option(help=r"E.g. cosine,knn\[k=2],llm_judge (default: the usual ones)."),
    ] = None,
    conditions: Annotated[
        str | None,
        typer.Option(help="How many first rows, e.g. 15,50,150 (default 15,50,all)."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder for tables.md, results.csv, scores, plots, replies.")
    ] = None,
    saved: Annotated[
        list[Path] | None, typer.Option(help="Scores made elsewhere (JSON). Repeatable.")
    ] = None,
    judge: Annotated[
        Path | None, typer.Option(help="Recipe to take the judge and the adherence section from.")
    ] = None,
    set_: Overrides = None,
    encoder: Annotated[
        str | None, typer.Option(help="Sentence encoder: a folder or a Hub id.")
    ] = None,
    label: Annotated[str, typer.Option(help="Label that says what a turn is.")] = "label",
    adherent: Annotated[
        str, typer.Option(help="The label's value for a turn that keeps its role.")
    ] = "adherent",
    shape: Annotated[str, typer.Option(help="Name the shape instead of detecting it.")] = "auto",
    threshold: Annotated[
        float | None,
        typer.Option(help="Score from which a continuous method says adherent, for F1 and kappa."),
    ] = None,
    block: Annotated[
        int, typer.Option(min=2, help="Rows of a block, for the baseline 'position'.")
    ] = 5,
    no_plots: Annotated[bool, typer.Option("--no-plots", help="Draw nothing.")] = False,
    as_json: AsJson = False,
) -> None:
    """Measure role adherence methods on labelled turns, beside trivial baselines."""
    from curate.benchmark.benchmark_run import Options, run_benchmark
    from curate.benchmark.labelled_turns import read_turns
    from curate.benchmark.methods import load_settings, parse_conditions
    from curate.benchmark.output import prepare_folder, read_saved_scores, write_benchmark
    from curate.benchmark.plots import check_plots, write_plots
    from curate.cli.progress import RunProgress

    is_drawn = out is not None and not no_plots
    if is_drawn:
        check_plots()
    settings = load_settings(
        source, methods, shape=shape, judge=judge, overrides=set_ or (), encoder=encoder
    )
    recipe = settings.recipe
    turns = read_turns(
        recipe.source[0],
        role=recipe.role,
        role_from=recipe.role_from,
        field=label,
        adherent=adherent,
    )
    options = Options(
        methods=settings.methods,
        saved=tuple(
            scores for path in saved or () for scores in read_saved_scores(path, len(turns))
        ),
        conditions=parse_conditions(conditions, len(turns)),
        recipe=recipe,
        store=out,
        tolerant=not settings.are_named,
        threshold=threshold,
        block=block,
    )
    if out is not None:
        prepare_folder(out)
    with resumable(), RunProgress(ERR) as progress:
        result = run_benchmark(turns, options, progress)
    written = [] if out is None else [*write_benchmark(result, out, Path(source).name)]
    if out is not None and is_drawn:
        written += write_plots(result, out)
    if as_json:
        print_json(_as_dict(result) | {"written": [str(path) for path in written]})
        return
    _show(result)
    if out is None:
        OUT.print("nothing was written; --out DIR keeps tables, scores and plots")
        return
    print_line(f"\nwritten to {escape(str(out))}:")
    OUT.print("  " + ", ".join(path.name for path in written))


def _as_dict(result: Benchmark) -> dict[str, Any]:
    """Return the object of `--json`: the printed tables, as in tables.md."""
    from curate.benchmark.paper_tables import tables_of

    return {
        "tables": [
            {name: getattr(table, name) for name in ("title", "columns", "rows", "note")}
            for table in tables_of(result)
        ],
        "not_run": result.not_run,
        "warnings": result.warnings,
    }


def _show(result: Benchmark) -> None:
    from curate.benchmark.output import by_reason, origin, summary
    from curate.benchmark.paper_tables import tables_of

    OUT.print(f"[bold]benchmark[/bold]: {escape(summary(result))}")
    for scores in result.full.methods:
        OUT.print(f"  {escape(scores.name)}: {escape(origin(scores))}")
    for reason, names in by_reason(result.not_run).items():
        OUT.print(f"  [yellow]{escape(', '.join(names))}: not run.[/yellow] {escape(reason)}")
    for warning in result.warnings:
        OUT.print(f"[yellow]warning:[/yellow] {escape(warning)}")
    for table in tables_of(result):
        OUT.print()
        OUT.print(f"[bold]{escape(table.title)}[/bold]")
        OUT.print(_grid(table))
        if table.note:
            OUT.print(escape(table.note), style="dim")


def _grid(table: Table) -> Grid:
    grid = Grid(box=None, pad_edge=False, padding=(0, 1, 0, 0))
    for place, column in enumerate(table.columns):
        is_text = place == 0 or column in table.texts
        side: Literal["left", "right"] = "left" if is_text else "right"
        # Figures stay whole; names fold where a line is too long, and long labels at their underscores.
        heading = column.replace("_", "_\n") if len(column) > _HEADING else column
        grid.add_column(escape(heading), justify=side, overflow="fold", no_wrap=not is_text)
    for row in table.rows:
        grid.add_row(*(escape(cell) for cell in row))
    return grid
