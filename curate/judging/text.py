"""Words beside the scores: issues, notes, decision basis.

Free text in a scoring reply can ruin it (a small model fills a string until the token limit), so text
has a call of its own, in plain lines. A line that is whole is kept whatever happens after it; what is
lost is only text, and a remark says so. Nothing here touches a score.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from curate.dialogue import split_thinking
from curate.engines.base import Request
from curate.judging.session import (
    Page,
    PageReading,
    Scope,
    Session,
    clip_words,
    fault_of,
)
from curate.judging.verdict import is_weak, rule_verdict
from curate.judging.wording import RubricTexts
from curate.records import (
    CONVERSATION_DIMENSIONS,
    TURN_DIMENSIONS,
    ConversationLevel,
    ConversationScore,
    TurnScores,
)

# What stands before the name is of its own line: a run of blank lines would be looked through from each of them.
_LINE = re.compile(
    r"^(?:[^\w\n]|_)*+(?:turn[\s_]*+(?P<turn>\d{1,9})|(?P<name>coherence|task_completion|repair_handling|basis))"
    r"[\W_]*?:\s*(?P<text>.+)$",
    re.IGNORECASE | re.MULTILINE,
)


@dataclass(frozen=True, slots=True)
class Remarks:
    """What a text reply said: issues per turn, notes per dimension, the basis."""

    issues: Mapping[int, tuple[str, ...]]
    notes: Mapping[str, str]
    basis: str


def text_lines(reading: PageReading, scope: Scope, texts: RubricTexts) -> list[str]:
    """The lines asked for: a turn that could be better, every note, the basis. Empty: nothing to say."""
    lines = []
    for turn in reading.turns:
        if is_weak(turn):
            scores = ", ".join(f"{name} {getattr(turn.scores, name)}" for name in TURN_DIMENSIONS)
            lines.append(texts.question("text.turn", turn=turn.turn, scores=scores))
    if reading.conversation is not None:
        for name in CONVERSATION_DIMENSIONS:
            score = getattr(reading.conversation, name).score
            lines.append(texts.question("text.note", dimension=name, score=score))
        scored = (*scope.given, *reading.turns)
        if scored:
            verdict = rule_verdict(scored, reading.conversation)
            lines.append(texts.question("text.basis", verdict=verdict))
    return lines


def read_text(text: str, *, cut: bool) -> Remarks:
    """Read the lines of a text reply. The last line of a cut reply is dropped; unknown lines are too."""
    if cut:
        text = text[: text.rfind("\n") + 1]
    issues: dict[int, tuple[str, ...]] = {}
    notes: dict[str, str] = {}
    for match in _LINE.finditer(text):
        words = match["text"].strip()
        if match["turn"]:
            parts = (clip_words(part, 40) for part in words.split(";"))
            issues.setdefault(int(match["turn"]), tuple(part for part in parts if part))
        else:
            notes.setdefault(match["name"].lower(), clip_words(words, 40))
    basis = notes.pop("basis", "")
    return Remarks(issues, notes, basis)


async def add_text(session: Session, page: Page, scope: Scope, reading: PageReading) -> PageReading:
    """Ask for the words behind a reading; whatever fails, the scores come back as they were."""
    lines = text_lines(reading, scope, session.texts)
    if not lines:
        return reading
    request = Request(
        session.trunk(page),
        session.texts.question("text", lines="\n".join(lines)),
        max_tokens=session.config.text_max_tokens,
        purpose="judge.text",
    )
    (completion,) = await session.ask([request])
    fault = fault_of(completion)
    if fault is not None:
        session.remark(f"text_lost: {fault.reason}")
        return reading
    cut = completion.finish == "length"
    said = read_text(split_thinking(completion.text)[0], cut=cut)
    if cut:
        session.remark("text_lost: reply_cut")
    weak = [turn.turn for turn in reading.turns if is_weak(turn)]
    if not cut and any(turn not in said.issues for turn in weak):
        session.remark("text_lost: incomplete")
    return replace(
        reading,
        turns=tuple(
            _with_issues(turn, said.issues.get(turn.turn, ()), weak) for turn in reading.turns
        ),
        conversation=_with_notes(reading.conversation, said.notes),
        basis=said.basis,
    )


def _with_issues(turn: TurnScores, issues: Sequence[str], weak: Sequence[int]) -> TurnScores:
    return turn.model_copy(update={"issues": tuple(issues)}) if turn.turn in weak else turn


def _with_notes(
    level: ConversationLevel | None, notes: Mapping[str, str]
) -> ConversationLevel | None:
    if level is None:
        return None

    def noted(name: str) -> ConversationScore:
        score: ConversationScore = getattr(level, name)
        return score.model_copy(update={"note": notes.get(name, "")})

    return ConversationLevel(**{name: noted(name) for name in CONVERSATION_DIMENSIONS})
