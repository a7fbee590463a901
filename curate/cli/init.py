"""`curate init`: a recipe to start from."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from curate.cli.console import OUT
from curate.errors import UsageError


def init(
    source: Annotated[
        str, typer.Argument(help="hub:OWNER/NAME, a dataset that `curate recipes` lists.")
    ],
    out: Annotated[
        Path | None, typer.Option(help="File to write (default: the recipe's name, here).")
    ] = None,
) -> None:
    """Copy the ready recipe of a public dataset, to go on from."""
    from curate.sources.hub_recipes import PREFIX, find_hub_recipe

    if not source.startswith(PREFIX):
        raise UsageError(
            "init starts from a ready recipe",
            got=source,
            expected=f"{PREFIX}OWNER/NAME, one of those that `curate recipes` lists",
            fix=f"for data of your own: curate ingest {source} --accept",
        )
    recipe = find_hub_recipe(source)
    path = out if out is not None else Path(recipe.path.name)
    if os.path.lexists(path):
        raise UsageError(
            "a recipe is not overwritten",
            got=path,
            expected="a file that is not there yet",
            fix="name one with --out",
        )
    path.write_text(recipe.path.read_text(encoding="utf-8"), encoding="utf-8")
    OUT.print(
        f"written: {escape(str(path))} ({escape(recipe.dataset)}, licence {escape(recipe.license)})"
    )
    OUT.print(
        f"Next: name a judge in it, then look at what it would cost:\n  curate run {escape(str(path))} --dry-run",
        soft_wrap=True,
    )
