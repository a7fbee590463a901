"""`curate init`: a recipe for data of one's own, with a judge that answers on this machine; ready recipes; the example."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from curate.engines import local_servers
from curate.recipe import Recipe, load_recipe
from curate.sources.hub_recipes import hub_recipes
from tests.cli.test_commands import ROOT
from tests.cli.test_ingest import Command, curate, log
from tests.live import live_server
from tests.run.test_pipeline import chat, write_rows
from tests.servers import CountingServer

__all__ = ["curate", "log"]


@pytest.fixture(autouse=True)
def nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """No server of the machine that the tests run on is found."""
    monkeypatch.setattr(local_servers, "PORTS", {9: "nothing"})


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[CountingServer]:
    """A model server on a usual port."""
    with live_server(models=("text-embedding-small", "judge", "other")) as running:
        monkeypatch.setattr(local_servers, "PORTS", {port(running): "vLLM"})
        yield running


@pytest.fixture
def chats(tmp_path: Path) -> Path:
    return write_rows(tmp_path / "chats.jsonl", [chat(n, turns=2) for n in range(12)])


def port(server: CountingServer) -> int:
    return int(server.base_url.split(":")[2].split("/")[0])


def written(path: Path) -> Recipe:
    """The recipe, which a run would take as it is."""
    return load_recipe(path).checked()


def test_a_recipe_names_the_judge_that_answers_and_runs(
    curate: Command, chats: Path, server: CountingServer, tmp_path: Path
) -> None:
    code, said = curate("init", chats.name)
    assert code == 0, said
    recipe = written(tmp_path / "chats.yaml")
    judge: Any = recipe.models.lead
    assert (judge.engine, judge.model) == ("openai", "judge")
    text = (tmp_path / "chats.yaml").read_text()
    assert "there, too: other" in text
    assert "text-embedding-small" not in text
    assert "On this judge: tokens." in text
    assert re.search(r"# Expected for 12 dialogues: [\d,]+ requests", text)
    assert "next: curate run chats.yaml" in said
    assert curate("run", "chats.yaml", "--limit", "3")[0] == 0
    code, said = curate("init", chats.name)
    assert code == 2
    assert "--out" in said


def test_a_recipe_without_a_judge_says_who_was_looked_for(
    curate: Command, chats: Path, tmp_path: Path
) -> None:
    code, said = curate("init", chats.name, "--role", "A clerk: honest # and kind.")
    assert code == 0, said
    assert "nothing 9" in said
    recipe = load_recipe(tmp_path / "chats.yaml")
    assert recipe.role == "A clerk: honest # and kind."
    assert recipe.models.judge is None
    code, said = curate("run", "chats.yaml", "--dry-run")
    assert code == 2
    assert "names no judge" in said


def test_what_the_data_brings_is_not_drafted(curate: Command, tmp_path: Path) -> None:
    rows = [{**chat(n), "role_definition": "A clerk.", "scenario": "A shop."} for n in range(3)] + [
        {**chat(9), "scenario": "A shop."}
    ]
    write_rows(tmp_path / "chats.jsonl", rows)
    assert curate("init", "chats.jsonl")[0] == 0
    recipe = load_recipe(tmp_path / "chats.yaml")
    assert recipe.scenario is None
    assert recipe.role is not None
    assert (
        "3 of 4 dialogues bring theirs; a draft for the others"
        in (tmp_path / "chats.yaml").read_text()
    )


def test_doubtful_data_is_taken_only_when_it_is_accepted(
    curate: Command, log: Path, tmp_path: Path
) -> None:
    code, said = curate("init", log.name)
    assert code == 2
    assert "roles: {SYSTEM: assistant}" in said
    assert "the same command with --accept" in said
    assert not (tmp_path / "log.yaml").exists()
    code, said = curate("init", log.name, "--accept", "--out", "taken.yaml")
    assert code == 0
    assert "roles: {SYSTEM: assistant}" in said
    assert "nothing was read" not in said
    assert "the same command with --accept" not in said
    code, said = curate("init", log.name, "--accept", "--json")
    assert code == 0
    assert json.JSONDecoder().raw_decode(said)[0]["doubts"] == [
        "'SYSTEM' is taken for the assistant"
    ]
    assert "Look at this: 'SYSTEM' is taken" in (tmp_path / "log.yaml").read_text()
    assert curate("ingest", "--recipe", "log.yaml")[0] == 0


def test_pairs_of_the_data_are_verified(curate: Command, tmp_path: Path) -> None:
    rows = [{"prompt": f"Why {n}?", "chosen": "Because.", "rejected": "No."} for n in range(4)]
    write_rows(tmp_path / "pairs.jsonl", rows)
    assert curate("init", "pairs.jsonl")[0] == 0
    recipe = load_recipe(tmp_path / "pairs.yaml")
    assert recipe.judge is False
    assert recipe.natural.verification is not None


def test_a_recipe_elsewhere_finds_its_source(curate: Command, chats: Path, tmp_path: Path) -> None:
    (tmp_path / "below").mkdir()
    assert curate("init", chats.name, "--out", "below/mine.yaml")[0] == 0
    assert load_recipe(tmp_path / "below/mine.yaml").source[0].path == str(chats)


def test_a_server_is_named_by_options(
    curate: Command, chats: Path, server: CountingServer, tmp_path: Path
) -> None:
    url = f"http://localhost:{port(server)}/v1"
    for options, word in [
        (["--server", url, "--model", "nobody"], "judge, other"),
        (["--server", "http://localhost:9/v1"], "check the address"),
        (["--server", "ftp://x"], "not the address of a server"),
        (["--server", url.removesuffix("/v1")], "check the address"),
    ]:
        code, said = curate("init", chats.name, *options)
        assert code == 2, said
        assert word in said
        assert not (tmp_path / "chats.yaml").exists()
    assert curate("init", chats.name, "--model", "other")[0] == 0
    judge: Any = written(tmp_path / "chats.yaml").models.lead
    assert (judge.model, judge.base_url) == ("other", url)


def test_a_judge_that_cannot_be_used_is_written_and_warned_of(
    curate: Command, chats: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("JUDGE_API_KEY", raising=False)
    with live_server(key="secret") as server:
        url = f"http://localhost:{port(server)}/v1"
        code, said = curate("init", chats.name, "--server", url)
        assert code == 2
        assert "JUDGE_API_KEY" in said
        code, said = curate("init", chats.name, "--server", url, "--model", "judge")
    assert code == 0, said
    assert "JUDGE_API_KEY is not set" in " ".join(said.split())
    assert load_recipe(tmp_path / "chats.yaml").models.lead is not None


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        ([], "curate init --example"),
        (["none.jsonl"], "no file or folder"),
        (["--example", "chats.jsonl"], "no SOURCE with it"),
        (["hub:allenai/WildChat"], "did you mean hub:allenai/WildChat-1M"),
    ],
)
def test_what_cannot_be_started_from_is_refused(
    curate: Command, chats: Path, arguments: list[str], word: str
) -> None:
    code, said = curate("init", *arguments)
    assert code == 2
    assert word in said


def test_the_example_is_a_recipe_with_its_data(curate: Command, tmp_path: Path) -> None:
    code, said = curate("init", "--example")
    assert code == 0
    assert "curate run curate-example/quickstart.yaml" in said
    recipe = load_recipe(tmp_path / "curate-example/quickstart.yaml")
    assert all(Path(str(source.path)).is_file() for source in recipe.source)
    assert curate("init", "--example")[0] == 2
    code, said = curate("init", "--example", "--out", "other", "--json")
    assert (code, json.loads(said)) == (0, {"recipe": "other/quickstart.yaml"})


def test_questions_are_asked_on_a_terminal(
    chats: Path, server: CountingServer, tmp_path: Path
) -> None:
    command = (
        "import sys; from curate.engines import local_servers; from curate.cli import main; "
        f"local_servers.PORTS = {{{port(server)}: 'vLLM'}}; "
        "sys.argv = ['curate', 'init']; main()"
    )
    answers = [
        ("Where are your chats", "chats.jsonl"),
        ("Which one is the judge?", "2"),
        ("What conversation is this?", "A [shop]."),
        ("What is the assistant?", ""),
    ]
    status, said = on_terminal([sys.executable, "-c", command], answers, tmp_path)
    assert status == 0, said
    recipe = written(tmp_path / "chats.yaml")
    assert recipe.models.lead is not None
    assert recipe.models.lead.model == "other"
    assert recipe.scenario == "A [shop]."
    assert recipe.role is not None
    assert recipe.role.startswith("A helpful")


def on_terminal(
    command: list[str], answers: list[tuple[str, str]], folder: Path
) -> tuple[int, str]:
    """Run a command on a terminal of 80 columns, and type each answer when its question has appeared."""
    inner, outer = pty.openpty()
    given = os.environ | {"COLUMNS": "80", "TERM": "xterm", "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(
        command, stdin=outer, stdout=outer, stderr=outer, cwd=folder, env=given, close_fds=True
    )
    os.close(outer)
    said, waiting, until = "", list(answers), time.monotonic() + 120
    while time.monotonic() < until:
        if not select.select([inner], [], [], 0.2)[0]:
            continue
        try:
            piece = os.read(inner, 4096)
        except OSError:  # the terminal is closed: the command has ended
            break
        said += piece.decode(errors="replace")
        if waiting and waiting[0][0] in said:
            os.write(inner, f"{waiting.pop(0)[1]}\n".encode())
    os.close(inner)
    return process.wait(10), said


def test_the_ready_recipes_are_listed(curate: Command) -> None:
    code, said = curate("recipes")
    assert code == 0
    assert "allenai/WildChat-1M (odc-by)" in said
    listed = json.loads(curate("recipes", "--json")[1])
    assert len(listed) >= 14
    assert all(recipe["license"] and recipe["about"] for recipe in listed)


def test_a_ready_recipe_is_copied_and_not_over_another_file(
    curate: Command, tmp_path: Path
) -> None:
    code, said = curate("init", "hub:allenai/WildChat-1M")
    assert code == 0
    assert "wildchat.yaml" in said
    assert load_recipe(tmp_path / "wildchat.yaml").source[0].path == "allenai/WildChat-1M"
    code, said = curate("init", "hub:allenai/WildChat-1M")
    assert code == 2
    assert "--out" in said
    assert curate("init", "hub:wildchat", "--out", "mine.yaml")[0] == 0
    code, said = curate("run", "mine.yaml", "--dry-run")
    assert code == 2
    assert "names no judge" in said


def test_every_ready_recipe_takes_the_judge_that_answers(
    curate: Command, server: CountingServer, tmp_path: Path
) -> None:
    for recipe in hub_recipes():
        assert curate("init", f"hub:{recipe.name}")[0] == 0
        assert written(tmp_path / recipe.path.name).models.lead is not None
