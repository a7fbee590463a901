"""`curate recipes` and `curate init`: a ready recipe, copied to go on from."""

from __future__ import annotations

import json
from pathlib import Path

from curate.recipe import load_recipe
from tests.cli.test_ingest import Command, curate

__all__ = ["curate"]


def test_the_ready_recipes_are_listed(curate: Command) -> None:
    code, said = curate("recipes")
    assert code == 0
    assert "allenai/WildChat-1M (odc-by)" in said
    listed = json.loads(curate("recipes", "--json")[1])
    assert len(listed) >= 14
    assert all(recipe["license"] and recipe["about"] for recipe in listed)


def test_a_ready_recipe_is_copied_and_not_over_another_file(
    curate: Command, tmp_path: Path
) -> None:
    code, said = curate("init", "hub:allenai/WildChat-1M")
    assert code == 0
    assert "wildchat.yaml" in said
    assert load_recipe(tmp_path / "wildchat.yaml").source[0].path == "allenai/WildChat-1M"
    code, said = curate("init", "hub:allenai/WildChat-1M")
    assert code == 2
    assert "--out" in said
    assert curate("init", "hub:wildchat", "--out", "mine.yaml")[0] == 0
    code, said = curate("run", "mine.yaml", "--dry-run")
    assert code == 2
    assert "names no judge" in said


def test_what_no_ready_recipe_is_for_is_refused_with_a_way_on(curate: Command) -> None:
    code, said = curate("init", "hub:allenai/WildChat")
    assert code == 2
    assert "did you mean hub:allenai/WildChat-1M" in said
    code, said = curate("init", "chats.jsonl")
    assert code == 2
    assert "curate ingest chats.jsonl --accept" in said
