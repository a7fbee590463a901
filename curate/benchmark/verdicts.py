"""Does a method beat what needs no understanding?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from curate.benchmark.baselines import POSITION
from curate.benchmark.labelled_turns import LabelledTurn
from curate.trust.agreement import RESAMPLES, Interval, auc, paired_interval


@dataclass(frozen=True, slots=True)
class Verdict:
    """A method against one baseline, on the turns that both score.

    Attributes:
        method: its name.
        baseline: whom it is measured against.
        is_best: this is the best baseline of the file, by AUC.
        method_auc, baseline_auc: on those turns.
        difference: method minus baseline.
        interval: 95 % paired bootstrap interval of the difference; None where it is not defined.
    """

    method: str
    baseline: str
    is_best: bool
    method_auc: float
    baseline_auc: float
    difference: float
    interval: Interval | None

    @property
    def beats(self) -> bool:
        """The interval lies above 0."""
        return self.interval is not None and self.interval.low > 0

    @property
    def said(self) -> str:
        """The verdict in words."""
        if self.beats:
            return "beats it"
        return "does not beat it"


def verdicts(
    methods: Mapping[str, Sequence[float | None]],
    baselines: Mapping[str, Sequence[float | None]],
    turns: Sequence[LabelledTurn],
    *,
    resamples: int = RESAMPLES,
) -> list[Verdict]:
    """Each method against the best baseline by AUC and, where that is the row's position, also the best other.

    The position of a row is a flaw of a file, which no method can read; the others read the turn. The
    best baseline is chosen on these very rows, so a method that just misses it may be as good.
    A method or baseline whose AUC is not defined is left out.
    """
    rivals = _rivals(baselines, turns)
    found = []
    for name, scores in methods.items():
        for place, rival in enumerate(rivals):
            both = [
                (ours, theirs, turn.is_adherent)
                for ours, theirs, turn in zip(scores, baselines[rival], turns, strict=True)
                if ours is not None and theirs is not None
            ]
            ours, theirs = [row[0] for row in both], [row[1] for row in both]
            gold = [row[2] for row in both]
            first, second = auc(ours, gold), auc(theirs, gold)
            if first is None or second is None:
                continue
            interval = paired_interval(auc, ours, theirs, gold, resamples=resamples)
            found.append(Verdict(name, rival, place == 0, first, second, first - second, interval))
    return found


def _rivals(
    baselines: Mapping[str, Sequence[float | None]], turns: Sequence[LabelledTurn]
) -> list[str]:
    areas: dict[str, float] = {}
    for name, scores in baselines.items():
        held = [(s, turn) for s, turn in zip(scores, turns, strict=True) if s is not None]
        area = auc([s for s, _ in held], [turn.is_adherent for _, turn in held])
        if area is not None:
            areas[name] = area
    ranked = sorted(areas, key=lambda name: -areas[name])
    best = ranked[:1]
    if best == [POSITION]:
        best += ranked[1:2]
    return best
