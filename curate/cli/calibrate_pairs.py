"""`curate calibrate --twins` and `--pairs`: fit a judge's pair curve, by asking it or from a run's pairs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from rich.markup import escape

from curate.cli.console import OUT, print_json, print_line, resumable
from curate.cli.printing import ends, number_cell, number_table, show_unused
from curate.errors import UsageError
from curate.wording import plural

if TYPE_CHECKING:
    from curate.records import PairCurve
    from curate.run.labels.pair_curves import PairPlan
    from curate.trust.label_rows import Unused

COARSE = "Twins show coarse differences only: prefer labelled pairs"


def fit_pair_curve(
    place: Path,
    pair_source: int | Path | None,
    precision: float,
    out: Path,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Fit a curve, print it and write it.

    Args:
        place: a recipe, whose judge is asked, or a run folder.
        pair_source: a number of twins, or a file of labelled pairs; None for the natural pairs of the run.

    Raises:
        UsageError: a precision out of range; a dry run of what makes no model calls.
    """
    if not 0.5 < precision < 1:
        raise UsageError(
            "--precision must be a share", got=precision, expected="above 0.5 and below 1"
        )
    if isinstance(pair_source, int) or (pair_source is not None and not place.is_dir()):
        _fit_by_asking(place, pair_source, precision, out, dry_run, as_json)
        return
    if dry_run:
        raise UsageError(
            "the pairs of a run are read without model calls",
            got="--dry-run",
            fix="leave out --dry-run: it costs nothing",
        )
    _fit_to_run(place, pair_source, precision, out, as_json)


def _fit_by_asking(
    recipe: Path, pair_source: int | Path, precision: float, out: Path, dry_run: bool, as_json: bool
) -> None:
    """Print what it costs, ask a recipe's judge, and write the curve; a dry run stops after the first."""
    from curate.cli.progress import one_bar
    from curate.recipe import load_recipe
    from curate.run.labels.pair_curves import fit_by_asking, plan_labelled, plan_twins
    from curate.run.outputs import NATURAL_PAIRS, pair_file
    from curate.storage.run_folder import REPLIES
    from curate.storage.whole_files import write_record
    from curate.trust.label_rows import Unused

    # The curve that the recipe names may be the one to be written.
    curves = (("fork", "curve"), ("natural", "verify", "curve"))
    loaded = load_recipe(recipe, without=curves)
    run = Path("runs") / loaded.name
    plan = (
        plan_twins(loaded, pair_source, run)
        if isinstance(pair_source, int)
        else plan_labelled(loaded, pair_source)
    )
    if dry_run and as_json:
        print_json(
            {
                "twins" if plan.fitted_on == "twins" else "pairs": plan.kinds,
                "requests": round(plan.load.requests),
                "prompt_tokens": round(plan.load.prompt),
                "cost": plan.cost,
                "chosen_from": plan.chosen_from,
                "unused": plan.unused.counts,
            }
        )
        return
    if not as_json:
        _show_plan(plan)
    if dry_run:
        return
    replies = run / REPLIES
    with resumable(), one_bar("pairs", hidden=as_json) as progress:
        curve = fit_by_asking(loaded, plan, replies, precision=precision, progress=progress)
    write_record(out, curve)
    _show(curve, out, plan.unused if as_json else Unused(), as_json=as_json)
    pairs = pair_file(run, NATURAL_PAIRS)
    if not as_json and plan.fitted_on == "twins" and pairs.is_file():
        print_line(
            f"{escape(str(run))} has natural pairs: where its recipe has them verified, "
            f"`curate calibrate {escape(str(run))} --pairs` fits the curve to their labels."
        )


def _fit_to_run(run: Path, gold: Path | None, precision: float, out: Path, as_json: bool) -> None:
    """Fit the curve to the pairs that a run's judge compared, by labels of the data or of a file; no model calls."""
    from curate.run.labels.run_pair_curve import fit_from_choices, fit_from_run
    from curate.storage.whole_files import write_record
    from curate.trust.label_rows import Unused

    if gold is None:
        curve, unused = fit_from_run(run, precision=precision), Unused()
    else:
        curve, unused = fit_from_choices(run, gold, precision=precision)
    write_record(out, curve)
    _show(curve, out, unused, as_json=as_json)


def _show_plan(plan: PairPlan) -> None:
    kinds = ", ".join(f"{kind} {number}" for kind, number in sorted(plan.kinds.items()))
    cost = "" if plan.cost is None else f", cost at most {plan.cost:.4f} at the recipe's prices"
    what = "twins, planted in" if plan.fitted_on == "twins" else "labelled pairs of"
    print_line(
        f"{len(plan.pairs)} {what} {escape(plan.chosen_from)}: {kinds} (of {plural(plan.dialogues, 'dialogue')})"
    )
    show_unused(plan.unused)
    print_line(
        f"to the judge, at most: {plural(round(plan.load.requests), 'request')}, about {plan.load.prompt:,.0f} prompt "
        f"tokens (4 characters a token){cost}"
    )


def _show(curve: PairCurve, out: Path, unused: Unused, *, as_json: bool) -> None:
    if as_json:
        print_json(curve.model_dump(mode="json") | {"unused": unused.counts})
        return
    judge = curve.identity
    truth = "labelled pairs" if curve.fitted_on == "labels" else "planted twins"
    print_line(
        f"{escape(judge.model)} ({judge.engine}): fitted to {curve.pairs} {truth} of {plural(curve.dialogues, 'dialogue')} "
        f"({escape(curve.source)}), figures by cross-validation"
    )
    show_unused(unused)
    figures = number_table("", "figure", "95 %")
    for name, value, interval in (
        ("AUC", curve.auc, curve.auc_interval),
        (
            f"precision (target {curve.precision:g})",
            curve.reached_precision,
            curve.precision_interval,
        ),
        ("recall", curve.recall, curve.recall_interval),
    ):
        figures.add_row(name, number_cell(value) or "-", ends(interval))
    OUT.print(figures)
    kinds = number_table("kind", "pairs", "passed", "passed reversed")
    for name, of in curve.kinds.items():
        kinds.add_row(escape(name), str(of.pairs), str(of.accepted), str(of.accepted_wrong))
    OUT.print(kinds)
    print_line(
        f"log-odds that chosen is better: {curve.preference_weight:.3g} x preference + {curve.margin_weight:.3g} "
        f"x margin; a pair passes with a probability of {curve.threshold:.3f} or more"
    )
    if curve.fitted_on == "twins":
        print_line(f"[yellow]{COARSE}.[/yellow]")
    file = escape(str(out))
    print_line(
        f"written: {file}; a recipe uses it as `fork: {{curve: {file}}}` or "
        f"`natural: {{verify: {{curve: {file}}}}}`"
    )
