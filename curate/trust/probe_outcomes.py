"""The outcomes that a card's lines are means of, from a judge's readings of cases and variants."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from curate.records import CONVERSATION_DIMENSIONS, TURN_DIMENSIONS, VERDICTS, Judgment
from curate.records.probe import ProbeOutcome
from curate.records.readings import conversation_value, turn_value
from curate.trust.probe_cases import PROBE_KINDS, ProbeCase
from curate.trust.probe_variants import Variant

SWITCHED = frozenset({"other_scenario"})
"""Lines of variants that are about the first less the second."""


@dataclass(frozen=True, slots=True)
class JudgmentReading:
    """One judgment's scores, weakest turn and verdict.

    Attributes:
        scores: by dimension, those of turns as their mean over the turns; a dimension that is n/a is left out.
        verdict: its rank, from 0 for the worst.
        weakest: number of the turn that is most to blame; None where none is.
        turns: numbers of the turns that were scored.
    """

    scores: Mapping[str, float]
    verdict: int
    weakest: int | None
    turns: tuple[int, ...]

    @classmethod
    def of(cls, judgment: Judgment) -> JudgmentReading:
        """Return a judgment's reading, by expectations where the judge gives them, else by its digits."""
        level = judgment.conversation_level
        scores = {
            name: fmean(turn_value(turn, name) for turn in judgment.per_turn)
            for name in TURN_DIMENSIONS
        }
        for name in CONVERSATION_DIMENSIONS:
            value = conversation_value(getattr(level, name))
            if value is not None:
                scores[name] = value
        turns = tuple(turn.turn for turn in judgment.per_turn)
        return cls(scores, VERDICTS.index(judgment.verdict), judgment.weakest_turn, turns)

    def above(self, other: JudgmentReading) -> float:
        """Return by how much the mean score is higher than another's, over the dimensions that both have."""
        names = self.scores.keys() & other.scores.keys()
        return fmean(self.scores[name] - other.scores[name] for name in names)


@dataclass(frozen=True, slots=True)
class Readings:
    """All readings of a probe; cases that could not be scored are missing.

    Attributes:
        judged: by content hash.
        again: the same dialogues asked a second time.
        kinds: named kind of a flaw, by case.
        picks: by case, whether the untouched side was picked when shown first, and when shown second.
        wordings: by content hash, how far the last turn's mean score moves with another wording.
    """

    judged: Mapping[str, JudgmentReading]
    again: Mapping[str, JudgmentReading]
    kinds: Mapping[str, str]
    picks: Mapping[str, tuple[bool, bool]]
    wordings: Mapping[str, float]


_TIE = 1e-9


def higher(difference: float) -> float:
    """Return 1 for a difference above zero, 0 below, and a half for a tie."""
    return 0.5 if abs(difference) < _TIE else float(difference > 0)


def outcomes_of(
    cases: Sequence[ProbeCase], variants: Sequence[Variant], readings: Readings
) -> list[ProbeOutcome]:
    """Return all outcomes, case by case and line by line; a case that lacks a reading gives none of the lines that need it."""
    outcomes: list[ProbeOutcome] = []
    for case in cases:
        outcomes += _of_case(case, readings)
    outcomes += _late_flaws(cases, readings)
    for variant in variants:
        first, second = (
            readings.judged.get(dialogue.content_hash)
            for dialogue in (variant.first, variant.second)
        )
        if first is not None and second is not None:
            moved = second.above(first)
            value = -moved if variant.line in SWITCHED else moved
            outcomes.append(_outcome(variant.line, variant.key, variant.group, value))
    for key, second in readings.again.items():
        if key in readings.judged:
            moved = abs(second.above(readings.judged[key]))
            outcomes.append(_outcome("repeated", key, key, moved))
    outcomes += [
        _outcome("other_wording", key, key, abs(moved)) for key, moved in readings.wordings.items()
    ]
    return outcomes


def _outcome(line: str, case: str, group: str, value: float, against: float = 0.0) -> ProbeOutcome:
    return ProbeOutcome(line=line, case=case, group=group, value=value, against=against)


def _of_case(case: ProbeCase, readings: Readings) -> Iterator[ProbeOutcome]:
    def outcome(line: str, value: float, against: float = 0.0) -> ProbeOutcome:
        return _outcome(line, case.key, case.group, value, against)

    judged = readings.judged
    untouched, planted = (
        judged.get(dialogue.content_hash) for dialogue in (case.untouched, case.planted)
    )
    harmless = None if case.harmless is None else judged.get(case.harmless.content_hash)
    picks = readings.picks.get(case.key)
    if picks is not None:
        first, second = picks
        yield outcome("side_by_side", (first + second) / 2, 0.5)
        yield outcome("candidate_order", float(first + (not second) - 1))
    if planted is None:
        return
    if harmless is not None:
        yield outcome("beside_harmless", higher(harmless.above(planted)), 0.5)
    kind = readings.kinds.get(case.key)
    if kind is not None:
        yield outcome("kind", float(kind == case.kind), 1 / len(PROBE_KINDS))
    yield from _where(case, planted, outcome)
    if untouched is None:
        return
    wins = higher(untouched.above(planted))
    yield outcome("detection", wins, 0.5)
    yield outcome(case.kind, wins, 0.5)
    fall = untouched.verdict - planted.verdict
    yield outcome("verdict_fallen", float((fall > 0) - (fall < 0)))
    if harmless is not None:
        yield outcome("harmless_edit", untouched.above(harmless))
    if kind is not None and len(planted.turns) > 1:
        is_right = wins == 1 and planted.weakest == case.turn and kind == case.kind
        chance = 1 / (2 * len(planted.turns) * len(PROBE_KINDS))
        yield outcome("all_right", float(is_right), chance)


def _where(
    case: ProbeCase, planted: JudgmentReading, outcome: Callable[[str, float, float], ProbeOutcome]
) -> Iterator[ProbeOutcome]:
    """Yield whether the weakest turn is the planted one, near it, or the last; a dialogue of one turn leaves no choice."""
    n = len(planted.turns)
    if n < 2:
        return
    near = [turn for turn in planted.turns if abs(turn - case.turn) <= 1]
    yield outcome("weakest_turn", float(planted.weakest == case.turn), 1 / n)
    if len(near) < n:
        yield outcome("within_one", float(planted.weakest in near), len(near) / n)
    last = planted.turns[-1]
    if last != case.turn:
        yield outcome("last_turn", float(planted.weakest == last), 1 / n)


def _late_flaws(cases: Sequence[ProbeCase], readings: Readings) -> list[ProbeOutcome]:
    """Return by dialogue how much more a flaw in its second half costs than one in its first."""
    falls: dict[str, dict[bool, list[float]]] = defaultdict(lambda: defaultdict(list))
    for case in cases:
        untouched, planted = (
            readings.judged.get(held.content_hash) for held in (case.untouched, case.planted)
        )
        if untouched is None or planted is None or case.turn not in planted.turns:
            continue
        place = planted.turns.index(case.turn) / max(1, len(planted.turns) - 1)
        if len(planted.turns) > 1 and place != 0.5:
            falls[case.group][place > 0.5].append(untouched.above(planted))
    return [
        _outcome("late_flaws", group, group, fmean(held[True]) - fmean(held[False]))
        for group, held in falls.items()
        if len(held) == 2
    ]
