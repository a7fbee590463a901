"""The files that a run writes: complete, in order, and without keeping its dialogues in memory."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from curate.dialogue import Dialogue, Message
from curate.engines import model_pool
from curate.engines.base import Request
from curate.engines.scripted import ScriptedEngine
from curate.export import provenance
from curate.pairs.natural import gather_groups
from curate.planning.estimate import Reservoir
from curate.recipe import parse_recipe
from curate.records import Decision
from curate.run import ingest as ingesting
from curate.run import outputs, pipeline
from curate.run.ingest import (
    DialogueFile,
    read_dialogues,
    read_dialogues_at,
    read_sources,
)
from curate.run.outputs import grouped_dialogues, write_selection
from curate.run.pipeline import run_recipe
from curate.selection.config import SelectConfig
from curate.selection.rules import decide, select
from curate.selection.table import facts_frame, facts_row, score_table
from curate.sources import SourceConfig, open_rows, source


def chat(number: int, **fields: Any) -> dict[str, Any]:
    reply = fields.pop("reply", f"Answer {number}.")
    messages = [{"role": "user", "content": "Hello?"}, {"role": "assistant", "content": reply}]
    return {"id": f"chat-{number}", "messages": messages, **fields}


def ingest(folder: Path, rows: list[dict[str, Any]]) -> list[Dialogue]:
    read_sources([open_rows(rows, SourceConfig(path="rows"))], folder, role="R.", scenario="S.")
    return list(read_dialogues(folder))


def test_the_index_says_of_each_dialogue_what_the_dialogue_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ingesting, "CHUNK", 3)
    dialogues = ingest(tmp_path, [chat(n, group=f"g{n % 2}", reward=n / 2) for n in range(7)])
    index = pl.read_parquet(tmp_path / "dialogues.parquet")
    facts = facts_frame([facts_row(dialogue) for dialogue in dialogues])
    assert index.select(facts.columns).equals(facts)
    assert index["content_hash"].to_list() == [dialogue.content_hash for dialogue in dialogues]
    backwards = read_dialogues_at(tmp_path, index["offset"].reverse())
    assert list(backwards) == dialogues[::-1]
    odd = pl.Series([n % 2 == 1 for n in range(7)])
    assert list(read_dialogues(tmp_path, odd)) == dialogues[1::2]


def test_groups_come_together_in_order_of_appearance(tmp_path: Path) -> None:
    groups = ["b", None, "a", "b", "c", "a"]
    dialogues = ingest(tmp_path, [chat(n, group=group) for n, group in enumerate(groups)])
    assert list(grouped_dialogues(tmp_path)) == gather_groups(dialogues)


@settings(deadline=None, max_examples=15)
@given(st.lists(st.text(), min_size=1, max_size=8, unique=True))
def test_decisions_are_written_as_the_records_they_are(
    tmp_path_factory: pytest.TempPathFactory, names: list[str]
) -> None:
    folder = tmp_path_factory.mktemp("run")
    dialogues = [
        Dialogue(id=name, messages=(Message(role="user", content=name),)) for name in names
    ]
    with DialogueFile(folder / "dialogues.jsonl", folder / "dialogues.parquet") as file:
        for dialogue in dialogues:
            file.append(dialogue)
    config = SelectConfig(where={"some": "characters > 1"}, review="characters > 2", active=None)
    table = score_table(dialogues)
    counts = write_selection(folder, decide(table, config))
    decisions = select(table, config)
    written = (folder / "select/decisions.jsonl").read_bytes().split(b"\n")[:-1]
    assert written == [decision.model_dump_json().encode() for decision in decisions]
    for name in outputs.SETS:
        rows = (folder / f"select/{name}.jsonl").read_bytes().split(b"\n")[:-1]
        chosen = [
            (decision, dialogue)
            for decision, dialogue in zip(decisions, dialogues, strict=True)
            if name in decision.sets
        ]
        assert len(rows) == counts.get(name, 0) == len(chosen)
        for row, (decision, dialogue) in zip(rows, chosen, strict=True):
            stored = orjson.loads(row)
            assert tuple(stored["reasons"]) == decision.reasons
            assert Dialogue.model_validate(stored["dialogue"]) == dialogue


def test_columns_of_a_decision_are_those_of_its_record() -> None:
    decided = outputs.decision_columns(decide(score_table([]), SelectConfig()))
    assert decided.columns == list(Decision.model_fields)


# ---- memory


def answer(request: Request) -> str:
    if request.schema is None:
        return "YES"
    reply: dict[str, Any] = {}
    for key in request.schema["properties"]:
        if key.startswith("turn_"):
            reply[key] = {"context_use": 5, "helpfulness": 5, "safety": 5}
        else:
            reply[key] = {"verdict": "excellent", "weakest_turn": None}.get(key, 5)
    return orjson.dumps(reply).decode()


@pytest.fixture
def peak(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[int], int]:
    """Return a function that gives the peak bytes of Python objects in a run of so many dialogues of 60 kB, all chunks small."""

    async def scripted(_: object) -> ScriptedEngine:
        return ScriptedEngine(answer, keep_requests=False, open_dialogues=2)

    monkeypatch.setattr(model_pool, "open_engine", scripted)
    for module in (ingesting, outputs):
        monkeypatch.setattr(module, "CHUNK", 10)
    monkeypatch.setattr(provenance, "CHUNK", 10)
    # Samples are kept in memory on purpose: for the estimate, and to detect the shape of a file.
    monkeypatch.setattr(pipeline, "Reservoir", lambda: Reservoir(2))
    monkeypatch.setattr(source, "SAMPLE", 2)

    def of(count: int) -> int:
        data = tmp_path / f"{count}.jsonl"
        with data.open("wb") as out:
            for n in range(count):
                row = chat(n, reply=f"{n}" + "x" * 60_000, group=f"g{n // 2}", reward=1 + n % 2)
                out.write(orjson.dumps(row) + b"\n")
        recipe = {
            "name": "memory",
            "source": {"path": str(data)},
            "role": "R.",
            "scenario": "S.",
            "models": {"judge": {"engine": "scripted", "replies": []}},
            "judge": {"text": "off"},
            "select": {"where": {"good_verdict": "verdict >= 'good'", "in_role": "adherent"}},
            "export": {"formats": ["jsonl"]},
        }
        tracemalloc.start()
        manifest = run_recipe(parse_recipe(recipe), out=tmp_path / f"run-{count}").manifest
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert (manifest.selected, manifest.natural_pairs) == (count, count // 2)
        return most

    return of


def test_a_runs_memory_does_not_grow_with_its_dialogues(peak: Callable[[int], int]) -> None:
    """Four times the dialogues are 4.3 MB more text; only their keys stay in memory."""
    peak(4)  # what is imported or compiled once
    assert peak(96) - peak(24) < 1_200_000
