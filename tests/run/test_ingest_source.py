"""One source read alone: what is refused, and the recipe that an accepted mapping is written as."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from curate.errors import UsageError
from curate.recipe import load_recipe
from curate.run.ingest_source import ingest_source
from curate.sources.proposal import UnknownShapeError


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Four messages under names that are no roles, three times."""
    monkeypatch.chdir(tmp_path)
    said = ["I want a table for two.", "At what time, please?", "At eight.", "It is booked."]
    turns = [
        {"speaker": name, "utterance": text}
        for name, text in zip(["USER", "SYSTEM"] * 2, said, strict=True)
    ]
    rows = [{"dialogue_id": str(n), "turns": turns} for n in range(3)]
    Path("log.json").write_text(json.dumps(rows))
    return Path("log.json")


def test_an_accepted_mapping_is_written_as_a_recipe_with_what_to_look_at(log: Path) -> None:
    with pytest.raises(UnknownShapeError) as unknown:
        ingest_source(str(log))
    proposal = unknown.value.proposal
    assert proposal is not None
    Path("mine.yaml").write_text("role: A waiter.\nsource: {path: log.json, limit: 2}\n")
    report = ingest_source(recipe=Path("mine.yaml"), accept=True)
    assert (report.report.tally.rows_in, report.folder) == (2, Path("runs/ingest-log"))
    assert report.accepted == Path("log.yaml")
    lines = report.accepted.read_text().split("\n")
    head = len(proposal.doubts) + 1
    assert proposal.doubts
    assert lines[:head] == [
        f"# 3 of 3 sampled rows can be read so: {proposal.description}.",
        *(f"# Look at this: {doubt}." for doubt in proposal.doubts),
    ]
    assert lines[head : head + 5] == [
        "extends: mine.yaml",
        "source:",
        "  path: log.json",
        "  limit: 2",
        "  mapping:",
    ]
    assert lines[head + 5 :] == [*(f"    {line}" for line in proposal.yaml.splitlines()), ""]
    (source,) = load_recipe(Path("log.yaml")).source
    assert source.mapping is not None
    with pytest.raises(UsageError, match=r"exists already"):
        ingest_source(str(log), accept=True)


def test_what_cannot_be_ingested_says_what_would_do(log: Path, tmp_path: Path) -> None:
    def refused(**asked: Any) -> str:
        with pytest.raises(UsageError) as raised:
            ingest_source(**asked)
        return str(raised.value)

    assert refused() == (
        "there is nothing to ingest\n"
        "  expected: a file, folder, glob or Hub dataset id, or --recipe with a source\n"
        "  do: curate ingest chats.jsonl"
    )
    Path("two.yaml").write_text("source: [{path: log.json}, {path: log.json}]\n")
    assert refused(recipe=Path("two.yaml")) == (
        "the recipe has several sources\n  got: 2\n  expected: one, for ingest"
    )
    log.write_text(log.read_text().replace("SYSTEM", "ASSISTANT"))
    (tmp_path / "run").mkdir()
    (tmp_path / "run/manifest.json").write_text("{}")
    assert refused(path=str(log), out=Path("run")) == (
        "`curate ingest` does not overwrite a run folder\n"
        "  got: run\n"
        "  expected: another folder\n"
        "  do: name one with --out"
    )
