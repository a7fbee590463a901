"""Every published JSON Schema by name: the records' and the recipe's.

`scripts/make_schemas.py` writes them to `schemas/`, and `curate schema NAME` prints one without a
checkout. The records' own are made in `curate.records.validation`, which the store stands on; the recipe is
composed of all rooms, so the whole list can only stand above it.
"""

from __future__ import annotations

import difflib
from typing import Any, Final

from curate.errors import UsageError
from curate.recipe import Recipe
from curate.records.validation import RECORDS, model_schema

SCHEMA_NAMES: Final = (*RECORDS, "recipe")


def json_schema(name: str) -> dict[str, Any]:
    """The JSON Schema (draft 2020-12) called `name`, one of `SCHEMA_NAMES`.

    Raises:
        UsageError: no such schema; names the nearest.
    """
    if name == "recipe":
        return model_schema(name, Recipe)
    if name in RECORDS:
        return model_schema(name, RECORDS[name])
    close = difflib.get_close_matches(name, SCHEMA_NAMES, n=1)
    raise UsageError(
        "no such schema",
        got=repr(name),
        expected=f"one of: {', '.join(SCHEMA_NAMES)}",
        fix=f"curate schema {close[0]}" if close else None,
    )
