"""Keys are looked for everywhere in a recipe, and what only looks like one is taken."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from curate.engines.config import OpenAIConfig
from curate.engines.keys import refuse_keys
from curate.errors import UsageError
from curate.recipe import load_recipe, parse_recipe
from tests.growth import growth

SECRETS = [
    "sk-abcdef1234567890abcd",
    "sk-proj-abcDEF1234567890abcdef",
    "sk-ant-api03-AbCdEfGh_1234567890-abcdefgh",
    "hf_AbCdEfGhIjKlMnOpQrStUvWxYz012345",
    "AKIAIOSFODNN7EXAMPLE",
    "ghp_16C7e42F292c6912E7710c838347Ae178B4a",
    "AIzaSyA1234567890abcdefghijklmnop",
    "xoxb-123456789012-abcdef",
    "Bearer abcdef0123456789abcdef",
    "-----BEGIN RSA PRIVATE KEY-----\nMIIE",
    "https://ann:hunter22@example.org/v1",
    "https://example.org/data.jsonl?token=hunter22",
]
PLACES: list[tuple[str, dict[str, Any]]] = [
    ("models.judge.extra_body.user", {"models": {"judge": {"extra_body": {"user": None}}}}),
    ("models.judge.model", {"models": {"judge": {"model": None}}}),
    ("role", {"role": None}),
    ("source.0.path.1", {"source": [{"path": ["x", None]}]}),
    ("nosuch.deep.0.1", {"nosuch": {"deep": [[1, None]]}}),
]


def put(template: Any, value: str) -> Any:
    if isinstance(template, dict):
        return {key: put(inner, value) for key, inner in template.items()}
    if isinstance(template, list):
        return [put(inner, value) for inner in template]
    return value if template is None else template


@pytest.mark.parametrize("secret", SECRETS)
@pytest.mark.parametrize(("place", "template"), PLACES)
def test_a_key_is_known_by_its_form_anywhere(
    secret: str, place: str, template: dict[str, Any]
) -> None:
    with pytest.raises(UsageError) as raised:
        parse_recipe({"name": "n", "source": {"path": "x"}, **put(template, secret)})
    assert place in str(raised.value)
    assert "api_key_env" in str(raised.value)
    assert secret not in str(raised.value)


@pytest.mark.parametrize(
    "extra",
    [
        {"api_key": "hunter2"},
        {"apiKey": "hunter2"},
        {"API-KEY": ["hunter2"]},
        {"password": 123456789},
        {"token": "hunter2"},
        {"hf_token": "hunter2"},
        {"openai_api_key": "hunter2"},
        {"extra_headers": {"Authorization": "Bearer hunter2"}},
        {"headers": {"X-Auth-Thing": "hunter2"}},
        {"a": [{"client_secret": "hunter2"}]},
    ],
)
def test_a_key_is_known_by_its_name(extra: dict[str, Any]) -> None:
    options = {"engine": "openai", "model": "m", "base_url": "http://h/v1", "extra_body": extra}
    for make in (
        lambda: OpenAIConfig.model_validate(options),
        lambda: parse_recipe({"name": "n", "source": {"path": "x"}, "models": {"judge": options}}),
    ):
        with pytest.raises(UsageError, match="extra_body") as raised:
            make()
        assert "hunter2" not in str(raised.value)
        assert "123456789" not in str(raised.value)


def test_a_key_given_on_the_command_line_or_inherited_is_found(tmp_path: Path) -> None:
    (tmp_path / "base.yaml").write_text("models: {judge: {extra_body: {api_key: hunter2}}}\n")
    mine = tmp_path / "mine.yaml"
    mine.write_text("source: {path: x}\nextends: base.yaml\n")
    with pytest.raises(UsageError, match="key or a password"):
        load_recipe(mine)
    mine.write_text("source: {path: x}\n")
    with pytest.raises(UsageError, match="key or a password"):
        load_recipe(mine, ["models.judge.extra_body.api_key=hunter2"])


@pytest.mark.parametrize(
    "data",
    [
        {"model": "hf-internal-testing/tiny-random-LlamaForCausalLM"},
        {"model": "xai-org/grok-1"},
        {"model": "/models/sk-slovak-language-model-2024"},
        {"role": "Explains what a bearer token is, and basic authentication: never asks for one."},
        {"chat_template_kwargs": {"pad_token": "<pad>", "stop_token": "</s>"}},
        {"extra_body": {"stop_token_ids": [100_000_1], "max_tokens": 1_000_000, "token": None}},
        {"engine_args": {"hf_token": True}},
        {"budget": {"tokens": 5_000_000}},
        {"api_key_env": "OPENAI_API_KEY"},
        {"where": {"secret": "no secret in it", "asks_for_password": "tokens > 10 AND x = 'y'"}},
        {"path": "s3://bucket/a.jsonl"},
        {"revision": "3fa85f6457174562b3fc2c963f66afa6deadbeef"},
    ],
)
def test_what_is_no_key_is_taken(data: dict[str, Any]) -> None:
    refuse_keys(data, "the recipe")


@pytest.mark.parametrize("recipe", sorted(Path("recipes").glob("*.yaml")), ids=str)
def test_the_recipes_that_come_along_hold_none(recipe: Path) -> None:
    load_recipe(recipe)


@pytest.mark.parametrize(
    "worst", ["sk-", "sk-a-a", "hf_", "eyJ", "-", "a://b:", "bearer ", "?key= ", "_key", "a"]
)
def test_any_recipe_is_searched_in_linear_time(worst: str) -> None:
    assert growth(lambda size: refuse_keys({worst * size: worst * size}, "it"), 20_000) < 30
