"""The plan of a run: all that is known before its first call, and what is assumed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from curate.errors import CurateError, UsageError
from curate.planning.rates import parse_rates
from curate.run.pipeline import run_recipe
from curate.run.plan import Assumptions, Plan, known_rates, make_plan
from tests.run.test_pipeline import chat, recipe, write_rows
from tests.servers import CountingServer
from tests.transcript import check, kept

FOLDER = Path(__file__).parent / "plans"
GIVEN = parse_rates("prefill=2000,decode=80")
FORK = {"where": "n_turns >= 2", "resamples": 2}


@pytest.fixture
def data(tmp_path: Path) -> Path:
    rows = [chat(n, turns=1 + n % 3) for n in range(6)]
    return write_rows(tmp_path / "chats.jsonl", [*rows, "not a row"])


def whole(plan: Plan, folder: Path) -> str:
    """The plan as `--json` prints it; the key `estimate` has another name, since no manifest's is compared."""
    parts = plan.as_dict()
    return kept({**parts, "expected": parts["estimate"]}, folder)


def of_models(plan: Plan) -> set[str]:
    return {*plan.identities, *plan.fingerprints}


async def test_a_plan_says_what_a_run_would_ask_and_asks_nothing(
    server: CountingServer, data: Path, tmp_path: Path
) -> None:
    planned = recipe(server, data, judge={"text": "all"}, fork=FORK)
    plan = await make_plan(
        planned, out=tmp_path / "run", assumptions=Assumptions(rates=GIVEN, fork_share=0.5)
    )
    check(whole(plan, tmp_path), FOLDER / "given_rates.json")
    assert plan.recipe == planned.checked()
    assert of_models(plan) == {"judge", "adherence"}
    assert plan.policy is not None
    assert plan.measured is None
    assert not (tmp_path / "run").exists()
    assert not any("chat " in json.dumps(body["messages"]) for body in server.requests)


async def test_a_plan_without_rates_knows_no_time_and_no_policy_that_nothing_asks(
    server: CountingServer, data: Path, tmp_path: Path
) -> None:
    plan = await make_plan(recipe(server, data), out=tmp_path / "run")
    check(whole(plan, tmp_path), FOLDER / "no_rates.json")
    assert plan.policy is None


async def test_rates_are_measured_by_calls_that_the_plan_counts(
    server: CountingServer, data: Path, tmp_path: Path
) -> None:
    plan = await make_plan(
        recipe(server, data, adherence=False),
        out=tmp_path / "run",
        assumptions=Assumptions(sample=2, measure=True),
    )
    assert plan.measured is not None
    assert plan.estimate is not None
    assert plan.estimate.rates == plan.measured.rates
    assert plan.estimate.seconds is not None
    parts = plan.as_dict()
    assert parts["measured"] == {
        "calls": 4,
        "prompt_tokens": plan.measured.usage.prompt_tokens,
        "completion_tokens": plan.measured.usage.completion_tokens,
    }
    assert parts["measured"]["prompt_tokens"] > parts["measured"]["completion_tokens"] > 0
    assert (parts["estimate"]["sampled"], parts["estimate"]["dialogues"]) == (2, 6)


async def test_what_an_earlier_run_has_done_is_left_out_of_what_is_left(
    server: CountingServer, data: Path, tmp_path: Path
) -> None:
    run, planned = tmp_path / "run", recipe(server, data, fork=FORK)
    run_recipe(planned, out=run, limit=3)
    rates = Assumptions(rates=GIVEN)
    some = await make_plan(planned, out=run, assumptions=rates)
    assert some.estimate is not None
    assert some.left is not None
    assert some.left.rates == some.estimate.rates == GIVEN
    asked = some.estimate.stages["judge"].requests
    assert 0 < some.left.stages["judge"].requests < asked
    assert "as in the last scores of" in " ".join(some.estimate.assumptions)
    assert some.as_dict()["left"] == some.left.model_dump(mode="json")
    share = Assumptions(fork_share=0.25)
    given = await make_plan(planned, out=run, assumptions=share)
    assert given.estimate is not None
    assert "as given" in " ".join(given.estimate.assumptions)


async def test_rates_of_an_earlier_run_are_all_its_tokens_by_its_seconds(
    server: CountingServer, data: Path, tmp_path: Path
) -> None:
    run_recipe(recipe(server, data), out=tmp_path / "run")
    rates = known_rates(None, tmp_path / "run")
    assert rates is not None
    assert rates.source.endswith(f"prefilled and generated together, as in {tmp_path / 'run'}")
    assumed = Assumptions(rates_from=tmp_path / "run")
    plan = await make_plan(recipe(server, data), out=tmp_path / "other", assumptions=assumed)
    assert plan.estimate is not None
    assert plan.estimate.rates == rates
    assert known_rates(GIVEN, None) is GIVEN
    assert known_rates(None, None) is None
    unjudged = recipe(server, data, models={}, adherence=False, judge=False)
    run_recipe(unjudged, out=tmp_path / "unjudged")
    with pytest.raises(UsageError, match="the run has no rates"):
        known_rates(None, tmp_path / "unjudged")


async def test_a_plan_without_models_reads_the_sources_and_says_what_cannot_be_taken_over(
    server: CountingServer, data: Path, tmp_path: Path
) -> None:
    sections: dict[str, Any] = {"models": {}, "adherence": False}
    plain = await make_plan(
        recipe(server, data, judge=False, **sections), limit=2, out=tmp_path / "plan"
    )
    check(whole(plain, tmp_path), FOLDER / "no_models.json")
    run_recipe(recipe(server, data, adherence=False), out=tmp_path / "run", limit=4)
    taken = recipe(server, data, reuse=str(tmp_path / "run"), **sections)
    plan = await make_plan(taken, out=tmp_path / "plan")
    assert plan.warnings == [
        f"reuse: 2 dialogues without a row of stage judge in {tmp_path / 'run'}"
    ]
    assert plan.as_dict()["warnings"] == plan.warnings


@pytest.mark.parametrize(
    ("role_from", "roles"), [("data", {"recipe": 1, "field": 1}), ("recipe", {"recipe": 2})]
)
async def test_a_plan_takes_the_role_from_where_the_run_would(
    server: CountingServer, role_from: str, roles: dict[str, int], tmp_path: Path
) -> None:
    own = chat(1) | {"role_definition": "A librarian."}
    data = write_rows(tmp_path / "chats.jsonl", [chat(0), own])
    planned = recipe(server, data, models={}, judge=False, adherence=False, role_from=role_from)
    plan = await make_plan(planned, out=tmp_path / "run")
    assert [source["roles"] for source in plan.as_dict()["sources"]] == [roles]


async def test_a_plan_warns_of_judgments_that_reuse_does_not_find_and_of_their_calls(
    server: CountingServer, data: Path, tmp_path: Path
) -> None:
    run_recipe(recipe(server, data, adherence=False), out=tmp_path / "run", limit=4)
    taken = recipe(server, data, adherence=False, reuse=str(tmp_path / "run"))
    plan = await make_plan(taken, out=tmp_path / "plan")
    assert plan.left is not None
    assert plan.warnings == [
        f"reuse: 2 of 6 dialogues have no judge row in {tmp_path / 'run'}: they are not in that run, as 'chat-4'",
        f"reuse: about {plan.left.stages['judge'].requests} calls follow to judge them",
    ]


async def test_what_a_stage_warns_of_stands_in_the_plan(
    server: CountingServer, data: Path, tmp_path: Path
) -> None:
    judge = {"engine": "scripted", "replies": [], "capabilities": ["json_schema"]}
    plan = await make_plan(recipe(server, data, models={"judge": judge}), out=tmp_path / "run")
    assert plan.identities["adherence"].mode == "binary"
    assert plan.as_dict()["warnings"] == [
        "adherence: the judge's engine gives no log-probabilities, so output_mode falls back from continuous to "
        "binary; every turn is scored 0 or 1 and thresholds between mean shares of turns"
    ]


@pytest.mark.parametrize(
    "several",
    [
        {"rates": GIVEN, "measure": True},
        {"rates": GIVEN, "rates_from": Path("run")},
        {"rates_from": Path("run"), "measure": True},
    ],
)
def test_rates_come_from_one_place(several: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="the rates come from several places"):
        Assumptions(**several)


async def test_a_folder_that_cannot_be_written_is_refused_before_any_source_is_read(
    server: CountingServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    absent = recipe(server, tmp_path / "absent.jsonl")
    (tmp_path / "runs").write_text("a file")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(CurateError, match="cannot write runs/test"):
        await make_plan(absent)
