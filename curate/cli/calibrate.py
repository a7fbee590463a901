"""`curate calibrate`: fit levels and probabilities to people's labels, for one judge's scores."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from rich.markup import escape
from rich.table import Table

from curate.cli.calibrate_pairs import fit_pair_curve
from curate.cli.console import OUT, AsJson, Scales, print_json, print_line
from curate.cli.printing import (
    ends,
    number_cell,
    number_table,
    short,
    show_assumed_scales,
    show_unused,
    with_interval,
)
from curate.errors import UsageError
from curate.wording import plural

if TYPE_CHECKING:
    from collections.abc import Sequence

    from curate.records import Calibration, CutPoints, GoodModel, JudgeCalibration
    from curate.records.calibration import MetricWeights
    from curate.run.labels.calibrate import Fitted


def calibrate(
    scores: Annotated[
        Path,
        typer.Argument(
            metavar="RUN",
            help="Run folder, or JSONL of adherence records; with --twins a recipe, with --pairs either.",
        ),
    ],
    gold: Annotated[
        Path | None,
        typer.Argument(
            metavar="[GOLD]",
            help="CSV, JSONL or Parquet of labels: id or content, dimension (or verdict, accept, adherence), "
            "value; turn and rater are optional. With --pairs: prompt, chosen and rejected, which a recipe's judge "
            "compares, or pair_id and better (chosen or rejected) of a run's pairs.",
        ),
    ] = None,
    scale: Scales = None,
    shares: Annotated[
        str | None,
        typer.Option(
            help="Without labels: expected shares of levels, e.g. '1: .02, 2: .05, 3: .2, 4: .4, 5: .33' (all "
            "dimensions but safety) or 'helpfulness: {1: .02, ...}'."
        ),
    ] = None,
    dimension: Annotated[
        str | None,
        typer.Option(help="Dimension (or verdict, accept) that the data's --label rates."),
    ] = None,
    labels: Annotated[
        str | None,
        typer.Option(help="Labelled source, in any shape (default: the run's own dialogues)."),
    ] = None,
    label: Annotated[str, typer.Option(help="Name of the label in the data.")] = "label",
    adherent: Annotated[
        str, typer.Option(help="The label's value for a turn that keeps its role.")
    ] = "adherent",
    method: Annotated[
        Literal["platt", "isotonic"], typer.Option(help="Kind of curve for role adherence.")
    ] = "platt",
    shape: Annotated[
        str, typer.Option(help="Shape of --labels, instead of detecting it.")
    ] = "auto",
    hold_out: Annotated[
        float,
        typer.Option(
            help="Do not fit to this share of GOLD's dialogues, always the same ones, so that `curate certify` can use "
            "them. Dialogues drawn to certify are never fitted to."
        ),
    ] = 0.0,
    twins: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Fit the curve that decides about pairs instead, to this many flaws planted in a recipe's dialogues.",
        ),
    ] = None,
    pairs: Annotated[
        bool,
        typer.Option(
            "--pairs",
            help="Fit that curve to labelled pairs: those of GOLD, else the natural pairs that a run verified.",
        ),
    ] = False,
    precision: Annotated[
        float,
        typer.Option(
            help="With --twins or --pairs: share of the pairs that pass whose chosen side is truly better, above 0.5."
        ),
    ] = 0.9,
    cascade: Annotated[
        bool,
        typer.Option(
            "--cascade",
            help="Fit a cascade's threshold instead: the doubt above which it asks the second judge. Fitted to the run's "
            "dialogues that both judges scored: to the second judge, or with GOLD to labels of verdict or accept.",
        ),
    ] = False,
    lost: Annotated[
        float,
        typer.Option(help="With --cascade: largest share of all dialogues that it may lose."),
    ] = 0.1,
    confidence: Annotated[
        float, typer.Option(help="With --cascade: confidence that it loses no more.")
    ] = 0.9,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="With a recipe: print what it would cost; no model calls."),
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option(
            help="File to write (default calibration.json, for pairs pair-curve.json, for a cascade cascade.json)."
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Fit levels, p_good and role adherence to people's labels, for the judge that scored and no other.

    Without GOLD, --dimension or --shares: role adherence, by labels in the data. If the file at --out is of the same
    judge, its parts that are not fitted now are kept. With --twins or --pairs: the curve that decides about pairs.
    With --cascade: when a cascade asks its second judge.
    """
    if cascade:
        if twins is not None or pairs or shares is not None or dimension is not None:
            raise UsageError(
                "--cascade fits a threshold and nothing else",
                got="--cascade with --twins, --pairs, --shares or --dimension",
                expected="RUN, GOLD where there is one, --lost, --confidence, --out and --json",
            )
        _fit_cascade(scores, gold, lost, confidence, out or Path("cascade.json"), as_json)
        return
    if twins is not None or pairs:
        out = out or Path("pair-curve.json")
        if twins is not None and (pairs or gold is not None):
            raise UsageError(
                "a curve is fitted to one kind of pairs",
                got="--twins and --pairs" if pairs else f"--twins and {gold}",
                expected="--twins N, --pairs, or --pairs with GOLD",
            )
        fit_pair_curve(scores, gold if twins is None else twins, precision, out, dry_run, as_json)
        return
    out = out or Path("calibration.json")
    from curate.recipe import parse_source
    from curate.run.labels.adherence_fit import Labels
    from curate.run.labels.calibrate import calibrate_by, merged_calibration
    from curate.storage.whole_files import write_record

    _check_origin(gold, shares, dimension, hold_out)
    fitted = calibrate_by(
        scores,
        gold if shares is None else _parse_shares(shares),
        dimension,
        source=None if labels is None else parse_source({"path": labels, "shape": shape}),
        labels=Labels(label, adherent),
        scales=scale or (),
        method=method,
        hold_out=hold_out,
    )
    whole, kept_parts = merged_calibration(fitted.calibration, out)
    write_record(out, whole)
    if as_json:
        print_json(
            whole.model_dump(mode="json")
            | {"rows": fitted.rows, "unused": fitted.unused.counts, "not_fitted": fitted.not_fitted}
        )
        return
    _show(fitted, whole, kept_parts, out)


def _check_origin(
    gold: Path | None, shares: str | None, dimension: str | None, hold_out: float
) -> None:
    """Raise UsageError if labels have several origins, or --hold-out is no share of GOLD."""
    if not 0 <= hold_out < 1 or (hold_out and gold is None):
        raise UsageError(
            "--hold-out must be a share of GOLD",
            got=hold_out if gold is not None else f"{hold_out} and no GOLD",
            expected="0 or more and below 1",
        )
    if sum(origin is not None for origin in (gold, shares, dimension)) > 1:
        raise UsageError(
            "the command gives several sets of labels",
            expected="one of GOLD, --dimension and --shares",
            fix="run the command once for each: what is in --out is kept",
        )


def _fit_cascade(
    run: Path, gold: Path | None, lost: float, confidence: float, out: Path, as_json: bool
) -> None:
    from curate.run.labels.cascade_fit import fit_cascade
    from curate.storage.whole_files import write_record

    fit, unused = fit_cascade(run, gold, risk=lost, confidence=confidence)
    write_record(out, fit)
    if as_json:
        print_json(fit.model_dump(mode="json") | {"unused": unused.counts})
        return
    show_unused(unused)
    OUT.print(escape(fit.sentence))
    print_line(f"written: {escape(str(out))}; a recipe names it as models.judge.fit")


def _parse_shares(text: str) -> dict[str, dict[int, float]]:
    """Return the share of each level by dimension; `*` stands for all dimensions but safety.

    Raises:
        UsageError: the text is neither shares by level nor by dimension and level.
    """
    import yaml
    from pydantic import TypeAdapter, ValidationError

    try:
        shares = yaml.safe_load("{" + text + "}")
        if isinstance(shares, dict) and not any(isinstance(x, dict) for x in shares.values()):
            shares = {"*": shares}
        return TypeAdapter(dict[str, dict[int, float]]).validate_python(shares)
    except (yaml.YAMLError, ValidationError) as error:
        raise UsageError(
            "--shares cannot be read",
            got=text,
            expected="shares by level, e.g. '1: .02, 2: .05, 3: .2, 4: .4, 5: .33', or by dimension and level",
        ) from error


def _show(fitted: Fitted, whole: Calibration, kept_parts: Sequence[str], out: Path) -> None:
    from curate.records.readings import METRIC

    new = fitted.calibration
    for prefix, judge in (
        ("", new.identity),
        ("metrics: ", new.metrics.identity if new.metrics else None),
    ):
        if judge is not None:
            OUT.print(
                f"{prefix}{escape(judge.model)} ({judge.engine}), mode {judge.mode}, prompts {judge.prompt_version}"
            )
    levels = new.levels | {
        METRIC + name: cuts for name, cuts in (new.metrics.levels if new.metrics else {}).items()
    }
    if levels:
        OUT.print(_level_table(levels))
    if new.metrics is not None and new.metrics.weights is not None:
        _show_weights(new.metrics.weights)
    if new.good is not None:
        _show_good(new.good)
    if new.adherence is not None:
        _show_adherence(new.adherence)
    for name, reason in fitted.not_fitted.items():
        print_line(f"[yellow]not fitted:[/yellow] {name}: {escape(reason)}")
    show_assumed_scales(fitted.assumed_scales)
    show_unused(fitted.unused, fitted.rows)
    if kept_parts:
        print_line(f"kept from {escape(str(out))}: {', '.join(kept_parts)}")
    if sentence := _agreement_sentence(levels):
        print_line(sentence)
    has_levels = whole.metrics is not None and whole.metrics.levels
    parts = {"judge": whole.identity, "adherence": whole.adherence, "metrics": has_levels}
    keys = [
        f"`{name}: {{calibration: {escape(str(out))}}}`" for name, part in parts.items() if part
    ]
    used = f"; a recipe uses it as {' and '.join(keys)}" if keys else ""
    print_line(f"written: {escape(str(out))}{used}")


def _level_table(levels: dict[str, CutPoints]) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0))
    for column in ("dimension", "labels", "scale", "kappa before", "after", "raters", "method"):
        table.add_column(
            column,
            justify="right" if column == "labels" else "left",
            no_wrap=column in ("dimension", "method"),
            overflow="fold",
        )
    for name, cuts in levels.items():
        table.add_row(
            name,
            f"{cuts.labels:,} of {cuts.dialogues:,}" if cuts.labels else "",
            escape(cuts.scale) if cuts.labels else "",
            with_interval(cuts.before.value, cuts.before.interval, tight=True),
            with_interval(cuts.after.value, cuts.after.interval, tight=True),
            short(cuts.ceiling),
            cuts.method,
        )
    return table


def _agreement_sentence(levels: dict[str, CutPoints]) -> str:
    """Return a sentence on what the kappas after calibration mean; empty without levels."""
    from curate.trust.agreement import USABLE_KAPPA

    fitted = {name: cuts.after for name, cuts in levels.items() if cuts.labels}
    if not fitted:
        return (
            "Levels follow the shares that were stated; how far they agree with people is not known."
            if levels
            else ""
        )
    good = [
        name
        for name, kappa in fitted.items()
        if kappa.interval is not None and kappa.interval[0] >= USABLE_KAPPA
    ]
    rest = [name for name in fitted if name not in good]
    clauses = []
    if good:
        clauses.append(f"agreement on {', '.join(good)} is above {USABLE_KAPPA} beyond doubt")
    if rest:
        clauses.append(
            f"agreement on {', '.join(rest)} is not shown to be above {USABLE_KAPPA}: it is lower, or there are too few "
            "labels to tell; where it is low, first check that the labelling guide and the rubric mean the same"
        )
    text = "; ".join(clauses)
    return f"{text[0].upper()}{text[1:]}."


def _show_weights(weights: MetricWeights) -> None:
    """Print fitted beside given weights, and whether fitting was worth it."""
    table = number_table("weights", "given", "fitted")
    for name, weight in weights.given.items():
        table.add_row(name, f"{weight:.3f}", f"{weights.fitted[name]:.3f}")
    OUT.print(table)
    gain = weights.gain
    if gain is not None and gain[0] > 0:
        advice = (
            "the fitted weights tell good dialogues from others better: take them as metrics.choose"
        )
    elif gain is not None and gain[1] < 0:
        advice = "the fitted weights tell good dialogues from others worse: keep those given"
    else:
        advice = "neither is better beyond doubt: keep those given"
    difference = f" (difference {ends(gain, '+.2f')})" if gain else ""
    print_line(
        f"Overall score against {weights.labels} labelled dialogues, {weights.good} good: AUC {weights.auc_given:.2f} by the "
        f"given weights, {weights.auc_fitted:.2f} by fitted ones, by cross-validation{difference}; {advice}."
    )


def _show_good(good: GoodModel) -> None:
    area = number_cell(good.auc) or "none"
    shown = f" ({ends(good.brier_interval, '.3f')})" if good.brier_interval else ""
    print_line(
        f"p_good: {good.labels} labelled dialogues, {good.good} good; by cross-validation AUC {area}, Brier "
        f"{good.brier:.3f}{shown}, without a judge {good.brier_without:.3f}"
    )


def _show_adherence(fit: JudgeCalibration) -> None:
    judge = fit.identity
    OUT.print(
        f"{escape(judge.model or fit.scoring_method)} ({judge.engine}), {fit.scoring_method}, "
        f"{fit.definition}: {fit.turns} labelled turns, {fit.adherent} adherent, "
        f"of {plural(fit.groups, 'dialogue')}"
    )
    columns = ("by cross-validation", "Brier", "lower by", "ECE (10 bins)", "accuracy at 0.5")
    grid = number_table(*columns)
    for name, figures in fit.figures.items():
        stored = " (stored)" if name == fit.method else ""
        grid.add_row(
            f"{name}{stored}",
            f"{figures.brier:.3f}",
            ends(figures.brier_gain, "+.3f"),
            f"{figures.ece:.3f}",
            f"{figures.accuracy_at_half:.3f}",
        )
    OUT.print(grid)
    print_line(
        f"threshold of the raw score: {fit.threshold:.4g}; accuracy at a threshold fitted without the "
        f"turns it decides on: {fit.figures['raw'].accuracy_at_threshold:.3f}"
    )
