"""Printing of one dialogue: turn by turn with its scores, and the pairs that were forked from it or found in it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.markup import escape

from curate.cli.printing import clip, ends, show_message
from curate.wording import plural

if TYPE_CHECKING:
    from curate.run.read_back import JudgedDialogue, StoredPair

StoredRecord = Mapping[str, Any]
"""A record, as a run folder holds it."""


def show_judged(console: Console, judged: JudgedDialogue) -> None:
    """Print a dialogue turn by turn, each turn followed by its scores, then the scores of the whole."""
    dialogue = judged.dialogue
    console.print(f"[bold]{escape(clip(dialogue.id))}[/bold]")
    for label, text in (("role", dialogue.role_definition), ("scenario", dialogue.scenario)):
        if text:
            console.print(f"{label}: {escape(clip(text))}")
    scores, roles, facts = (
        {turn["turn"]: turn for turn in (record or {}).get("per_turn", ())}
        for record in (judged.judgment, judged.adherence, judged.factuality)
    )
    for turn in dialogue.turns:
        console.print(f"\n[bold]turn {turn.number}[/bold]")
        for message in turn.messages:
            show_message(console, message)
        _show_turn_scores(console, scores.get(turn.number), roles.get(turn.number))
        _show_claims(console, facts.get(turn.number))
    console.print()
    for name, record, show_scored in (
        ("judge", judged.judgment, _show_judgment),
        ("role adherence", judged.adherence, _show_adherence),
        ("metrics", judged.metrics, _show_metrics),
        ("facts", judged.factuality, _show_facts),
    ):
        if record is not None and record["kind"] != "unscored":
            show_scored(console, record)
        elif record is not None or name in ("judge", "role adherence"):
            console.print(f"{name}: {unscored_line(record)}")


def _show_judgment(console: Console, judgment: StoredRecord) -> None:
    level = judgment["conversation_level"]
    origin = f"the judge said {judgment['judge_verdict'] or 'nothing clear'}"
    if judgment.get("opinions"):
        origin = "of several judges, below"
    console.print(
        f"verdict [bold]{judgment['verdict']}[/bold] ({origin}), "
        + ", ".join(f"{name} {entry['score']}" for name, entry in level.items())
        + f", weakest turn {judgment['weakest_turn']}"
    )
    for opinion in judgment.get("opinions", ()):
        console.print(f"  {escape(_opinion_line(opinion))}")
    if judgment["decision_basis"]:
        console.print(f"  [dim]{escape(judgment['decision_basis'])}[/dim]")
    for name, entry in level.items():
        if entry["note"]:
            console.print(f"  [dim]{name}: {escape(entry['note'])}[/dim]")


def _show_adherence(console: Console, adherence: StoredRecord) -> None:
    console.print(
        f"role adherence {adherence['session_score']:.2f} (95 % interval {ends(adherence['interval'])}, "
        f"{adherence['interval_method']}), {'adherent' if adherence['adherent'] else 'not adherent'}"
    )
    if trend := adherence.get("trend"):
        console.print(
            f"  {trend['slope']:+.3f} from one turn to the next ({ends(trend['interval'], '+.3f')}, "
            f"p {trend['p_value']:.2f}), in role for {plural(adherence['turns_in_role'], 'turn')}"
        )
    if whole := adherence.get("conversation"):
        _show_reason(console, whole["reason"])


def _show_facts(console: Console, factuality: StoredRecord) -> None:
    precision = factuality.get("precision")
    shown = "no claims" if precision is None else f"precision {precision:.2f}"
    console.print(f"facts: {shown}")


def _opinion_line(opinion: StoredRecord) -> str:
    """Return the opinion of one of several judges in one line."""
    text = opinion["verdict"] or f"unscored ({opinion['reason']})"
    if opinion["weakest_turn"] is not None:
        text += f", weakest turn {opinion['weakest_turn']}"
    if opinion["doubt"] is not None:
        text += f", doubt {opinion['doubt']:.2f}"
    return f"{opinion['judge']}: {text}{'' if opinion['counts'] else ' (not decisive)'}"


def _show_claims(console: Console, turn: StoredRecord | None) -> None:
    """Print the claims of a turn, one line each."""
    for claim in (turn or {}).get("claims", ()):
        style = {"true": "green", "false": "red"}.get(claim["label"], "dim")
        basis = f" ({claim['evidence']})" if claim["evidence"] else ""
        console.print(f"  [{style}]{claim['label']}{basis}: {escape(clip(claim['words']))}[/]")


def _show_metrics(console: Console, record: StoredRecord) -> None:
    """Print the overall score and one line for each metric."""
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
            f"{plural(len(calls['unexpected']), 'other')}{'' if calls['in_order'] else ', not in the expected order'}"
        )


def _metric_line(metric: StoredRecord) -> str:
    score, reading = metric["score"], metric["reading"]
    if score is None:
        return f"{metric['name']} n/a ({metric['na']})"
    shown = ("fail", "pass")[score] if metric["scale"] == "binary" else str(score)
    if reading and reading["mean"] is not None:
        shown += f" ({reading['mean']:.2f})"
    text = f"{metric['name']} {shown}, {metric['share']:.0%} of the score"
    if metric["failure_code"]:
        text += f": {metric['failure_code']}"
    if metric["turns"]:
        text += f", turns {', '.join(map(str, metric['turns']))}"
    return text + (f" [{', '.join(metric['flags'])}]" if metric["flags"] else "")


def unscored_line(record: StoredRecord | None) -> str:
    """Return the reason why a record has no score."""
    if record is None:
        return "not scored in this run"
    return f"unscored, {record['reason']}: {escape(clip(record['detail']))}"


def _show_turn_scores(
    console: Console, scores: StoredRecord | None, role: StoredRecord | None
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
            shown += " (imputed: no evidence)"
        parts.append(f"role {shown}")
    if parts:
        console.print(f"  [green]{escape('  '.join(parts))}[/green]")
    for issue in (scores or {}).get("issues", ()):
        console.print(f"  [red]{escape(issue)}[/red]")
    _show_reason(console, role and role.get("reason"))


def _show_reason(console: Console, reason: StoredRecord | None) -> None:
    """Print the reason of an answer about the role: kind, justification, and the words of the role that are broken."""
    if not reason:
        return
    kind = reason["violation"]
    words = f" (role: “{reason['role_words']}”)" if reason["role_words"] else ""
    fault = f" [{reason['fault']}]" if reason["fault"] else ""
    text = f"{f'{kind}: ' if kind else ''}{clip(reason['text'])}{words}{fault}"
    console.print(f"  [{'red' if kind else 'dim'}]{escape(text)}[/]")


def show_pairs(console: Console, pairs: Iterable[StoredPair]) -> None:
    """Print the pairs of a dialogue: both sides, the figures that decided, and why a pair was dropped."""
    for pair in pairs:
        record = pair.record
        where = "whole dialogue" if record["turn"] is None else f"turn {record['turn']}"
        became = (
            "[green]passed[/green]"
            if pair.passed
            else f"[red]dropped: {record['drop_reason']}[/red]"
        )
        console.print(
            f"\n[bold]pair[/bold] at {where}, by {escape(str(record['basis']))} ({record['source']}): {became}"
        )
        if record["detail"]:
            console.print(f"  [dim]{escape(clip(record['detail']))}[/dim]")
        for side in ("rejected", "chosen"):
            message = record[side]
            text = "none" if message is None else clip(message["content"] or "(calls tools only)")
            console.print(f"  [cyan]{side}[/cyan]: {escape(text)}")
        figures = _figures(record["check"] or {})
        if figures:
            console.print(f"  [green]{figures}[/green]")


def _figures(check: StoredRecord) -> str:
    """Return the figures that verification measured for a pair."""
    parts = [
        f"{name} {check[key]:+.2f}"
        for key, name in (
            ("margin", "scores apart"),
            ("preference", "preference (log-odds)"),
        )
        if check.get(key) is not None
    ]
    if check.get("probability") is not None:
        parts.append(f"chosen is better with probability {check['probability']:.2f}")
    if check.get("decided_by"):
        parts.append(f"decided by {check['decided_by']}")
    return ", ".join(parts)
