"""Which judges are named too small, and that each engine is opened once."""

from __future__ import annotations

import pytest

from curate.engines.base import EngineIdentity
from curate.engines.model_pool import trust_warning
from curate.recipe import parse_recipe
from curate.stages import model_pool


@pytest.mark.parametrize(
    ("model", "word"),
    [
        ("SmolLM2-135M-Instruct.Q4_1.gguf", "noise"),
        ("Qwen/Qwen2.5-0.5B-Instruct", "noise"),
        ("qwen2.5-coder-1.5b-instruct-q4_k_m.gguf", "small model"),
        ("Llama-3.1-8B-Instruct", "small model"),
        ("Qwen/Qwen2.5-72B-Instruct", None),
        ("gpt-4o", None),
        ("Mixtral-8x7B", None),
    ],
)
def test_a_small_judge_is_called_small(model: str, word: str | None) -> None:
    warning = trust_warning(EngineIdentity("openai", model))
    assert (warning is None) if word is None else (warning is not None and word in warning)


async def test_equal_configs_share_one_engine() -> None:
    scripted = {"engine": "scripted", "replies": ["yes"]}
    other = scripted | {"model": "other"}
    models = {"judge": scripted, "policy": scripted, "reviser": other}
    recipe = parse_recipe(
        {"name": "n", "source": {"path": "x"}, "models": models, "fork": {"resamples": 1}}
    )
    async with model_pool(recipe) as opened:
        assert opened.judge is opened.policy
        assert opened.reviser is not opened.judge
