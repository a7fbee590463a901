"""`curate ingest` on data of no known shape: proposed, accepted, gone on from."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from curate.cli import main

Command = Callable[..., tuple[int, str]]


@pytest.fixture
def curate(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> Command:
    """`curate(arguments…)` gives the exit code and all that was said; the working directory is the test's."""
    monkeypatch.chdir(tmp_path)

    def call(*arguments: object) -> tuple[int, str]:
        monkeypatch.setattr(sys, "argv", ["curate", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            main()
        said = capsys.readouterr()
        return int(ended.value.code or 0), said.out + said.err

    return call


@pytest.fixture
def log(tmp_path: Path) -> Path:
    said = ["I want a table for two.", "At what time, please?", "At eight.", "It is booked."]
    turns = [
        {"speaker": name, "utterance": text}
        for name, text in zip(["USER", "SYSTEM"] * 2, said, strict=True)
    ]
    path = tmp_path / "log.json"
    path.write_text(json.dumps([{"dialogue_id": str(n), "turns": turns} for n in range(3)]))
    return path


def test_a_doubtful_shape_is_shown_with_an_example_and_not_read(
    curate: Command, log: Path, tmp_path: Path
) -> None:
    code, said = curate("ingest", log.name)
    assert code == 2
    for words in (
        "nothing was read",
        "3 of 3",
        "roles: {SYSTEM: assistant}",
        "At eight.",
        "check this",
        "--accept",
    ):
        assert words in said
    assert not (tmp_path / "runs").exists()
    code, said = curate("ingest", log.name, "--json")
    proposal = json.loads(said)["proposal"]
    assert (code, proposal["rows_read"], proposal["mapping"]["each"]) == (2, 3, "turns[*]")


def test_rows_that_the_proposal_does_not_read_are_counted(curate: Command, log: Path) -> None:
    rows = json.loads(log.read_text())
    rows[2]["turns"][1]["utterance"] = 7
    log.write_text(json.dumps(rows))
    said = curate("ingest", log.name)[1]
    assert "2 of 3" in said
    assert "not read by this mapping: bad_type 1" in said


def test_what_is_accepted_is_read_and_written_as_a_recipe(
    curate: Command, log: Path, tmp_path: Path
) -> None:
    code, said = curate("ingest", log.name, "--accept")
    assert code == 0
    assert "log.yaml" in said
    dialogues = (tmp_path / "runs/ingest-log/dialogues.jsonl").read_text()
    code, said = curate("ingest", "--recipe", "log.yaml", "--json")
    assert (code, json.loads(said)["dialogues"]) == (0, 3)
    assert (tmp_path / "runs/ingest-log/dialogues.jsonl").read_text() == dialogues
    code, said = curate("ingest", log.name, "--accept")
    assert code == 2
    assert "exists already" in said


def test_what_is_accepted_extends_the_recipe_it_was_given(
    curate: Command, log: Path, tmp_path: Path
) -> None:
    (tmp_path / "mine.yaml").write_text(
        f"role: A waiter.\nsource: {{path: {log.name}, limit: 2}}\n"
    )
    assert curate("ingest", "--recipe", "mine.yaml", "--accept")[0] == 0
    code, said = curate("ingest", "--recipe", "log.yaml", "--json")
    report = json.loads(said)
    assert (code, report["rows_in"], report["roles"]) == (0, 2, {"recipe": 2})


def test_a_certain_shape_is_read_and_said(curate: Command, log: Path) -> None:
    log.write_text(log.read_text().replace("SYSTEM", "ASSISTANT"))
    code, said = curate("ingest", log.name)
    assert code == 0
    assert "found by structure: speakers under 'speaker'" in " ".join(said.split())
    assert json.loads(curate("ingest", log.name, "--json")[1])["mapping"]["each"] == "turns[*]"


def test_what_is_left_out_is_said(curate: Command, log: Path, tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(
        "source:\n  path: log.json\n  where: {dialogue_id: {none_of: ['0']}}\n  mapping:\n    each: turns[*]\n"
        "    messages: [{role_from: speaker, text: utterance}]\n    roles: {SYSTEM: assistant, USER: user}\n"
        "    where: {utterance: {none_of: [At eight.]}}\n"
    )
    code, said = curate("ingest", "--recipe", "mine.yaml")
    assert code == 0
    assert "where.dialogue_id 1" in said
    assert "items by where.utterance 2" in said


def test_nothing_to_ingest_and_nothing_found(curate: Command, tmp_path: Path) -> None:
    code, said = curate("ingest")
    assert code == 2
    assert "--recipe" in said
    (tmp_path / "x.jsonl").write_text('{"a": 1}\n')
    code, said = curate("ingest", "x.jsonl", "--accept")
    assert code == 2
    assert "source.mapping" in said


def test_a_run_says_what_its_source_leaves_out(curate: Command, log: Path, tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(
        "judge: false\nadherence: false\nselect: {where: {}}\n"
        "source:\n  path: log.json\n  where: {dialogue_id: {none_of: ['0']}}\n  mapping:\n    each: turns[*]\n"
        "    messages: [{role_from: speaker, text: utterance}]\n    roles: {SYSTEM: assistant, USER: user}\n"
        "    where: {utterance: {none_of: [At eight.]}}\n"
    )
    code, said = curate("run", "mine.yaml")
    assert code == 0
    flat = " ".join(said.split())
    assert "rows left out 1 where.dialogue_id 1" in flat
    assert "parts left out 2 items by where.utterance 2" in flat
