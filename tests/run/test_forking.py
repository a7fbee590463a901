"""Forks as part of a run: what is not asked for contaminated dialogues, and the funnel in the manifest."""

from __future__ import annotations

import errno
import json
from collections import Counter
from io import StringIO
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from aiohttp import web
from rich.console import Console

from curate.adherence.config import AdherenceConfig
from curate.cli.show_run import show_funnels
from curate.dialogue import Dialogue
from curate.engines.base import Capability
from curate.engines.model_pool import ModelPool
from curate.engines.scripted import ScriptedEngine
from curate.errors import CurateError, UsageError
from curate.judging.config import RubricConfig
from curate.pairs.config import ForkConfig
from curate.pairs.funnel import FUNNEL_KINDS
from curate.recipe import Recipe, parse_recipe
from curate.records import PreferencePair
from curate.records.validation import validate_record
from curate.run.pipeline import RunResult, run_recipe
from curate.run.read_back import read_manifest
from curate.stages import fork_stage, judge_stage, pair_stages, scoring_stages
from tests.live import live_server
from tests.pairs.scripted import count_funnel
from tests.servers import CountingServer, answer_by_hash

LONG = "a parcel that was sent to the wrong house in the next street on monday morning"


@pytest.fixture
def data(tmp_path: Path) -> Path:
    path = tmp_path / "chats.jsonl"
    with path.open("w") as out:
        for number in range(8):
            about = LONG if number in (2, 5) else f"order {number}"
            messages = [
                {"role": "user", "content": f"Question of chat {number} about {about}?"},
                {"role": "assistant", "content": f"Answer in chat {number} about {about}."},
            ]
            out.write(json.dumps({"id": f"chat-{number}", "messages": messages * 2}) + "\n")
    return path


def recipe(server: CountingServer, data: Path, **sections: Any) -> Recipe:
    model = {"engine": "openai", "model": "fake-judge", "base_url": server.base_url, "in_flight": 4}
    given = {
        "name": "test",
        "source": {"path": str(data)},
        "scenario": "A person asks for help.",
        "role": "A patient shop assistant.",
        "models": {"judge": model, "policy": model},
        "adherence": {"output_mode": "continuous"},
        "fork": {"resamples": 1, "where": "verdict IS NOT NULL"},
        "max_unscored": 1.0,
    }
    return parse_recipe(given | sections)


def written(run: Path) -> list[PreferencePair]:
    return [
        PreferencePair.model_validate_json(line)
        for name in ("pairs", "natural_pairs", "dropped_pairs")
        for line in (run / f"pairs/{name}.jsonl").read_text().splitlines()
    ]


def asked_by(server: CountingServer, of: Recipe, run: Path) -> tuple[RunResult, list[str]]:
    """A run, and the texts of the requests that it sent."""
    before = len(server.requests)
    result = run_recipe(of, out=run)
    return result, [json.dumps(body["messages"]) for body in server.requests[before:]]


def test_a_contaminated_dialogue_is_dropped_before_anybody_is_asked_to_fork_it(
    server: CountingServer, data: Path, tmp_path: Path
) -> None:
    evals = tmp_path / "evals.txt"
    evals.write_text(f"Please find {LONG} for me.\n")
    run = tmp_path / "run"
    select = {"decontaminate": [{"path": str(evals)}]}
    asked_by(server, recipe(server, data, fork=False, select=select), run)
    result, asked = asked_by(server, recipe(server, data, select=select), run)
    assert not any(LONG in text for text in asked)
    assert any("chat 3" in text for text in asked)
    tainted = [pair for pair in written(run) if pair.drop_reason == "contaminated"]
    assert {pair.dialogue_id for pair in tainted} == {"chat-2", "chat-5"}
    assert {pair.source for pair in tainted} == {"none"}
    assert all(LONG[:20] in pair.detail for pair in tainted)
    assert result.manifest.stages["fork"].rows == 6
    # Without the eval set they are forked, and what was dropped for it is no longer.
    result, asked = asked_by(server, recipe(server, data), run)
    assert any(LONG in text for text in asked)
    assert not any("chat 3" in text for text in asked)
    assert "contaminated" not in result.manifest.drop_reasons


def test_the_manifest_holds_the_funnel_and_it_adds_up(
    server: CountingServer, data: Path, tmp_path: Path
) -> None:
    result = run_recipe(recipe(server, data), out=tmp_path / "run")
    records = written(tmp_path / "run")
    manifest = read_manifest(tmp_path / "run")
    assert manifest == result.manifest
    assert set(manifest.funnels) == {"fork"}
    stages = manifest.funnels["fork"]
    assert stages == count_funnel(records)
    assert stages[0].entered == 8
    dropped = sum((Counter(stage.dropped) for stage in stages), Counter())
    assert dropped == Counter(manifest.drop_reasons)
    assert stages[-1].passed == manifest.pairs or not any(pair.chosen for pair in records)
    assert all(stage.entered == sum(stage.dropped.values()) + stage.passed for stage in stages)
    for pair in records:
        validate_record("preference-pair", pair.model_dump(mode="json"))
    shown = StringIO()
    show_funnels(Console(file=shown, width=120), manifest)
    assert "pairs: fork" in shown.getvalue()
    assert "have a bad turn" in shown.getvalue()
    assert FUNNEL_KINDS == ("fork", "natural")


@pytest.mark.parametrize("reason", ["engine_error", "low_coverage"])
def test_a_fork_that_the_judge_could_not_decide_counts_and_is_asked_again_when_told(
    data: Path, tmp_path: Path, reason: str
) -> None:
    is_up = False

    def answer(body: dict[str, Any]) -> Any:
        """A server that fails at the third wording of a question, which only forks ask."""
        if is_up or "How good is turn" not in json.dumps(body["messages"]):
            return answer_by_hash(body)
        if reason == "engine_error":
            return web.json_response({"error": {"message": "no"}}, status=400)
        return {"text": "Hm", "first_token": [("Hm", -0.01)]}

    run = tmp_path / "run"
    with live_server(answer=answer) as server:
        strict = recipe(server, data, adherence=False, max_unscored=0.05)
        first, _ = asked_by(server, strict, run)
        fork = first.manifest.stages["fork"]
        assert (first.exit_code, fork.rows) == (3, 8)
        assert fork.reasons == {reason: fork.unscored}
        assert first.manifest.unscored_shares == {"judge": 0, "fork": fork.unscored / 8}
        undecided = {pair.dialogue_id for pair in written(run) if pair.drop_reason == "unscored"}
        assert len(undecided) == fork.unscored > 0
        assert any(f"fork: {fork.unscored} of 8" in text for text in first.manifest.warnings)
        is_up = True
        again = run_recipe(strict, out=run)
        assert (again.exit_code, again.manifest.requests) == (3, 0)
        assert again.manifest.stages["fork"].reasons == fork.reasons
        retried = run_recipe(strict, out=run, retry_unscored=True)
        assert (retried.exit_code, retried.manifest.stages["fork"].unscored) == (0, 0)
        assert retried.manifest.stages["fork"].reused == 8 - fork.unscored
        assert retried.manifest.requests > 0


def test_a_fork_behind_a_turn_without_a_score_is_counted_where_that_was_not_scored(
    data: Path, tmp_path: Path
) -> None:
    """The recipe admits dialogues that are scored in half, so nobody is asked about such a fork.

    Once the turn is scored, the fork is made with what is known then.
    """
    mended = False

    def answer(body: dict[str, Any]) -> Any:
        if "of the assistant in turn 1:" in json.dumps(body["messages"]) and not mended:
            return web.json_response({"error": {"message": "no"}}, status=400)
        return answer_by_hash(body)

    with live_server(answer=answer) as server:
        half = recipe(
            server, data, adherence=False, judge={"min_scored_share": 0.5}, max_unscored=0.0
        )
        result = run_recipe(half, out=tmp_path / "run")
        behind = [p for p in written(tmp_path / "run") if "turn 1 has no score" in p.detail]
        mended = True
        run_recipe(half, out=tmp_path / "run", retry_unscored=True)
    assert not any("turn 1 has no score" in pair.detail for pair in written(tmp_path / "run"))
    assert behind
    assert {pair.drop_reason for pair in behind} == {"unscored"}
    assert result.manifest.unscored_shares == {"judge": 0, "fork": 0}
    assert result.exit_code == 0


def test_how_the_role_is_scored_is_part_of_what_makes_a_fork_valid() -> None:
    engine = ScriptedEngine([], capabilities=frozenset({Capability.TOP_LOGPROBS}))
    models, rubric = ModelPool(engine), RubricConfig()
    judged = judge_stage(rubric, engine)
    prints = {
        fork_stage(ForkConfig(), rubric, judged, models, adherence).fingerprint
        for adherence in (False, AdherenceConfig(), AdherenceConfig(definition="restrictive"))
    }
    assert len(prints) == 3


BROKEN = {
    "judge": "judge_dialogue",
    "adherence": "score_adherence",
    "fork": "fork_dialogue",
}


@pytest.mark.parametrize("stage", BROKEN)
def test_a_bug_in_any_stage_costs_one_dialogue_and_the_next_run_makes_it_again(
    server: CountingServer,
    data: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    stage: str,
) -> None:
    room = pair_stages if stage == "fork" else scoring_stages
    sound = getattr(room, BROKEN[stage])

    async def broken(dialogue: Dialogue, *rest: Any) -> Any:
        if dialogue.id == "chat-3":
            raise OverflowError("math range error")
        return await sound(dialogue, *rest)

    expected = run_recipe(recipe(server, data), out=tmp_path / "expected").manifest
    run = tmp_path / "run"
    with monkeypatch.context() as patch:
        patch.setattr(room, BROKEN[stage], broken)
        for _ in range(2):
            result = run_recipe(recipe(server, data), out=run)
            assert result.manifest.status == "done"
            counts = result.manifest.stages[stage]
            assert counts.reasons == {"internal_error": 1}
            assert counts.reused in (0, counts.rows - 1)
            folder = next((run / stage).iterdir()) / "rows.parquet"
            [row] = [text for text in pl.read_parquet(folder)["record"] if "internal_error" in text]
            assert "OverflowError: math range error" in row
            for pair in written(run):
                validate_record("preference-pair", pair.model_dump(mode="json"))
    mended = run_recipe(recipe(server, data), out=run).manifest
    assert mended.stages[stage].reasons == {}
    assert mended.verdicts == expected.verdicts
    assert (mended.pairs, mended.drop_reasons) == (expected.pairs, expected.drop_reasons)


def test_a_bug_in_one_stage_is_not_taken_over_by_another_run(
    server: CountingServer, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(dialogue: Dialogue, *_: Any) -> Any:
        raise KeyError(dialogue.id)

    plain = {"fork": False, "adherence": False}
    with monkeypatch.context() as patch:
        patch.setattr(scoring_stages, "judge_dialogue", broken)
        run_recipe(recipe(server, data, **plain), out=tmp_path / "broken")
    reusing = recipe(server, data, **plain, reuse=str(tmp_path / "broken"))
    manifest = run_recipe(reusing, out=tmp_path / "run").manifest
    assert manifest.stages["judge"].reused == 0
    assert sum(manifest.verdicts.values()) == 8


@pytest.mark.parametrize(
    ("error", "raised"),
    [
        (KeyboardInterrupt(), KeyboardInterrupt),
        (UsageError("wrong from the start"), UsageError),
        (OSError(errno.ENOSPC, "No space left on device", "/data/part"), CurateError),
    ],
)
def test_what_must_end_a_run_ends_it(
    server: CountingServer,
    data: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    error: BaseException,
    raised: type[BaseException],
) -> None:
    async def broken(*_: Any) -> Any:
        raise error

    monkeypatch.setattr(scoring_stages, "judge_dialogue", broken)
    with pytest.raises(raised):
        run_recipe(recipe(server, data), out=tmp_path / "run")
    assert read_manifest(tmp_path / "run").status == "failed"
