"""The script `benchmarks/compare_weakest.py`: where it plants, and its report on simulated readings."""

from __future__ import annotations

import json
import random
from argparse import Namespace
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from curate.dialogue import Dialogue, Message


@pytest.fixture(scope="module")
def script(load: Callable[[str], ModuleType]) -> ModuleType:
    return load("compare_weakest")


def dialogue(number: int) -> Dialogue:
    messages = []
    for turn in range(4):
        messages += [
            Message(role="user", content=f"What about number {turn} of {number}?"),
            Message(
                role="assistant",
                content=f"It is the case that {number + turn} of them are there. You can see that it is {turn + 20}. "
                "That is all that there is to say of it.",
            ),
        ]
    return Dialogue(id=f"d{number}", messages=tuple(messages))


def test_flaws_are_planted_in_all_turns_alike(script: ModuleType) -> None:
    flawed = script.plant([dialogue(number) for number in range(24)], 24, seed=1)
    assert Counter(held.turn for held in flawed) == {1: 6, 2: 6, 3: 6, 4: 6}
    original = {held.id: held for held in map(dialogue, range(24))}
    for held in flawed:
        changed = [
            turn.number
            for turn, was in zip(held.dialogue.turns, original[held.dialogue.id].turns, strict=True)
            if turn.messages != was.messages
        ]
        assert changed == [held.turn]


def line(number: int, fall: float, prior: float = 4.0) -> dict[str, Any]:
    """A judge whose digit is always 4, whose expectation falls a little, and that likes the first letter."""
    draw = random.Random(number)
    flaw = draw.randint(1, 4)
    per_turn = []
    for turn in range(1, 5):
        readings = {}
        for name in ("context_use", "helpfulness", "safety"):
            mean = draw.gauss(3.8, 0.1) - fall * (turn == flaw)
            readings[name] = {"mean": mean, "coverage": 1.0, "probabilities": {"4": mean - 3, "3": 4 - mean}}  # fmt: skip
        per_turn.append({"turn": turn, "scores": dict.fromkeys(readings, 4), "readings": readings})
    weights = [1 + prior * (turn == 1) + (turn == flaw) for turn in range(1, 5)]
    weakest = {str(turn): weight / 9 for turn, weight in enumerate(weights, start=1)}
    return {
        "dialogue": f"d{number}", "kind": f"kind{number % 3}", "turn": flaw, "per_turn": per_turn,
        "weakest": weakest | {"none": 0.01},
    }  # fmt: skip


def rows(said: str) -> dict[str, list[str]]:
    cells = [
        [cell.strip() for cell in row.strip("|").split("|")]
        for row in said.splitlines()
        if row.startswith("| ") and row.count("|") == 6
    ]
    return {row[0]: row[1:] for row in cells}


def test_rules_are_held_against_chance_and_the_first(
    script: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = [line(number, fall=0.4) for number in range(60)]
    lines.append({"dialogue": "unread", "kind": "kind0", "turn": 1, "per_turn": None, "weakest": None})  # fmt: skip
    file = tmp_path / "readings.jsonl"
    file.write_text("".join(json.dumps(held) + "\n" for held in lines))
    script.report(Namespace(readings=[file], calibration=None, people=None, least=10))
    said = capsys.readouterr().out
    assert "60 dialogues of 4 to 4 turns, 1 more" in said
    found = rows(said)
    assert found["chance"][1] == "0.25"
    assert float(found["lowest mean"][1][:4]) > 0.9
    first = sum(held["turn"] == 1 for held in lines[:60]) / 60
    assert found["the judge's own"][1].startswith(f"{first:.2f}")
    assert found["the judge's own, prior off"][1].startswith("1.00")
    assert found["weakest turn by levels"][3].startswith(("+", "-"))


def test_an_own_answer_that_could_not_be_read_leaves_the_scores(
    script: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = [line(number, fall=0.4) | {"weakest": {}} for number in range(20)]
    file = tmp_path / "readings.jsonl"
    file.write_text("".join(json.dumps(held) + "\n" for held in lines))
    script.report(Namespace(readings=[file], calibration=None, people=None, least=10))
    found = rows(capsys.readouterr().out)
    assert found["the judge's own"][0] == "0"
    assert float(found["lowest mean"][1][:4]) > 0.8


def test_too_few_dialogues_are_no_report(script: ModuleType, tmp_path: Path) -> None:
    file = tmp_path / "readings.jsonl"
    file.write_text(json.dumps(line(1, fall=0.4)) + "\n")
    with pytest.raises(SystemExit, match="1 dialogues"):
        script.report(Namespace(readings=[file], calibration=None, people=None, least=10))


def test_people_may_say_which_turns_are_worst(
    script: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = [line(number, fall=0.4) for number in range(30)]
    readings = tmp_path / "levels.jsonl"
    readings.write_text(
        "".join(
            json.dumps({"dialogue": held["dialogue"], "judgment": held | {"kind": "judgment"}})
            + "\n"
            for held in lines
        )
    )
    impressions = [[2 - (turn == held["turn"]) for turn in range(1, 5)] for held in lines]
    impressions[0] = [1, 1, 1, 1]
    other = lines[1]["turn"] % 4
    impressions[1][other] = 1
    rows_of_people = [
        {"dialog_id": held["dialogue"], "turns": [{"overall impression": i} for i in given]}
        for held, given in zip(lines, impressions, strict=True)
    ]
    people = tmp_path / "people.json"
    people.write_text(json.dumps(rows_of_people))
    script.report(Namespace(readings=[readings], calibration=None, people=people, least=10))
    said = capsys.readouterr().out
    assert "29 dialogues of 4 to 4 turns, 0 more" in said
    found = rows(said)
    assert found["chance"][1] == f"{(28 * 0.25 + 0.5) / 29:.2f}"
    assert float(found["lowest mean"][1][:4]) > 0.8
