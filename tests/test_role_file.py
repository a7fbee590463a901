"""The role-adherence file under benchmarks/role keeps its format, its split and its distance from cheap tricks."""

from __future__ import annotations

import importlib.util
import json
from copy import deepcopy
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def check() -> ModuleType:
    spec = importlib.util.spec_from_file_location("role_check", ROOT / "benchmarks/role/check.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def halves(check: ModuleType) -> dict[str, list[dict[str, Any]]]:
    return {half: check.read_rows(half) for half in check.HALVES}


def test_format_and_groups(check: ModuleType, halves: dict[str, list[dict[str, Any]]]) -> None:
    assert list(check.faults(halves)) == []


def test_split_follows_its_rule_and_the_files_are_those_fixed(
    check: ModuleType, halves: dict[str, list[dict[str, Any]]]
) -> None:
    assert list(check.split_faults(halves)) == []
    fixed = json.loads((ROOT / "benchmarks/role/split.json").read_text("utf-8"))
    for half, rows in halves.items():
        assert fixed[half]["rows"] == len(rows)
        assert fixed[half]["roles"] == sorted({row["role_id"] for row in rows})


def test_curate_reads_every_row_with_its_references_and_label(
    check: ModuleType, halves: dict[str, list[dict[str, Any]]]
) -> None:
    for half, rows in halves.items():
        turns = check.read_turns(half)
        assert [turn.dialogue.id for turn in turns] == [row["id"] for row in rows]
        assert [turn.label for turn in turns] == [row["label"] for row in rows]
        assert [turn.case.candidate for turn in turns] == [check.reply_of(row) for row in rows]
        assert [list(turn.case.references) for turn in turns] == [
            row["references"][-1] for row in rows
        ]
        assert [turn.case.role for turn in turns] == [row["role_definition"] for row in rows]
        assert [turn.dialogue.group for turn in turns] == [row["group"] for row in rows]


def test_no_baseline_or_surface_mark_tells_adherent_from_violating(check: ModuleType) -> None:
    found = check.baseline_areas()
    assert {name for _, name in found} >= {"word_count", "overlap", "position", "unigram"}
    assert {half for half, _ in found} == {"all", "dev", "sealed"}
    assert list(check.baseline_faults(found)) == []
    assert list(check.baseline_faults(check.surface_areas())) == []


def test_every_kind_is_there_in_both_halves(
    check: ModuleType, halves: dict[str, list[dict[str, Any]]]
) -> None:
    for rows in halves.values():
        labels = [row["label"] for row in rows]
        assert labels.count("adherent") == len(rows) / 2
        assert all(labels.count(kind) == len(rows) / 8 for kind in check.KINDS)


def test_the_check_finds_what_it_is_for(
    check: ModuleType, halves: dict[str, list[dict[str, Any]]]
) -> None:
    def broken(**changes: Any) -> list[str]:
        bad = deepcopy(halves)
        bad["dev"][0].update(changes)
        return list(check.faults(bad))

    longer = deepcopy(halves["dev"][0]["messages"])
    longer[-1]["content"] += " and so on" * 4
    assert any("words" in fault for fault in broken(messages=longer))
    assert any("label" in fault for fault in broken(label="rude"))
    assert any("references" in fault for fault in broken(references=[["one"]]))
    assert any("another role" in fault for fault in broken(role_definition="Anybody."))
    assert any("id twice" in fault for fault in broken(id=halves["dev"][1]["id"]))


def test_the_check_finds_a_row_in_the_wrong_half(
    check: ModuleType, halves: dict[str, list[dict[str, Any]]]
) -> None:
    moved = {"dev": [*halves["dev"], halves["sealed"][0]], "sealed": halves["sealed"]}
    said = list(check.split_faults(moved))
    assert any("roles" in fault for fault in said)
    assert any("both halves" in fault for fault in said)


def test_the_check_finds_another_file(
    check: ModuleType,
    halves: dict[str, list[dict[str, Any]]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("dev.jsonl", "sealed.jsonl", "split.json"):
        (tmp_path / name).write_bytes((check.HERE / name).read_bytes())
    monkeypatch.setattr(check, "HERE", tmp_path)
    assert list(check.split_faults(halves)) == []
    sealed = tmp_path / "sealed.jsonl"
    sealed.write_bytes(sealed.read_bytes().replace(b"adherent", b"adherents", 1))
    assert [fault[:12] for fault in check.split_faults(halves)] == ["sealed.jsonl"]


def test_the_check_finds_a_baseline_that_knows(check: ModuleType) -> None:
    turns = check.read_turns("dev")
    told = check.areas(turns, [float(turn.is_adherent) for turn in turns])
    assert told["all"] == 1
    assert list(check.baseline_faults({("dev", "told"): told})) == [
        "told has AUC 1.000 on dev against all"
    ]
