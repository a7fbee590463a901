"""What axolotl's own loader does with templates and files that other trainers take otherwise."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from curate.trainer_check.check import check_path
from tests.trainer_check.asking import PLAIN, TRIMMING, agrees, asked, tokenizer_folder, write_rows
from tests.trainer_check.planted import AXOLOTL_DPO, Planted, message


@pytest.mark.parametrize(
    ("template", "effect"),
    [
        (TRIMMING, "stops"),
        (TRIMMING.replace("<|im_end|>\n", "<|im_end|>"), "corrupted"),
        (PLAIN, "noted"),
    ],
    ids=["ends with a line break", "ends with a word", "does not trim"],
)
def test_a_template_that_trims_loses_an_untrimmed_answer(
    template: str, effect: str, python_of: Callable[[str], str], tmp_path: Path
) -> None:
    """It looks for the answer as it stands in the file, and takes the last character where there is none."""
    tokenizer = tokenizer_folder(tmp_path / "tokenizer", template)
    code = {"stops": "replay_failed", "corrupted": "answer_changed", "noted": "untrimmed"}[effect]
    planted = Planted("untrimmed", {"chosen": message("assistant", " At nine.")}, code, effect)
    rows = planted.rows(AXOLOTL_DPO)
    report = asked(tmp_path, rows, "axolotl", tokenizer, python=python_of("axolotl"))
    agrees(report, planted)
    lost = [finding for finding in report.findings if finding.code == code]
    assert [finding.basis for finding in lost] == ["stated" if effect == "noted" else "replayed"]


def test_other_columns_do_no_harm(
    plain: str, python_of: Callable[[str], str], tmp_path: Path
) -> None:
    rows = [AXOLOTL_DPO | {"pair_id": "1", "margin": "1"}] * 3
    report = asked(tmp_path, rows, "axolotl", plain, python=python_of("axolotl"))
    assert report.is_clean
    assert report.replay is not None
    assert report.replay.rows_kept == 3


def test_rows_of_no_json_stop_it(
    plain: str, python_of: Callable[[str], str], tmp_path: Path
) -> None:
    path = write_rows(tmp_path, [AXOLOTL_DPO])
    path.write_bytes(path.read_bytes() + b"{broken\n")
    [report] = check_path(path, "axolotl", tokenizer=plain, python=python_of("axolotl")).files
    assert report.codes["not_json"] == 1
    assert report.replay is not None
    assert report.replay.error is not None
