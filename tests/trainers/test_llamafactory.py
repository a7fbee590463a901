"""LLaMA-Factory's own loaders: planted rows become what `check` says, and exports of real data load whole."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest

from tests.export.asking import agrees, asked, exports, stages_loaded_whole
from tests.export.planted import (
    LLAMAFACTORY_DPO,
    LLAMAFACTORY_DPO_PLANTED,
    LLAMAFACTORY_INFO,
    LLAMAFACTORY_SFT,
    LLAMAFACTORY_SFT_INFO,
    LLAMAFACTORY_SFT_PLANTED,
    LONG,
    Planted,
    said,
)

pytest.importorskip("llamafactory", reason="runs in a venv of its own: make test-trainers")

CASES = [(LLAMAFACTORY_DPO, LLAMAFACTORY_INFO, p) for p in LLAMAFACTORY_DPO_PLANTED] + [
    (LLAMAFACTORY_SFT, LLAMAFACTORY_SFT_INFO, p) for p in LLAMAFACTORY_SFT_PLANTED
]


@pytest.mark.parametrize(("good", "info", "planted"), CASES, ids=[p.name for _, _, p in CASES])
def test_a_planted_row(
    good: dict[str, Any], info: dict[str, Any], planted: Planted, plain: str, tmp_path: Path
) -> None:
    report = asked(
        tmp_path, planted.rows(good), "llamafactory", plain, limit=planted.limit, info=info
    )
    agrees(report, planted)


@pytest.mark.parametrize(
    ("block", "without", "code"),
    [
        ("columns", "messages", "partial_columns"),
        ("columns", "chosen", "partial_columns"),
        ("tags", "role_tag", "partial_tags"),
        ("tags", "content_tag", "partial_tags"),
    ],
)
def test_a_partial_description_stops_it(
    block: str, without: str, code: str, plain: str, tmp_path: Path
) -> None:
    info = copy.deepcopy(LLAMAFACTORY_INFO)
    del info[block][without]
    report = asked(tmp_path, [LLAMAFACTORY_DPO] * 3, "llamafactory", plain, info=info)
    assert ("stops", code) in {(finding.effect, finding.code) for finding in report.findings}
    assert report.replay is not None
    assert report.replay.error is not None


def test_a_missing_tag_drops_the_rows_that_need_it(plain: str, tmp_path: Path) -> None:
    info = copy.deepcopy(LLAMAFACTORY_INFO)
    del info["tags"]["user_tag"]
    report = asked(tmp_path, [LLAMAFACTORY_DPO] * 3, "llamafactory", plain, info=info)
    assert report.effects["dropped"] == 3
    assert report.replay is not None
    assert report.replay.rows_kept == 0 or report.replay.error is not None


def test_an_unnamed_column_is_left_out(plain: str, tmp_path: Path) -> None:
    info = copy.deepcopy(LLAMAFACTORY_INFO)
    del info["columns"]["system"]
    report = asked(tmp_path, [LLAMAFACTORY_DPO] * 3, "llamafactory", plain, info=info)
    assert report.codes["partial_columns"] == 3
    assert report.effects["corrupted"] == 3
    assert report.replay is not None
    assert report.replay.lengths is not None
    whole = asked(tmp_path, [LLAMAFACTORY_DPO] * 3, "llamafactory", plain, info=LLAMAFACTORY_INFO)
    assert whole.is_clean
    assert whole.replay is not None
    assert whole.replay.lengths is not None
    assert whole.replay.lengths[0] > report.replay.lengths[0]


def test_an_unlisted_file_is_not_found(plain: str, tmp_path: Path) -> None:
    report = asked(tmp_path, [LLAMAFACTORY_DPO], "llamafactory", plain)
    assert report.codes["no_dataset_info"] == 1
    assert report.replay is not None
    assert report.replay.error is not None


def test_exports_load_whole(shared_data: Path, folder: Path, with_tools: str) -> None:
    seen = {
        (source, stage)
        for source, export in exports(shared_data, folder, ["llamafactory"]).items()
        for stage in stages_loaded_whole(export / "llamafactory", "llamafactory", with_tools)
    }
    assert seen >= {("oasst", "dpo"), ("hh_rlhf", "dpo"), ("tau_bench", "sft")}


def test_what_is_cut_is_the_end_of_the_prompt(plain: str, tmp_path: Path) -> None:
    """What `prompt_too_long` says: the question is at the end of the prompt, and gone."""
    question = "And where is parcel 82?"
    planted = Planted(
        "long",
        {"conversations": [said("human", LONG + question)]},
        "prompt_too_long",
        "truncated",
        limit=400,
    )
    report = asked(
        tmp_path,
        planted.rows(LLAMAFACTORY_DPO),
        "llamafactory",
        plain,
        limit=400,
        info=LLAMAFACTORY_INFO,
    )
    agrees(report, planted)
    assert report.replay is not None
    assert report.replay.lengths is not None
    assert max(report.replay.lengths) == 400
