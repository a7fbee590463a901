import math
import random
from typing import Any

import pytest

from curate.judging.metrics.catalogue import LEVELS, shipped
from curate.judging.metrics.config import MetricsConfig
from curate.judging.metrics.weighing import (
    not_applicable,
    overall,
    overall_range,
    shares,
    weights_key,
)
from curate.records import MetricScore, MetricsScore
from curate.records.metrics import is_poor
from tests.judging.metrics.scripted import IDENTITY, plain, with_tools


def metric(score: int | None, share: float, scale: str = "scored") -> MetricScore:
    fields: dict[str, Any] = {"tier": "execution", "scale": scale, "weight": share, "share": share}
    return MetricScore(name="m", score=score, na=None if score is not None else "judge", **fields)


def test_the_default_weights_are_the_sources_and_sum_to_one() -> None:
    weights = MetricsConfig().weights
    assert weights == pytest.approx(
        {
            "tool_routing": 0.15,
            "parameter_extraction": 0.15,
            "result_interpretation": 0.15,
            "grounding_fidelity": 0.125,
            "instruction_compliance": 0.125,
            "information_gathering": 0.10,
            "conversation_management": 0.10,
            "response_delivery": 0.10,
        }
    )
    assert math.fsum(weights.values()) == pytest.approx(1)


def test_the_sources_example_of_chosen_weights_is_renormalised() -> None:
    choose = [
        {"metric": "tool_routing", "weight": 1.0},
        {"metric": "task_completion", "weight": 0.5},
    ]
    weights = MetricsConfig(choose=choose).weights  # type: ignore[arg-type]
    assert weights == pytest.approx({"tool_routing": 2 / 3, "task_completion": 1 / 3})


def test_every_shipped_metric_has_a_text_for_each_level_of_its_scale() -> None:
    assert len(shipped()) == 9
    for held in shipped().values():
        assert tuple(held.levels) == LEVELS[held.scale]
        assert all(held.levels.values())
    assert [m.name for m in shipped().values() if m.weight is None] == ["task_completion"]


def test_overall_is_the_weighted_sum_of_normalised_scores() -> None:
    assert overall([metric(5, 0.5), metric(0, 0.5)]) == 50
    assert overall([metric(4, 2 / 3), metric(1, 1 / 3, "binary")]) == pytest.approx(86.6666667)
    assert overall([metric(4, 2 / 3), metric(0, 1 / 3, "binary")]) == pytest.approx(53.3333333)
    assert overall([metric(5, 0.3), metric(5, 0.3), metric(5, 0.4)]) == 100
    assert overall([metric(0, 1.0)]) == 0


def test_a_dialogue_whose_scores_come_to_the_threshold_passes() -> None:
    # 0.15 * 3 + 0.125 * 2 + 0.1 * 3 in floats is not exactly 1
    weights = MetricsConfig().weights
    held = [metric(3 if place % 2 else 4, w) for place, w in enumerate(weights.values())]
    total = overall(held)
    mean = sum(w * (3 if p % 2 else 4) for p, w in enumerate(weights.values())) * 20
    assert total == pytest.approx(mean)
    three_quarters = [metric(5, 0.1), metric(5, 0.2), metric(5, 0.45), metric(0, 0.25)]
    assert overall(three_quarters) == 75


@pytest.mark.parametrize(
    ("score", "scale", "poor"),
    [
        (2, "scored", True),
        (3, "scored", False),
        (0, "scored", True),
        (0, "binary", True),
        (1, "binary", False),
        (None, "scored", False),
    ],
)
def test_poor_is_two_or_less_or_fail(score: int | None, scale: Any, poor: bool) -> None:
    assert is_poor(score, scale) is poor


def test_the_weight_of_na_is_redistributed() -> None:
    weights = MetricsConfig().weights
    parts = shares(weights, ["tool_routing", "parameter_extraction", "result_interpretation"])
    assert parts is not None
    assert parts["tool_routing"] == 0
    assert parts["grounding_fidelity"] == pytest.approx(0.125 / 0.55)
    assert math.fsum(parts.values()) == pytest.approx(1)
    assert shares(weights, [*weights]) is None
    assert shares({"a": 0.0, "b": 1.0}, ["b"]) is None


def test_tool_metrics_are_na_where_there_are_no_tools() -> None:
    assert not_applicable(plain()) == dict.fromkeys(
        ("tool_routing", "parameter_extraction", "result_interpretation"), "no_tools"
    )
    assert not_applicable(with_tools()) == {}
    silent = plain().model_copy(update={"tools": with_tools().tools})
    assert not_applicable(silent) == {"result_interpretation": "no_tool_results"}


def test_the_range_is_that_of_all_weights_changed_by_up_to_a_fifth() -> None:
    held = [metric(5, 0.4), metric(0, 0.35), metric(3, 0.25)]
    low, high = overall_range(held)
    rng, seen = random.Random(0), []
    for _ in range(3000):
        weights = [m.share * rng.choice((0.8, 1.0, 1.2, rng.uniform(0.8, 1.2))) for m in held]
        mean = sum(w * (m.score or 0) / 5 for w, m in zip(weights, held, strict=True))
        seen.append(100 * mean / sum(weights))
    assert low <= min(seen) <= low + 0.01
    assert high - 0.01 <= max(seen) <= high
    assert overall_range([metric(4, 1.0)]) == (80, 80)


@pytest.mark.parametrize(
    ("bounds", "flips"),
    [((70, 80), True), ((75, 80), False), ((60, 75), True), ((60, 74.9), False)],
)
def test_a_verdict_flips_where_the_threshold_lies_within_the_range(
    bounds: tuple[float, float], flips: bool
) -> None:
    row = MetricsScore(
        dialogue_id="d",
        content_hash="h",
        identity=IDENTITY,
        metrics=(),
        overall_score=sum(bounds) / 2,
        pass_threshold=75,
        passed=False,
        weights_key="k",
        overall_range=bounds,
    )
    assert row.is_flippable is flips


def test_the_key_names_the_weights_whatever_their_order() -> None:
    assert weights_key({"a": 0.5, "b": 0.5}) == weights_key({"b": 0.5, "a": 0.5})
    assert weights_key({"a": 0.5, "b": 0.5}) != weights_key({"a": 0.4, "b": 0.6})


def test_faults_are_those_of_poor_metrics_by_turn() -> None:
    def named(name: str, score: int, code: str | None, *turns: int) -> MetricScore:
        return metric(score, 0.3).model_copy(
            update={"name": name, "failure_code": code, "turns": turns}
        )

    row = MetricsScore(
        dialogue_id="d",
        content_hash="h",
        identity=IDENTITY,
        metrics=(named("a", 2, "slow", 3, 1), named("b", 0, None, 3), named("c", 3, None, 2)),
        overall_score=30,
        pass_threshold=75,
        passed=False,
        weights_key="k",
        overall_range=(20, 40),
    )
    assert row.faults == {1: ("a: slow",), 3: ("a: slow", "b: poor")}
