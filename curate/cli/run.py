"""`curate run`: a recipe from source to export, and what the run came to."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from curate.cli.console import ERR, OUT, Limit, Overrides, resumable
from curate.cli.printing import (
    clip,
    listed,
    show_comparison,
    show_decay,
    show_factuality,
    show_funnels,
    show_judge_checks,
    show_metrics,
    show_source,
)
from curate.errors import UsageError

if TYPE_CHECKING:
    from curate.records import Manifest
    from curate.run.pipeline import RunResult


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
    from curate.cli.progress import RunProgress
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
        from curate.cli.estimate import show_plan
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


def show_run(console: Console, result: RunResult) -> None:
    """Sources, judges, and the closing table."""
    from curate.records import SCORING
    from curate.run.read_back import unscored_example

    manifest = result.manifest
    for source in manifest.sources:
        show_source(console, source)
    for name, identity in manifest.identities.items():
        console.print(
            f"{name}: {escape(identity.model)} ({identity.engine}), mode [bold]{identity.mode}[/bold], "
            f"prompts {identity.prompt_version}"
        )
    if manifest.stages:
        console.print(_stage_table(manifest))
    console.print(_closing_table(manifest))
    for name in SCORING:
        has_some = name in manifest.stages and manifest.stages[name].reasons
        example = unscored_example(result.folder, manifest, name) if has_some else None
        if example is not None:
            console.print(f"{name} of {escape(clip(example[0]))}: {escape(clip(example[1]))}")
    show_funnels(console, manifest)
    for kind, decided in manifest.pair_decisions.items():
        console.print(f"pairs decided ({kind}): {escape(decided)}", soft_wrap=True)
    if manifest.pair_checks:
        console.print(_pair_check_table(manifest))
    if manifest.judge_checks is not None:
        show_judge_checks(console, manifest.judge_checks)
    if manifest.adherence is not None:
        show_decay(console, manifest.adherence, positions=0)
    if manifest.metrics is not None:
        show_metrics(console, manifest.metrics)
    if manifest.factuality is not None:
        show_factuality(console, manifest.factuality)
    if manifest.estimate is not None:
        show_comparison(console, manifest)
    for said in filter(None, (manifest.levels, manifest.role_threshold)):
        console.print(escape(said))
    for warning in manifest.warnings:
        console.print(f"[yellow]warning:[/yellow] {escape(warning)}")
    console.print(f"[bold]{_STATUS[manifest.status]}[/bold]: {escape(str(result.folder))}")


_STATUS = {
    "running": "still running",
    "done": "done",
    "failed": "failed",
    "budget": "stopped by the budget; the same command goes on",
    "unscored": "finished, over the allowed share of unscored; --retry unscored asks again",
}


def _closing_table(manifest: Manifest) -> Table:
    from curate.export.counts import files
    from curate.recipe import left_out_of_cost
    from curate.records import VERDICTS

    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(style="bold")
    table.add_column(justify="right")
    table.add_column(style="dim")
    rows: list[tuple[str, object, str]] = [
        (
            "rows in",
            manifest.rows_in,
            f"= {manifest.rows_used} used + {manifest.quarantined} quarantined",
        ),
        (
            "dialogues",
            manifest.dialogues,
            f"and {manifest.not_sampled} not sampled, by the sources' weights"
            if manifest.not_sampled
            else "",
        ),
        (
            "with a role",
            sum(manifest.roles.values()) - manifest.roles.get("none", 0),
            _roles(manifest),
        ),
        ("unscored", manifest.unscored, _unscored_reasons(manifest)),
        *(
            (f"verdict {name}", manifest.verdicts[name], "")
            for name in reversed(VERDICTS)
            if name in manifest.verdicts
        ),
        (
            "selected",
            manifest.selected,
            listed({k: v for k, v in manifest.sets.items() if k != "sft"}),
        ),
        *_rejected(manifest),
        ("pairs", manifest.pairs, "made, and verified by the judge"),
        ("natural pairs", manifest.natural_pairs, _natural_note(manifest)),
        ("dropped pairs", manifest.dropped, listed(manifest.drop_reasons)),
        *(
            (f"export {name}", sum(files(counts).values()), _exported(counts))
            for name, counts in manifest.exports.items()
        ),
        ("requests", manifest.requests, ""),
        (
            "tokens",
            f"{manifest.tokens_in + manifest.tokens_out:,}",
            f"{manifest.tokens_in:,} in ({manifest.tokens_cached:,} cached), {manifest.tokens_out:,} out",
        ),
        ("seconds", f"{manifest.seconds:.1f}", ""),
    ]
    if manifest.cost is not None:
        left_out = f", {left_out_of_cost(manifest.unpriced)}" if manifest.unpriced else ""
        rows.append(("cost", f"{manifest.cost:.4f}", f"at the recipe's prices{left_out}"))
    for name, value, note in rows:
        table.add_row(name, str(value), escape(note))
    return table


def _rejected(manifest: Manifest) -> list[tuple[str, object, str]]:
    """Why dialogues were not selected: for each reason those it is the first of, and all that have it."""
    first, every = manifest.rejections, manifest.rejection_reasons
    ordered = sorted(every, key=lambda name: (-first.get(name, 0), -every[name]))
    lines: list[tuple[str, object, str]] = [
        (f"rejected: {name}", first.get(name, 0), f"first reason; {every[name]} have it in all")
        for name in ordered
    ]
    if not lines:
        return []
    explained = "counted below by the first reason of each, and by all its reasons"
    return [("rejected", sum(first.values()), explained), *lines]


def _roles(manifest: Manifest) -> str:
    named = {
        "field": "from a field",
        "system": "from the system message",
        "recipe": "from the recipe",
    }
    counts = ((manifest.roles.get(origin, 0), text) for origin, text in named.items())
    return ", ".join(f"{number} {text}" for number, text in counts if number)


def _natural_note(manifest: Manifest) -> str:
    agreement = manifest.label_agreement
    if agreement is None:
        return "held by the data; no judge saw them"
    verified = "verified by the judge" if agreement.is_shown else "not verified"
    return f"held by the data; {verified}: {agreement.described}"


def _pair_check_table(manifest: Manifest) -> Table:
    """The checks over the sets of pairs, a line each; what was not run says why."""
    from curate.trust.pair_set import check_rows

    table = Table(box=None, pad_edge=False)
    for column in ("pairs", "check", "figure", "limit", ""):
        table.add_column(column, justify="right" if column in ("figure", "limit") else "left")
    for *cells, status in check_rows(manifest.pair_checks):
        style = {"warn": "yellow", "not ": "dim"}.get(status[:4], "")
        table.add_row(*cells, escape(status), style=style)
    return table


def _exported(counts: Mapping[str, int]) -> str:
    """Rows by file, then whatever was refused, by file and reason."""
    from curate.export.counts import files, refusals

    rows = ", ".join(f"{name} {number}" for name, number in files(counts).items())
    refused = (f"; refused of {name}: {listed(own)}" for name, own in refusals(counts).items())
    return f"rows: {rows}{''.join(refused)}"


def _unscored_reasons(manifest: Manifest) -> str:
    return "; ".join(
        f"{name}: {listed(stage.reasons)}"
        for name, stage in manifest.stages.items()
        if stage.reasons
    )


def _stage_table(manifest: Manifest) -> Table:
    table = Table(box=None, pad_edge=False)
    for column in ("stage", "rows", "reused", "requests", "sent", "tokens in", "cached", "out"):
        table.add_column(column, justify="left" if column == "stage" else "right")
    for name, stage in manifest.stages.items():
        numbers = (
            stage.rows,
            stage.reused,
            stage.requests,
            stage.requests_sent,
            stage.prompt_tokens,
            stage.cached_tokens,
            stage.completion_tokens,
        )
        table.add_row(name, *(f"{number:,}" for number in numbers))
    return table
