"""Switching off: `false` and `null` mean the same in every section of a recipe."""

from __future__ import annotations

import types
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import pytest
from jsonschema import Draft202012Validator

from curate.recipe import Recipe, load_recipe, parse_recipe
from curate.records.config import Config

SOURCE = {"name": "n", "source": {"path": "x.jsonl"}}
REQUIRED: dict[str, dict[str, Any]] = {
    "ReuseConfig": {"run": "runs/earlier"},
    "Recipe": SOURCE,
    "SourceConfig": {"path": "x.jsonl"},
    "Mapping": {"each": "$.messages", "messages": [{"role": "user", "text": "$.text"}]},
    "MessageMapping": {"role": "user", "text": "$.text"},
    "MessageMapping.role": {"role_from": "$.role", "text": "$.text"},
    "CallMapping": {"each": "$.calls", "name": "$.name"},
    "LlamaCppConfig": {"model": "m.gguf"},
    "OpenAIConfig": {"model": "m", "base_url": "http://localhost:1/v1"},
    "VllmConfig": {"model": "m"},
    "TransformersConfig": {"model": "m"},
    "ScriptedConfig": {"replies": []},
    "Cascade": {
        "cascade": [
            {"engine": "scripted", "replies": ["5"]},
            {"engine": "scripted", "replies": ["5"]},
        ]
    },
    "MetricChoice": {"metric": "safety"},
    "OwnMetric": {
        "name": "tone",
        "tier": "delivery",
        "asks": "Is it kind?",
        "scale": "binary",
        "levels": {"pass": "It is.", "fail": "It is not."},
        "weight": 1,
    },
    "Prices": {"input": 1, "output": 1},
    "Share": {"fraction": 0.5, "by": "mean_score"},
    "EmbeddingConfig": {"model": "m"},
    "EvalSet": {"path": "x.jsonl"},
    "Join": {"path": "x.jsonl", "by": "id"},
    "Answers": {"of": ["a", "b"], "first_better": {}, "second_better": {}},
    "Mapping.each": {"answers": {"of": ["a", "b"], "first_better": {}, "second_better": {}}},
}


def parts(annotation: Any) -> Iterator[Any]:
    """The members of a union, the values of a Literal."""
    if get_origin(annotation) is Annotated:
        yield from parts(get_args(annotation)[0])
    elif get_origin(annotation) in (Union, types.UnionType):
        for inner in get_args(annotation):
            yield from parts(inner)
    elif get_origin(annotation) is Literal:
        yield from get_args(annotation)
    else:
        yield annotation


def configs(kind: type[Config], seen: set[type[Config]]) -> set[type[Config]]:
    seen.add(kind)
    for field in kind.model_fields.values():
        waiting = [field.annotation]
        while waiting:
            part = waiting.pop()
            waiting += [inner for inner in get_args(part) if inner is not part]
            if isinstance(part, type) and issubclass(part, Config) and part not in seen:
                configs(part, seen)
    return seen


def off_keys() -> Iterator[tuple[type[Config], str]]:
    """Every key of every section whose type says that it can be off."""
    for kind in sorted(configs(Recipe, set()), key=lambda kind: kind.__name__):
        for name, field in kind.model_fields.items():
            found = list(parts(field.annotation))
            if any(part in (type(None), bool, "off") or part is False for part in found):
                yield kind, name


# Both mean something of their own there: whether to stream, and by the size.
OWN_MEANING = {("SourceConfig", "streaming")}


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        pytest.param(kind, name, id=f"{kind.__name__}.{name}")
        for kind, name in off_keys()
        if (kind.__name__, name) not in OWN_MEANING
    ],
)
def test_false_and_null_are_one(kind: type[Config], name: str) -> None:
    given = REQUIRED.get(f"{kind.__name__}.{name}", REQUIRED.get(kind.__name__, {}))
    off = [kind.model_validate({**given, name: value}) for value in (False, None)]
    assert off[0] == off[1]
    assert getattr(off[0], name) in (False, None, "off")
    for value in (False, None):
        assert of_key(kind, name).is_valid(value)
    assert not of_key(kind, name).is_valid({"no such key": 1})


@cache
def schema_of(kind: type[Config]) -> dict[str, Any]:
    return kind.model_json_schema()


def of_key(kind: type[Config], name: str) -> Draft202012Validator:
    whole = schema_of(kind)
    return Draft202012Validator(whole["properties"][name] | {"$defs": whole.get("$defs", {})})


def test_the_walk_finds_the_sections_one_knows_of() -> None:
    found = {(kind.__name__, name) for kind, name in off_keys()}
    assert {("Recipe", "judge"), ("Recipe", "fork"), ("SelectConfig", "active")} <= found
    assert {("DedupConfig", "near"), ("PairSetConfig", "word_auc"), ("Models", "policy")} <= found


@pytest.mark.parametrize("value", [False, None])
def test_sections_without_a_false_of_their_own_are_off_as_well(value: object) -> None:
    keys = dict.fromkeys(("natural", "budget", "redact", "reuse", "role"), value)
    recipe = parse_recipe({**SOURCE, **keys, "select": {"where": value, "decontaminate": value}})
    assert recipe.natural.enabled is False
    assert recipe.natural.verification is None
    assert recipe.budget == Recipe.model_validate(SOURCE).budget
    assert (recipe.redact, recipe.reuse, recipe.role) == ((), None, None)
    assert recipe.select
    assert recipe.select.named == {}
    assert recipe.select.decontaminate == ()


def test_on_and_off_as_yaml_reads_the_bare_words() -> None:
    judge = {"engine": "openai", "model": "m", "base_url": "http://localhost:1/v1"}
    recipe = {**SOURCE, "judge": {"text": False}, "models": {"judge": {**judge, "prefill": True}}}
    read = parse_recipe(recipe)
    assert read.judge
    assert read.judge.text == "off"
    assert read.models.judge.prefill == "on"  # type: ignore[union-attr]


def test_a_null_among_values_that_may_be_null_stays() -> None:
    judge = {"engine": "openai", "model": "m", "base_url": "http://localhost:1/v1"}
    models = {"judge": {**judge, "extra_body": {"temperature": None}}}
    read = parse_recipe({**SOURCE, "models": models}).models.judge
    assert read is not None
    assert read.extra_body == {"temperature": None}  # type: ignore[union-attr]


BASE = """
source: {path: chats.jsonl, cap: 5}
role: a clerk
models:
  judge: {engine: openai, model: m, base_url: "http://localhost:1/v1", context: 4096, retries: 9, deadline: 5}
judge: {max_turns: 3}
select:
  where: {good: verdict >= 'good', long: n_turns > 2}
  dedup: {embedding: {model: e}}
fork: {resamples: 2}
"""


def extended(folder: Path, text: str, overrides: tuple[str, ...] = ()) -> Recipe:
    (folder / "base.yaml").write_text(BASE)
    path = folder / "mine.yaml"
    path.write_text("extends: base.yaml\n" + text)
    return load_recipe(path, overrides)


@pytest.mark.parametrize("is_override", [False, True], ids=["extends", "set"])
def test_null_takes_an_inherited_key_out(tmp_path: Path, is_override: bool) -> None:
    keys = ["source.cap", "role", "models.judge.context", "models.judge.retries", "judge.max_turns"]
    keys += ["models.judge.deadline", "select.where.long", "select.dedup.embedding", "fork"]
    if is_override:
        recipe = extended(tmp_path, "", tuple(f"{key}=null" for key in keys))
    else:
        text = """
source: {cap: null}
role: null
models: {judge: {context: null, retries: null, deadline: null}}
judge: {max_turns: null}
select: {where: {long: null}, dedup: {embedding: null}}
fork: null
"""
        recipe = extended(tmp_path, text)
    judge: Any = recipe.models.judge
    assert (recipe.source[0].cap, recipe.role, recipe.fork) == (None, None, False)
    assert (judge.model, judge.context, judge.retries, judge.deadline) == ("m", None, 4, None)
    assert recipe.judge
    assert recipe.judge.max_turns == 10
    assert recipe.select
    assert recipe.select.where == {"good": "verdict >= 'good'"}
    assert recipe.select.dedup is not None
    assert recipe.select.dedup.embedding is None


def test_an_engine_that_is_named_inherits_nothing_of_another(tmp_path: Path) -> None:
    recipe = extended(tmp_path, "models: {judge: {engine: llamacpp, model: j.gguf}}")
    assert recipe.models.judge is not None
    assert recipe.models.judge.context == 8192


def test_conditions_of_both_recipes_hold(tmp_path: Path) -> None:
    recipe = extended(tmp_path, "select: {where: {short: n_turns < 9, long: n_turns > 3}}")
    assert recipe.select
    assert recipe.select.where == {
        "good": "verdict >= 'good'",
        "long": "n_turns > 3",
        "short": "n_turns < 9",
    }
