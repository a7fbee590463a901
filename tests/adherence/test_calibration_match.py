"""A calibration holds for one judge asked in one way, in a recipe and by the API; else it is ignored loudly."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from curate.adherence.config import AdherenceConfig, describe_threshold
from curate.api import load_dialogues, score_adherence
from curate.engines.base import Capability
from curate.engines.scripted import ScriptedEngine, write_recording
from curate.errors import UsageError
from curate.recipe import load_recipe
from curate.records import AdherenceScore, JudgeCalibration, JudgeIdentity
from curate.run.pipeline import run_recipe
from curate.run.read_back import read_judged
from curate.stages import adherence_stage
from tests.adherence.test_parameters import CAPABILITIES, CONTINUOUS, ROWS, calibration, judge

MAP = [0.41, 0.29, 0.09]
"""Of 0.9, 0.6 and 0.1, on the line from 0.05 to 0.45."""


@pytest.fixture
def data(tmp_path: Path) -> Path:
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in ROWS[:1]))
    return path


def scores(config: dict[str, Any], data: Path, **engine: Any) -> AdherenceScore:
    judged = ScriptedEngine(judge, capabilities=CAPABILITIES, **engine)
    (found,) = score_adherence(
        load_dialogues(data).dialogues, judged, AdherenceConfig.model_validate(config)
    )
    assert isinstance(found, AdherenceScore)
    return found


def test_scores_become_probabilities_and_the_fitted_threshold_decides(data: Path) -> None:
    found = scores(CONTINUOUS | {"calibration": calibration()}, data)
    assert [t.score for t in found.per_turn] == pytest.approx(MAP)
    assert [t.raw_score for t in found.per_turn] == pytest.approx([0.9, 0.6, 0.1])
    assert [t.adherent for t in found.per_turn] == [True, False, False]  # 0.7, of the raw score
    assert found.session_score == pytest.approx(sum(MAP) / 3)
    assert found.turns_in_role == 1
    assert "calibration" in found.identity.sampling
    plain = scores(CONTINUOUS, data)
    assert found.identity.uncalibrated() == plain.identity != found.identity


def test_a_raw_score_at_the_fitted_threshold_is_adherent(data: Path) -> None:
    raw = [turn.score for turn in scores(CONTINUOUS, data).per_turn]
    at = scores(CONTINUOUS | {"calibration": calibration(threshold=raw[1])}, data)
    assert [turn.adherent for turn in at.per_turn] == [True, True, False]


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"definition": "restrictive"}, "definition"),
        ({"scoring_method": "cosine"}, "scoring_method"),
        ({"evaluation_granularity": "conversation"}, "evaluation_granularity"),
    ],
)
def test_another_way_of_asking_is_another_judge(
    change: dict[str, Any], named: str, data: Path
) -> None:
    config = CONTINUOUS | {"calibration": calibration(**change)}
    with pytest.warns(UserWarning, match=f"IGNORED.*{named}"):
        found = scores(config, data)
    assert [t.score for t in found.per_turn] == pytest.approx([0.9, 0.6, 0.1])
    assert found.per_turn[0].raw_score is None
    assert found.identity == scores(CONTINUOUS, data).identity


@pytest.mark.parametrize(
    ("config", "told"),
    [
        (CONTINUOUS, "Role adherence: turn_threshold 0.5 was never calibrated for this judge. Ranks (adherence) say more than yes or no; `curate calibrate` fits a threshold to people's labels."),
        (CONTINUOUS | {"scoring_method": "cosine"}, "Role adherence: turn_threshold 0.5 was never calibrated for this method. Ranks (adherence) say more than yes or no; `curate calibrate` fits a threshold to people's labels."),
        ({"output_mode": "binary"}, "Role adherence is the judge's own yes or no, never calibrated; `curate calibrate` wants scores of output_mode continuous."),
        (CONTINUOUS | {"calibration": calibration()}, "Role adherence goes by a threshold fitted to people's labels."),
    ],
)  # fmt: skip
def test_whether_the_threshold_was_fitted_is_one_sentence(
    config: dict[str, Any], told: str
) -> None:
    identity = JudgeIdentity(engine="scripted", model="m", mode="continuous")
    if "calibration" in config:
        identity = identity.calibrated("line x")
    assert describe_threshold(AdherenceConfig.model_validate(config), identity) == told
    if told.endswith("never calibrated for this judge."):
        fell_back = identity.model_copy(update={"mode": "binary"})
        assert "own yes or no" in describe_threshold(AdherenceConfig(), fell_back)


def test_another_model_an_answer_prefix_and_the_fall_back_to_binary_do_not_fit(data: Path) -> None:
    config = CONTINUOUS | {"calibration": calibration()}
    with pytest.warns(UserWarning, match="IGNORED.*model: scripted, here other"):
        scores(config, data, model="other")
    with pytest.warns(UserWarning, match="IGNORED.*answer_prefix: by default, here Answer:"):
        scores(config | {"answer_prefix": "Answer:"}, data)
    step = adherence_stage(
        AdherenceConfig.model_validate(config), ScriptedEngine([], capabilities={Capability.SEED})
    )
    assert step.warning is not None
    assert "falls back" in step.warning
    assert "IGNORED" in step.warning


def test_a_jury_has_a_calibration_of_its_own(data: Path) -> None:
    dialogues = load_dialogues(data).dialogues
    judges = [ScriptedEngine(judge, capabilities=CAPABILITIES, model=name) for name in ("a", "b")]

    def together(**config: Any) -> AdherenceScore:
        (row,) = score_adherence(dialogues, judges, AdherenceConfig.model_validate(config))
        assert isinstance(row, AdherenceScore)
        return row

    plain = together(**CONTINUOUS)
    assert [one.scores for one in plain.opinions] == [plain.opinions[0].scores] * 2
    fitted = together(**CONTINUOUS, calibration=calibration(identity=plain.identity))
    assert [t.score for t in fitted.per_turn] == pytest.approx(MAP)
    assert [t.raw_score for t in fitted.per_turn] == pytest.approx([0.9, 0.6, 0.1])
    assert [t.adherent for t in fitted.per_turn] == [True, False, False]
    assert fitted.identity.uncalibrated() == plain.identity
    with pytest.warns(UserWarning, match="IGNORED"):
        assert together(**CONTINUOUS, calibration=calibration()).identity == plain.identity


def test_a_recipe_names_the_file_beside_it(data: Path, tmp_path: Path) -> None:
    config = AdherenceConfig.model_validate(CONTINUOUS)
    asked = ScriptedEngine(judge, capabilities=CAPABILITIES)
    score_adherence(load_dialogues(data).dialogues, asked, config)
    recording = tmp_path / "replies.jsonl"
    write_recording(recording, [(request, judge(request)) for request in asked.requests])
    identity = adherence_stage(
        config, ScriptedEngine(recording, capabilities=CAPABILITIES)
    ).identity
    (tmp_path / "mine.json").write_text(json.dumps(calibration(identity=identity)))
    (tmp_path / "recipe.yaml").write_text(
        json.dumps(
            {
                "name": "calibrated",
                "source": {"path": str(data)},
                "models": {
                    "judge": {
                        "engine": "scripted",
                        "replies": str(recording),
                        "capabilities": sorted(CAPABILITIES),
                    }
                },
                "judge": False,
                "adherence": CONTINUOUS | {"calibration": "mine.json"},
                "select": False,
                "export": False,
            }
        )
    )
    recipe = load_recipe(tmp_path / "recipe.yaml")
    result = run_recipe(recipe, out=tmp_path / "run")
    assert not any("IGNORED" in text for text in result.manifest.warnings)
    record = read_judged(tmp_path / "run", "long").adherence
    assert record is not None
    assert [turn["score"] for turn in record["per_turn"]] == pytest.approx(MAP)
    # the file's content is part of the run, so another content makes the rows anew
    assert result.manifest.recipe["adherence"]["calibration"]["threshold"] == 0.7
    (tmp_path / "mine.json").write_text(json.dumps(calibration(identity=identity, threshold=0.2)))
    again = run_recipe(load_recipe(tmp_path / "recipe.yaml"), out=tmp_path / "run")
    assert again.manifest.stages["adherence"].reused == 0
    assert again.manifest.stages["adherence"].requests_sent == 0
    (tmp_path / "mine.json").write_text(json.dumps(calibration()))
    ignored = run_recipe(load_recipe(tmp_path / "recipe.yaml"), out=tmp_path / "run")
    assert any("IGNORED" in text for text in ignored.manifest.warnings)


@pytest.mark.parametrize("content", [None, "no json", '{"method": "platt"}'])
def test_a_file_that_is_no_calibration_is_refused_by_name(
    content: str | None, tmp_path: Path
) -> None:
    path = tmp_path / "c.json"
    if content is not None:
        path.write_text(content)
    with pytest.raises(UsageError, match=r"c\.json"):
        AdherenceConfig(calibration=path)  # type: ignore[arg-type]


def test_a_calibration_without_its_curve_is_refused() -> None:
    for broken in ({"method": "platt"}, {"knots": []}, {"knots": [[0.5, 0], [0.5, 1]]}):
        with pytest.raises(ValueError, match="platt needs slope and intercept"):
            JudgeCalibration.model_validate(calibration() | broken)


def test_reference_methods_are_calibrated_alike(data: Path) -> None:
    dialogues = load_dialogues(data).dialogues
    plain = AdherenceConfig(scoring_method="rouge")
    (raw,) = score_adherence(dialogues, config=plain)
    assert isinstance(raw, AdherenceScore)
    fitted = calibration(identity=raw.identity, scoring_method="rouge")
    config = AdherenceConfig.model_validate({"scoring_method": "rouge", "calibration": fitted})
    (found,) = score_adherence(dialogues, config=config)
    assert isinstance(found, AdherenceScore)
    assert [t.raw_score for t in found.per_turn] == [t.score for t in raw.per_turn]
    assert found.per_turn[0].score == pytest.approx(0.45)
    other = AdherenceConfig.model_validate({"scoring_method": "bleu", "calibration": fitted})
    with pytest.warns(UserWarning, match="IGNORED"):
        score_adherence(dialogues, config=other)
