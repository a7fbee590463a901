"""The statistics of the score card: intervals that hold, chance that passes as chance, and what could be seen."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from curate.records import ProbeLine, ProbeOutcome
from curate.records.probe import ProbeState
from curate.trust.probe_card import (
    LEAST_DIALOGUES,
    RULES,
    card_lines,
    card_sentence,
    clustered,
    compare_lines,
)


def outcomes(
    values: np.ndarray, against: float = 0.0, line: str = "detection", per_group: int = 1
) -> list[ProbeOutcome]:
    return [
        ProbeOutcome(
            line=line,
            case=f"c{at}",
            group=f"g{at // per_group}",
            value=float(value),
            against=against,
        )
        for at, value in enumerate(values)
    ]


def test_without_clusters_points_are_students_t() -> None:
    values = np.random.default_rng(1).normal(0.2, 1, 25)
    held = clustered(outcomes(values), "points")
    assert held is not None
    test = stats.ttest_1samp(values, 0)
    assert held.p_value == pytest.approx(test.pvalue)
    assert held.interval == pytest.approx(tuple(test.confidence_interval()))


@pytest.mark.parametrize(("unit", "per_group"), [("share", 1), ("share", 10), ("points", 10)])
def test_intervals_hold_and_chance_seldom_shows(unit: str, per_group: int) -> None:
    """Of 400 cards in which nothing is there, with cases of one dialogue alike, about a twentieth show something."""
    draw = np.random.default_rng(2)
    groups, missed, shown = 24, 0, 0
    for _ in range(400):
        of_group = np.repeat(draw.normal(0, 0.5, groups), per_group)
        away = of_group + draw.normal(0, 1, groups * per_group)
        is_share = unit == "share"
        values = (away > 0).astype(float) if is_share else away
        held = clustered(
            outcomes(values, 0.5 if is_share else 0.0, per_group=per_group),
            unit,  # type: ignore[arg-type]
        )
        assert held is not None
        shown += held.p_value < 0.05
        missed += not held.interval[0] <= (0.5 if is_share else 0.0) <= held.interval[1]
    assert shown <= 0.085 * 400
    assert missed <= 0.085 * 400


def test_the_smallest_detectable_effect_is_detected_four_times_in_five() -> None:
    draw = np.random.default_rng(3)
    seen, sizes = 0, []
    for _ in range(400):
        values = np.repeat(draw.normal(0, 0.5, 24), 4) + draw.normal(0, 1, 96)
        held = clustered(outcomes(values, per_group=4), "points")
        assert held is not None
        sizes.append(held.detectable)
    effect = float(np.mean(sizes))
    for _ in range(400):
        values = effect + np.repeat(draw.normal(0, 0.5, 24), 4) + draw.normal(0, 1, 96)
        held = clustered(outcomes(values, per_group=4), "points")
        assert held is not None
        seen += held.p_value < 0.05
    assert 0.74 <= seen / 400 <= 0.87


def test_all_alike_is_no_proof_of_more_than_its_dialogues_show() -> None:
    held = clustered(outcomes(np.ones(100), 0.5, per_group=10), "share")
    assert held is not None
    assert held.dialogues == 10
    assert held.interval[0] < 0.8
    assert held.interval[1] == 1.0
    nothing = clustered(outcomes(np.zeros(20)), "points")
    assert nothing is not None
    assert nothing.p_value == 1.0


def test_few_dialogues_give_no_figure_and_the_line_says_so() -> None:
    few = outcomes(np.ones(8), 0.5, per_group=2)
    assert clustered(few, "share") is None
    line = next(line for line in card_lines(few) if line.name == "detection")
    assert line.state == "not_run"
    assert f"4 dialogues, {LEAST_DIALOGUES} needed" in line.detail
    assert line.value is None


def test_p_values_are_corrected_over_the_whole_card() -> None:
    draw = np.random.default_rng(4)
    whole = [o for name in RULES for o in outcomes(draw.normal(0, 1, 30), line=name)
             if RULES[name].unit != "share"]  # fmt: skip
    lines = [line for line in card_lines(whole) if line.p_value is not None]
    expected = stats.false_discovery_control([line.p_value for line in lines])
    assert [line.q_value for line in lines] == pytest.approx(list(expected))


@pytest.mark.parametrize(
    ("line", "values", "against", "state"),
    [
        ("detection", [1.0] * 25 + [0.0] * 5, 0.5, "pass"),
        ("detection", [1.0] * 3 + [0.0] * 3, 0.5, "unclear"),
        ("detection", [1.0] * 300 + [0.0] * 300, 0.5, "fail"),
        ("detection", [0.0] * 28 + [1.0] * 2, 0.5, "fail"),
        ("verbosity", [0.5, 0.6] * 15, 0.0, "fail"),
        ("verbosity", [-0.5, -0.6] * 15, 0.0, "pass"),
        ("verbosity", [0.01, 0.02] * 15, 0.0, "pass"),
        ("verbosity", [2.0, -2.0] * 5, 0.0, "unclear"),
        ("formatting", [-0.5, -0.6] * 15, 0.0, "fail"),
        ("last_turn", [1.0] * 30, 0.3, "fail"),
        ("last_turn", [0.0] * 30, 0.3, "pass"),
    ],
)
def test_the_state_of_a_line(line: str, values: list[float], against: float, state: str) -> None:
    held = {held.name: held for held in card_lines(outcomes(np.array(values), against, line))}
    assert held[line].state == state, held[line]


def test_a_card_without_scores_says_so() -> None:
    lines = card_lines([])
    assert {line.state for line in lines} == {"not_run"}
    assert "too few could be scored" in card_sentence(lines, 312)


def test_two_cards_are_compared_case_by_case() -> None:
    draw = np.random.default_rng(5)
    hard = draw.normal(0, 1, 40)
    first, second = (
        outcomes(hard + shift + draw.normal(0, 0.1, 40), line="verbosity") for shift in (0.3, 0.0)
    )
    (line,) = compare_lines(first, second)
    assert line.better == "second"
    assert line.detectable is not None
    assert line.detectable < 0.15
    assert line.difference == pytest.approx(line.first - line.second)
    (half,) = compare_lines(first, second[:20])
    assert half.n == 20


@pytest.mark.parametrize(
    ("state", "words"),
    [
        ("pass", "higher in 60% (0% to 100%"),
        ("fail", "no better than chance: its scores do not show flaws"),
        ("unclear", "may be chance: so few cases cannot tell"),
    ],
)
def test_the_sentence_does_not_take_too_few_cases_for_a_judge_without_worth(
    state: ProbeState, words: str
) -> None:
    def line(name: str, state: ProbeState, value: float | None) -> ProbeLine:
        return ProbeLine(
            name=name, section="finding", unit="share", meaning="", state=state, value=value
        )

    lines = [line("detection", state, 0.6), line("weakest_turn", "not_run", None)]
    sentence = card_sentence(lines, 52)
    assert words in sentence
    assert ("That " in sentence) == (state != "pass")
