"""What the records of a run say about its judge."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from curate.judging.config import RubricConfig
from curate.judging.rubric import judge_dialogue
from curate.records import JudgeChecks, Judgment, Unscored
from curate.trust.judge_checks import JudgeTally, checks_in_words
from tests.judging.judge import IDENTITY, ScriptedJudge, dialogue_of

JSON = RubricConfig(mode="json", text="off")


async def record_of(
    turns: int, scores: Mapping[tuple[int | None, str], Any], config: RubricConfig = JSON
) -> dict[str, Any]:
    """A stored record of a scripted judge's scores."""
    judge = ScriptedJudge(scores=dict(scores))
    row = await judge_dialogue(dialogue_of(turns), judge, config, IDENTITY)
    assert isinstance(row, Judgment)
    record: dict[str, Any] = json.loads(row.model_dump_json())
    return record


def counted(*records: Mapping[str, Any]) -> JudgeChecks:
    tally = JudgeTally()
    for record in records:
        tally.add(record)
    report = tally.report()
    assert report is not None
    return report


async def test_mismatches_are_counted_of_the_dialogues_the_judge_was_asked_about() -> None:
    agrees = await record_of(2, {})
    differs = await record_of(2, {(2, "helpfulness"): 3, (None, "verdict"): "poor"})
    silent = agrees | {"verdict_mismatch": None, "weakest_mismatch": None}
    unscored = Unscored(dialogue_id="d", content_hash="h", stage="judge", reason="bad_reply")  # type: ignore[arg-type]
    report = counted(agrees, differs, silent, json.loads(unscored.model_dump_json()))
    assert (report.verdict_mismatch.count, report.verdict_mismatch.of) == (1, 2)
    assert (report.weakest_mismatch.count, report.weakest_mismatch.of) == (1, 2)
    assert report.window_seams == ()
    assert any("verdict" in line and "1 of 2 (50%)" in line for line in checks_in_words(report))


async def test_seams_are_the_mean_over_turns_scored_twice_by_window_size() -> None:
    steady = await record_of(13, {})  # windows of 5, 5 and 5 turns: two turns scored twice
    longer = await record_of(17, {})  # four of them: three turns
    wider = await record_of(14, {})  # three windows, the largest of 6
    torn = longer | {"overlap_disagreement": 1.5}
    report = counted(steady, torn, wider, await record_of(2, {}))
    five, six = report.window_seams
    assert (five.window_turns, five.dialogues, five.turns) == (5, 2, 2 + 3)
    assert five.difference == pytest.approx(1.5 * 3 / 5)
    assert (six.window_turns, six.difference) == (6, 0)
    assert any("windows of 5 turns" in line and "0.90" in line for line in checks_in_words(report))


def test_nothing_scored_gives_no_report() -> None:
    assert JudgeTally().report() is None
