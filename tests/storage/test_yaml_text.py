"""Recipes that are made to cost much: refused at once, and by name."""

from __future__ import annotations

from pathlib import Path

import pytest

from curate.errors import UsageError
from curate.recipe import load_recipe, parse_recipe

SOURCE = "source: {path: x}\n"
BOMB = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 12)
)
MERGES = "a0: &a0 {x: 1, y: 2}\n" + "".join(
    f"a{n}: &a{n} {{<<: [{', '.join([f'*a{n - 1}'] * 9)}]}}\n" for n in range(1, 12)
)


def write(folder: Path, text: str) -> Path:
    path = folder / "mine.yaml"
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    "value",
    [
        "[" * 1000 + "]" * 1000,
        "[" * 100_000,
        "{a: " * 1000 + "1" + "}" * 1000,
        "\n" + "".join(" " * n + "- \n" for n in range(1, 1000)),
        "&a [*a]",
        "&a {b: {c: *a}}",
    ],
)
def test_what_is_nested_too_deeply_is_refused(tmp_path: Path, value: str) -> None:
    with pytest.raises(UsageError, match=r"nested too deeply|inside the value that it names"):
        load_recipe(write(tmp_path, f"{SOURCE}fork: {value}"))


@pytest.mark.parametrize("text", [BOMB, MERGES, "a: [" + "x, " * 30_000 + "x]\n"])
def test_what_unfolds_to_too_much_is_refused_before_it_unfolds(tmp_path: Path, text: str) -> None:
    with pytest.raises(UsageError, match="too large"):
        load_recipe(write(tmp_path, SOURCE + text))


def test_aliases_within_reason_are_what_they_name(tmp_path: Path) -> None:
    text = (
        "source: &one {path: x}\n"
        "models:\n"
        "  judge: &judge {engine: scripted, replies: []}\n"
        "  policy: {<<: *judge, model: other}\n"
    )
    recipe = load_recipe(write(tmp_path, text))
    assert (recipe.models.judge.model, recipe.models.policy.model) == ("scripted", "other")


@pytest.mark.parametrize("override", [".".join("a" * 1000) + "=1", "fork=" + "[" * 1000])
def test_an_override_is_bounded_too(tmp_path: Path, override: str) -> None:
    with pytest.raises(UsageError, match="nested too deeply"):
        load_recipe(write(tmp_path, SOURCE), [override])


def test_a_mapping_that_holds_itself_is_refused() -> None:
    data: dict[str, object] = {"name": "n", "source": {"path": "x"}}
    data["fork"] = data
    with pytest.raises(UsageError, match="nested too deeply"):
        parse_recipe(data)


@pytest.mark.parametrize("value", ["2024-13-45", "1" * 5000])
def test_a_number_or_a_date_that_does_not_exist_is_no_yaml(tmp_path: Path, value: str) -> None:
    with pytest.raises(UsageError, match="not a YAML file"):
        load_recipe(write(tmp_path, f"{SOURCE}mix_seed: {value}\n"))


def test_a_long_chain_of_recipes_is_refused(tmp_path: Path) -> None:
    for number in range(1200):
        (tmp_path / f"{number}.yaml").write_text(f"extends: {number + 1}.yaml\n")
    with pytest.raises(UsageError, match="too many recipes"):
        load_recipe(tmp_path / "0.yaml")
