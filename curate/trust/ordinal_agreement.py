"""Agreement of a judge's levels with people's: every figure with one bootstrap over dialogues, and the gate.

All figures are functions of tables of counts (`count_tables`): people's level against the judge's, and people's mean
against the judge's reading.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import TYPE_CHECKING, Any, Final, Literal

from curate.records.agreement import (
    AgreementGate,
    AgreementSlice,
    DimensionAgreement,
    Figure,
    LevelFigures,
    RaterFigures,
    SliceBy,
)
from curate.trust.agreement import USABLE_KAPPA
from curate.trust.count_tables import (
    LEAST_DRAWN,
    Draws,
    bounds_of,
    kendall_tau_bs,
    quadratic_kappas,
    spearmans,
)
from curate.trust.levels import LEAST_DIALOGUES, LEAST_LABELS, cross_validated_levels
from curate.trust.raters import alternative_annotator_test, coincidences, ordinal_alphas

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

GATE_DIALOGUES = 100
"""Labelled dialogues that a dimension needs before it may be filtered by (the rubric's own rule)."""
SLICE_LABELS, SLICE_DIALOGUES = 30, 20
"""Labels and dialogues below which a slice gets no kappa."""

GateBy = Literal["levels", "mapped", "lower_of_both"]
Levels = Literal["digits", "calibrated levels", "verdicts", "decisions"]
_CUT: Final = frozenset[Levels]({"digits", "calibrated levels"})
"""Levels that are cut from `Compared.value`, so that other cut points may agree better."""


@dataclass(frozen=True, slots=True)
class Compared:
    """One turn, conversation or pair with the judge's level and people's.

    Attributes:
        judge: level from 1; None for n/a.
        value: the judge's finest reading, to rank by; None where it gave n/a alone.
        people: the level of all raters together, from 1; None for n/a.
        mean: of their levels, not rounded.
        group: its dialogue, or what that is kept together with.
        raters: by name, the level that each person gave; people without a name are left out.
        each: every level that a person gave, names or not.
        slices: what it belongs to.
    """

    judge: int | None
    value: float | None
    people: int | None
    mean: float | None
    group: str
    raters: Mapping[str, int] = field(default_factory=dict)
    each: Sequence[int] = ()
    slices: Mapping[SliceBy, str] = field(default_factory=dict)


def measure_dimension(
    items: Sequence[Compared],
    names: Sequence[str],
    *,
    scale: str,
    compared: Levels,
    scales_differ: bool = False,
    is_fitted: bool = False,
    epsilon: float,
) -> DimensionAgreement | None:
    """Measure a judge's agreement with people's labels in one dimension; None where no item has a level by both.

    Args:
        items: every labelled item that the judge scored.
        names: of the levels, worst first.
        scale: of the labels, in words.
        compared: what the judge's levels are.
        scales_differ: the labels are on another scale than the judge's, so the gate goes by mapped levels.
        is_fitted: the judge's levels were fitted to labels, which may be these.
        epsilon: of the alternative annotator test.
    """
    used = [item for item in items if item.judge is not None and item.people is not None]
    if not used:
        return None
    judge = [item.judge or 0 for item in used]
    people = [item.people or 0 for item in used]
    groups = [item.group for item in used]
    draws = Draws(groups)
    size = len(names)
    tables = draws.tables(people, judge, size)
    spearman, kendall = _rank_figures(used, draws)
    mapped = _mapped_levels(used, size) if compared in _CUT else None
    mapped_tables = None if mapped is None else draws.tables(people, mapped, size)
    by = _gate_by(scales_differ=scales_differ, is_fitted=is_fitted, has_mapped=mapped is not None)
    shown = mapped if by == "mapped" and mapped is not None else judge
    return DimensionAgreement(
        labels=len(used),
        dialogues=draws.groups,
        scale=scale,
        compared=compared,
        levels=_level_figures(tables, draws),
        spearman=spearman,
        kendall=kendall,
        mapped=None if mapped_tables is None else _level_figures(mapped_tables, draws),
        level_names=tuple(names),
        confusion=_counts(tables),
        mapped_confusion=None if mapped_tables is None else _counts(mapped_tables),
        not_applicable=_not_applicable(items),
        alpha=_alpha(items, size),
        raters=_each_against_others(items, size),
        alternative=alternative_annotator_test(
            shown, [item.raters for item in used], groups, epsilon
        ),
        slices=tuple(_slices(used, shown, size)),
        gate=_gate(tables, mapped_tables, draws, by),
    )


def _level_figures(tables: npt.NDArray[np.float64], draws: Draws) -> LevelFigures:
    import numpy as np

    size = tables.shape[1]
    levels = np.arange(size)
    apart = levels[None, :] - levels[:, None]  # judge minus people
    total = tables.sum(axis=(1, 2))

    def mean(weights: npt.NDArray[Any]) -> Figure:
        with np.errstate(divide="ignore", invalid="ignore"):
            return draws.figure(np.einsum("trc,rc->t", tables, weights) / total)

    return LevelFigures(
        kappa=draws.figure(quadratic_kappas(tables)),
        agreement=mean((apart == 0).astype(float)),
        within_one=mean((abs(apart) <= 1).astype(float)) if size > 2 else Figure(),
        bias=mean(apart),
    )


def _rank_figures(used: Sequence[Compared], draws: Draws) -> tuple[Figure, Figure]:
    """Return Spearman and tau-b of the judge's reading with the people's mean."""
    import numpy as np

    values = [item.judge if item.value is None else item.value for item in used]
    means = [item.people if item.mean is None else item.mean for item in used]
    # The many values are the columns, which lie side by side in memory.
    rows, row = np.unique(np.array(means, float), return_inverse=True)
    columns, column = np.unique(np.array(values, float), return_inverse=True)
    shape = len(rows), len(columns)
    spearman, kendall = draws.figures(row, column, shape, spearmans, kendall_tau_bs)
    return spearman, kendall


def _mapped_levels(used: Sequence[Compared], size: int) -> list[int] | None:
    """Return the level of each item by cut points fitted without its dialogue; None where there are too few labels."""
    values = [item.value for item in used if item.value is not None]
    people = [item.people for item in used if item.people is not None]
    groups = [item.group for item in used]
    enough = len(used) >= LEAST_LABELS and len({*groups}) >= LEAST_DIALOGUES
    if not enough or len(values) < len(used) or len({*people}) < 2:
        return None
    return cross_validated_levels(values, people, groups, size)[1]


def _counts(tables: npt.NDArray[np.float64]) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(int(count) for count in row) for row in tables[0])


def _not_applicable(
    items: Sequence[Compared],
) -> dict[Literal["both", "judge_only", "people_only"], int]:
    counts: dict[Literal["both", "judge_only", "people_only"], int] = {
        "both": sum(item.judge is None and item.people is None for item in items),
        "judge_only": sum(item.judge is None and item.people is not None for item in items),
        "people_only": sum(item.judge is not None and item.people is None for item in items),
    }
    return counts if any(counts.values()) else {}


# ---- people against each other


def _alpha(items: Sequence[Compared], size: int) -> Figure:
    """Return Krippendorff's alpha between the people, whatever the judge says."""
    import numpy as np

    rated = [item for item in items if len(item.each) > 1]
    if not rated:
        return Figure()
    by_group: dict[str, list[Sequence[int]]] = defaultdict(list)
    for item in rated:
        by_group[item.group].append(item.each)
    draws = Draws([item.group for item in rated])
    tables = np.array([coincidences(units, size) for units in by_group.values()])
    return draws.figure(ordinal_alphas(draws.summed(tables)))


def _each_against_others(items: Sequence[Compared], size: int) -> tuple[RaterFigures, ...]:
    """Return each named person against the mean of the others, on the items that others rated, too."""
    pairs: dict[str, list[tuple[int, int, str]]] = defaultdict(list)
    for item in items:
        for rater, level in item.raters.items():
            others = [values for name, values in item.raters.items() if name != rater]
            if others:
                pairs[rater].append((math.floor(fmean(others) + 0.5), level, item.group))
    figures = []
    for rater, values in sorted(pairs.items()):
        draws = Draws([group for *_, group in values])
        tables = draws.tables([mean for mean, *_ in values], [own for _, own, _ in values], size)
        kappa = draws.figure(quadratic_kappas(tables))
        figures.append(RaterFigures(rater=rater, items=len(values), kappa=kappa))
    return tuple(figures)


# ---- slices and the gate


def _slices(used: Sequence[Compared], judge: Sequence[int], size: int) -> Iterator[AgreementSlice]:
    """Return kappa by language, role, length and source, where there are two values; slices with too few labels are counted."""
    for by in ("language", "role", "length", "source"):
        places: dict[str, list[int]] = defaultdict(list)
        for place, item in enumerate(used):
            places[item.slices.get(by, "not known")].append(place)
        if len(places) < 2:
            continue
        left: list[int] = []
        for value, rows in sorted(places.items()):
            if len(rows) < SLICE_LABELS or _dialogues(used, rows) < SLICE_DIALOGUES:
                left += rows
                continue
            draws = Draws([used[place].group for place in rows])
            people = [used[place].people or 0 for place in rows]
            tables = draws.tables(people, [judge[place] for place in rows], size)
            kappa = draws.figure(quadratic_kappas(tables))
            yield AgreementSlice(
                by=by, value=value, labels=len(rows), dialogues=draws.groups, kappa=kappa
            )
        if left:
            yield AgreementSlice(
                by=by,
                value="(too few of each other)",
                labels=len(left),
                dialogues=_dialogues(used, left),
                kappa=Figure(),
            )


def _dialogues(used: Sequence[Compared], places: Sequence[int]) -> int:
    return len({used[place].group for place in places})


def _gate_by(*, scales_differ: bool, is_fitted: bool, has_mapped: bool) -> GateBy:
    if is_fitted and has_mapped:
        return "lower_of_both"
    return "mapped" if scales_differ and has_mapped else "levels"


def _gate(
    tables: npt.NDArray[np.float64],
    mapped: npt.NDArray[np.float64] | None,
    draws: Draws,
    by: GateBy,
) -> AgreementGate:
    kappas = quadratic_kappas(tables)
    if by != "levels" and mapped is not None:
        theirs = quadratic_kappas(mapped)
        kappas = theirs if by == "mapped" or theirs[0] < kappas[0] else kappas
    bounds = bounds_of(kappas[1:]) if draws.groups >= LEAST_DRAWN else None
    value = float(kappas[0])
    if bounds is None or math.isnan(value):
        more = max(GATE_DIALOGUES - draws.groups, 0) or None
        return AgreementGate(state="not_enough_labels", goes_by=by, more_dialogues=more)
    return decide_gate(value, bounds, draws.groups, by)


def decide_gate(
    kappa: float,
    bounds: tuple[float, float],
    dialogues: int,
    by: GateBy = "levels",
) -> AgreementGate:
    """Return the state of one dimension's gate: pass, fail, or how many more labelled dialogues it takes.

    It passes where the lower bound is .5 or more and 100 dialogues are labelled, and fails where the upper bound is
    below .5, from `_LEAST_TO_FAIL` dialogues on. In between the width of the bounds is taken to shrink with the root of the number of dialogues.

    Args:
        kappa: of the labels there are.
        bounds: one-sided 95 %, lower and upper.
        dialogues: labelled.
        by: whose kappa it is.
    """
    low, high = bounds
    gate = AgreementGate(
        state="not_enough_labels", lower=low, upper=high, goes_by=by, more_dialogues=None
    )
    if low >= USABLE_KAPPA and dialogues >= GATE_DIALOGUES:
        return gate.model_copy(update={"state": "pass"})
    if high < USABLE_KAPPA and dialogues >= _LEAST_TO_FAIL:
        return gate.model_copy(update={"state": "fail"})
    distance = abs(kappa - USABLE_KAPPA)
    reach = kappa - low if kappa > USABLE_KAPPA else high - kappa
    needed = math.inf if distance == 0 else dialogues * (reach / distance) ** 2
    needed = max(needed, GATE_DIALOGUES if kappa > USABLE_KAPPA else _LEAST_TO_FAIL)
    if needed > _MOST_DIALOGUES:
        return gate
    return gate.model_copy(update={"more_dialogues": max(1, math.ceil(needed) - dialogues)})


_LEAST_TO_FAIL = 20
"""Dialogues below which a bootstrap is too narrow to fail a judge: with 10 it fails 9 % of those whose kappa is .5, with 20
6.5 % (promised: 5 %)."""
_MOST_DIALOGUES = 10_000
"""Labelled dialogues beyond which no number is suggested: kappa lies so near .5 that labels cannot settle it."""
