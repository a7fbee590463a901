"""A judge's score of a labelled item, or why there is none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from curate.errors import UsageError
from curate.recipe import parse_recipe
from curate.records import Judgment
from curate.run.labels.run_scores import (
    JudgedItem,
    adherence_of,
    item_reading,
    judgments_of,
    labelled_readings,
    metrics_of,
)
from curate.run.pipeline import run_recipe
from curate.trust.gold import GoldItem, Label
from curate.trust.label_rows import Unused
from curate.trust.levels import LabelledReading
from tests.run.test_pipeline import chat, write_rows


def judgment(**coherence: Any) -> Judgment:
    conversation = {
        "coherence": {"score": 4} | coherence,
        "task_completion": {"score": "n/a"},
        "repair_handling": {"score": 2, "digit": "n/a"},
    }
    turn = {
        "turn": 1,
        "scores": {"context_use": 1, "helpfulness": 2, "safety": 3},
        "digits": {"context_use": 3, "helpfulness": 4, "safety": 5},
    }
    return Judgment.model_validate(
        {
            "dialogue_id": "d", "content_hash": "h", "identity": {"engine": "e", "model": "m"},
            "per_turn": [turn], "conversation_level": conversation, "verdict": "good", "weakest_turn": None,
        }
    )  # fmt: skip


READING = {"mean": 3.25, "coverage": 1.0, "probabilities": {"3": 0.6, "4": 0.2, "n/a": 0.2}}


@pytest.mark.parametrize(
    ("turn", "name", "read"),
    [
        (None, "coherence", JudgedItem(4, 3, 3.25, 0.2)),
        (None, "task_completion", JudgedItem(None, None, None, 1.0)),
        (None, "repair_handling", JudgedItem(2, None, None, 1.0)),
        (1, "helpfulness", JudgedItem(2, 4, 4.0, 0.0)),
        (2, "helpfulness", "the judge has no score of that turn"),
        (None, "metric_tool_use", "the metrics of the dialogue could not be scored"),
    ],
)
def test_an_item_has_its_level_its_digit_its_expectation_and_how_likely_it_is_none(
    turn: int | None, name: str, read: JudgedItem | str
) -> None:
    judgments = {"h": judgment(digit=3, reading=READING)}
    assert item_reading(GoldItem("h", turn, name), judgments, {}) == read


def test_a_reading_that_never_said_none_is_certain_of_a_level() -> None:
    judgments = {"h": judgment(reading={"mean": 4.0, "coverage": 1.0, "probabilities": {"4": 1.0}})}
    assert item_reading(GoldItem("h", None, "coherence"), judgments, {}) == JudgedItem(
        4, 4, 4.0, 0.0
    )


def test_scores_that_are_needed_and_that_a_run_does_not_have_are_asked_for(tmp_path: Path) -> None:
    data = write_rows(tmp_path / "chats.jsonl", [chat(1)])
    unjudged = {"name": "r", "source": {"path": str(data)}, "judge": False, "adherence": False}
    run_recipe(parse_recipe(unjudged), out=tmp_path / "run")
    run = tmp_path / "run"
    with pytest.raises(UsageError, match="the run has no judgments") as refused:
        judgments_of(run)
    assert (refused.value.got, refused.value.expected) == (run, "a run with a rubric judge")
    with pytest.raises(UsageError, match="the run has no adherence scores"):
        adherence_of(run, needed=True)
    assert (judgments_of(run, needed=False), adherence_of(run, needed=False), metrics_of(run)) == (
        {},
        {},
        {},
    )


def test_labels_of_what_has_no_score_are_counted_with_their_place() -> None:
    labels = {
        GoldItem("h", None, "coherence"): Label(5, (5,), "gold:1", 1),
        GoldItem("x", None, "coherence"): Label(5, (5, 5), "gold:2", 2),
    }
    unused = Unused()
    judgments = {"h": judgment(digit=3, reading=READING)}
    readings = list(labelled_readings(labels, judgments, {}, {"h": "g", "x": "g"}, unused))
    assert readings == [LabelledReading(3.25, 3, 0.2, 5, "g")]
    why = "the judge could not score the dialogue"
    assert (unused.counts, unused.first) == ({why: 2}, {why: "gold:2"})
