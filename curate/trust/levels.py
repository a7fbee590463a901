"""Calibrated levels: cut points that turn a judge's readings into the levels people would give.

A judge's most likely digit agrees with people hardly at all, since it says 4 of nearly everything; its
expectation ranks well. Four cuts on the expectation make levels of the ranking. Two ways to place them:
by matching shares (the quantiles of the expectation at the labels' cumulative level shares), which needs few
labels, and by the highest quadratic-weighted kappa, which is tried from 100 labels on and taken where it
agrees better on dialogues it was not fitted to.

All figures are by cross-validation with the turns of one dialogue kept together, and their intervals are a
bootstrap over dialogues. numpy is imported where it is used, so that the command line starts fast.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from curate.errors import UsageError
from curate.records import CutMethod, CutPoints, Kappa
from curate.statistics import SEED
from curate.trust.count_tables import Draws, quadratic_kappas
from curate.wording import plural

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

LEVELS = (1, 2, 3, 4, 5)
"""Levels of the rubric, counted from 1. Metrics have other numbers, so every function takes one."""
LEAST_LABELS = 15
LEAST_DIALOGUES = 5
LABELS_FOR_KAPPA = 100
"""Labels from which on cuts of the highest kappa are tried, too."""
FOLDS = 5
_CANDIDATES = 60
_NO_NA = 1.5
"""A cut on the probability of n/a that is never reached."""

Cuts = tuple[float, ...]
Fit = Callable[[Sequence[float], Sequence[int], int], Cuts]
"""Values, the people's levels of them and the number of levels in, cuts out: one fewer than levels."""


@dataclass(frozen=True, slots=True)
class LabelledReading:
    """One turn or conversation in one dimension: the judge's reading and people's label.

    Attributes:
        value: the expectation, 1-5 of the rubric, or the digit where there is none; None where the judge gave n/a
            alone.
        digit: the judge's most likely answer, None for n/a.
        na: probability of n/a, 0-1.
        level: the people's level, on the same scale; None for n/a.
        group: what is kept together, as a rule the dialogue.
    """

    value: float | None
    digit: int | None
    na: float
    level: int | None
    group: str


def quadratic_kappa(gold: Sequence[int], levels: Sequence[int], count: int = 5) -> float | None:
    """Return Cohen's kappa with quadratic weights (1968) over levels from 1 to `count`.

    1 minus the mean squared distance over that of independent draws from both sides. At most 1; None where
    nothing is given, or both sides have one and the same level throughout.
    """
    if len(gold) != len(levels):
        raise ValueError(f"one entry a row is needed, got {len(gold)} and {len(levels)}")
    return kappa_of_table(confusion(gold, levels, count)) if gold else None


def fit_cut_points(
    items: Sequence[LabelledReading],
    *,
    scale: str = "1-5",
    ceiling: float | None = None,
    what: str = "the dimension",
    lowest: int = 1,
    highest: int = 5,
) -> CutPoints:
    """Fit one dimension's cut points to labels, with the agreement before and after.

    Args:
        items: at least 15 with a level and a value, of 5 groups and 2 levels or more.
        scale: where the levels come from, for the record.
        ceiling: agreement between the raters, likewise.
        what: names the dimension in an error.
        lowest, highest: level of values and labels.

    Raises:
        UsageError: too few labels, or all of one level.
    """
    usable = [item for item in items if item.level is not None and item.value is not None]
    groups, levels = {item.group for item in usable}, {item.level for item in usable}
    if len(usable) < LEAST_LABELS or len(groups) < LEAST_DIALOGUES or len(levels) < 2:
        raise UsageError(
            f"too few labels to calibrate {what}",
            got=f"{len(usable)} labels with a reading, of {len(groups)} dialogues, in {plural(len(levels), 'level')}",
            expected=f"{LEAST_LABELS} labels, of {LEAST_DIALOGUES} dialogues, in 2 levels or more",
        )
    count, first = highest - lowest + 1, lowest - 1
    values = [item.value - first for item in usable if item.value is not None]
    gold = [item.level - first for item in usable if item.level is not None]
    keys = [item.group for item in usable]
    method, levels_given = cross_validated_levels(values, gold, keys, count)
    with_digit = [at for at, item in enumerate(usable) if item.digit is not None]
    return CutPoints(
        cuts=tuple(cut + first for cut in _FITS[method](values, gold, count)),
        lowest=lowest,
        na_cut=_fit_na(items),
        method=method,
        scale=scale,
        labels=sum(item.value is not None for item in items),
        dialogues=len(groups),
        before=kappa_figure(
            [gold[at] for at in with_digit],
            [(usable[at].digit or 0) - first for at in with_digit],
            [keys[at] for at in with_digit],
            count,
        ),
        after=kappa_figure(gold, levels_given, keys, count),
        ceiling=ceiling,
    )


def cross_validated_levels(
    values: Sequence[float], gold: Sequence[int], groups: Sequence[str], count: int = 5
) -> tuple[CutMethod, list[int]]:
    """Return the level of each value by cuts that were fitted without its group, and how they were fitted.

    By matching shares, or from 100 labels on for the highest kappa where that agrees better.

    Args:
        values: expectations, from 1 to `count`.
        gold: people's levels of them, from 1 to `count`, of two levels or more.
        groups: what is kept together, of two groups or more.
    """
    methods: list[CutMethod] = ["matched_shares"]
    if len(values) >= LABELS_FOR_KAPPA:
        methods.append("kappa")
    held_out = {method: _held_out(_FITS[method], values, gold, groups, count) for method in methods}
    method = max(methods, key=lambda name: quadratic_kappa(gold, held_out[name], count) or -1.0)
    return method, held_out[method]


def share_cut_points(values: Sequence[float], shares: Mapping[int, float]) -> CutPoints:
    """Return the cut points that give a run's own readings the shares of levels that a user expects, without labels.

    Args:
        values: expectations or digits, 1-5.
        shares: by level 1-5, together 1; levels left out have none.

    Raises:
        UsageError: no value, or shares that are none.
    """
    total = math.fsum(shares.values())
    if (
        not set(shares) <= set(LEVELS)
        or min(shares.values(), default=-1) < 0
        or abs(total - 1) > 0.005
    ):
        raise UsageError(
            "not shares of levels",
            got=str(dict(shares)),
            expected="shares of levels 1 to 5, each 0 or more, that sum to 1",
        )
    if not values:
        raise UsageError(
            "there are no readings to calibrate", expected="a run with scored dialogues"
        )
    below = [
        math.fsum(share for level, share in shares.items() if level <= last) / total * len(values)
        for last in LEVELS[:-1]
    ]
    return CutPoints(cuts=_cuts_at(sorted(values), below), method="given_shares")


def matched_cuts(values: Sequence[float], gold: Sequence[int], count: int = 5) -> Cuts:
    """Return the cuts at which as many values lie below as labels do; between equal values there is no cut."""
    below = [float(sum(level <= last for level in gold)) for last in range(1, count)]
    return _cuts_at(sorted(values), below)


def best_cuts(values: Sequence[float], gold: Sequence[int], count: int = 5) -> Cuts:
    """Return the cuts of the highest quadratic-weighted kappa found, moving one cut at a time from two starts."""
    import numpy as np

    places = [1.0, *_between(sorted(values)), count + 1.0]
    if len(places) > _CANDIDATES:
        step = (len(places) - 1) / (_CANDIDATES - 1)
        places = [places[round(number * step)] for number in range(_CANDIDATES)]
    array, levels = np.asarray(values), np.asarray(gold)
    # For each place, how many labels of each level have a value below it.
    below = np.array(
        [np.bincount(levels[array < place], minlength=count + 1)[1:] for place in places],
        dtype=float,
    )
    whole = np.bincount(levels, minlength=count + 1)[1:].astype(float)

    def kappas(rows: npt.NDArray[np.int_]) -> list[float]:
        """Return the kappa of each row of cut places."""
        ends = np.zeros((len(rows), 1, count)), np.broadcast_to(whole, (len(rows), 1, count))
        tables = np.diff(np.concatenate((ends[0], below[rows], ends[1]), axis=1), axis=1)
        reached: list[float] = np.nan_to_num(quadratic_kappas(tables)).tolist()
        return reached

    best: tuple[float, list[int]] | None = None
    halves = tuple(level + 0.5 for level in range(1, count))
    for start in (matched_cuts(values, gold, count), halves):
        at = [min((abs(place - cut), n) for n, place in enumerate(places))[1] for cut in start]
        [reached] = kappas(np.array([at]))
        moved = True
        while moved:
            moved = False
            for cut in range(count - 1):
                low = at[cut - 1] if cut else 0
                high = at[cut + 1] if cut < count - 2 else len(places) - 1
                rows = np.repeat([at], high + 1 - low, axis=0)
                rows[:, cut] = range(low, high + 1)
                for place, kappa in enumerate(kappas(rows), start=low):
                    if kappa > reached + 1e-12:
                        at[cut], reached, moved = place, kappa, True
        if best is None or reached > best[0] + 1e-12:
            best = reached, at
    assert best is not None
    return tuple(places[place] for place in best[1])


_FITS: Mapping[CutMethod, Fit] = {"matched_shares": matched_cuts, "kappa": best_cuts}


def kappa_figure(
    gold: Sequence[int], levels: Sequence[int], groups: Sequence[str], count: int = 5
) -> Kappa:
    """Return the quadratic-weighted kappa with the 95 % percentile bootstrap over groups (1,000 resamples)."""
    if not gold:
        return Kappa()
    draws = Draws(groups, least=1)
    figure = draws.figure(quadratic_kappas(draws.tables(gold, levels, count)))
    return Kappa(value=figure.value, interval=figure.interval)


def grouped_folds(
    groups: Sequence[str], first: Callable[[str], tuple[bool, ...]] = lambda _: ()
) -> list[list[int]]:
    """Return the rows of each fold, those of one group together, groups dealt out in a fixed random order.

    Args:
        groups: of each row.
        first: groups of which this is less are dealt out before the others.
    """
    names = sorted(set(groups))
    random.Random(SEED).shuffle(names)
    names.sort(key=first)
    fold_of = {name: place % FOLDS for place, name in enumerate(names)}
    dealt: list[list[int]] = [[] for _ in range(FOLDS)]
    for at, group in enumerate(groups):
        dealt[fold_of[group]].append(at)
    return [fold for fold in dealt if fold]


def splits(folds: Iterable[list[int]], n: int) -> Iterator[tuple[list[int], list[int]]]:
    """Yield for each fold the rows that are not in it, of `n` in all, and its own."""
    for fold in folds:
        yield sorted({*range(n)}.difference(fold)), fold


def _held_out(
    fit: Fit, values: Sequence[float], gold: Sequence[int], groups: Sequence[str], count: int
) -> list[int]:
    """Return the level of each value by cuts that were fitted without its group."""
    levels = [0] * len(values)
    for rest, fold in splits(grouped_folds(groups), len(values)):
        cuts = fit([values[at] for at in rest], [gold[at] for at in rest], count)
        for at in fold:
            levels[at] = 1 + sum(cut <= values[at] for cut in cuts)
    return levels


def _fit_na(items: Sequence[LabelledReading]) -> float | None:
    """Return the cut on the mass of n/a that leaves as many n/a as people gave; None where they gave none."""
    number_na = sum(item.level is None for item in items)
    if not number_na:
        return None
    masses = sorted(item.na for item in items)
    return _nearest(masses, float(len(items) - number_na), first=0.0, never=_NO_NA)


def _cuts_at(ordered: Sequence[float], below: Sequence[float]) -> Cuts:
    never = len(below) + 2.0
    return tuple(_nearest(ordered, number, first=1.0, never=never) for number in below)


def _nearest(ordered: Sequence[float], target: float, *, first: float, never: float) -> float:
    """Return the place between two different values below which the number of values is nearest to `target`.

    `first` lies below all values, `never` above them. Of two places equally near the lower.
    """
    places = [(0, first), (len(ordered), never)]
    places += [
        (at, (low + high) / 2)
        for at, (low, high) in enumerate(pairwise(ordered), start=1)
        if low < high
    ]
    return min(places, key=lambda place: (abs(place[0] - target), place[1]))[1]


def _between(ordered: Sequence[float]) -> list[float]:
    return [(low + high) / 2 for low, high in pairwise(ordered) if low < high]


def confusion(
    gold: Sequence[int], levels: Sequence[int], count: int = 5
) -> npt.NDArray[np.float64]:
    """Return how often each level (row) was given each level (column), from 1; of shape (count, count)."""
    import numpy as np

    flat = [count * (level - 1) + other - 1 for level, other in zip(gold, levels, strict=True)]
    return np.bincount(flat, minlength=count**2).reshape(count, count).astype(np.float64)


def kappa_of_table(table: npt.NDArray[np.float64]) -> float | None:
    """Return the quadratic-weighted kappa of a confusion table; tables of several groups add up to one of them all."""
    import numpy as np

    kappa = quadratic_kappas(table[np.newaxis])[0]
    return None if np.isnan(kappa) else float(kappa)
