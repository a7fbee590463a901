"""Recipes whose adherence compares with references: no judge is named, and there are no model calls."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from curate.adherence.config import AdherenceConfig
from curate.adherence.reference.scorer import ReferenceScorer
from curate.api import load_dialogues, score_adherence
from curate.dialogue import Dialogue, Message
from curate.errors import UsageError
from curate.recipe import Recipe, parse_recipe
from curate.records import AdherenceScore, Unscored
from curate.run.pipeline import run_recipe
from curate.run.plan import make_plan
from curate.run.runlog import NOT_COUNTED

ROWS = [
    {"role": "A bank's agent.", "query": "Block my card.", "assistant": said, "ground_truth_assistant": right}
    for said, right in (
        ("I have blocked the card.", "I have blocked the card."),
        ("Ask somebody else.", "I have blocked the card."),
        ("A reply without a reference.", None),
    )
]  # fmt: skip


def recipe(tmp_path: Path, method: str, **sections: Any) -> Recipe:
    data = tmp_path / "rows.jsonl"
    rows = [{key: value for key, value in row.items() if value is not None} for row in ROWS]
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return parse_recipe(
        {
            "name": "compared",
            "source": {"path": str(data), "shape": "gaussia"},
            "judge": False,
            "adherence": {"scoring_method": method},
            "max_unscored": 1.0,
        }
        | sections
    )


def test_a_recipe_that_compares_needs_no_judge_and_selects_by_its_scores(tmp_path: Path) -> None:
    result = run_recipe(recipe(tmp_path, "rouge"), out=tmp_path / "run")
    table = pl.read_parquet(tmp_path / "run" / "scores.parquet")
    assert table["adherence"].to_list() == [1.0, 0.0, None]
    assert table["adherence_unscored"].to_list() == [None, None, "no_reference"]
    manifest = result.manifest
    assert (manifest.status, manifest.requests, manifest.selected) == ("done", 0, 1)
    assert manifest.identities["adherence"].mode == "rouge"


def test_a_second_run_reuses_the_rows_and_another_parameter_makes_new_ones(tmp_path: Path) -> None:
    def run(**reference: Any) -> Any:
        adherence = {"scoring_method": "kl", "reference": reference}
        return run_recipe(
            recipe(tmp_path, "kl", adherence=adherence), out=tmp_path / "run"
        ).manifest.stages["adherence"]

    assert run().reused == 0
    assert run().reused == 3
    assert run(beta=2).reused == 0


@pytest.mark.parametrize("method", ["rouge", "bleu"])
def test_filtering_on_a_method_for_evaluation_only_warns(tmp_path: Path, method: str) -> None:
    warnings = run_recipe(recipe(tmp_path, method), out=tmp_path / "run").manifest.warnings
    assert any(f"{method} is for evaluation only" in text for text in warnings)


def test_using_one_without_filtering_on_it_does_not_warn(tmp_path: Path) -> None:
    for select in (False, {"where": {"some": "n_turns > 0"}}):
        result = run_recipe(recipe(tmp_path, "rouge", select=select), out=tmp_path / "run")
        assert not any("evaluation only" in text for text in result.manifest.warnings)


def test_kl_may_filter(tmp_path: Path) -> None:
    result = run_recipe(recipe(tmp_path, "kl"), out=tmp_path / "run")
    assert not any("evaluation only" in text for text in result.manifest.warnings)


def test_a_dry_run_needs_no_judge_either(tmp_path: Path) -> None:
    plan = asyncio.run(make_plan(recipe(tmp_path, "rouge"), out=tmp_path / "run"))
    assert plan.estimate is None


def test_the_python_api_compares_without_a_model(tmp_path: Path) -> None:
    recipe(tmp_path, "rouge")
    dialogues = load_dialogues(tmp_path / "rows.jsonl").dialogues
    scores = score_adherence(dialogues, config=AdherenceConfig(scoring_method="rouge"))
    assert isinstance(scores[0], AdherenceScore)
    assert scores[0].session_score == 1
    with pytest.raises(UsageError, match="needs a judge"):
        score_adherence(dialogues)


def test_data_without_references_is_no_failure_and_is_said(tmp_path: Path) -> None:
    """One of three dialogues lacks a reference: that does not count against `max_unscored`."""
    strict = recipe(tmp_path, "rouge", max_unscored=0.0)
    result = run_recipe(strict, out=tmp_path / "run")
    manifest = result.manifest
    assert (manifest.status, result.exit_code) == ("done", 0)
    assert manifest.unscored_shares["adherence"] == 0
    assert (manifest.unscored, manifest.stages["adherence"].reasons) == (1, {"no_reference": 1})
    assert any("1 dialogue with turns without a reference" in text for text in manifest.warnings)
    assert manifest.selected == 1  # and the dialogue still passes no filter


def test_reasons_of_several_kinds_are_the_datas_too() -> None:
    dialogue = Dialogue(
        id="d",
        role_definition="A bank's agent.",
        references=(("yes",), ()),
        messages=(
            Message(role="user", content="a"),
            Message(role="assistant", content=""),
            Message(role="user", content="b"),
            Message(role="assistant", content="no"),
        ),
    )
    (score,) = score_adherence([dialogue], config=AdherenceConfig(scoring_method="rouge"))
    assert isinstance(score, Unscored)
    assert score.reason == "no_text"
    assert "2 (no_reference)" in score.detail
    assert {"no_text", "no_reference", "references_mismatch", "too_few_references"} <= NOT_COUNTED


def test_a_run_tells_how_adherence_changes_with_the_turns(tmp_path: Path) -> None:
    manifest = run_recipe(recipe(tmp_path, "rouge"), out=tmp_path / "run").manifest
    assert manifest.adherence is not None
    (first,) = manifest.adherence.positions
    assert (manifest.adherence.dialogues, first.scored, first.mean) == (2, 2, 0.5)
    assert (first.at_risk, first.violations, first.survival) == (2, 1, 0.5)
    assert manifest.adherence.median_turns_in_role == 1
    # a resumed run tells the same of the rows it finds
    again = run_recipe(recipe(tmp_path, "rouge"), out=tmp_path / "run").manifest
    assert again.stages["adherence"].reused == 3
    assert again.adherence == manifest.adherence


def test_a_bug_in_comparing_costs_one_dialogue(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sound = ReferenceScorer.score

    def broken(self: ReferenceScorer, dialogue: Dialogue) -> AdherenceScore | Unscored:
        if "blocked" in dialogue.messages[-1].content:
            raise ValueError("a bug")
        return sound(self, dialogue)

    with monkeypatch.context() as patch:
        patch.setattr(ReferenceScorer, "score", broken)
        run_recipe(recipe(tmp_path, "rouge"), out=tmp_path / "run")
    table = pl.read_parquet(tmp_path / "run/scores.parquet")
    assert table["adherence_unscored"].to_list() == ["internal_error", None, "no_reference"]
    run_recipe(recipe(tmp_path, "rouge"), out=tmp_path / "run")
    assert pl.read_parquet(tmp_path / "run/scores.parquet")["adherence"].to_list() == [
        1.0,
        0.0,
        None,
    ]
