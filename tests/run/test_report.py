"""A run's report: every dialogue and pair is in it, sums add up, and what is left out is counted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from curate.errors import CurateError, UsageError
from curate.records import TrustKind, TrustReport
from curate.run.ingest import read_dialogues
from curate.run.pipeline import run_recipe
from curate.run.read_back import read_manifest
from curate.run.report import write_report
from curate.run.trust_reports import write_trust_report
from curate.storage.run_folder import RunFolder
from tests.live import live_server
from tests.publishing.conftest import make_run
from tests.report.reading import ReadPage
from tests.run.test_pipeline import chat, recipe, write_rows


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_run(tmp_path_factory.mktemp("finished"))


@pytest.fixture(scope="module")
def report(finished: Path, tmp_path_factory: pytest.TempPathFactory) -> ReadPage:
    return ReadPage.of(write_report(finished, tmp_path_factory.mktemp("out") / "r.html").files[0])


def pair_lines(run: Path) -> list[dict[str, Any]]:
    return [
        json.loads(line)
        for name in ("pairs", "natural_pairs", "dropped_pairs")
        for line in (run / "pairs" / f"{name}.jsonl").read_text().splitlines()
    ]


def test_every_dialogue_is_there_with_its_scores(finished: Path, report: ReadPage) -> None:
    dialogues = list(read_dialogues(finished))
    assert [body["hash"] for body in report.dialogues] == [d.content_hash for d in dialogues]
    assert report.figures["parts"] == []  # it is one file
    table = pl.read_parquet(finished / "scores.parquet")
    assert report.column("id") == table["id"].to_list()
    assert report.column("verdict") == table["verdict"].to_list()
    for body, verdict in zip(report.dialogues, table["verdict"], strict=True):
        assert body["judge"].get("verdict") == verdict
        assert [len(body["messages"][start:stop]) > 0 for _, start, stop in body["turns"]]


def test_a_turn_has_its_sign(report: ReadPage) -> None:
    for body, signs in zip(report.dialogues, report.column("turn_scores"), strict=True):
        lowest = {
            turn["turn"]: str(min(turn["scores"].values()))
            for turn in body["judge"].get("per_turn", [])
        }
        assert {n: sign for n, sign in enumerate(signs) if sign not in " -"} == lowest


def test_turn_0_has_no_sign_of_the_rubric_which_scores_none(tmp_path: Path) -> None:
    opened = chat(0)
    opened["messages"].insert(0, {"role": "assistant", "content": "Welcome to the shop."})
    data = write_rows(tmp_path / "chats.jsonl", [opened, chat(1)])
    with live_server() as server:
        run_recipe(recipe(server, data), out=tmp_path / "run")
    report = ReadPage.of(write_report(tmp_path / "run").files[0])
    assert [signs[0] for signs in report.column("turn_scores")] == [" ", " "]
    assert [signs[0] != " " for signs in report.column("turn_roles")] == [True, False]


def test_every_pair_lies_in_its_dialogue_and_in_the_table(finished: Path, report: ReadPage) -> None:
    lines = pair_lines(finished)
    assert lines
    in_dialogues = {
        pair["pair_id"]: pair for body in report.dialogues for pair in body.get("pairs", [])
    }
    assert (
        in_dialogues.keys()
        == {pair["pair_id"] for pair in lines}
        == set(report.column("id", "pairs"))
    )
    for pair in lines:
        assert in_dialogues[pair["pair_id"]]["rejected"] == pair["rejected"]
        assert in_dialogues[pair["pair_id"]].get("drop_reason") == pair["drop_reason"]


def test_the_steps_of_the_funnel_add_up(report: ReadPage) -> None:
    steps = report.figures["funnel"]
    assert {"rows read", "judged", "scored for role adherence", "selected"} <= {
        step["name"] for step in steps
    }
    for step in steps:
        assert step["whole"] == step["passed"] + sum(step["reasons"].values()), step
        if step["reasons"] and step["column"]:
            assert set(step["reasons"]) <= {
                value
                for cell in report.column(step["column"])
                for value in (cell if isinstance(cell, list) else [cell])
            }


def test_what_was_not_measured_is_said(report: ReadPage) -> None:
    trust = {row["kind"]: row for row in report.figures["trust"]}
    assert "was not measured" in trust["agreement with people"]["sentence"]
    assert all(row["figures"] is None for row in trust.values())
    assert {"certificate of the selection", "probe with planted flaws", "audit"} <= trust.keys()


def test_a_report_of_trust_is_shown_with_its_figures(tmp_path: Path) -> None:
    class Audit(TrustReport):
        shares: dict[str, float]

    run = make_run(tmp_path)
    common = {"made": "2026-11-20T10:00:00+00:00", "fingerprints": read_manifest(run).fingerprints}
    audit = Audit(
        kind=TrustKind.AUDIT, sentence="One check warns.", shares={"copied": 0.25}, **common
    )
    write_trust_report(run, audit)
    (row,) = (
        row
        for row in ReadPage.of(write_report(run).files[0]).figures["trust"]
        if row["kind"] == "audit"
    )
    assert row["sentence"] == "One check warns."
    # what the figures say; the sentence stands beside them, and fingerprints say nothing to a reader
    assert {name: row["figures"][name] for name in ("shares", "made")} == {
        "shares": {"copied": 0.25},
        "made": common["made"],
    }
    assert not {"kind", "sentence", "fingerprints"} & row["figures"].keys()


def test_beyond_the_bound_scores_stay_and_texts_are_counted(finished: Path, tmp_path: Path) -> None:
    written = write_report(finished, tmp_path / "small.html", max_bytes=1)
    small = ReadPage.of(written.files[0])
    assert written.left_out == written.dialogues == len(small.column("id"))
    assert small.dialogues == []
    assert small.figures["left_out"] == written.left_out


def test_split_files_hold_each_dialogue_once(
    finished: Path, report: ReadPage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("curate.report.page.CHUNK_DIALOGUES", 10)
    written = write_report(finished, tmp_path / "part.html", max_bytes=1, split=True)
    assert [path.name for path in written.files[:3]] == ["part.html", "part-2.html", "part-3.html"]
    assert written.left_out == 0
    parts = [ReadPage.of(path) for path in written.files]
    assert [b["hash"] for part in parts for b in part.dialogues] == [
        body["hash"] for body in report.dialogues
    ]
    ids = [name for part in parts for name in part.column("id")]
    assert ids == report.column("id")
    assert all(part.figures["parts"] == [path.name for path in written.files] for part in parts)
    pairs = [name for part in parts if part.columns["pairs"] for name in part.column("id", "pairs")]
    assert sorted(pairs) == sorted(report.column("id", "pairs"))


@pytest.mark.parametrize("select", [{"where": "auto"}, False])
def test_a_run_without_conditions_of_its_own_has_a_report(tmp_path: Path, select: Any) -> None:
    run = make_run(tmp_path, select=select)
    report = ReadPage.of(write_report(run).files[0])
    steps = [step["name"] for step in report.figures["funnel"]]
    assert ("selected" in steps) is bool(select)


def test_a_run_without_scores_is_refused(tmp_path: Path) -> None:
    with RunFolder(tmp_path / "run") as folder:
        folder.write_manifest({"format": 3, "name": "r", "status": "running", "started": ""})
    with pytest.raises(UsageError, match="no scores yet"):
        write_report(tmp_path / "run")


def test_a_damaged_pair_is_named_and_no_report_is_left(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    with (run / "pairs" / "pairs.jsonl").open("a") as file:
        file.write('{"pair_id": "x"')
    with pytest.raises(CurateError, match=r"pairs\.jsonl:\d+ is damaged"):
        write_report(run)
    assert not (run / "report.html").exists()
