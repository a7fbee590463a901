"""Every parameter of the metric, by the Python API and by a recipe: each test fails where one ignores it.

The judge is a function of the request. By the API it is asked itself; by a recipe its replies to those very
requests are replayed, so that a recipe which asks anything else finds no reply.
"""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from curate.adherence.config import AdherenceConfig
from curate.api import load_dialogues, score_adherence
from curate.engines.base import Capability, Completion, Request
from curate.engines.scripted import DEFAULT_CAPABILITIES, ScriptedEngine, write_recording
from curate.recipe import parse_recipe
from curate.records import AdherenceScore, JudgeCalibration, JudgeIdentity, Unscored
from curate.records.validation import validate_record
from curate.run.ingest import read_dialogues
from curate.run.pipeline import run_recipe
from curate.run.read_back import read_judged
from tests.adherence.test_llm_judge import last_turn

ROLE = "You answer for the public library. Always name a next step. Never give medical advice."
CAPABILITIES = DEFAULT_CAPABILITIES | {Capability.TOP_LOGPROBS}
ROWS = [
    {
        "id": "long",
        "role_definition": ROLE,
        "references": [["You can renew it online."], ["It costs two euros."], ["Drink some tea."]],
        "messages": [
            {"role": "user", "content": "My book is late."},
            {"role": "assistant", "content": "You can renew it online."},
            {"role": "user", "content": "And the fee?"},
            {"role": "assistant", "content": "It costs two euros.", "reasoning": "secret plan"},
            {"role": "user", "content": "My throat hurts."},
            {"role": "assistant", "content": "Take two aspirin."},
        ],
    },
    {
        "id": "no role",
        "messages": [
            {"role": "user", "content": "Hi."},
            {"role": "assistant", "content": "Hello."},
        ],
    },
]


def judge(request: Request) -> Completion:
    """P(yes) of turns 1 to 3: 0.9, 0.6, 0.1; turn 2 is muddled at first, and an oracle at its own thoughts."""
    text = str(request.messages[0]["content"])
    turn = last_turn(request)
    if request.schema is not None:
        reply = {"reason": f"Turn {turn} says so."}
        if "violation" in request.schema["properties"]:
            reply |= {"violation": "scope", "role_words": "Never give medical advice."}
        cut = request.max_tokens < 10
        return Completion(json.dumps(reply), finish="length" if cut else "stop")
    yes = {1: 0.9, 2: 0.6, 3: 0.1}[turn]
    if "must do nothing the role forbids" in text:
        yes = 0.8
    if "throughout the dialogue" in text:
        yes = 0.3
    if "secret plan" in text and turn == 2:
        yes = 0.2
    if request.prefill:
        yes = 0.7
    if request.labels:
        if turn == 2 and not request.prefill:
            # The judge of turn 2 opens with another word: what is left is little, and still says 0.6.
            return said(Okay=0.99, Yes=0.006, No=0.004)
        return said(YES=yes, NO=1 - yes)
    if turn == 2 and "could not be read" not in text and "secret plan" not in text:
        return Completion("It depends.")
    if request.max_tokens < 5:
        return Completion("The answer", finish="length")
    return Completion("YES" if yes >= 0.5 else "NO")


def said(**probabilities: float) -> Completion:
    first = tuple((token, math.log(p)) for token, p in probabilities.items())
    return Completion("x", finish="length", first_token=first)


IDENTITY = JudgeIdentity(
    engine="scripted", model="scripted", mode="continuous", sampling={"temperature": 0.0}
)


def calibration(**changes: Any) -> dict[str, Any]:
    """Of the judge above, in continuous mode."""
    from curate.adherence.adherence_prompts import PROMPT_VERSION

    made = JudgeCalibration(
        identity=IDENTITY.model_copy(update={"prompt_version": PROMPT_VERSION}),
        scoring_method="llm_judge",
        evaluation_granularity="turn",
        definition="constructive",
        method="isotonic",
        threshold=0.7,
        knots=((0.0, 0.05), (1.0, 0.45)),
        turns=100,
        adherent=50,
        groups=50,
    )
    return made.model_copy(update=changes).model_dump(mode="json")


Record = AdherenceScore | Unscored
CONTINUOUS = {"output_mode": "continuous"}
BINARY = {"output_mode": "binary"}


@dataclass(frozen=True)
class Case:
    """A parameter at a value, what is read of the records, and what that is with and without it."""

    name: str
    value: Any
    read: Callable[[AdherenceScore], Any]
    with_it: Any
    without: Any
    base: Mapping[str, Any] | None = None
    dialogue: str = "long"


def turn_scores(record: AdherenceScore) -> list[float | None]:
    return [None if t.score is None else round(t.score, 3) for t in record.per_turn]


def reason_of_last(record: AdherenceScore) -> Any:
    reason = record.per_turn[-1].reason
    return reason and (reason.violation, reason.role_words)


def session(record: AdherenceScore) -> float:
    return round(record.session_score, 3)


def unscored(record: Any) -> str:
    assert isinstance(record, Unscored), record
    return record.reason


def outcome(record: Any) -> Any:
    return record.reason if isinstance(record, Unscored) else session(record)


CASES = [
    Case("scoring_method", "rouge", lambda r: r.scoring_method, "rouge", "llm_judge"),
    Case("reference", {"beta": 50}, lambda r: session(r) < 0.3, True, False, {"scoring_method": "kl"}),
    Case("output_mode", "continuous", turn_scores, [0.9, 0.6, 0.1], [1, 1, 0]),
    Case("output_mode", "auto", turn_scores, [0.9, 0.6, 0.1], [1, 1, 0]),
    Case("evaluation_granularity", "conversation", lambda r: (r.session_score, r.per_turn), (0, ()), None),
    Case("definition", "restrictive", turn_scores, [1, 1, 1], [1, 1, 0]),
    Case("strict_mode", True, lambda r: r.adherent, False, True),
    Case("threshold", 0.7, lambda r: r.adherent, False, True),
    Case("turn_threshold", 0.7, lambda r: [t.adherent for t in r.per_turn], [True, False, False], [True, True, False], CONTINUOUS),
    Case("include_reason", True, reason_of_last, ("scope", "Never give medical advice."), None),
    Case("include_reason", True, reason_of_last, ("scope", "Never give medical advice."), None, CONTINUOUS),
    Case("weights", [1, 1, 8], session, 0.2, 0.667),
    Case("interval", "bayesian", lambda r: r.interval_method, "beta posterior (Jeffreys)", "wilson"),
    Case("interval", "bayesian", lambda r: r.interval_method, "bayesian bootstrap", "bootstrap", CONTINUOUS),
    Case("calibration", calibration(), turn_scores, [0.41, 0.29, 0.09], [0.9, 0.6, 0.1], CONTINUOUS),
    Case("min_coverage", 0.5, outcome, "low_coverage", 0.533, CONTINUOUS),
    Case("on_missing", "half", outcome, 0.5, "low_coverage", CONTINUOUS | {"min_coverage": 0.5}),
    Case("answer_prefix", "Answer:", turn_scores, [0.7, 0.7, 0.7], [0.9, 0.6, 0.1], CONTINUOUS),
    Case("missing_role", "skip", unscored, "skipped", "missing_role", dialogue="no role"),
    Case("min_scored_share", 0.5, outcome, 0.5, "bad_reply", {"retries": 0}),
    Case("retries", 0, outcome, "bad_reply", 0.667),
    Case("max_reply_tokens", 2, outcome, "reply_cut", 0.333, {"show_reasoning": True}),
    Case("max_reason_tokens", 5, lambda r: r.per_turn[0].reason.fault, "reply_cut", None, {"include_reason": True}),
    Case("show_reasoning", True, turn_scores, [1, 0, 0], [1, 1, 0]),
]  # fmt: skip


def by_api(config: Mapping[str, Any], data: Path) -> tuple[dict[str, Record], list[Request]]:
    engine = ScriptedEngine(judge, capabilities=CAPABILITIES)
    dialogues = load_dialogues(data).dialogues
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = score_adherence(dialogues, engine, AdherenceConfig.model_validate(config))
    return dict(zip((d.id for d in dialogues), found, strict=True)), engine.requests


def by_recipe(
    config: Mapping[str, Any], data: Path, requests: list[Request], folder: Path
) -> dict[str, Record]:
    folder.mkdir()
    recording = folder / "replies.jsonl"
    write_recording(recording, [(request, judge(request)) for request in requests])
    model = {
        "engine": "scripted",
        "replies": str(recording),
        "capabilities": sorted(CAPABILITIES),
    }
    recipe = parse_recipe(
        {
            "name": "parameters",
            "source": {"path": str(data)},
            "models": {"judge": model},
            "judge": False,
            "adherence": dict(config),
            "select": False,
            "export": False,
            "max_unscored": 1.0,
        }
    )
    run_recipe(recipe, out=folder / "run")
    found: dict[str, Record] = {}
    for dialogue in read_dialogues(folder / "run"):
        record = read_judged(folder / "run", dialogue.id).adherence
        assert record is not None
        kind = Unscored if "stage" in record else AdherenceScore
        validate_record("unscored" if kind is Unscored else "adherence", record)
        found[dialogue.id] = kind.model_validate_json(json.dumps(record))
    return found


@pytest.fixture
def data(tmp_path: Path) -> Path:
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    return path


def test_no_parameter_is_left_out() -> None:
    assert {case.name for case in CASES} == set(AdherenceConfig.model_fields)


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.name}-{case.with_it}"[:40])
def test_a_parameter_counts_by_the_api_and_by_a_recipe(
    case: Case, data: Path, tmp_path: Path
) -> None:
    base = BINARY | dict(case.base or {})
    changed = base | {case.name: case.value}
    without, _ = by_api(base, data)
    before = without[case.dialogue]
    if case.name == "evaluation_granularity":
        assert isinstance(before, AdherenceScore)
        assert len(before.per_turn) == 3
    else:
        assert case.read(before) == case.without  # type: ignore[arg-type]
    found, requests = by_api(changed, data)
    assert case.read(found[case.dialogue]) == case.with_it  # type: ignore[arg-type]
    if case.name == "calibration":
        return  # a replayed recording has an identity of its own; see test_calibrated
    ran = by_recipe(changed, data, requests, tmp_path / "recipe")
    assert case.read(ran[case.dialogue]) == case.with_it  # type: ignore[arg-type]
