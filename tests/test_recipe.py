"""Recipes: what is refused, and whether the message helps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import curate.recipe.files as recipe_files
from curate.errors import UsageError
from curate.recipe import load_recipe, parse_recipe

ROOT = Path(__file__).parent.parent
MINIMAL = """
source: {path: chats.jsonl}
models:
  judge: {engine: scripted, replies: []}
"""


def write(folder: Path, text: str, name: str = "mine.yaml") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def test_the_name_defaults_to_the_file(tmp_path: Path) -> None:
    assert load_recipe(write(tmp_path, MINIMAL)).name == "mine"


def test_a_file_name_with_blanks_gives_a_name_without(tmp_path: Path) -> None:
    assert load_recipe(write(tmp_path, MINIMAL, "my chats (2).yaml")).name == "my-chats-2-"


@pytest.mark.parametrize("name", [".", "..", "a/b", "../up"])
def test_a_name_that_is_another_folder_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match="name"):
        parse_recipe({"name": name, "source": {"path": "x"}})


def test_a_key_that_stands_twice_is_refused(tmp_path: Path) -> None:
    twice = MINIMAL + "select: {top: null}\nselect: {active: null}\n"
    with pytest.raises(UsageError, match=r"'select' occurs twice"):
        load_recipe(write(tmp_path, twice))


def test_a_key_over_a_merged_one_is_not_twice(tmp_path: Path) -> None:
    text = """
source: {path: chats.jsonl}
models:
  judge: &judge {engine: scripted, replies: [], model: a}
  policy: &policy {<<: *judge, model: b}
  reviser: {<<: *policy, model: c}
"""
    models = load_recipe(write(tmp_path, text)).models
    assert [models.judge.model, models.policy.model, models.reviser.model] == ["a", "b", "c"]  # type: ignore[union-attr]


@pytest.mark.parametrize("path", sorted((ROOT / "recipes").glob("*.yaml")), ids=lambda p: p.stem)
def test_every_recipe_that_ships_is_valid(path: Path) -> None:
    load_recipe(path).checked()


@pytest.mark.parametrize("path", sorted((ROOT / "recipes").glob("*.yaml")), ids=lambda p: p.stem)
def test_only_quickstart_names_the_small_model(path: Path) -> None:
    lines = [line.split("#")[0] for line in path.read_text().splitlines()]
    assert any("smollm2" in line for line in lines) == (path.stem == "quickstart")


def test_a_recipe_without_a_judge_is_refused_with_what_to_write(tmp_path: Path) -> None:
    recipe = load_recipe(write(tmp_path, "source: {path: x.jsonl}"))
    with pytest.raises(UsageError, match="names no judge") as raised:
        recipe.checked()
    assert "judge: {engine: openai" in str(raised.value)


def test_a_run_to_reuse_that_is_not_there_is_refused_before_all_is_asked_anew(
    tmp_path: Path,
) -> None:
    with pytest.raises(UsageError, match="reuse does not name a run"):
        load_recipe(write(tmp_path, MINIMAL + f"reuse: {tmp_path / 'none'}\n")).checked()


def test_roles_from_a_recipe_that_has_none_are_refused() -> None:
    source = {"path": "x.jsonl"}
    with pytest.raises(UsageError, match="has `role_from: recipe` but no role"):
        parse_recipe(
            {"name": "x", "source": source, "role_from": "recipe", "judge": False}
            | {"adherence": False, "select": {"where": {}}}
        ).checked()


JUDGE = {"engine": "scripted", "replies": []}


@pytest.mark.parametrize(
    ("sections", "place", "column", "setting"),
    [
        (
            {"judge": False, "select": {"where": {"good": "verdict >= 'good'"}}},
            "select.where.good",
            "verdict",
            "judge: false",
        ),
        (
            {"adherence": False, "select": {"where": {"kept": "reward > 0 OR adherence > 0.5"}}},
            "select.where.kept",
            "adherence",
            "adherence: false",
        ),
        (
            {"judge": False, "select": {"top": {"fraction": 0.5, "by": "mean_score"}}},
            "select.top.by",
            "mean_score",
            "judge: false",
        ),
        (
            {"adherence": False, "select": {"review": "NOT adherent"}},
            "select.review",
            "adherent",
            "adherence: false",
        ),
        (
            {"judge": False, "adherence": False, "select": {"active": "attention > 0.5"}},
            "select.active",
            "attention",
            "judge: false",
        ),
        (
            {"judge": False, "select": {"dedup": {"keep": "mean_score"}}},
            "select.dedup.keep",
            "mean_score",
            "judge: false",
        ),
        (
            {"adherence": False, "fork": {"where": "adherence < 0.5"}},
            "fork.where",
            "adherence",
            "adherence: false",
        ),
        (
            {"adherence": False, "export": {"salvage": {"where": "adherence > 0.2"}}},
            "export.salvage.where",
            "adherence",
            "adherence: false",
        ),
        (
            {"judge": {"mode": "json"}, "select": {"where": {"sure": "coherence_spread < 1"}}},
            "select.where.sure",
            "coherence_spread",
            "judge.mode: json",
        ),
        (
            {"select": {"where": {"clean": "n_scope_violations = 0"}}},
            "select.where.clean",
            "n_scope_violations",
            "adherence.include_reason: false",
        ),
        (
            {
                "adherence": {"evaluation_granularity": "conversation"},
                "select": {"where": {"steady": "min_adherence > 0.5"}},
            },
            "select.where.steady",
            "min_adherence",
            "adherence.evaluation_granularity: conversation",
        ),
    ],
)
def test_a_condition_on_a_column_that_no_stage_fills_is_refused(
    sections: dict[str, Any], place: str, column: str, setting: str
) -> None:
    models = {"judge": JUDGE, "policy": JUDGE}
    given = {"name": "x", "source": {"path": "x.jsonl"}, "models": models} | sections
    with pytest.raises(UsageError) as raised:
        parse_recipe(given).checked()
    said = str(raised.value)
    assert f"{place} reads a column that this recipe does not fill" in said
    assert f"{column} in " in said
    assert f"the recipe says {setting}" in said


@pytest.mark.parametrize(
    "sections",
    [
        {"judge": False, "adherence": False},
        {"judge": False, "adherence": False, "select": {}},
        {
            "judge": False,
            "select": {"where": "auto", "active": {"fraction": 0.1, "by": "attention"}},
        },
        {"judge": False, "adherence": False, "select": {"review": "judge_unscored IS NULL"}},
        {"adherence": False, "select": {"where": {"good": "verdict >= 'good' AND reward > 0"}}},
        {
            "judge": {"mode": "tokens"},
            "adherence": {"include_reason": True},
            "select": {"where": {"sure": "coherence_spread < 1 AND n_scope_violations = 0"}},
        },
        {
            "judge": {"mode": "json", "samples": 5},
            "select": {"where": {"sure": "coherence_spread < 1"}},
        },
    ],
)
def test_columns_that_a_recipe_fills_may_be_asked_for(sections: dict[str, Any]) -> None:
    given = {"name": "x", "source": {"path": "x.jsonl"}, "models": {"judge": JUDGE}} | sections
    recipe = parse_recipe(given).checked()
    # as a run keeps it, every default written out; `curate verify` starts from that
    parse_recipe(recipe.model_dump(mode="json")).checked()


def test_forks_without_a_policy_are_refused(tmp_path: Path) -> None:
    recipe = load_recipe(write(tmp_path, MINIMAL + "fork: {resamples: 1}\n"))
    with pytest.raises(UsageError, match="no policy model"):
        recipe.checked()


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("max_unscord: 0.1", "did you mean 'max_unscored'"),
        ("judge: {max_turn: 3}", "did you mean 'max_turns'"),
        ("adherence: {treshold: 0.3}", "did you mean 'threshold'"),
        ("source: {path: x, maping: {}}", "did you mean 'mapping'"),
        ("source: [{path: x}, {path: y, limt: 3}]", "did you mean 'limit'"),
        ("models: {judge: {engine: llamacpp, model: x, contxt: 9}}", "did you mean 'context'"),
        ("select: {top: {fration: 0.5, by: mean_score}}", "did you mean 'fraction'"),
        ("fork: {min_good: {safty: 4}}", "did you mean 'safety'"),
        ("max_unscored: 7", "max_unscored"),
        ("budget: {calls: 0}", "budget.calls"),
        ("judge: {window_turns: 9}", "judge.window_turns"),
        ("select: {where: {a: no_such_column > 1}}", "no_such_column"),
        ("models: {judge: {engine: chatgpt}}", "models.judge"),
    ],
)
def test_a_typo_is_named(tmp_path: Path, line: str, message: str) -> None:
    key = line.split(":")[0]
    text = "\n".join(row for row in MINIMAL.splitlines() if not row.startswith(key))
    text = "source: {path: x}\n" + line if key == "models" else text + "\n" + line
    with pytest.raises(UsageError) as raised:
        load_recipe(write(tmp_path, text))
    assert message in str(raised.value)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (
            "select: {top: {fraction: 1, by: reward, fraktion: 1}}",
            ["select.top.fraktion: no such key; did you mean 'fraction'?"],
        ),
        (
            "source: {path: x, limit: 0}",
            ["source.0.limit: Input should be greater than or equal to 1 (got 0)"],
        ),
        ("source: chats.jsonl", ["source.0: a mapping is expected (got 'chats.jsonl')"]),
        ("source: {}", ["source.0.path: this key is needed"]),
        (
            "fork: {min_margin: 0.3}",
            [
                "fork.min_margin: no such key any more; use `curve`, a file written by `curate calibrate`, which "
                "holds the threshold"
            ],
        ),
        (
            "natural: {verify: {min_margin: 0.3}}",
            [
                "natural.verify.min_margin: no such key any more; use `curve`, a file written by `curate calibrate`, "
                "which holds the threshold"
            ],
        ),
        (
            "metrics: {choose: [tool_rooting]}",
            [
                "metrics: no metric is called 'tool_rooting'; did you mean 'tool_routing'? (got {'choose': "
                "['tool_rooting']})"
            ],
        ),
        ("fork: {fine_from: {}}", ["fork.fine_from: no such key any more; use `min_good`"]),
        (
            "judge: {spare_prefix: S}",
            ["judge.spare_prefix: no such key any more; use `retry_prefix`"],
        ),
        (
            "judge: {turn_view: whole}",
            [
                "judge.turn_view: no such key any more; a question about a turn shows the dialogue up to that turn; "
                "`mode: json` shows the whole dialogue"
            ],
        ),
        (
            "export: {kto_turns: {fine_from: {}, bad_to: {}}}",
            [
                "export.kto_turns.fine_from: no such key any more; use `min_good`",
                "export.kto_turns.bad_to: no such key any more; use `max_bad`",
            ],
        ),
        (
            "models: {judge: {engine: scripted, replies: [], replis: 1}}",
            ["models.judge.replis: no such key; did you mean 'replies'?"],
        ),
        (
            'models: {judge: {engine: vllm, model: x, base_url: "http://localhost:8000/v1"}}',
            [
                "models.judge.base_url: no such key of `engine: vllm`, but of `engine: openai`: Any server "
                "with OpenAI's `/chat/completions`: vLLM, SGLang, TGI, llama.cpp, commercial"
            ],
        ),
        (
            "models: {judge: {engine: vllm, model: x, threads: 2}}",
            [
                "models.judge.threads: no such key of `engine: vllm`, but of `engine: llamacpp` or "
                "`engine: transformers`"
            ],
        ),
        (
            "models: {policy: {engine: opnai, model: x}}",
            ["models.policy.engine: no engine is called 'opnai'; did you mean 'openai'?"],
        ),
        (
            "models: {policy: {model: x}}",
            [
                "models.policy.engine: this key is needed, one of: llamacpp, openai, vllm, transformers, "
                "scripted"
            ],
        ),
        ("export: {trainers: trl}", ["export.trainers: a list is expected (got 'trl')"]),
        (
            "judge: yes",
            ["judge: a mapping is expected (got True)", "judge: Input should be False (got True)"],
        ),
        (
            "mix_seed: x\nrole: 5",
            [
                "mix_seed: Input should be a valid integer, unable to parse string as an integer (got 'x')",
                "role: Input should be a valid string (got 5)",
            ],
        ),
    ],
)
def test_a_mistake_is_said_once_and_what_follows_from_it_not(
    tmp_path: Path, line: str, said: list[str]
) -> None:
    text = line + ("" if line.startswith("source") else "\nsource: {path: x}")
    with pytest.raises(UsageError) as raised:
        load_recipe(write(tmp_path, text))
    assert sorted(str(raised.value.got).split("\n    ")) == sorted(said)


def test_a_path_too_long_for_a_file_is_no_path_beside_the_recipe(tmp_path: Path) -> None:
    assert (
        load_recipe(write(tmp_path, f"source: {{path: {'a' * 5000}}}")).source[0].path == "a" * 5000
    )


@pytest.mark.parametrize("text", ["- a list", "a: [", "just words"])
def test_what_is_no_recipe_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(UsageError):
        load_recipe(write(tmp_path, text))


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no such recipe"):
        load_recipe(tmp_path / "none.yaml")


def test_overrides_are_yaml_and_reach_nested_keys(tmp_path: Path) -> None:
    recipe = load_recipe(
        write(tmp_path, MINIMAL),
        [
            "judge.max_turns=4",
            "select.where.nice=verdict = 'good'",
            "budget={calls: 7}",
            "name=other",
        ],
    )
    assert recipe.judge.max_turns == 4
    assert recipe.select.where == {"nice": "verdict = 'good'"}
    assert recipe.budget.calls == 7
    assert recipe.name == "other"


@pytest.mark.parametrize(
    "override", ["judge.max_turns", "=3", "source.9.path=x", "judge.max_turns=[", "nosuch.key=1"]
)
def test_a_bad_override_is_refused(tmp_path: Path, override: str) -> None:
    recipe = write(tmp_path, MINIMAL.replace("{path: chats.jsonl}", "[{path: a}, {path: b}]"))
    with pytest.raises(UsageError):
        load_recipe(recipe, [override])


def test_setting_the_path_of_several_sources_names_the_one_of_this_run(tmp_path: Path) -> None:
    recipe = write(tmp_path, MINIMAL.replace("{path: chats.jsonl}", "[{path: a}, {path: b}]"))
    assert [s.path for s in load_recipe(recipe, ["source.path=c"]).source] == ["c"]
    assert [s.path for s in load_recipe(recipe, ["source.1.path=c"]).source] == ["a", "c"]


def test_extends_merges_sections_and_the_nearer_file_wins(tmp_path: Path) -> None:
    write(tmp_path, MINIMAL + "judge: {max_turns: 3, overlap: 2}\n", "base.yaml")
    recipe = load_recipe(write(tmp_path, "extends: base.yaml\njudge: {max_turns: 5}\n"))
    assert (recipe.name, recipe.judge.max_turns, recipe.judge.overlap) == ("mine", 5, 2)


def test_recipes_that_extend_each_other_are_refused(tmp_path: Path) -> None:
    write(tmp_path, "extends: b.yaml", "a.yaml")
    write(tmp_path, "extends: a.yaml", "b.yaml")
    with pytest.raises(UsageError, match="circle"):
        load_recipe(tmp_path / "a.yaml")


def test_a_source_beside_the_recipe_is_found_from_anywhere(tmp_path: Path) -> None:
    (tmp_path / "chats.jsonl").write_text("{}")
    assert load_recipe(write(tmp_path, MINIMAL)).source[0].path == str(tmp_path / "chats.jsonl")


BESIDE = {
    "source.path": "source={path: it}",
    "a list of sources": "source=[{path: elsewhere}, {path: it}]",
    "a list of paths": "source={path: [elsewhere, it]}",
    "one of several": "source.1.path=it",
    "reuse": "reuse=it",
    "prompt file": "judge={prompt_file: it}",
    "calibration": "adherence.calibration=it",
    "curve": "fork.curve=it",
    "verify curve": "natural.verify.curve=it",
    "baseline": "adherence.reference={baseline: it}",
    "eval set": "select.decontaminate=[{path: it}]",
}


@pytest.mark.parametrize("override", BESIDE.values(), ids=BESIDE)
@pytest.mark.parametrize("how", ["set", "file", "extended"])
def test_every_path_is_looked_for_beside_the_recipe(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, override: str, how: str
) -> None:
    read: list[str] = []
    monkeypatch.setattr(recipe_files, "parse_recipe", lambda data, where: read.append(str(data)))
    folder = tmp_path / "beside"
    folder.mkdir()
    (folder / "it").write_text("{}")
    plain = MINIMAL.replace("{path: chats.jsonl}", "[{path: elsewhere}, {path: elsewhere}]")
    if how == "set":
        load_recipe(write(folder, plain), [override])
    elif override.startswith("source.1"):
        pytest.skip("an index is an override's")
    else:
        key, _, value = override.partition("=")
        *sections, last = key.split(".")
        text = "".join(f"{section}: {{" for section in sections) + f"{last}: {value}"
        path = write(folder, MINIMAL.split("\n", 2)[2] + text + "}" * len(sections), "base.yaml")
        if how == "extended":
            path = write(tmp_path, "extends: beside/base.yaml")
        load_recipe(path)
    assert str(folder / "it") in read[0]
    assert "'elsewhere'" in read[0] or "elsewhere" not in override


def test_a_key_in_a_recipe_is_refused_and_not_repeated() -> None:
    secret = "sk-" + "a1B2" * 10
    judge = {"engine": "openai", "model": "m", "base_url": "http://x/v1", "api_key_env": secret}
    with pytest.raises(UsageError) as raised:
        parse_recipe({"name": "n", "source": {"path": "x"}, "models": {"judge": judge}})
    assert secret not in str(raised.value)
