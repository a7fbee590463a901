"""The report of `benchmarks/compare_pairs.py` on simulated readings."""

from __future__ import annotations

import json
import math
import random
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest


@pytest.fixture(scope="module")
def script(load: Callable[[str], ModuleType]) -> ModuleType:
    return load("compare_pairs")


def line(number: int, signal: float, pull: float = 2.0) -> dict[str, Any]:
    """A judge with a strong taste for the first place, and scores that tell little."""
    draw = random.Random(number)
    preference = draw.gauss(signal, 1)
    orders = []
    for odds in (preference + pull, -preference + pull):
        a = 1 / (1 + math.exp(-odds))
        orders.append({"A": math.log(a), "B": math.log(1 - a), "coverage": 1.0})
    sides = [
        [dict.fromkeys(("context_use", "helpfulness", "safety"), draw.gauss(4, 0.1)) for _ in range(2)]
        for _ in range(2)
    ]  # fmt: skip
    return {
        "dialogue": f"d{number}", "kind": f"kind{number % 6}", "orders": orders,
        "original": sides[0], "degraded": sides[1],
    }  # fmt: skip


def written(path: Path, lines: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(held) + "\n" for held in lines))
    return path


def rows(said: str, name: str) -> list[str]:
    [row] = [
        row for row in said.splitlines() if row.startswith(f"| {name}") and row.count("|") == 6
    ]
    return [cell.strip() for cell in row.strip("|").split("|")]


def test_the_rules_are_held_against_each_other_on_the_same_readings(
    script: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = [line(number, signal=2.0) for number in range(160)]
    unread = line(999, 1.0) | {"original": [{"unscored": "bad_reply"}] * 2}
    files = [
        written(tmp_path / "a.jsonl", lines[:100]),
        written(tmp_path / "b.jsonl", [*lines[100:], unread]),
    ]
    script.report(Namespace(readings=files, least=40))
    said = capsys.readouterr().out
    assert "160 pairs, 1 more" in said
    truth = sum(
        (held["orders"][0]["A"] - held["orders"][0]["B"]) > (held["orders"][1]["A"] - held["orders"][1]["B"])
        for held in lines
    )  # fmt: skip
    assert rows(said, "preference above the spread")[1:3] == [str(truth), str(160 - truth)]
    assert rows(said, "margin and both letters")[1] == "0"
    better, worse = map(int, rows(said, "curve of other kinds")[1:3])
    assert better > 80
    assert better / (better + worse) >= 0.85
    assert said.count("| kind") == 1 + 6  # the head of the table and its rows


def test_too_few_readings_are_said_to_be(script: ModuleType, tmp_path: Path) -> None:
    few = written(tmp_path / "a.jsonl", [line(number, 1.0) for number in range(9)])
    with pytest.raises(SystemExit, match=r"9 pairs .* too few"):
        script.report(Namespace(readings=[few], least=40))
