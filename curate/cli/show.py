"""`curate show`: a run's dialogues, or one of them turn by turn with its scores."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape

from curate.cli.console import OUT
from curate.cli.printing import (
    clip,
    show_comparison,
    show_decay,
    show_factuality,
    show_funnels,
    show_judge_checks,
    show_message,
    show_metrics,
)
from curate.errors import UsageError

if TYPE_CHECKING:
    from curate.dialogue import Dialogue


def show(
    run_folder: Annotated[Path, typer.Argument(metavar="RUN", help="Run folder.")],
    dialogue_id: Annotated[str | None, typer.Argument(metavar="ID", help="Dialogue id.")] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="The dialogue's judgment in the judge card's JSON form.")
    ] = False,
) -> None:
    """Print a run's dialogues, or one of them turn by turn with its scores."""
    from curate.run.read_back import read_judged, read_manifest, read_table

    if as_json:
        _print_json(run_folder, dialogue_id)
        return
    if dialogue_id is None:
        for row in read_table(run_folder):
            show_row(OUT, row)
        manifest = read_manifest(run_folder)
        if manifest.judge_checks is not None:
            show_judge_checks(OUT, manifest.judge_checks, whole=True)
        if manifest.adherence is not None:
            show_decay(OUT, manifest.adherence)
        if manifest.metrics is not None:
            show_metrics(OUT, manifest.metrics)
        if manifest.factuality is not None:
            show_factuality(OUT, manifest.factuality)
        show_funnels(OUT, manifest)
        show_comparison(OUT, manifest)
        for sentence in manifest.trust.values():
            OUT.print(escape(sentence), soft_wrap=True)
        return
    found = read_judged(run_folder, dialogue_id)
    show_judged(
        OUT, found.dialogue, found.judgment, found.adherence, found.metrics, found.factuality
    )


def _print_json(run_folder: Path, dialogue_id: str | None) -> None:
    import json

    from curate.records import Judgment
    from curate.run.read_back import read_judged

    if dialogue_id is None:
        raise UsageError(
            "--json prints one judgment",
            got="no dialogue id",
            expected=f"curate show {run_folder} ID --json",
            fix="for all of them run the recipe with `judgments` in export.kinds (no model is asked)",
        )
    record = read_judged(run_folder, dialogue_id).judgment
    if record is None or record["kind"] != "judgment":
        raise UsageError("the dialogue has no judgment", got=f"judge: {_unscored(record)}")
    typer.echo(json.dumps(Judgment.model_validate(record).card_form, ensure_ascii=False, indent=2))


def show_row(console: Console, row: Mapping[str, Any]) -> None:
    """One line of `curate show RUN`: id, verdict, scores, sets."""
    scores = [
        f"{name} {row[name]:.2f}"
        for name in ("mean_score", "adherence", "overall_score")
        if row.get(name) is not None
    ]
    weakest = f", weakest turn {row['weakest_turn']}" if row.get("weakest_turn") is not None else ""
    verdict = row.get("verdict") or f"unscored ({row.get('judge_unscored') or 'not judged'})"
    console.print(
        f"[bold]{escape(clip(str(row['id'])))}[/bold]  {verdict}{weakest}  {'  '.join(scores)}  "
        f"[dim]{', '.join(row['sets'])}[/dim]"
    )


def show_judged(
    console: Console,
    dialogue: Dialogue,
    judgment: Mapping[str, Any] | None,
    adherence: Mapping[str, Any] | None,
    metrics: Mapping[str, Any] | None = None,
    factuality: Mapping[str, Any] | None = None,
) -> None:
    """A dialogue turn by turn, each turn followed by its scores; records as in the run folder."""
    console.print(f"[bold]{escape(clip(dialogue.id))}[/bold]")
    for label, text in (("role", dialogue.role_definition), ("scenario", dialogue.scenario)):
        if text:
            console.print(f"{label}: {escape(clip(text))}")
    scores = {turn["turn"]: turn for turn in (judgment or {}).get("per_turn", ())}
    roles = {turn["turn"]: turn for turn in (adherence or {}).get("per_turn", ())}
    facts = {turn["turn"]: turn for turn in (factuality or {}).get("per_turn", ())}
    for turn in dialogue.turns:
        console.print(f"\n[bold]turn {turn.number}[/bold]")
        for message in turn.messages:
            show_message(console, message)
        _show_turn_scores(console, scores.get(turn.number), roles.get(turn.number))
        _show_claims(console, facts.get(turn.number))
    console.print()
    if judgment is None or judgment["kind"] == "unscored":
        console.print(f"judge: {_unscored(judgment)}")
    else:
        level = judgment["conversation_level"]
        console.print(
            f"verdict [bold]{judgment['verdict']}[/bold] (the judge said {judgment['judge_verdict'] or 'nothing clear'}), "
            + ", ".join(f"{name} {entry['score']}" for name, entry in level.items())
            + f", weakest turn {judgment['weakest_turn']}"
        )
        if judgment["decision_basis"]:
            console.print(f"  [dim]{escape(judgment['decision_basis'])}[/dim]")
        for name, entry in level.items():
            if entry["note"]:
                console.print(f"  [dim]{name}: {escape(entry['note'])}[/dim]")
    if adherence is None or adherence["kind"] == "unscored":
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
    if metrics is not None:
        _show_metrics(console, metrics)
    if factuality is not None:
        precision = factuality.get("precision")
        held = "no claims" if precision is None else f"precision {precision:.2f}"
        said = _unscored(factuality) if factuality["kind"] == "unscored" else held
        console.print(f"facts: {said}")


def _show_claims(console: Console, turn: Mapping[str, Any] | None) -> None:
    """The claims of a turn, a line each."""
    for claim in (turn or {}).get("claims", ()):
        style = {"true": "green", "false": "red"}.get(claim["label"], "dim")
        basis = f" ({claim['evidence']})" if claim["evidence"] else ""
        console.print(f"  [{style}]{claim['label']}{basis}: {escape(clip(claim['words']))}[/]")


def _show_metrics(console: Console, record: Mapping[str, Any]) -> None:
    """The overall score, and a line a metric."""
    if record["kind"] == "unscored":
        console.print(f"metrics: {_unscored(record)}")
        return
    low, high = record["overall_range"]
    console.print(
        f"metrics: {record['overall_score']:.1f} of 100, {'pass' if record['passed'] else 'fail'} (threshold "
        f"{record['pass_threshold']:g}; {low:.1f} to {high:.1f} with weights changed by up to 20 %)"
    )
    for metric in record["metrics"]:
        console.print(f"  {escape(_metric_line(metric))}")
    if calls := record.get("calls"):
        console.print(
            f"  calls: {len(calls['matches'])} of {calls['expected']} expected were made, "
            f"{len(calls['unexpected'])} others{'' if calls['in_order'] else ', not in the expected order'}"
        )


def _metric_line(metric: Mapping[str, Any]) -> str:
    score, reading = metric["score"], metric["reading"]
    if score is None:
        return f"{metric['name']} n/a ({metric['na']})"
    shown = ("fail", "pass")[score] if metric["scale"] == "binary" else str(score)
    if reading and reading["mean"] is not None:
        shown += f" ({reading['mean']:.2f})"
    said = f"{metric['name']} {shown}, {metric['share']:.0%} of the score"
    if metric["failure_code"]:
        said += f": {metric['failure_code']}"
    if metric["turns"]:
        said += f", turns {', '.join(map(str, metric['turns']))}"
    return said + (f" [{', '.join(metric['flags'])}]" if metric["flags"] else "")


def _unscored(record: Mapping[str, Any] | None) -> str:
    if record is None:
        return "not scored in this run"
    return f"unscored, {record['reason']}: {escape(clip(record['detail']))}"


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
    said = f"{f'{kind}: ' if kind else ''}{clip(reason['text'])}{words}{fault}"
    console.print(f"  [{'red' if kind else 'dim'}]{escape(said)}[/]")
