from __future__ import annotations

from pathlib import Path

import pytest

from curate.benchmark.methods import load_settings, parse_conditions
from curate.errors import UsageError


def test_knn_pools_a_role_here_unless_it_is_said(tmp_path: Path) -> None:
    (method,) = load_settings("f", "knn").methods
    assert method.config.reference.pool == "role"
    (said,) = load_settings("f", "knn", overrides=["adherence.reference.pool=turn"]).methods
    assert said.config.reference.pool == "turn"
    recipe = tmp_path / "judge.yaml"
    recipe.write_text("adherence: {reference: {pool: turn}}\n")
    (taken,) = load_settings("f", "knn", judge=recipe).methods
    assert taken.config.reference.pool == "turn"


def test_overrides_and_the_encoder_reach_every_method(tmp_path: Path) -> None:
    settings = load_settings(
        "f", "cosine,mahalanobis", overrides=["adherence.reference.alpha=2"], encoder="a: b"
    )
    for method in settings.methods:
        assert method.config.reference.alpha == 2
        assert method.config.reference.encoder == "a: b"


def test_a_judges_recipe_keeps_its_own_source_to_itself(tmp_path: Path) -> None:
    recipe = tmp_path / "judge.yaml"
    recipe.write_text(
        "source: {path: other.jsonl, shape: hh, limit: 3}\nadherence: {definition: restrictive}\n"
        "models: {judge: {engine: scripted, replies: []}}\n"
    )
    settings = load_settings("mine.json", None, shape="gaussia", judge=recipe)
    (source,) = settings.recipe.source
    assert (source.path, source.shape, source.limit) == ("mine.json", "gaussia", None)
    assert settings.methods[-1].config.definition == "restrictive"


def test_adherence_left_out_of_the_recipe_means_the_defaults(tmp_path: Path) -> None:
    recipe = tmp_path / "judge.yaml"
    recipe.write_text("adherence: false\n")
    assert load_settings("f", "kl", judge=recipe).methods[0].config.output_mode == "auto"


def test_an_unknown_key_is_refused() -> None:
    with pytest.raises(UsageError, match="encodr") as raised:
        load_settings("f", "cosine", overrides=["adherence.reference.encodr=x"])
    assert "defaults.yaml" not in str(raised.value)


def test_conditions() -> None:
    assert parse_conditions(None, 9) is None
    assert parse_conditions("15, 50,150", 9) == (15, 50, 150)
    assert parse_conditions("4, all", 9) == (4, 9)
    with pytest.raises(UsageError, match="15,many"):
        parse_conditions("15,many", 9)


def test_no_methods_leaves_baselines_and_saved_scores() -> None:
    assert load_settings("f", "").methods == ()
