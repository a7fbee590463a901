"""`curate schema`: print the published JSON Schemas, those of the records and of the recipe.

`scripts/make_schemas.py` writes them to `schemas/`. The records' schemas are made in `curate.records.validation`,
which also checks what is read back; the recipe is composed of all rooms, so the whole list is made above them.
"""

from __future__ import annotations

import difflib
from typing import Annotated, Any

import typer

from curate.cli.console import OUT, print_json
from curate.errors import UsageError


def schema(
    name: Annotated[
        str, typer.Argument(help="'recipe', or the name of a record; 'list' prints all names.")
    ],
) -> None:
    """Print the JSON Schema of a recipe or a record."""
    if name == "list":
        OUT.print("\n".join(schema_names()))
        return
    print_json(json_schema(name))


def schema_names() -> tuple[str, ...]:
    """Return the names that `json_schema` knows: the records' and `recipe`."""
    from curate.records.validation import RECORDS

    return (*RECORDS, "recipe")


def json_schema(name: str) -> dict[str, Any]:
    """Return the JSON Schema (draft 2020-12) called `name`, one of `schema_names()`.

    Raises:
        UsageError: there is no such schema; the error names the nearest one.
    """
    from curate.records.validation import RECORDS, model_schema

    if name == "recipe":
        from curate.recipe import Recipe

        return model_schema(name, Recipe)
    if name in RECORDS:
        return model_schema(name, RECORDS[name])
    names = schema_names()
    close = difflib.get_close_matches(name, names, n=1)
    raise UsageError(
        "no such schema",
        got=repr(name),
        expected=f"one of: {', '.join(names)}",
        fix=f"curate schema {close[0]}" if close else None,
    )
