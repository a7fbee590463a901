"""The Python API against a real server, and the README's example as it stands there."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import curate
from curate.adherence.config import AdherenceConfig
from curate.engines import model_pool
from curate.engines.base import Completion, Request, Usage
from curate.engines.scripted import ScriptedEngine
from curate.errors import UsageError
from curate.pairs.config import ForkConfig
from curate.records import AdherenceScore, Judgment
from curate.selection.config import SelectConfig
from tests.servers import CountingServer

ROOT = Path(__file__).parent.parent
SAMPLE = ROOT / "recipes/sample/support.jsonl"


def model(server: CountingServer) -> dict[str, Any]:
    return {"engine": "openai", "model": "fake-judge", "base_url": server.base_url}


def test_a_config_given_to_the_api_says_how_often_a_call_is_repeated(
    server: CountingServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    patience: set[tuple[str, int | None, float | None]] = set()

    class Noted(model_pool.Client):
        def __init__(self, engine: Any, *args: Any, **options: Any) -> None:
            given = (options.get("retries"), options.get("deadline"))
            patience.add((engine.identity.model, *given))
            super().__init__(engine, *args, **options)

    monkeypatch.setattr(model_pool, "Client", Noted)
    judge = model(server) | {"retries": 1, "deadline": 7.0}
    dialogues = curate.load_dialogues(SAMPLE).dialogues[:1]
    judgments = curate.judge_dialogues(dialogues, judge)
    assert patience == {("fake-judge", 1, 7.0)}
    patience.clear()
    policy = ScriptedEngine(lambda request: "Yes.", capabilities=frozenset())
    curate.fork_pairs(dialogues, judgments, judge=judge, policy=policy, reviser=model(server))
    assert patience == {
        ("fake-judge", 1, 7.0),
        ("scripted", None, None),
        ("fake-judge", 4, 900.0),
    }


HOSTED = {
    "engine": "openai",
    "model": "big",
    "base_url": "https://api.example.com/v1",
    "prices": {"input": 1.0, "output": 2.0},
}
MAILED = [
    {"role": "user", "content": "Write to ann@shop.org, please."},
    {"role": "assistant", "content": "I have written to ann@shop.org."},
]


@dataclass
class Opened:
    """Stands in for `open_engine`: the configs that were opened, the engines made and those closed."""

    configs: list[Any] = field(default_factory=list)
    engines: list[ScriptedEngine] = field(default_factory=list)
    closed: list[ScriptedEngine] = field(default_factory=list)

    async def __call__(self, config: Any) -> ScriptedEngine:
        opened = self

        class Closing(ScriptedEngine):
            async def close(self) -> None:
                opened.closed.append(self)

        def answer(request: Request) -> Completion:
            return Completion(text="yes", usage=Usage(1000, 0, 10))

        self.configs.append(config)
        self.engines.append(Closing(answer, capabilities=frozenset(), model=config.model))
        return self.engines[-1]

    @property
    def asked(self) -> list[Request]:
        return [request for engine in self.engines for request in engine.requests]


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> Opened:
    stand_in = Opened()
    monkeypatch.setattr(model_pool, "open_engine", stand_in)
    return stand_in


def test_each_distinct_model_is_opened_once_and_closed(opened: Opened) -> None:
    other = HOSTED | {"model": "other"}
    for judge, policy, reviser, distinct in (
        (HOSTED, HOSTED, None, ["big"]),
        (HOSTED, HOSTED | {"prices": None}, HOSTED, ["big"]),
        (HOSTED, other, None, ["big", "other"]),
        (HOSTED, other, other, ["big", "other"]),
        (HOSTED, other, HOSTED, ["big", "other"]),
    ):
        opened.configs.clear()
        opened.engines.clear()
        opened.closed.clear()
        curate.fork_pairs([], [], judge=judge, policy=policy, reviser=reviser)
        assert [config.model for config in opened.configs] == distinct
        assert {*map(id, opened.closed)} == {*map(id, opened.engines)}


def hosted_recipe(tmp_path: Path, **sections: Any) -> Path:
    (tmp_path / "rows.jsonl").write_text(json.dumps({"messages": MAILED}))
    file = tmp_path / "hosted.yaml"
    given = {"source": {"path": str(tmp_path / "rows.jsonl")}, "models": {"judge": HOSTED}}
    file.write_text(json.dumps(given | {"judge": False, "role": "A clerk."} | sections))
    return file


@pytest.mark.parametrize("way", ["run", "recipe", "argument", "open engine"])
def test_what_a_hosted_judge_is_sent_is_redacted_by_run_and_api_alike(
    way: str, opened: Opened, tmp_path: Path
) -> None:
    redact = [] if way in ("argument", "open engine") else ["email"]
    file = hosted_recipe(tmp_path, redact=redact)
    dialogues = curate.load_dialogues([{"messages": MAILED}], role="A clerk.").dialogues
    engine = ScriptedEngine(lambda request: "yes", capabilities=frozenset())
    if way == "run":
        curate.run_recipe(file, out=tmp_path / "out")
    elif way == "open engine":
        curate.score_adherence(dialogues, engine, redact=["email"])
    else:
        curate.score_adherence(dialogues, file, redact=["email"] if way == "argument" else None)
    asked = engine.requests if way == "open engine" else opened.asked
    assert asked
    for request in asked:
        assert "[email]" in str(request.messages)
        assert "ann@" not in str(request.messages)


def test_what_stays_on_this_machine_is_not_redacted(opened: Opened) -> None:
    dialogues = curate.load_dialogues([{"messages": MAILED}], role="A clerk.").dialogues
    local = HOSTED | {"base_url": "http://localhost:8000/v1"}
    curate.score_adherence(dialogues, local, redact=["email"])
    assert "ann@shop.org" in str(opened.asked[0].messages)


@pytest.mark.parametrize("limits", [{"calls": 1}, {"tokens": 900}, {"money": 0.001}])
@pytest.mark.parametrize("way", ["recipe", "argument"])
def test_a_budget_stops_a_call_of_the_api(
    limits: dict[str, Any], way: str, opened: Opened, tmp_path: Path
) -> None:
    file = hosted_recipe(tmp_path, budget=limits if way == "recipe" else {})
    dialogues = curate.load_dialogues(SAMPLE, role="A clerk.", limit=3).dialogues
    budget = limits if way == "argument" else None
    kept = tmp_path / "replies"
    with pytest.raises(curate.BudgetReached):
        curate.score_adherence(dialogues, file, replies=kept, budget=budget)
    # one reply came to 1,010 tokens and .00102 of money, and is kept
    assert len(opened.asked) == 1
    scores = curate.score_adherence(dialogues[:1], file, replies=kept, budget={"calls": 99})
    assert isinstance(scores[0], AdherenceScore)
    assert len(opened.asked) == len(scores[0].per_turn)


def test_bounds_that_cannot_hold_are_refused(tmp_path: Path) -> None:
    unpriced = {key: value for key, value in HOSTED.items() if key != "prices"}
    with pytest.raises(UsageError, match="the judge's part"):
        curate.judge_dialogues([], unpriced, budget={"money": 1})
    with pytest.raises(UsageError, match="the judge's part"):
        curate.judge_dialogues([], ScriptedEngine([]), budget={"money": 1})
    with pytest.raises(UsageError, match="did you mean 'calls'"):
        curate.judge_dialogues([], HOSTED, budget={"call": 1})
    with pytest.raises(UsageError, match="not kinds of personal data"):
        curate.judge_dialogues([], HOSTED, redact=["emails"])  # type: ignore[list-item]


def test_every_name_of_the_package_is_there() -> None:
    assert set(curate.__all__) <= set(dir(curate))
    for name in curate.__all__:
        assert getattr(curate, name) is not None
    configs = {"SelectConfig", "RubricConfig", "AdherenceConfig", "ForkConfig", "SourceConfig"}
    assert configs | {"OpenAIConfig", "CurateError", "Dialogue", "Judgment"} <= set(dir(curate))
    with pytest.raises(AttributeError):
        _ = curate.no_such_name


def test_rows_in_memory_are_read_like_a_file() -> None:
    rows = [json.loads(line) for line in SAMPLE.read_text().splitlines()]
    expected = [d.content_hash for d in curate.load_dialogues(SAMPLE).dialogues]
    assert [d.content_hash for d in curate.load_dialogues(rows).dialogues] == expected
    plain = [row["messages"] for row in rows if "tools" not in row]
    loaded = curate.load_dialogues(pl.DataFrame({"messages": plain}))
    assert loaded.tally.rows_used == len(plain) == 7


def test_from_file_to_pairs(server: CountingServer) -> None:
    loaded = curate.load_dialogues(SAMPLE)
    assert loaded.tally.rows_in == len(loaded.dialogues) == 8
    assert loaded.detection.shape == "messages"
    judgments = curate.judge_dialogues(loaded.dialogues, model(server))
    assert [record.dialogue_id for record in judgments] == [d.id for d in loaded.dialogues]
    adherence = curate.score_adherence(
        loaded.dialogues, model(server), AdherenceConfig(output_mode="continuous")
    )
    assert all(isinstance(record, AdherenceScore) for record in adherence)
    decisions = curate.select(
        loaded.dialogues,
        judgments,
        adherence,
        SelectConfig(where={"helpful": "mean_helpfulness >= 3"}),
    )
    assert len(decisions) == 8
    pairs = curate.fork_pairs(
        loaded.dialogues,
        judgments,
        judge=model(server),
        policy=model(server),
        config=ForkConfig(resamples=1),
    )
    assert {pair.dialogue_id for pair in pairs} == {
        record.dialogue_id for record in judgments if isinstance(record, Judgment)
    }


def test_kept_replies_are_not_asked_for_again(server: CountingServer, tmp_path: Path) -> None:
    dialogues = curate.load_dialogues(SAMPLE).dialogues
    first = curate.judge_dialogues(dialogues, model(server), replies=tmp_path / "replies")
    asked = len(server.requests)
    again = curate.judge_dialogues(dialogues, model(server), replies=tmp_path / "replies")
    probes = server.requests[asked:]
    assert not any("<dialogue>" in str(body["messages"]) for body in probes)
    assert first == again


def test_an_open_engine_is_asked_and_stays_open() -> None:
    engine = ScriptedEngine(lambda request: "yes", capabilities=frozenset())
    dialogues = curate.load_dialogues(SAMPLE).dialogues[:1]
    [score] = curate.score_adherence(dialogues, engine)
    assert isinstance(score, AdherenceScore)
    assert score.session_score == 1.0
    assert len(engine.requests) == len(score.per_turn)


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"engine": "nosuch"}, "engine: no engine is called 'nosuch'"),
        (
            {"engine": "openai", "modle": "x", "base_url": "http://localhost:1/v1"},
            "modle: no such key; did you mean 'model'?",
        ),
        ({"engine": "openai", "model": "x"}, "base_url: this key is needed"),
        ({"model": "x"}, "engine: this key is needed, one of: llamacpp, openai"),
        (3, "got 3"),
        (None, "got None"),
    ],
)
def test_a_wrong_engine_config_is_named(config: Any, said: str) -> None:
    with pytest.raises(UsageError) as raised:
        curate.judge_dialogues([], config)
    assert said in str(raised.value)
    with pytest.raises(UsageError) as raised:
        curate.fork_pairs([], [], judge=ScriptedEngine([]), policy=config)
    assert said in str(raised.value)


@pytest.fixture
def recipe_file(server: CountingServer, tmp_path: Path) -> Path:
    judge = json.dumps(model(server))
    file = tmp_path / "mine.yaml"
    file.write_text(
        f"source: {{path: {SAMPLE}, limit: 2}}\nmodels: {{judge: {judge}, policy: {judge}}}\n"
        "judge: {mode: json}\nadherence: {definition: restrictive}\n"
        "select: {where: {short: n_turns < 3}}\n"
    )
    return file


def test_a_recipe_is_run_from_its_path_or_a_mapping(recipe_file: Path, tmp_path: Path) -> None:
    for number, path in enumerate([recipe_file, str(recipe_file)]):
        result = curate.run_recipe(path, out=tmp_path / f"out-{number}")
        assert result.manifest.rows_in == 2
    mapping = {
        "name": "mine",
        "source": {"path": str(SAMPLE)},
        "judge": False,
        "adherence": False,
        "select": {"where": {}},
    }
    result = curate.run_recipe(mapping, out=tmp_path / "mapped")
    assert result.manifest.rows_in == 8
    with pytest.raises(UsageError, match="slect: no such key; did you mean 'select'"):
        curate.run_recipe(mapping | {"slect": {}})
    with pytest.raises(UsageError, match="no such recipe"):
        curate.run_recipe("none.yaml")
    with pytest.raises(UsageError, match="got 3"):
        curate.run_recipe(3)  # type: ignore[arg-type]


def test_configs_are_mappings_or_sections_of_a_recipe(
    server: CountingServer, recipe_file: Path
) -> None:
    """What a mapping says, a recipe's path says and a config object says come to the same scores."""
    dialogues = curate.load_dialogues(SAMPLE, limit=2).dialogues
    ways: list[dict[str, Any]] = [
        {
            "model": model(server),
            "judging": {"mode": "json"},
            "adherence": {"definition": "restrictive"},
            "select": {"where": {"short": "n_turns < 3"}},
        },
        dict.fromkeys(("model", "judging", "adherence", "select"), str(recipe_file)),
        dict.fromkeys(("model", "judging", "adherence", "select"), recipe_file),
        {
            "model": curate.OpenAIConfig(**model(server)),
            "judging": curate.RubricConfig(mode="json"),
            "adherence": curate.AdherenceConfig(definition="restrictive"),
            "select": curate.SelectConfig(where={"short": "n_turns < 3"}),
        },
    ]
    results = []
    for way in ways:
        judgments = curate.judge_dialogues(dialogues, way["model"], way["judging"])
        scores = curate.score_adherence(dialogues, way["model"], way["adherence"])
        decisions = curate.select(dialogues, judgments, scores, way["select"])
        assert {
            judgment.identity.mode for judgment in judgments if isinstance(judgment, Judgment)
        } == {"json"}
        results.append((judgments, scores, decisions))
    assert all(result == results[0] for result in results)
    pairs = [
        curate.fork_pairs(
            dialogues,
            results[0][0],
            judge=given,
            policy=given,
            config={"resamples": 1},
            judging=judging,
            adherence=adherence,
        )
        for given, judging, adherence in (
            (model(server), {"mode": "json"}, {"definition": "restrictive"}),
            (recipe_file, recipe_file, recipe_file),
        )
    ]
    assert pairs[0] == pairs[1]
    assert pairs[0]


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (
            lambda: curate.select([], [], None, {"wher": {}}),
            "wher: no such key; did you mean 'where'?",
        ),
        (lambda: curate.select([], [], None, {"where": {"a": "verdct = 'good'"}}), "verdict"),
        (lambda: curate.select([], [], None, 3), "got 3"),
        (
            lambda: curate.judge_dialogues([], ScriptedEngine([]), {"mode": "jsn"}),
            "mode: Input should be",
        ),
        (
            lambda: curate.score_adherence([], ScriptedEngine([]), {"treshold": 1}),
            "did you mean 'threshold'",
        ),
        (
            lambda: curate.fork_pairs(
                [], [], judge=ScriptedEngine([]), policy=ScriptedEngine([]), config={"resample": 1}
            ),
            "did you mean 'resamples'",
        ),
        (lambda: curate.load_dialogues(SAMPLE, shap="messages"), "did you mean 'shape'"),
        (lambda: curate.load_dialogues(SAMPLE, shape="mesages"), "shape"),
        (lambda: curate.load_dialogues({"pth": "x"}), "did you mean 'path'"),
        (lambda: curate.load_dialogues(3), "got: int"),
    ],
)
def test_a_wrong_key_of_a_config_is_named(call: Callable[[], object], said: str) -> None:
    with pytest.raises(UsageError) as raised:
        call()
    assert said in str(raised.value)


def test_a_section_that_a_recipe_leaves_out_is_said_to_be(recipe_file: Path) -> None:
    engine = ScriptedEngine([])
    with pytest.raises(UsageError, match="has no section `fork`"):
        curate.fork_pairs([], [], judge=engine, policy=engine, config=recipe_file)
    with pytest.raises(UsageError, match=r"names no models\.reviser"):
        curate.fork_pairs([], [], judge=engine, policy=engine, reviser=recipe_file)


def test_rows_of_any_kind_are_read(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    datasets = pytest.importorskip("datasets")
    rows = [json.loads(line) for line in SAMPLE.read_text().splitlines()]
    rows = [row for row in rows if "tools" not in row]
    rows[0]["reward"] = 1
    file = tmp_path / "rows.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    expected = curate.load_dialogues(file)
    assert expected.tally.rows_used == len(rows) == 7
    frame = pandas.DataFrame(rows)
    parquet = tmp_path / "rows.parquet"
    pl.DataFrame(rows, infer_schema_length=None).write_parquet(parquet)
    kinds: dict[str, Any] = {
        "list": rows,
        "generator": (row for row in rows),
        "pandas": frame,
        "pandas with an index of its own": frame.set_index(frame.index + 5),
        "pandas of arrays": pandas.read_parquet(parquet),
        "polars": pl.DataFrame(rows, infer_schema_length=None),
        "lazy polars": pl.LazyFrame(rows, infer_schema_length=None),
        "datasets": datasets.Dataset.from_list(rows),
        "mapping": {"path": str(file)},
        "config": curate.SourceConfig(path=str(file)),
        "path": str(file),
    }
    for kind, given in kinds.items():
        loaded = curate.load_dialogues(given, shape="messages")
        assert loaded.detection.shape == "messages", kind
        assert loaded.tally.rows_used == 7, (kind, loaded.quarantined)
        hashes = [d.content_hash for d in loaded.dialogues]
        assert hashes == [d.content_hash for d in expected.dialogues], kind
        assert loaded.dialogues[0].reward == 1, kind
        assert loaded.dialogues[1].reward is None, kind
    whole = datasets.Dataset.from_list(rows)
    splits = datasets.DatasetDict({"train": whole, "test": whole})
    with pytest.raises(UsageError, match="train, test"):
        curate.load_dialogues(splits)


def test_a_shape_is_taken_over_what_would_be_detected() -> None:
    assert curate.load_dialogues(SAMPLE, shape="sharegpt").detection.shape == "sharegpt"
    mapped = curate.load_dialogues(
        [{"log": [{"who": "user", "says": "Hi"}, {"who": "assistant", "says": "Hello"}]}],
        mapping={
            "each": "log[*]",
            "messages": [{"role_from": "who", "text": "says"}],
        },
        role="A clerk.",
    )
    assert [message.content for message in mapped.dialogues[0].messages] == ["Hi", "Hello"]


@pytest.mark.model
def test_the_example_of_the_readme_runs(tmp_path: Path) -> None:
    """As it stands, on one turn of the sample, without words, and with one thread for the small model."""
    [code] = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    chat = json.loads(SAMPLE.read_text().splitlines()[0])
    (tmp_path / "recipes/sample").mkdir(parents=True)
    (tmp_path / "recipes/sample/support.jsonl").write_text(
        json.dumps(chat | {"messages": chat["messages"][:3]})
    )
    recipe = (ROOT / "recipes/quickstart.yaml").read_text()
    for given, here in (
        ("context: 8192", "context: 8192, threads: 1"),
        ("judge: {mode: auto}", "judge: {mode: auto, text: off}"),
    ):
        assert recipe.count(given) == 1
        recipe = recipe.replace(given, here)
    (tmp_path / "recipes/quickstart.yaml").write_text(recipe)
    result = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=600
    )
    assert result.returncode == 0, result.stderr
    assert "messages 1 dialogues, 0 quarantined" in result.stdout
    assert result.stdout.count(chat["id"]) == 2


def test_rows_of_which_none_can_be_read_are_an_error_with_their_keys() -> None:
    rows = [{"log": [{"who": "user", "says": "Hi"}], "nr": n} for n in range(3)]
    with pytest.raises(UsageError, match=r"log\[\*\] \(who, says\), nr"):
        curate.load_dialogues(rows, shape="messages")
    open_end = [{"messages": [{"role": "user", "content": "Hi"}]}]
    with pytest.raises(curate.SourceError, match="no_assistant 1"):
        curate.load_dialogues(open_end)
