"""What a run keeps of role adherence: rows that other processes make alike, columns, and what is shown."""

from __future__ import annotations

import asyncio
import io
import json
import pickle
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from rich.console import Console

from curate.adherence.config import AdherenceConfig
from curate.api import load_dialogues
from curate.cli.closing import show_run
from curate.cli.show_dialogue import show_judged
from curate.cli.show_run import show_decay
from curate.engines.accounting import Accounting, Budget
from curate.engines.base import Capability
from curate.engines.cache import ReplyCache
from curate.engines.model_pool import ModelPool
from curate.engines.scripted import ScriptedEngine, write_recording
from curate.publishing.measured import first_sentence
from curate.recipe import Recipe, parse_recipe
from curate.records import AdherenceScore
from curate.run.pipeline import RunResult, run_recipe
from curate.run.read_back import read_judged, read_manifest
from curate.selection.expressions import check_condition
from curate.stages import WorkItem, bind_stages, make_row
from tests.adherence.test_parameters import CAPABILITIES, ROWS, by_api, calibration, judge

WITH_REASONS = {"output_mode": "continuous", "include_reason": True}


def make(folder: Path, adherence: dict[str, Any], **sections: Any) -> Recipe:
    """A recipe over the rows of the parameter tests, whose judge replays."""
    folder.mkdir(exist_ok=True)
    data = folder / "rows.jsonl"
    data.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    _, requests = by_api(adherence, data)
    recording = folder / "replies.jsonl"
    write_recording(recording, [(request, judge(request)) for request in requests])
    model = {
        "engine": "scripted",
        "replies": str(recording),
        "capabilities": sorted(CAPABILITIES),
    }
    return parse_recipe(
        {
            "name": "run",
            "source": {"path": str(data)},
            "models": {"judge": model},
            "judge": False,
            "adherence": adherence,
            "export": False,
            "max_unscored": 1.0,
        }
        | sections
    )


def shown(run: Path, dialogue: str = "long") -> str:
    console = Console(width=120, file=io.StringIO(), record=True)
    show_judged(console, read_judged(run, dialogue))
    decay = read_manifest(run).adherence
    if decay is not None:
        show_decay(console, decay)
    return console.export_text()


def test_reasons_are_columns_and_conditions_and_are_shown(tmp_path: Path) -> None:
    where = {"in_scope": "n_scope_violations = 0", "steady": "n_turns_in_role >= 2"}
    run_recipe(make(tmp_path, WITH_REASONS, select={"where": where}), out=tmp_path / "run")
    (row, other) = pl.read_parquet(tmp_path / "run/scores.parquet").iter_rows(named=True)
    assert (row["n_scope_violations"], row["n_tone_violations"]) == (1, 0)
    assert (row["n_turns_in_role"], row["n_off_role_turns"]) == (2, 1)
    assert row["adherence_slope"] == pytest.approx(-0.4)
    assert row["adherence_slope_low"] < -0.4 < row["adherence_slope_high"]
    assert row["adherence_trend_p"] == pytest.approx(1 / 3)
    assert row["n_adherence_imputed"] == 0
    assert other["adherence_slope"] is other["n_scope_violations"] is None
    decisions = (tmp_path / "run/select/decisions.jsonl").read_text().splitlines()
    assert json.loads(decisions[0])["reasons"] == ["in_scope"]
    text = shown(tmp_path / "run")
    assert "scope: Turn 3 says so. (role: “Never give medical advice.”)" in text
    assert "Turn 1 says so." in text
    assert "in role for 2 turns" in text
    assert "half of the dialogues have broken their role by turn 3" in text


def test_a_conversations_reason_is_shown_and_its_row_has_no_turns(tmp_path: Path) -> None:
    config = {
        "output_mode": "binary",
        "evaluation_granularity": "conversation",
        "include_reason": True,
    }
    result = run_recipe(make(tmp_path, config), out=tmp_path / "run")
    assert result.manifest.adherence is None
    (row, _) = pl.read_parquet(tmp_path / "run/scores.parquet").iter_rows(named=True)
    assert (row["adherence"], row["adherent"], row["n_scope_violations"]) == (0, False, 1)
    assert row["n_off_role_turns"] is row["n_turns_in_role"] is row["min_adherence"] is None
    assert "(role: “Never give medical advice.”)" in shown(tmp_path / "run")


def test_a_run_without_reasons_has_none_to_count(tmp_path: Path) -> None:
    run_recipe(make(tmp_path, {}), out=tmp_path / "run")
    table = pl.read_parquet(tmp_path / "run/scores.parquet")
    assert table["n_scope_violations"].to_list() == [None, None]


def test_naming_the_mode_that_auto_comes_to_makes_no_row_anew(tmp_path: Path) -> None:
    named = make(tmp_path, {"output_mode": "binary"})
    before = run_recipe(named, out=tmp_path / "run").manifest
    again = run_recipe(without(named, Capability.TOP_LOGPROBS), out=tmp_path / "run").manifest
    assert before.requests > 0
    assert again.requests == 0
    assert again.fingerprints == before.fingerprints


def without(recipe: Recipe, capability: Capability) -> Recipe:
    """The recipe where no mode is named and the judge cannot do something."""
    content = recipe.model_dump(mode="json", exclude_unset=True)
    model = content["models"]["judge"]
    model["capabilities"] = sorted(set(model["capabilities"]) - {capability})
    return parse_recipe(content | {"adherence": {}})


def test_a_threshold_that_nobody_fitted_is_said_until_one_is_applied(tmp_path: Path) -> None:
    recipe = make(tmp_path, {"output_mode": "auto"})
    plain = run_recipe(recipe, out=tmp_path / "run")
    manifest = plain.manifest
    assert manifest.recipe["adherence"]["output_mode"] == "auto"
    assert manifest.identities["adherence"].mode == "continuous"
    assert manifest.role_threshold.startswith(
        "Role adherence: turn_threshold 0.5 was never calibrated for this judge."
    )
    assert manifest.role_threshold in closing(plain)
    assert manifest.role_threshold in first_sentence(manifest, None)
    (tmp_path / "mine.json").write_text(
        json.dumps(calibration(identity=manifest.identities["adherence"]))
    )
    config = AdherenceConfig.model_validate({"calibration": str(tmp_path / "mine.json")})
    fitted = run_recipe(recipe.model_copy(update={"adherence": config}), out=tmp_path / "run")
    assert fitted.manifest.requests == 0
    said = "Role adherence goes by a threshold fitted to people's labels."
    assert fitted.manifest.role_threshold == said
    assert said in closing(fitted)
    assert "never calibrated" not in closing(fitted)


def closing(result: RunResult) -> str:
    console = Console(width=400, file=io.StringIO(), record=True)
    show_run(console, result, verbose=True)
    return console.export_text()


def test_asking_for_reasons_later_asks_for_nothing_else(tmp_path: Path) -> None:
    both = make(tmp_path, WITH_REASONS)
    plain = both.model_copy(
        update={"adherence": both.adherence.model_copy(update={"include_reason": False})}  # type: ignore[union-attr]
    )
    assert run_recipe(plain, out=tmp_path / "run").manifest.requests == 3
    after = run_recipe(both, out=tmp_path / "run").manifest
    assert after.requests == 3  # one reason a turn; the answers are kept replies
    assert after.stages["adherence"].requests == 6
    assert after.estimate is not None
    assert after.estimate.stages["adherence"].requests == 6
    resumed = run_recipe(both, out=tmp_path / "run").manifest
    assert (resumed.requests, resumed.stages["adherence"].reused) == (0, 2)
    assert resumed.adherence == after.adherence


def test_a_worker_elsewhere_makes_the_same_row(tmp_path: Path) -> None:
    """What a Ray actor does: the recipe comes pickled, its calibration within, and no file is read."""
    file = tmp_path / "calibration.json"
    file.write_text(json.dumps(calibration()))
    config = WITH_REASONS | {"calibration": str(file), "interval": "bayesian"}
    recipe = make(tmp_path / "here", config)
    dialogue = load_dialogues(tmp_path / "here/rows.jsonl").dialogues[0]
    expected = by_api(config, tmp_path / "here/rows.jsonl")[0]["long"]
    file.unlink()
    sent: Recipe = pickle.loads(pickle.dumps(recipe))
    engine = ScriptedEngine(judge, capabilities=CAPABILITIES)
    models = ModelPool(engine)
    cache = ReplyCache(tmp_path / "replies")

    async def work() -> Any:
        asks = models.asks(cache, Accounting(), Budget())
        stage = bind_stages(sent, models).adherence
        assert stage is not None
        return await make_row(stage, WorkItem(dialogue), asks)

    try:
        row = asyncio.run(work())
    finally:
        cache.close()
    assert isinstance(row, AdherenceScore)
    assert row == expected
    assert row.per_turn[0].raw_score is not None
    assert row.per_turn[2].reason is not None
    assert AdherenceScore.model_validate_json(row.model_dump_json()) == row


@pytest.mark.parametrize(
    "condition",
    [
        "adherence_slope >= 0 OR adherence_trend_p > 0.05",
        "n_tone_violations = 0",
        "n_turns_in_role >= 3",
        "n_adherence_imputed = 0",
    ],
)
def test_the_columns_may_be_filtered_on(condition: str, tmp_path: Path) -> None:
    check_condition(condition, "select.where.x")
    recipe = make(tmp_path, {}, select={"where": {"x": condition}})
    assert recipe.filters_on_adherence


@pytest.mark.parametrize("condition", ["n_turns > 1", "source = 'attention'", "mean_score >= 3"])
def test_a_condition_on_other_columns_is_none_on_adherence(condition: str, tmp_path: Path) -> None:
    recipe = make(tmp_path, {}, select={"where": {"x": condition}})
    assert not recipe.filters_on_adherence
