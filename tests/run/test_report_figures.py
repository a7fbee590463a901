"""The figures of the report's overview: the steps from rows in to rows out, and what a run cost."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from curate.records import Manifest, ReviewReport
from curate.run.report_figures import (
    _TITLES,
    UNSCORED_OF,
    _cost,
    _rank_correlation,
    _trust,
    funnel_steps,
)

UNSCORED = UNSCORED_OF["judge"]


def manifest(**fields: Any) -> Manifest:
    base = {"name": "r", "status": "done", "started": ""}
    return Manifest.model_validate(base | fields)


def step(name: str, unit: str, whole: int, passed: int, reasons: dict[str, int], column: Any = None) -> Any:  # fmt: skip
    return {
        "name": name, "unit": unit, "whole": whole, "passed": passed, "reasons": reasons, "column": column,
    }  # fmt: skip


def test_each_step_has_what_passed_it_and_why_the_rest_did_not() -> None:
    table = pl.DataFrame(
        {
            "judge_unscored": [None, "too_long", "too_long", None],
            "first_reason": [None, "judge_unscored", "judge_unscored", "top"],
        }
    )
    record = manifest(
        rows_in=9,
        rows_used=6,
        sources=[{"reasons": {"no_assistant": 2}}, {"reasons": {"no_assistant": 1}}],
        not_sampled=2,
        dialogues=4,
        selected=1,
        fingerprints={"judge": "f"},
        rejections={"unscored": 2, "top": 1},
        recipe={"select": {"top": 1}},
        funnels={
            "fork": [
                {"name": "begun", "unit": "turns", "entered": 3, "passed": 1, "dropped": {"identical": 2}},
                {"name": "empty", "unit": "turns", "entered": 0, "passed": 0},
            ],
            "natural": [{"name": "found", "unit": "pairs", "entered": 1, "passed": 1}],
        },
    )  # fmt: skip
    table = table.rename({"judge_unscored": UNSCORED})
    assert funnel_steps(record, table) == [
        step("rows read", "rows", 9, 6, {"no_assistant": 3}),
        step(
            "dialogues sampled",
            "dialogues",
            6,
            4,
            {"left out to keep to the sources' weights": 2},
        ),
        step("judged", "dialogues", 4, 2, {"too_long": 2}, UNSCORED),
        step("selected", "dialogues", 4, 1, {"unscored": 2, "top": 1}, "first_reason"),
        step("forks: begun", "turns", 3, 1, {"identical": 2}),
        step("natural pairs: found", "pairs", 1, 1, {}),
    ]
    (only,) = funnel_steps(manifest(rows_in=1, rows_used=1), pl.DataFrame())
    assert only == step("rows read", "rows", 1, 1, {})


@pytest.mark.parametrize(
    ("lengths", "levels", "expected"),
    [
        ([10, 20, 900], [2, 3, 5], 1.0),
        ([10, 10, 90, 90], [5, 4, 2, 1], -0.894427),
        ([10, 10, 90, 90], [5, 5, 2, 2], -1.0),
        ([10, 20, 90, 91], [5, 5, 2, 2], -0.894427),
        ([10, 10], [2, 3], None),
        ([10, 20], [3, 3], None),
        ([10], [3], None),
    ],
)
def test_a_rank_correlation_needs_two_values_of_each(
    lengths: list[int], levels: list[int], expected: float | None
) -> None:
    correlation = _rank_correlation(np.array(lengths), np.array(levels))
    assert correlation == (expected if expected is None else pytest.approx(expected, abs=1e-6))


def test_what_people_decided_and_what_levels_mean_stand_with_the_trust(tmp_path: Path) -> None:
    def last(**fields: Any) -> list[dict[str, Any]]:
        return [
            entry
            for entry in _trust(tmp_path, manifest(**fields))
            if entry["kind"] not in _TITLES.values()
        ]

    def entry(kind: str, sentence: str) -> dict[str, Any]:
        return {"kind": kind, "sentence": sentence, "figures": None}

    assert last() == [entry("review by people", "Nobody has reviewed the run (`curate review`).")]
    review = {"raters": 1, "accepted": 2, "rejected": 1, "changed": 1}
    assert last(review=review, levels="As people say.", role_threshold="At 0.7.") == [
        entry("review by people", ReviewReport.model_validate(review).described),
        entry("calibrated levels", "As people say."),
        entry("threshold of role adherence", "At 0.7."),
    ]


def test_a_cost_is_shown_with_whose_part_it_leaves_out() -> None:
    spent = {"requests": 5, "tokens_in": 4, "tokens_cached": 3, "tokens_out": 2, "cost": 0.5}
    record = manifest(**spent, unpriced=["policy"], seconds_by_stage={"judge": 1.5})
    assert _cost(record) == spent | {
        "rows": [],
        "notes": [],
        "stages": {},
        "seconds": {"judge": 1.5},
        "unpriced": ("policy",),
    }
