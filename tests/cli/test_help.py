"""The help of every command, the examples in it and in the docs, and the completion of shells."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import typer.main

from curate.cli import COMMANDS, app, make_app
from curate.cli.console import OUT
from tests.cli.test_commands import ROOT
from tests.cli.test_ingest import Command, curate
from tests.processes import curate as process

__all__ = ["curate"]

GROUP = typer.main.get_command(app)
EXAMPLES = [text for commands in COMMANDS.values() for texts in commands.values() for text in texts]
DOCUMENTED = [
    (file.name, match)
    for file in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
    for block in re.findall(r"^```.*?^```", file.read_text(), re.MULTILINE | re.DOTALL)
    for match in re.findall(r"^(?:\$ )?curate (.*)$", block, re.MULTILINE)
    if "[--" not in match  # a synopsis
]


def parse(example: str) -> None:
    name, *rest = shlex.split(example, comments=True)
    command = GROUP.commands[name]  # type: ignore[attr-defined]
    if rest[:1] == ["new"]:
        command, rest = command.commands["new"], rest[1:]
    command.make_context(name, rest)


def test_every_command_has_an_example_that_parses() -> None:
    for example in EXAMPLES:
        parse(example)
    shown = {example.split()[0] for example in EXAMPLES}
    assert shown == set(GROUP.commands)  # type: ignore[attr-defined]


def test_a_command_that_is_built_alone_is_the_same() -> None:
    for name, command in GROUP.commands.items():  # type: ignore[attr-defined]
        [(found, alone)] = typer.main.get_command(make_app(name)).commands.items()  # type: ignore[attr-defined]
        assert (found, alone.help, alone.epilog) == (name, command.help, command.epilog)
        assert [p.opts for p in alone.params] == [p.opts for p in command.params]


def test_every_command_prints_json_where_it_is_asked_to() -> None:
    without = {
        name
        for name, command in GROUP.commands.items()  # type: ignore[attr-defined]
        if not any("--json" in param.opts for param in command.params)
    }
    assert without == {"schema"}  # which prints nothing else


def test_every_command_of_the_docs_parses() -> None:
    assert len(DOCUMENTED) > 50
    wrong = []
    for name, line in DOCUMENTED:
        try:
            parse(line)
        except Exception as error:
            wrong.append(f"{name}: curate {line}: {error!r}")
    assert wrong == []


def test_help_shows_the_examples_within_80_columns(
    curate: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    code, said = curate("run", "--help")
    assert code == 0
    assert "curate run my-recipe.yaml --retry unscored" in said
    assert max(map(len, said.splitlines())) <= 80
    assert "--install-completion" in curate("--help")[1]


def test_quiet_leaves_nothing_but_files(curate: Command, tmp_path: Path) -> None:
    (tmp_path / "chats.jsonl").write_text('{"messages": []}\n{"messages": [{"role": "user"}]}\n')
    code, said = curate("ingest", "chats.jsonl", "-q")
    assert code == 2
    assert said.startswith("error:")
    chat = '{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}'
    (tmp_path / "chats.jsonl").write_text(chat)
    assert curate("ingest", "chats.jsonl", "-q") == (0, "")
    assert (tmp_path / "runs/ingest-chats/dialogues.jsonl").is_file()
    assert curate("recipes")[1]
    assert not OUT.quiet


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("curate ca", ["calibrate"]),
        ("curate run --retry ", ["unscored"]),
        ("curate check x --for ", ["trl", "axolotl"]),
        ("curate init hub:allenai/W", ["allenai/WildChat-1M"]),
        ("curate init chats", ["_files"]),  # which the shell completes
        ("curate show runs/", ["_files"]),
    ],
)
def test_a_shell_completes(words: str, expected: list[str]) -> None:
    given = {
        "_CURATE_COMPLETE": "complete_zsh",
        "_TYPER_COMPLETE_ARGS": words,
        "PYTHONPATH": os.environ.get("PYTHONPATH", str(ROOT)),
    }
    done = process(env=given)
    assert all(word in done.stdout for word in expected), done


def test_the_module_is_the_command() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "curate", "--version"], capture_output=True, text=True, check=True
    )
    assert done.stdout.startswith("curate ")
