"""Whole runs against a real HTTP server that counts its requests."""

from __future__ import annotations

import asyncio
import io
import json
import os
import shutil
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import polars as pl
import pytest
from rich.console import Console

from curate.cli.closing import show_run
from curate.cli.estimate import show_plan
from curate.errors import EngineError, UsageError
from curate.recipe import Recipe, parse_recipe
from curate.records.validation import validate_record
from curate.run.pipeline import RunResult, run_recipe
from curate.run.plan import make_plan
from curate.selection.config import SelectConfig
from curate.wording import plural
from tests.live import live_server
from tests.servers import Body, CountingServer, answer_by_hash, body_hash, chat_completion


def chat(number: int, turns: int = 2, text: str = "an order") -> dict[str, Any]:
    messages = []
    for turn in range(1, turns + 1):
        messages += [
            {"role": "user", "content": f"Question {turn} of chat {number} about {text}?"},
            {"role": "assistant", "content": f"Answer {turn} in chat {number} about {text}."},
        ]
    return {"id": f"chat-{number}", "messages": messages}


def write_rows(path: Path, rows: list[Any]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def recipe(server: CountingServer, data: Path, **sections: Any) -> Recipe:
    model = {"engine": "openai", "model": "fake-judge", "base_url": server.base_url, "in_flight": 4}
    return parse_recipe(
        {
            "name": "test",
            "source": {"path": str(data)},
            "scenario": "A person asks for help.",
            "role": "A patient shop assistant.",
            "models": {"judge": model, "policy": model},
            "adherence": {"output_mode": "continuous"},
            "max_unscored": 1.0,
        }
        | sections
    )


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return write_rows(tmp_path / "chats.jsonl", [chat(n, turns=1 + n % 3) for n in range(8)])


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


T = TypeVar("T")


def questions(server: CountingServer, run: Callable[[], T]) -> tuple[T, list[Body]]:
    """Return what a run or an audit returns, and its requests, without the probes at opening (they contain no dialogue)."""
    before = len(server.requests)
    result = run()
    requests = [
        body for body in server.requests[before:] if "chat " in json.dumps(body["messages"])
    ]
    return result, requests


def test_a_run_leaves_everything_accounted_for(server: CountingServer, tmp_path: Path) -> None:
    rows = [chat(1), "not a row", chat(2), {"messages": [{"role": "user", "content": "chat 9?"}]}]
    data = write_rows(tmp_path / "chats.jsonl", rows)
    result = run_recipe(recipe(server, data, fork={"resamples": 1}), out=tmp_path / "run")
    manifest = result.manifest
    assert manifest.rows_in == 4 == manifest.rows_used + manifest.quarantined
    assert manifest.dialogues == 2
    assert sum(manifest.verdicts.values()) == 2
    assert [row["row"] for row in lines(tmp_path / "run/quarantine.jsonl")] == [2, 4]
    decisions = lines(tmp_path / "run/select/decisions.jsonl")
    assert [decision["dialogue_id"] for decision in decisions] == ["chat-1", "chat-2"]
    assert all(("sft" in d["sets"]) != ("rejected" in d["sets"]) for d in decisions)
    assert manifest.selected == len(lines(tmp_path / "run/export/trl/sft.jsonl"))
    pairs = lines(tmp_path / "run/pairs/pairs.jsonl")
    refused = lines(tmp_path / "run/pairs/dropped_pairs.jsonl")
    assert (len(pairs), len(refused)) == (manifest.pairs, manifest.dropped)
    assert sum(manifest.drop_reasons.values()) == len(refused)
    scores = pl.read_parquet(tmp_path / "run/scores.parquet")
    assert scores["id"].to_list() == ["chat-1", "chat-2"]
    validate_record("manifest", json.loads((tmp_path / "run/manifest.json").read_text()))
    for name, record in [
        ("decision", decisions[0]),
        ("quarantine", lines(tmp_path / "run/quarantine.jsonl")[0]),
    ]:
        validate_record(name, record)
    for pair in pairs + refused:
        validate_record("preference-pair", pair)


def test_requests_in_the_manifest_are_those_the_server_saw(
    server: CountingServer, data: Path, tmp_path: Path
) -> None:
    result, requests = questions(
        server,
        lambda: run_recipe(recipe(server, data, judge={"text": "all"}), out=tmp_path / "run"),
    )
    stages = result.manifest.stages
    assert sum(stage.requests_sent for stage in stages.values()) == len(requests)
    judgments = pl.read_parquet(next((tmp_path / "run/judge").glob("*/rows.parquet")))["record"]
    turns = sum(len(json.loads(record).get("per_turn", [])) for record in judgments)
    # tokens mode: three scores a turn, then three for the conversation, the verdict, the weakest turn, and words
    assert stages["judge"].requests == 3 * turns + 6 * len(judgments)


def test_summary_and_manifest_count_where_the_judge_disagrees_with_itself(
    server: CountingServer, tmp_path: Path
) -> None:
    rows = [chat(1), chat(2, turns=14), chat(3, turns=14)]
    data = write_rows(tmp_path / "chats.jsonl", rows)
    result = run_recipe(recipe(server, data), out=tmp_path / "run")
    checks, scores = result.manifest.judge_checks, pl.read_parquet(tmp_path / "run/scores.parquet")
    assert checks is not None
    for name in ("verdict_mismatch", "weakest_mismatch"):
        rate, mismatches = getattr(checks, name), scores[name].drop_nulls()
        assert (rate.count, rate.of) == (mismatches.sum(), len(mismatches))
    assert checks.weakest_mismatch.of > 0
    seams = checks.window_seams
    assert sum(seam.dialogues for seam in seams) == 2
    means = scores["overlap_disagreement"].drop_nulls().to_list()
    assert min(means) <= seams[0].difference <= max(means)
    console = Console(file=io.StringIO(), width=160)
    show_run(console, result, verbose=True)
    printed = console.file.getvalue()  # type: ignore[attr-defined]
    assert f"{checks.weakest_mismatch.described} dialogues" in printed
    assert f"windows of {seams[0].window_turns} turns" in printed
    assert len(checks.failure_modes) == 6
    assert "known way of judges to fail" in printed


def test_running_again_asks_nothing(server: CountingServer, data: Path, tmp_path: Path) -> None:
    same = recipe(server, data, fork={"resamples": 1})
    run_recipe(same, out=tmp_path / "run")
    first = (tmp_path / "run/export/trl/sft.jsonl").read_bytes()
    result, requests = questions(server, lambda: run_recipe(same, out=tmp_path / "run"))
    assert requests == []
    assert result.manifest.stages["judge"].reused == 8
    assert (tmp_path / "run/export/trl/sft.jsonl").read_bytes() == first


def test_a_changed_threshold_asks_no_judge_and_only_new_forks_ask(
    server: CountingServer, data: Path, tmp_path: Path
) -> None:
    def run(low: float, where: str) -> RunResult:
        sections = {
            "select": {"where": {"helpful": f"mean_helpfulness >= {low}"}},
            "fork": {"resamples": 1, "where": where},
        }
        return run_recipe(recipe(server, data, **sections), out=tmp_path / "run")

    before, _ = questions(server, lambda: run(5, "id = 'chat-0'"))
    after, requests = questions(server, lambda: run(1, "id = 'chat-0'"))
    assert requests == []
    assert before.manifest.selected < after.manifest.selected == 8
    _, requests = questions(server, lambda: run(1, "n_turns = 1"))
    assert requests
    numbers = {
        n for n in range(8) for body in requests if f"chat {n}" in json.dumps(body["messages"])
    }
    assert numbers <= {3, 6}
    _, requests = questions(server, lambda: run(1, "n_turns = 1"))
    assert requests == []


def test_only_new_dialogues_are_judged(server: CountingServer, data: Path, tmp_path: Path) -> None:
    same = recipe(server, data)
    run_recipe(same, out=tmp_path / "run")
    rows = [chat(100), *map(json.loads, data.read_text().splitlines()), chat(101)]
    write_rows(data, rows)
    result, requests = questions(server, lambda: run_recipe(same, out=tmp_path / "run"))
    numbers = Counter("100" if "chat 100" in json.dumps(b["messages"]) else "101" for b in requests)
    assert all("chat 10" in json.dumps(body["messages"]) for body in requests)
    assert set(numbers) == {"100", "101"}
    assert result.manifest.stages["judge"].rows == 10
    assert result.manifest.stages["judge"].reused == 8


def test_equal_dialogues_are_judged_once_and_both_kept(
    server: CountingServer, tmp_path: Path
) -> None:
    twin = chat(1) | {"id": "twin"}
    data = write_rows(tmp_path / "chats.jsonl", [chat(1), twin])
    result = run_recipe(recipe(server, data), out=tmp_path / "run")
    assert result.manifest.dialogues == 2
    assert result.manifest.stages["judge"].rows == 1
    assert len(lines(tmp_path / "run/select/decisions.jsonl")) == 2


def test_unscored_is_kept_counted_and_asked_again_only_when_told(tmp_path: Path) -> None:
    is_fixed = False

    def answer(body: Body) -> Any:
        if "curtains" in json.dumps(body["messages"]) and not is_fixed:
            return {"text": "hm", "first_token": [("hm", -0.1)]} if body.get("logprobs") else "hm"
        return answer_by_hash(body)

    rows = [chat(n) for n in range(4)] + [chat(9, text="curtains")]
    data = write_rows(tmp_path / "chats.jsonl", rows)
    with live_server(answer=answer) as server:
        strict = recipe(server, data, max_unscored=0.1, adherence=False)
        first, _ = questions(server, lambda: run_recipe(strict, out=tmp_path / "run"))
        assert (first.exit_code, first.manifest.status) == (3, "unscored")
        assert first.manifest.stages["judge"].unscored == 1
        decision = lines(tmp_path / "run/select/decisions.jsonl")[-1]
        assert decision["sets"][0] == "rejected"
        is_fixed = True
        again, requests = questions(server, lambda: run_recipe(strict, out=tmp_path / "run"))
        assert (again.exit_code, requests) == (3, [])
        retried, requests = questions(
            server, lambda: run_recipe(strict, out=tmp_path / "run", retry_unscored=True)
        )
        assert retried.exit_code == 0
        assert requests
        assert all("curtains" in json.dumps(body["messages"]) for body in requests)


def about_first_turn(body: Body) -> bool:
    """Whether a request asks for a score on a prompt that ends with the first of several turns."""
    prompt = json.dumps(body["messages"])
    return (
        bool(body.get("logprobs")) and "Answer 1 in chat" in prompt and "Question 2" not in prompt
    )


def test_single_turns_are_asked_again_and_the_other_replies_kept(tmp_path: Path) -> None:
    is_fixed = False

    def answer(body: Body) -> Any:
        if about_first_turn(body) and "curtains" in json.dumps(body["messages"]) and not is_fixed:
            return {"text": "hm", "first_token": [("hm", -0.1)]}
        return answer_by_hash(body)

    rows = [chat(1, turns=3), chat(2, turns=3, text="curtains")]
    data = write_rows(tmp_path / "chats.jsonl", rows)
    share = {"min_scored_share": 0.5}
    with live_server(answer=answer) as server:
        half = recipe(
            server,
            data,
            judge=share | {"text": "off"},
            adherence={"output_mode": "continuous", **share},
            select={"where": {"scored": "mean_score > 0 AND adherence >= 0"}},
            max_unscored=0.0,
        )

        def judged() -> list[dict[str, Any]]:
            [rows] = (tmp_path / "run/judge").glob("*/rows.parquet")
            return [json.loads(record) for record in pl.read_parquet(rows)["record"]]

        first, _ = questions(server, lambda: run_recipe(half, out=tmp_path / "run"))
        assert (first.exit_code, first.manifest.selected) == (0, 2)
        partly = judged()[1]
        assert [turn["turn"] for turn in partly["unscored_turns"]] == [1]
        for stage in ("judge", "adherence"):
            warning_start = f"{stage}: 1 turn of 1 dialogue with other scores could not be scored"
            assert any(warning.startswith(warning_start) for warning in first.manifest.warnings)
        is_fixed = True
        _, requests = questions(server, lambda: run_recipe(half, out=tmp_path / "run"))
        assert requests == []
        retried, requests = questions(
            server, lambda: run_recipe(half, out=tmp_path / "run", retry_unscored=True)
        )
        assert len(requests) == 3 + 1  # each score of that turn, and its adherence
        assert all(about_first_turn(body) for body in requests)
        complete = judged()[1]
        assert complete["unscored_turns"] == []
        assert complete["per_turn"][1:] == partly["per_turn"]
        assert not any("other scores" in warning for warning in retried.manifest.warnings)
        _, requests = questions(
            server, lambda: run_recipe(half, out=tmp_path / "run", retry_unscored=True)
        )
        assert requests == []


@pytest.mark.parametrize("stage", ["judge", "adherence"])
def test_a_dialogue_with_an_unscored_turn_is_selected_only_where_the_recipe_admits_it(
    stage: str, tmp_path: Path
) -> None:
    def answer(body: Body) -> Any:
        if about_first_turn(body) and "curtains" in json.dumps(body["messages"]):
            return {"text": "hm", "first_token": [("hm", -0.1)]}
        return answer_by_hash(body)

    rows = [chat(1, turns=3), chat(2, turns=3, text="curtains")]
    data = write_rows(tmp_path / "chats.jsonl", rows)
    condition = {"judge": "mean_score > 0", "adherence": "adherence >= 0"}[stage]
    off: dict[str, Any] = {"judge": False, "adherence": False}
    common: dict[str, Any] = {**off, "select": {"where": {"scored": condition}}}
    mode = {"judge": {}, "adherence": {"output_mode": "continuous"}}[stage]
    with live_server(answer=answer) as server:

        def run(name: str, share: float | None, **more: Any) -> dict[str, list[str]]:
            sections = {**common, stage: {**mode, "min_scored_share": share}, **more}
            run_recipe(recipe(server, data, **sections), out=tmp_path / name)
            decisions = lines(tmp_path / name / "select/decisions.jsonl")
            return {decision["dialogue_id"]: decision["reasons"] for decision in decisions}

        rejected = {"chat-1": [], "chat-2": ["unscored", "scored:unscored"]}
        assert run("whole", None) == rejected
        assert run("much", 0.7) == rejected
        assert run("half", 0.5) == {"chat-1": [], "chat-2": []}
        # rows that another run admitted are not admitted here, unless this recipe admits them, too
        reused = {"models": {}, "reuse": str(tmp_path / "half")}
        assert run("taken", None, **reused) == rejected
        assert run("taken in part", 0.5, **reused) == {"chat-1": [], "chat-2": []}


def test_roles_are_counted_by_where_they_are_from(tmp_path: Path) -> None:
    def with_system(number: int) -> dict[str, Any]:
        row = chat(number)
        system = {"role": "system", "content": "A terse librarian."}
        return {**row, "messages": [system, *row["messages"]]}

    rows = [chat(1), with_system(2), with_system(3), {**chat(4), "role_definition": "A cook."}]
    data = write_rows(tmp_path / "chats.jsonl", rows)
    sections: dict[str, Any] = {"judge": False, "adherence": False, "role": "A shop assistant."}

    def ran(name: str, **more: Any) -> tuple[dict[str, int], list[str], str]:
        roles_recipe = parse_recipe(
            {"name": "roles", "source": {"path": str(data)}, "select": {"where": {}}}
            | sections
            | more
        )
        result = run_recipe(roles_recipe, out=tmp_path / name)
        console = Console(width=100, record=True, file=io.StringIO())
        show_run(console, result, verbose=True)
        dialogues = lines(tmp_path / name / "dialogues.jsonl")
        return (
            result.manifest.roles,
            [row["role_definition"] for row in dialogues],
            console.export_text(),
        )

    roles, definitions, output = ran("data")
    assert roles == {"recipe": 1, "system": 2, "field": 1}
    assert definitions == ["A shop assistant.", *["A terse librarian."] * 2, "A cook."]
    assert "1 from a field, 2 from the system message, 1 from the recipe" in output
    roles, definitions, output = ran("recipe", role_from="recipe")
    assert roles == {"recipe": 4}
    assert definitions == ["A shop assistant."] * 4
    assert "4 from the recipe" in output


def test_rejections_are_counted_by_the_first_reason_and_by_every_one(tmp_path: Path) -> None:
    data = write_rows(tmp_path / "chats.jsonl", [{**chat(n), "reward": n + 1} for n in range(10)])
    where = {"high": "reward > 4", "higher": "reward > 6", "highest": "reward > 9"}
    sections: dict[str, Any] = {"judge": False, "adherence": False, "select": {"where": where}}
    plain = parse_recipe({"name": "reasons", "source": {"path": str(data)}} | sections)
    result = run_recipe(plain, out=tmp_path / "run")
    manifest = result.manifest
    assert manifest.rejections == {"high": 4, "higher": 2, "highest": 3}
    assert manifest.rejection_reasons == {"high": 4, "higher": 6, "highest": 9}
    console = Console(width=100, record=True, file=io.StringIO())
    show_run(console, result, verbose=True)
    output = [" ".join(line.split()) for line in console.export_text().splitlines()]
    assert "rejected for as first reason in all" in output
    for line in ("high 4 4", "highest 3 9", "higher 2 6"):
        assert line in output
    none = {"where": {"high": "reward > 40", "higher": "reward > 60"}}
    result = run_recipe(
        plain.model_copy(update={"select": SelectConfig(**none)}), out=tmp_path / "none"
    )
    assert result.manifest.rejections == {"high": 10}
    assert any("most of them fail: high 10, higher 10" in w for w in result.manifest.warnings)


def test_a_missing_role_is_an_error_of_the_data_not_of_the_judge(
    server: CountingServer, data: Path, tmp_path: Path
) -> None:
    result = run_recipe(recipe(server, data, role=None, max_unscored=0.0), out=tmp_path / "run")
    assert result.exit_code == 0
    assert result.manifest.stages["adherence"].reasons == {"missing_role": 8}
    assert any("role" in warning for warning in result.manifest.warnings)


def test_a_budget_stops_cleanly_and_the_next_run_goes_on(
    server: CountingServer, data: Path, tmp_path: Path
) -> None:
    small = recipe(server, data, budget={"calls": 30})
    stopped, first = questions(server, lambda: run_recipe(small, out=tmp_path / "run"))
    assert (stopped.exit_code, stopped.manifest.status) == (1, "budget")
    assert len(first) <= 30
    rest, second = questions(server, lambda: run_recipe(recipe(server, data), out=tmp_path / "run"))
    assert rest.exit_code == 0
    assert not {json.dumps(b) for b in first} & {json.dumps(b) for b in second}


@pytest.mark.parametrize("mode", ["tokens", "json"])
def test_a_dry_run_asks_nothing_and_estimates_the_requests(
    server: CountingServer, data: Path, tmp_path: Path, mode: str
) -> None:
    planned = recipe(server, data, judge={"mode": mode})
    before = len(server.requests)
    plan = asyncio.run(make_plan(planned, out=tmp_path / "run"))
    requests = server.requests[before:]
    assert not any("chat " in json.dumps(body["messages"]) for body in requests)
    assert not (tmp_path / "run").exists()
    result = run_recipe(planned, out=tmp_path / "run")
    for name, expected in plan.estimate.stages.items():
        assert expected.requests == result.manifest.stages[name].requests
        assert 0 < expected.prefilled_tokens <= expected.prompt_tokens


def test_the_same_judge_and_policy_is_a_warning_that_stays(
    server: CountingServer, data: Path, tmp_path: Path
) -> None:
    result = run_recipe(recipe(server, data, fork={"resamples": 1}), out=tmp_path / "run")
    assert any("same model" in warning for warning in result.manifest.warnings)


def test_scores_name_the_judge_and_a_new_prompt_makes_new_rows(
    server: CountingServer, data: Path, tmp_path: Path
) -> None:
    run_recipe(recipe(server, data), out=tmp_path / "run")
    changed_prompt = {"anchors": {"helpfulness": {3: "Helps somewhat, in our own words."}}}
    _, requests = questions(
        server, lambda: run_recipe(recipe(server, data, judge=changed_prompt), out=tmp_path / "run")
    )
    assert requests
    assert len(list((tmp_path / "run/judge").iterdir())) == 2
    table = pl.read_parquet(tmp_path / "run/scores.parquet")
    assert table["judge_key"].n_unique() == 1


def test_a_limit_reads_only_the_first_rows(
    server: CountingServer, data: Path, tmp_path: Path
) -> None:
    result = run_recipe(recipe(server, data), out=tmp_path / "run", limit=3)
    assert result.manifest.rows_in == 3


def test_each_stage_is_optional(server: CountingServer, data: Path, tmp_path: Path) -> None:
    for name, off in [("judge only", "adherence"), ("adherence only", "judge")]:
        result, requests = questions(
            server,
            lambda off=off, name=name: run_recipe(
                recipe(server, data, **{off: False}), out=tmp_path / name
            ),
        )
        assert requests
        assert off not in result.manifest.stages
        assert result.manifest.dialogues == 8
    nothing = {"judge": False, "adherence": False, "models": {}, "export": False}
    result, requests = questions(
        server, lambda: run_recipe(recipe(server, data, **nothing), out=tmp_path / "facts")
    )
    assert requests == []
    assert result.exit_code == 0


def test_a_judged_run_is_filtered_without_a_model(
    server: CountingServer, data: Path, tmp_path: Path
) -> None:
    run_recipe(recipe(server, data), out=tmp_path / "judged")
    write_rows(data, [*map(json.loads, data.read_text().splitlines()), chat(50)])
    sections = {
        "models": {},
        "reuse": str(tmp_path / "judged"),
        "select": {"where": {"any": "1 = 1"}},
    }
    result, requests = questions(
        server, lambda: run_recipe(recipe(server, data, **sections), out=tmp_path / "filtered")
    )
    assert requests == []
    assert result.manifest.stages["judge"].rows == 8
    assert any("1 dialogue without a judge row" in warning for warning in result.manifest.warnings)


def test_what_another_run_lacks_is_said_when_its_rows_are_taken_over(
    server: CountingServer, data: Path, tmp_path: Path
) -> None:
    run_recipe(recipe(server, data, adherence=False), out=tmp_path / "judged")
    rows = lines(data)

    def warnings(*more: int, **sections: Any) -> list[str]:
        write_rows(data, [*rows, *map(chat, more)])
        sections = {"models": {}, "reuse": str(tmp_path / "judged"), "adherence": False} | sections
        filtering = recipe(server, data, select={"where": {"any": "1 = 1"}}, **sections)
        result = run_recipe(filtering, out=tmp_path / "filtered")
        assert result.manifest.stages["judge"].reused == 8
        return [text for text in result.manifest.warnings if text.endswith(("filter.", "over."))]

    run = tmp_path / "judged"
    lacks = f"a judge row in {run}"
    assert warnings() == []
    assert warnings(50) == [f"1 dialogue without {lacks} fails every filter."]
    assert warnings(50, 51, 50) == [f"2 dialogues without {lacks} fail every filter."]
    everything = {"factuality": {}, "adherence": {}, "metrics": {}}
    assert sorted(warnings(**everything)) == [
        f"{run} has no {name} rows to take over." for name in sorted(everything)
    ]
    [rows_file] = (run / "judge").glob("*/rows.parquet")
    rows_file.write_bytes(b"torn")
    shutil.rmtree(tmp_path / "filtered")
    filtering = recipe(server, data, models={}, reuse=str(run), adherence=False, select=False)
    result = run_recipe(filtering, out=tmp_path / "filtered")
    assert result.manifest.stages["judge"].reused == 0
    assert any(text.endswith("Those rows are not taken over.") for text in result.manifest.warnings)


def test_a_sample_is_judged_again_with_another_scenario_where_the_recipe_asks(
    server: CountingServer, tmp_path: Path
) -> None:
    scenarios = ("Somebody orders books.", "Somebody asks for legal advice.")
    rows = [chat(n, text=f"case {n}") | {"scenario": scenarios[n % 2]} for n in range(14)]
    data = write_rows(tmp_path / "chats.jsonl", rows)

    def run(**judge: Any) -> tuple[RunResult, list[Body]]:
        with_judge = recipe(server, data, adherence=False, judge=judge)
        return questions(server, lambda: run_recipe(with_judge, out=tmp_path / "run"))

    plain, _ = run()
    checked, requests = run(persona_check=12)
    counts = checked.manifest.stages["persona"]
    assert (counts.rows, counts.requests_sent) == (12, len(requests))
    assert checked.manifest.stages["judge"].reused == 14
    for body in requests:
        prompt = json.dumps(body["messages"])
        number = next(n for n in range(14) if f"chat {n} " in prompt)
        assert scenarios[1 - number % 2] in prompt
        assert scenarios[number % 2] not in prompt
    checks = [result.manifest.judge_checks for result in (plain, checked)]
    modes = [{m.name: m for m in made.failure_modes}["persona_collapse"] for made in checks if made]
    assert modes[0].status == "not_run"
    assert modes[1].figure is not None
    assert 10 <= modes[1].n <= 12
    estimate = checked.manifest.estimate
    assert estimate is not None
    assert estimate.stages["persona"].requests == pytest.approx(len(requests), abs=2)
    again, requests = run(persona_check=12)
    assert requests == []
    assert again.manifest.judge_checks == checked.manifest.judge_checks


def test_one_scenario_for_all_leaves_no_other_to_judge_with(
    server: CountingServer, data: Path, tmp_path: Path
) -> None:
    with_check = recipe(server, data, adherence=False, judge={"persona_check": 5})
    result = run_recipe(with_check, out=tmp_path / "run")
    assert result.manifest.stages["persona"].requests == 0
    assert result.manifest.judge_checks is not None
    mode = {m.name: m for m in result.manifest.judge_checks.failure_modes}["persona_collapse"]
    assert (mode.status, mode.figure) == ("not_run", None)
    assert "same scenario" in mode.detail


def test_two_recipes_share_judgments_and_only_what_is_missing_is_asked(
    server: CountingServer, data: Path, tmp_path: Path
) -> None:
    run_recipe(recipe(server, data), out=tmp_path / "first")
    write_rows(data, [*map(json.loads, data.read_text().splitlines()), chat(50)])
    second = recipe(server, data, name="second", reuse=str(tmp_path / "first"))
    result, requests = questions(server, lambda: run_recipe(second, out=tmp_path / "second"))
    assert requests
    assert all("chat 50" in json.dumps(body["messages"]) for body in requests)
    assert result.manifest.stages["judge"].rows == 9


@pytest.mark.parametrize("priced", [("judge",), ("judge", "policy", "reviser"), ()])
def test_a_cost_says_whose_part_it_leaves_out(
    server: CountingServer, data: Path, tmp_path: Path, priced: tuple[str, ...]
) -> None:
    models: dict[str, dict[str, Any]] = {
        role: {"engine": "openai", "model": "fake-judge", "base_url": server.base_url}
        for role in ("judge", "policy", "reviser")
    }
    for role in priced:
        models[role]["prices"] = {"input": 1.0, "output": 2.0}
    asking = recipe(server, data, models=models, fork={"resamples": 1, "where": "1 = 1"})
    unpriced = tuple(role for role in models if role not in priced)

    plan = asyncio.run(make_plan(asking, out=tmp_path / "run"))
    result = run_recipe(asking, out=tmp_path / "run")
    screen = Console(file=io.StringIO(), width=300)
    show_plan(screen, plan)
    show_run(screen, result, verbose=True)
    output = screen.file.getvalue()

    assert plan.estimate is not None
    assert plan.estimate.unpriced == result.manifest.unpriced == unpriced
    for cost in (plan.estimate.cost, result.manifest.cost):
        assert (cost is not None and cost > 0) == bool(priced)
    left_out = "without the policy's part and the reviser's part: no prices given for them"
    assert output.count(left_out) == (2 if priced == ("judge",) else 0)


def test_a_budget_of_money_needs_the_prices_of_whoever_is_asked(
    server: CountingServer, data: Path
) -> None:
    models: dict[str, dict[str, Any]] = {
        role: {"engine": "openai", "model": "fake-judge", "base_url": server.base_url}
        for role in ("judge", "policy")
    }
    models["judge"]["prices"] = {"input": 1.0, "output": 2.0}
    sections: dict[str, Any] = {"models": models, "budget": {"money": 1.0}}
    recipe(server, data, **sections).checked()  # which asks no policy
    forking = recipe(server, data, fork={"resamples": 1, "guided_revision": False}, **sections)
    with pytest.raises(UsageError, match="without the policy's part: no prices given for it"):
        asyncio.run(make_plan(forking))
    assert server.requests == []


def left_to_do(planned: Recipe, run: Path) -> tuple[int | None, str]:
    """Return the number of requests that a plan says are left, and what it prints."""
    plan = asyncio.run(make_plan(planned, out=run))
    screen = Console(file=io.StringIO(), width=300)
    show_plan(screen, plan)
    return None if plan.left is None else plan.left.total.requests, screen.file.getvalue()


@pytest.mark.parametrize("mode", ["tokens", "json"])
def test_a_plan_says_what_is_left_to_do(
    server: CountingServer, data: Path, tmp_path: Path, mode: str
) -> None:
    """Before, in the middle of, and after a run; and when rows are missing whose replies are kept."""
    run = tmp_path / "run"
    full_recipe = recipe(server, data, judge={"mode": mode})
    left, output = left_to_do(full_recipe, run)
    assert left is None
    assert "left to do" not in output
    run_recipe(recipe(server, data, judge={"mode": mode}, budget={"calls": 12}), out=run)
    left, output = left_to_do(full_recipe, run)
    assert left
    result = run_recipe(full_recipe, out=run)
    assert left == sum(stage.requests_sent for stage in result.manifest.stages.values())
    assert "of " in output.partition("left to do: ")[2]
    left, output = left_to_do(full_recipe, run)
    total = asyncio.run(make_plan(full_recipe, out=run)).estimate.total.requests  # type: ignore[union-attr]
    assert left == 0
    assert f"left to do: 0 of {total:,} requests; everything is kept from an earlier run" in output
    for folder in (run / "judge").iterdir():
        shutil.rmtree(folder)  # as if another version had made the rows: their replies are there
    assert left_to_do(full_recipe, run)[0] == 0
    write_rows(data, [*lines(data), chat(50, turns=2)])
    left, _ = left_to_do(full_recipe, run)
    result = run_recipe(full_recipe, out=run)
    assert left == sum(stage.requests_sent for stage in result.manifest.stages.values())


def test_nothing_is_left_to_do_after_forks_and_pairs(
    server: CountingServer, data: Path, tmp_path: Path
) -> None:
    forked = {"fork": {"resamples": 1, "where": "n_turns < 3"}}
    forking = recipe(server, data, **forked)
    run_recipe(recipe(server, data), out=tmp_path / "run")
    left, _ = left_to_do(forking, tmp_path / "run")
    assert left
    run_recipe(forking, out=tmp_path / "run")
    assert left_to_do(forking, tmp_path / "run")[0] == 0
    clean = recipe(server, data, select={"decontaminate": {"path": str(data)}}, **forked)
    run_recipe(clean, out=tmp_path / "clean")  # every dialogue is in the eval set: none is forked
    assert left_to_do(clean, tmp_path / "clean")[0] == 0
    rows = [
        {
            "id": f"pair-{number}",
            "prompt": f"A question for chat {number}?",
            "chosen": [{"role": "assistant", "content": f"A good answer, {number}."}],
            "rejected": [{"role": "assistant", "content": f"A bad answer, number {number}."}],
        }
        for number in range(3)
    ]
    pairs = recipe(server, write_rows(tmp_path / "pairs.jsonl", rows), natural={"verify": {}})
    run_recipe(pairs, out=tmp_path / "pairs")
    assert left_to_do(pairs, tmp_path / "pairs")[0] == 0


@pytest.mark.parametrize("damage", ["rows", "scores"])
def test_what_is_left_counts_damaged_rows_as_missing(
    server: CountingServer, data: Path, tmp_path: Path, damage: str
) -> None:
    run = tmp_path / "run"
    forking = recipe(server, data, fork={"resamples": 1, "where": "n_turns < 3"})
    run_recipe(forking, out=run)
    path = run / "scores.parquet" if damage == "scores" else next(run.glob("judge/*/rows.parquet"))
    path.write_bytes(b"no table")
    left, _ = left_to_do(forking, run)
    assert left is not None


@pytest.mark.usefixtures("all_sampled")
@pytest.mark.parametrize(
    ("sections", "words"),
    [
        (
            {"judge": {"window_turns": 4}},
            ("have no judge row", "config judge.window_turns is 5 there, 4 here"),
        ),
        (
            {"judge": {"anchors": {"helpfulness": {3: "Helps somewhat."}}}},
            ("have no judge row", "prompts is "),
        ),
        (
            {"models": {"judge": {"model": "other-judge"}}},
            (
                "have no judge row",
                "have no adherence row",
                "judge model is fake-judge there, other-judge here",
            ),
        ),
        (
            {"role": "A gruff shop assistant."},
            ("8 of 8 dialogues have no judge row", "8 differ in content", "as 'chat-0'"),
        ),
    ],
)
def test_a_reused_run_that_does_not_fit_gives_a_warning_before_any_call(
    data: Path, tmp_path: Path, sections: dict[str, Any], words: tuple[str, ...]
) -> None:
    with live_server(models=("fake-judge", "other-judge")) as server:
        run_recipe(recipe(server, data), out=tmp_path / "first")
        model = recipe(server, data).models.judge.model_dump()  # type: ignore[union-attr]
        for role, changes in sections.get("models", {}).items():
            sections = sections | {"models": {role: model | changes}}
        reuse = str(tmp_path / "first")
        second = recipe(server, data, name="second", **sections, reuse=reuse)
        plan = asyncio.run(make_plan(second, out=tmp_path / "second"))
        messages: list[str] = []
        counts_of_requests: list[int] = []

        def note(text: str) -> None:
            messages.append(text)
            counts_of_requests.append(
                sum("chat " in json.dumps(body["messages"]) for body in server.requests)
            )

        before = sum("chat " in json.dumps(body["messages"]) for body in server.requests)
        result = run_recipe(second, out=tmp_path / "second", notify=note)
        assert set(counts_of_requests) == {before}
        assert set(messages) <= set(result.manifest.warnings)
        for word in words:
            assert word in " ".join(messages)
            assert word in " ".join(plan.warnings)
        stages = result.manifest.stages
        calls = stages["judge"].requests_sent + stages["adherence"].requests_sent
        assert messages[-1] == f"reuse: about {calls:,} calls follow to judge them."

        required = recipe(
            server, data, name="third", **sections, reuse={"run": reuse, "required": True}
        )
        before = len(server.requests)
        for refused in (
            lambda: asyncio.run(make_plan(required, out=tmp_path / "third")),
            lambda: run_recipe(required, out=tmp_path / "third"),
        ):
            with pytest.raises(UsageError) as error:
                refused()
            assert all(word in str(error.value) for word in words)
            assert "required: true" in str(error.value)
        assert not any("chat " in json.dumps(body["messages"]) for body in server.requests[before:])


def test_a_run_that_is_reused_whole_says_nothing(
    server: CountingServer, data: Path, tmp_path: Path
) -> None:
    run_recipe(recipe(server, data), out=tmp_path / "first")
    reuse = {"run": str(tmp_path / "first"), "required": True}
    second = recipe(server, data, name="second", reuse=reuse)
    messages: list[str] = []
    assert left_to_do(second, tmp_path / "second")[0] == 0
    result, requests = questions(
        server, lambda: run_recipe(second, out=tmp_path / "second", notify=messages.append)
    )
    assert (requests, messages) == ([], [])
    assert not any("reuse" in warning for warning in result.manifest.warnings)


def test_judgments_that_are_taken_as_they_are_can_be_required(
    server: CountingServer, data: Path, tmp_path: Path
) -> None:
    run_recipe(recipe(server, data), out=tmp_path / "first")
    write_rows(data, [*lines(data), chat(50)])
    reuse = {"run": str(tmp_path / "first"), "required": True}
    filtering = recipe(server, data, models={}, reuse=reuse)
    for refused in (
        lambda: asyncio.run(make_plan(filtering, out=tmp_path / "second")),
        lambda: run_recipe(filtering, out=tmp_path / "second"),
    ):
        with pytest.raises(UsageError, match="1 dialogue without a row of stage judge"):
            refused()


def test_ids_are_unique_over_sources(server: CountingServer, data: Path, tmp_path: Path) -> None:
    other = write_rows(tmp_path / "other.jsonl", [chat(1, text="lamps")])
    sources = [{"path": str(data)}, {"path": str(other)}]
    result = run_recipe(recipe(server, data, source=sources), out=tmp_path / "run")
    ids = [d["dialogue_id"] for d in lines(tmp_path / "run/select/decisions.jsonl")]
    assert result.manifest.dialogues == 9 == len(set(ids))
    assert "other:chat-1" in ids


def test_a_damaged_kept_reply_is_asked_for_again_by_itself_and_the_run_says_so(
    server: CountingServer, data: Path, tmp_path: Path
) -> None:
    first = run_recipe(recipe(server, data), out=tmp_path / "run")
    before = (tmp_path / "run/scores.parquet").read_bytes()
    shutil.rmtree(tmp_path / "run/judge")
    with sqlite3.connect(tmp_path / "run/replies.sqlite") as store:
        # What was -1.2 is -91.2, and all of it is JSON as before.
        replies = store.execute("SELECT number, value FROM kept").fetchall()
        changed = [
            (value.replace(b",-1", b",-91"), number) for number, value in replies if b",-1" in value
        ]
        store.executemany("UPDATE kept SET value = ? WHERE number = ?", changed[:3])
    store.close()
    again, requests = questions(server, lambda: run_recipe(recipe(server, data), out=first.folder))
    assert again.manifest.status == "done"
    assert 1 <= len(requests) <= 3
    [warning] = [
        text for text in again.manifest.warnings if "Damaged by the disk or a copy: " in text
    ]
    assert f": {plural(len(requests), 'kept reply', 'kept replies')}," in warning
    assert (tmp_path / "run/scores.parquet").read_bytes() == before


def test_replies_that_are_not_what_was_asked_for_cost_no_dialogue(
    data: Path, tmp_path: Path
) -> None:
    times_asked = Counter[str]()

    def answer(body: Body) -> Body | str:
        good = chat_completion(answer_by_hash(body), body)
        digest = body_hash(body)
        times_asked[digest] += 1
        if int(digest[:2], 16) % 5 or times_asked[digest] > 1:
            return good
        choice = good["choices"][0]
        kind = int(digest[2:4], 16) % 4
        if kind == 0:
            choice.pop("logprobs", None)
            choice["message"]["content"] = None
        elif kind == 1:
            choice["message"]["tool_calls"] = [None]
        elif kind == 2:
            good["usage"]["prompt_tokens"] = 1e20
        elif "logprobs" in choice:
            choice["logprobs"]["content"][0]["top_logprobs"][0]["logprob"] = "nan"
        return good

    with live_server() as sound, live_server(answer=answer) as faulty:
        expected = run_recipe(recipe(sound, data), out=tmp_path / "sound").manifest
        with_faults = run_recipe(recipe(faulty, data), out=tmp_path / "faulty").manifest
    assert with_faults.verdicts == expected.verdicts
    assert with_faults.unscored == expected.unscored
    assert with_faults.sets == expected.sets
    assert with_faults.requests > expected.requests


@pytest.fixture
def open_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


def open_to_others(folder: Path) -> list[str]:
    """Return the paths of a folder, itself included, that other users may read or write."""
    paths = [folder, *folder.rglob("*")]
    return [str(path) for path in paths if path.lstat().st_mode & 0o077]


@pytest.mark.usefixtures("open_umask")
def test_all_that_a_run_leaves_is_for_its_owner_alone(
    server: CountingServer, data: Path, tmp_path: Path
) -> None:
    trainers = ["trl", "llamafactory", "axolotl", "swift", "openrlhf", "verl", "openai"]
    sections = {
        "fork": {"resamples": 1},
        "select": {"where": None, "dedup": {}},
        "export": {"trainers": trainers, "formats": ["jsonl", "parquet"], "shard_rows": 2},
    }
    while_it_ran: set[str] = set()

    def look(body: Body) -> Any:
        while_it_ran.update(open_to_others(tmp_path / "runs"))
        return answer_by_hash(body)

    server.answer = look
    run_recipe(recipe(server, data, **sections), out=tmp_path / "runs" / "one")
    assert len(list((tmp_path / "runs").rglob("*"))) > 40
    assert open_to_others(tmp_path / "runs") == []
    assert while_it_ran == set()


@pytest.mark.usefixtures("open_umask")
def test_a_folder_that_was_shared_before_the_run_stays_shared(
    server: CountingServer, data: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    run.mkdir(mode=0o750)
    run_recipe(recipe(server, data), out=run)
    assert run.stat().st_mode & 0o777 == 0o750
    assert open_to_others(run) == [str(run)]


def test_a_run_that_goes_on_with_another_served_model_is_an_error_with_both_names(
    server: CountingServer, data: Path, tmp_path: Path
) -> None:
    def answer(body: Body) -> Body:
        return {**chat_completion(answer_by_hash(body), body), "model": name}

    server.answer = answer
    name = "judge-v1"
    stopped = run_recipe(recipe(server, data, budget={"calls": 9}), out=tmp_path / "run")
    assert stopped.manifest.status == "budget"
    [warning] = [text for text in stopped.manifest.warnings if "was asked for" in text]
    assert "'judge-v1'" in warning
    name = "judge-v2"
    with pytest.raises(EngineError) as caught:
        run_recipe(recipe(server, data), out=tmp_path / "run")
    assert "got: judge-v2" in str(caught.value)
    assert "expected: judge-v1" in str(caught.value)
    name = "judge-v1"
    assert run_recipe(recipe(server, data), out=tmp_path / "run").manifest.status == "done"


PRIVATE = "Write to jo.doe@posteo.de or call +44 20 7946 0958; card 4111 1111 1111 1111."


@pytest.mark.parametrize("is_hosted", [True, False])
def test_what_a_recipe_redacts_leaves_for_no_hosted_model_and_stays_in_the_records(
    server: CountingServer, tmp_path: Path, is_hosted: bool
) -> None:
    row = chat(1, turns=1, text=PRIVATE)
    data = write_rows(tmp_path / "chats.jsonl", [row])
    redacting = recipe(
        server,
        data,
        redact=["email", "phone", "card"],
        judge={"text": "all"},
        fork={"resamples": 1, "where": "TRUE"},
        select={"where": {}},
    )
    if is_hosted:  # this machine too, by an address that does not say so
        url = server.base_url.replace("127.0.0.1", "0.0.0.0")
        models = {
            role: model.model_copy(update={"base_url": url})
            for role, model in (
                ("judge", redacting.models.judge),
                ("policy", redacting.models.policy),
            )
            if model is not None
        }
        redacting = redacting.model_copy(
            update={"models": redacting.models.model_copy(update=models)}
        )
    _, requests = questions(server, lambda: run_recipe(redacting, out=tmp_path / "run"))
    sent = [json.dumps(body["messages"]) for body in requests]
    secrets = ("jo.doe@posteo.de", "7946 0958", "4111 1111")
    assert sent
    assert {any(secret in text for text in sent) for secret in secrets} == {not is_hosted}
    assert any("[email] or call [phone]; card [card]" in text for text in sent) == is_hosted
    [dialogue] = lines(tmp_path / "run/dialogues.jsonl")
    [exported] = lines(tmp_path / "run/export/trl/sft.jsonl")
    for record in (dialogue, exported):
        assert all(secret in json.dumps(record) for secret in secrets)
