"""Words behind the scores: issues, notes, decision basis, in one call after all scores are known.

Free text in a scoring reply can ruin it (a small model fills a string until the token limit), so text
has a call of its own: one JSON object of texts. Where the engine holds the reply to its schema, every text is there and ends
within its bound of words; elsewhere plain lines are read as well. A text that is whole is kept whatever happens after it; what
is lost is only text, and a remark says so. Nothing here touches a score.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from curate.dialogue import split_thinking
from curate.engines.base import Request
from curate.engines.structured import closed_object
from curate.judging.rubric_prompts import RubricTexts
from curate.judging.session import Page, Session, clip_words, fault_of
from curate.judging.verdict import is_weak
from curate.records import (
    CONVERSATION_DIMENSIONS,
    TURN_DIMENSIONS,
    ConversationLevel,
    ConversationScore,
    Judgment,
)

_PAIR = re.compile(
    r'"(?:turn_(?P<turn>\d{1,9})|(?P<name>coherence|task_completion|repair_handling|basis))"\s*+:\s*+'
    r'(?P<text>"(?:[^"\\\n]|\\.)*+")'
)
# What stands before the name is of its own line: a run of blank lines would be looked through from each of them.
_LINE = re.compile(
    r"^(?:[^\w\n]|_)*+(?:turn[\s_]*+(?P<turn>\d{1,9})|(?P<name>coherence|task_completion|repair_handling|basis))"
    r"[\W_]*?:\s*(?P<text>.+)$",
    re.IGNORECASE | re.MULTILINE,
)


ISSUE_WORDS, NOTE_WORDS, BASIS_WORDS = 20, 15, 40
ISSUE_TOKENS, NOTE_TOKENS, BASIS_TOKENS = 80, 60, 120
"""What a text may take with its key: twice what its words take in common tokenizers, and more where a word is long."""
# Marks end a word, or a small model strings words together by them and never comes to the bound. A dot may
# stand within: 3.5. Scripts without spaces have words of up to twice 20 characters.
_PIECE = r'[^\s"\\,;.!?]{1,20}'
_WORD = rf"{_PIECE}(\.{_PIECE})?[,;.!?]{{0,3}}"


@dataclass(frozen=True, slots=True)
class Remarks:
    """The texts of a reply: issues per turn, notes per dimension, the basis."""

    issues: Mapping[int, tuple[str, ...]]
    notes: Mapping[str, str]
    basis: str


@dataclass(frozen=True, slots=True)
class TextScope:
    """The texts that one call asks for.

    Attributes:
        weak: numbers of the turns whose issues are asked for.
        whole: the notes and the decision basis are.
    """

    weak: tuple[int, ...]
    whole: bool

    @property
    def tokens(self) -> int:
        """Bound of a reply with all lines."""
        notes = len(CONVERSATION_DIMENSIONS) * NOTE_TOKENS + BASIS_TOKENS
        return len(self.weak) * ISSUE_TOKENS + self.whole * notes

    @property
    def schema(self) -> dict[str, Any]:
        """JSON schema of the reply: every text is required, has a word at least, and ends within its bound."""
        properties = {f"turn_{turn}": _words(ISSUE_WORDS) for turn in self.weak}
        if self.whole:
            properties |= {name: _words(NOTE_WORDS) for name in CONVERSATION_DIMENSIONS}
            properties["basis"] = _words(BASIS_WORDS)
        return closed_object(properties)

    def lost(self, remarks: Remarks) -> bool:
        """True when a reply lacks a turn's issues or the decision basis."""
        return any(turn not in remarks.issues for turn in self.weak) or (
            self.whole and not remarks.basis
        )


def _words(most: int) -> dict[str, Any]:
    return {"type": "string", "pattern": f"^{_WORD}( {_WORD}){{0,{most - 1}}}$"}


def text_lines(judgment: Judgment, scope: TextScope, texts: RubricTexts) -> list[str]:
    """Return the lines of a reply: each weak turn, then every note and the basis. Empty: nothing to say."""
    lines = []
    for turn in judgment.per_turn:
        if turn.turn in scope.weak:
            scores = ", ".join(f"{name} {getattr(turn.scores, name)}" for name in TURN_DIMENSIONS)
            lines.append(texts.question("text.turn", turn=turn.turn, scores=scores))
    if scope.whole:
        for name in CONVERSATION_DIMENSIONS:
            score = getattr(judgment.conversation_level, name).score
            lines.append(texts.question("text.note", dimension=name, score=score))
        lines.append(texts.question("text.basis", verdict=judgment.verdict))
    return lines


def read_text(text: str, *, cut: bool) -> Remarks:
    """Read the texts of a reply: of its JSON object, whole or cut, else of its lines.

    A text that was cut is dropped; so is an empty one, one that has no known name, and the second of a name.
    """
    issues: dict[int, tuple[str, ...]] = {}
    notes: dict[str, str] = {}
    for turn, name, words in _texts(text, cut=cut):
        if not words:
            continue
        if turn:
            parts = (clip_words(part, BASIS_WORDS) for part in words.split(";"))
            issues.setdefault(int(turn), tuple(part for part in parts if part))
        else:
            notes.setdefault(name.lower(), clip_words(words, BASIS_WORDS))
    basis = notes.pop("basis", "")
    return Remarks(issues, notes, basis)


def _texts(text: str, *, cut: bool) -> Iterator[tuple[str | None, str, str]]:
    """Yield each text with its turn's number or its name, in their order."""
    pairs = list(_PAIR.finditer(text))
    for match in pairs:
        yield match["turn"], match["name"], _unquoted(match["text"])
    if not pairs:
        whole = text[: text.rfind("\n") + 1] if cut else text
        for match in _LINE.finditer(whole):
            yield match["turn"], match["name"], match["text"].strip()


def _unquoted(quoted: str) -> str:
    try:
        text: str = json.loads(quoted, strict=False)
    except ValueError:  # an escape that JSON does not have
        return quoted[1:-1].strip()
    # Half of a character that JSON spells as two could not be stored.
    return text.encode("utf-8", "replace").decode().strip()


async def add_words(session: Session, page: Page, judgment: Judgment) -> Judgment:
    """Ask for the words behind a judgment; whatever fails, its scores stay as they are.

    Args:
        page: what the judge was shown of the conversation; the issues of turns that are not on it are not asked for.
    """
    text = session.config.text
    shown_turns = {turn.number for turn in page.turns}
    weak = [turn.turn for turn in judgment.per_turn if is_weak(turn)]
    scope = TextScope(
        tuple(turn for turn in weak if turn in shown_turns),
        text == "all" or judgment.verdict != "excellent",
    )
    lines = [] if text == "off" else text_lines(judgment, scope, session.texts)
    if not lines:
        return judgment
    if not shown_turns.issuperset(weak):
        session.remark("text_lost: not_shown")
    request = Request(
        session.trunk(page),
        session.texts.question("text", lines="\n".join(lines)),
        max_tokens=min(session.config.text_max_tokens, scope.tokens),
        schema=scope.schema,
        purpose="judge.text",
    )
    (completion,) = await session.ask([request])
    remarks = Remarks({}, {}, "")
    if (fault := fault_of(completion)) is not None:
        session.remark(f"text_lost: {fault.reason}")
    else:
        cut = completion.finish == "length"
        remarks = read_text(split_thinking(completion.text)[0], cut=cut)
        if scope.lost(remarks):
            session.remark("text_lost: reply_cut" if cut else "text_lost: incomplete")
    return judgment.model_copy(
        update={
            "per_turn": tuple(
                turn.model_copy(update={"issues": remarks.issues[turn.turn]})
                if turn.turn in weak and remarks.issues.get(turn.turn)
                else turn
                for turn in judgment.per_turn
            ),
            "conversation_level": _with_notes(judgment.conversation_level, remarks.notes),
            "decision_basis": remarks.basis or judgment.decision_basis,
            "remarks": tuple(session.remarks),
            "requests": session.requests,
        }
    )


def _with_notes(level: ConversationLevel, notes: Mapping[str, str]) -> ConversationLevel:
    def noted(name: str) -> ConversationScore:
        score: ConversationScore = getattr(level, name)
        return score.model_copy(update={"note": notes[name]}) if name in notes else score

    return ConversationLevel(**{name: noted(name) for name in CONVERSATION_DIMENSIONS})
