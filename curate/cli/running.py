"""The commands that read, run and look: one function a command."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from curate.cli.console import ERR, OUT, Limit, Overrides, print_json, resumable
from curate.errors import UsageError


def ingest(
    source: Annotated[str, typer.Argument(help="File, folder, glob or Hub dataset id.")],
    shape: Annotated[str, typer.Option(help="Name the shape instead of detecting it.")] = "auto",
    recipe: Annotated[
        Path | None, typer.Option(help="Take source.mapping and the rest from this recipe.")
    ] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Read only the first rows.")] = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder for dialogues.jsonl and quarantine.jsonl.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Read a source, say what it is, and normalise it; no model is asked."""
    from curate.cli.showing import show_ingest
    from curate.run.ingest import ingest_source

    with resumable():
        report = ingest_source(source, shape=shape, recipe=recipe, limit=limit, out=out)
    if as_json:
        print_json(report.report.as_dict() | {"folder": str(report.folder)})
    else:
        show_ingest(OUT, report)


def run(
    recipe: Annotated[Path, typer.Argument(help="Recipe file (YAML).")],
    set_: Overrides = None,
    limit: Limit = None,
    out: Annotated[
        str | None, typer.Option(help="Run folder, or URL of one (default runs/<name>).")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Validate everything and print the plan.")
    ] = False,
    retry: Annotated[
        str | None, typer.Option(help="'unscored': ask again for dialogues without a score.")
    ] = None,
    keep_going: Annotated[
        bool,
        typer.Option(
            "--keep-going", help="Go on where a stage's first 50 dialogues all came to nothing."
        ),
    ] = False,
    executor: Annotated[
        str | None, typer.Option(help="'local' or 'ray': where stages run; as in the recipe.")
    ] = None,
    address: Annotated[
        str | None, typer.Option(help="Ray cluster to join ('auto', host:port); implies ray.")
    ] = None,
) -> None:
    """Run a recipe from source to export, or resume it where it stopped."""
    from curate.cli.showing import RunProgress, show_run
    from curate.recipe import load_recipe
    from curate.run.pipeline import run_recipe
    from curate.storage.remote import RemoteFolder, is_url, local_folder

    if retry not in (None, "unscored"):
        raise UsageError("unknown value of --retry", got=retry, expected="unscored")
    if executor == "local" and address is not None:
        raise UsageError(
            "this process joins no cluster",
            got=f"--executor local --address {address}",
            expected="--executor ray, or no --address",
        )
    changes = list(set_ or [])
    if executor is not None or address is not None:
        changes.append(f"executor.kind={executor or 'ray'}")
    if address is not None:
        changes.append(f'executor.address="{address}"')
    loaded = load_recipe(recipe, changes)
    if dry_run:
        from curate.cli.showing_plan import show_plan
        from curate.executors.loop import run as run_in_loop
        from curate.planning.plan import make_plan

        folder = None if out is None else local_folder(out)
        if out is not None and folder is not None and is_url(out):
            RemoteFolder(out, folder)  # which looks there: a URL that cannot be reached is refused
        show_plan(OUT, run_in_loop(make_plan(loaded, limit=limit, out=folder)))
        return
    with resumable(), RunProgress(ERR, OUT) as progress:
        result = run_recipe(
            loaded,
            out=out,
            limit=limit,
            retry_unscored=retry is not None,
            keep_going=keep_going,
            progress=progress,
            notify=lambda said: ERR.print(escape(said), soft_wrap=True),
        )
    show_run(OUT, result)
    if out is not None and is_url(out):
        OUT.print(f"copied to {out}", soft_wrap=True)
    raise typer.Exit(result.exit_code)


def estimate(
    recipe: Annotated[Path, typer.Argument(help="Recipe file (YAML).")],
    set_: Overrides = None,
    limit: Limit = None,
    out: Annotated[Path | None, typer.Option(help="Run folder (default runs/<name>).")] = None,
    sample: Annotated[int, typer.Option(min=1, help="Dialogues to scale up from.")] = 200,
    rate: Annotated[str | None, typer.Option(help="prefill=…,decode=… in tokens a second.")] = None,
    rate_from: Annotated[
        Path | None, typer.Option(metavar="RUN", help="Take the rates from an earlier run.")
    ] = None,
    measure: Annotated[
        bool, typer.Option("--measure", help="Ask the judge up to 16 questions to measure them.")
    ] = False,
    fork_share: Annotated[
        float | None, typer.Option(min=0, max=1, help="Share of dialogues that are forked.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Say what a run would ask: requests, tokens, time and cost, from a sample."""
    from curate.cli.showing_plan import show_plan
    from curate.executors.loop import run as run_in_loop
    from curate.planning.plan import Assumptions, make_plan
    from curate.planning.rates import parse_rates
    from curate.recipe import load_recipe

    assumptions = Assumptions(
        sample=sample,
        rates=parse_rates(rate) if rate is not None else None,
        rates_from=rate_from,
        measure=measure,
        fork_share=fork_share,
    )
    loaded = load_recipe(recipe, set_ or [])
    plan = run_in_loop(make_plan(loaded, limit=limit, out=out, assumptions=assumptions))
    if as_json:
        print_json(plan.as_dict())
    else:
        show_plan(OUT, plan)


def doctor(
    recipe: Annotated[Path | None, typer.Argument(help="Recipe file (YAML).")] = None,
    set_: Overrides = None,
    out: Annotated[Path | None, typer.Option(help="Run folder (default runs/<name>).")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Say what is installed, and what each engine of a recipe can do; 1 when one cannot be used."""
    from curate.cli.showing_plan import show_report
    from curate.executors.loop import run as run_in_loop
    from curate.planning.doctor import examine
    from curate.recipe import load_recipe

    loaded = load_recipe(recipe, set_ or []) if recipe is not None else None
    report = run_in_loop(examine(loaded, out))
    if as_json:
        print_json(report.model_dump(mode="json") | {"usable": report.is_usable})
    else:
        show_report(OUT, report)
    raise typer.Exit(0 if report.is_usable else 1)


def show(
    run_folder: Annotated[Path, typer.Argument(metavar="RUN", help="Run folder.")],
    dialogue_id: Annotated[str | None, typer.Argument(metavar="ID", help="Dialogue id.")] = None,
) -> None:
    """Print a run's dialogues, or one of them turn by turn with its scores."""
    from curate.cli.showing import show_decay, show_funnels, show_judged, show_row
    from curate.cli.showing_plan import show_comparison
    from curate.run.read_back import read_judged, read_manifest, read_table

    if dialogue_id is None:
        for row in read_table(run_folder):
            show_row(OUT, row)
        manifest = read_manifest(run_folder)
        if manifest.adherence is not None:
            show_decay(OUT, manifest.adherence)
        show_funnels(OUT, manifest)
        show_comparison(OUT, manifest)
        return
    found = read_judged(run_folder, dialogue_id)
    show_judged(OUT, found.dialogue, found.judgment, found.adherence)


def schema(
    name: Annotated[str, typer.Argument(help="Record name; 'list' prints the names.")],
) -> None:
    """Print the JSON Schema of a record."""
    from curate.cli.schemas import SCHEMA_NAMES, json_schema

    if name == "list":
        OUT.print("\n".join(SCHEMA_NAMES))
        return
    if name not in SCHEMA_NAMES:
        raise UsageError("no such schema", got=name, expected=", ".join(SCHEMA_NAMES))
    print_json(json_schema(name))
