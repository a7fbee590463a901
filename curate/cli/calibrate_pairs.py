"""The two ways of `curate calibrate` that fit a judge's pair curve: to planted twins, to a run's labelled pairs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from rich.markup import escape
from rich.progress import Progress
from rich.table import Table

from curate.cli.console import ERR, OUT, print_json, resumable

if TYPE_CHECKING:
    from curate.records import PairCurve
    from curate.run.pair_curves import TwinPlan

COARSE = "Twins prove coarse differences only: labelled pairs go before them"


def calibrate_by_twins(
    recipe: Path, twins: int, *, precision: float, out: Path, dry_run: bool, as_json: bool
) -> None:
    """Plant twins in the recipe's dialogues, say what they cost, ask its judge, write the curve."""
    from curate.recipe import load_recipe
    from curate.run.outputs import NATURAL_PAIRS
    from curate.run.pair_curves import fit_from_twins, plan_twins, write_curve

    loaded = load_recipe(recipe, [])
    run = Path("runs") / loaded.name
    plan = plan_twins(loaded, twins, run)
    if dry_run and as_json:
        print_json(
            {
                "twins": plan.kinds,
                "requests": round(plan.load.requests),
                "prompt_tokens": round(plan.load.prompt),
                "cost": plan.cost,
                "chosen_from": plan.chosen_from,
            }
        )
        return
    if not as_json:
        _show_plan(plan)
    if dry_run:
        return
    with resumable(), Progress(console=ERR, transient=True, disable=as_json) as shown:
        task = shown.add_task("twins", total=len(plan.twins))
        curve = fit_from_twins(
            loaded,
            plan,
            run / "replies.sqlite",
            precision=precision,
            progress=lambda done, _: shown.update(task, completed=done),
        )
    write_curve(out, curve)
    _show(curve, out, as_json=as_json)
    if not as_json and (run / "pairs" / f"{NATURAL_PAIRS}.jsonl").is_file():
        OUT.print(
            f"{escape(str(run))} has natural pairs: where its recipe has them verified, "
            f"`curate calibrate {escape(str(run))} --pairs` fits the curve to their labels.",
            soft_wrap=True,
        )


def calibrate_by_pairs(run: Path, *, precision: float, out: Path, as_json: bool) -> None:
    """Fit the curve to the labelled pairs of a run that its judge compared; nobody is asked."""
    from curate.run.pair_curves import fit_from_run, write_curve

    curve = fit_from_run(run, precision=precision)
    write_curve(out, curve)
    _show(curve, out, as_json=as_json)


def _show_plan(plan: TwinPlan) -> None:
    kinds = ", ".join(f"{kind} {number}" for kind, number in sorted(plan.kinds.items()))
    cost = "" if plan.cost is None else f", cost at most {plan.cost:.4f} at the recipe's prices"
    OUT.print(f"{len(plan.twins)} twins, planted in {plan.chosen_from}: {kinds}", soft_wrap=True)
    OUT.print(
        f"asked of the judge: {plan.load.requests:,.0f} requests, about {plan.load.prompt:,.0f} prompt tokens "
        f"(4 characters a token){cost}",
        soft_wrap=True,
    )


def _show(curve: PairCurve, out: Path, *, as_json: bool) -> None:
    if as_json:
        print_json(curve.model_dump(mode="json"))
        return
    judge = curve.identity
    truth = "labelled pairs" if curve.fitted_on == "labels" else "planted twins"
    OUT.print(
        f"{escape(judge.model)} ({judge.engine}): fitted to {curve.pairs} {truth} of {curve.dialogues} dialogues, "
        "figures by cross-validation",
        soft_wrap=True,
    )
    figures = Table(box=None, pad_edge=False)
    for column in ("", "figure", "95 %"):
        figures.add_column(column, justify="right" if column else "left")
    precision = "-" if curve.reached_precision is None else f"{curve.reached_precision:.2f}"
    figures.add_row("AUC", f"{curve.auc:.2f}", _ends(curve.auc_interval))
    figures.add_row(
        f"precision, {curve.precision:g} asked for", precision, _ends(curve.precision_interval)
    )
    figures.add_row("recall", f"{curve.recall:.2f}", _ends(curve.recall_interval))
    OUT.print(figures)
    kinds = Table(box=None, pad_edge=False)
    for column in ("kind", "pairs", "passed", "passed turned round"):
        kinds.add_column(column, justify="left" if column == "kind" else "right")
    for name, of in curve.kinds.items():
        kinds.add_row(escape(name), str(of.pairs), str(of.accepted), str(of.accepted_wrong))
    OUT.print(kinds)
    OUT.print(
        f"log-odds that chosen is better: {curve.preference_weight:.3g} x preference + {curve.margin_weight:.3g} "
        f"x margin; a pair passes from a probability of {curve.threshold:.3f} on",
        soft_wrap=True,
    )
    if curve.fitted_on == "twins":
        OUT.print(f"[yellow]{COARSE}.[/yellow]", soft_wrap=True)
    file = escape(str(out))
    OUT.print(
        f"written: {file}; a recipe uses it as `fork: {{curve: {file}}}` or "
        f"`natural: {{verify: {{curve: {file}}}}}`",
        soft_wrap=True,
    )


def _ends(interval: tuple[float, float]) -> str:
    return f"{interval[0]:.2f} to {interval[1]:.2f}"
