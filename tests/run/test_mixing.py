"""Sources with weights through whole runs: counted, repeatable, and judged only where they are new."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from curate.recipe import Recipe, parse_recipe
from curate.run.pipeline import RunResult, run_recipe
from curate.run.plan import make_plan
from curate.run.read_back import read_manifest
from tests.live import live_server
from tests.servers import CountingServer


def rows(name: str, start: int, stop: int) -> list[dict[str, Any]]:
    return [
        {
            "id": f"{name}{n}",
            "messages": [
                {"role": "user", "content": f"{name} asks {n}"},
                {"role": "assistant", "content": f"{name} is told {n}"},
            ],
        }
        for n in range(start, stop)
    ]


def write(path: Path, given: list[dict[str, Any]]) -> str:
    path.write_bytes(b"".join(orjson.dumps(row) + b"\n" for row in given))
    return str(path)


def lines(path: Path) -> list[dict[str, Any]]:
    return [orjson.loads(line) for line in path.read_bytes().splitlines()]


def recipe(folder: Path, weights: dict[str, float | None], **sections: Any) -> Recipe:
    given = {
        "name": "mix",
        "source": [
            {"path": str(folder / f"{name}.jsonl"), "weight": w} for name, w in weights.items()
        ],
        "judge": False,
        "adherence": False,
        "select": False,
        "natural": {"enabled": False},
        "export": False,
    }
    return parse_recipe(given | sections)


def by_source(folder: Path) -> Counter[str]:
    return Counter(row["lineage"]["source"] for row in lines(folder / "dialogues.jsonl"))


@pytest.fixture
def two(tmp_path: Path) -> Path:
    write(tmp_path / "a.jsonl", rows("a", 0, 10))
    write(tmp_path / "b.jsonl", rows("b", 0, 60))
    return tmp_path


def test_what_is_not_sampled_is_counted_and_named(two: Path) -> None:
    out = two / "run"
    manifest = run_recipe(recipe(two, {"a": 1, "b": 2}), out=out).manifest
    assert by_source(out) == {"a": 10, "b": 20}
    assert (manifest.dialogues, manifest.not_sampled) == (30, 40)
    assert manifest.rows_in == manifest.rows_used == 70
    assert [(s["dialogues"], s["not_sampled"]) for s in manifest.sources] == [(10, 0), (20, 40)]
    left_out = {row["dialogue_id"] for row in lines(out / "not_sampled.jsonl")}
    taken = {row["id"] for row in lines(out / "dialogues.jsonl")}
    assert not left_out & taken
    assert len(left_out | taken) == 70
    assert read_manifest(out).not_sampled == 40
    assert sorted(path.name for path in out.iterdir() if "mixture" in path.name) == []


def test_without_weights_every_source_is_whole(two: Path) -> None:
    manifest = run_recipe(recipe(two, {"a": None, "b": None}), out=two / "run").manifest
    assert (manifest.dialogues, manifest.not_sampled) == (70, 0)
    assert run_recipe(recipe(two, {"a": 5, "b": None}), out=two / "run").manifest.dialogues == 70
    assert lines(two / "run/not_sampled.jsonl") == []


def test_a_cap_bounds_a_source_before_it_is_mixed(two: Path) -> None:
    given = recipe(two, {"a": 1, "b": 1}).model_dump(mode="json")
    given["source"][0]["cap"] = 4
    run_recipe(parse_recipe(given), out=two / "run")
    assert by_source(two / "run") == {"a": 4, "b": 4}


def test_the_seed_chooses_and_the_same_recipe_chooses_the_same(two: Path) -> None:
    def taken(seed: int) -> bytes:
        run_recipe(recipe(two, {"a": 1, "b": 1}, mix_seed=seed), out=two / "run")
        return (two / "run/dialogues.jsonl").read_bytes()

    assert taken(0) == taken(0) != taken(1)


async def test_a_plan_counts_what_the_run_reads(two: Path) -> None:
    plan = await make_plan(recipe(two, {"a": 1, "b": 2}), out=two / "plan")
    assert [source["dialogues"] for source in plan.sources] == [10, 20]


# --- with a judge


@pytest.fixture
def server() -> Iterator[CountingServer]:
    with live_server() as opened:
        assert isinstance(opened, CountingServer)
        yield opened


def judged(folder: Path, server: CountingServer, weights: dict[str, float | None]) -> RunResult:
    model = {"engine": "openai", "model": "fake-judge", "base_url": server.base_url}
    sections = {"models": {"judge": model}, "judge": {}, "scenario": "A shop."}
    return run_recipe(recipe(folder, weights, **sections), out=folder / "run")


def test_a_source_that_grows_is_judged_only_where_it_is_new(
    two: Path, server: CountingServer
) -> None:
    weights = {"a": 1.0, "b": 2.0}
    first = judged(two, server, weights).manifest
    assert (first.stages["judge"].rows, first.stages["judge"].reused) == (30, 0)
    again = judged(two, server, weights).manifest
    assert (again.stages["judge"].reused, again.requests) == (30, 0)

    before = {row["id"] for row in lines(two / "run/dialogues.jsonl")}
    write(two / "b.jsonl", rows("b", 0, 90))
    grown = judged(two, server, weights).manifest
    after = {row["id"] for row in lines(two / "run/dialogues.jsonl")}
    assert grown.dialogues == 30
    assert 0 < len(after - before) < 20
    assert grown.stages["judge"].reused == 30 - len(after - before)
    assert {int(name[1:]) >= 60 for name in after - before} == {True}

    write(two / "a.jsonl", rows("a", 0, 13))
    wider = judged(two, server, weights).manifest
    assert wider.dialogues == 39
    last = {row["id"] for row in lines(two / "run/dialogues.jsonl")}
    assert after <= last
    assert wider.stages["judge"].reused == len(last & (before | after))
