"""What LLaMA-Factory's own loader does by `dataset_info.json`, and where it cuts."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from curate.trainer_check.findings import FileReport
from tests.trainer_check.asking import agrees, asked
from tests.trainer_check.planted import (
    LLAMAFACTORY_DPO,
    LLAMAFACTORY_INFO,
    LONG,
    Planted,
    Row,
    said,
)

Ask = Callable[..., FileReport]


@pytest.fixture
def ask(plain: str, python_of: Callable[[str], str], tmp_path: Path) -> Ask:
    """What `check` says of three good rows under a description, or of others."""

    def asking(info: Row | None, rows: list[Row] | None = None, **more: Any) -> FileReport:
        given = rows or [LLAMAFACTORY_DPO] * 3
        python = python_of("llamafactory")
        return asked(tmp_path, given, "llamafactory", plain, info=info, python=python, **more)

    return asking


def without(block: str, name: str) -> dict[str, Any]:
    info = copy.deepcopy(LLAMAFACTORY_INFO)
    del info[block][name]
    return info


@pytest.mark.parametrize(
    ("block", "name", "code"),
    [
        ("columns", "messages", "partial_columns"),
        ("columns", "chosen", "partial_columns"),
        ("tags", "role_tag", "partial_tags"),
        ("tags", "content_tag", "partial_tags"),
    ],
)
def test_a_partial_description_stops_it(block: str, name: str, code: str, ask: Ask) -> None:
    report = ask(without(block, name))
    assert ("stops", code) in {(finding.effect, finding.code) for finding in report.findings}
    assert report.replay is not None
    assert report.replay.error is not None


def test_a_missing_tag_drops_the_rows_that_need_it(ask: Ask) -> None:
    report = ask(without("tags", "user_tag"))
    assert report.effects["dropped"] == 3
    assert report.replay is not None
    assert report.replay.rows_kept == 0 or report.replay.error is not None


def test_an_unnamed_column_is_left_out(ask: Ask) -> None:
    report = ask(without("columns", "system"))
    assert report.codes["partial_columns"] == 3
    assert report.effects["corrupted"] == 3
    whole = ask(LLAMAFACTORY_INFO)
    assert whole.is_clean
    assert whole.replay is not None
    assert report.replay is not None
    assert whole.replay.lengths[0] > report.replay.lengths[0]


def test_an_unlisted_file_is_not_found(ask: Ask) -> None:
    report = ask(None)
    assert report.codes["no_dataset_info"] == 1
    assert report.replay is not None
    assert report.replay.error is not None


def test_what_is_cut_is_the_end_of_the_prompt(ask: Ask) -> None:
    """What `prompt_too_long` says: the question is at the end of the prompt, and gone."""
    row = {"conversations": [said("human", LONG + "And where is parcel 82?")]}
    planted = Planted("long", row, "prompt_too_long", "truncated", limit=400)
    report = ask(LLAMAFACTORY_INFO, planted.rows(LLAMAFACTORY_DPO), limit=400)
    agrees(report, planted)
    assert report.replay is not None
    assert max(report.replay.lengths.values()) == 400


def test_a_question_that_is_cut_is_found_though_the_prompt_would_fit(ask: Ask) -> None:
    """Prompt and answer are each shorter than the limit; which of them is cut only its own code says."""
    long = said("human", LONG[: len(LONG) // 2] + "And where is parcel 82?")
    row = {"conversations": [long], "chosen": said("gpt", LONG[: len(LONG) // 2])}
    report = ask(LLAMAFACTORY_INFO, [LLAMAFACTORY_DPO, LLAMAFACTORY_DPO | row], limit=600)
    assert {finding.effect for finding in report.findings if finding.row == 1} >= {"truncated"}
