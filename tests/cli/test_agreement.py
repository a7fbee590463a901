"""The tables of `curate agreement`."""

from __future__ import annotations

from io import StringIO

from rich.console import Console

from curate.cli.agreement import show_agreement
from curate.records import Agreement
from curate.records.agreement import DimensionAgreement, Figure, LevelFigures


def test_a_dimension_with_wide_figures_keeps_its_name_whole_in_80_columns() -> None:
    wide = Figure(value=-0.66, interval=(-0.91, -0.31))
    dimension = DimensionAgreement.model_construct(
        labels=1_066,
        dialogues=119,
        levels=LevelFigures(
            kappa=wide,
            agreement=wide,
            within_one=wide,
            bias=Figure(value=-1.32, interval=(-1.68, -0.92)),
        ),
        mapped=None,
        spearman=wide,
        kendall=wide,
        alpha=Figure(),
        only_calibrated=False,
        gate=DimensionAgreement.model_fields["gate"].annotation.model_construct(state="fail"),
        alternative=None,
        jury=None,
    )
    report = Agreement.model_construct(
        rows=1_066, gold="labels.csv", dimensions={"task_completion": dimension}
    )
    console = Console(file=StringIO(), width=80)
    show_agreement(console, report)
    lines = console.file.getvalue().splitlines()  # type: ignore[attr-defined]
    assert sum(line.startswith("task_completion ") for line in lines) == 2
    assert max(map(len, lines)) <= 80
