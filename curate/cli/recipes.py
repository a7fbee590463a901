"""`curate recipes`: list the ready recipes for public datasets."""

from __future__ import annotations

from rich.markup import escape

from curate.cli.console import OUT, AsJson, print_json, print_line


def recipes(
    as_json: AsJson = False,
) -> None:
    """List the ready recipes for public datasets; `curate init hub:NAME` starts from one."""
    from curate.sources.hub_recipes import hub_recipes

    ready = hub_recipes()
    if as_json:
        names = ("name", "dataset", "about", "license")
        print_json(
            [
                {name: getattr(recipe, name) for name in names} | {"path": str(recipe.path)}
                for recipe in ready
            ]
        )
        return
    for recipe in ready:
        OUT.print(
            f"[bold]{escape(recipe.dataset)}[/bold] ({escape(recipe.license)})\n  {escape(recipe.about)}"
        )
    print_line(
        f"\n{len(ready)} recipes. To start from one: curate init hub:{escape(ready[0].dataset)}"
    )
