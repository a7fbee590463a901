"""Levels against levels: figures as scipy and scikit-learn have them, intervals that hold, and the gate."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import kendalltau, spearmanr
from sklearn.metrics import cohen_kappa_score

from curate.records import DimensionAgreement
from curate.trust.count_tables import bounds_of, kendall_tau_bs, quadratic_kappas, spearmans
from curate.trust.ordinal_agreement import (
    GATE_DIALOGUES,
    Compared,
    decide_gate,
    measure_dimension,
)

LEVELS = ("1", "2", "3", "4", "5")
PAIRS = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=2, max_size=40)


def table(rows: Sequence[int], columns: Sequence[int], size: int = 5) -> npt.NDArray[np.float64]:
    counts = np.zeros((1, size, size))
    np.add.at(counts[0], (list(rows), list(columns)), 1)
    return counts


def measured(items: Sequence[Compared], **more: object) -> DimensionAgreement:
    settings: dict[str, object] = {"scale": "1-5", "compared": "digits", "epsilon": 0.15}
    held = measure_dimension(items, LEVELS, **(settings | more))  # type: ignore[arg-type]
    assert held is not None
    return held


def compared(judge: int | None, people: int | None, group: object, **more: object) -> Compared:
    settings: dict[str, object] = {"value": judge, "mean": people}
    return Compared(judge=judge, people=people, group=str(group), **(settings | more))  # type: ignore[arg-type]


@given(PAIRS)
def test_figures_of_tables_are_those_of_scikit_learn_and_scipy(
    pairs: list[tuple[int, int]],
) -> None:
    people, judge = zip(*pairs, strict=True)
    tables = table(people, judge)
    kappa, rho, tau = (
        float(figures(tables)[0]) for figures in (quadratic_kappas, spearmans, kendall_tau_bs)
    )
    if len({*people, *judge}) > 1:
        expected = cohen_kappa_score(people, judge, weights="quadratic", labels=range(5))
        assert kappa == pytest.approx(expected, abs=1e-9)
    else:
        assert math.isnan(kappa)
    if len({*people}) > 1 and len({*judge}) > 1:
        assert rho == pytest.approx(spearmanr(people, judge).statistic, abs=1e-9)
        assert tau == pytest.approx(kendalltau(people, judge).statistic, abs=1e-9)
    else:
        assert math.isnan(rho)
        assert math.isnan(tau)


def test_a_dimension_has_all_its_figures() -> None:
    rng = np.random.default_rng(3)
    people = rng.integers(1, 6, 300)
    values = people + rng.normal(0, 0.8, 300)
    judge = np.clip(np.rint(values - 1), 1, 5).astype(int)
    means = people + rng.choice([-0.25, 0, 0.25], 300)
    items = [
        compared(int(j), int(p), at // 2, value=float(v), mean=float(m))
        for at, (j, p, v, m) in enumerate(zip(judge, people, values, means, strict=True))
    ]
    held = measured(items)
    assert (held.labels, held.dialogues) == (300, 150)
    assert held.levels.kappa.value == pytest.approx(
        cohen_kappa_score(people, judge, weights="quadratic", labels=range(1, 6))
    )
    assert held.spearman.value == pytest.approx(spearmanr(values, means).statistic)
    assert held.kendall.value == pytest.approx(kendalltau(values, means).statistic)
    assert held.levels.agreement.value == pytest.approx((judge == people).mean())
    assert held.levels.within_one.value == pytest.approx((abs(judge - people) <= 1).mean())
    assert held.levels.bias.value == pytest.approx((judge - people).mean())
    assert held.confusion[4][3] == ((people == 5) & (judge == 4)).sum()
    for figure in (held.levels.kappa, held.spearman, held.kendall, held.levels.bias):
        assert figure.value is not None
        assert figure.interval is not None
        assert figure.interval[0] < figure.value < figure.interval[1]
    # the judge is one level too low throughout; cut points put that right
    assert held.mapped is not None
    assert held.mapped.bias.value == pytest.approx(0, abs=0.1)
    assert held.mapped.kappa.value is not None
    assert held.levels.kappa.value is not None
    assert held.mapped.kappa.value > held.levels.kappa.value


def test_what_is_not_applicable_is_counted_and_in_no_figure() -> None:
    items = [compared(3, 3, n) for n in range(20)] + [compared(4, 4, n) for n in range(20, 30)]
    more = [compared(None, 3, "a"), compared(2, None, "b"), compared(None, None, "c")]
    held = measured([*items, *more, *more])
    assert held.not_applicable == {"both": 2, "judge_only": 2, "people_only": 2}
    assert held.labels == 30
    assert held.levels.agreement.value == 1
    assert measured(items).not_applicable == {}


def test_intervals_draw_dialogues_and_not_turns() -> None:
    rng = np.random.default_rng(1)
    people = np.repeat(rng.integers(1, 6, 40), 10)
    judge = np.repeat(rng.integers(1, 6, 40), 10)
    alone = measured(
        [compared(int(j), int(p), n) for n, (j, p) in enumerate(zip(judge, people, strict=True))]
    )
    clustered = measured([compared(int(j), int(p), n // 10) for n, (j, p) in enumerate(zip(judge, people, strict=True))])  # fmt: skip

    def width(held: DimensionAgreement) -> float:
        assert held.levels.kappa.interval is not None
        return held.levels.kappa.interval[1] - held.levels.kappa.interval[0]

    # ten equal turns are one dialogue's worth of evidence: wider by about the root of ten
    assert 2.4 < width(clustered) / width(alone) < 4.2


def test_few_dialogues_get_no_interval_and_no_verdict() -> None:
    held = measured([compared(n % 5 + 1, n % 5 + 1, n) for n in range(9)])
    assert held.levels.kappa.value == 1
    assert held.levels.kappa.interval is None
    assert (held.gate.state, held.gate.more_dialogues) == ("not_enough_labels", GATE_DIALOGUES - 9)


def test_people_of_one_level_leave_kappa_undefined() -> None:
    held = measured([compared(4, 4, n) for n in range(120)])
    assert held.levels.kappa.value is None
    assert held.levels.agreement.value == 1
    assert (held.gate.state, held.gate.more_dialogues) == ("not_enough_labels", None)


@pytest.mark.parametrize(
    ("kappa", "bounds", "dialogues", "state", "more"),
    [
        (0.7, (0.55, 0.8), 100, "pass", None),
        (0.7, (0.50, 0.8), 100, "pass", None),
        (0.7, (0.55, 0.8), 60, "not_enough_labels", 40),  # shown, but on fewer than the rule wants
        (
            0.6,
            (0.4, 0.75),
            100,
            "not_enough_labels",
            300,
        ),  # half the distance takes four times as many
        (0.4, (0.2, 0.6), 50, "not_enough_labels", 150),
        (0.3, (0.1, 0.49), 30, "fail", None),
        (
            0.5,
            (0.3, 0.7),
            100,
            "not_enough_labels",
            None,
        ),  # no number of labels tells a judge at .5
        (0.501, (0.3, 0.7), 100, "not_enough_labels", None),
    ],
)
def test_the_gate_has_three_states_and_says_how_many_more(
    kappa: float, bounds: tuple[float, float], dialogues: int, state: str, more: int | None
) -> None:
    gate = decide_gate(kappa, bounds, dialogues)
    assert (gate.state, gate.more_dialogues) == (state, more)


@pytest.mark.parametrize("n", [10, 20, 30, 100, 200])
def test_the_gate_errs_at_the_threshold_no_more_often_than_promised(n: int) -> None:
    """2,000 runs with a judge whose true kappa is .5: at most about 5 % may pass or fail, by a point estimate half do."""
    rng = np.random.default_rng(0)
    levels = np.arange(5)
    people = np.array([0.05, 0.1, 0.2, 0.4, 0.25])
    # a judge that repeats people's level half the time, and else draws from their shares: kappa is .5
    joint = 0.5 * np.diag(people) + 0.5 * np.outer(people, people)
    assert quadratic_kappas(joint[np.newaxis])[0] == pytest.approx(0.5)
    assert levels.size == 5
    passed = failed = by_point = 0
    for _ in range(2000):
        counts = rng.multinomial(n, joint.ravel())
        drawn = rng.multinomial(n, counts / n, size=400).reshape(-1, 5, 5).astype(float)
        bounds = bounds_of(quadratic_kappas(drawn))
        kappa = float(quadratic_kappas(counts.reshape(1, 5, 5).astype(float))[0])
        assert bounds is not None
        state = decide_gate(kappa, bounds, n).state
        passed += state == "pass"
        failed += state == "fail"
        by_point += kappa >= 0.5
    assert passed / 2000 <= 0.065
    assert failed / 2000 <= 0.07
    assert by_point / 2000 > 0.4


def test_labels_of_another_scale_are_judged_by_the_mapped_levels() -> None:
    rng = np.random.default_rng(2)
    people = rng.choice([1, 3, 5], 200)
    values = 3.6 + people / 20 + rng.normal(0, 0.02, 200)
    items = [
        compared(4, int(p), n, value=float(v))
        for n, (p, v) in enumerate(zip(people, values, strict=True))
    ]
    held = measured(items, scales_differ=True)
    assert held.levels.kappa.value == pytest.approx(0)
    assert (held.gate.state, held.gate.goes_by) == ("pass", "mapped")
    assert measured(items).gate.state == "fail"


def test_levels_fitted_to_labels_go_by_the_lower_of_both() -> None:
    rng = np.random.default_rng(4)
    people = rng.integers(1, 6, 150)
    # levels that know these very labels, over a reading that knows nothing
    items = [
        compared(int(p), int(p), n, value=float(v))
        for n, (p, v) in enumerate(zip(people, rng.uniform(1, 5, 150), strict=True))
    ]
    assert measured(items).gate.state == "pass"
    held = measured(items, is_fitted=True)
    assert (held.gate.state, held.gate.goes_by) == ("fail", "lower_of_both")


def test_slices_show_where_there_is_enough_and_count_the_rest() -> None:
    def slices(language: str) -> dict[str, str]:
        return {"language": language, "source": "a"}

    items = [compared(n % 5 + 1, n % 5 + 1, f"en{n}", slices=slices("en")) for n in range(40)]
    items += [compared(n % 5 + 1, 5 - n % 5, f"de{n}", slices=slices("de")) for n in range(40)]
    items += [compared(n % 5 + 1, 1, f"fr{n}", slices=slices("fr")) for n in range(7)]
    items += [compared(n % 5 + 1, 1, f"?{n}", slices={"source": "a"}) for n in range(4)]
    found = {(part.by, part.value): part for part in measured(items).slices}
    assert found["language", "en"].kappa.value == 1
    assert found["language", "de"].kappa.value == pytest.approx(-1, abs=0.1)
    rest = found["language", "(too few of each other)"]
    assert (rest.labels, rest.kappa.value) == (11, None)
    # one source only is no slice
    assert {by for by, _ in found} == {"language"}


def test_each_person_is_held_against_the_others() -> None:
    rng = np.random.default_rng(6)
    truth = rng.integers(1, 6, 80)
    items = [
        compared(
            int(level), int(level), n,
            raters={"ann": int(level), "bob": int(level), "eve": 6 - int(level)},
            each=(int(level), int(level), 6 - int(level)),
        )
        for n, level in enumerate(truth)
    ]  # fmt: skip
    held = measured(items)
    by_name = {rater.rater: rater for rater in held.raters}
    assert by_name["eve"].kappa.value == pytest.approx(-1, abs=0.05)
    assert by_name["ann"].items == 80
    assert held.alpha.value is not None
    assert held.alpha.interval is not None
    assert held.alpha.interval[0] < held.alpha.value < held.alpha.interval[1]
