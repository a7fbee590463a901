"""Six ways in which judges of dialogues are known to fail, each as a figure over a run compared with a threshold.

A warning drops no row: it says what to look at, and names dialogues to look at. A figure that rests on too little
is `not_enough_data`, and no pass. Thresholds are constants: a judge that needs another one to pass has the fault.

Dialogues stream through. Held are ids, and two numbers a turn.
"""

from __future__ import annotations

import math
from array import array
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any

from curate.dialogue import Dialogue, Turn
from curate.records import (
    CONVERSATION_DIMENSIONS,
    TURN_DIMENSIONS,
    FailureMode,
    FailureModeName,
)
from curate.trust.pushback import LANGUAGES, has_pushback
from curate.trust.telling_words import TOKEN

FLAWED = 3
"""A dialogue with a score of at most this has a flaw that conversation scores should show."""
LONG = 10
"""Dialogues of more scored turns than this are long."""
SHOWN = 20
"""Ids kept of each mode."""

STATUSES = {
    "pass": "pass",
    "warn": "warn",
    "not_enough_data": "not enough data",
    "not_run": "not run",
}

Record = Mapping[str, Any]
"""A `Judgment` as a mapping, as it lies in a run folder."""


@dataclass(slots=True)
class _Share:
    """The dialogues in which a failure mode could show, and those in which it does.

    Attributes:
        threshold: of the share.
        least: fewer dialogues tell nothing.
        of: what they are, in words.
    """

    name: FailureModeName
    threshold: float
    least: int
    of: str
    n: int = 0
    behind: int = 0
    ids: list[str] = field(default_factory=list)

    def add(self, dialogue_id: str, *, shows: bool) -> None:
        self.n += 1
        self.behind += shows
        if shows and len(self.ids) < SHOWN:
            self.ids.append(dialogue_id)

    def mode(self, shared: str, more: str = "") -> FailureMode:
        """Return the figure; `detail` says what the dialogues behind it have in common."""
        enough = self.n >= self.least
        detail = f"{shared}: {self.behind:,} of {self.n:,} {self.of}"
        if not enough:
            detail = f"{self.n:,} {self.of}, {self.least} needed"
        return FailureMode(
            name=self.name,
            status=_status(self.behind / self.n, self.threshold) if enough else "not_enough_data",
            figure=self.behind / self.n if enough else None,
            threshold=self.threshold,
            n=self.n,
            detail="; ".join(filter(None, (detail, more))),
            behind=self.behind,
            dialogues=tuple(self.ids),
        )


def _status(figure: float, threshold: float) -> Any:
    return "warn" if figure > threshold else "pass"


class FailureModes:
    """Counts all six failure modes in the judgments of a run."""

    def __init__(self) -> None:
        flawed, long = f"a score of {FLAWED} or less", f"more than {LONG} scored turns"
        own = "dialogues with a verdict of the judge's own"
        pushback = "dialogues with pushback words of the user"
        self._averaged = _Share("aggregation_bias", 0.8, 20, f"dialogues with {flawed}")
        self._not_applicable = _Share("repair_false_na", 0.5, 10, pushback)
        self._noted = 0
        self._no_list: Counter[str] = Counter()
        self._collapsed = _Share("persona_collapse", 0.3, 10, "dialogues judged again")
        self._mismatched = _Share("verdict_mismatch", 0.2, 20, own)
        self._flat = _Share("flat_long_dialogues", 0.5, 10, f"dialogues of {long}")
        self._lengths = _Lengths()

    def add(self, dialogue: Dialogue, record: Record) -> None:
        """Look at one dialogue with its judgment."""
        turns = [turn["scores"] for turn in record["per_turn"]]
        level = record["conversation_level"]
        if record["verdict_mismatch"] is not None:
            self._mismatched.add(dialogue.id, shows=record["verdict_mismatch"])
        self._add_averaged(dialogue.id, turns, level)
        self._add_repair(dialogue, level["repair_handling"])
        if len(turns) > LONG:
            kinds = {tuple(scores[name] for name in TURN_DIMENSIONS) for scores in turns}
            # A flawless dialogue rightly has the best score everywhere.
            flawless = kinds == {(5, 5, 5)} and record["verdict"] == "excellent"
            self._flat.add(dialogue.id, shows=len(kinds) == 1 and not flawless)
        self._lengths.add(dialogue, record["per_turn"])

    def _add_averaged(self, name: str, turns: Sequence[Record], level: Record) -> None:
        turn_scores = [scores[dimension] for scores in turns for dimension in TURN_DIMENSIONS]
        whole = [level[dimension]["score"] for dimension in CONVERSATION_DIMENSIONS]
        numbers = [score for score in whole if score != "n/a"]
        if min(turn_scores + numbers) <= FLAWED:
            mean = fmean(turn_scores)
            self._averaged.add(name, shows=all(abs(score - mean) <= 0.5 for score in numbers))

    def _add_repair(self, dialogue: Dialogue, repair: Record) -> None:
        pushback = has_pushback(dialogue)
        if isinstance(pushback, str):
            self._no_list[pushback] += 1
        elif pushback:
            is_na = repair["score"] == "n/a"
            self._not_applicable.add(dialogue.id, shows=is_na)
            self._noted += is_na and bool(repair["note"])

    def add_swapped(self, dialogue_id: str, own: Record, other: Record) -> None:
        """Look at the judgments of one dialogue under its own scenario and under another dialogue's."""
        first, second = _levels(own), _levels(other)
        names = first.keys() & second.keys()
        drop = math.fsum(first[name] - second[name] for name in names)
        self._collapsed.add(dialogue_id, shows=drop <= 1e-9)

    def report(self, no_swaps: str = "") -> tuple[FailureMode, ...]:
        """Return all six failure modes, in the order of the judge card.

        Args:
            no_swaps: why no dialogue was judged again under another scenario; empty where some were.
        """
        missing = ", ".join(f"{name} {count:,}" for name, count in self._no_list.most_common(5))
        notes = [f"{self._noted:,} of them with a note"] if self._noted else []
        if missing:
            notes.append(f"no words for {missing} (there are lists for {', '.join(LANGUAGES)})")
        return (
            self._averaged.mode("all conversation scores within half a point of the turns' mean"),
            self._not_applicable.mode("repair_handling n/a", "; ".join(notes)),
            FailureMode(
                name="persona_collapse",
                status="not_run",
                threshold=self._collapsed.threshold,
                detail=no_swaps,
            )
            if no_swaps
            else self._collapsed.mode("scores do not fall with another dialogue's scenario"),
            self._lengths.mode(),
            self._mismatched.mode("another verdict than the scores give"),
            self._flat.mode("every turn with the same scores"),
        )


def _levels(record: Record) -> dict[str, float]:
    """Return the expectation (where there is none, the judge's digit) of each dimension, over the turns; n/a left out."""
    levels = {
        name: fmean(
            _exact((turn["digits"] or turn["scores"])[name], turn["readings"].get(name))
            for turn in record["per_turn"]
        )
        for name in TURN_DIMENSIONS
    }
    for name in CONVERSATION_DIMENSIONS:
        entry = record["conversation_level"][name]
        digit = entry["score"] if entry["digit"] is None else entry["digit"]
        if digit != "n/a":
            levels[name] = _exact(digit, entry["reading"])
    return levels


def _exact(score: int, reading: Record | None) -> float:
    mean = reading["mean"] if reading else None
    return float(score) if mean is None else float(mean)


@dataclass(slots=True)
class _Lengths:
    """Tokens and helpfulness of each scored turn."""

    threshold: float = 0.6
    least: int = 30
    ids: list[str] = field(default_factory=list)
    dialogue: array[int] = field(default_factory=lambda: array("l"))
    tokens: array[int] = field(default_factory=lambda: array("l"))
    helpfulness: array[float] = field(default_factory=lambda: array("d"))

    def add(self, dialogue: Dialogue, turns: Sequence[Record]) -> None:
        by_number = {turn.number: turn for turn in dialogue.turns}
        self.ids.append(dialogue.id)
        for turn in turns:
            self.dialogue.append(len(self.ids) - 1)
            self.tokens.append(_said_tokens(by_number[turn["turn"]]))
            reading = turn["readings"].get("helpfulness")
            self.helpfulness.append(_exact(turn["scores"]["helpfulness"], reading))

    def mode(self) -> FailureMode:
        """Return the rank correlation over all turns, and the dialogues that add the most to it."""
        n = len(self.tokens)
        few = f"{n:,} scored turns, {self.least} needed" if n < self.least else ""
        for name, values in (("helpfulness", self.helpfulness), ("length", self.tokens)):
            if not few and len(set(values)) == 1:
                few = f"all turns have the same {name}"
        if few:
            return FailureMode(
                name="length_favouritism",
                status="not_enough_data",
                threshold=self.threshold,
                n=n,
                detail=few,
            )
        import numpy as np
        from scipy.stats import rankdata

        ranks = [rankdata(np.asarray(values)) for values in (self.tokens, self.helpfulness)]
        long, helpful = (rank - rank.mean() for rank in ranks)
        products = long * helpful
        figure = float(products.sum() / math.sqrt((long**2).sum() * (helpful**2).sum()))
        parts = np.bincount(np.asarray(self.dialogue), weights=products, minlength=len(self.ids))
        most = np.argsort(-parts, kind="stable")[:SHOWN]
        return FailureMode(
            name="length_favouritism",
            status=_status(figure, self.threshold),
            figure=figure,
            threshold=self.threshold,
            n=n,
            detail=f"rank correlation of helpfulness with the answer's tokens over {n:,} turns",
            behind=int((parts > 0).sum()),
            dialogues=tuple(self.ids[at] for at in most if parts[at] > 0),
        )


def _said_tokens(turn: Turn) -> int:
    return sum(
        len(TOKEN.findall(message.content))
        for message in turn.messages
        if message.role == "assistant"
    )


def mode_rows(modes: Sequence[FailureMode]) -> list[tuple[str, str, str, str, str]]:
    """Return a table for a reader: mode, figure, threshold, status, and what there is to say with ids to look at."""
    return [
        (
            mode.name.replace("_na", " n/a").replace("_", " "),
            "" if mode.figure is None else f"{mode.figure:.2f}",
            f"{mode.threshold:.2f}",
            STATUSES[mode.status],
            mode.detail + (f". {_named(mode)}" if mode.status == "warn" else ""),
        )
        for mode in modes
    ]


def _named(mode: FailureMode) -> str:
    shown = ", ".join(mode.dialogues[:3])
    return f"Look at {shown}" + (" …" if mode.behind > 3 else "")
