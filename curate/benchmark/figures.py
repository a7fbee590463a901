"""The figures that the paper reports about a method, from its scores and the labels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from functools import partial
from typing import Any

from curate.benchmark.baselines import POSITION
from curate.benchmark.labelled_turns import ADHERENT, LabelledTurn
from curate.trust.agreement import (
    DECISION_FIGURES,
    RESAMPLES,
    Interval,
    Statistic,
    auc,
    average_precision,
    bootstrap_interval,
    class_means,
    expected_calibration_error,
    of_sample,
    resampled_auc_gains,
    resampled_aucs,
    resampled_decisions,
    resampled_means,
)


@dataclass(frozen=True, slots=True)
class TurnKindFigures:
    """One kind of turn under a method: how many, their mean score, and AUC of the adherent ones against it.

    `auc` is None for the adherent turns themselves, and where there are none.
    """

    n: int
    mean: float | None
    auc: float | None


@dataclass(frozen=True, slots=True)
class MethodFigures:
    """The figures of a method on one condition; None where a figure is not defined.

    Attributes:
        method: its name.
        n: turns of the condition.
        unscored: how many of these have no score; they count in no figure.
        binary: its scores are all 0 or 1, so figures of a hard decision are given.
        separation: difference of the class means. The paper's tables give the difference of the means as
            rounded there, which can differ from this by one in the third decimal.
        accuracy: share of right decisions, where there are decisions.
        brier, ece: of scores taken as probabilities, ECE in 10 bins; None where a score is outside [0, 1].
        intervals: 95 % bootstrap intervals by the name of the figure: `auc`, and where they are defined
            `f1_macro`, `f1_adherent`, `f1_violation`, `kappa`, `accuracy`, `brier`. ECE has none: resampling
            moves it upwards, so that its own interval would leave it out.
        by_kind: figures by label, adherent turns first.
    """

    method: str
    n: int
    unscored: int
    binary: bool
    mean_adherent: float | None
    mean_violation: float | None
    separation: float | None
    auc: float | None
    ap: float | None
    f1_adherent: float | None
    f1_violation: float | None
    f1_macro: float | None
    kappa: float | None
    accuracy: float | None
    brier: float | None
    ece: float | None
    intervals: Mapping[str, Interval]
    by_kind: Mapping[str, TurnKindFigures]


COLUMNS = tuple(
    field.name
    for field in fields(MethodFigures)
    if field.name not in ("unscored", "binary", "intervals", "by_kind")
)
"""Columns of `results.csv`."""


def figures(
    method: str,
    scores: Sequence[float | None],
    turns: Sequence[LabelledTurn],
    *,
    threshold: float | None = None,
    resamples: int = RESAMPLES,
) -> MethodFigures:
    """Return all figures that the paper reports about a method, on the turns it scored.

    Args:
        method: name for the table.
        scores: one a turn, None where unscored.
        turns: in the same order.
        threshold: least score of an adherent turn, for F1, kappa and accuracy; without one they are given only for
            methods whose scores are all 0 or 1.
        resamples: of the bootstrap intervals; 0 for none.
    """
    scored = [(s, turn) for s, turn in zip(scores, turns, strict=True) if s is not None]
    values, gold = [s for s, _ in scored], [turn.is_adherent for _, turn in scored]
    binary = bool(values) and set(values) <= {0.0, 1.0}
    cut = 0.5 if binary and threshold is None else threshold
    decided = None if cut is None else [value >= cut for value in values]
    chances = bool(values) and min(values) >= 0 and max(values) <= 1
    means = class_means(values, gold)
    statistics = _statistics(values, decided, gold, chances=chances)
    # Each over the same resampled rows, since every bootstrap starts from the same seed.
    intervals = {
        name: bootstrap_interval(statistic, len(gold), resamples=resamples)
        for name, statistic in statistics.items()
    }
    of_rows = {name: of_sample(statistic, len(gold)) for name, statistic in statistics.items()}
    return MethodFigures(
        method=method,
        n=len(turns),
        unscored=len(turns) - len(scored),
        binary=binary,
        mean_adherent=means and means[0],
        mean_violation=means and means[1],
        separation=means and means[0] - means[1],
        ap=average_precision(values, gold),
        ece=expected_calibration_error(values, gold) if chances else None,
        intervals={name: ends for name, ends in intervals.items() if ends is not None},
        by_kind=_by_kind(values, [turn for _, turn in scored]),
        **{name: of_rows.get(name) for name in ("auc", "brier", *DECISION_FIGURES)},
    )


def result_row(row: MethodFigures) -> dict[str, Any]:
    """Return one line of `results.csv`, see `COLUMNS`."""
    return {name: getattr(row, name) for name in COLUMNS}


def _statistics(
    values: Sequence[float], decided: Sequence[bool] | None, gold: Sequence[bool], *, chances: bool
) -> dict[str, Statistic]:
    """Return the figures that have an interval, by name, as functions of resamples."""
    statistics: dict[str, Statistic] = {"auc": partial(resampled_aucs, values, gold)}
    if chances:
        squares = [(value - label) ** 2 for value, label in zip(values, gold, strict=True)]
        statistics["brier"] = partial(resampled_means, squares)
    if decided is not None:
        for name in DECISION_FIGURES:
            statistics[name] = partial(resampled_decisions, name, gold, decided)
    return statistics


def _by_kind(values: Sequence[float], turns: Sequence[LabelledTurn]) -> dict[str, TurnKindFigures]:
    kinds = {turn.label for turn in turns}
    figures_of = {}
    for kind in sorted(kinds, key=lambda kind: (kind != ADHERENT, kind)):
        own = [value for value, turn in zip(values, turns, strict=True) if turn.label == kind]
        rows = [at for at, turn in enumerate(turns) if turn.label in (ADHERENT, kind)]
        figures_of[kind] = TurnKindFigures(
            n=len(own),
            mean=sum(own) / len(own),
            auc=auc([values[at] for at in rows], [turns[at].is_adherent for at in rows]),
        )
    return figures_of


@dataclass(frozen=True, slots=True)
class BaselineComparison:
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
    def sentence(self) -> str:
        """The verdict in words."""
        return "beats it" if self.beats else "does not beat it"


def verdicts(
    methods: Mapping[str, Sequence[float | None]],
    baselines: Mapping[str, Sequence[float | None]],
    turns: Sequence[LabelledTurn],
    *,
    resamples: int = RESAMPLES,
) -> list[BaselineComparison]:
    """Return each method against the best baseline by AUC and, where that is the row's position, also the best other.

    The position of a row is a flaw of a file, which no method can read; the others read the turn. The
    best baseline is chosen on these very rows, so a method that just misses it may be as good.
    A method or baseline whose AUC is not defined is left out.
    """
    rivals = _rivals(baselines, turns)
    compared = []
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
            gains = partial(resampled_auc_gains, ours, theirs, gold)
            interval = bootstrap_interval(gains, len(gold), resamples=resamples)
            compared.append(
                BaselineComparison(name, rival, place == 0, first, second, first - second, interval)
            )
    return compared


def _rivals(
    baselines: Mapping[str, Sequence[float | None]], turns: Sequence[LabelledTurn]
) -> list[str]:
    areas: dict[str, float] = {}
    for name, scores in baselines.items():
        scored = [(s, turn) for s, turn in zip(scores, turns, strict=True) if s is not None]
        area = auc([s for s, _ in scored], [turn.is_adherent for _, turn in scored])
        if area is not None:
            areas[name] = area
    ranked = sorted(areas, key=lambda name: -areas[name])
    best = ranked[:1]
    if best == [POSITION]:
        best += ranked[1:2]
    return best
