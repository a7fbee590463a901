"""Metrics on the shapes of real trajectories: tau-bench, which states the expected calls, and ToolTalk, which does not."""

from __future__ import annotations

from pathlib import Path
from statistics import fmean

import pytest
from sklearn.metrics import roc_auc_score

from curate.api import load_dialogues
from curate.dialogue import Dialogue
from curate.judging.metrics import MetricsConfig
from curate.judging.metrics.call_comparison import compare_calls
from curate.judging.metrics.metric_prompts import metrics_trunk
from curate.judging.metrics.weighing import not_applicable
from curate.recipe import load_recipe
from tests.judging.metrics.scripted import MetricJudge, scored

RECIPES = Path(__file__).parents[3] / "recipes"


@pytest.fixture(scope="module")
def trajectories(shared_data: Path) -> list[Dialogue]:
    return load_dialogues(shared_data / "tau_bench/gpt-4o-airline.json").dialogues


@pytest.fixture(scope="module")
def talks(shared_data: Path) -> list[Dialogue]:
    (source,) = load_recipe(RECIPES / "tooltalk.yaml").source
    folder = str(shared_data / "tooltalk/easy")
    return load_dialogues(source.model_copy(update={"path": folder})).dialogues


def test_calls_of_solved_tasks_are_nearer_to_the_expected_ones(
    trajectories: list[Dialogue],
) -> None:
    shares: dict[float | None, list[float]] = {0.0: [], 1.0: []}
    for dialogue in trajectories:
        held = compare_calls(dialogue)
        if held is None:
            assert dialogue.expected_tools == ()
            continue
        assert (
            len(held.matches) + len(held.missing) == held.expected == len(dialogue.expected_tools)
        )
        assert len(held.matches) + len(held.unexpected) == held.made
        exact = sum(match.is_exact for match in held.matches)
        shares[dialogue.reward].append(exact / held.expected)
    # the figures of docs/metrics.md
    solved, failed = shares[1.0], shares[0.0]
    assert (len(solved), len(failed)) == (62, 110)
    assert [round(fmean(of), 2) for of in (solved, failed)] == [0.71, 0.38]
    labels = [1] * len(solved) + [0] * len(failed)
    assert round(roc_auc_score(labels, solved + failed), 2) == 0.74


@pytest.mark.parametrize("mode", ["json", "tokens"])
async def test_trajectories_are_scored_beside_their_calls(
    trajectories: list[Dialogue], mode: str
) -> None:
    with_calls = [one for one in trajectories if any(m.tool_calls for m in one.messages)]
    for dialogue in with_calls[:5]:
        row = await scored(dialogue, MetricJudge({"tool_routing": 1}), mode)
        assert row.calls == compare_calls(dialogue)
        assert row.metrics[0].failure_code == "bad_tool_routing"
        assert row.overall_score == pytest.approx(100 * (0.85 + 0.15 / 5))
        text = metrics_trunk(dialogue, MetricsConfig(), row.calls).text
        calls = [call for message in dialogue.messages for call in message.tool_calls]
        assert all(f"(calls tool) #{call.id} {call.name}" in text for call in calls)


async def test_calls_without_definitions_or_expectations_are_scored_as_they_are(
    talks: list[Dialogue],
) -> None:
    assert len(talks) == 28
    for dialogue in talks:
        row = await scored(dialogue, MetricJudge(), "tokens")
        assert (row.calls, row.overall_score) == (None, 100)
        assert not_applicable(dialogue) == {}
