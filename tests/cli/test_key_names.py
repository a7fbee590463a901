"""Keys of a recipe that messages and docs name: each is one that a recipe takes."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args, get_origin

import pytest

from curate.recipe import Recipe

ROOT = Path(__file__).parents[2]
SECTIONS = "|".join(sorted(Recipe.model_fields))
KEY = re.compile(rf"(?<![\w./-])((?:{SECTIONS})(?:\.[a-z_]+)+)(?![\w/(])")
SPEAKS = re.compile(r"Error$|^Failure$|^Field$|^Problem$|^warn$|^add_warning$")
"""Calls whose texts a user reads."""

FILES = re.compile(r"\.(jsonl?|yaml|yml|parquet|py|md|csv|gz|gguf|txt|sqlite)\b")


def keys_in(text: str) -> Iterator[str]:
    for match in KEY.finditer(text):
        if not FILES.search(match[1]):
            yield match[1]


def said_in(module: Path) -> Iterator[str]:
    for call in ast.walk(ast.parse(module.read_text("utf-8"))):
        if not isinstance(call, ast.Call):
            continue
        name = (
            call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
        )
        if SPEAKS.search(name):
            for part in ast.walk(call):
                if isinstance(part, ast.Constant) and isinstance(part.value, str):
                    yield part.value


MODULES = sorted((ROOT / "curate").rglob("*.py"))
PAGES = [
    ROOT / "README.md",
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted((ROOT / "recipes").glob("*.yaml")),
]


def exists(key: str) -> bool:
    """Whether a recipe can hold it; below a key with free names anything does."""
    annotations: list[Any] = [Recipe]
    for part in key.split("."):
        if any(get_origin(kind) is dict for kind in annotations):
            return True
        models = [kind for kind in annotations if hasattr(kind, "model_fields")]
        fields = [model.model_fields[part] for model in models if part in model.model_fields]
        if not fields:
            return False
        annotations = [kind for field in fields for kind in unfolded(field.annotation)]
    return True


def unfolded(annotation: Any) -> Iterator[Any]:
    """The members of unions, lists and annotated types."""
    if get_origin(annotation) is dict or not get_args(annotation):
        yield annotation
    for inner in get_args(annotation) if get_origin(annotation) is not dict else ():
        yield from unfolded(inner)


def test_messages_name_keys_that_exist() -> None:
    named = [
        (path.name, key) for path in MODULES for text in said_in(path) for key in keys_in(text)
    ]
    assert len(named) > 30
    assert [place for place in named if not exists(place[1])] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_pages_name_keys_that_exist(page: Path) -> None:
    assert [key for key in keys_in(page.read_text("utf-8")) if not exists(key)] == []


def test_a_key_that_does_not_exist_is_known_from_one_that_does() -> None:
    assert exists("models.judge.base_url")
    assert exists("select.where.my_condition")
    assert exists("judge.mode")
    assert not exists("judge.modes")
    assert not exists("source.scenario")
    assert list(keys_in("set `judge.rubric mode`, source.shape. See select.jsonl.")) == [
        "judge.rubric",
        "source.shape",
    ]
