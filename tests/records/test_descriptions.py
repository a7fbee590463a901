"""The published schemas explain every field: users read them in place of the code."""

from __future__ import annotations

import pytest

from curate.cli.schema import json_schema, schema_names


@pytest.mark.parametrize("name", schema_names())
def test_every_field_of_a_schema_is_described(name: str) -> None:
    schema = json_schema(name)
    models = {name: schema, **schema.get("$defs", {})}
    missing = [
        f"{model}.{field}"
        for model, definition in models.items()
        for field, entry in definition.get("properties", {}).items()
        if not entry.get("description") and "const" not in entry
    ]
    assert not missing
    assert all(definition.get("description") for definition in models.values())
