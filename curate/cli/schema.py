"""`curate schema`: the published JSON Schemas, the records' and the recipe's.

`scripts/make_schemas.py` writes them to `schemas/`. The records' own are made in `curate.records.validation`, which
what is read back is checked against; the recipe is composed of all rooms, so the whole list can only stand above it.
"""

from __future__ import annotations

import difflib
from typing import Annotated, Any

import typer

from curate.cli.console import OUT, print_json
from curate.errors import UsageError


def schema(
    name: Annotated[str, typer.Argument(help="Record name; 'list' prints the names.")],
) -> None:
    """Print the JSON Schema of a record."""
    if name == "list":
        OUT.print("\n".join(schema_names()))
        return
    print_json(json_schema(name))


def schema_names() -> tuple[str, ...]:
    """What `json_schema` knows: the records and the recipe."""
    from curate.records.validation import RECORDS

    return (*RECORDS, "recipe")


def json_schema(name: str) -> dict[str, Any]:
    """The JSON Schema (draft 2020-12) called `name`, one of `schema_names()`.

    Raises:
        UsageError: no such schema; names the nearest.
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
