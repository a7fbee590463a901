"""`curate probe`: test a recipe's judge on planted flaws before you trust it, or compare two judges."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from curate.cli.console import (
    ERR,
    OUT,
    AsJson,
    Overrides,
    RateFrom,
    RateOption,
    print_json,
    print_line,
    resumable,
)
from curate.cli.printing import duration, ends, number_cell, number_table
from curate.errors import UsageError
from curate.run import exit_codes
from curate.wording import plural

if TYPE_CHECKING:
    from curate.recipe import Recipe
    from curate.records import ComparedLine, ProbeComparison, ProbeLine, ProbeReport
    from curate.run.probe_asking import Probed
    from curate.run.probe_plan import ProbePlan

_SECTIONS = {
    "finding": "does it find flaws? (every line should pass)",
    "kinds": "which kinds of flaws does it see?",
    "steadiness": "does it stay the same when nothing that matters changes?",
    "hidden": "does it obey what is hidden in a dialogue?",
}
_STYLES = {"fail": "red", "unclear": "yellow"}


@dataclass(frozen=True, slots=True)
class _Options:
    """The options that hold for one probe as for two that are compared."""

    data: str | None
    limit: int
    seed: int
    policy: int
    rate: str | None
    rate_from: Path | None
    overrides: list[str]
    dry_run: bool
    as_json: bool


def probe(
    recipe: Annotated[
        Path | None,
        typer.Argument(metavar="RECIPE", help="Recipe whose judge is tested; none with --compare."),
    ] = None,
    data: Annotated[
        str | None,
        typer.Option(
            help="Path or Hub id of good dialogues to plant flaws in (default: curate's sample)."
        ),
    ] = None,
    limit: Annotated[
        int | None,
        typer.Option(
            min=13,
            help="Plant at most this many flaws (default 312); other lines of the card have a tenth as many.",
        ),
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the draws.")] = 42,
    policy: Annotated[
        int,
        typer.Option(
            min=0,
            help="Have the recipe's policy model write this many of the flaws instead of fixed edits.",
        ),
    ] = 0,
    compare: Annotated[
        tuple[Path, Path] | None,
        typer.Option(
            metavar="A B",
            help="Compare two recipes, or run folders with a card: which judge, prompt or mode does better on the "
            "same cases. A recipe without a card of these cases is probed first.",
        ),
    ] = None,
    rate: RateOption = None,
    rate_from: RateFrom = None,
    set_: Overrides = None,
    out: Annotated[
        Path | None,
        typer.Option(help="Folder for the card and the replies (default runs/<name>)."),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print what it would cost; no model calls.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Plant flaws in good dialogues, and test whether the judge finds them and what else moves its scores.

    The card is in the run folder as trust/probe.json. If it is interrupted, the same command continues.
    """
    from curate.recipe import load_recipe
    from curate.run.probe_plan import CASES

    options = _Options(
        data, limit or CASES, seed, policy, rate, rate_from, set_ or [], dry_run, as_json
    )
    if compare is not None:
        if recipe is not None or out is not None:
            raise UsageError(
                "--compare takes two recipes or run folders and nothing else",
                got=recipe or f"--out {out}",
                fix="curate probe --compare A B",
            )
        _compare(compare, options)
        return
    if recipe is None:
        raise UsageError("no recipe is named", expected="curate probe RECIPE, or --compare A B")
    loaded = load_recipe(recipe, options.overrides)
    run = out or Path("runs") / loaded.name
    probed = _probe(loaded, run, options)
    if probed is None:
        return
    if as_json:
        print_json(probed.report)
    else:
        _show_card(probed.report)
        print_line(f"written: {escape(str(run / 'trust' / 'probe.json'))}")
    allowed = loaded.max_unscored
    if probed.unscored_share > allowed:
        ERR.print(
            f"[yellow]warning:[/yellow] {probed.unscored_share:.0%} of the requested scores are unscored, more than "
            f"`max_unscored` ({allowed:.0%}) allows",
            soft_wrap=True,
        )
        raise typer.Exit(exit_codes.OVER_UNSCORED)


def _probe(recipe: Recipe, run: Path, options: _Options) -> Probed | None:
    """Plan, print what it costs, ask the judge and keep the card; return None for a dry run."""
    from curate.cli.progress import one_bar
    from curate.planning.rates import parse_rates
    from curate.run.plan import known_rates
    from curate.run.probe import plan_probe, probe_judge, write_probe
    from curate.storage.run_folder import REPLIES

    stated = None if options.rate is None else parse_rates(options.rate)
    rates = known_rates(stated, options.rate_from)
    plan = plan_probe(recipe, options.data, options.limit, options.seed, options.policy, rates)
    if not options.as_json:
        _show_plan(plan)
    elif options.dry_run:
        print_json(_plan_as_dict(plan))
    if options.dry_run:
        return None
    with resumable(), one_bar("probing", hidden=options.as_json) as progress:
        probed = probe_judge(recipe, plan, run / REPLIES, progress=progress)
    write_probe(run, probed)
    return probed


def _plan_as_dict(plan: ProbePlan) -> dict[str, object]:
    from curate.trust.probe_cases import cases_by_kind

    return {
        "cases": len(plan.cases),
        "kinds": cases_by_kind(plan.cases),
        "dialogues_judged": len(plan.judged),
        "requests": round(plan.load.requests),
        "prompt_tokens": round(plan.load.prompt),
        "prefilled_tokens": round(plan.load.prefilled),
        "completion_tokens": round(plan.load.completion),
        "seconds": plan.seconds,
        "cost": plan.cost,
        "policy_requests": 2 * plan.by_policy,
        "source": plan.source,
    }


def _show_plan(plan: ProbePlan) -> None:
    groups = len({case.group for case in plan.cases})
    cost = "" if plan.cost is None else f", cost at most {plan.cost:.4f} at the recipe's prices"
    print_line(
        f"{plural(len(plan.cases), 'flaw')} planted in {plural(groups, 'dialogue')} of {escape(plan.source)}; "
        f"{len(plan.judged):,} versions to judge"
        + (
            ""
            if len(plan.cases) >= plan.limit
            else f" ({plural(plan.limit, 'flaw')} asked for; there is no room for more)"
        )
    )
    print_line(
        f"to the judge, at most: {plural(round(plan.load.requests), 'request')}, about {plan.load.prompt:,.0f} prompt "
        f"tokens, {plan.load.prefilled:,.0f} with shared prefixes (4 characters a token){cost}"
    )
    if plan.seconds is None or plan.rates is None:
        OUT.print("time: no rate is known; give --rate or --rate-from")
    else:
        print_line(f"time: {duration(plan.seconds)} ({escape(plan.rates.source)})")
    if plan.by_policy:
        OUT.print(f"to the policy: {plural(2 * plan.by_policy, 'request')}, up to three times each")


def _show_card(report: ProbeReport) -> None:
    """Print the card, one table for each section, and its sentence."""
    from curate.trust.probe_card import LEAST_DIALOGUES

    judge = report.identity
    harmless = report.changed_harmlessly
    print_line(
        f"[bold]{escape(judge.model)}[/bold] ({judge.engine}, mode {judge.mode}): {plural(report.cases, 'flaw')} in "
        f"{plural(report.dialogues, 'dialogue')} of {escape(report.source)}. Half of the flaws change more than "
        f"{report.changed:.0%} of a message"
        + (f", half of the harmless edits more than {harmless:.0%}." if harmless else ".")
    )
    if "policy" in report.planted_by:
        left = ", ".join(f"{reason} {number}" for reason, number in report.not_planted.items())
        OUT.print(
            f"written by the policy: {report.planted_by['policy']}"
            + (f"; edited instead, because its text could not be used: {left}" if left else "")
        )
    for section, question in _SECTIONS.items():
        columns = ("line", "value", "95 %", "baseline", "detectable", "n", "")
        table = number_table(*columns, texts=("",), title=question, title_justify="left")
        lines = [line for line in report.lines if line.section == section]
        for line in lines:
            if line.state != "not_run":
                table.add_row(
                    _in_words(line.name),
                    number_cell(line.value or 0.0, _form(line)),
                    ends(line.interval or (0.0, 0.0), _form(line)),
                    number_cell(line.against or 0.0, _form(line)),
                    number_cell(line.detectable),
                    str(line.n),
                    line.state,
                    style=_STYLES.get(line.state, ""),
                )
        OUT.print(table if table.rows else f"[italic]{question}[/italic]")
        missing = ", ".join(_in_words(line.name) for line in lines if line.state == "not_run")
        if missing:
            print_line(
                f"[dim]not run, needs cases of {plural(LEAST_DIALOGUES, 'dialogue')}: {missing}[/dim]"
            )
    if report.unscored:
        reasons = ", ".join(f"{reason} {number}" for reason, number in report.unscored.items())
        OUT.print(f"unscored: {reasons} (of {report.asked:,} requested)")
    if report.without_harmless:
        OUT.print(f"without a harmless edit: {report.without_harmless} of {report.cases}")
    print_line(escape(report.sentence))


def _in_words(name: str) -> str:
    return name.replace("_", " ")


def _form(line: ProbeLine | ComparedLine) -> str:
    return ".2f" if line.unit == "share" else "+.2f"


def _compare(sides: tuple[Path, Path], options: _Options) -> None:
    from curate.run.probe import compare_probes

    first, second = (_card_of(side, options) for side in sides)
    if first is None or second is None:
        return
    comparison = compare_probes(first, second)
    if options.as_json:
        print_json(comparison)
    else:
        _show_comparison(comparison, sides)


def _card_of(side: Path, options: _Options) -> Probed | None:
    """Return the card of a run folder, or of a recipe, whose judge is probed first; earlier replies are kept."""
    from curate.recipe import load_recipe
    from curate.run.probe import read_probe

    if not side.is_dir():
        recipe = load_recipe(side, options.overrides)
        return _probe(recipe, Path("runs") / recipe.name, options)
    probed = read_probe(side)
    if probed is None:
        raise UsageError(
            "the run folder has no card of a probe",
            got=side,
            fix="`curate probe RECIPE` writes one; or name the recipe in place of the folder",
        )
    return probed


def _show_comparison(comparison: ProbeComparison, sides: tuple[Path, Path]) -> None:
    """Print how two judges differ, line by line, and the comparison's sentence."""
    for name, path, judge in zip("AB", sides, (comparison.first, comparison.second), strict=True):
        heading = f"{name}: {path} ({judge.model}, {judge.engine}, mode {judge.mode})"
        print_line(escape(heading))
    columns = ("line", "A", "B", "A-B", "95 %", "detectable", "n", "better")
    table = number_table(*columns, texts=("better",))
    for line in comparison.lines:
        table.add_row(
            _in_words(line.name),
            number_cell(line.first, _form(line)),
            number_cell(line.second, _form(line)),
            f"{line.difference:+.2f}",
            ends(line.interval, "+.2f").replace(" to ", ":"),
            number_cell(line.detectable),
            str(line.n),
            {"first": "A", "second": "B"}.get(line.better, ""),
        )
    OUT.print(table)
    unmatched = comparison.only_first + comparison.only_second
    if unmatched:
        OUT.print(f"left out because only one of them has it: {plural(unmatched, 'figure')}")
    print_line(escape(comparison.sentence))
