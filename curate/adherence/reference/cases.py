"""From a dialogue to what a reference method compares: a turn's text, its references, its role."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice

from curate.dialogue import Dialogue, Turn
from curate.records import UnscoredReason

CHUNK = 1024
"""Cases taken at once: enough for full batches sorted by length, little enough to hold."""


@dataclass(frozen=True, slots=True)
class Case:
    """One assistant turn to be scored.

    Attributes:
        turn: its number.
        candidate: text of its assistant messages, joined by blank lines; empty where none has text.
        references: texts that would have been right; may be empty.
        role: the role definition, which names the distribution that its references are part of.
    """

    turn: int
    candidate: str
    references: tuple[str, ...]
    role: str


@dataclass(frozen=True, slots=True)
class CaseReading:
    """A method's score of one case, as the method gives it, or the reason there is none."""

    score: float | None = None
    unscored: str | None = None


NO_TEXT = CaseReading(unscored=UnscoredReason.NO_TEXT)
NO_REFERENCE = CaseReading(unscored=UnscoredReason.NO_REFERENCE)
TOO_FEW = CaseReading(unscored=UnscoredReason.TOO_FEW_REFERENCES)


def cases_of(dialogue: Dialogue) -> list[Case] | None:
    """The dialogue's assistant turns in order, turn 0 included, each with its references.

    Turns behind the last entry of `references` have none. None where there are more entries than
    assistant turns, since nobody can say then which belongs to which.
    """
    turns = [turn for turn in dialogue.turns if turn.has_assistant]
    given = dialogue.references
    if len(given) > len(turns):
        return None
    padded = (*given, *((),) * (len(turns) - len(given)))
    role = (dialogue.role_definition or "").strip()
    return [
        Case(turn.number, _text(turn), tuple(t for t in texts if t.strip()), role)
        for turn, texts in zip(turns, padded, strict=True)
    ]


def chunks(dialogues: Iterable[Dialogue]) -> Iterator[list[Case]]:
    """The cases of many dialogues, in order, `CHUNK` at a time; those that cannot be aligned are left out."""
    cases = (case for dialogue in dialogues for case in cases_of(dialogue) or ())
    while chunk := list(islice(cases, CHUNK)):
        yield chunk


def _text(turn: Turn) -> str:
    said = (m.content.strip() for m in turn.messages if m.role == "assistant")
    return "\n\n".join(text for text in said if text)
