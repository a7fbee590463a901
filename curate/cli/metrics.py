"""`curate metrics`: list the weighted metrics, or draft one of your own."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from curate.cli.console import OUT, AsJson, print_json, print_line
from curate.cli.printing import number_table
from curate.errors import UsageError

if TYPE_CHECKING:
    from curate.judging.metrics import Metric

metrics = typer.Typer(invoke_without_command=True)


@metrics.callback()
def list_metrics(
    context: typer.Context,
    recipe: Annotated[
        Path | None, typer.Option("--recipe", help="List this recipe's metrics and weights.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List the weighted metrics; `curate metrics new` drafts one of your own."""
    from curate.judging.metrics import MetricsConfig, as_response
    from curate.recipe import load_recipe

    if context.invoked_subcommand is not None:
        return
    section = load_recipe(recipe).metrics if recipe is not None else MetricsConfig()
    config = section or MetricsConfig()
    if as_json:
        print_json(as_response(config.known))
    else:
        _show(config.known, config.weights)


@metrics.command("new")
def draft(
    sentence: Annotated[str, typer.Argument(help="What the metric should measure.")],
    recipe: Annotated[Path, typer.Option("--recipe", help="Recipe whose models.judge drafts it.")],
) -> None:
    """Have a recipe's judge draft a metric from a sentence; edit it before you use it."""
    from curate.api import draft_metric
    from curate.judging.metrics.draft import as_yaml

    if not sentence.strip():
        raise UsageError("there is nothing to draft a metric from", expected="a sentence")
    drafted = draft_metric(sentence, recipe)
    OUT.print(
        "# Drafted by the judge: edit it, above all what tells its levels apart, then put it into the recipe."
    )
    print_line(escape(as_yaml(drafted)))


def _show(known: Mapping[str, Metric], weights: Mapping[str, float]) -> None:
    texts = ("tier", "scale", "measures")
    table = number_table("metric", "tier", "scale", "weight", "measures", texts=texts)
    for name, metric in known.items():
        weight = f"{weights[name]:.3f}" if name in weights else "-"
        scale = "0-5" if metric.scale == "scored" else "pass/fail"
        table.add_row(name, metric.tier, scale, weight, escape(metric.asks))
    OUT.print(table)
