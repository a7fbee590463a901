"""The trainers' own loaders, each in its own venv: planted rows become what `check` says, exports load whole."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from curate.export.trainers import Trainer
from curate.trainer_check.findings import FileReport
from tests.trainer_check import planted as p
from tests.trainer_check.asking import agrees, asked_together, stages_loaded_whole
from tests.trainer_check.planted import Planted, Row


class Group(NamedTuple):
    """Planted rows of one kind of file."""

    trainer: Trainer
    stage: str | None
    good: Row
    cases: list[Planted]
    info: Row | None = None
    suffix: str = "jsonl"


GROUPS = {
    "axolotl-dpo": Group("axolotl", "dpo", p.AXOLOTL_DPO, p.AXOLOTL_DPO_PLANTED),
    "axolotl-sft": Group("axolotl", "sft", p.AXOLOTL_SFT, p.AXOLOTL_SFT_PLANTED),
    "llamafactory-dpo": Group(
        "llamafactory", None, p.LLAMAFACTORY_DPO, p.LLAMAFACTORY_DPO_PLANTED, p.LLAMAFACTORY_INFO
    ),
    "llamafactory-sft": Group(
        "llamafactory",
        None,
        p.LLAMAFACTORY_SFT,
        p.LLAMAFACTORY_SFT_PLANTED,
        p.LLAMAFACTORY_SFT_INFO,
    ),
    "swift-dpo": Group("swift", "dpo", p.SWIFT_DPO, p.SWIFT_DPO_PLANTED),
    "swift-response": Group("swift", "dpo", p.SWIFT_RESPONSE, p.SWIFT_RESPONSE_PLANTED),
    "swift-sft": Group("swift", "sft", p.SWIFT_SFT, p.SWIFT_SFT_PLANTED),
    "openrlhf-dpo": Group("openrlhf", "dpo", p.OPENRLHF_DPO, p.OPENRLHF_DPO_PLANTED),
    "openrlhf-whole": Group("openrlhf", "dpo", p.OPENRLHF_WHOLE, p.OPENRLHF_WHOLE_PLANTED),
    "openrlhf-sft": Group("openrlhf", "sft", p.OPENRLHF_SFT, p.OPENRLHF_SFT_PLANTED),
    "verl-reward": Group("verl", "reward", p.VERL_REWARD, p.VERL_REWARD_PLANTED, suffix="parquet"),
    "verl-sft": Group("verl", "sft", p.VERL_SFT, p.VERL_SFT_PLANTED, suffix="parquet"),
}
GOOD = Planted("good", {}, "duplicate_prompt", "noted")


@pytest.fixture(scope="module")
def reports(
    python_of: Callable[[str], str], plain: str, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str], dict[str, FileReport]]:
    """The reports of a group's files by the names of what is planted; asked for once."""
    asked: dict[str, dict[str, FileReport]] = {}

    def of(name: str) -> dict[str, FileReport]:
        if name not in asked:
            group = GROUPS[name]
            asked[name] = asked_together(
                tmp_path_factory.mktemp(name),
                group.good,
                [GOOD, *group.cases],
                group.trainer,
                plain,
                python=python_of(group.trainer),
                stage=group.stage,
                info=group.info,
                suffix=group.suffix,
            )
        return asked[name]

    return of


@pytest.mark.parametrize(
    ("name", "planted"),
    [(name, case) for name, group in GROUPS.items() for case in group.cases],
    ids=[f"{name}-{case.name}" for name, group in GROUPS.items() for case in group.cases],
)
def test_a_planted_row(
    name: str, planted: Planted, reports: Callable[[str], dict[str, FileReport]]
) -> None:
    agrees(reports(name)[planted.name], planted)


@pytest.mark.parametrize("name", GROUPS)
def test_good_rows_are_taken_whole(
    name: str, reports: Callable[[str], dict[str, FileReport]]
) -> None:
    report = reports(name)[GOOD.name]
    assert report.is_clean, report.findings
    assert report.replay is not None
    assert report.replay.rows_kept == 3


@pytest.mark.parametrize(
    ("trainer", "loaded"),
    [
        ("axolotl", {("oasst", "dpo"), ("hh_rlhf", "dpo"), ("tau_bench", "sft")}),
        ("llamafactory", {("oasst", "dpo"), ("hh_rlhf", "dpo"), ("tau_bench", "sft")}),
        ("swift", {("oasst", "dpo"), ("hh_rlhf", "dpo"), ("tau_bench", "sft")}),
        ("openrlhf", {("oasst", "dpo"), ("hh_rlhf", "dpo"), ("oasst", "sft")}),
        ("verl", {("oasst", "reward"), ("hh_rlhf", "reward"), ("oasst", "sft")}),
    ],
)
def test_exports_of_real_data_load_whole(
    trainer: Trainer,
    loaded: set[tuple[str, str]],
    real: dict[str, Path],
    with_tools: str,
    python_of: Callable[[str], str],
) -> None:
    seen = {
        (source, stage)
        for source, export in real.items()
        if (source != "tau_bench" or trainer not in ("openrlhf", "verl"))  # they take no tools
        for stage in stages_loaded_whole(export / trainer, trainer, with_tools, python_of(trainer))
    }
    assert seen >= loaded
