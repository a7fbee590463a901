"""Recipes from end to end on the vLLM engine."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from curate.recipe import load_recipe
from curate.run.pipeline import RunResult, run_recipe
from tests.vllm.conftest import ENGINE_ARGS

SAMPLE = Path(__file__).resolve().parents[2] / "recipes" / "sample" / "support.jsonl"


def run(folder: Path, model: Path, **parts: object) -> RunResult:
    recipe = {
        "name": "vllm",
        "source": [{"path": str(SAMPLE)}],
        "models": {
            "judge": {
                "engine": "vllm",
                "model": str(model),
                "dtype": "float32",
                "context": 4096,
                "engine_args": ENGINE_ARGS,
            }
        },
        **parts,
    }
    path = folder / "recipe.yaml"
    path.write_text(yaml.safe_dump(recipe))
    return run_recipe(load_recipe(path), out=folder / "run", limit=2)


def test_json_mode(model_folder: Path, tmp_path: Path) -> None:
    # Without texts: a schema of numbers bounds the reply, whatever the model makes of its figures.
    judge = {"mode": "json", "text": "off"}
    result = run(tmp_path, model_folder, judge=judge, adherence=False)
    manifest = result.manifest
    print(manifest.model_dump_json(exclude_defaults=True))
    assert manifest.identities["judge"].mode == "json"
    assert (manifest.dialogues, manifest.unscored) == (2, 0)
    assert sum(manifest.verdicts.values()) == 2
    assert manifest.tokens_out > 2 * 40


def test_label_reads_and_adherence_share_their_trunks(model_folder: Path, tmp_path: Path) -> None:
    result = run(
        tmp_path,
        model_folder,
        judge={"mode": "tokens", "text": "off"},
        adherence={"output_mode": "continuous"},
    )
    manifest = result.manifest
    print(manifest.model_dump_json(exclude_defaults=True))
    assert manifest.dialogues == 2
    assert manifest.tokens_out == manifest.requests  # one token each
    assert manifest.tokens_cached / manifest.tokens_in > 0.6


@pytest.fixture(autouse=True)
def _apart(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
