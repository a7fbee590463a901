"""Duplicates, contamination and the split through whole runs; no model is needed for any of it."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from curate.api import select as select_dialogues
from curate.dialogue import Dialogue
from curate.errors import SourceError, UsageError
from curate.recipe import load_recipe, parse_recipe
from curate.records.validation import validate_record
from curate.run import cleaning_inputs as cleaning
from curate.run.cleaning_inputs import eval_texts, prepare_cleaning
from curate.run.pipeline import RunResult, run_recipe
from curate.selection.config import EvalSet, SelectConfig
from curate.sources.config import SourceConfig
from tests.live import live_server
from tests.servers import CountingServer

EVAL = (
    "Natalia sold clips to 48 of her friends in April and then she sold half as many clips in May."
)
LONG = (
    "I bought a pair of red running shoes in your shop and now I would like to return them please"
)


def chat(name: str, *texts: str, **fields: Any) -> dict[str, Any]:
    roles = ("user", "assistant")
    messages = [{"role": roles[n % 2], "content": text} for n, text in enumerate(texts)]
    return {"id": name, "messages": messages, **fields}


def write(path: Path, rows: list[Any]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def run(folder: Path, rows: list[Any], select: dict[str, Any], **sections: Any) -> RunResult:
    given = {
        "name": "test",
        "source": {"path": str(write(folder / "chats.jsonl", rows))},
        "judge": False,
        "adherence": False,
        "select": {"where": {}, "active": None} | select,
    }
    return run_recipe(parse_recipe(given | sections), out=folder / "run")


ROWS = [
    chat("first", LONG, "Of course. Send them back within thirty days and we will pay you back."),
    chat("exact", LONG, "Of course. Send them back within thirty days and we will pay you back. "),
    chat("near", LONG, "Of course! Send them back within thirty days and we will pay you."),
    chat(
        "prompt",
        LONG + "!",
        "No. We do not take back anything, whatever you may say to us about it.",
    ),
    chat("dirty", "Help me with this:", EVAL.lower() + " So it is 72."),
    *(chat(f"own{n}", f"Tell me about topic {n}", f"Topic {n} is number {n}.") for n in range(15)),
]


def test_planted_duplicates_and_contamination_are_removed_with_what_they_collided_with(
    tmp_path: Path,
) -> None:
    evals = write(tmp_path / "gsm8k_test.jsonl", [{"question": "Too short?"}, {"question": EVAL}])
    result = run(
        tmp_path,
        ROWS,
        {
            "dedup": {"near": {"threshold": 0.7, "of": ["dialogue", "first_user"]}},
            "decontaminate": [{"path": str(evals), "field": "question", "ngram": 13}],
        },
    )
    decisions = {d["dialogue_id"]: d for d in lines(tmp_path / "run/select/decisions.jsonl")}
    for decision in decisions.values():
        validate_record("decision", decision)
    found = {name: d["reasons"] for name, d in decisions.items() if d["reasons"]}
    assert found == {
        "exact": ["duplicate_exact"],
        "near": ["near_duplicate", "near_duplicate_prompt"],
        "prompt": ["near_duplicate_prompt"],
        "dirty": ["contaminated"],
    }
    assert {c["other"] for name in found for c in decisions[name]["collisions"]} == {
        "first",
        "gsm8k_test.jsonl:2",
    }
    [contaminated] = decisions["dirty"]["collisions"]
    assert contaminated["text"] == "natalia sold clips to 48 of her friends in april and then she"
    assert 0.7 <= decisions["near"]["collisions"][0]["similarity"] < 1
    # every dialogue read is in the SFT set or rejected for a reason
    reasons = Counter(d["reasons"][0] for d in decisions.values() if d["reasons"])
    assert result.manifest.dialogues == result.manifest.selected + reasons.total() == len(ROWS)
    assert result.manifest.rejections == reasons
    every = Counter(reason for d in decisions.values() for reason in d["reasons"])
    assert result.manifest.rejection_reasons == every
    assert len(lines(tmp_path / "run/export/trl/sft.jsonl")) == result.manifest.selected == 16
    assert any("1 are shorter than 13 words" in warning for warning in result.manifest.warnings)
    assert sorted(path.name for path in (tmp_path / "run/select").iterdir()) == [
        "active.jsonl",
        "decisions.jsonl",
        "rejected.jsonl",
        "review.jsonl",
        "sft.jsonl",
    ]


def test_the_best_judged_of_equals_is_kept(tmp_path: Path) -> None:
    rows = [
        chat(f"d{n}", LONG, f"Answer {n} is what we say to all who ask us that.") for n in range(6)
    ]
    with live_server() as server:
        assert isinstance(server, CountingServer)
        model = {"engine": "openai", "model": "fake-judge", "base_url": server.base_url}
        select = {"dedup": {"near": {"of": ["first_user"]}, "keep": "mean_score"}}
        run(tmp_path, rows, select, models={"judge": model}, judge={}, scenario="A shop.")
    import polars as pl

    scores = pl.read_parquet(tmp_path / "run/scores.parquet").sort("mean_score", descending=True)
    assert scores["mean_score"].n_unique() > 1
    best = scores["mean_score"][0]
    decisions = lines(tmp_path / "run/select/decisions.jsonl")
    [kept] = [d["dialogue_id"] for d in decisions if "sft" in d["sets"]]
    assert scores.filter(pl.col("id") == kept)["mean_score"].item() == best
    assert {c["other"] for d in decisions for c in d["collisions"]} == {kept}


def test_train_and_validation_are_exported_apart(tmp_path: Path) -> None:
    rows = [
        chat(
            f"t{n}-{k}", f"Task {n} asks for it", f"Try {k} of {n}.", group=f"g{n}", reward=float(k)
        )
        for n in range(10)
        for k in range(2)
    ]
    split = {"validation": 0.3, "by": ["group"], "seed": 1}
    result = run(tmp_path, rows, {"split": split, "rejected_sides": True})
    folder = tmp_path / "run/export/trl"
    decisions = lines(tmp_path / "run/select/decisions.jsonl")
    side = {d["dialogue_id"]: d["split"] for d in decisions}
    assert Counter(side.values()) == {"train": 14, "validation": 6}
    assert all(side[f"t{n}-0"] == side[f"t{n}-1"] for n in range(10))
    for name, key in (("sft", "messages"), ("dpo_natural", "prompt")):
        train, held = (
            lines(folder / f"{name}.jsonl"),
            lines(folder / "validation" / f"{name}.jsonl"),
        )
        seen = [{row[key][0]["content"] for row in part} for part in (train, held)]
        assert seen[0]
        assert seen[1]
        assert not seen[0] & seen[1]
        assert (len(train), len(held)) == ((14, 6) if name == "sft" else (7, 3))
    assert set(result.manifest.exports) == {"trl", "trl/validation"}
    run(tmp_path, rows, {"rejected_sides": True})
    assert not (folder / "validation").exists()
    assert len(lines(folder / "sft.jsonl")) == 20


def test_a_contaminated_pair_is_refused(tmp_path: Path) -> None:
    evals = write(tmp_path / "evals.jsonl", [{"text": EVAL}])
    rows = [
        chat("a", "Tell me a story.", EVAL, group="g", reward=1.0),
        chat("b", "Tell me a story.", "Once upon a time.", group="g", reward=0.0),
    ]
    result = run(tmp_path, rows, {"decontaminate": {"path": str(evals)}})
    assert result.manifest.natural_pairs == 0
    assert result.manifest.drop_reasons["contaminated"] == 1
    [pair] = [
        pair
        for pair in lines(tmp_path / "run/pairs/dropped_pairs.jsonl")
        if pair["drop_reason"] == "contaminated"
    ]
    assert pair["detail"].startswith("evals.jsonl:1: natalia sold clips")


def test_a_missing_eval_set_stops_a_run_before_it_reads_anything(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="no file or folder"):
        run(tmp_path, ROWS, {"decontaminate": {"path": str(tmp_path / "none.jsonl")}})
    assert not (tmp_path / "run/dialogues.jsonl").exists()


def texts(path: Path, **fields: Any) -> list[tuple[str, str]]:
    return [(item.row, item.text) for item in eval_texts(EvalSet(path=str(path), **fields))]


def test_eval_sets_of_any_shape(tmp_path: Path) -> None:
    rows = [
        {"id": 7, "messages": [{"role": "user", "content": "Ask."}], "answer": ["A", {"b": "B"}]},
        {"question": {"text": "Deep"}},
    ]
    file = write(tmp_path / "evals.jsonl", rows)
    assert texts(file) == [("1", "user\nAsk.\nA\nB"), ("2", "Deep")]
    assert texts(file, field="question.text") == [("2", "Deep")]
    assert texts(file, field=("messages", "answer")) == [("1", "user\nAsk.\nA\nB")]
    plain = tmp_path / "evals.txt"
    plain.write_text("one\n\ntwo\n", encoding="utf-8")
    assert texts(plain) == [("1", "one\n"), ("3", "two\n")]
    import polars as pl

    pl.DataFrame({"q": ["x", "y"]}).write_parquet(tmp_path / "evals.parquet")
    assert texts(tmp_path / "evals.parquet", field="q") == [("1", "x"), ("2", "y")]


def test_an_eval_set_on_the_hub_is_read_by_its_id(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[SourceConfig] = []

    def hub_rows(config: SourceConfig) -> list[dict[str, Any]]:
        asked.append(config)
        return [{"question": "Too short?"}, {"question": EVAL, "answer": "72"}]

    monkeypatch.setattr(cleaning, "hub_rows", hub_rows)
    given = {"path": "openai/gsm8k", "config": "main", "split": "test", "field": "question"}
    config = SelectConfig.model_validate({"where": {}, "active": None, "decontaminate": [given]})
    dirty = Dialogue.model_validate(chat("d", "Help me", EVAL))
    [decision] = select_dialogues([dirty], [], config=config)
    assert decision.reasons == ("contaminated",)
    assert decision.collisions[0].other == "gsm8k:2"
    assert (asked[0].path, asked[0].config, asked[0].split) == ("openai/gsm8k", "main", "test")


def test_an_eval_set_that_cannot_be_used_is_refused(tmp_path: Path) -> None:
    file = write(tmp_path / "evals.jsonl", [{"question": "What?"}])
    with pytest.raises(UsageError, match="has the column 'prompt'") as refused:
        texts(file, field="prompt")
    assert "question" in str(refused.value)
    file.write_text('{"question": "a"}\n{"question": \n', encoding="utf-8")
    with pytest.raises(SourceError, match="cannot be read"):
        texts(file)
    plain = tmp_path / "evals.txt"
    plain.write_bytes(b"one\n\xff\xfe\n")
    with pytest.raises(SourceError, match="cannot be read") as refused:
        texts(plain)
    assert "can't decode byte 0xff" in str(refused.value.got)
    assert refused.value.expected == "a text file in UTF-8"
    with pytest.raises(SourceError, match="cannot be read") as refused:
        texts(tmp_path / "absent.txt")
    assert "No such file" in str(refused.value.got)
    empty = write(tmp_path / "empty.jsonl", [{"n": 1}])
    with pytest.raises(SourceError, match="holds no text"):
        prepare_cleaning(SelectConfig(decontaminate=(EvalSet(path=str(empty)),)))


def test_a_recipe_as_the_documentation_writes_it(tmp_path: Path) -> None:
    text = """
name: documented
source: {path: chats.jsonl}
select:
  dedup: {near: {threshold: 0.8, of: [dialogue, first_user]}, keep: mean_score}
  decontaminate: [{path: gsm8k_test.jsonl, field: question, ngram: 13}]
  split: {validation: 0.05, by: [group, near_duplicates], seed: 0}
"""
    path = tmp_path / "recipe.yaml"
    path.write_text(text, encoding="utf-8")
    write(tmp_path / "gsm8k_test.jsonl", [])
    config = load_recipe(path).select
    assert isinstance(config, SelectConfig)
    assert config.decontaminate[0].path == str(tmp_path / "gsm8k_test.jsonl")
    assert config.dedup is not None
    assert config.dedup.near is not None
    assert config.dedup.near.of == ("dialogue", "first_user")
    assert config.dedup.ranking == "mean_score"
    with pytest.raises(UsageError, match="mean_scare"):
        load_recipe(path, ["select.dedup.keep=mean_scare"])


def test_the_library_call_takes_duplicates_out_too() -> None:
    given = [Dialogue.model_validate(row) for row in ROWS[:2]]
    decisions = select_dialogues(
        iter(given), [], config=SelectConfig.model_validate({"where": {}, "dedup": {}})
    )
    assert [d.reasons for d in decisions] == [(), ("duplicate_exact",)]
