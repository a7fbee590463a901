"""The script `benchmarks/compare_modes.py`: its variants, shortened dialogues, and two modes held against each other."""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from curate.engines.base import Completion, Request
from curate.engines.scripted import ScriptedEngine


@pytest.fixture(scope="module")
def script(load: Callable[[str], ModuleType]) -> ModuleType:
    return load("compare_modes")


def test_thoughts_and_samples_of_any_number_are_variants(script: ModuleType) -> None:
    assert script.variant("tokens, thought of 48").thought_tokens == 48
    assert script.variant("json, 3 samples").samples == 3
    assert script.variant("json, 3 samples").mode == "json"
    assert script.variant("tokens") == script.variants()["tokens"]
    assert script.variant("tokens, 3 samples") is None


def conture(folder: Path, dialogues: int, turns: int) -> Path:
    rows = [
        {
            "dialog_id": f"d{number}",
            "turns": [
                {"user": f"User: {turn}?", "chatbot": f"Chatbot: {turn} of {number}.", "overall impression": turn % 3}
                for turn in range(1, turns + 1)
            ],
        }
        for number in range(dialogues)
    ]  # fmt: skip
    file = folder / "data.json"
    file.write_text(json.dumps(rows))
    return file


def test_a_shortened_dialogue_keeps_the_ratings_of_its_turns(
    script: ModuleType, tmp_path: Path
) -> None:
    (item,) = script.load_gold(conture(tmp_path, 1, turns=6))
    short = script.shortened(item, 4)
    assert [turn.number for turn in short.dialogue.turns] == [1, 2, 3, 4]
    assert short.turns == {1: 1.0, 2: 2.0, 3: 0.0, 4: 1.0}
    assert script.shortened(item, 9).dialogue.messages == item.dialogue.messages


def test_the_better_of_two_is_told_with_its_interval(script: ModuleType) -> None:
    draw = random.Random(1)
    clusters = [
        [(rating + draw.gauss(0, 0.3), draw.gauss(0, 1), rating) for rating in (0.0, 1.0, 2.0)]
        for _ in range(30)
    ]
    figure, low, _, high = script.difference(clusters).replace("(", "").replace(")", "").split()
    assert 0.5 < float(low) < float(figure) < float(high) < 1.5
    mirrored = [[(b, a, rating) for a, b, rating in cluster] for cluster in clusters]
    assert script.difference(mirrored).startswith("-")
    assert script.difference([[(1.0, b, r) for _, b, r in of] for of in clusters]) == "none"


def test_two_modes_are_held_against_people_and_each_other(
    script: ModuleType,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A judge that rates as people do in one form, and in the other way round in the next."""

    def reply(request: Request) -> Completion:
        turns = [key for key in (request.schema or {})["properties"] if key[-1].isdigit()]
        rated = {key: int(key[5:]) % 3 for key in turns}
        if request.temperature > 0:
            rated = {key: 2 - value for key, value in rated.items()}
        given = {key: [value + 2, value + 2, 5] for key, value in rated.items()}
        level = {"coherence": 4, "task_completion": 4, "repair_handling": "n/a"}
        opinions = {"verdict": "good", "weakest_turn": None}
        return Completion(text=json.dumps({**given, **level, **opinions}))

    async def opened(_: object) -> ScriptedEngine:
        return ScriptedEngine(reply)

    monkeypatch.setattr(script, "open_engine", opened)
    data = conture(tmp_path, 4, turns=6)
    arguments = ["--model", "m", "--data", str(data), "--turns", "4", "--variants", "json;json, 3 samples"]  # fmt: skip
    monkeypatch.setattr(sys, "argv", ["compare_modes.py", *arguments])
    script.main()
    said = capsys.readouterr().out
    assert "| json | 1.000 (1.00 to 1.00) | 1.000 (4) | 4/4 |" in said
    assert "turns: Spearman between the two -1.00, agreement with people -2.00" in said
