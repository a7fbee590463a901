"""Whole runs on a server that fails by a seeded plan: nothing lost, nothing asked twice, every byte as on a quiet day."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from curate.engines.client import Retrying
from curate.recipe import Recipe
from curate.records import SCORING
from curate.run.pipeline import run_recipe
from curate.run.verify import verify_run
from tests.faults import FAULTS, HARMLESS, OF_LABELS, OF_WORDS, Plan
from tests.live import live_server
from tests.run.test_determinism import OF_THE_PROCESS
from tests.run.test_pipeline import chat, recipe, write_rows
from tests.run.test_verify import contents, every_stage
from tests.servers import CountingServer

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
    assert manifest.rows_in == manifest.rows_used + manifest.quarantined
    for stage in filter(manifest.stages.__contains__, SCORING):
        assert manifest.stages[stage].rows == manifest.dialogues
        assert manifest.stages[stage].reasons == undisturbed.stages[stage].reasons
    calm, faulty = contents(tmp_path / "calm"), contents(tmp_path / "faulty")
    different = [name for name in calm if calm[name] != faulty.get(name)]
    assert different == [name for name in different if name.endswith(OF_THE_PROCESS)]
    assert verify_run(tmp_path / "faulty").differences == ()
