"""`curate estimate`: estimate a run's requests, tokens, time and cost; printing of plans."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape

from curate.cli.console import (
    OUT,
    AsJson,
    Limit,
    Overrides,
    RateFrom,
    RateOption,
    RecipeFile,
    print_json,
)
from curate.cli.printing import duration, model_line, number_table, show_source
from curate.wording import plural

if TYPE_CHECKING:
    from curate.records import Estimate, StageEstimate
    from curate.run.plan import Plan

_COLUMNS = {
    "requests": "requests",
    "prompt_tokens": "tokens in",
    "prefilled_tokens": "after sharing",
    "completion_tokens": "tokens out",
}


def estimate(
    recipe: RecipeFile,
    set_: Overrides = None,
    limit: Limit = None,
    out: Annotated[Path | None, typer.Option(help="Run folder (default runs/<name>).")] = None,
    sample: Annotated[
        int, typer.Option(min=1, help="Dialogues in the sample to scale up from.")
    ] = 200,
    rate: RateOption = None,
    rate_from: RateFrom = None,
    measure: Annotated[
        bool,
        typer.Option("--measure", help="Measure the rates with up to 16 questions to the judge."),
    ] = False,
    fork_share: Annotated[
        float | None,
        typer.Option(min=0, max=1, help="Expected share of dialogues that are forked."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Estimate a run's requests, tokens, time and cost from a sample; no model calls without --measure."""
    from curate.executors.loop import run as run_in_loop
    from curate.planning.rates import parse_rates
    from curate.recipe import load_recipe
    from curate.run.plan import Assumptions, make_plan

    assumptions = Assumptions(
        sample=sample,
        rates=parse_rates(rate) if rate is not None else None,
        rates_from=rate_from,
        measure=measure,
        fork_share=fork_share,
    )
    loaded = load_recipe(recipe, set_ or [])
    plan = run_in_loop(make_plan(loaded, limit=limit, out=out, assumptions=assumptions))
    if as_json:
        print_json(plan.as_dict())
    else:
        show_plan(OUT, plan)


def show_plan(console: Console, plan: Plan) -> None:
    """Print what would be read, which models would be called and how much."""
    calls = "no model calls so far"
    if plan.measured is not None:
        usage = plan.measured.usage
        calls = (
            f"{plural(plan.measured.calls, 'call')} to measure the rates: {plural(usage.prompt_tokens, 'token')} in, "
            f"{usage.completion_tokens:,} out"
        )
    console.print(f"[bold]plan[/bold] of recipe '{escape(plan.recipe.name)}' ({calls})")
    for source in plan.sources:
        show_source(console, source)
    for name, identity in plan.identities.items():
        console.print(model_line(name, identity))
    if plan.policy is not None:
        console.print(f"policy: {escape(plan.policy.model)} ({plan.policy.engine})")
    if plan.estimate is not None:
        show_estimate(console, plan.estimate)
        if plan.left is not None:
            _show_left(console, plan.left, plan.estimate)
    for warning in plan.warnings:
        console.print(f"[yellow]warning:[/yellow] {escape(warning)}")
    console.print(f"would write {escape(str(plan.folder))}")


def show_estimate(console: Console, expected: Estimate) -> None:
    """Print requests and tokens of each stage, time, cost and assumptions."""
    from curate.recipe import left_out_of_cost

    table = number_table("stage", *_COLUMNS.values())
    rows: dict[str, StageEstimate] = dict(expected.stages)
    if len(rows) > 1:
        rows["all"] = expected.total
    for name, stage in rows.items():
        table.add_row(name, *(f"{getattr(stage, column):,}" for column in _COLUMNS))
    intervals = [
        _between(expected.total.intervals.get(column), "{:,.0f}".format) for column in _COLUMNS
    ]
    if any(intervals):
        table.add_row("95 %", *intervals, style="dim")
    console.print(table)
    console.print(f"estimated from {expected.sampled} of {plural(expected.dialogues, 'dialogue')}")
    if expected.seconds is not None:
        about = _between(expected.seconds_interval, duration)
        console.print(f"time: {duration(expected.seconds)}" + (f" ({about})" if about else ""))
    else:
        console.print("time: no rate is known; give --rate, --rate-from or --measure")
    if expected.cost is not None:
        about = _between(expected.cost_interval, "{:,.4g}".format)
        console.print(
            f"cost at the recipe's prices: {expected.cost:,.4g}"
            + (f" ({about})" if about else "")
            + f"; with nothing cached {expected.cost_without_cache or 0:,.4g}"
        )
        if expected.unpriced:
            console.print(f"  {left_out_of_cost(expected.unpriced)}")
    for assumption in expected.assumptions:
        console.print(f"  assumed: {escape(assumption)}")


def _show_left(console: Console, left: Estimate, whole: Estimate) -> None:
    """Print what is left to do, given the rows and replies kept from earlier runs."""
    total = left.total
    summary = f"left to do: {total.requests:,} of {plural(whole.total.requests, 'request')}"
    if not total.requests:
        console.print(f"[bold]{summary}[/bold]; everything is kept from an earlier run")
        return
    parts = [
        f"{plural(total.prompt_tokens, 'token')} in",
        f"{total.prefilled_tokens:,} after sharing",
        f"{total.completion_tokens:,} out",
    ]
    if left.seconds is not None:
        parts.append(duration(left.seconds))
    if left.cost is not None:
        parts.append(f"cost {left.cost:,.4g}")
    stages = {name: f"{stage.requests:,}" for name, stage in left.stages.items()}
    console.print(f"[bold]{summary}[/bold] ({', '.join(f'{n} {of}' for n, of in stages.items())})")
    console.print(f"  {', '.join(parts)}")


def _between(interval: tuple[float, float] | None, write: Any) -> str:
    if interval is None or interval[0] == interval[1]:
        return ""
    return f"{write(interval[0])} to {write(interval[1])}"
