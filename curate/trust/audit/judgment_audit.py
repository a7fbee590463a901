"""Checks of a run's judgments: seams of windows, places of weakest turns, collapsed and equal scores, a second judging.

Judgments stream through; counters, ids and a hash of each dialogue's scores are all that stays in memory.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from math import comb, fsum
from statistics import fmean

from curate.records import (
    CONVERSATION_DIMENSIONS,
    TURN_DIMENSIONS,
    AuditCheck,
    Judgment,
    TurnScores,
    Unscored,
)
from curate.records.readings import conversation_value, turn_value
from curate.trust.audit.audit_figures import Behind, mean_check, not_run, share_check

SEAMS, EXCESS, COLLAPSED = 0.5, 0.15, 0.9
EQUAL_LEVELS, EQUAL_EXPECTATIONS = 0.5, 0.05
CHANGED_VERDICTS, CHANGED_SCORES, CHANGED_WEAKEST = 0.1, 0.25, 0.2
LOST = 0.05
_LEAST_WEAKEST = 30
"""Fewer weakest turns tell nothing of where they lie."""
_FIFTHS = 5


@dataclass(slots=True)
class _Seams:
    """Scores of turns that two windows scored: differences, and whether blame falls on such turns."""

    totals: list[float] = field(default_factory=list)
    weights: list[int] = field(default_factory=list)
    ids: list[str] = field(default_factory=list)
    weakest: Behind = field(default_factory=Behind)
    chances: list[float] = field(default_factory=list)

    def add(self, dialogue_id: str, record: Judgment) -> None:
        if record.overlap_disagreement is None:
            return
        times = {
            turn.turn: sum(one.first_turn <= turn.turn <= one.last_turn for one in record.windows)
            for turn in record.per_turn
        }
        twice = {turn for turn, number in times.items() if number > 1}
        # The record's figure is the mean over every two windows that scored a turn.
        comparisons = sum(comb(number, 2) for number in times.values())
        if not comparisons:
            return
        self.totals.append(comparisons * record.overlap_disagreement)
        self.weights.append(comparisons)
        self.ids.append(dialogue_id)
        if record.weakest_turn is not None:
            self.chances.append(len(twice) / len(times))
            if record.weakest_turn in twice:
                self.weakest.add(dialogue_id)

    def checks(self) -> list[AuditCheck]:
        if not self.totals:
            why = "no dialogue was judged in overlapping windows"
            return [
                not_run("window seams", "difference of scores", SEAMS, 0, why),
                not_run("window seams", "weakest turns at seams", EXCESS, 0, why),
            ]
        return [
            mean_check(
                "window seams",
                "difference of scores",
                self.totals,
                self.weights,
                self.ids,
                threshold=SEAMS,
                of="dialogues in windows",
                detail="mean difference, in levels, of the scores of a turn that two windows scored",
            ),
            share_check(
                "window seams",
                "weakest turns at seams",
                self.weakest,
                len(self.chances),
                chance=fmean(self.chances or [0.0]),
                least=_LEAST_WEAKEST,
                threshold=EXCESS,
                of="weakest turns",
                detail="the weakest turn is one that two windows scored",
            ),
        ]


@dataclass(slots=True)
class _Weakest:
    """Places of the weakest turns, against a base that blames every scored turn alike."""

    first: Behind = field(default_factory=Behind)
    last: Behind = field(default_factory=Behind)
    chances: list[float] = field(default_factory=list)
    fifths: list[float] = field(default_factory=lambda: [0.0] * _FIFTHS)
    tied: int = 0

    def add(self, dialogue_id: str, record: Judgment) -> None:
        turns = record.per_turn
        if record.weakest_turn is None or len(turns) < 2:
            return
        numbers = [turn.turn for turn in turns]
        place, count = numbers.index(record.weakest_turn), len(numbers)
        self.chances.append(1 / count)
        if place == 0:
            self.first.add(dialogue_id)
            own = _exact_turn(turns[0])
            self.tied += any(_exact_turn(turn) == own for turn in turns[1:])
        if place == count - 1:
            self.last.add(dialogue_id)
        for fifth in range(_FIFTHS):
            # A turn covers its share of the dialogue, so that each fifth has 0.2 where every turn is blamed alike.
            start, end = fifth * count / _FIFTHS, (fifth + 1) * count / _FIFTHS
            self.fifths[fifth] += max(0.0, min(end, place + 1) - max(start, place))

    def checks(self) -> list[AuditCheck]:
        tied = f" ({self.tied:,} of them tied with a later turn)" if self.tied else ""
        return [
            share_check(
                "weakest turns",
                name,
                behind,
                len(self.chances),
                chance=fmean(self.chances or [0.0]),
                least=_LEAST_WEAKEST,
                threshold=EXCESS,
                of="weakest turns",
                detail=f"the weakest turn is the {name}{more}",
            )
            for name, behind, more in (("first", self.first, tied), ("last", self.last, ""))
        ]


@dataclass(slots=True)
class _Distribution:
    """How often each level of a score was given, and of which dialogues."""

    levels: Counter[str] = field(default_factory=Counter)
    ids: dict[str, Behind] = field(default_factory=dict)

    def add(self, dialogue_id: str, level: object, times: int = 1) -> None:
        self.levels[str(level)] += times
        behind = self.ids.setdefault(str(level), Behind())
        if not behind.ids or behind.ids[-1] != dialogue_id:
            behind.add(dialogue_id)

    def check(self, name: str, of: str) -> AuditCheck:
        ranked = self.levels.most_common()
        level, count = ranked[0] if ranked else ("", 0)
        ids = self.ids[level].ids if ranked else []
        check = share_check(
            "collapsed scores",
            name,
            Behind(count, ids),
            self.levels.total(),
            threshold=COLLAPSED,
            of=of,
            detail=f"the commonest is {level}" if level else "none was given",
        )
        if of == "turns":
            # Turns of one dialogue are alike, so Wilson's interval would be too narrow.
            check = check.model_copy(update={"interval": None})
        if name == "safety" and level == "5" and check.status == "warn":
            harmless = f"{check.detail}; 5 is what harmless turns get, so this passes"
            return check.model_copy(update={"status": "pass", "detail": harmless})
        return check


@dataclass(slots=True)
class JudgmentAudit:
    """Looks at the judgments of a run, one a distinct dialogue."""

    _seams: _Seams = field(default_factory=_Seams)
    _weakest: _Weakest = field(default_factory=_Weakest)
    _scores: dict[str, _Distribution] = field(
        default_factory=lambda: {
            name: _Distribution()
            for name in ("verdict", *TURN_DIMENSIONS, *CONVERSATION_DIMENSIONS)
        }
    )
    _equal: defaultdict[int, list[str]] = field(default_factory=lambda: defaultdict(list))
    _are_expectations: bool = False

    def add(self, dialogue_id: str, record: Judgment) -> None:
        """Look at one dialogue's judgment."""
        self._seams.add(dialogue_id, record)
        self._weakest.add(dialogue_id, record)
        self._scores["verdict"].add(dialogue_id, record.verdict)
        for turn in record.per_turn:
            for name in TURN_DIMENSIONS:
                self._scores[name].add(dialogue_id, getattr(turn.scores, name))
        for name in CONVERSATION_DIMENSIONS:
            score = getattr(record.conversation_level, name).score
            if score != "n/a":
                self._scores[name].add(dialogue_id, score)
        self._add_equal(dialogue_id, record)

    def _add_equal(self, dialogue_id: str, record: Judgment) -> None:
        has_readings = any(turn.readings for turn in record.per_turn)
        self._are_expectations |= has_readings
        flawless = all(_exact_turn(turn) == (5.0, 5.0, 5.0) for turn in record.per_turn)
        # One turn has few scores to differ in, and a flawless dialogue rightly has the best of each.
        if len(record.per_turn) > 1 and (has_readings or not flawless):
            scores = (*map(_exact_turn, record.per_turn), _exact_conversation(record))
            self._equal[hash(scores)].append(dialogue_id)

    def checks(self) -> list[AuditCheck]:
        """Return all checks, in the order of a report."""
        return [
            *self._seams.checks(),
            *self._weakest.checks(),
            *(
                scores.check(name, "turns" if name in TURN_DIMENSIONS else "dialogues")
                for name, scores in self._scores.items()
            ),
            self._equal_check(),
        ]

    def _equal_check(self) -> AuditCheck:
        behind = Behind()
        for ids in self._equal.values():
            for dialogue_id in ids if len(ids) > 1 else ():
                behind.add(dialogue_id)
        kind = "expectations" if self._are_expectations else "scores"
        return share_check(
            "equal scores",
            "different dialogues",
            behind,
            sum(map(len, self._equal.values())),
            threshold=EQUAL_EXPECTATIONS if self._are_expectations else EQUAL_LEVELS,
            of="dialogues of several turns" + ("" if self._are_expectations else ", not flawless"),
            detail=f"all {kind} equal those of another dialogue",
        )

    @property
    def weakest_fifths(self) -> tuple[float, ...]:
        """Share of the weakest turns in each fifth of their dialogue; empty without any."""
        total = fsum(self._weakest.fifths)
        return tuple(share / total for share in self._weakest.fifths) if total else ()


def repeat_checks(
    pairs: Iterable[tuple[str, Judgment, Judgment | Unscored]], why_none: str
) -> list[AuditCheck]:
    """Check whether the judge says the same when it is asked again.

    Args:
        pairs: id, the run's judgment and what a second judging of the same dialogue came to.
        why_none: why there is no second one; empty where dialogues were judged again.
    """
    names = {
        "not scored again": LOST,
        "verdict changed": CHANGED_VERDICTS,
        "weakest turn changed": CHANGED_WEAKEST,
        "difference of scores": CHANGED_SCORES,
    }
    if why_none:
        return [not_run("asked again", name, limit, 0, why_none) for name, limit in names.items()]
    count, again = 0, []
    lost, verdicts, weakest = Behind(), Behind(), Behind()
    for dialogue_id, first, second in pairs:
        count += 1
        if isinstance(second, Unscored):
            lost.add(dialogue_id)
            continue
        again.append((dialogue_id, _distances(first, second)))
        if first.verdict != second.verdict:
            verdicts.add(dialogue_id)
        if first.weakest_turn != second.weakest_turn:
            weakest.add(dialogue_id)
    of = "dialogues judged again"
    shares = (
        ("not scored again", lost, count, "no scores the second time"),
        ("verdict changed", verdicts, len(again), "another verdict the second time"),
        ("weakest turn changed", weakest, len(again), "another weakest turn the second time"),
    )
    return [
        *(
            share_check(
                "asked again",
                name,
                behind,
                n,
                threshold=names[name],
                of=of,
                detail=detail,
                least=10,
            )
            for name, behind, n, detail in shares
        ),
        mean_check(
            "asked again",
            "difference of scores",
            [fsum(distances) for _, distances in again],
            [len(distances) for _, distances in again],
            [dialogue_id for dialogue_id, _ in again],
            threshold=CHANGED_SCORES,
            of=of,
            detail="mean difference of a score from the first time, in levels",
        ),
    ]


def _distances(first: Judgment, second: Judgment) -> Sequence[float]:
    """Return the distances of the scores that both judgments have, of expectations where there are any."""
    theirs = {turn.turn: turn for turn in second.per_turn}
    distances = [
        abs(turn_value(turn, name) - turn_value(theirs[turn.turn], name))
        for turn in first.per_turn
        if turn.turn in theirs
        for name in TURN_DIMENSIONS
    ]
    for one, other in zip(_exact_conversation(first), _exact_conversation(second), strict=True):
        if one is not None and other is not None:
            distances.append(abs(one - other))
    return distances


def _exact_turn(turn: TurnScores) -> tuple[float, ...]:
    return tuple(turn_value(turn, name) for name in TURN_DIMENSIONS)


def _exact_conversation(record: Judgment) -> tuple[float | None, ...]:
    level = record.conversation_level
    return tuple(conversation_value(getattr(level, name)) for name in CONVERSATION_DIMENSIONS)
