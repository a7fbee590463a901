"""ms-swift's own loaders: planted rows become what `check` says, and exports of real data load whole."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.export.asking import agrees, asked, exports, stages_loaded_whole
from tests.export.planted import (
    SWIFT_DPO,
    SWIFT_DPO_PLANTED,
    SWIFT_RESPONSE,
    SWIFT_RESPONSE_PLANTED,
    SWIFT_SFT,
    SWIFT_SFT_PLANTED,
    Planted,
)

pytest.importorskip("swift", reason="runs in a venv of its own: make test-trainers")

CASES = (
    [("dpo", SWIFT_DPO, planted) for planted in SWIFT_DPO_PLANTED]
    + [("dpo", SWIFT_RESPONSE, planted) for planted in SWIFT_RESPONSE_PLANTED]
    + [("sft", SWIFT_SFT, planted) for planted in SWIFT_SFT_PLANTED]
)


@pytest.mark.parametrize(
    ("stage", "good", "planted"), CASES, ids=[f"{stage}-{p.name}" for stage, _, p in CASES]
)
def test_a_planted_row(
    stage: str, good: dict[str, Any], planted: Planted, plain: str, tmp_path: Path
) -> None:
    report = asked(tmp_path, planted.rows(good), "swift", plain, stage=stage, limit=planted.limit)
    agrees(report, planted)


def test_exports_load_whole(shared_data: Path, folder: Path, with_tools: str) -> None:
    seen = {
        (source, stage)
        for source, export in exports(shared_data, folder, ["swift"]).items()
        for stage in stages_loaded_whole(export / "swift", "swift", with_tools)
    }
    assert seen >= {("oasst", "dpo"), ("hh_rlhf", "dpo"), ("tau_bench", "sft")}


def test_the_shortest_limit_that_keeps_a_row_is_near_what_is_counted(
    plain: str, tmp_path: Path
) -> None:
    """Its template is ChatML like the tokenizer's, so here the count is exact but for the line's end."""
    report = asked(tmp_path, [SWIFT_DPO, SWIFT_DPO], "swift", plain, stage="dpo")
    assert report.lengths is not None
    assert not report.lengths.exact
    assert report.replay is not None
    assert report.replay.lengths is not None
    assert abs(max(report.replay.lengths) - max(report.lengths.needed)) <= 2
