"""Judges that do not open with yes or no are still scored, and where they cannot be, that is said.

What such a model does is played by a function of what it is sent: the reply's forced start, or the options of
its chat template.
"""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from curate.adherence.config import AdherenceConfig
from curate.api import score_adherence
from curate.dialogue import Dialogue, Message
from curate.engines.base import Capability, Completion, Request
from curate.engines.scripted import DEFAULT_CAPABILITIES, ScriptedEngine
from curate.recipe import parse_recipe
from curate.records import AdherenceScore, Unscored
from curate.run.pipeline import run_recipe
from tests.live import live_server
from tests.servers import Body

CONTINUOUS = AdherenceConfig(output_mode="continuous")
LOGPROBS = DEFAULT_CAPABILITIES | {Capability.TOP_LOGPROBS}
DIALOGUES = [
    Dialogue(
        id="d",
        role_definition="You answer for the public library.",
        messages=(
            Message(role="user", content="Is it open?"),
            Message(role="assistant", content="Yes, until six."),
        ),
    )
]


def said(**probabilities: float) -> Completion:
    first = tuple((token, math.log(p)) for token, p in probabilities.items())
    return Completion("x", finish="length", first_token=first)


def opens_with_okay(request: Request) -> Completion:
    """All but a trace of its mass is on "Okay", unless the reply is begun for it."""
    if request.prefill == "Answer:":
        return said(**{" YES": 0.8, " NO": 0.1, " It": 0.1})
    return said(Okay=0.99999, Sure=0.00001)


def the_score(engine: ScriptedEngine, config: AdherenceConfig) -> AdherenceScore | Unscored:
    (found,) = score_adherence(DIALOGUES, engine, config)
    return found


def test_a_judge_that_opens_with_okay_is_scored_behind_an_answer_prefix() -> None:
    engine = ScriptedEngine(opens_with_okay, capabilities=LOGPROBS)
    plain = the_score(engine, CONTINUOUS)
    assert isinstance(plain, Unscored)
    assert plain.reason == "low_coverage"
    assert "'Okay'" in plain.detail
    assert "answer_prefix" in plain.detail
    found = the_score(engine, CONTINUOUS.model_copy(update={"answer_prefix": "Answer:"}))
    assert isinstance(found, AdherenceScore)
    assert found.session_score == pytest.approx(8 / 9)
    assert found.per_turn[0].coverage == pytest.approx(0.9)


def test_little_mass_on_yes_and_no_is_enough_for_their_ratio() -> None:
    engine = ScriptedEngine(lambda _: said(Okay=0.99, YES=0.005, NO=0.00001), capabilities=LOGPROBS)
    found = the_score(engine, CONTINUOUS)  # the paper's Gemma 3
    assert isinstance(found, AdherenceScore)
    assert found.session_score == pytest.approx(0.005 / 0.00501)


def thinks_first(body: Body) -> Body:
    """A Qwen3: its template opens a thought, unless told not to. The model's opening is that of the prompt."""
    thinking = (body.get("chat_template_kwargs") or {}).get("enable_thinking", True)
    first = (
        [("<think>", math.log(0.9999)), ("Okay", math.log(0.0001))]
        if thinking
        else [("YES", math.log(0.7)), ("NO", math.log(0.2)), ("yes", math.log(0.1))]
    )
    return {"text": first[0][0], "first_token": first}


def test_a_judge_that_opens_with_a_thought_is_scored_with_its_thinking_switched_off() -> None:
    with live_server(answer=thinks_first) as server:
        model = {"engine": "openai", "model": "fake-judge", "base_url": server.base_url}
        (plain,) = score_adherence(DIALOGUES, model, CONTINUOUS)
        assert isinstance(plain, Unscored)
        assert plain.reason == "low_coverage"
        assert "enable_thinking: false" in plain.detail
        off = model | {"chat_template_kwargs": {"enable_thinking": False}}
        (found,) = score_adherence(DIALOGUES, off, CONTINUOUS)
    assert isinstance(found, AdherenceScore)
    assert found.session_score == pytest.approx(0.8)
    assert found.per_turn[0].coverage == pytest.approx(1.0)


def test_half_is_there_and_never_silent() -> None:
    engine = ScriptedEngine(opens_with_okay, capabilities=LOGPROBS)
    half = CONTINUOUS.model_copy(update={"on_missing": "half"})
    with pytest.warns(UserWarning, match=r"1 of 1 answers are 0\.5 for lack of evidence"):
        found = the_score(engine, half)
    assert isinstance(found, AdherenceScore)
    assert (found.session_score, found.per_turn[0].imputed) == (0.5, True)
    with pytest.warns(UserWarning, match="for lack of evidence"):
        strict = the_score(engine, half.model_copy(update={"strict_mode": True}))
    assert isinstance(strict, AdherenceScore)
    assert not strict.adherent


def test_a_run_counts_the_halves_and_says_so(tmp_path: Path) -> None:
    rows = tmp_path / "rows.jsonl"
    rows.write_text("".join(f"{held.model_dump_json()}\n" for held in DIALOGUES))
    with live_server(answer=lambda _: thinks_first({})) as server:
        recipe = parse_recipe(
            {
                "name": "halves",
                "source": {"path": str(rows)},
                "models": {
                    "judge": {
                        "engine": "openai",
                        "model": "fake-judge",
                        "base_url": server.base_url,
                    }
                },
                "judge": False,
                "adherence": {"output_mode": "continuous", "on_missing": "half"},
            }
        )
        manifest = run_recipe(recipe, out=tmp_path / "run").manifest
    assert any("1 of 1 answers are 0.5" in text for text in manifest.warnings)
    assert manifest.adherence is not None
    (position,) = manifest.adherence.positions
    assert (position.scored, position.at_risk, position.mean) == (0, 0, None)
    assert json.loads((tmp_path / "run/manifest.json").read_text())["warnings"]


def test_the_fall_back_to_binary_is_said_by_the_api_too() -> None:
    engine = ScriptedEngine(["YES"], capabilities={Capability.SEED})
    with pytest.warns(UserWarning, match="falls back from continuous to binary") as caught:
        found = the_score(engine, CONTINUOUS)
    assert isinstance(found, AdherenceScore)
    assert (found.output_mode, found.session_score) == ("binary", 1)
    assert len(caught) == 1
