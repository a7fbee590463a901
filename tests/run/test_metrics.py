"""Weighted metrics in whole runs: rows, resuming, selection, the manifest, the estimate, and what is shown of them."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from rich.console import Console

import curate
from curate.cli.closing import show_run
from curate.cli.estimate import show_plan
from curate.cli.show import show_row
from curate.cli.show_dialogue import show_judged
from curate.errors import UsageError
from curate.publishing.judgments import write_judgments
from curate.publishing.row_cleaning import RowCleaner
from curate.publishing.scan import Detector
from curate.recipe import Recipe
from curate.records.validation import validate_record
from curate.run.pipeline import run_recipe
from curate.run.plan import make_plan
from curate.run.read_back import read_judged, read_table
from tests.live import live_server
from tests.run.test_pipeline import chat, lines, recipe, write_rows
from tests.servers import Answer, Body, CountingServer, answer_by_hash

CHOSEN = ["grounding_fidelity", {"metric": "response_delivery", "weight": 0.375}]


@pytest.fixture
def server() -> Iterator[CountingServer]:
    with live_server(answer=answer) as running:
        yield running


def answer(body: Body) -> Body | str:
    """The first chat is poor in grounding, the second cannot be scored; all other scores are 4."""
    text = "".join(str(message["content"]) for message in body["messages"])
    if "Score the metric" in text or "of the scale of" in text:
        if "chat 1 " in text:
            return {"text": "the", "first_token": [("the", 0.0)]}
        digit = "1" if "chat 0 " in text and "metric grounding" in text else "4"
        return {"text": digit, "first_token": [(digit, -0.1), ("5", -3.0)]}
    if "scored as poor" in text:
        return json.dumps({"grounding_fidelity": {"failure_code": "invented_fact", "turns": [1]}})
    return answer_by_hash(body)


def always(token: str) -> Answer:
    """Every score is answered with this token."""

    def said(body: Body) -> Body | str:
        text = "".join(str(message["content"]) for message in body["messages"])
        if "Metrics, each with its scale" not in text:
            return answer_by_hash(body)
        return {"text": token, "first_token": [(token, 0.0)]}

    return said


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return write_rows(tmp_path / "chats.jsonl", [chat(n) for n in range(4)])


def measured(server: CountingServer, data: Path, **sections: Any) -> Recipe:
    given = {"judge": False, "adherence": False, "metrics": {"choose": CHOSEN}, "export": False}
    return recipe(server, data, **(given | sections))


def rows_of(run: Path) -> list[dict[str, Any]]:
    (file,) = (run / "metrics").glob("*/rows.parquet")
    return [json.loads(record) for record in pl.read_parquet(file)["record"]]


def test_a_run_scores_selects_and_reports_by_metrics(
    server: CountingServer, data: Path, tmp_path: Path
) -> None:
    select = {"where": {"grounded": "metric_grounding_fidelity >= 3", "passed": "metrics_passed"}}
    result = run_recipe(measured(server, data, select=select), out=tmp_path / "run")
    rows = rows_of(tmp_path / "run")
    assert [row["kind"] for row in rows] == ["metrics", "unscored", "metrics", "metrics"]
    for row in rows:
        validate_record(row["kind"], row)
    poor, fine = rows[0], rows[2]
    assert fine["overall_score"] == 80
    assert poor["overall_score"] == pytest.approx(100 * (0.25 * 1 / 5 + 0.75 * 4 / 5))
    assert poor["metrics"][0]["failure_code"] == "invented_fact"
    reasons = {
        d["dialogue_id"]: d["reasons"] for d in lines(tmp_path / "run/select/decisions.jsonl")
    }
    assert reasons == {
        "chat-0": ["grounded", "passed"],
        "chat-1": ["unscored", "grounded:unscored", "passed:unscored"],
        "chat-2": [],
        "chat-3": [],
    }
    report = result.manifest.metrics
    assert report is not None
    assert (report.dialogues, report.passed, report.flippable) == (3, 2, 0)
    assert report.metrics["grounding_fidelity"].poor == 1
    assert report.metrics["grounding_fidelity"].failure_codes == {"invented_fact": 1}
    assert report.metrics["grounding_fidelity"].mean == 3
    assert report.metrics["response_delivery"].weight == pytest.approx(0.75)
    assert result.manifest.stages["metrics"].reasons == {"low_coverage": 1}
    assert result.manifest.unscored_shares == {"metrics": 0.25}
    assert result.manifest.identities["metrics"].mode == "tokens"
    validate_record("manifest", json.loads((tmp_path / "run/manifest.json").read_text()))


def test_without_conditions_those_that_pass_are_selected(
    server: CountingServer, data: Path, tmp_path: Path
) -> None:
    run_recipe(measured(server, data), out=tmp_path / "run")
    decided = lines(tmp_path / "run/select/decisions.jsonl")
    assert [row["reasons"] for row in decided[:3]] == [
        ["passed_metrics"],
        ["unscored", "passed_metrics:unscored"],
        [],
    ]


def test_running_again_asks_nothing_and_new_weights_ask_nothing(
    server: CountingServer, data: Path, tmp_path: Path
) -> None:
    first = run_recipe(measured(server, data), out=tmp_path / "run")
    assert first.manifest.requests > 0
    again = run_recipe(measured(server, data), out=tmp_path / "run")
    assert again.manifest.requests == 0
    assert again.manifest.stages["metrics"].reused == 4
    heavier = [{"metric": "grounding_fidelity", "weight": 9.0}, "response_delivery"]
    changed = measured(server, data, metrics={"choose": heavier, "pass_threshold": 20})
    other = run_recipe(changed, out=tmp_path / "run")
    assert other.manifest.requests == 0
    assert other.manifest.metrics is not None
    assert other.manifest.metrics.passed == 3
    assert other.manifest.metrics.weights_key != first.manifest.metrics.weights_key  # type: ignore[union-attr]


def test_what_could_not_be_scored_is_asked_again_when_told(
    server: CountingServer, data: Path, tmp_path: Path
) -> None:
    run_recipe(measured(server, data), out=tmp_path / "run")
    server.answer = always("4")
    result = run_recipe(measured(server, data), out=tmp_path / "run", retry_unscored=True)
    assert result.manifest.requests == 2
    assert result.manifest.unscored == 0


def test_metrics_are_taken_over_from_another_run(
    server: CountingServer, data: Path, tmp_path: Path
) -> None:
    run_recipe(measured(server, data), out=tmp_path / "one")
    before = len(server.requests)
    taken = measured(server, data, models={}, reuse=str(tmp_path / "one"))
    result = run_recipe(taken, out=tmp_path / "two")
    assert len(server.requests) == before
    assert rows_of(tmp_path / "two") == rows_of(tmp_path / "one")
    assert result.manifest.metrics is not None


async def test_an_estimate_foretells_the_calls_of_metrics(
    server: CountingServer, data: Path, tmp_path: Path
) -> None:
    plan = await make_plan(measured(server, data), out=tmp_path / "run")
    assert plan.estimate is not None
    assert plan.estimate.stages["metrics"].requests == 8
    out = Console(file=io.StringIO(), width=200)
    show_plan(out, plan)
    assert "metrics: fake-judge (openai), mode tokens" in out.file.getvalue()  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("condition", "said"),
    [
        ("metric_grounding_fidelty > 2", "did you mean metric_grounding_fidelity?"),
        ("metric_tool_routing > 2", "name it in metrics.choose"),
        ("metric_grounding_fidelity = 'x'", "does not fit the score table"),
    ],
)
def test_a_condition_on_a_metric_that_is_not_scored_is_refused(
    server: CountingServer, data: Path, condition: str, said: str
) -> None:
    with pytest.raises(UsageError, match="metric") as refused:
        measured(server, data, select={"where": {"c": condition}}).checked()
    assert said in str(refused.value)


def test_columns_of_metrics_need_the_section(server: CountingServer, data: Path) -> None:
    for condition in ("overall_score > 50", "metric_tool_routing > 2"):
        with pytest.raises(UsageError) as refused:
            recipe(server, data, select={"where": {"c": condition}}).checked()
        assert "metrics" in str(refused.value)


def test_a_condition_holds_where_no_dialogue_could_be_scored(
    server: CountingServer, data: Path, tmp_path: Path
) -> None:
    server.answer = always("the")
    select = {"where": {"grounded": "metric_grounding_fidelity >= 3"}}
    run_recipe(measured(server, data, select=select), out=tmp_path / "run")
    decided = lines(tmp_path / "run/select/decisions.jsonl")
    assert {tuple(row["reasons"]) for row in decided} == {("unscored", "grounded:unscored")}


def test_what_is_shown_of_metrics(server: CountingServer, data: Path, tmp_path: Path) -> None:
    result = run_recipe(measured(server, data), out=tmp_path / "run")
    out = Console(file=io.StringIO(), width=200)
    show_run(out, result, verbose=True)
    for row in read_table(tmp_path / "run"):
        show_row(out, row)
    for name in ("chat-0", "chat-1"):
        show_judged(out, read_judged(tmp_path / "run", name))
    text = out.file.getvalue()  # type: ignore[attr-defined]
    assert "grounding_fidelity" in text
    assert "invented_fact" in text
    assert " 80.0 " in text
    assert "metrics: 65.0 of 100, fail (threshold 75" in text
    assert "metrics: unscored, low_coverage" in text


def test_metrics_are_published_with_the_judgments_and_on_the_card(
    server: CountingServer, data: Path, tmp_path: Path
) -> None:
    manifest = run_recipe(measured(server, data), out=tmp_path / "run").manifest
    (tmp_path / "out").mkdir()
    files, tally = write_judgments(
        tmp_path / "run",
        manifest,
        tmp_path / "out",
        shard_bytes=10**6,
        cleaner=RowCleaner(Detector()),
    )
    rows = pl.read_parquet(tmp_path / "out/**/*.parquet").to_dicts()
    assert len(files) == 1
    assert rows[0]["metrics"][0]["failure_code"] == "invented_fact"
    assert [row["overall_score"] for row in rows] == [pytest.approx(65), None, 80, 80]
    assert rows[1]["metrics_unscored"] == "low_coverage"
    assert tally.scored["metrics"] == 3
    assert tally.unscored["metrics"] == {"low_coverage": 1}


def test_the_python_api_scores_and_selects_by_metrics(server: CountingServer, data: Path) -> None:
    dialogues = curate.load_dialogues(data).dialogues
    model = {"engine": "openai", "model": "fake-judge", "base_url": server.base_url}
    scores = curate.score_metrics(dialogues, model, {"choose": CHOSEN})
    assert [row.kind for row in scores] == ["metrics", "unscored", "metrics", "metrics"]
    conditions = {"where": {"good": "overall_score > 70 AND metric_grounding_fidelity > 3"}}
    decided = curate.select(dialogues, [], config=conditions, metrics=scores)
    assert [row.reasons for row in decided][::2] == [("good",), ()]


def test_another_model_than_the_judge_can_score_the_metrics(
    server: CountingServer, data: Path, tmp_path: Path
) -> None:
    with live_server(answer=always("3"), models=("other",)) as other:
        models = {
            "judge": {"engine": "openai", "model": "fake-judge", "base_url": server.base_url},
            "metrics": {
                "engine": "openai",
                "model": "other",
                "base_url": other.base_url,
                "prices": {"input": 1.0, "output": 1.0},
            },
        }
        asked = measured(server, data, models=models)
        before = len(server.requests)
        result = run_recipe(asked, out=tmp_path / "run")
        again = run_recipe(asked, out=tmp_path / "run", retry_unscored=True)
    assert not any("chat " in str(body) for body in server.requests[before:])
    assert result.manifest.identities["metrics"].model == "other"
    assert {row["overall_score"] for row in rows_of(tmp_path / "run")} == {60}
    assert result.manifest.cost is not None
    assert result.manifest.estimate is not None
    assert result.manifest.estimate.cost is not None
    assert again.manifest.requests == 0


def test_the_turn_of_a_poor_metric_is_tried_for_a_fork(
    server: CountingServer, data: Path, tmp_path: Path
) -> None:
    def content(body: Body) -> Body | str:
        text = "".join(str(message["content"]) for message in body["messages"])
        if "Scales, 1 (worst) to 5" not in text or not body.get("logprobs"):
            return answer(body)
        token = "Z" if "= turn" in text else "A" if "A = excellent" in text else "5"
        return {"text": token, "first_token": [(token, 0.0)]}

    server.answer = content
    fork = {"where": "n_turns > 0", "resamples": 1, "guided_revision": False}
    sections = {"judge": {"mode": "tokens"}, "fork": fork, "select": False}
    run_recipe(measured(server, data, metrics=False, **sections), out=tmp_path / "without")
    run_recipe(measured(server, data, **sections), out=tmp_path / "with")

    def forks(run: str) -> dict[str, tuple[int | None, str]]:
        records = lines(tmp_path / run / "pairs/dropped_pairs.jsonl")
        return {pair["dialogue_id"]: (pair["turn"], pair["drop_reason"]) for pair in records}

    fine = {f"chat-{number}": (None, "original_was_fine") for number in range(4)}
    assert forks("without") == fine
    assert forks("with") == fine | {"chat-0": (1, "original_was_fine")}


def test_judgments_and_metrics_are_taken_over_with_who_made_them(
    server: CountingServer, data: Path, tmp_path: Path
) -> None:
    made = run_recipe(measured(server, data, judge={}), out=tmp_path / "one").manifest
    before = len(server.requests)
    taken = measured(server, data, judge={}, models={}, reuse=str(tmp_path / "one"))
    manifest = run_recipe(taken, out=tmp_path / "two").manifest
    assert len(server.requests) == before
    assert manifest.identities == made.identities
    assert manifest.fingerprints == made.fingerprints
    assert manifest.stages.keys() == {"judge", "metrics"}
