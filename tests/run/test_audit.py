"""`curate audit` on run folders: what it reads, asks and leaves behind."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import curate as api
from curate.errors import BudgetReached, UsageError
from curate.records.validation import validate_record
from curate.run.audit import audit_run, plan_second_judging
from curate.run.pipeline import run_recipe
from curate.run.read_back import read_manifest
from tests.processes import curate
from tests.run.test_pipeline import chat, questions, recipe, write_rows
from tests.servers import CountingServer


@pytest.fixture
def run(server: CountingServer, tmp_path: Path) -> Path:
    rows = [chat(n, turns=1 + n % 8) | {"lang": "de" if n % 2 else "en"} for n in range(48)]
    data = write_rows(tmp_path / "chats.jsonl", [*rows, rows[0] | {"id": "again"}])
    run_recipe(recipe(server, data), out=tmp_path / "run")
    return tmp_path / "run"


def test_an_audit_asks_nobody_and_its_sentence_is_the_runs(
    server: CountingServer, run: Path
) -> None:
    before = len(server.requests)
    result = curate("audit", run)
    assert result.returncode == 0, result.stderr
    assert len(server.requests) == before
    lines = [line for line in result.stdout.splitlines() if not line.startswith("written: ")]
    assert max(map(len, lines)) <= 80
    report = json.loads((run / "trust/audit.json").read_text())
    validate_record("audit", report)
    assert report["fingerprints"] == read_manifest(run).fingerprints
    assert read_manifest(run).trust["audit"] == report["sentence"]
    assert report["sentence"] in " ".join(curate("show", run).stdout.split())
    by_name = {(check["part"], check["name"]): check for check in report["checks"]}
    # Equal dialogues count once; answers by hash are level with nothing.
    assert by_name["verdicts by group", "language"]["n"] == 48
    assert by_name["collapsed scores", "mean_score"]["status"] == "pass"
    assert by_name["asked again", "verdict changed"]["status"] == "not_run"
    assert by_name["pairs", "length and words"]["detail"] == "the run has no pairs"
    told = json.loads(curate("audit", run, "--json").stdout)
    assert told["checks"] == report["checks"]


def test_asking_again_costs_what_was_said_and_is_asked_once(
    server: CountingServer, run: Path
) -> None:
    said = curate("audit", run, "--again", "0.05", "--dry-run").stdout
    plan = plan_second_judging(run, 0.05)
    assert len(plan.keys) == 20
    assert f"{plan.requests:,} requests" in said
    assert not (run / "trust").exists()
    _, asked = questions(server, lambda: audit_run(run, plan))
    assert len(asked) == plan.requests
    report, more = questions(server, lambda: audit_run(run, plan))
    assert more == []
    # The server answers by the body alone, so the second answer is the first.
    again = [check for check in report.checks if check.part == "asked again"]
    assert [(check.status, check.figure) for check in again] == [("pass", 0)] * 4


def test_a_second_judging_keeps_to_the_budget_of_the_recipe(
    server: CountingServer, run: Path
) -> None:
    manifest = json.loads((run / "manifest.json").read_text())
    manifest["recipe"]["budget"]["calls"] = 5
    (run / "manifest.json").write_text(json.dumps(manifest))
    plan = plan_second_judging(run, 0.5)

    def audit() -> None:
        with pytest.raises(BudgetReached, match="calls"):
            audit_run(run, plan)

    _, asked = questions(server, audit)
    assert len(asked) == 5 < plan.requests


def test_another_judge_is_not_taken_for_the_same(server: CountingServer, run: Path) -> None:
    manifest = json.loads((run / "manifest.json").read_text())
    manifest["recipe"]["judge"]["window_turns"] = 6
    (run / "manifest.json").write_text(json.dumps(manifest))
    before = len(server.requests)
    with pytest.raises(UsageError, match="have changed since the run was made"):
        audit_run(run, plan_second_judging(run, 0.5))
    asked = server.requests[before:]
    assert not any("chat " in json.dumps(body["messages"]) for body in asked)


def test_a_run_without_checks_of_its_judge_is_told(run: Path) -> None:
    manifest = json.loads((run / "manifest.json").read_text())
    assert manifest.pop("judge_checks")
    (run / "manifest.json").write_text(json.dumps(manifest))
    (check,) = (check for check in audit_run(run).checks if check.part == "known failures")
    assert (check.status, "run the recipe again" in check.detail) == ("not_run", True)


def test_an_adherence_run_has_no_checks_of_a_judge(server: CountingServer, tmp_path: Path) -> None:
    data = write_rows(tmp_path / "chats.jsonl", [chat(n) for n in range(30)])
    run_recipe(recipe(server, data, judge=False, select=False), out=tmp_path / "run")
    report = api.audit(tmp_path / "run")
    assert {check.part for check in report.checks} == {
        "collapsed scores",
        "unscored",
        "verdicts by group",
        "pairs",
    }
    result = curate("audit", tmp_path / "run", "--again", "0.1")
    assert (result.returncode, "Traceback" in result.stderr) == (2, False)
    assert "no judgments to repeat" in result.stderr


def test_a_second_judging_is_of_a_share_of_what_was_judged(
    server: CountingServer, run: Path, tmp_path: Path
) -> None:
    for share in (0.0, -0.5, 1.01):
        with pytest.raises(UsageError, match="not a share of dialogues"):
            plan_second_judging(run, share)
    assert len(plan_second_judging(run, 1).keys) == plan_second_judging(run, 1).judged
    data = write_rows(tmp_path / "few.jsonl", [chat(1)])
    unjudged = recipe(server, data, judge=False, adherence=False, select=False)
    run_recipe(unjudged, out=tmp_path / "unjudged")
    with pytest.raises(UsageError, match="no judgments to repeat"):
        plan_second_judging(tmp_path / "unjudged", 0.5)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--again", "0"), "not a share of dialogues"),
        (("--again", "1.5"), "not a share"),
        (("--dry-run",), "nothing to estimate"),
    ],
)
def test_what_cannot_be_done_is_refused(run: Path, options: tuple[str, ...], said: str) -> None:
    result = curate("audit", run, *options)
    assert result.returncode == 2
    assert said in result.stderr
    assert "Traceback" not in result.stderr


def test_a_folder_that_is_no_run_is_refused(tmp_path: Path) -> None:
    result = curate("audit", tmp_path)
    assert result.returncode == 2
    assert "not a run folder" in result.stderr
