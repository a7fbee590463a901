"""Scoring mode `tokens`: each score is read from the distribution of the first token of an answer.

Every item (a dimension of a turn, a conversation score, the verdict, the weakest turn) is one request
of one token on the shared trunk, in a fresh context, so that no score leans on another. Digits 1-5,
letters and `N` (n/a) are single tokens in all common tokenizers. The forced prefix (`(` by default) ends
in punctuation, after which a label is a token of its own; an engine without PREFILL leaves it out, so
the question itself demands the bare label.

The rules use the most likely label. Expectation and spread are those of the digits alone.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from curate.engines.base import Completion, Request
from curate.engines.labels import LabelMass, read_labels
from curate.engines.layout import Trunk
from curate.judging.reading import Failure, Reading, Scope, Session, fault_of, mismatch_of
from curate.judging.verdict import VERDICTS
from curate.judging.wording import Texts
from curate.records import (
    CONVERSATION_DIMENSIONS,
    TURN_DIMENSIONS,
    ConversationLevel,
    ConversationScore,
    LabelReading,
    RubricScores,
    TurnScores,
    UnscoredTurn,
    Verdict,
)

DIGITS = ("1", "2", "3", "4", "5")
NA_LABEL = "N"
LETTERS = tuple("ABCDEFGHIJKLMNOPQRSTUVWXY")
NONE_LETTER = "Z"
MAX_CHOICES = len(LETTERS)
"""More turns than this have no single-token letter each."""

VERDICT_LABELS: dict[str, Verdict] = dict(zip(LETTERS, reversed(VERDICTS), strict=False))


@dataclass(frozen=True, slots=True)
class Item:
    """One question with single-token answers.

    Attributes:
        name: dimension, `verdict` or `weakest`.
        turn: the turn scored; None for the conversation.
    """

    name: str
    turn: int | None
    question: str
    labels: tuple[str, ...]
    purpose: str


@dataclass(frozen=True, slots=True)
class ItemReading:
    """The labels' mass of one item. `best` is the most likely label."""

    best: str
    mass: LabelMass


def items_of(scope: Scope, texts: Texts, *, wording: int = 0) -> list[Item]:
    """All questions of a scope, turn by turn, then the conversation's."""
    items = [
        Item(
            name,
            turn,
            texts.question(f"score.{wording}", dimension=name, turn=turn, asks=texts.asks[name]),
            DIGITS,
            "judge.turns",
        )
        for turn in scope.turns
        for name in TURN_DIMENSIONS
    ]
    if scope.conversation:
        for name in CONVERSATION_DIMENSIONS:
            may_be_na = name != "coherence"
            section = "conversation.na" if may_be_na else "conversation"
            text = texts.question(section, dimension=name, asks=texts.asks[name])
            labels = (*DIGITS, NA_LABEL) if may_be_na else DIGITS
            items.append(Item(name, None, text, labels, "judge.conversation"))
    if scope.verdict:
        text = texts.question("verdict", rule=texts.question("rule"))
        items.append(Item("verdict", None, text, tuple(VERDICT_LABELS), "judge.verdict"))
    if 0 < len(scope.weakest) <= MAX_CHOICES:
        letters = LETTERS[: len(scope.weakest)]
        lines = [
            f"{letter} = turn {turn}" for letter, turn in zip(letters, scope.weakest, strict=True)
        ]
        choices = "\n".join([*lines, f"{NONE_LETTER} = none of them"])
        text = texts.question("weakest", choices=choices)
        items.append(Item("weakest", None, text, (*letters, NONE_LETTER), "judge.weakest"))
    return items


def request_of(item: Item, trunk: Trunk, answer_prefix: str) -> Request:
    """The request that reads one item."""
    return Request(
        messages=trunk.ask(item.question),
        max_tokens=1,
        prefill=answer_prefix,
        labels=item.labels,
        purpose=item.purpose,
    )


def read_item(completion: Completion, item: Item, min_coverage: float) -> ItemReading | Failure:
    """The labels' mass, or why it does not count."""
    fault = fault_of(completion)
    if fault is not None:
        return fault
    mass = read_labels(completion, item.labels)
    best = mass.best
    if best is None or mass.coverage < min_coverage:
        name = item.name if item.turn is None else f"{item.name} of turn {item.turn}"
        return Failure("low_coverage", f"{name}: labels hold {mass.coverage:.3f} of the mass")
    return ItemReading(best, mass)


def label_reading(mass: LabelMass) -> LabelReading:
    """Expectation and standard deviation over the digits seen, n/a left out; None where none was."""
    probabilities = mass.probabilities
    digits = {int(label): share for label, share in probabilities.items() if label in DIGITS}
    total = sum(digits.values())
    mean = spread = None
    if total > 0:
        mean = sum(digit * share for digit, share in digits.items()) / total
        variance = sum((digit - mean) ** 2 * share for digit, share in digits.items()) / total
        # Rounding must not push an expectation over the scale's end.
        mean, spread = min(5.0, max(1.0, mean)), math.sqrt(variance)
    named = {
        ("n/a" if label == NA_LABEL else label): share for label, share in probabilities.items()
    }
    return LabelReading(mean=mean, spread=spread, coverage=mass.coverage, probabilities=named)


async def ask_tokens(
    session: Session, trunk: Trunk, scope: Scope, *, wording: int = 0
) -> Reading | Failure:
    """Ask all items of a scope in one call, and put what was read together.

    An item that could not be read leaves its turn unscored (or the conversation scores, or only the
    judge's own opinion); a prompt that does not fit fails the whole scope, which can then be split.
    """
    config = session.config
    items = items_of(scope, session.texts, wording=wording)
    completions = await session.ask(
        [request_of(item, trunk, config.answer_prefix) for item in items]
    )
    found = {
        (item.turn, item.name): read_item(completion, item, config.min_coverage)
        for item, completion in zip(items, completions, strict=True)
    }
    for part in found.values():
        if isinstance(part, Failure) and part.is_overflow:
            return part
    reading = assemble(found, scope)
    if reading.verdict is not None and config.on_mismatch == "retry":
        item = next(item for item in items if item.name == "verdict")
        return await _ask_verdict_again(session, trunk, scope, item, reading)
    return reading


def assemble(found: dict[tuple[int | None, str], ItemReading | Failure], scope: Scope) -> Reading:
    """Put item readings together. Every item of the scope must be in `found`."""
    turns: list[TurnScores] = []
    unscored: list[UnscoredTurn] = []
    for turn in scope.turns:
        one = {name: found[turn, name] for name in TURN_DIMENSIONS}
        read = {name: part for name, part in one.items() if isinstance(part, ItemReading)}
        failed = [part for part in one.values() if isinstance(part, Failure)]
        if failed:
            unscored.append(
                UnscoredTurn(turn=turn, reason=failed[0].reason, detail=failed[0].detail)
            )
            continue
        turns.append(
            TurnScores(
                turn=turn,
                scores=RubricScores(**{name: int(part.best) for name, part in read.items()}),
                readings={name: label_reading(part.mass) for name, part in read.items()},
            )
        )
    conversation, fault = _conversation(found) if scope.conversation else (None, None)
    verdict = found.get((None, "verdict"))
    weakest = found.get((None, "weakest"))
    reading = Reading(
        turns=tuple(turns),
        unscored=tuple(unscored),
        conversation=conversation,
        conversation_fault=fault,
    )
    if isinstance(verdict, ItemReading):
        reading = replace(reading, verdict=VERDICT_LABELS[verdict.best])
    if isinstance(weakest, ItemReading):
        by_letter: dict[str, int | None] = dict(zip(LETTERS, scope.weakest, strict=False))
        by_letter[NONE_LETTER] = None
        shares = {
            str(by_letter[key] or "none"): part for key, part in weakest.mass.probabilities.items()
        }
        reading = replace(
            reading, weakest=by_letter[weakest.best], has_weakest=True, weakest_probabilities=shares
        )
    return reading


def _conversation(
    found: dict[tuple[int | None, str], ItemReading | Failure],
) -> tuple[ConversationLevel | None, Failure | None]:
    scores: dict[str, ConversationScore] = {}
    for name in CONVERSATION_DIMENSIONS:
        part = found[None, name]
        if isinstance(part, Failure):
            return None, part
        score = "n/a" if part.best == NA_LABEL else int(part.best)
        scores[name] = ConversationScore(score=score, reading=label_reading(part.mass))
    return ConversationLevel(**scores), None


async def _ask_verdict_again(
    session: Session, trunk: Trunk, scope: Scope, item: Item, reading: Reading
) -> Reading:
    """Tell the judge what its scores give by the rule and read its verdict again; the scores stay."""
    for attempt in range(1, session.config.retries + 1):
        by_rule = mismatch_of(reading, scope)
        if by_rule is None:
            break
        amendment = session.texts.question("mismatch", got=reading.verdict, rule=by_rule)
        asked = replace(item, question=f"{item.question}\n{amendment}")
        request = request_of(asked, trunk, session.config.answer_prefix)
        (completion,) = await session.ask([replace(request, sample=attempt)])
        again = read_item(completion, item, session.config.min_coverage)
        if isinstance(again, ItemReading):
            reading = replace(reading, verdict=VERDICT_LABELS[again.best])
    return reading


def turn_means(turns: Sequence[TurnScores]) -> dict[str, float]:
    """Dimension to expectation of the one turn read (its integer where there is no expectation)."""
    (turn,) = turns
    means: dict[str, float] = {}
    for name in TURN_DIMENSIONS:
        reading = turn.readings.get(name)
        exact = reading.mean if reading is not None else None
        means[name] = exact if exact is not None else float(getattr(turn.scores, name))
    return means
