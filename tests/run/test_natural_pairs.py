"""Natural pairs through whole runs: funnels that add up on real data, and verification by a judge."""

from __future__ import annotations

import gzip
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest

from curate.engines import model_pool
from curate.engines.base import Request
from curate.engines.scripted import ScriptedEngine
from curate.errors import UsageError
from curate.recipe import parse_recipe
from curate.run import natural_pairs, pipeline
from curate.run.pipeline import RunResult, run_recipe
from curate.run.rows_left import last_pair_share
from curate.stages import pair_stages

BARE = {"judge": False, "adherence": False, "select": False}


def lines(path: Path) -> list[dict[str, Any]]:
    return [orjson.loads(line) for line in path.read_bytes().splitlines()]


def records(run: Path) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    return lines(run / "pairs/natural_pairs.jsonl"), lines(run / "pairs/dropped_pairs.jsonl")


def check_funnel(result: RunResult) -> int:
    """Every record is a pair or dropped for a reason, on disk as in the manifest and the export."""
    manifest = result.manifest
    passed, dropped = records(result.folder)
    assert len(passed) == manifest.natural_pairs
    assert Counter(pair["drop_reason"] for pair in dropped) == manifest.natural_drop_reasons
    assert manifest.natural_drop_reasons == manifest.drop_reasons
    assert manifest.dropped == len(dropped)
    assert {pair["drop_reason"] for pair in passed} <= {None}
    assert len({pair["pair_id"] for pair in passed + dropped}) == len(passed + dropped)
    export = manifest.exports["trl"]
    assert export["dpo_natural"] + export["refused_dpo_natural"] == len(passed)
    return len(passed) + len(dropped)


# --- real data: what comes out is counted against the files, read by other means


def run_real(path: Path, out: Path, **sections: Any) -> RunResult:
    given = {"name": "real", "source": {"path": str(path)}} | BARE | sections
    return run_recipe(parse_recipe(given), out=out)


def test_hh_gives_one_record_a_row(shared_data: Path, tmp_path: Path) -> None:
    path = shared_data / "hh_rlhf" / "test.jsonl.gz"
    result = run_real(path, tmp_path / "run")
    with gzip.open(path, "rb") as rows:
        assert check_funnel(result) == sum(1 for _ in rows) == result.manifest.rows_in
    passed, _ = records(result.folder)
    for pair in passed:
        sides = [pair[name]["content"] for name in ("chosen", "rejected")]
        assert all(side == side.strip() != "" for side in sides)
        assert not any(re.match(r"\s*(Human|Assistant):", side) for side in sides)
        assert pair["prompt"][-1]["role"] == "user"
    assert result.manifest.pair_checks["natural"].pairs == len(passed)


def test_oasst_gives_one_record_for_every_fork(shared_data: Path, tmp_path: Path) -> None:
    path = shared_data / "oasst" / "oasst2_filtered.jsonl"
    result = run_real(path, tmp_path / "run")
    total = check_funnel(result)
    passed, dropped = records(result.folder)
    assert Counter(pair["basis"] for pair in passed + dropped).keys() == {"rank", "label"}
    # one record a prompt that has siblings to choose from
    prompts = {
        orjson.dumps([pair["dialogue_id"].split("/")[0], pair["prompt"]])
        for pair in passed + dropped
    }
    assert len(prompts) == total


def test_tau_bench_gives_a_record_for_every_mixed_task(shared_data: Path, tmp_path: Path) -> None:
    path = shared_data / "tau_bench" / "gpt-4o-airline.json"
    result = run_real(path, tmp_path / "run")
    rewards: dict[int, set[float]] = {}
    for row in orjson.loads(path.read_bytes()):
        rewards.setdefault(row["task_id"], set()).add(row["reward"])
    mixed = {str(task) for task, of in rewards.items() if len(of) > 1}
    assert check_funnel(result) >= len(mixed)
    _, dropped = records(result.folder)
    assert {re.findall(r"\d+", pair["dialogue_id"])[-2] for pair in dropped} == mixed
    assert result.manifest.natural_drop_reasons.keys() == {"diverges_at_user"}


# --- verified by a judge

ASK = "Is it due?"


def task(number: int, chosen: str, rejected: str) -> list[dict[str, Any]]:
    return [
        {
            "id": f"t{number}/{reward}",
            "messages": [
                {"role": "user", "content": f"{ASK} ({number})"},
                {"role": "assistant", "content": said},
            ],
            "group": f"g{number}",
            "reward": reward,
        }
        for said, reward in ((chosen, 1.0), (rejected, 0.0))
    ]


def said_last(request: Request) -> str:
    """What the assistant says last in the dialogue that is shown."""
    text = "\n".join(str(message["content"]) for message in request.messages)
    return max(
        re.findall(r"\b(?:fine|weak|broken)\w*", text.split("Candidate A")[0]) or [""],
        key=text.rfind,
    )


def judge(request: Request) -> str:
    """Fine words are worth five, weak ones two, and of two sides the fine one is better; broken ones get no answer."""
    assert request.schema is not None
    if request.purpose.endswith(".compare"):
        text = str(request.messages[0]["content"])
        first = re.search(r"Candidate A\n<candidate>\n(\w+)", text)
        assert first is not None
        return orjson.dumps({"answer": "A" if first[1].startswith("fine") else "B"}).decode()
    value = {"f": 5, "w": 2}.get(said_last(request)[:1])
    if value is None:
        return "no idea"
    properties = request.schema["properties"]
    reply = {
        key: {"context_use": value, "helpfulness": value, "safety": 5}
        for key in properties
        if key.startswith("turn_")
    }
    return orjson.dumps(reply).decode()


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> ScriptedEngine:
    made = ScriptedEngine(judge)

    async def scripted(_: object) -> ScriptedEngine:
        return made

    monkeypatch.setattr(model_pool, "open_engine", scripted)
    return made


@pytest.fixture
def verify(tmp_path: Path, engine: ScriptedEngine) -> Callable[..., RunResult]:
    def run(*tasks: list[dict[str, Any]], retry: bool = False, **sections: Any) -> RunResult:
        data = tmp_path / "tasks.jsonl"
        data.write_bytes(b"".join(orjson.dumps(row) + b"\n" for rows in tasks for row in rows))
        given = {
            "name": "verify",
            "source": {"path": str(data)},
            "role": "R.",
            "scenario": "S.",
            "models": {"judge": {"engine": "scripted", "replies": []}},
            "natural": {"verify": True},
        }
        recipe = parse_recipe(given | BARE | sections)
        return run_recipe(recipe, out=tmp_path / "run", retry_unscored=retry)

    return run


GOOD = task(1, "fine", "weak")
AGREED = [row for number in range(10, 20) for row in task(number, "fine", "weak")]
"""Pairs enough on which the judge is of the data's mind for its word to count."""
TURNED = task(2, "weak", "fine")
BOTH = task(3, "fine", "finer")
COSMETIC = task(4, "Fine, thank you!", "fine")


def test_natural_pairs_are_found_once(
    verify: Callable[..., RunResult], monkeypatch: pytest.MonkeyPatch
) -> None:
    looked = 0
    look = natural_pairs.natural_candidates

    def counted(*given: Any) -> Any:
        nonlocal looked
        looked += 1
        return look(*given)

    monkeypatch.setattr(natural_pairs, "natural_candidates", counted)
    verify(AGREED, GOOD, TURNED)
    assert looked == 1
    verify(AGREED, GOOD, TURNED, natural={})
    assert looked == 2


def test_models_are_closed_before_selection_and_export(
    verify: Callable[..., RunResult], engine: ScriptedEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    open_at: dict[str, bool] = {}
    is_closed = False

    async def close() -> None:
        nonlocal is_closed
        is_closed = True

    def noted(name: str) -> None:
        step = getattr(pipeline, name)

        def call(*given: Any) -> Any:
            open_at[name] = not is_closed
            return step(*given)

        monkeypatch.setattr(pipeline, name, call)

    monkeypatch.setattr(engine, "close", close)
    for name in ("tabulate", "select_dialogues", "export_run"):
        noted(name)
    verify(AGREED, GOOD)
    assert open_at == {"tabulate": True, "select_dialogues": False, "export_run": False}


def test_only_what_the_judge_confirms_is_a_pair(
    verify: Callable[..., RunResult], engine: ScriptedEngine
) -> None:
    result = verify(AGREED, GOOD, TURNED, BOTH, COSMETIC)
    assert check_funnel(result) == 14
    passed, dropped = records(result.folder)
    assert [pair["chosen"]["content"] for pair in passed] == ["fine"] * 11
    pair = passed[-1]
    assert (pair["source"], pair["basis"]) == ("natural", "reward")
    assert pair["judge"].startswith("scripted")
    assert pair["check"]["margin"] == 2.0
    assert (pair["check"]["preferred_first"], pair["check"]["preferred_second"]) == (True, True)
    assert {pair["prompt"][0]["content"][-2]: pair["drop_reason"] for pair in dropped} == {
        "2": "original_was_fine", "3": "original_was_fine", "4": "cosmetic",
    }  # fmt: skip
    stage = result.manifest.stages["natural"]
    assert (stage.rows, stage.reused) == (13, 0)
    # both sides of every pair in three wordings and in both orders, whatever is found on the way
    assert stage.requests_sent == len(engine.requests) == 13 * (3 + 3 + 2)
    agreement = result.manifest.label_agreement
    assert agreement is not None
    assert (agreement.pairs, agreement.share) == (
        13,
        11.5 / 13,
    )  # of two fine sides the first shown
    assert any("letters without log-probabilities" in text for text in result.manifest.warnings)
    # what needs no judge is dropped without one, and nothing else was asked
    assert not any("(4)" in str(request.messages) for request in engine.requests)
    assert {request.purpose.partition(".")[0] for request in engine.requests} == {"natural"}


def test_what_verification_asks_is_foretold(verify: Callable[..., RunResult]) -> None:
    tasks = [task(n, f"fine {n}", f"weak {n}") for n in range(4)]
    result = verify(*tasks, judge={})
    expected = result.manifest.estimate
    assert expected is not None
    stage = result.manifest.stages["natural"]
    assert result.manifest.natural_pairs == 4
    assert expected.stages["natural"].requests == stage.requests_sent == 4 * 8
    assert any("0.50 natural pairs a dialogue" in text for text in expected.assumptions)
    assert last_pair_share(result.folder).value == 0.5
    assert "last run" in last_pair_share(result.folder).source


def test_a_pair_that_was_verified_is_not_asked_about_again(
    verify: Callable[..., RunResult], engine: ScriptedEngine
) -> None:
    verify(AGREED, TURNED)
    asked = len(engine.requests)
    again = verify(AGREED, TURNED)
    assert (again.manifest.stages["natural"].reused, len(engine.requests)) == (11, asked)
    assert again.manifest.natural_pairs == 10
    more = verify(AGREED, TURNED, BOTH)
    assert (more.manifest.stages["natural"].reused, more.manifest.stages["natural"].rows) == (
        11,
        12,
    )
    # a rule of finding changes what is found, not what was said of it
    fewer = verify(AGREED, TURNED, natural={"verify": True, "min_reward_gap": 0.9})
    assert fewer.manifest.stages["natural"].requests_sent == 0
    lenient = verify(
        AGREED, BOTH, natural={"verify": {"min_good": {"helpfulness": 2, "context_use": 2}}}
    )
    assert lenient.manifest.natural_drop_reasons == {"original_was_fine": 11}


def test_a_judge_of_another_mind_than_the_data_drops_nothing(
    verify: Callable[..., RunResult],
) -> None:
    result = verify(GOOD, TURNED, BOTH, COSMETIC)
    assert (result.manifest.natural_pairs, result.manifest.natural_drop_reasons) == (
        3,
        {"cosmetic": 1},
    )
    passed, _ = records(result.folder)
    assert {pair["check"]["decided_by"] for pair in passed} == {"data"}
    assert any("worth nothing on this data" in text for text in result.manifest.warnings)


def test_without_verification_nobody_is_asked(
    verify: Callable[..., RunResult], engine: ScriptedEngine
) -> None:
    result = verify(GOOD, TURNED, natural={})
    assert (result.manifest.natural_pairs, engine.requests) == (2, [])
    assert {pair["check"] for pair in records(result.folder)[0]} == {None}


def test_what_could_not_be_scored_is_no_pair_and_asked_again_when_told(
    verify: Callable[..., RunResult], engine: ScriptedEngine
) -> None:
    rows = task(5, "broken", "weak")
    result = verify(rows)
    assert result.manifest.natural_drop_reasons == {"unscored": 1}
    asked = len(engine.requests)
    assert verify(rows).manifest.natural_drop_reasons == {"unscored": 1}
    assert len(engine.requests) == asked
    assert verify(rows, retry=True).manifest.natural_drop_reasons == {"unscored": 1}
    assert len(engine.requests) > asked


def test_what_could_not_be_scored_counts_towards_the_allowed_share(
    verify: Callable[..., RunResult],
) -> None:
    """Of ten pairs one could not be verified: the user hears of it by the exit code, too."""
    nine = AGREED[:18]
    result = verify(nine, task(5, "broken", "weak"))
    assert (result.exit_code, result.manifest.status) == (3, "unscored")
    assert result.manifest.unscored_shares == {"natural": 0.1}
    stage = result.manifest.stages["natural"]
    assert (stage.rows, stage.unscored, stage.reasons) == (10, 1, {"bad_reply": 1})
    assert any("natural: 1 of 10" in text for text in result.manifest.warnings)
    assert result.manifest.unscored == 0, "no dialogue was to be scored"
    assert result.manifest.natural_pairs == 9, "what was verified is kept"
    [dropped] = records(result.folder)[1]
    assert dropped["check"]["unscored"] == "bad_reply"
    # kept rows count as new ones do
    assert verify(nine, task(5, "broken", "weak")).exit_code == 3
    assert verify(nine, task(5, "broken", "weak"), max_unscored=0.5).exit_code == 0


def test_a_pair_without_a_scenario_is_an_error_of_the_data(
    verify: Callable[..., RunResult], engine: ScriptedEngine
) -> None:
    result = verify(GOOD, scenario=None)
    assert (result.exit_code, result.manifest.natural_drop_reasons) == (0, {"unscored": 1})
    assert result.manifest.stages["natural"].reasons == {"missing_scenario": 1}
    assert any("1 natural pair without a scenario" in text for text in result.manifest.warnings)
    assert engine.requests == []


def test_a_bug_in_verifying_a_pair_counts_as_well(
    verify: Callable[..., RunResult], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(pair_stages, "verify_natural", broken)
    result = verify(GOOD)
    assert result.exit_code == 3
    assert result.manifest.stages["natural"].reasons == {"internal_error": 1}
    assert result.manifest.funnels["natural"][-2].dropped == {"unscored": 1}
    assert result.manifest.funnels["natural"][-2].name == "verified"


def test_verification_needs_a_judge_and_says_so(verify: Callable[..., RunResult]) -> None:
    with pytest.raises(UsageError, match="names no judge"):
        verify(GOOD, models={})


def test_role_adherence_may_not_fall_where_the_run_judges_it(
    verify: Callable[..., RunResult], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The chosen side is better in all but its role."""

    def strict(request: Request) -> str:
        if request.schema is None:
            return "NO" if "fine" in said_last(request) else "YES"
        return judge(request)

    async def scripted(_: object) -> ScriptedEngine:
        return ScriptedEngine(strict)

    monkeypatch.setattr(model_pool, "open_engine", scripted)
    result = verify(AGREED, adherence={})
    assert result.manifest.natural_drop_reasons == {"other_dimension_fell": 10}
    pair = records(result.folder)[1][0]
    assert (pair["check"]["chosen_role"], pair["check"]["rejected_role"]) == (0.0, 1.0)
    unchecked = {"verify": {"check_role": False}}
    assert verify(AGREED, adherence={}, natural=unchecked).manifest.natural_pairs == 10


def test_a_contaminated_pair_is_not_shown_to_the_judge(
    verify: Callable[..., RunResult], engine: ScriptedEngine, tmp_path: Path
) -> None:
    text = "fine " + " ".join(f"word{n}" for n in range(20))
    evals = tmp_path / "evals.txt"
    evals.write_text(text[5:] + "\n", encoding="utf-8")
    select = {"where": {}, "active": None, "decontaminate": {"path": str(evals)}}
    result = verify(task(6, text, "weak"), select=select)
    assert result.manifest.natural_drop_reasons == {"contaminated": 1}
    assert engine.requests == []
