"""`curate metrics`: the list, and a draft of one's own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner, Result

from curate.cli import app
from curate.engines.structured import strict
from curate.errors import EngineError, UsageError
from curate.judging.metrics import MetricsConfig
from curate.judging.metrics.draft import SCHEMA
from tests.live import live_server
from tests.servers import Body, answer_by_hash

TEXTS = {str(level): f"level {level}" for level in range(6)}
DRAFT = {
    "name": "empathy",
    "tier": "delivery",
    "asks": "It takes the mood into account.",
    "levels": TEXTS,
}
RECIPE = """\
source: {path: chats.jsonl}
metrics:
  choose: [tool_routing, empathy]
  own:
    - {name: empathy, tier: delivery, asks: Kind., levels: {5: a, 4: b, 3: c, 2: d, 1: e, 0: f}, weight: 0.45}
"""


def run(*arguments: str) -> Result:
    return CliRunner(env={"COLUMNS": "200"}).invoke(app, ["metrics", *arguments])


def test_the_table_names_every_metric_with_its_weight() -> None:
    said = run().output
    assert "tool_routing" in said
    assert "0.150" in said
    (task,) = [line for line in said.splitlines() if line.startswith("task_completion")]
    assert task.split()[:4] == ["task_completion", "execution", "pass/fail", "-"]


def test_json_has_the_shape_of_the_source() -> None:
    response = json.loads(run("--json").output)
    assert response["count"] == 9
    assert [*response["data"][0]] == [
        "name",
        "display_name",
        "description",
        "tier",
        "default_weight",
        "score_type",
        "rubric",
        "include_in_defaults",
    ]


def test_a_recipe_shows_its_own_metrics_and_weights(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(RECIPE)
    lines = {
        line.split()[0]: line.split()
        for line in run("--recipe", str(tmp_path / "mine.yaml")).output.splitlines()
    }
    assert lines["empathy"][3] == "0.750"
    assert lines["tool_routing"][3] == "0.250"
    assert lines["response_delivery"][3] == "-"


def drafted(tmp_path: Path, *replies: Any) -> tuple[Result, list[str]]:
    """`curate metrics new` with a judge that gives these replies, and what it was asked."""
    left, asked = [*replies], []

    def answer(body: Body) -> Body | str:
        text = "".join(str(message["content"]) for message in body["messages"])
        if "What is asked for:" not in text:
            return answer_by_hash(body)
        asked.append(text)
        assert body["response_format"]["json_schema"]["schema"] == strict(SCHEMA)
        return json.dumps(left.pop(0))

    with live_server(answer=answer) as server:
        path = tmp_path / "mine.yaml"
        path.write_text(
            "source: {path: chats.jsonl}\nmodels:\n"
            f"  judge: {{engine: openai, model: fake-judge, base_url: '{server.base_url}', retries: 0}}\n"
        )
        return run("new", "Is the assistant kind to {upset} users?", "--recipe", str(path)), asked


def test_a_draft_is_a_section_that_a_recipe_takes(tmp_path: Path) -> None:
    result, (asked,) = drafted(tmp_path, DRAFT)
    assert "Is the assistant kind to {upset} users?" in asked
    config = MetricsConfig.model_validate(yaml.safe_load(result.output)["metrics"])
    assert config.chosen["empathy"].levels["5"] == "level 5"
    assert config.weights["empathy"] == pytest.approx(0.1 / 1.1)


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({**DRAFT, "name": "tool_routing"}, "a built-in metric has that name"),
        ({**DRAFT, "name": "Empathy!"}, "should match pattern"),
        ({**DRAFT, "levels": {**TEXTS, "3": " "}}, "no text for 3"),
        ({"name": "x"}, "required property"),
    ],
)
def test_a_draft_that_is_no_metric_is_asked_again_with_the_reason(
    tmp_path: Path, wrong: Any, why: str
) -> None:
    result, asked = drafted(tmp_path, wrong, DRAFT)
    assert why in asked[1]
    assert "name: empathy" in result.output


def test_where_nothing_comes_the_error_says_what_to_do(tmp_path: Path) -> None:
    result, asked = drafted(tmp_path, *[{"name": "x"}] * 3)
    assert len(asked) == 3
    assert isinstance(result.exception, EngineError)
    assert "write it by hand" in str(result.exception)


def test_an_empty_sentence_is_refused_before_any_call(tmp_path: Path) -> None:
    result = run("new", " ", "--recipe", str(tmp_path / "none.yaml"))
    assert isinstance(result.exception, UsageError)
