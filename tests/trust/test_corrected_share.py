"""The true share behind a reported one: the formula, an interval that holds, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest

from curate.statistics import wilson
from curate.trust.corrected_share import Trials, correct_share, counted


def trials(share: float, n: int) -> Trials:
    return Trials(share, n, float(n))


PEOPLE = trials(0.75, 200)


def test_the_share_is_corrected_for_both_errors() -> None:
    # the judge calls 80 % good; it knows 90 % of the good and 70 % of the bad
    held = correct_share(
        "good dialogues", trials(0.8, 1000), PEOPLE, trials(0.9, 100), trials(0.7, 100)
    )
    assert held.corrected == pytest.approx((0.8 + 0.7 - 1) / (0.9 + 0.7 - 1))
    assert held.interval is not None
    low, high = held.interval
    assert 0 < low < held.corrected < high <= 1
    assert (held.people_yes, held.people_no, held.refused) == (100, 100, "")
    assert held.people_share == 0.75
    assert held.people_interval == wilson(0.75, 200)
    more = correct_share(
        "good dialogues", trials(0.8, 1000), PEOPLE, trials(0.9, 400), trials(0.7, 400)
    )
    assert more.interval is not None
    assert more.interval[1] - more.interval[0] < 0.65 * (high - low)


@pytest.mark.parametrize(("labels", "half"), [(50, 0.13), (100, 0.09), (200, 0.06)])
def test_the_interval_is_as_wide_as_was_worked_out(labels: int, half: float) -> None:
    # theta .8, specificity .7, sensitivity .9: what so many labels of each kind allow
    reported = 0.8 * 0.9 + 0.2 * 0.3
    held = correct_share(
        "good dialogues", trials(reported, 10_000), PEOPLE, trials(0.9, labels), trials(0.7, labels)
    )
    assert held.interval is not None
    assert (held.interval[1] - held.interval[0]) / 2 == pytest.approx(half, abs=0.01)


@pytest.mark.parametrize(
    ("theta", "q1", "q0", "labels"),
    [(0.8, 0.9, 0.7, 50), (0.5, 0.8, 0.8, 40), (0.95, 0.9, 0.6, 100), (0.1, 0.7, 0.9, 60)],
)
def test_the_interval_holds_the_truth_as_often_as_promised(
    theta: float, q1: float, q0: float, labels: int
) -> None:
    rng = np.random.default_rng(0)
    runs, n = 2000, 400
    p = theta * q1 + (1 - theta) * (1 - q0)
    hits = answered = 0
    draws = zip(
        rng.binomial(n, p, runs) / n,
        rng.binomial(labels, q1, runs) / labels,
        rng.binomial(labels, q0, runs) / labels,
        strict=True,
    )
    for share, sensitivity, specificity in draws:
        held = correct_share(
            "good dialogues",
            trials(float(share), n),
            PEOPLE,
            trials(float(sensitivity), labels),
            trials(float(specificity), labels),
        )
        if held.interval is not None:
            answered += 1
            hits += held.interval[0] <= theta <= held.interval[1]
    assert answered > 0.9 * runs
    assert hits / answered >= 0.935


@pytest.mark.parametrize(
    ("yes", "no", "said"),
    [
        (None, trials(0.7, 20), "no label calls anything good"),
        (trials(0.9, 20), None, "no label calls anything bad"),
        (trials(0.6, 200), trials(0.4, 200), "not above 1"),
        (trials(0.3, 50), trials(0.5, 50), "not above 1"),
        (trials(0.7, 10), trials(0.5, 10), "not shown to be together above 1"),
    ],
)
def test_a_judge_that_tells_nothing_apart_corrects_nothing(
    yes: Trials | None, no: Trials | None, said: str
) -> None:
    held = correct_share("good dialogues", trials(0.8, 100), PEOPLE, yes, no)
    assert said in held.refused
    assert (held.corrected, held.interval) == (None, None)


def test_a_share_beyond_the_range_is_told_of() -> None:
    held = correct_share(
        "adherent turns", trials(0.98, 500), PEOPLE, trials(0.9, 100), trials(0.9, 100)
    )
    assert (held.corrected, held.beyond) == (1.0, True)


def test_turns_of_one_dialogue_count_for_less() -> None:
    alone = counted([True, False] * 50, [str(n) for n in range(100)])
    assert (alone.share, alone.items, alone.size) == (0.5, 100, 100)
    # ten dialogues of ten equal turns are worth ten turns
    alike = counted([n < 50 for n in range(100)], [str(n // 10) for n in range(100)])
    assert alike.size == pytest.approx(10, rel=0.12)
    # and where turns of a dialogue differ as much as those of others, nearly all
    rng = np.random.default_rng(1)
    mixed = counted((rng.random(1000) < 0.5).tolist(), [str(n // 5) for n in range(1000)])
    assert mixed.size > 700
    assert counted([True] * 30, [str(n // 10) for n in range(30)]).size == 3


def test_the_interval_holds_with_several_turns_a_dialogue() -> None:
    """Turns of a dialogue share how good they are, and how often the judge errs on them."""
    rng = np.random.default_rng(1)

    def drawn(dialogues: int) -> tuple[list[bool], list[bool], list[str]]:
        good = rng.random((dialogues, 8)) < rng.beta(2, 1, (dialogues, 1))
        right = rng.random((dialogues, 8)) < rng.beta(8, 2, (dialogues, 1))
        groups = [str(number // 8) for number in range(dialogues * 8)]
        return good.ravel().tolist(), (good == right).ravel().tolist(), groups

    def share(outcomes: list[bool], groups: list[str], where: list[bool]) -> Trials:
        held = [one for one, taken in zip(outcomes, where, strict=True) if taken]
        return counted(held, [one for one, taken in zip(groups, where, strict=True) if taken])

    hits = 0
    for _ in range(600):
        _, reported, groups = drawn(80)
        good, judge, of = drawn(40)
        bad = [not one for one in good]
        held = correct_share(
            "adherent turns",
            counted(reported, groups),
            counted(good, of),
            share(judge, of, good),
            share([not one for one in judge], of, bad),
        )
        assert held.interval is not None
        hits += held.interval[0] <= 2 / 3 <= held.interval[1]
    assert 0.935 <= hits / 600 <= 0.99
