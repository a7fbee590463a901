"""Whole runs on a server that fails by a seeded plan: nothing lost, nothing asked twice, every byte as on a quiet day."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from curate.engines.retrying import Retrying
from curate.errors import EngineError
from curate.recipe import Recipe
from curate.run.pipeline import run_recipe
from curate.run.read_back import read_judged
from curate.run.verify import verify_run
from tests.faults import FAULTS, HARMLESS, OF_LABELS, OF_WORDS, Plan
from tests.live import live_server
from tests.run.test_determinism import OF_THE_PROCESS
from tests.run.test_pipeline import chat, recipe, write_rows
from tests.run.test_verify import contents, every_stage, is_accounted_for
from tests.servers import Body, CountingServer, answer_by_hash, chat_completion

SEEDS = range(int(os.environ.get("CURATE_FAULT_PLANS", "1")))  # `make soak` takes more
DIALOGUES = int(os.environ.get("CURATE_FAULT_DIALOGUES", "8"))


def wide(server: CountingServer, folder: Path, models: dict[str, Any]) -> Recipe:
    """Hundreds of dialogues of one turn, one call each: as many open at once as the model may have."""
    data = write_rows(folder / "chats.jsonl", [chat(n, turns=1) for n in range(300)])
    return recipe(server, data, judge=False, models={"judge": models["judge"]})


def deep(server: CountingServer, folder: Path, models: dict[str, Any]) -> Recipe:
    """All stages on few dialogues."""
    return every_stage(server, folder, chats=DIALOGUES, models=models)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("plan_recipe", [wide, deep])
def test_faults_that_pass_change_nothing(
    plan_recipe: Any, seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Retrying, "_pause", lambda *_: 0.01)
    plan = Plan(seed)
    crowd = 256 if plan_recipe is wide else 0
    with live_server(answer=plan, delay=(0.002, 0.02), crowd=crowd) as server:
        model = {
            "engine": "openai",
            "model": "fake-judge",
            "base_url": server.base_url,
            "in_flight": 256,
            "timeout": 120.0,
        }
        planned = plan_recipe(server, tmp_path, {"judge": model, "policy": model})
        result = run_recipe(planned, out=tmp_path / "faulty")
        asked_again = {key for key, times in plan.given.items() if times > 1}
        plan.is_calm = True
        undisturbed = run_recipe(planned, out=tmp_path / "calm").manifest
        before = len(server.requests)
        assert run_recipe(planned, out=tmp_path / "faulty").exit_code == 0
        later = [body for body in server.requests[before:] if "chat " in json.dumps(body)]
    assert result.exit_code == 0
    assert asked_again == set()
    assert later == []
    assert server.largest_in_flight >= (256 if plan_recipe is wide else 2)
    # Role adherence, all that the wide run asks, reads labels.
    kinds = {*FAULTS, *OF_LABELS, *HARMLESS, *(OF_WORDS if plan_recipe is deep else ())}
    assert plan.faults.keys() == kinds
    manifest = result.manifest
    assert is_accounted_for(tmp_path / "faulty")
    assert manifest.stages.keys() == undisturbed.stages.keys()
    for stage, counts in manifest.stages.items():
        assert counts.reasons == undisturbed.stages[stage].reasons
    calm, faulty = contents(tmp_path / "calm"), contents(tmp_path / "faulty")
    different = [name for name in calm if calm[name] != faulty.get(name)]
    assert different == [name for name in different if name.endswith(OF_THE_PROCESS)]
    assert verify_run(tmp_path / "faulty").differences == ()


def test_a_server_that_replies_as_another_model_ends_the_run_which_goes_on_when_it_is_right(
    tmp_path: Path,
) -> None:
    calls = 0
    is_right = False

    def answer(body: Body) -> Body:
        nonlocal calls
        calls += "chat " in json.dumps(body["messages"])
        name = "fake-judge" if is_right or calls != 9 else "another-judge"
        return {**chat_completion(answer_by_hash(body), body), "model": name}

    data = write_rows(tmp_path / "chats.jsonl", [chat(n) for n in range(8)])
    with live_server(answer=answer) as server:
        planned = recipe(server, data)
        with pytest.raises(EngineError, match="now replies as another model") as raised:
            run_recipe(planned, out=tmp_path / "run")
        assert "got: another-judge" in str(raised.value)
        is_right = True
        assert run_recipe(planned, out=tmp_path / "run").exit_code == 0
        assert run_recipe(planned, out=tmp_path / "calm").exit_code == 0
        about_chats = [body for body in server.requests if "chat " in json.dumps(body["messages"])]
    # Each call once a run, and the reply under the other name once more.
    calm, run = contents(tmp_path / "calm"), contents(tmp_path / "run")
    assert len(about_chats) <= 2 * len({json.dumps(body) for body in about_chats}) + 4
    different = [name for name in calm if calm[name] != run.get(name)]
    assert different == [name for name in different if name.endswith(OF_THE_PROCESS)]


TURN = {"context_use": 3, "helpfulness": 3, "safety": 3}
WRONG_TURNS: dict[str, Callable[[Body], Body]] = {
    "one too many": lambda reply: reply | {"turn_9": TURN},
    "one too few": lambda reply: {name: reply[name] for name in reply if name != "turn_1"},
    "another number": lambda reply: {name.replace("_1", "_9"): reply[name] for name in reply},
    "an address twice": lambda reply: reply | {"per_turn": [{"turn": 1, "scores": TURN}] * 2},
    "a turn of another type": lambda reply: reply | {"turn_1": "good"},
    "another dialogue's": lambda reply: {
        **{name: reply[name] for name in reply if not name.startswith("turn_")},
        **{f"turn_{turn}": TURN for turn in range(1, 3 if "turn_2" not in reply else 2)},
    },
}
"""Replies of a judge that do not score the turns it was asked about, each once."""


@pytest.mark.parametrize("lasts", [False, True], ids=["once", "always"])
def test_a_reply_about_the_wrong_turns_scores_none(tmp_path: Path, lasts: bool) -> None:
    rows = [chat(number, turns=1 + number % 2) for number in range(16)]
    first: dict[int, str] = {}
    occurred: set[tuple[str, int]] = set()

    def answer(body: Body) -> Body | str:
        right, text = str(answer_by_hash(body)), json.dumps(body["messages"])
        number = next((n for n in range(len(rows)) if f"of chat {n} " in text), None)
        if number is None or not number // 2 < len(WRONG_TURNS):
            return right
        if not lasts and first.setdefault(number, text) != text:
            return right
        kind = list(WRONG_TURNS)[number // 2]
        occurred.add((kind, 1 + number % 2))
        return json.dumps(WRONG_TURNS[kind](json.loads(right)))

    data = write_rows(tmp_path / "chats.jsonl", rows)
    with live_server(answer=answer) as server:
        planned = recipe(
            server,
            data,
            judge={"mode": "json", "retries": 1, "text": "off"},
            adherence=False,
            fork=False,
        )
        result = run_recipe(planned, out=tmp_path / "run")
        asked = [
            body for body in server.requests if "turn_1" in json.dumps(body.get("response_format"))
        ]
    wrong = {f"chat-{number}" for number in range(2 * len(WRONG_TURNS))}
    assert occurred == {(kind, turns) for kind in WRONG_TURNS for turns in (1, 2)}
    assert len(asked) == len(rows) + len(wrong)
    assert result.manifest.stages["judge"].reasons == ({"bad_reply": len(wrong)} if lasts else {})
    for row in rows:
        judgment = read_judged(tmp_path / "run", row["id"]).judgment
        assert judgment is not None
        turns = [turn["turn"] for turn in judgment.get("per_turn", ())]
        assert turns == (
            [] if lasts and row["id"] in wrong else list(range(1, 1 + len(row["messages"]) // 2))
        )
