"""The curve of a judge's readings: found where there is signal, refused where there is none."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from curate.errors import UsageError
from curate.records import JudgeIdentity, PairCurve
from curate.statistics import sigmoid, wilson
from curate.trust.pair_curve import (
    CrossValidation,
    HeldOut,
    KnownPair,
    accepted,
    fit_pair_curve,
    fit_weights,
    least_threshold,
    probability,
)

JUDGE = JudgeIdentity(engine="scripted", model="script")


def pairs(n: int, signal: float, seed: int = 1, scale: float = 1.0) -> list[KnownPair]:
    """A judge whose preference for the better side is `signal` standard deviations, its margin less."""
    draw = random.Random(seed)
    return [
        KnownPair(
            scale * draw.gauss(signal, 1), draw.gauss(signal / 3, 0.5), f"d{at}", f"kind{at % 4}"
        )
        for at in range(n)
    ]


def fit(known: list[KnownPair], precision: float = 0.9) -> PairCurve:
    return fit_pair_curve(known, JUDGE, fitted_on="twins", precision=precision)


def of_new_pairs(curve: PairCurve, signal: float) -> tuple[float, float]:
    """Precision and recall of the curve on many pairs that it has not seen."""
    found = accepted(
        [
            HeldOut(
                probability(pair, curve.preference_weight, curve.margin_weight), curve.threshold
            )
            for pair in pairs(5_000, signal, seed=999)
        ]
    )
    assert found.precision is not None
    return found.precision, found.recall


def test_of_a_judge_with_signal_the_precision_asked_for_holds_on_new_pairs() -> None:
    curves = [fit(pairs(100, 1.0, seed)) for seed in range(8)]
    reached = [of_new_pairs(curve, 1.0) for curve in curves]
    assert sum(precision for precision, _ in reached) / 8 >= 0.9
    assert min(precision for precision, _ in reached) >= 0.85
    assert min(recall for _, recall in reached) >= 0.4
    # What the curve says of itself, on the pairs it has, is about what comes.
    told = sum(curve.reached_precision or 0 for curve in curves) / 8
    assert told == pytest.approx(sum(precision for precision, _ in reached) / 8, abs=0.03)
    told = sum(curve.recall for curve in curves) / 8
    assert told == pytest.approx(sum(recall for _, recall in reached) / 8, abs=0.1)


def test_the_figures_of_a_curve() -> None:
    curve = fit(pairs(80, 1.5))
    assert (curve.pairs, curve.dialogues, curve.precision) == (80, 80, 0.9)
    assert curve.auc_interval[0] <= curve.auc <= curve.auc_interval[1]
    assert curve.recall_interval[0] <= curve.recall <= curve.recall_interval[1]
    assert sorted(curve.kinds) == ["kind0", "kind1", "kind2", "kind3"]
    better = sum(figures.accepted for figures in curve.kinds.values())
    worse = sum(figures.accepted_wrong for figures in curve.kinds.values())
    assert sum(figures.pairs for figures in curve.kinds.values()) == 80
    assert curve.recall == pytest.approx(better / 80)
    assert curve.reached_precision == pytest.approx(better / (better + worse))
    assert "80 planted twins" in curve.described
    assert fit(pairs(80, 1.5)) == curve


def test_a_judge_without_signal_gets_no_curve() -> None:
    issued, said = 0, ""
    for seed in range(40):
        try:
            fit(pairs(40, 0.0, seed))
            issued += 1
        except UsageError as error:
            said = str(error)
    assert issued <= 2
    assert "cannot tell planted twins apart" in said
    assert "AUC 0." in said


def test_a_judge_that_prefers_the_worse_side_gets_no_curve_either() -> None:
    with pytest.raises(UsageError, match="cannot tell"):
        fit(pairs(60, -1.5))


@pytest.mark.parametrize(("n", "groups"), [(39, 39), (60, 4)])
def test_too_few_pairs_or_dialogues_fit_nothing(n: int, groups: int) -> None:
    few = [
        KnownPair(pair.preference, pair.margin, f"d{at % groups}")
        for at, pair in enumerate(pairs(n, 3.0))
    ]
    with pytest.raises(UsageError, match=f"{n} pairs of {groups} dialogues"):
        fit(few)


def test_a_precision_out_of_reach_is_said_and_a_lower_one_is_found() -> None:
    weak = pairs(200, 0.35, seed=3)
    with pytest.raises(UsageError, match="at no threshold"):
        fit(weak, precision=0.99)
    assert fit(weak, precision=0.55).threshold > 0.5


def test_a_reading_that_speaks_against_the_truth_gets_no_weight() -> None:
    turned = [KnownPair(pair.preference, -pair.margin - 0.5, pair.group) for pair in pairs(80, 1.5)]
    preference_weight, margin_weight = fit_weights(turned)
    assert preference_weight > 0
    assert margin_weight == 0


def test_weights_follow_the_scale_of_a_reading() -> None:
    """A judge whose log-odds are ten times as large decides alike."""
    one, ten = fit_weights(pairs(80, 1.5)), fit_weights(pairs(80, 1.5, scale=10.0))
    assert ten[0] == pytest.approx(one[0] / 10, rel=1e-3)
    assert ten[1] == pytest.approx(one[1], rel=1e-3)


def test_pairs_of_one_dialogue_or_one_kind_have_no_part_in_each_others_decision() -> None:
    """Else a pair would be fitted to its own truth, or a flaw taken for new that is known."""
    known = [replace(pair, group=f"d{at // 2}") for at, pair in enumerate(pairs(80, 1.5))]
    first = known[0]

    def decided(others: Callable[[KnownPair], bool], *, hold_out_kinds: bool) -> HeldOut:
        """Of the first pair, where such others are turned round."""
        changed = [
            replace(pair, preference=-9 * pair.preference) if others(pair) else pair
            for pair in known[1:]
        ]
        return CrossValidation([first, *changed], hold_out_kinds=hold_out_kinds).held_out(0.8)[0]

    def of_dialogue(pair: KnownPair) -> bool:
        return pair.group == first.group

    def of_kind(pair: KnownPair) -> bool:
        return pair.kind == first.kind and not of_dialogue(pair)

    for hold_out_kinds in (False, True):
        as_it_is = decided(lambda _: False, hold_out_kinds=hold_out_kinds)
        assert as_it_is.threshold is not None
        assert decided(of_dialogue, hold_out_kinds=hold_out_kinds) == as_it_is
        by_kind = decided(of_kind, hold_out_kinds=hold_out_kinds)
        assert (by_kind == as_it_is) == hold_out_kinds


probabilities = st.lists(
    st.floats(-5, 5).map(lambda odds: round(sigmoid(odds), 3)), min_size=1, max_size=60
)


@given(probabilities, st.sampled_from([0.6, 0.75, 0.9]))
def test_the_threshold_is_the_least_that_reaches_the_precision(
    held: list[float], precision: float
) -> None:
    def reaches(threshold: float) -> bool:
        found = accepted([HeldOut(p, threshold) for p in held])
        passed = found.better + found.worse
        return passed > 0 and wilson(found.better / passed, passed, z=1)[0] > precision - 1e-9

    threshold = least_threshold(held, precision)
    candidates = sorted({max(p, 1 - p) for p in held} - {0.5})
    reached = [candidate for candidate in candidates if reaches(candidate)]
    assert threshold == (pytest.approx(reached[0]) if reached else None)


def test_three_of_three_are_no_precision_of_one() -> None:
    assert least_threshold([0.9] * 3, 0.9) is None
    assert least_threshold([0.9] * 9, 0.9) == 0.9


def test_a_share_that_is_reached_by_chance_alone_every_second_time_is_not_reached() -> None:
    assert least_threshold([0.9] * 90 + [0.1] * 10, 0.9) is None
    assert least_threshold([0.9] * 94 + [0.1] * 6, 0.9) == 0.9
