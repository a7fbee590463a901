"""The alternative that the data itself calls worse is never trained on, unless a recipe asks for it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from curate.api import load_dialogues
from curate.api import select as select_dialogues
from curate.dialogue import Dialogue
from curate.publishing.push import PushOptions, prepare_push
from curate.recipe import parse_recipe
from curate.run.pipeline import RunResult, run_recipe
from curate.selection.columns import REJECTED_SIDES
from curate.selection.config import SelectConfig
from curate.selection.table import rejected_side
from tests.live import live_server
from tests.run.test_pipeline import chat, lines, recipe, write_rows

DOCS = Path(__file__).parents[2] / "docs"
ASK = {"role": "user", "content": "Where is my parcel?"}


def reply(text: str) -> dict[str, Any]:
    return {"role": "assistant", "content": text}


def node(name: str, *replies: dict[str, Any], rank: int | None = None) -> dict[str, Any]:
    role = "prompter" if name.startswith("u") else "assistant"
    return {
        "message_id": name,
        "text": f"text of {name}",
        "role": role,
        "rank": rank,
        "replies": list(replies),
    }


def run(folder: Path, *paths: Path, **select: Any) -> RunResult:
    base = {
        "name": "sides",
        "source": [{"path": str(path), "limit": 500, "license": "mit"} for path in paths],
        "judge": False,
        "adherence": False,
        "select": {"where": {}, "active": None} | select,
        "pair_checks": False,
    }
    return run_recipe(parse_recipe(base), out=folder)


def exported(folder: Path) -> list[str]:
    return pl.read_parquet(folder / "export/trl/sft_provenance.parquet")["dialogue_id"].to_list()


@pytest.fixture
def written(tmp_path: Path) -> list[Path]:
    """A preference row, a tree of ranked siblings and three trials of a task, as one would write them."""
    preferences = [
        {"id": "pair", "prompt": [ASK], "chosen": [reply("In Oslo.")], "rejected": [reply("No.")]}
    ]
    root = node(
        "u0",
        node("a0", node("u1", node("a1", rank=1), node("a2", rank=2), node("a3")), rank=0),
        node("a4", rank=1),
    )
    tree = [{"message_tree_id": "tree", "prompt": root}]
    trials = [
        {"id": f"trial-{reward}", "messages": [ASK, reply(f"Trial {reward}.")], "reward": reward}
        for reward in (0.0, -1.5, 1.0, None)
    ]
    return [
        write_rows(tmp_path / "preferences.jsonl", preferences),
        write_rows(tmp_path / "tree.jsonl", tree),
        write_rows(tmp_path / "trials.jsonl", trials),
    ]


def test_the_worse_alternative_is_rejected_with_its_own_reason(
    written: list[Path], tmp_path: Path
) -> None:
    result = run(tmp_path / "run", *written)
    decisions = {d["dialogue_id"]: d for d in lines(tmp_path / "run/select/decisions.jsonl")}
    rejected = {name: d["reasons"] for name, d in decisions.items() if d["reasons"]}
    assert rejected == {
        "pair/rejected": ["rejected_side"],
        "tree/a2": [
            "lower_ranked"
        ],  # a1 is the best of those that have a rank; of a3 none is known
        "tree/a4": ["lower_ranked"],
        "trial-0.0": ["failed_trajectory"],
        "trial--1.5": ["failed_trajectory"],
    }
    assert result.manifest.rejections == {
        "rejected_side": 1,
        "lower_ranked": 2,
        "failed_trajectory": 2,
    }
    assert exported(tmp_path / "run") == [
        "pair/chosen",
        "tree/a1",
        "tree/a3",
        "trial-1.0",
        "trial-None",
    ]
    # one for each, so both counts are the same
    assert result.manifest.rejection_reasons == result.manifest.rejections
    # they still are what pairs are made of, and the set of the rejected
    pairs = lines(tmp_path / "run/pairs/natural_pairs.jsonl")
    assert {pair["basis"] for pair in pairs} == {"preference", "rank"}
    assert len(lines(tmp_path / "run/select/rejected.jsonl")) == len(rejected)


def test_a_recipe_gets_them_by_name_and_may_still_filter(
    written: list[Path], tmp_path: Path
) -> None:
    result = run(tmp_path / "all", *written, rejected_sides=True)
    assert (result.manifest.selected, result.manifest.rejections) == (10, {})
    only = {"where": {"no_failure": "reward IS NULL OR reward > 0"}, "rejected_sides": True}
    result = run(tmp_path / "some", *written, **only)
    assert result.manifest.rejections == {"no_failure": 2}


def test_no_turn_of_one_is_salvaged(tmp_path: Path) -> None:
    rows = [{**chat(n), "reward": float(n % 2)} for n in range(20)]
    failed = {f"chat-{n}" for n in range(0, 20, 2)}
    data = write_rows(tmp_path / "chats.jsonl", rows)

    def salvaged(name: str, *, asked: bool) -> set[str]:
        sections = {
            "adherence": False,
            "select": {"where": {"none": "false"}, "rejected_sides": asked},
            "export": {"salvage": {"where": "verdict IS NOT NULL", "min_good": {}}},
        }
        with live_server() as server:
            run_recipe(recipe(server, data, **sections), out=tmp_path / name)
        provenance = pl.read_parquet(tmp_path / name / "export/trl/turn_provenance.parquet")
        return set(provenance["dialogue_id"])

    everything = salvaged("asked", asked=True)
    assert everything & failed
    assert salvaged("default", asked=False) == everything - failed


def test_the_python_api_decides_alike(written: list[Path]) -> None:
    dialogues = load_dialogues(written[0]).dialogues
    decisions = select_dialogues(dialogues, [], config=SelectConfig(where={}))
    assert [decision.reasons for decision in decisions] == [(), ("rejected_side",)]
    with_sides = SelectConfig(where={}, rejected_sides=True)
    assert [d.reasons for d in select_dialogues(dialogues, [], config=with_sides)] == [(), ()]


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({}, None),
        ({"labels": {"preference": "chosen"}}, None),
        ({"labels": {"message_ranks": [None, 0]}}, None),
        ({"labels": {"message_ranks": [3, None]}}, None),  # of the user's message
        ({"labels": {"message_ranks": [None, 1]}}, "lower_ranked"),
        ({"labels": {"message_ranks": [None, 1], "best_ranks": [None, 1]}}, None),
        ({"labels": {"message_ranks": [None, 2], "best_ranks": [None, 1]}}, "lower_ranked"),
        ({"labels": {"message_ranks": "first"}}, None),
        ({"reward": float("nan")}, None),
        ({"reward": 0.0}, "failed_trajectory"),
        ({"reward": 0.1}, None),
    ],
)
def test_what_the_data_says_of_a_dialogue(fields: dict[str, Any], code: str | None) -> None:
    messages = [ASK, reply("In Oslo.")]
    dialogue = Dialogue.model_validate({"id": "x", "messages": messages} | fields)
    assert rejected_side(dialogue) == code


def test_the_docs_list_the_reasons() -> None:
    text = (DOCS / "selecting.md").read_text(encoding="utf-8")
    for code, meaning in REJECTED_SIDES.items():
        assert f"| `{code}` | {meaning} |" in text


# ---- real data


def test_no_rejected_side_of_hh_trains_or_is_pushed(shared_data: Path, tmp_path: Path) -> None:
    result = run(tmp_path / "run", shared_data / "hh_rlhf/test.jsonl.gz")
    ids = exported(tmp_path / "run")
    assert ids
    assert all(name.endswith("/chosen") for name in ids)
    sides = [row["labels"]["preference"] for row in lines(tmp_path / "run/dialogues.jsonl")]
    assert result.manifest.rejections == {"rejected_side": sides.count("rejected")}
    assert result.manifest.selected == sides.count("chosen") >= len(ids)
    assert result.manifest.natural_pairs > 0
    allow = ("email", "phone", "card", "secret")
    prepared = prepare_push(tmp_path / "run", "me/hh", PushOptions(allow=allow))
    pushed = [pl.read_parquet(t.path) for t in prepared.tables if t.config == "sft"]
    assert pl.concat(pushed)["dialogue_id"].to_list() == ids


def test_only_the_best_siblings_of_oasst_train(shared_data: Path, tmp_path: Path) -> None:
    run(tmp_path / "run", shared_data / "oasst/en_100_tree.jsonl")
    dialogues = {row["id"]: row for row in lines(tmp_path / "run/dialogues.jsonl")}
    best: dict[tuple[str, ...], int] = {}

    def siblings(row: dict[str, Any]) -> list[tuple[tuple[str, ...], int]]:
        """Return the ids of the messages before each ranked reply, and its rank."""
        ranks = row["labels"]["message_ranks"]
        return [
            (tuple(row["metadata"]["message_ids"][:place]), rank)
            for place, rank in enumerate(ranks)
            if rank is not None and row["messages"][place]["role"] == "assistant"
        ]

    for row in dialogues.values():
        for before, rank in siblings(row):
            best[before] = min(rank, best.get(before, rank))
    expected = [
        name
        for name, row in dialogues.items()
        if all(rank == best[before] for before, rank in siblings(row))
    ]
    assert exported(tmp_path / "run") == expected
    assert 0 < len(expected) < len(dialogues)


def test_no_failed_trial_of_tau_bench_trains(shared_data: Path, tmp_path: Path) -> None:
    result = run(tmp_path / "run", shared_data / "tau_bench/gpt-4o-airline.json")
    assert result.manifest.rejections == {"failed_trajectory": 116}
    assert result.manifest.selected == 84
    assert {stage.name for stage in result.manifest.funnels["natural"]}
    assert json.loads((tmp_path / "run/manifest.json").read_text())["sets"]["rejected"] == 116
