"""A calibration written where another lies keeps what that one holds of the same judge."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from curate.records import Calibration
from curate.run.labels.calibrate import merged_calibration
from curate.storage.whole_files import write_record

JUDGE = {"engine": "openai", "model": "one"}
OTHER = {"engine": "openai", "model": "two"}
GOOD = {
    "features": ["coherence"], "means": [3.8], "scales": [0.3], "weights": [2.0],
    "intercept": 0.0, "labels": 20, "good": 10, "brier": 0.2, "brier_without": 0.25,
}  # fmt: skip
WEIGHTS = {"fitted": {"m": 1.0}, "given": {"m": 1.0}, "labels": 9, "good": 3, "auc_fitted": 0.5, "auc_given": 0.5}  # fmt: skip


def cuts(first: float, lowest: int = 1) -> dict[str, Any]:
    points = [first, 3.0, 4.0, 5.0] if lowest else [first]
    return {"cuts": points, "method": "kappa", "lowest": lowest}


def curve(threshold: float) -> dict[str, Any]:
    return {
        "identity": JUDGE, "scoring_method": "llm_judge", "evaluation_granularity": "turn",
        "definition": "constructive", "method": "platt", "threshold": threshold, "slope": 1.0,
        "intercept": 0.0, "turns": 9, "adherent": 3, "groups": 9,
    }  # fmt: skip


def calibration(**fields: Any) -> Calibration:
    return Calibration.model_validate({"kind": "calibration"} | fields)


HELD = calibration(
    identity=JUDGE,
    levels={"coherence": cuts(1.0), "safety": cuts(1.0)},
    good=GOOD,
    adherence=curve(0.25),
    metrics={"identity": JUDGE, "levels": {"m": cuts(0.5, 0)}, "weights": WEIGHTS},
    labelled=["b", "c"],
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    write_record(tmp_path / "c.json", HELD)
    return tmp_path / "c.json"


def test_without_a_file_nothing_is_kept(tmp_path: Path) -> None:
    assert merged_calibration(HELD, tmp_path / "none.json") == (HELD, ())


def test_what_was_not_fitted_now_is_kept_and_named(path: Path) -> None:
    whole, kept = merged_calibration(calibration(labelled=["a", "b"]), path)
    assert whole == HELD.model_copy(update={"labelled": ("a", "b", "c")})
    assert kept == ("adherence", "coherence", "safety", "p_good", "metric_m", "weights of metrics")


def test_what_was_fitted_now_stands(path: Path) -> None:
    metrics = {
        "identity": JUDGE,
        "levels": {"n": cuts(0.25, 0)},
        "weights": WEIGHTS | {"labels": 99},
    }
    made = calibration(
        identity=JUDGE, levels={"coherence": cuts(2.0)}, good=GOOD | {"labels": 99},
        adherence=curve(0.5), metrics=metrics, labelled=["b", "c"],
    )  # fmt: skip
    whole, kept = merged_calibration(made, path)
    assert kept == ("safety", "metric_m")
    assert HELD.metrics is not None
    assert whole.metrics is not None
    assert {*whole.levels} == {"coherence", "safety"}
    assert whole.levels["coherence"] == made.levels["coherence"]
    assert (whole.good, whole.adherence) == (made.good, made.adherence)
    assert whole.metrics.levels.keys() == {"m", "n"}
    assert (whole.metrics.weights and whole.metrics.weights.labels) == 99


def test_of_another_judge_only_role_adherence_is_kept(path: Path) -> None:
    made = calibration(
        identity=OTHER,
        levels={"coherence": cuts(2.0)},
        metrics={"identity": OTHER, "levels": {"n": cuts(0.25, 0)}},
        labelled=["b", "c"],
    )
    whole, kept = merged_calibration(made, path)
    assert kept == ("adherence",)
    assert whole == made.model_copy(update={"adherence": HELD.adherence})
