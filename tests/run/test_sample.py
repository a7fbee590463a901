"""The sample data is what its README says: all of it loads, and its planted flaws are where the README says."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from curate.dialogue import Dialogue
from curate.export.config import ExportConfig
from curate.export.writing import ExportData, write_export
from curate.pairs.config import NaturalConfig
from curate.sources import open_source
from curate.sources.config import SourceConfig
from curate.sources.unit_result import RowCounts
from tests.pairs.scripted import natural_pairs

SAMPLE = Path(__file__).resolve().parents[2] / "recipes" / "sample"


def read(name: str) -> tuple[list[Dialogue], RowCounts]:
    tally, dialogues = RowCounts(), []
    for unit in open_source(SourceConfig(path=str(SAMPLE / name))).read():
        tally.add(unit)
        dialogues.extend(unit.dialogues)
    return dialogues, tally


@pytest.mark.parametrize(("name", "rows"), [("support.jsonl", 8), ("dialogues.jsonl", 24)])
def test_every_dialogue_loads_with_its_role_and_scenario(name: str, rows: int) -> None:
    dialogues, tally = read(name)
    assert (tally.rows_used, tally.quarantined, len(dialogues)) == (rows, 0, rows)
    assert all(dialogue.role_definition and dialogue.scenario for dialogue in dialogues)
    assert all(dialogue.messages[-1].role == "assistant" for dialogue in dialogues)
    assert len({dialogue.id for dialogue in dialogues}) == rows


def test_the_dialogues_cover_what_the_readme_lists() -> None:
    dialogues = [*read("support.jsonl")[0], *read("dialogues.jsonl")[0]]
    lengths = [len(dialogue.turns) for dialogue in dialogues]
    assert (min(lengths), max(lengths)) == (3, 14)
    assert sum(length > 10 for length in lengths) == 3  # these need windows
    assert len({dialogue.messages[0].content for dialogue in dialogues}) == 10
    assert sum(bool(dialogue.tools) for dialogue in dialogues) == 4
    flaws = [dialogue.metadata["flaw"] for dialogue in dialogues if dialogue.metadata.get("flaw")]
    assert len(flaws) == len(dialogues) / 2
    assert set(Counter(flaw["kind"] for flaw in flaws)) == {
        "contradiction",
        "evasion",
        "forgotten_context",
        "ignored_correction",
        "no_next_step",
        "off_role",
        "sycophantic",
        "unsafe",
        "wrong_amount",
        "wrong_tone",
    }


def test_a_planted_flaw_names_a_turn_that_is_scored() -> None:
    for dialogue in (*read("support.jsonl")[0], *read("dialogues.jsonl")[0]):
        flaw = dialogue.metadata.get("flaw")
        if flaw:
            scored = {turn.number for turn in dialogue.turns if turn.in_rubric}
            assert flaw["turn"] in scored


def test_bad_rows_are_put_aside_each_for_its_own_reason() -> None:
    dialogues, tally = read("bad.jsonl")
    assert [dialogue.id for dialogue in dialogues] == ["bad-none"]
    assert (tally.rows_in, tally.rows_used, tally.quarantined) == (6, 1, 5)
    assert len(tally.reasons) == 5
    assert {"broken_json", "unknown_role", "no_assistant", "empty_user"} < set(tally.reasons)


def test_preferences_come_out_as_natural_pairs_and_all_is_exported(tmp_path: Path) -> None:
    pairs = natural_pairs(read("preferences.jsonl")[0], NaturalConfig())
    sft = [*read("support.jsonl")[0], *read("dialogues.jsonl")[0]]
    counts = write_export(tmp_path, "trl", ExportData(sft=sft, natural=pairs), ExportConfig())
    assert {k: n for k, n in counts.rows.items() if n} == {
        "sft": 32,
        "dpo_natural": 4,
        "kto_natural": 8,
    }
    assert (tmp_path / "refused.jsonl").read_bytes() == b""
