"""axolotl's own loaders: planted rows become what `check` says, and exports of real data load whole."""

from __future__ import annotations

from pathlib import Path

import pytest

from curate.export.checking.check import check_path
from tests.export.asking import (
    PLAIN,
    TRIMMING,
    agrees,
    asked,
    exports,
    stages_loaded_whole,
    tokenizer_folder,
    write_rows,
)
from tests.export.planted import (
    AXOLOTL_DPO,
    AXOLOTL_DPO_PLANTED,
    AXOLOTL_SFT,
    AXOLOTL_SFT_PLANTED,
    CALL,
    NO,
    YES,
    Planted,
    Row,
    message,
)

pytest.importorskip("axolotl", reason="runs in a venv of its own: make test-trainers")


def transformed(row: Row, tokenizer: str) -> dict[str, str]:
    """A row as axolotl's strategy for pairs makes it."""
    from axolotl.prompt_strategies.dpo.chat_template import default
    from axolotl.utils.dict import DictDefault
    from transformers import AutoTokenizer

    config = {"datasets": [{"path": "rows"}], "chat_template": "tokenizer_default"}
    transform, _ = default(DictDefault(config))
    made: dict[str, str] = transform(row, tokenizer=AutoTokenizer.from_pretrained(tokenizer))
    return made


CASES = [("dpo", AXOLOTL_DPO, planted) for planted in AXOLOTL_DPO_PLANTED] + [
    ("sft", AXOLOTL_SFT, planted) for planted in AXOLOTL_SFT_PLANTED
]


@pytest.mark.parametrize(
    ("stage", "good", "planted"), CASES, ids=[f"{stage}-{p.name}" for stage, _, p in CASES]
)
def test_a_planted_row(
    stage: str, good: dict[str, object], planted: Planted, plain: str, tmp_path: Path
) -> None:
    report = asked(tmp_path, planted.rows(good), "axolotl", plain, stage=stage, limit=planted.limit)
    agrees(report, planted)


@pytest.mark.parametrize(
    ("template", "effect", "left"),
    [
        (TRIMMING, "stops", ""),
        (TRIMMING.replace("<|im_end|>\n", "<|im_end|>"), "corrupted", ">"),
        (PLAIN, "noted", " At nine.<|im_end|>"),
    ],
    ids=["ends with a line break", "ends with a word", "does not trim"],
)
def test_a_template_that_trims_loses_an_untrimmed_answer(
    template: str, effect: str, left: str, tmp_path: Path
) -> None:
    """It looks for the answer as it stands in the file, and takes the last character where there is none."""
    tokenizer = tokenizer_folder(tmp_path / "tokenizer", template)
    answer = message("assistant", " At nine.")
    code = "untrimmed" if effect == "noted" else "search_fails"
    planted = Planted("untrimmed", {"chosen": answer}, code, effect)
    agrees(asked(tmp_path, planted.rows(AXOLOTL_DPO), "axolotl", tokenizer), planted)
    made = transformed(AXOLOTL_DPO | {"chosen": answer}, tokenizer)
    assert made["chosen"] == left


def test_what_is_said_of_a_row_shows_in_what_is_made_of_it(plain: str) -> None:
    """Found in the dummy question, found at the very start, taken without its call."""
    short = transformed(AXOLOTL_DPO | {"chosen": message("assistant", "dummy")}, plain)
    assert short["chosen"].startswith("dummy_message]]")
    empty = transformed(AXOLOTL_DPO | {"chosen": message("assistant", "")}, plain)
    assert "[[dummy_message]]" in empty["chosen"]
    called = message("assistant", "I look.", tool_calls=[CALL])
    assert "track" not in str(transformed(AXOLOTL_DPO | {"chosen": called}, plain))
    several = transformed(AXOLOTL_DPO | {"chosen": [NO, YES]}, plain)
    assert NO["content"] not in several["chosen"]


@pytest.mark.parametrize("column", ["pair_id", "margin", "tools"])
def test_another_column_does_no_harm(column: str, plain: str, tmp_path: Path) -> None:
    rows = [AXOLOTL_DPO | {column: "1"}] * 3 if column != "tools" else [AXOLOTL_DPO] * 3
    report = asked(tmp_path, rows, "axolotl", plain)
    assert report.is_clean
    assert report.replay is not None
    assert report.replay.rows_kept == 3


def test_lengths_are_those_of_the_loader(plain: str, tmp_path: Path) -> None:
    for stage, good in (("dpo", AXOLOTL_DPO), ("sft", AXOLOTL_SFT)):
        report = asked(tmp_path, [good], "axolotl", plain, stage=stage)
        assert report.lengths is not None
        assert report.replay is not None
        assert report.replay.lengths == tuple(report.lengths.needed)


def test_exports_load_whole(shared_data: Path, folder: Path, with_tools: str) -> None:
    seen = {
        (source, stage)
        for source, export in exports(shared_data, folder, ["axolotl"]).items()
        for stage in stages_loaded_whole(export / "axolotl", "axolotl", with_tools)
    }
    assert seen >= {("oasst", "dpo"), ("hh_rlhf", "dpo"), ("tau_bench", "sft")}


def test_rows_of_no_json_stop_it(plain: str, tmp_path: Path) -> None:
    path = write_rows(tmp_path, [AXOLOTL_DPO])
    path.write_bytes(path.read_bytes() + b"{broken\n")
    [report] = check_path(path, "axolotl", tokenizer=plain, through="installed").files
    assert report.codes["not_json"] == 1
    assert report.replay is not None
    assert report.replay.error is not None
