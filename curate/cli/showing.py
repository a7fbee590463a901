"""How results look in a terminal of 80 columns. Nothing here decides anything."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Table
from rich.text import Text

from curate.cli.showing_plan import duration, listed, show_comparison, show_source
from curate.dialogue import Dialogue, Message
from curate.export.counts import files, refusals
from curate.recipe import left_out_of_cost
from curate.records import VERDICTS, AdherenceDecay, Manifest
from curate.run.ingest import IngestReport
from curate.run.pipeline import RunResult
from curate.run.read_back import unscored_example
from curate.trust.pair_set import check_rows

_CLIP = 300


class _RateColumn(ProgressColumn):
    def render(self, task: Task) -> Text:
        return Text(f"{task.speed:.1f}/s" if task.speed else "", style="progress.data.speed")


class RunProgress:
    """How far a run is: a bar a stage on a terminal, a line now and then where the output is a log.

    Call it with (stage, rows done, rows in all).

    Args:
        bars: where bars go, if it is a terminal.
        logs: the first that is no terminal gets the lines; none of them, if all are.
        every: seconds between two lines of a stage.
    """

    def __init__(self, bars: Console, *logs: Console, every: float = 15.0) -> None:
        self._bars = Progress(
            TextColumn("{task.description:<9}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            _RateColumn(),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            console=bars,
            disable=not bars.is_terminal,
        )
        self._tasks: dict[str, TaskID] = {}
        log = next((console for console in (*logs, bars) if not console.is_terminal), None)
        self._lines = None if log is None else _ProgressLines(log, every)

    def __call__(self, stage: str, done: int, total: int) -> None:
        """Move a stage's bar."""
        if stage not in self._tasks:
            self._tasks[stage] = self._bars.add_task(stage, total=total)
        self._bars.update(self._tasks[stage], completed=done, total=total)
        if self._lines is not None:
            self._lines.move(stage, done, total)

    def __enter__(self) -> RunProgress:
        self._bars.start()
        if self._lines is not None:
            self._lines.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bars.stop()
        if self._lines is not None:
            self._lines.stop()


class _ProgressLines:
    """Lines for a log: where a stage begins and ends, and between them at intervals, whether or not a row came."""

    def __init__(self, console: Console, every: float) -> None:
        self._console = console
        self._every = every
        self._guard = threading.Lock()
        self._stopped = threading.Event()
        self._clock = threading.Thread(target=self._tick, name="progress", daemon=True)
        self._began = self._said = time.monotonic()
        self._stage: str | None = None
        self._first = self._done = self._total = 0

    def start(self) -> None:
        self._clock.start()

    def stop(self) -> None:
        self._stopped.set()
        self._clock.join()
        self._end_stage()

    def move(self, stage: str, done: int, total: int) -> None:
        with self._guard:
            is_new = stage != self._stage
            if is_new:
                self._end_stage()
                self._stage, self._first, self._began = stage, done, time.monotonic()
            self._done, self._total = done, total
            if (is_new and done < total) or time.monotonic() - self._said >= self._every:
                self._say(self._where())

    def _tick(self) -> None:
        while not self._stopped.wait(self._every):
            with self._guard:
                if time.monotonic() - self._said >= self._every:
                    self._say(self._where())

    def _where(self) -> str:
        spent = time.monotonic() - self._began
        if self._stage is None:
            return f"starting, for {duration(spent)}"
        if self._done >= self._total:
            return f"{self._stage}: {self._done:,} done; still at work, for {duration(spent)}"
        said = f"{self._stage}: {self._done:,} of {self._total:,} ({self._done / self._total:.0%})"
        rate = (self._done - self._first) / spent if spent else 0.0
        if not rate:
            return said
        return f"{said}, {rate:.2g}/s, {duration((self._total - self._done) / rate)} left"

    def _end_stage(self) -> None:
        if self._stage is not None:
            spent = duration(time.monotonic() - self._began)
            self._say(f"{self._stage}: {self._done:,} of {self._total:,} done in {spent}")

    def _say(self, line: str) -> None:
        self._said = time.monotonic()
        self._console.print(line, soft_wrap=True)


def show_ingest(console: Console, report: IngestReport) -> None:
    """Shape, confidence, one normalised example, the row sum, and why rows were put aside."""
    described = report.report.as_dict()
    show_source(console, described)
    if report.example is not None:
        console.print("one dialogue, normalised:")
        _show_dialogue(console, report.example)
    for row in report.quarantine_examples:
        console.print(f"  {escape(row.file)}:{row.row} {row.reason}: {escape(_clip(row.detail))}")
    console.print(f"written: {escape(str(report.folder))}/dialogues.jsonl, quarantine.jsonl")


def show_run(console: Console, result: RunResult) -> None:
    """Sources, judges, and the closing table."""
    manifest = result.manifest
    for source in manifest.sources:
        show_source(console, source)
    for name, identity in manifest.identities.items():
        console.print(
            f"{name}: {escape(identity.model)} ({identity.engine}), mode [bold]{identity.mode}[/bold], "
            f"prompts {identity.prompt_version}"
        )
    if manifest.stages:
        console.print(_stage_table(manifest))
    console.print(_closing_table(manifest))
    for name in ("judge", "adherence"):
        has_some = name in manifest.stages and manifest.stages[name].reasons
        example = unscored_example(result.folder, manifest, name) if has_some else None
        if example is not None:
            console.print(f"{name} of {escape(_clip(example[0]))}: {escape(_clip(example[1]))}")
    show_funnels(console, manifest)
    for kind, decided in manifest.pair_decisions.items():
        console.print(f"pairs decided ({kind}): {escape(decided)}", soft_wrap=True)
    if manifest.pair_checks:
        console.print(_pair_check_table(manifest))
    if manifest.adherence is not None:
        show_decay(console, manifest.adherence, positions=0)
    if manifest.estimate is not None:
        show_comparison(console, manifest)
    if manifest.levels:
        console.print(escape(manifest.levels))
    for warning in manifest.warnings:
        console.print(f"[yellow]warning:[/yellow] {escape(warning)}")
    console.print(f"[bold]{_STATUS[manifest.status]}[/bold]: {escape(str(result.folder))}")


_STATUS = {
    "running": "still running",
    "done": "done",
    "failed": "failed",
    "budget": "stopped by the budget; the same command goes on",
    "unscored": "finished, over the allowed share of unscored; --retry unscored asks again",
}


def _closing_table(manifest: Manifest) -> Table:
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(style="bold")
    table.add_column(justify="right")
    table.add_column(style="dim")
    rows: list[tuple[str, object, str]] = [
        (
            "rows in",
            manifest.rows_in,
            f"= {manifest.rows_used} used + {manifest.quarantined} quarantined",
        ),
        (
            "dialogues",
            manifest.dialogues,
            f"and {manifest.not_sampled} not sampled, by the sources' weights"
            if manifest.not_sampled
            else "",
        ),
        (
            "with a role",
            sum(manifest.roles.values()) - manifest.roles.get("none", 0),
            _roles(manifest),
        ),
        ("unscored", manifest.unscored, _reasons(manifest)),
        *(
            (f"verdict {name}", manifest.verdicts[name], "")
            for name in reversed(VERDICTS)
            if name in manifest.verdicts
        ),
        (
            "selected",
            manifest.selected,
            listed({k: v for k, v in manifest.sets.items() if k != "sft"}),
        ),
        *_rejected(manifest),
        ("pairs", manifest.pairs, "made, and verified by the judge"),
        ("natural pairs", manifest.natural_pairs, _natural_note(manifest)),
        ("refused pairs", manifest.refused, listed(manifest.refusals)),
        *(
            (f"export {name}", sum(files(counts).values()), _exported(counts))
            for name, counts in manifest.exports.items()
        ),
        ("requests", manifest.requests, ""),
        (
            "tokens",
            f"{manifest.tokens_in + manifest.tokens_out:,}",
            f"{manifest.tokens_in:,} in ({manifest.tokens_cached:,} cached), {manifest.tokens_out:,} out",
        ),
        ("seconds", f"{manifest.seconds:.1f}", ""),
    ]
    if manifest.cost is not None:
        left_out = f", {left_out_of_cost(manifest.unpriced)}" if manifest.unpriced else ""
        rows.append(("cost", f"{manifest.cost:.4f}", f"at the recipe's prices{left_out}"))
    for name, value, note in rows:
        table.add_row(name, str(value), escape(note))
    return table


def _rejected(manifest: Manifest) -> list[tuple[str, object, str]]:
    """Why dialogues were not selected: for each reason those it is the first of, and all that have it."""
    first, every = manifest.rejections, manifest.rejection_reasons
    ordered = sorted(every, key=lambda name: (-first.get(name, 0), -every[name]))
    lines: list[tuple[str, object, str]] = [
        (f"rejected: {name}", first.get(name, 0), f"first reason; {every[name]} have it in all")
        for name in ordered
    ]
    if not lines:
        return []
    explained = "counted below by the first reason of each, and by all its reasons"
    return [("rejected", sum(first.values()), explained), *lines]


def _roles(manifest: Manifest) -> str:
    named = {
        "field": "from a field",
        "system": "from the system message",
        "recipe": "from the recipe",
    }
    counts = ((manifest.roles.get(origin, 0), text) for origin, text in named.items())
    return ", ".join(f"{number} {text}" for number, text in counts if number)


def _natural_note(manifest: Manifest) -> str:
    agreement = manifest.label_agreement
    if agreement is None:
        return "held by the data; no judge saw them"
    verified = "verified by the judge" if agreement.is_shown else "not verified"
    return f"held by the data; {verified}: {agreement.described}"


def show_funnels(console: Console, manifest: Manifest) -> None:
    """From dialogues to pairs: what entered each stage, what it refused and why, what passed it."""
    for kind, stages in manifest.funnels.items():
        table = Table(box=None, pad_edge=False, title=f"pairs: {kind}", title_justify="left")
        for column in ("stage", "of", "in", "passed", "refused"):
            is_number = column in ("in", "passed")
            table.add_column(column, justify="right" if is_number else "left")
        unit = ""
        for stage in stages:
            shown = stage.unit if stage.unit != unit else ""
            unit = stage.unit
            numbers = (f"{stage.entered:,}", f"{stage.passed:,}")
            refused = ", ".join(f"{code} {number}" for code, number in stage.refused.items())
            table.add_row(stage.name, shown, *numbers, refused)
        console.print(table)


def _pair_check_table(manifest: Manifest) -> Table:
    """The checks over the sets of pairs, a line each; what was not run says why."""
    table = Table(box=None, pad_edge=False)
    for column in ("pairs", "check", "figure", "limit", ""):
        table.add_column(column, justify="right" if column in ("figure", "limit") else "left")
    for *cells, status in check_rows(manifest.pair_checks):
        style = {"warn": "yellow", "not ": "dim"}.get(status[:4], "")
        table.add_row(*cells, escape(status), style=style)
    return table


def _exported(counts: Mapping[str, int]) -> str:
    """Rows by file, then whatever was refused, by file and reason."""
    rows = ", ".join(f"{name} {number}" for name, number in files(counts).items())
    refused = (f"; refused of {name}: {listed(own)}" for name, own in refusals(counts).items())
    return f"rows: {rows}{''.join(refused)}"


def _reasons(manifest: Manifest) -> str:
    return "; ".join(
        f"{name}: {listed(stage.reasons)}"
        for name, stage in manifest.stages.items()
        if stage.reasons
    )


def _stage_table(manifest: Manifest) -> Table:
    table = Table(box=None, pad_edge=False)
    for column in ("stage", "rows", "reused", "requests", "sent", "tokens in", "cached", "out"):
        table.add_column(column, justify="left" if column == "stage" else "right")
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


def show_decay(console: Console, decay: AdherenceDecay, positions: int = 10) -> None:
    """How role adherence changes with the turns: a line for the whole, a table of the first positions."""
    slope, median = decay.slope, decay.median_turns_in_role
    said = []
    if slope is not None:
        ends = decay.slope_interval
        shown = "" if ends is None else f" ({ends[0]:+.3f} to {ends[1]:+.3f})"
        said.append(f"{slope:+.3f}{shown} from one turn to the next")
    said.append(
        "fewer than half of the dialogues break their role"
        if median is None
        else f"half of the dialogues have broken their role by turn {median}"
    )
    console.print(f"role adherence by turn: {'; '.join(said)}")
    if not positions:
        return
    table = Table(box=None, pad_edge=False)
    for column in (
        "reply",
        "scored",
        "mean",
        "95 %",
        "first broken",
        "of",
        "still in role",
        "95 %",
    ):
        table.add_column(column, justify="right")
    for held in decay.positions[:positions]:
        low, high = held.interval or (None, None)
        table.add_row(
            str(held.position),
            f"{held.scored:,}",
            "" if held.mean is None else f"{held.mean:.3f}",
            "" if low is None else f"{low:.3f}-{high:.3f}",
            f"{held.violations:,}",
            f"{held.at_risk:,}",
            f"{held.survival:.3f}",
            "{:.3f}-{:.3f}".format(*held.survival_interval),
        )
    console.print(table)
    if len(decay.positions) > positions:
        console.print(f"[dim]… {len(decay.positions) - positions} more in manifest.json[/dim]")


def show_row(console: Console, row: Mapping[str, Any]) -> None:
    """One line of `curate show RUN`: id, verdict, scores, sets."""
    scores = [
        f"{name} {row[name]:.2f}"
        for name in ("mean_score", "adherence")
        if row.get(name) is not None
    ]
    weakest = f", weakest turn {row['weakest_turn']}" if row.get("weakest_turn") is not None else ""
    verdict = row.get("verdict") or f"unscored ({row.get('judge_unscored') or 'not judged'})"
    console.print(
        f"[bold]{escape(_clip(str(row['id'])))}[/bold]  {verdict}{weakest}  {'  '.join(scores)}  "
        f"[dim]{', '.join(row['sets'])}[/dim]"
    )


def show_judged(
    console: Console,
    dialogue: Dialogue,
    judgment: Mapping[str, Any] | None,
    adherence: Mapping[str, Any] | None,
) -> None:
    """A dialogue turn by turn, each turn followed by its scores; records as in the run folder."""
    console.print(f"[bold]{escape(_clip(dialogue.id))}[/bold]")
    for label, text in (("role", dialogue.role_definition), ("scenario", dialogue.scenario)):
        if text:
            console.print(f"{label}: {escape(_clip(text))}")
    scores = {turn["turn"]: turn for turn in (judgment or {}).get("per_turn", ())}
    roles = {turn["turn"]: turn for turn in (adherence or {}).get("per_turn", ())}
    for turn in dialogue.turns:
        console.print(f"\n[bold]turn {turn.number}[/bold]")
        for message in turn.messages:
            _show_message(console, message)
        _show_turn_scores(console, scores.get(turn.number), roles.get(turn.number))
    console.print()
    if judgment is None or "reason" in judgment:
        console.print(f"judge: {_unscored(judgment)}")
    else:
        level = judgment["conversation_level"]
        console.print(
            f"verdict [bold]{judgment['verdict']}[/bold] (the judge said {judgment['judge_verdict'] or 'nothing clear'}), "
            + ", ".join(f"{name} {entry['score']}" for name, entry in level.items())
            + f", weakest turn {judgment['weakest_turn']}"
        )
    if adherence is None or "reason" in adherence:
        console.print(f"role adherence: {_unscored(adherence)}")
    else:
        low, high = adherence["interval"]
        console.print(
            f"role adherence {adherence['session_score']:.2f} (95 % interval {low:.2f} to {high:.2f}, "
            f"{adherence['interval_method']}), {'adherent' if adherence['adherent'] else 'not adherent'}"
        )
        if trend := adherence.get("trend"):
            low, high = trend["interval"]
            console.print(
                f"  {trend['slope']:+.3f} from one turn to the next ({low:+.3f} to {high:+.3f}, "
                f"p {trend['p_value']:.2f}), in role for {adherence['turns_in_role']} turns"
            )
        if whole := adherence.get("conversation"):
            _show_reason(console, whole["reason"])


def _unscored(record: Mapping[str, Any] | None) -> str:
    if record is None:
        return "not scored in this run"
    return f"unscored, {record['reason']}: {escape(_clip(record['detail']))}"


def _show_turn_scores(
    console: Console, scores: Mapping[str, Any] | None, role: Mapping[str, Any] | None
) -> None:
    parts = []
    if scores is not None:
        for name, value in scores["scores"].items():
            reading = scores["readings"].get(name)
            mean = f" ({reading['mean']:.2f})" if reading and reading["mean"] is not None else ""
            parts.append(f"{name} {value}{mean}")
    if role is not None:
        shown = role["unscored"] if role["score"] is None else f"{role['score']:.2f}"
        if role.get("imputed"):
            shown += " (for want of evidence)"
        parts.append(f"role {shown}")
    if parts:
        console.print(f"  [green]{escape('  '.join(parts))}[/green]")
    for issue in (scores or {}).get("issues", ()):
        console.print(f"  [red]{escape(issue)}[/red]")
    _show_reason(console, role and role.get("reason"))


def _show_reason(console: Console, reason: Mapping[str, Any] | None) -> None:
    """Why an answer about the role is what it is: kind, justification, and the broken words of the role."""
    if not reason:
        return
    kind = reason["violation"]
    words = f" (role: “{reason['role_words']}”)" if reason["role_words"] else ""
    fault = f" [{reason['fault']}]" if reason["fault"] else ""
    said = f"{f'{kind}: ' if kind else ''}{_clip(reason['text'])}{words}{fault}"
    console.print(f"  [{'red' if kind else 'dim'}]{escape(said)}[/]")


def _show_dialogue(console: Console, dialogue: Dialogue) -> None:
    console.print(f"  id: {escape(_clip(dialogue.id))}")
    for label, text in (("role", dialogue.role_definition), ("scenario", dialogue.scenario)):
        if text:
            console.print(f"  {label}: {escape(_clip(text))}")
    for message in dialogue.messages[:6]:
        _show_message(console, message)
    if len(dialogue.messages) > 6:
        console.print(f"  … {len(dialogue.messages) - 6} more messages")


def _show_message(console: Console, message: Message) -> None:
    calls = "".join(f" calls {call.name}" for call in message.tool_calls)
    console.print(f"  [cyan]{message.role}[/cyan]{escape(calls)}: {escape(_clip(message.content))}")


def _clip(text: str) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= _CLIP else flat[: _CLIP - 1] + "…"
