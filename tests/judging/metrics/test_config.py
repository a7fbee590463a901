import math
from typing import Any

import pytest

from curate.errors import UsageError
from curate.judging.metrics import as_response, shipped
from curate.judging.metrics.config import MetricsConfig
from curate.records.validation_errors import validated

TEXTS = {5: "a", 4: "b", 3: "c", 2: "d", 1: "e", 0: "f"}


def own(**update: Any) -> dict[str, Any]:
    return {
        "name": "empathy",
        "tier": "delivery",
        "asks": "Takes the user's mood into account.",
        "levels": TEXTS,
        "weight": 0.2,
        **update,
    }


def config(**given: Any) -> MetricsConfig:
    made: MetricsConfig = validated(MetricsConfig, given, "bad")
    return made


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"choose": ["tool_ruting"]}, "did you mean 'tool_routing'"),
        ({"choose": ["zzz"]}, "there are tool_routing, "),
        ({"choose": ["task_completion"]}, "task_completion has no default weight"),
        ({"choose": [{"metric": "tool_routing", "weight": -1}]}, "is -1.0"),
        ({"choose": [{"metric": "tool_routing", "weight": math.nan}]}, "is nan"),
        ({"choose": [{"metric": "tool_routing", "weight": math.inf}]}, "is inf"),
        ({"choose": [{"metric": "tool_routing", "weight": 0}]}, "sum to 0"),
        ({"choose": ["tool_routing", "tool_routing"]}, "chosen twice"),
        ({"own": [own(levels={5: "a", 0: "f"})]}, "no text for 4, 3, 2, 1"),
        ({"own": [own(levels={**TEXTS, 6: "g"})]}, "no such level: 6"),
        ({"own": [own(levels={**TEXTS, 3: " "})]}, "no text for 3"),
        ({"own": [own(scale="binary")]}, "a binary metric has pass, fail"),
        ({"own": [own(weight=-0.1)]}, "is -0.1"),
        ({"own": [own(name="tool_routing")]}, "a built-in metric has that name"),
        ({"own": [own(), own()]}, "different names"),
        ({"own": [own(name="Empathy")]}, "name"),
        ({"pass_threshold": 101}, "pass_threshold"),
        ({"answer_prefix": "( "}, "answer_prefix"),
    ],
)
def test_what_is_wrong_is_refused_with_what_to_write(given: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError) as refused:
        config(**given)
    assert said in str(refused.value)


def test_own_metrics_are_scored_beside_the_defaults_unless_some_are_chosen() -> None:
    both = config(own=[own()])
    assert [*both.chosen] == [*MetricsConfig().chosen, "empathy"]
    assert both.weights["empathy"] == pytest.approx(0.2 / 1.2)
    alone = config(own=[own()], choose=["empathy", {"metric": "tool_routing", "weight": 0.6}])
    assert alone.weights == pytest.approx({"empathy": 0.25, "tool_routing": 0.75})
    assert alone.chosen["empathy"].levels == {str(key): text for key, text in TEXTS.items()}


def test_binary_metrics_of_ones_own_have_pass_and_fail() -> None:
    held = config(own=[own(scale="binary", levels={"pass": "it does", "fail": "it does not"})])
    assert held.chosen["empathy"].text == (
        "empathy (pass or fail): Takes the user's mood into account.\npass = it does\nfail = it does not"
    )


def test_the_list_of_metrics_has_the_shape_of_the_source() -> None:
    response = as_response(shipped())
    assert response["count"] == len(response["data"]) == 9
    first = response["data"][0]
    rubric = first.pop("rubric")
    assert first == {
        "name": "tool_routing",
        "display_name": "Tool Routing",
        "description": "Correct tool names and call sequence.",
        "tier": "execution",
        "default_weight": 0.15,
        "score_type": "scored",
        "include_in_defaults": True,
    }
    assert rubric.startswith("5: All expected tools called in correct sequence.")
    assert response["data"][-1]["name"] == "task_completion"
    assert response["data"][-1]["default_weight"] == 0
    assert not response["data"][-1]["include_in_defaults"]
