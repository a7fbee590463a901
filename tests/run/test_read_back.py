"""A run that is read back: its table with a condition and in an order, one dialogue, and what is damaged."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from curate.errors import CurateError, UsageError
from curate.run.pipeline import run_recipe
from curate.run.read_back import (
    last_manifest,
    pairs_of_dialogue,
    read_decisions,
    read_judged,
    read_manifest,
    read_table,
    stage_records,
    unscored_example,
)
from tests.live import live_server
from tests.run.test_pipeline import chat, recipe, write_rows
from tests.servers import Body, answer_by_hash


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of five dialogues, one of them without a score, of which two are in the SFT set and two have forks."""
    folder = tmp_path_factory.mktemp("read")
    rows = [chat(n, turns=turns) for n, turns in enumerate([2, 1, 3, 1])]
    data = write_rows(folder / "chats.jsonl", [*rows, chat(4, text="curtains")])

    def answer(body: Body) -> Any:
        if "curtains" in str(body["messages"]):
            return {"text": "hm", "first_token": [("hm", -0.1)]} if body.get("logprobs") else "hm"
        return answer_by_hash(body)

    with live_server(answer=answer) as server:
        run_recipe(
            recipe(
                server,
                data,
                adherence=False,
                fork={"resamples": 1, "where": "n_turns = 1"},
                select={"where": {"short": "n_turns < 3"}, "active": None},
            ),
            out=folder / "run",
        )
    return folder / "run"


@pytest.fixture
def run(finished: Path, tmp_path: Path) -> Path:
    return shutil.copytree(finished, tmp_path / "run")


def table(run: Path, **chosen: str) -> list[tuple[str, list[str]]]:
    return [(row["id"].removeprefix("chat-"), row["sets"]) for row in read_table(run, **chosen)]


def test_the_table_is_in_the_datas_order_with_the_sets_of_each(finished: Path) -> None:
    rows = list(read_table(finished))
    assert [row | {"sets": None} for row in rows] == [
        row | {"sets": None}
        for row in pl.read_parquet(finished / "scores.parquet").iter_rows(named=True)
    ]
    decisions = {row["dialogue_id"]: row["sets"] for row in read_decisions(finished)}
    assert {row["id"]: row["sets"] for row in rows} == decisions
    assert ["rejected"] in decisions.values()


def test_the_table_with_a_condition_and_in_an_order_keeps_the_sets(finished: Path) -> None:
    sets = dict(table(finished))

    def given(names: str) -> list[tuple[str, list[str]]]:
        return [(name, sets[name]) for name in names]

    assert table(finished, where="n_turns < 2") == given("13")
    assert table(finished, sort="n_turns") == given("20413")
    assert table(finished, where="n_turns > 1", sort="-n_turns") == given("042")
    score = "mean_score"
    by_score = table(finished, sort=score)
    values = dict(
        pl.read_parquet(finished / "scores.parquet").select(pl.col("id").str.tail(1), score).rows()
    )
    known = sorted((name for name in values if values[name] is not None), key=values.get)  # type: ignore[arg-type]
    assert by_score == given("".join(known[::-1]) + "4")
    assert "_key" not in next(read_table(finished, sort=score))
    with pytest.raises(UsageError, match="--where"):
        table(finished, where="no_column > 1")
    with pytest.raises(UsageError, match="--sort"):
        table(finished, sort="no_column")


def test_decisions_about_another_table_are_not_taken_for_this_ones(run: Path) -> None:
    path = run / "select/decisions.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    sets = dict(table(run))
    path.write_bytes(b"".join([lines[1], lines[1], lines[2]]))
    assert table(run) == [("0", []), ("1", sets["1"]), ("2", sets["2"]), ("3", []), ("4", [])]
    path.unlink()
    assert {name: rows for name, rows in table(run) if rows} == {}


def test_a_dialogue_is_read_with_its_records_as_they_are_stored(finished: Path) -> None:
    manifest = read_manifest(finished)
    judged = read_judged(finished, "chat-2")
    keys = pl.read_parquet(finished / "dialogues.parquet")["content_hash"]
    records = list(stage_records(finished, manifest, "judge", keys))
    assert (judged.dialogue.id, judged.judgment) == ("chat-2", records[2])
    assert [records[n]["kind"] for n in (2, 4)] == ["judgment", "unscored"]  # type: ignore[index]
    assert (judged.adherence, judged.metrics, judged.factuality) == (None, None, None)
    assert list(stage_records(finished, manifest, "adherence", keys)) == [None] * 5
    html, unjudged = judged._repr_html_(), replace(judged, judgment=None)._repr_html_()
    assert "Answer 3 in chat 2" in html
    assert html != unjudged
    assert "judgment" not in read_judged(finished, "chat-4")._repr_html_()


def test_a_dialogue_that_is_not_there_is_refused_with_the_most_similar_ids(finished: Path) -> None:
    def refused(name: str) -> str:
        with pytest.raises(UsageError) as raised:
            read_judged(finished, name)
        error = raised.value
        assert (error.problem, error.got) == ("no such dialogue in the run", name)
        assert error.fix == f"curate show {finished}"
        return str(error.expected)

    similar = refused("chat-22")
    assert (similar.split(", ")[0], len(similar.split(", "))) == ("chat-2", 3)
    assert refused("xyz") == "an id of one of its 5 dialogues"


def test_pairs_of_a_dialogue_are_those_that_passed_before_the_dropped_ones(run: Path) -> None:
    pairs = list(pairs_of_dialogue(run, "chat-1"))
    assert pairs
    assert {pair.record["dialogue_id"] for pair in pairs} == {"chat-1"}
    assert [pair.passed for pair in pairs] == [pair.record["drop_reason"] is None for pair in pairs]
    assert [pair.passed for pair in pairs] == sorted((p.passed for p in pairs), reverse=True)
    assert list(pairs_of_dialogue(run, "chat-0")) == []
    (run / "pairs/dropped_pairs.jsonl").write_text('{"dialogue_id": "chat-1"}\n')
    with pytest.raises(CurateError, match="pair_id is expected"):
        list(pairs_of_dialogue(run, "chat-1"))


def test_an_example_of_what_is_unscored_is_the_first_with_its_reason(run: Path) -> None:
    manifest = read_manifest(run)
    example = unscored_example(run, manifest, "judge")
    record = read_judged(run, "chat-4").judgment
    assert record is not None
    assert example == ("chat-4", record["detail"])
    assert unscored_example(run, manifest, "adherence") is None
    table = pl.read_parquet(run / "scores.parquet")
    scored = table.filter(pl.col("judge_unscored").is_null())
    scored.write_parquet(run / "scores.parquet")
    assert unscored_example(run, manifest, "judge") is None
    table.write_parquet(run / "scores.parquet")
    shutil.rmtree(run / "judge")
    assert unscored_example(run, manifest, "judge") is None
    (run / "scores.parquet").unlink()
    assert unscored_example(run, manifest, "judge") is None


def test_what_is_damaged_is_named(run: Path) -> None:
    def damage(path: Path, text: str) -> None:
        path.write_text(text)

    damage(run / "select/decisions.jsonl", '{"dialogue_id": "chat-1"}\n')
    with pytest.raises(CurateError, match=r"decisions\.jsonl.*(?s:.*)dialogue_id and sets"):
        list(read_decisions(run))
    manifest = read_manifest(run)
    keys = pl.read_parquet(run / "dialogues.parquet")["content_hash"]
    [rows] = (run / "judge").glob("*/rows.parquet")
    damage(rows, "torn")
    with pytest.raises(CurateError, match=str(rows.parent)):
        list(stage_records(run, manifest, "judge", keys))
    damage(run / "manifest.json", "torn")
    with pytest.raises(CurateError, match=r"manifest\.json is damaged"):
        read_manifest(run)
    assert last_manifest(run) is None
    damage(run / "manifest.json", '{"name": 3, "format": 3}')
    with pytest.raises(CurateError, match=r"manifest\.json is damaged"):
        read_manifest(run)
    assert last_manifest(run) is None
    damage(run / "manifest.json", '{"format": 1}')
    for read in (read_manifest, last_manifest):
        with pytest.raises(CurateError, match="format"):
            read(run)
    (run / "manifest.json").unlink()
    with pytest.raises(UsageError, match="not a run folder"):
        read_manifest(run)
    assert last_manifest(run) is None
