"""Scoring mode `tokens`: each score is read from the distribution of the first token of an answer.

Every item (a dimension of a turn, a conversation score, the verdict, the weakest turn) is one request
of one token in a fresh context, so that no score leans on another. A question about a turn stands on the
trunk that ends with that turn, one about the conversation on the whole; the trunks are
nested, so a prefix cache still reads the dialogue once. Digits 1-5,
letters and `N` (n/a) are single tokens in all common tokenizers. The forced prefix (`(` by default for scores,
`Answer:` for letters) ends in punctuation, after which a label is a token of its own; an engine without PREFILL
leaves it out, so the question itself demands the bare label.

An item may be asked in several wordings, whose distributions are averaged: that takes out some of
what a single phrasing adds. One whose labels hold too little of the mass is asked again in another.

The rules use the most likely label. Expectation and spread are those of the digits alone.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from curate.engines.base import Completion, Request
from curate.engines.label_mass import LETTER_PREFIX, LabelMass, logsumexp, read_label_mass
from curate.engines.layout import Trunk
from curate.judging.rubric_prompts import WORDINGS, RubricTexts
from curate.judging.session import Failure, Page, PageReading, Scope, Session, fault_of, mismatch_of
from curate.records import (
    CONVERSATION_DIMENSIONS,
    TURN_DIMENSIONS,
    VERDICTS,
    ConversationLevel,
    ConversationScore,
    LabelReading,
    RubricScores,
    TurnScores,
    UnscoredReason,
    UnscoredTurn,
    Verdict,
)

DIGITS = ("1", "2", "3", "4", "5")
DIGIT_VALUES: Mapping[str, int] = {digit: int(digit) for digit in DIGITS}
NA_LABEL = "N"
NAMES: Mapping[str, str] = {NA_LABEL: "n/a"}
LETTERS = tuple("ABCDEFGHIJKLMNOPQRSTUVWXY")
NONE_LETTER = "Z"
MAX_CHOICES = len(LETTERS)
"""More turns than this have no single-token letter each."""

SCORED = frozenset((*TURN_DIMENSIONS, *CONVERSATION_DIMENSIONS))
"""Items that have a score; the others are the judge's opinions (`verdict`, `weakest`)."""
LOW_COVERAGE = UnscoredReason.LOW_COVERAGE

VERDICT_LABELS: dict[str, Verdict] = dict(zip(LETTERS, reversed(VERDICTS), strict=False))


@dataclass(frozen=True, slots=True)
class LabelQuestion:
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


ItemKey = tuple[int | None, str]
"""Turn (None for the conversation) and name of an item."""
LabelReadings = dict[ItemKey, ItemReading | Failure]


def items_of(scope: Scope, texts: RubricTexts, *, wording: int = 0) -> list[LabelQuestion]:
    """Return all questions of a scope, turn by turn, then the conversation's."""
    items = [
        LabelQuestion(
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
            text = texts.question(
                f"conversation.{wording}",
                dimension=name,
                asks=texts.asks[name],
                or_na=texts.question("or_na") if may_be_na else "",
            )
            labels = (*DIGITS, NA_LABEL) if may_be_na else DIGITS
            items.append(LabelQuestion(name, None, text, labels, "judge.conversation"))
    if scope.verdict:
        text = texts.question("verdict", rule=texts.question("rule"))
        items.append(LabelQuestion("verdict", None, text, tuple(VERDICT_LABELS), "judge.verdict"))
    if 0 < len(scope.weakest) <= MAX_CHOICES:
        letters = LETTERS[: len(scope.weakest)]
        lines = [
            f"{letter} = turn {turn}" for letter, turn in zip(letters, scope.weakest, strict=True)
        ]
        choices = "\n".join([*lines, f"{NONE_LETTER} = none of them"])
        text = texts.question("weakest", choices=choices)
        items.append(LabelQuestion("weakest", None, text, (*letters, NONE_LETTER), "judge.weakest"))
    return items


def request_of(item: LabelQuestion, trunk: Trunk, score_prefix: str) -> Request:
    """Return the request that reads one item; digits follow `score_prefix`, letters their own prefix."""
    return Request(
        trunk,
        item.question,
        max_tokens=1,
        prefill=score_prefix if item.labels[0].isdigit() else LETTER_PREFIX,
        labels=item.labels,
        purpose=item.purpose,
        turns=() if item.turn is None else (item.turn,),
    )


def read_item(
    completions: Sequence[Completion], item: LabelQuestion, min_coverage: float
) -> ItemReading | Failure:
    """Return the labels' mass of one item, averaged over its wordings, or why it does not count.

    The average is the linear pool of the distributions: each wording's probabilities count alike, and a
    wording whose mass lies off the labels says less.
    """
    masses: list[LabelMass] = []
    for completion in completions:
        fault = fault_of(completion)
        if fault is not None:
            return fault
        masses.append(read_label_mass(completion, item.labels))
    mass = _pool(masses)
    best = mass.best
    if best is None or mass.coverage < min_coverage:
        name = item.name if item.turn is None else f"{item.name} of turn {item.turn}"
        return Failure(LOW_COVERAGE, f"{name}: labels hold {mass.coverage:.3f} of the mass")
    return ItemReading(best, mass)


def _pool(masses: Sequence[LabelMass]) -> LabelMass:
    if len(masses) == 1:
        return masses[0]
    labels = dict.fromkeys(label for mass in masses for label in mass.logprobs)
    logprobs = {
        label: logsumexp([mass.logprobs[label] for mass in masses if label in mass.logprobs])
        - math.log(len(masses))
        for label in labels
    }
    return LabelMass(logprobs, sum(mass.coverage for mass in masses) / len(masses))


def label_reading(
    mass: LabelMass,
    values: Mapping[str, int] = DIGIT_VALUES,
    names: Mapping[str, str] = NAMES,
) -> LabelReading:
    """Return a first token's distribution as a reading.

    Args:
        values: number of each label that counts; n/a is none of them.
        names: what labels are called in the reading, where not as they are spelt.
    """
    return share_reading(mass.probabilities, mass.coverage, values, names)


def share_reading(
    shares: Mapping[str, float],
    coverage: float,
    values: Mapping[str, int] = DIGIT_VALUES,
    names: Mapping[str, str] = NAMES,
) -> LabelReading:
    """Return expectation and standard deviation over the labels seen that have a value; None where none was.

    Args:
        shares: probability of each label seen, summing to 1.
    """
    share_of_value = {values[label]: share for label, share in shares.items() if label in values}
    total = sum(share_of_value.values())
    mean = spread = None
    if total > 0:
        mean = sum(value * share for value, share in share_of_value.items()) / total
        variance = (
            sum((value - mean) ** 2 * share for value, share in share_of_value.items()) / total
        )
        # Rounding must not push an expectation over the scale's end.
        mean = min(float(max(values.values())), max(float(min(values.values())), mean))
        spread = math.sqrt(variance)
    probabilities = {names.get(label, label): share for label, share in shares.items()}
    return LabelReading(mean=mean, spread=spread, coverage=coverage, probabilities=probabilities)


async def ask_tokens(
    session: Session, page: Page, scope: Scope, *, wording: int | None = None
) -> PageReading | Failure:
    """Ask all items of a scope in one call, and put what was read together.

    Args:
        wording: the one paraphrase to ask; None for the config's number of them, averaged.

    A score whose labels hold too little of the mass is asked again in the next wording, behind the spare
    prefix, `retries` times (not where the caller named the wording). An item that could not be read leaves its turn unscored (or
    the conversation scores, or only the judge's own opinion); a prompt that does not fit fails the whole
    scope, which can then be split.
    """
    config = session.config
    wordings = range(config.paraphrases) if wording is None else range(wording, wording + 1)
    readings = await _ask_items(session, page, scope, wordings)
    attempts = config.retries if wording is None else 0
    for spare in range(wordings.stop, min(wordings.stop + attempts, len(WORDINGS))):
        failed = {key: part for key, part in readings.items() if isinstance(part, Failure)}
        retried = {key for key in failed if failed[key].reason == LOW_COVERAGE and key[1] in SCORED}
        if not retried:
            break
        readings |= await _ask_items(session, page, scope, range(spare, spare + 1), only=retried)
    for part in readings.values():
        if isinstance(part, Failure) and part.is_overflow:
            return part
    reading = assemble(readings, scope)
    if reading.verdict is not None and config.on_mismatch == "retry":
        item = next(item for item in items_of(scope, session.texts) if item.name == "verdict")
        return await _ask_verdict_again(session, session.trunk(page), scope, item, reading)
    return reading


async def _ask_items(
    session: Session,
    page: Page,
    scope: Scope,
    wordings: range,
    *,
    only: Collection[ItemKey] | None = None,
) -> LabelReadings:
    """Ask the scope's items in each wording (verdict and weakest turn have only one), or `only` some of them again."""
    config = session.config
    prefix = config.answer_prefix if only is None else config.retry_prefix
    wordings_of_item: dict[ItemKey, list[LabelQuestion]] = {}
    for wording in wordings:
        for item in items_of(scope, session.texts, wording=wording):
            key = (item.turn, item.name)
            is_due = only is None or key in only
            if is_due and (wording == wordings.start or item.name in SCORED):
                wordings_of_item.setdefault(key, []).append(item)
    so_far = session.nested_trunks(page) if scope.turns else {}
    # The last of the nested trunks is that of the page.
    whole = so_far[page.turns[-1].number] if so_far else session.trunk(page)
    requests = [
        request_of(item, whole if item.turn is None else so_far[item.turn], prefix)
        for items in wordings_of_item.values()
        for item in items
    ]
    replies = iter(await session.ask(requests))
    return {
        key: read_item([next(replies) for _ in items], items[0], config.min_coverage)
        for key, items in wordings_of_item.items()
    }


def assemble(readings: LabelReadings, scope: Scope) -> PageReading:
    """Put item readings together. Every item of the scope must be in `readings`."""
    turns: list[TurnScores] = []
    unscored: list[UnscoredTurn] = []
    for turn in scope.turns:
        parts = {name: readings[turn, name] for name in TURN_DIMENSIONS}
        items = {name: part for name, part in parts.items() if isinstance(part, ItemReading)}
        failed = [part for part in parts.values() if isinstance(part, Failure)]
        if failed:
            unscored.append(
                UnscoredTurn(turn=turn, reason=failed[0].reason, detail=failed[0].detail)
            )
            continue
        turns.append(
            TurnScores(
                turn=turn,
                scores=RubricScores(**{name: int(part.best) for name, part in items.items()}),
                readings={name: label_reading(part.mass) for name, part in items.items()},
            )
        )
    conversation, fault = _conversation(readings) if scope.conversation else (None, None)
    verdict = readings.get((None, "verdict"))
    weakest = readings.get((None, "weakest"))
    reading = PageReading(
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
    readings: LabelReadings,
) -> tuple[ConversationLevel | None, Failure | None]:
    scores: dict[str, ConversationScore] = {}
    for name in CONVERSATION_DIMENSIONS:
        part = readings[None, name]
        if isinstance(part, Failure):
            return None, part
        score = "n/a" if part.best == NA_LABEL else int(part.best)
        scores[name] = ConversationScore(score=score, reading=label_reading(part.mass))
    return ConversationLevel(**scores), None


async def _ask_verdict_again(
    session: Session, trunk: Trunk, scope: Scope, item: LabelQuestion, reading: PageReading
) -> PageReading:
    """Tell the judge what its scores give by the rule and read its verdict again; the scores stay."""
    for attempt in range(1, session.config.retries + 1):
        by_rule = mismatch_of(reading, scope)
        if by_rule is None:
            break
        amendment = session.texts.question("mismatch", got=reading.verdict, rule=by_rule)
        amended = replace(item, question=f"{item.question}\n{amendment}")
        request = request_of(amended, trunk, session.config.answer_prefix)
        (completion,) = await session.ask([replace(request, sample=attempt)])
        second = read_item([completion], item, session.config.min_coverage)
        if isinstance(second, ItemReading):
            reading = replace(reading, verdict=VERDICT_LABELS[second.best])
    return reading
