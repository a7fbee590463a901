"""How long a row is by our count, beside what the trainer's own loader makes of it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from curate.export.trainers import Trainer
from curate.trainer_check.check import check_path
from tests.trainer_check import planted as p
from tests.trainer_check.planted import Row


@pytest.mark.parametrize(
    ("trainer", "stage", "row", "beside"),
    [
        ("axolotl", "dpo", p.AXOLOTL_DPO, 1),  # the line break at the end is stripped
        ("axolotl", "sft", p.AXOLOTL_SFT, 0),
        ("swift", "dpo", p.SWIFT_DPO, 2),  # its template is ChatML like the tokenizer's
        ("openrlhf", "dpo", p.OPENRLHF_DPO, 1),
        ("openrlhf", "sft", p.OPENRLHF_SFT, 1),
        ("verl", "sft", p.VERL_SFT, 0),
        ("verl", "reward", p.VERL_REWARD, 0),
    ],
)
def test_what_is_counted_is_near_what_the_loader_makes(
    trainer: Trainer,
    stage: str,
    row: Row,
    beside: int,
    plain: str,
    python_of: Callable[[str], str],
    tmp_path: Path,
) -> None:
    path = tmp_path / "rows.parquet"
    pq.write_table(pa.Table.from_pylist([row, row]), path)
    [stated] = check_path(path, trainer, stage=stage, tokenizer=plain, through="restated").files
    python = python_of(trainer)
    [replayed] = check_path(path, trainer, stage=stage, tokenizer=plain, python=python).files
    assert stated.lengths is not None
    assert replayed.replay is not None
    made = replayed.replay.lengths.values()
    assert len(made) == 2
    assert abs(max(made) - max(stated.lengths.needed)) <= beside
