"""`curate agreement`: compare a run's scores with people's labels."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from curate.cli.console import OUT, AsJson, DataDimension, DataLabel, Scales, print_json, print_line
from curate.cli.printing import (
    clip,
    number_cell,
    number_table,
    short,
    show_assumed_scales,
    show_unused,
    with_interval,
)
from curate.wording import plural

if TYPE_CHECKING:
    from curate.records.agreement import Agreement, DimensionAgreement, Figure

_STATES = {"pass": "yes", "fail": "no", "not_enough_labels": "not known"}
_LITTLE = 0.4
"""Alpha between people below which one of them says little of the others."""
_WIDTH = 24
"""Characters of a slice's name that are shown: a role can be long."""


def agreement(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Run folder.")],
    gold: Annotated[
        Path | None,
        typer.Argument(
            metavar="[GOLD]",
            help="CSV, JSONL or Parquet of labels: id or content, dimension (or verdict, accept, adherence), "
            "value; turn, rater and language are optional. Rows with pair_id and better (chosen or "
            "rejected) label the run's pairs.",
        ),
    ] = None,
    scale: Scales = None,
    dimension: DataDimension = None,
    label: DataLabel = "label",
    raters: Annotated[
        str,
        typer.Option(
            help="Who the raters are: 'experts', 'skilled' or 'crowd'; for the test of whether the judge could "
            "replace one of them."
        ),
    ] = "skilled",
    hold_out: Annotated[
        float,
        typer.Option(
            help="Leave out this share of the labelled dialogues, always the same ones: labels that prompts were "
            "chosen by cannot certify, and `curate certify --hold-out` uses those left out.",
        ),
    ] = 0.0,
    details: Annotated[
        bool,
        typer.Option(
            "--verbose", "-v", "--details", help="Also confusion matrices, slices and each rater."
        ),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Compare a run's scores with people's labels: agreement with intervals, scores fit to filter by, true shares.

    No model calls. The report is kept in the run folder; `show`, the manifest and the card repeat its sentence.
    """
    from curate.run.labels.agreement import measure_agreement
    from curate.run.labels.given_labels import given_labels
    from curate.trust.scales import parse_scales

    labels = given_labels(run, gold, dimension, label)
    measured = measure_agreement(
        run, labels, scales=parse_scales(scale or ()), raters=raters, hold_out=hold_out
    )
    report = measured.report
    if as_json:
        print_json(report)
        return
    show_agreement(OUT, report, details=details)
    for name, reason in report.not_measured.items():
        print_line(f"[yellow]not measured:[/yellow] {name}: {escape(reason)}")
    show_assumed_scales(report.assumed_scales)
    show_unused(measured.unused, report.rows)
    print_line(escape(report.sentence))
    if advice := " ".join(_advice(report)):
        print_line(advice)


def show_agreement(console: Console, report: Agreement, *, details: bool = False) -> None:
    """Print the figures of a report as tables that fit 80 columns, without its sentence."""
    console.print(
        f"compared with {plural(report.rows, 'label')} of {escape(report.gold)}; 95 % intervals over dialogues"
    )
    console.print(_gate_table(report.dimensions))
    console.print()
    console.print(_figure_table(report.dimensions))
    console.print()
    for name, dimension in report.dimensions.items():
        if dimension.alternative is not None:
            console.print(escape(f"{name}: {_alternative(dimension)}"), soft_wrap=True)
    for name, dimension in report.dimensions.items():
        if dimension.jury is not None:
            console.print(escape(f"{name}: {dimension.jury.sentence}"), soft_wrap=True)
    if details:
        for name, dimension in report.dimensions.items():
            console.print()
            _show_details(console, name, dimension)


def _gate_table(dimensions: Mapping[str, DimensionAgreement]) -> Table:
    texts = ("kappa", "if calibrated", "people", "for use")
    table = number_table("dimension", "labels", "of", *texts, texts=texts)
    table.columns[0].min_width = max(map(len, ("dimension", *dimensions)))
    for name, dimension in dimensions.items():
        table.add_row(
            name,
            f"{dimension.labels:,}",
            f"{dimension.dialogues:,}",
            figure(dimension.levels.kappa, tight=True),
            figure(dimension.mapped.kappa, tight=True) if dimension.mapped else "",
            short(dimension.alpha.value),
            "calibrated" if dimension.only_calibrated else _STATES[dimension.gate.state],
        )
    return table


def _figure_table(dimensions: Mapping[str, DimensionAgreement]) -> Table:
    heads = ("dimension", "Spearman", "tau-b", "same", "within one", "bias")
    table = number_table(*heads, texts=heads, padding=(0, 1, 0, 0))
    table.columns[0].min_width = max(map(len, (heads[0], *dimensions)))
    for name, dimension in dimensions.items():
        levels = dimension.levels
        table.add_row(
            name,
            figure(dimension.spearman, tight=True),
            figure(dimension.kendall, tight=True),
            _percent(levels.agreement),
            _percent(levels.within_one),
            figure(levels.bias, tight=True),
        )
    return table


def figure(value: Figure, *, tight: bool = False) -> str:
    """Return a figure with its interval, as `with_interval` does."""
    return with_interval(value.value, value.interval, tight=tight)


def _percent(share: Figure) -> str:
    """Return a share in per cent with its interval: `63% 55:72`."""
    if share.value is None or share.interval is None:
        return number_cell(share.value, ".0%")
    low, high = share.interval
    return f"{share.value:.0%} {100 * low:.0f}:{100 * high:.0f}"


def _alternative(dimension: DimensionAgreement) -> str:
    test = dimension.alternative
    assert test is not None
    wins = sum(rater.judge_wins for rater in test.raters)
    can = "could" if test.passed else "could not"
    alpha, doubt = dimension.alpha.value, ""
    if alpha is not None and alpha < _LITTLE:
        doubt = f"; but these people agree little with each other (alpha {short(alpha)}), so that says little"
    return (
        f"the judge {can} replace one of the people: it agrees with the others as well as {wins} of {len(test.raters)} "
        f"of them do (alternative annotator test, epsilon {test.epsilon:g}){doubt}"
    )


def _show_details(console: Console, name: str, dimension: DimensionAgreement) -> None:
    console.print(f"[bold]{name}[/bold] ({dimension.compared}; labels {escape(dimension.scale)})")
    table = number_table("people \\ judge", *dimension.level_names)
    for level, row in zip(dimension.level_names, dimension.confusion, strict=True):
        table.add_row(level, *(f"{count:,}" if count else "·" for count in row))
    console.print(table)
    if dimension.not_applicable:
        counts = dimension.not_applicable
        console.print(
            f"n/a: by both {counts['both']}, by the judge alone {counts['judge_only']}, by people alone "
            f"{counts['people_only']}",
            soft_wrap=True,
        )
    for title, figures in (("levels", dimension.levels), ("if calibrated", dimension.mapped)):
        if figures is not None and dimension.mapped is not None:
            console.print(
                f"{title}: kappa {figure(figures.kappa)}, same {figure(figures.agreement)}, within one "
                f"{figure(figures.within_one)}, bias {figure(figures.bias)}",
                soft_wrap=True,
            )
    if dimension.raters:
        table = number_table("person against the others", "items", "kappa", texts=("kappa",))
        for rater in dimension.raters:
            table.add_row(escape(rater.rater[:_WIDTH]), f"{rater.items:,}", figure(rater.kappa))
        console.print(table)
    if dimension.slices:
        table = number_table("slice", "", "labels", "of", "kappa", texts=("", "kappa"))
        for part in dimension.slices:
            table.add_row(
                part.by,
                escape(clip(part.value, _WIDTH)),
                f"{part.labels:,}",
                f"{part.dialogues:,}",
                figure(part.kappa),
            )
        console.print(table)


def _advice(report: Agreement) -> Iterator[str]:
    """Yield what to do about the dimensions that are not fit for use."""
    if any(
        dimension.mapped and dimension.mapped.kappa.interval and dimension.levels.kappa.value is not None
        and dimension.mapped.kappa.interval[0] > max(0.0, dimension.levels.kappa.value)
        for dimension in report.dimensions.values()
    ):  # fmt: skip
        yield "`curate calibrate` with these labels gives levels that agree better (column `if calibrated`)."
    good = report.dimensions.get("good")
    if good is not None and good.spearman.value is not None and good.dialogues > 2:
        least = (good.dialogues - 2) ** -0.5
        if abs(good.spearman.value) <= least:
            # Prediction-powered inference saves nothing there (Angelopoulos et al., arXiv 2311.01453).
            yield (
                f"For the share of good dialogues this judge saves no labels: its correlation with people's decisions is "
                f"{short(good.spearman.value)}, and with {plural(good.dialogues, 'dialogue')} it would have to be above "
                f"{short(least)}."
            )
    if any(dimension.gate.state == "fail" for dimension in report.dimensions.values()):
        yield (
            "Where agreement is low, first check that the labelling guide and the rubric mean the same: read the "
            "dialogues on which they differ most."
        )
