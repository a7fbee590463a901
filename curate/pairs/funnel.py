"""The funnel: from dialogues to pairs that passed, with every drop at its stage. A pure count of records.

Every candidate turn and every candidate has a record, so nothing has to be counted on the way. Each stage
takes in what it drops plus what it lets through. A record says by its reason where it was dropped
(`DropReason.place`); reasons without a stage are counted in the last one.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Mapping
from typing import Literal, get_args

import polars as pl

from curate.records import DropReason, FunnelStage, PreferencePair

FunnelKind = Literal["fork", "natural"]
FUNNEL_KINDS: tuple[FunnelKind, ...] = get_args(FunnelKind)

FunnelSteps = tuple[tuple[str, frozenset[str]], ...]

_FORK_STAGES: FunnelSteps = tuple(
    (name, frozenset(reason for reason in DropReason if reason.place == name))
    for name in dict.fromkeys(reason.place for reason in DropReason)
    if name is not None
)
_TEXTS = dict(_FORK_STAGES)["differ"]
_AFTERWARDS = frozenset({DropReason.CONTAMINATED, DropReason.SPLIT_LEAK})
"""Given to pairs that had passed, when the whole run is looked at."""
_VERIFIED = "verified"
_NATURAL_STAGES: FunnelSteps = (
    ("in the data", frozenset({"data"})),
    ("differ", _TEXTS),
    (_VERIFIED, frozenset({"judged"})),
    ("passed", _AFTERWARDS),
)


class Funnel:
    """Counts records as they come, in any order; holds 16 bytes a record."""

    def __init__(self) -> None:
        self._dialogues, self._turns = array("q"), array("q")
        self._dropped_dialogues: Counter[str] = Counter()
        self._dropped_turns: Counter[str] = Counter()
        self._made: Counter[tuple[str, str]] = Counter()
        self._natural: Counter[tuple[str, str]] = Counter()
        self._has_verified = False

    def add(self, pair: PreferencePair) -> None:
        """Take in a record, passed or dropped."""
        code = pair.drop_reason.value if pair.drop_reason else ""
        if pair.basis != "judge":
            # Of one code, what the data itself says and what a judge said of the pair are two stages.
            judged = pair.check is not None or code == DropReason.UNSCORED
            by = code if code in _TEXTS | _AFTERWARDS else "judged" if judged else "data"
            self._natural[by if code else "", code] += 1
            self._has_verified |= judged
            return
        dialogue = (pair.dialogue_id, pair.content_hash)
        self._dialogues.append(hash(dialogue))
        if pair.turn is not None:
            self._turns.append(hash((*dialogue, pair.turn)))
        if pair.source != "none":
            self._made[code, code] += 1
        elif pair.turn is None:
            self._dropped_dialogues[code] += 1
        else:
            self._dropped_turns[code] += 1

    def stages(self, kind: FunnelKind) -> tuple[FunnelStage, ...]:
        """Return the stages in order; none where there was no record of the kind.

        Of forks: dialogues that `fork.where` admits, their candidate turns, then candidates for the chosen
        side. Of natural pairs: candidates. Where the `unit` stays the same a stage takes in what the one before
        let through; where it changes, what belongs to that: turns to a dialogue, candidates to a turn.
        Without a judge there is no stage of verified ones.
        """
        if kind == "natural":
            stages = [
                stage for stage in _NATURAL_STAGES if stage[0] != _VERIFIED or self._has_verified
            ]
            return _waterfall("natural candidates", self._natural, tuple(stages))
        if not self._dialogues:
            return ()
        return (
            _stage(
                "have a bad turn", "dialogues", _distinct(self._dialogues), self._dropped_dialogues
            ),
            _stage("forked", "turns", _distinct(self._turns), self._dropped_turns),
            *_waterfall("candidates", self._made, _FORK_STAGES),
        )


def _distinct(hashes: array[int]) -> int:
    return pl.Series(hashes, dtype=pl.Int64).n_unique()


def _waterfall(
    unit: str, outcomes: Mapping[tuple[str, str], int], stages: FunnelSteps
) -> tuple[FunnelStage, ...]:
    """Return the stages one by one from outcomes by (where, code): the empty code passed."""
    entered = sum(outcomes.values())
    if not entered:
        return ()
    all_codes = frozenset().union(*(codes for _, codes in stages))
    stages_so_far: list[FunnelStage] = []
    for name, codes in stages:
        is_last = name == stages[-1][0]
        dropped: Counter[str] = Counter()
        for (where, code), number in outcomes.items():
            if code and (where in codes or (is_last and where not in all_codes)):
                dropped[code] += number
        stages_so_far.append(_stage(name, unit, entered, dropped))
        entered = stages_so_far[-1].passed
    return tuple(stages_so_far)


def _stage(name: str, unit: str, entered: int, dropped: Counter[str]) -> FunnelStage:
    return FunnelStage(
        name=name,
        unit=unit,
        entered=entered,
        dropped=dict(sorted(dropped.items(), key=lambda item: (-item[1], item[0]))),
        passed=entered - dropped.total(),
    )
