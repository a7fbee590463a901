"""Printing of all figures of a run, for `curate show RUN` and `curate run --verbose`: stages, funnels, checks, scores."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from curate.cli.printing import ends, listed, model_line, number_cell, number_table, show_source

if TYPE_CHECKING:
    from curate.records import (
        AdherenceDecay,
        FactualityReport,
        JudgeChecks,
        Manifest,
        MetricsReport,
    )

_POSITIONS = 10  # of a dialogue's replies, in the table of role adherence


def show_figures(console: Console, manifest: Manifest) -> None:
    """Print all figures of a run: sources, judges, load, funnels, checks, expected beside actual load."""
    for source in manifest.sources:
        show_source(console, source)
    for name, identity in manifest.identities.items():
        console.print(f"{model_line(name, identity)}, prompts {identity.prompt_version}")
    if manifest.stages:
        console.print(_stage_table(manifest))
    if manifest.rejection_reasons:
        console.print(_rejection_table(manifest))
    show_funnels(console, manifest)
    for kind, decided in manifest.pair_decisions.items():
        console.print(f"pairs decided ({kind}): {escape(decided)}")
    if manifest.pair_checks:
        console.print(_pair_check_table(manifest))
    if manifest.judge_checks is not None:
        _show_judge_checks(console, manifest.judge_checks)
    if manifest.adherence is not None:
        show_decay(console, manifest.adherence)
    if manifest.metrics is not None:
        _show_metrics(console, manifest.metrics)
    if manifest.factuality is not None:
        _show_factuality(console, manifest.factuality)
    _show_comparison(console, manifest)
    for sentence in manifest.trust.values():
        console.print(escape(sentence))
    if manifest.review is not None:
        console.print(escape(manifest.review.described))


def _stage_table(manifest: Manifest) -> Table:
    columns = ("rows", "reused", "requests", "sent", "tokens in", "cached", "out")
    table = number_table("stage", *columns)
    for name, stage in manifest.stages.items():
        numbers = (
            stage.rows,
            stage.reused,
            stage.requests,
            stage.requests_sent,
            stage.prompt_tokens,
            stage.cached_tokens,
            stage.completion_tokens,
        )
        table.add_row(name, *(f"{number:,}" for number in numbers))
    return table


def _rejection_table(manifest: Manifest) -> Table:
    """Return for each reason how many dialogues have it as their first one, and how many have it at all."""
    first, every = manifest.rejections, manifest.rejection_reasons
    table = number_table("rejected for", "as first reason", "in all")
    for name in sorted(every, key=lambda reason: (-first.get(reason, 0), -every[reason])):
        table.add_row(escape(name), f"{first.get(name, 0):,}", f"{every[name]:,}")
    return table


def show_funnels(console: Console, manifest: Manifest) -> None:
    """Print the funnels from dialogues to pairs: what entered each stage, what passed, what it dropped and why."""
    for kind, stages in manifest.funnels.items():
        columns = ("stage", "of", "in", "passed", "dropped")
        title = f"pairs: {kind}"
        table = number_table(*columns, texts=("of", "dropped"), title=title, title_justify="left")
        unit = ""
        for stage in stages:
            shown = stage.unit if stage.unit != unit else ""
            unit = stage.unit
            numbers = (f"{stage.entered:,}", f"{stage.passed:,}")
            dropped = ", ".join(f"{code} {number}" for code, number in stage.dropped.items())
            table.add_row(stage.name, shown, *numbers, dropped)
        console.print(table)


def _pair_check_table(manifest: Manifest) -> Table:
    """Return a table of the checks over the sets of pairs; those that were not run say why."""
    from curate.trust.pair_set import check_rows

    table = number_table("pairs", "check", "figure", "limit", "", texts=("check", ""))
    for *cells, status in check_rows(manifest.pair_checks):
        style = {"warn": "yellow", "not ": "dim"}.get(status[:4], "")
        table.add_row(*cells, escape(status), style=style)
    return table


def _show_judge_checks(console: Console, checks: JudgeChecks) -> None:
    """Print how often a run's judge disagrees with itself, and a table of the known ways to fail."""
    from curate.trust.failure_modes import mode_rows
    from curate.trust.judge_checks import checks_in_words

    for line in checks_in_words(checks):
        console.print(escape(line))
    table = number_table("known way of judges to fail", "figure", "at most", "", "", texts=("",))
    for *cells, detail in mode_rows(checks.failure_modes):
        style = {"warn": "yellow", "pass": ""}.get(cells[-1], "dim")
        table.add_row(*cells, escape(detail), style=style)
    console.print(table)


def decay_in_words(decay: AdherenceDecay) -> str:
    """Return after how many turns half of the dialogues have broken their role."""
    if decay.median_turns_in_role is None:
        return "fewer than half of the dialogues break their role"
    return f"half of the dialogues have broken their role by turn {decay.median_turns_in_role}"


def show_decay(console: Console, decay: AdherenceDecay) -> None:
    """Print how role adherence changes over the turns: one line for the whole, a table of the first positions."""
    slope = ""
    if decay.slope is not None:
        shown = f" ({ends(decay.slope_interval, '+.3f')})" if decay.slope_interval else ""
        slope = f"{decay.slope:+.3f}{shown} from one turn to the next; "
    console.print(f"role adherence by turn: {slope}{decay_in_words(decay)}")
    columns = ("scored", "mean", "95 %", "first broken", "of", "still in role", "95 %")
    table = number_table("reply", *columns)
    table.columns[0].justify = "right"
    for reply in decay.positions[:_POSITIONS]:
        low, high = reply.interval or (None, None)
        table.add_row(
            str(reply.position),
            f"{reply.scored:,}",
            number_cell(reply.mean, ".3f"),
            "" if low is None else f"{low:.3f}-{high:.3f}",
            f"{reply.violations:,}",
            f"{reply.at_risk:,}",
            f"{reply.survival:.3f}",
            "{:.3f}-{:.3f}".format(*reply.survival_interval),
        )
    console.print(table)
    if len(decay.positions) > _POSITIONS:
        console.print(f"[dim]… {len(decay.positions) - _POSITIONS} more in manifest.json[/dim]")


def _show_metrics(console: Console, report: MetricsReport) -> None:
    """Print the weighted metrics over all scored dialogues: one line for the whole, and one for each metric."""
    if not report.dialogues:
        return
    console.print(
        f"metrics: overall {report.overall_mean:.1f} of 100 on average, {report.passed:,} of {report.dialogues:,} "
        f"pass; weights changed by up to 20 % would flip {report.flippable:,} of these decisions"
    )
    columns = ("weight", "mean", "scored", "n/a", "poor", "commonest failures")
    table = number_table("metric", *columns, texts=columns[-1:])
    for name, metric in report.metrics.items():
        failures = [*metric.failure_codes.items()][:3]
        table.add_row(
            name,
            f"{metric.weight:.3f}",
            number_cell(metric.mean),
            f"{metric.scored:,}",
            f"{metric.na:,}",
            f"{metric.poor:,}",
            escape(", ".join(f"{code} {number}" for code, number in failures)),
        )
    console.print(table)


def _show_factuality(console: Console, report: FactualityReport) -> None:
    """Print the facts over all dialogues: precision, claims by label, and the evidence they were checked against."""
    if not report.dialogues:
        return
    mean = report.mean_precision
    console.print(
        "facts: "
        + ("no claims" if mean is None else f"precision {mean:.2f} a dialogue on average")
        + f"; claims: {listed(report.labels) or 'none'}; checked against: {listed(report.evidence) or 'nothing'}"
    )


def _show_comparison(console: Console, manifest: Manifest) -> None:
    """Print the expected beside the actual load, if the run was estimated at its start."""
    from curate.planning.estimate_beside_actual import compare

    compared = compare(manifest)
    if compared is None:
        return
    table = number_table("", "expected", "actual")
    for row in compared.rows:
        table.add_row(row.name, row.shown(row.expected), row.shown(row.actual))
    console.print(table)
    for note in compared.notes:
        console.print(f"  [dim]{escape(note)}[/dim]")
