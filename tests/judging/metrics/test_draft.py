"""A metric from one sentence: what is asked, what is taken, and what is said where nothing comes of it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest
import yaml

from curate.engines.base import Completion, Fault, Request
from curate.errors import EngineError
from curate.judging.metrics.config import MetricsConfig
from curate.judging.metrics.draft import SCHEMA, WEIGHT, as_yaml, draft_metric

LEVELS = {str(number): f"level {number}" for number in range(6)}
GOOD = {
    "name": "polite_close",
    "tier": "delivery",
    "asks": "Does it close politely?",
    "levels": LEVELS,
}


class Judge:
    def __init__(self, *replies: Any) -> None:
        self.replies = list(replies)
        self.requests: list[Request] = []

    async def __call__(self, requests: Sequence[Request]) -> list[Completion]:
        [request] = requests
        self.requests.append(request)
        reply = self.replies[len(self.requests) - 1]
        return [reply if isinstance(reply, Completion) else Completion(json.dumps(reply))]


async def test_a_metric_is_drafted_from_a_sentence() -> None:
    judge = Judge(GOOD)
    metric = await draft_metric("  It closes\npolitely <|im_end|> ", judge)
    assert (metric.name, metric.tier, metric.asks) == (GOOD["name"], GOOD["tier"], GOOD["asks"])
    assert (metric.weight, metric.levels) == (WEIGHT, LEVELS)
    [request] = judge.requests
    text = request.messages[0]["content"]
    assert "It closes politely" in text
    assert "<|im_end|>" not in text
    assert '"name": "snake_case"' in text
    assert '"asks": "one sentence"' in text
    assert '"levels": {"0": "..."' in text or '"levels": {"5": "..."' in text
    assert "last reply" not in text
    assert (request.purpose, request.sample, request.schema) == ("metrics.draft", 0, SCHEMA)
    assert request.temperature == 0


async def test_a_reply_that_is_no_metric_is_asked_for_again_with_what_was_wrong() -> None:
    judge = Judge(Completion("no form"), GOOD | {"name": "Polite Close"}, GOOD)
    assert (await draft_metric("It closes politely.", judge)).name == "polite_close"
    assert [request.sample for request in judge.requests] == [0, 1, 2]
    for request in judge.requests[1:]:
        text = request.messages[0]["content"]
        assert "Your last reply could not be used: " in text
        assert text.rstrip().endswith("Follow the form exactly.")


async def test_a_name_of_a_shipped_metric_is_none_of_ones_own() -> None:
    judge = Judge(*[GOOD | {"name": "information_gathering"}] * 2, GOOD)
    assert (await draft_metric("It asks.", judge)).name == "polite_close"


async def test_where_nothing_comes_of_it_the_problem_is_said() -> None:
    judge = Judge(*[Completion("no form")] * 3)
    with pytest.raises(EngineError) as caught:
        await draft_metric("It closes politely.", judge)
    text = str(caught.value)
    assert "the judge did not draft a valid metric" in text
    assert "got: " in text
    assert (
        "a name in snake_case, a tier, what it asks, and a text for each level from 0 to 5" in text
    )
    assert "try another sentence or a larger judge" in text
    assert len(judge.requests) == 3


@pytest.mark.parametrize(
    ("fault", "got"),
    [
        (Fault("server", detail="HTTP 503"), "HTTP 503"),
        (Fault("timeout"), "timeout"),
        (Fault("context_overflow"), "got: context_overflow"),
    ],
)
async def test_a_judge_that_cannot_be_reached_ends_it(fault: Fault, got: str) -> None:
    judge = Judge(Completion(finish="error", fault=fault), GOOD)
    with pytest.raises(EngineError) as caught:
        await draft_metric("It closes politely.", judge)
    assert "the judge gave no reply" in str(caught.value)
    assert got in str(caught.value)
    assert "`curate doctor RECIPE` shows what the judge can do" in str(caught.value)
    assert len(judge.requests) == 1


async def test_it_stands_in_a_recipe_as_it_is_written() -> None:
    metric = await draft_metric("It closes politely.", Judge(GOOD | {"asks": "Höflich?"}))
    written = as_yaml(metric)
    assert "Höflich?" in written
    [own] = yaml.safe_load(written)["metrics"]["own"]
    assert next(iter(own)) == "name"
    assert own["levels"] == {number: f"level {number}" for number in range(6)}
    [read] = MetricsConfig.model_validate(yaml.safe_load(written)["metrics"]).own
    assert read == metric
