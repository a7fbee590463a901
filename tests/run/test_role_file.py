"""The role-adherence files under benchmarks/role: format, split, baselines that find nothing, and the script that compares prompts on it."""

from __future__ import annotations

import importlib.util
import json
import math
from copy import deepcopy
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from curate.engines.accounting import Accounting
from curate.engines.base import Capability, Completion
from curate.engines.cache import ReplyCache
from curate.engines.client import Client
from curate.engines.scripted import DEFAULT_CAPABILITIES, ScriptedEngine

ROOT = Path(__file__).parents[2]


def _module(name: str, path: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def check() -> ModuleType:
    return _module("role_check", "benchmarks/role/check.py")


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
    areas = check.baseline_areas()
    assert {name for _, name in areas} >= {"word_count", "overlap", "position", "unigram"}
    assert {half for half, _ in areas} == {"all", "dev", "sealed"}
    assert list(check.baseline_faults(areas)) == []
    assert list(check.baseline_faults(check.surface_areas())) == []


def test_every_kind_is_there_in_both_halves(
    check: ModuleType, halves: dict[str, list[dict[str, Any]]]
) -> None:
    for rows in halves.values():
        labels = [row["label"] for row in rows]
        assert labels.count("adherent") == len(rows) / 2
        assert all(labels.count(kind) == len(rows) / 8 for kind in check.KINDS)


@pytest.fixture
def plain(check: ModuleType) -> dict[str, list[dict[str, Any]]]:
    return {half: check.read_rows(half, "plain") for half in check.HALVES}


def test_the_plain_tier_keeps_format_mirror_and_split(
    check: ModuleType, plain: dict[str, list[dict[str, Any]]]
) -> None:
    assert list(check.faults(plain, "plain")) == []
    assert list(check.split_faults(plain, "plain")) == []
    fixed = json.loads((ROOT / "benchmarks/role/split.json").read_text("utf-8"))
    assert {half: len(rows) for half, rows in plain.items()} == {"dev": 320, "sealed": 896}
    for half, rows in plain.items():
        assert fixed[f"plain_{half}"]["rows"] == len(rows)
        assert fixed[f"plain_{half}"]["roles"] == sorted({row["role_id"] for row in rows})
        labels = [row["label"] for row in rows]
        assert labels.count("adherent") == len(rows) / 2
        assert all(labels.count(kind) >= len(rows) / 10 for kind in check.KINDS)
        ways = check.decided_by(rows)
        assert ways.count("history") == len(rows) / 2
        assert [turn.label for turn in check.read_turns(half, "plain")] == labels


def test_no_baseline_or_surface_mark_tells_the_plain_tier_apart(check: ModuleType) -> None:
    areas = check.baseline_areas("plain")
    assert {half for half, _ in areas} == {"all", "dev", "sealed"}
    assert list(check.baseline_faults(areas, "plain")) == []
    assert list(check.baseline_faults(check.surface_areas("plain"), "plain")) == []


def test_the_tiers_share_no_role_and_no_user_message(
    halves: dict[str, list[dict[str, Any]]], plain: dict[str, list[dict[str, Any]]]
) -> None:
    subtle_rows, plain_rows = (
        [row for rows in h.values() for row in rows] for h in (halves, plain)
    )
    for shared in (
        lambda row: row["role_definition"],
        lambda row: row["role_id"],
        lambda row: row["messages"][-2]["content"],
    ):
        assert not {shared(row) for row in subtle_rows} & {shared(row) for row in plain_rows}


def test_the_check_finds_a_plain_reply_without_its_mirror(
    check: ModuleType, plain: dict[str, list[dict[str, Any]]]
) -> None:
    bad = deepcopy(plain)
    bad["dev"] = [row for row in bad["dev"] if row["group"] != bad["dev"][0]["group"]]
    assert any("once adherent" in fault for fault in check.faults(bad, "plain"))
    by_role = {
        half: [row for row, by in zip(rows, check.decided_by(rows), strict=True) if by == "role"]
        for half, rows in plain.items()
    }
    assert [fault[:21] for fault in check.faults(by_role, "plain")] == ["earlier turns decide "]


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
    for tier in check.TIERS:
        faults = list(check.split_faults(moved, tier))
        assert any("should hold the roles" in fault for fault in faults)
        assert any(fault.startswith("user message in both halves") for fault in faults)
        assert any(fault.startswith("field in both halves") for fault in faults)


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
    areas = check.areas(turns, [float(turn.is_adherent) for turn in turns])
    assert areas["all"] == 1
    assert list(check.baseline_faults({("dev", "told"): areas})) == [
        "told has AUC 1.000 on dev against all"
    ]


@pytest.fixture(scope="module")
def compare() -> ModuleType:
    return _module("role_compare", "benchmarks/compare_adherence_prompts.py")


def test_the_papers_prompt_is_its_own_and_ours_is_that_of_a_run(
    check: ModuleType, compare: ModuleType
) -> None:
    turn = next(t for t in check.read_turns("dev") if len(t.dialogue.messages) > 2)
    earlier = turn.dialogue.messages[1].content
    paper = compare.paper_request(turn).messages[0]["content"]
    assert paper.startswith(
        "You are an evaluation assistant. Given a role definition and an assistant response, determine "
        "whether the response adheres to the role. Answer ONLY with YES (adherent) or NO (non-adherent)."
    )
    assert turn.case.role in paper
    assert paper.endswith(turn.case.candidate)
    assert earlier not in paper
    ours = compare.our_request(turn).messages[0]["content"]
    assert ours.index(turn.case.role) < ours.index(earlier) < ours.index(turn.case.candidate)


def test_a_split_that_is_not_the_one_fixed_is_refused(
    compare: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("dev.jsonl", "sealed.jsonl", "split.json"):
        (tmp_path / name).write_bytes((compare.ROLE / name).read_bytes())
    for half in ("dev", "sealed"):
        name = f"plain_{half}.jsonl"
        (tmp_path / name).write_bytes((compare.ROLE / name).read_bytes())
    monkeypatch.setattr(compare, "ROLE", tmp_path)
    assert len(compare.read_split("all")) == 192
    assert len(compare.read_split("sealed", "plain")) == 896
    assert len(compare.read_split("sealed", "all")) == 992
    dev = tmp_path / "dev.jsonl"
    dev.write_bytes(dev.read_bytes() + b"\n")
    assert len(compare.read_split("sealed")) == 96
    with pytest.raises(SystemExit, match="would not compare"):
        compare.read_split("dev")
    assert len(compare.read_split("dev", "plain")) == 320
    plain = tmp_path / "plain_dev.jsonl"
    plain.write_bytes(plain.read_bytes() + b"\n")
    with pytest.raises(SystemExit, match="would not compare"):
        compare.read_split("dev", "plain")


def test_the_report_compares_on_the_turns_that_every_prompt_scored(
    check: ModuleType, compare: ModuleType
) -> None:
    turns = check.read_turns("dev")
    knows = [float(turn.is_adherent) for turn in turns]
    blind: list[float | None] = [0.5] * len(turns)
    blind[3] = None
    report = compare.report(turns, {"paper": blind, "ours": knows})
    assert "95 of 96 turns scored" in report
    paper = next(line for line in report.splitlines() if line.startswith("| paper |"))
    assert paper.split(" | ")[1] == "0.500"
    assert paper.endswith("| 1 |")
    differences = [line for line in report.splitlines() if line.startswith("| ours minus paper")]
    assert [line.split(" | ")[1] for line in differences] == ["all", *sorted(check.KINDS)]
    assert all(
        line.endswith("+0.500 | +0.500 to +0.500 | +0.500 to +0.500 |") for line in differences
    )


def test_rows_that_only_the_history_decides_are_reported_apart(
    check: ModuleType, compare: ModuleType
) -> None:
    turns = check.read_turns("dev", "plain")
    rows = check.read_rows("dev", "plain")
    decides = compare.history_decides(turns)
    assert decides == [by == "history" for by in check.decided_by(rows)]
    # Scores of a perfect judge without the history: it knows the role, and nothing where the history decides.
    role_only = [
        0.5 if by_history else float(turn.is_adherent)
        for turn, by_history in zip(turns, decides, strict=True)
    ]
    knows = [float(turn.is_adherent) for turn in turns]
    report = compare.report(turns, {"paper": role_only, "ours": knows}).splitlines()
    cells = {line.split(" | ")[1]: line.split(" | ")[2:5] for line in report if " minus " in line}
    assert cells["all, history decides"] == ["1.000", "0.500", "+0.500"]
    assert cells["all, role decides"] == ["1.000", "1.000", "+0.000"]
    requests = {True: compare.our_request, False: compare.paper_request}
    for sees_history, request in requests.items():
        prompts = {
            request(turn).messages[0]["content"]
            for turn, by_history in zip(turns, decides, strict=True)
            if by_history
        }
        assert len(prompts) == decides.count(True) / (1 if sees_history else 2)


async def test_a_question_that_was_answered_is_not_asked_again(
    check: ModuleType, compare: ModuleType, tmp_path: Path
) -> None:
    turns = check.read_turns("dev")[:6]
    reply = Completion("Yes", first_token=(("Yes", math.log(0.6)), ("No", math.log(0.2))))
    engine = ScriptedEngine(
        [reply] * 6, capabilities=[*DEFAULT_CAPABILITIES, Capability.TOP_LOGPROBS]
    )
    runs = []
    for stop in (3, 6):
        with ReplyCache(tmp_path / "replies.sqlite") as cache:
            ask = Client(engine, cache, accounting=Accounting())
            runs.append(await compare.score("ours", compare.our_request, turns[:stop], ask))
    assert len(engine.requests) == 6
    assert runs[0] == runs[1][:3]
    assert runs[1] == pytest.approx([0.75] * 6)
