"""`curate run`: run a recipe from source to export, and print the result."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Annotated, Literal

import typer
from rich.markup import escape

from curate.cli.closing import show_end, show_run
from curate.cli.console import (
    ERR,
    OUT,
    AsJson,
    Limit,
    Overrides,
    Quiet,
    RecipeFile,
    print_json,
    print_line,
    resumable,
)
from curate.errors import UsageError


def run(
    recipe: RecipeFile,
    set_: Overrides = None,
    limit: Limit = None,
    out: Annotated[
        str | None, typer.Option(help="Run folder, or URL of one (default runs/<name>).")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Validate everything and print the plan.")
    ] = False,
    retry: Annotated[
        Literal["unscored"] | None, typer.Option(help="Ask again for dialogues without a score.")
    ] = None,
    keep_going: Annotated[
        bool,
        typer.Option(
            "--keep-going", help="Continue even if a stage's first 50 dialogues all get no result."
        ),
    ] = False,
    executor: Annotated[
        Literal["local", "ray"] | None,
        typer.Option(help="Where stages run (default: as the recipe says)."),
    ] = None,
    address: Annotated[
        str | None, typer.Option(help="Ray cluster to join ('auto', host:port); implies ray.")
    ] = None,
    verbose: Annotated[
        bool,
        typer.Option(
            "--verbose", "-v", help="Also print funnels, tokens by stage, checks and the estimate."
        ),
    ] = False,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Run a recipe from source to export, or resume it where it stopped."""
    from curate.cli.progress import RunProgress
    from curate.recipe import load_recipe
    from curate.run.pipeline import run_recipe
    from curate.storage.remote import RemoteFolder, is_url, local_folder

    if executor == "local" and address is not None:
        raise UsageError(
            "--address names a Ray cluster, and --executor local joins none",
            got=f"--executor local --address {address}",
            expected="--executor ray, or no --address",
        )
    OUT.quiet = False  # how a run ended is printed in any case
    changes = list(set_ or [])
    if executor is not None or address is not None:
        changes.append(f"executor.kind={executor or 'ray'}")
    if address is not None:
        changes.append(f'executor.address="{address}"')
    loaded = load_recipe(recipe, changes)
    if dry_run:
        from curate.cli.estimate import show_plan
        from curate.executors.loop import run as run_in_loop
        from curate.run.plan import make_plan

        folder = None if out is None else local_folder(out)
        if out is not None and folder is not None and is_url(out):
            RemoteFolder(out, folder)  # raises if the URL cannot be reached
        show_plan(OUT, run_in_loop(make_plan(loaded, limit=limit, out=folder)))
        return
    # Lines of progress go to standard output where that is a log, but not into a JSON object.
    consoles = (ERR,) if as_json else (ERR, OUT)
    with resumable(), nullcontext() if quiet else RunProgress(*consoles) as progress:
        result = run_recipe(
            loaded,
            out=out,
            limit=limit,
            retry_unscored=retry is not None,
            keep_going=keep_going,
            progress=progress,
            notify=lambda message: ERR.print(escape(message), soft_wrap=True),
        )
    if as_json:
        print_json(result.manifest)
    elif quiet:
        show_end(OUT, result)
    else:
        show_run(OUT, result, verbose=verbose)
    if out is not None and is_url(out) and not as_json:
        print_line(f"copied to {out}")
    raise typer.Exit(result.exit_code)
