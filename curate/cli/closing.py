"""The closing table that `curate run` prints at its end: three short blocks.

The blocks show what came in, what the judge found and what came out. Warnings follow, and one line on what to do next.
Tokens, funnels and checks are printed by `--verbose` and by `curate show` (`show_figures`).
"""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from rich.bar import Bar
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from curate.cli.printing import clip, duration, listed
from curate.cli.show_run import decay_in_words, show_figures
from curate.wording import plural

if TYPE_CHECKING:
    from curate.records import Manifest
    from curate.run.result import RunResult

_BAR = 14
_REASONS = 3

Line = tuple[str, str, float | None, str]
"""Name, number, share in [0, 1] to show as a bar, and a note."""


def show_run(console: Console, result: RunResult, *, verbose: bool = False) -> None:
    """Print three blocks, warnings, one line of advice and how the run ended; with `verbose` all figures first."""
    manifest = result.manifest
    if verbose:
        show_figures(console, manifest)
    for title, lines in (
        ("What came in", _came_in(manifest)),
        (_judge_title(manifest), chain(_scores(manifest), _true_shares(result))),
        ("What came out", _came_out(manifest)),
    ):
        rows = list(lines)
        if rows:
            console.print(f"[bold]{escape(title)}[/bold]", soft_wrap=True)
            console.print(_block(rows))
            console.print()
    show_end(console, result)


def show_end(console: Console, result: RunResult) -> None:
    """Print what went wrong, what to do next, and how the run ended."""
    manifest, folder = result.manifest, result.folder
    notices = Table.grid(padding=(0, 1))
    notices.add_column(no_wrap=True)
    notices.add_column(overflow="fold")
    for sentence in filter(None, (manifest.levels, manifest.role_threshold)):
        notices.add_row("note:", escape(sentence), style="dim")
    for name, text in _unscored_examples(manifest, folder):
        notices.add_row("[yellow]unscored:[/yellow]", f"{name} of {escape(clip(text))}")
    for warning in _warnings(manifest):
        notices.add_row("[yellow]warning:[/yellow]", escape(warning))
    if notices.row_count:
        console.print(notices)
        console.print()
    # What is to be copied is never wrapped.
    next_step = escape(_next_step(manifest, folder))
    console.print(f"[cyan]next:[/cyan] {next_step}", soft_wrap=True)
    color = {"done": "green", "failed": "red"}.get(manifest.status, "yellow")
    console.print(
        f"[bold {color}]{_STATUS[manifest.status]}[/bold {color}] in {duration(manifest.seconds)}{escape(_spent(manifest))}"
    )
    console.print(f"  {escape(str(folder))}", soft_wrap=True)


_STATUS = {
    "running": "still running",
    "done": "done",
    "failed": "failed",
    "budget": "stopped by the budget",
    "unscored": "finished over the allowed share of unscored",
}


def _block(lines: list[Line]) -> Table:
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column(min_width=16, no_wrap=True)
    table.add_column(justify="right", min_width=7, no_wrap=True)
    has_bars = any(share is not None for _, _, share, _ in lines)
    if has_bars:
        table.add_column(min_width=_BAR, no_wrap=True)
    table.add_column(style="dim", overflow="fold")
    for name, number, share, note in lines:
        bar = "" if share is None else Bar(1.0, 0, share, width=_BAR, color="cyan")
        bars = [bar] if has_bars else []
        table.add_row(f"  {escape(name)}", number, *bars, escape(note))
    return table


def _came_in(manifest: Manifest) -> Iterator[Line]:
    used = f"{manifest.rows_used:,} used + {manifest.quarantined:,} quarantined"
    if reasons := _summed(manifest, "reasons"):
        used += f" ({_listed_first(reasons)})"
    yield "rows in", f"{manifest.rows_in:,}", None, used
    for name, key in (("rows left out", "rows_left_out"), ("parts left out", "items_left_out")):
        if counts := _summed(manifest, key):
            yield name, f"{counts.total():,}", None, listed(counts)
    roles = _roles(manifest)
    if manifest.not_sampled:
        roles += f"; {manifest.not_sampled:,} more not sampled, by the sources' weights"
    yield "dialogues", f"{manifest.dialogues:,}", None, roles


def _summed(manifest: Manifest, key: str) -> Counter[str]:
    """Return the counts that all sources have under a key."""
    return sum((Counter(source.get(key, {})) for source in manifest.sources), Counter())


def _judge_title(manifest: Manifest) -> str:
    judge = manifest.identities.get("judge")
    return "What the judge found" + (f" ({judge.model})" if judge is not None else "")


def _scores(manifest: Manifest) -> Iterator[Line]:
    from curate.records import VERDICTS

    judged = sum(manifest.verdicts.values())
    for name in reversed(VERDICTS):
        if judged:
            number = manifest.verdicts.get(name, 0)
            yield name, f"{number:,}", number / judged, f"{number / judged:.0%}"
    if manifest.unscored:
        share = manifest.unscored / manifest.dialogues if manifest.dialogues else None
        reasons = (
            f"{name}: {listed(of.reasons)}" for name, of in manifest.stages.items() if of.reasons
        )
        yield "unscored", f"{manifest.unscored:,}", share, "; ".join(reasons)
    if manifest.jury is not None:
        jury = manifest.jury
        share = jury.same_verdict / jury.dialogues
        yield "one verdict", f"{jury.same_verdict:,}", share, jury.sentence
    if manifest.cascade is not None:
        cascade = manifest.cascade
        yield "escalated", f"{cascade.escalated:,}", cascade.share, cascade.sentence
    if manifest.adherence is not None:
        yield "role adherence", "", None, decay_in_words(manifest.adherence)
    metrics = manifest.metrics
    if metrics is not None and metrics.dialogues and metrics.overall_mean is not None:
        passed = f"of 100 on average; {metrics.passed:,} of {metrics.dialogues:,} pass"
        yield "metrics", f"{metrics.overall_mean:.1f}", metrics.overall_mean / 100, passed
    facts = manifest.factuality
    if facts is not None and facts.mean_precision is not None:
        mean = facts.mean_precision
        yield "facts", f"{mean:.2f}", mean, "share of claims that are true"


def _true_shares(result: RunResult) -> Iterator[Line]:
    """Yield shares corrected for the judge's errors, if `curate agreement` was run on these scores."""
    from curate.run.labels.agreement_marks import current_agreement

    report = current_agreement(result.folder, result.manifest.fingerprints)
    for share in report.shares if report is not None else ():
        if share.corrected is None or share.interval is None:
            continue
        low, high = share.interval
        yield (
            f"truly {share.name.split()[0]}",
            f"{share.corrected:.0%}",
            share.corrected,
            f"of {share.name.split()[1]} (95 % {low:.0%} to {high:.0%}): the judge's {share.reported:.0%} corrected by "
            "people's labels",
        )


def _came_out(manifest: Manifest) -> Iterator[Line]:
    from curate.export.counts import files, refusals

    whole = manifest.dialogues or 1
    yield "selected", f"{manifest.selected:,}", manifest.selected / whole, "dialogues, as SFT rows"
    if rejected := sum(manifest.rejections.values()):
        first = _listed_first(manifest.rejections)
        yield "rejected", f"{rejected:,}", rejected / whole, f"by first reason: {first}"
    others = {name: n for name, n in manifest.sets.items() if name in ("review", "active") and n}
    if others:
        yield "set aside", "", None, listed(others)
    yield "pairs", f"{manifest.pairs:,}", None, "made and verified by the judge"
    if manifest.natural_pairs:
        yield "natural pairs", f"{manifest.natural_pairs:,}", None, _natural_note(manifest)
    if manifest.dropped:
        yield "dropped pairs", f"{manifest.dropped:,}", None, _listed_first(manifest.drop_reasons)
    for trainer, counts in manifest.exports.items():
        rows = listed({name: number for name, number in files(counts).items() if number})
        refused = "".join(
            f"; refused of {name}: {listed(own)}" for name, own in refusals(counts).items()
        )
        total = sum(files(counts).values())
        yield f"export/{trainer}", f"{total:,}", None, f"rows: {rows or 'none'}{refused}"


def _roles(manifest: Manifest) -> str:
    origins = {
        "field": "from a field",
        "system": "from the system message",
        "recipe": "from the recipe",
        "none": "without",
    }
    roles = [
        f"{n:,} {text}" for origin, text in origins.items() if (n := manifest.roles.get(origin))
    ]
    return f"role: {', '.join(roles)}" if roles else ""


def _natural_note(manifest: Manifest) -> str:
    agreement = manifest.label_agreement
    if agreement is None:
        return "from the data; no judge compared them"
    verified = "verified by the judge" if agreement.is_shown else "not verified"
    return f"from the data; {verified}: {agreement.described}"


def _listed_first(counts: Mapping[str, int]) -> str:
    """Return the commonest names with their numbers, and how many more names there are."""
    ordered = Counter(counts).most_common()
    first = ", ".join(f"{name} {number:,}" for name, number in ordered[:_REASONS])
    return first + (f", and {len(ordered) - _REASONS} more" if len(ordered) > _REASONS else "")


def _unscored_examples(manifest: Manifest, folder: Path) -> Iterator[tuple[str, str]]:
    """Yield the first dialogue that each stage left without a score, and the reason."""
    from curate.records import SCORING
    from curate.run.read_back import unscored_example

    for name in SCORING:
        if name in manifest.stages and manifest.stages[name].reasons:
            example = unscored_example(folder, manifest, name)
            if example is not None:
                yield name, f"{example[0]}: {example[1]}"


def _warnings(manifest: Manifest) -> list[str]:
    from curate.trust.failure_modes import mode_rows

    modes = [] if manifest.judge_checks is None else manifest.judge_checks.failure_modes
    failing = mode_rows([mode for mode in modes if mode.status == "warn"])
    return [
        *(f"{name} {figure} (at most {limit}): {text}" for name, figure, limit, _, text in failing),
        *manifest.warnings,
    ]


def _next_step(manifest: Manifest, folder: Path) -> str:
    """Return the one thing to do now."""
    if manifest.status == "budget":
        return "raise `budget:` in the recipe and run it again; it goes on where it stopped"
    if manifest.status == "unscored":
        return _for_scores(manifest)
    if manifest.status != "done":
        return "the same command goes on where it stopped"
    if manifest.quarantined > manifest.rows_used:
        return "most rows were not read; quarantine.jsonl has each with its reason"
    return f"curate report {shlex.quote(str(folder))}   (the whole run as a page)"


def _for_scores(manifest: Manifest) -> str:
    """Return what to do about the commonest reason for no score; a server's fault may be over by the next run."""
    from curate.executors.first_rows import WHAT_HELPS
    from curate.records import UnscoredReason

    reasons: Counter[str] = Counter()
    for stage in manifest.stages.values():
        reasons.update({name: n for name, n in stage.reasons.items() if name in WHAT_HELPS})
    again = "the same command with --retry unscored asks again for what has no score"
    if not reasons or (first := reasons.most_common(1)[0][0]) == UnscoredReason.ENGINE_ERROR:
        return again
    return f"mostly {first}: {WHAT_HELPS[first]}; then {again}"


def _spent(manifest: Manifest) -> str:
    """Return requests, tokens and cost, if there were any."""
    from curate.recipe import left_out_of_cost

    if not manifest.requests:
        return ", no model calls"
    tokens = manifest.tokens_in + manifest.tokens_out
    text = f", {plural(manifest.requests, 'request')}, {plural(tokens, 'token')}"
    if manifest.cost is not None:
        left_out = f", {left_out_of_cost(manifest.unpriced)}" if manifest.unpriced else ""
        text += f", cost {manifest.cost:.4f} at the recipe's prices{left_out}"
    return text
