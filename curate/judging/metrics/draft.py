"""A metric of the user's own, drafted by the judge from one sentence, for the user to edit."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final, get_args

import yaml
from pydantic import ValidationError

from curate.engines.base import Ask, Request
from curate.engines.layout import Trunk, defuse
from curate.engines.prompt_files import fill, prompt_file
from curate.engines.structured import BadReply, closed_object, read_object
from curate.errors import EngineError
from curate.judging.metrics.catalogue import LEVELS, shipped
from curate.judging.metrics.config import MetricsConfig, OwnMetric
from curate.judging.session import fault_of
from curate.records.metrics import MetricTier

WEIGHT: Final = 0.1
"""Weight of a drafted metric; that of a shipped metric of middling weight."""
_RETRIES = 2
_MAX_TOKENS = 800
_TEXT = {"type": "string"}
SCHEMA: Final[Mapping[str, Any]] = closed_object(
    {
        "name": _TEXT,
        "tier": {"type": "string", "enum": list(get_args(MetricTier))},
        "asks": _TEXT,
        "levels": closed_object(dict.fromkeys(LEVELS["scored"], _TEXT)),
    }
)
"""JSON schema of the reply."""


async def draft_metric(wish: str, ask: Ask) -> OwnMetric:
    """Draft a scored metric (0-5) from a sentence.

    Raises:
        EngineError: the model cannot be reached, or gives nothing that is a metric.
    """
    problem = ""
    for attempt in range(_RETRIES + 1):
        (completion,) = await ask([replace(_request(wish, problem), sample=attempt)])
        fault = fault_of(completion)
        if fault is not None:
            raise EngineError(
                "the judge gave no reply",
                got=fault.detail or fault.reason,
                fix="try again; `curate doctor RECIPE` shows what the judge can do",
            )
        reply = read_object(completion, SCHEMA)
        if isinstance(reply, BadReply):
            problem = reply.detail
            continue
        try:
            metric = OwnMetric(**reply, weight=WEIGHT)
            MetricsConfig(own=(metric,))
        except ValidationError as error:
            problem = error.errors()[0]["msg"]
            continue
        return metric
    raise EngineError(
        "the judge did not draft a valid metric",
        got=problem,
        expected="a name in snake_case, a tier, what it asks, and a text for each level from 0 to 5",
        fix="try another sentence or a larger judge, or write it by hand: docs/metrics.md has an example",
    )


def as_yaml(metric: OwnMetric) -> str:
    """Return the metric as it stands in a recipe."""
    fields = metric.model_dump(exclude_none=True)
    fields["levels"] = {
        int(level) if level.isdigit() else level: text for level, text in metric.levels.items()
    }
    text = yaml.safe_dump(
        {"metrics": {"own": [fields]}}, sort_keys=False, allow_unicode=True, width=100
    )
    return str(text)


def _request(wish: str, problem: str) -> Request:
    levels = dict.fromkeys(LEVELS["scored"], "...")
    form = {"name": "snake_case", "tier": "...", "asks": "one sentence", "levels": levels}
    example = shipped()["information_gathering"].levels
    text = fill(
        prompt_file("judging", "metric_draft"),
        example="\n".join(f"{level} = {level_text}" for level, level_text in example.items()),
        form=json.dumps(form),
        wish=defuse(" ".join(wish.split())).text,
    )
    retry = (
        f"Your last reply could not be used: {defuse(problem).text}. Follow the form exactly."
        if problem
        else ""
    )
    return Request(
        Trunk(text), retry, max_tokens=_MAX_TOKENS, schema=SCHEMA, purpose="metrics.draft"
    )
