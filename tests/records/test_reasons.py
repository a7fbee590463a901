"""Reason codes: the page lists every one, and what the data lacks is outside the unscored share."""

from __future__ import annotations

from pathlib import Path

from curate.records import UnscoredReason
from curate.run.runlog import NOT_COUNTED

RUNNING = Path(__file__).parents[2] / "docs" / "running.md"


def test_the_docs_list_every_reason_for_no_score() -> None:
    text = RUNNING.read_text()
    for reason in UnscoredReason:
        assert f"| `{reason}` | {reason.place} | {reason.meaning} |" in text


def test_what_the_data_lacks_is_outside_the_unscored_share() -> None:
    assert {"missing_role", "no_reference", "nothing_applies", "skipped"} < NOT_COUNTED
    assert not NOT_COUNTED & {"bad_reply", "engine_error", "internal_error", "no_assistant_turn"}
