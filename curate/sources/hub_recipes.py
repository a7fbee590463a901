"""The ready recipes for public datasets that come with curate: in the installed package, or in `recipes/` of a checkout.

A recipe's first lines name its dataset and describe it: `# dataset: owner/name`, `# about: …`.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from pathlib import Path

from curate.errors import UsageError
from curate.sources.shipped_files import recipes_folder
from curate.storage.yaml_text import parse_yaml

PREFIX = "hub:"


@dataclass(frozen=True, slots=True)
class HubRecipe:
    """A ready recipe.

    Attributes:
        dataset: Hub id of its dataset, or the owner and name of the repository it comes from.
        about: description of the dataset.
        license: licence of the dataset, by its name on the Hub.
    """

    name: str
    dataset: str
    about: str
    license: str
    path: Path


def hub_recipes() -> list[HubRecipe]:
    """Return the ready recipes, sorted by name.

    Raises:
        UsageError: as `recipes_folder`.
    """
    return [_read(path) for path in sorted((recipes_folder() / "hub").glob("*.yaml"))]


def find_hub_recipe(query: str) -> HubRecipe:
    """Return a recipe by its name or its dataset's id, with or without the prefix `hub:`.

    Raises:
        UsageError: there is no such recipe; the message suggests the nearest.
    """
    name = query.removeprefix(PREFIX).strip().lower()
    recipes = hub_recipes()
    recipes_by_name = {
        key.lower(): recipe for recipe in recipes for key in (recipe.dataset, recipe.name)
    }
    if name in recipes_by_name:
        return recipes_by_name[name]
    close = difflib.get_close_matches(name, recipes_by_name, n=1, cutoff=0.5)
    raise UsageError(
        "there is no ready recipe of that name",
        got=query,
        expected=f"did you mean {PREFIX}{recipes_by_name[close[0]].dataset}?" if close else None,
        fix="`curate recipes` lists them; any other dataset is read with `curate ingest` and a recipe of your own",
    )


def _read(path: Path) -> HubRecipe:
    text = path.read_text(encoding="utf-8")
    header = dict(
        line.removeprefix("# ").split(": ", 1)
        for line in text.splitlines()
        if line.startswith(("# dataset: ", "# about: "))
    )
    source = parse_yaml(text)["source"]
    return HubRecipe(path.stem, header["dataset"], header["about"], source["license"], path)
