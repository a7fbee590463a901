"""Labelled turns made for the tests: two roles, several references, history."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from curate.benchmark.labelled_turns import LabelledTurn, labelled_turns
from curate.dialogue import Dialogue, Message


def turn(text: str, label: str, *references: str, role: str = "role") -> LabelledTurn:
    dialogue = Dialogue(
        id=text,
        messages=(Message(role="assistant", content=text),),
        role_definition=role,
        references=(references,) if references else (),
        labels={"label": label},
    )
    return labelled_turns([dialogue])[0]


FOUR = [
    turn("one two three", "adherent", "one two"),
    turn("one two four five", "adherent"),
    turn("six", "tone_violation"),
    turn("seven", "scope_violation"),
]


def row(number: int) -> dict[str, Any]:
    """Even rows are adherent; odd ones break scope or tone by turns."""
    is_adherent = number % 2 == 0
    kind = "adherent" if is_adherent else ("scope", "tone")[number // 2 % 2]
    said = f"Order {number} left on Monday; I will send you its link."
    return {
        "role": "You are a clerk of a shop. Always name a next step.",
        "assistant": said if is_adherent else f"No idea about {number}, ask somebody else, please.",
        "ground_truth_assistant": f"Your order {number} left on Monday and here is the link.",
        "label": kind,
    }


def write_rows(path: Path, count: int = 12) -> Path:
    path.write_text(json.dumps([row(number) for number in range(count)]), encoding="utf-8")
    return path
