"""From a dialogue to what a reference method compares: a turn's text, its references, its role."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

from curate.adherence.reference_config import ReferenceConfig
from curate.dialogue import Dialogue, Turn
from curate.records import UnscoredReason
from curate.storage.store import Store, key_of

CHUNK = 1024
"""Cases taken at once: enough for full batches sorted by length, little enough to hold."""


@dataclass(frozen=True, slots=True)
class Case:
    """One assistant turn to be scored.

    Attributes:
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


class ComparisonMethod:
    """A way to compare turns with references; what a method does not need it leaves as it is here."""

    needs_second_pass = False
    models: Sequence[Any] = ()
    """Those it asks; each counts in `cut` the texts that it did not read to their end."""

    @property
    def cut(self) -> int:
        """Texts so far that a model did not read to their end."""
        return sum(model.cut for model in self.models)

    def learn(self, cases: Sequence[Case]) -> None:
        """Make the first pass over all cases, a chunk at a time."""

    def settle(self, cases: Sequence[Case]) -> None:
        """Make the second pass, where one is needed."""

    def score(self, case: Case) -> CaseReading:
        """Return the method's own score, not yet brought into [0, 1]."""
        return self._score(case) if case.candidate else NO_TEXT

    def _score(self, case: Case) -> CaseReading:
        """Return the score of a case with text."""
        raise NotImplementedError

    def fitted_on(self) -> dict[str, int]:
        """Return how many references the distribution of each role was fitted on; empty where nothing is fitted."""
        return {}

    def describe(self) -> dict[str, Any]:
        """Return all that determines a score beside the text; read after the last pass."""
        raise NotImplementedError


def cases_of(dialogue: Dialogue) -> list[Case] | None:
    """Return the dialogue's assistant turns in order, turn 0 included, each with its references.

    Turns behind the last entry of `references` have none. None where there are more entries than
    assistant turns, since nobody can say then which belongs to which.
    """
    turns = [turn for turn in dialogue.turns if turn.has_assistant]
    references = dialogue.references
    if len(references) > len(turns):
        return None
    padded = (*references, *((),) * (len(turns) - len(references)))
    role = (dialogue.role_definition or "").strip()
    return [
        Case(turn.number, _text(turn), tuple(t for t in texts if t.strip()), role)
        for turn, texts in zip(turns, padded, strict=True)
    ]


def compared(case: Case, config: ReferenceConfig) -> Case:
    """Return the case as it is compared: with `role_beside` its role before the turn's text, unless that is empty.

    "The string is … embedded alongside the candidate response in deterministic path computations" (Fritz and Fiorenza
    2026, section "Role definition schema"). Their experiments do not do it.
    """
    if not config.role_beside or not case.candidate or not case.role:
        return case
    return replace(case, candidate=f"{case.role}\n\n{case.candidate}")


def case_chunks(dialogues: Iterable[Dialogue]) -> Iterator[list[Case]]:
    """Yield the cases of many dialogues, in order, `CHUNK` at a time; those that cannot be aligned are left out."""
    cases = (case for dialogue in dialogues for case in cases_of(dialogue) or ())
    while chunk := list(islice(cases, CHUNK)):
        yield chunk


def pair_figures(
    store: Store,
    name: str,
    form: struct.Struct,
    pairs: Sequence[tuple[str, str]],
    compute: Callable[[Sequence[tuple[str, str]]], Sequence[tuple[Any, ...]]],
) -> list[tuple[Any, ...]]:
    """Return the figures of pairs of texts, in order; those not in the store are computed and put there.

    Args:
        name: of all that determines them beside the texts.
    """
    keys = [key_of(name, *pair) for pair in pairs]
    stored = {key: form.unpack(figures) for key, figures in store.get(keys).items()}
    missing = {key: pair for key, pair in zip(keys, pairs, strict=True) if key not in stored}
    if missing:
        fresh = dict(zip(missing, compute(list(missing.values())), strict=True))
        store.put((key, form.pack(*figures)) for key, figures in fresh.items())
        stored |= fresh
    return [stored[key] for key in keys]


def _text(turn: Turn) -> str:
    contents = (m.content.strip() for m in turn.messages if m.role == "assistant")
    return "\n\n".join(text for text in contents if text)
