"""What README and the docs show can be typed as it stands: every `curate` and `make` line parses."""

from __future__ import annotations

import re
import runpy
import shlex
from collections.abc import Iterator
from typing import Any

import pytest
import typer
from typer.main import get_command

import curate
from curate.cli import app
from tests.docs.blocks import FENCE, PAGES, ROOT, commands, name_of

COMMAND: Any = get_command(app)
NO_COMMAND = (AssertionError, *typer.BadParameter.__mro__[1:2])
SPAN = re.compile(r"`(curate [^`\n]+)`")


def fenced() -> Iterator[tuple[str, str]]:
    """Page and line of each `curate` and `make` command in a fenced block of a shell."""
    for page in PAGES:
        for line in commands(page):
            if line.startswith(("curate ", "make ")):
                yield name_of(page), line


def named() -> Iterator[tuple[str, str]]:
    """Page and text of each command that a sentence names, as a rule without its arguments."""
    for page in PAGES:
        for text in SPAN.findall(FENCE.sub("", page.read_text(encoding="utf-8"))):
            yield name_of(page), text


def command_of(words: list[str]) -> tuple[Any, list[str]]:
    """The command that words name, and the words after its name.

    Raises:
        AssertionError: there is none.
    """
    command, words = COMMAND, words[1:]
    while hasattr(command, "commands") and words and not words[0].startswith("-"):
        assert words[0] in command.commands, words
        command, words = command.commands[words[0]], words[1:]
    return command, words


def parse(line: str) -> None:
    """Hold a line against the command line's own parser, or make's targets.

    Raises:
        One of `NO_COMMAND`: it does not parse.
    """
    words = shlex.split(line, comments=True)
    for end in ("|", "||", "&&"):
        words = words[: words.index(end)] if end in words else words
    if words[0] == "make":
        targets = re.findall(r"^([a-z][\w-]*):", (ROOT / "Makefile").read_text(), re.MULTILINE)
        assert {word for word in words[1:] if "=" not in word} <= set(targets), line
        return
    command, words = command_of(words)
    command.make_context(command.name, words)


@pytest.mark.parametrize(("page", "line"), sorted(set(fenced())))
def test_a_command_that_is_shown_parses(page: str, line: str) -> None:
    parse(line)


@pytest.mark.parametrize(("page", "text"), sorted(set(named())))
def test_a_command_that_a_sentence_names_exists_with_its_options(page: str, text: str) -> None:
    words = shlex.split(text)
    if words[1] != "COMMAND":
        command, words = command_of(words)
        options = {"--help", *(name for held in command.params for name in held.opts)}
        assert {word for word in words if word.startswith("--")} <= options


def test_there_are_commands_to_hold_against_the_parser() -> None:
    assert len(set(fenced())) > 80
    assert len(set(named())) > 50


@pytest.mark.parametrize(
    "line", ["curate runn x.yaml", "curate run", "curate run x.yaml --nope", "make nothing"]
)
def test_one_that_does_not_is_noticed(line: str) -> None:
    with pytest.raises(NO_COMMAND):
        parse(line)


def test_every_command_stands_on_the_page_of_commands() -> None:
    text = (ROOT / "docs/commands.md").read_text(encoding="utf-8")
    assert [name for name in COMMAND.commands if f"`curate {name}" not in text] == []


def test_every_page_is_in_the_navigation_of_the_site() -> None:
    nav = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:")[2]
    pages = [path.relative_to(ROOT / "docs").as_posix() for path in ROOT.glob("docs/**/*.md")]
    assert [page for page in pages if f" {page}\n" not in nav] == []


def test_the_reference_has_every_public_name() -> None:
    pages = runpy.run_path(str(ROOT / "scripts/docs_pages.py"))["pages"]()
    places = re.findall(r"^::: ([\w.]+)$", pages["reference/python.md"], re.MULTILINE)
    assert sorted(place.rpartition(".")[2] for place in places) == sorted(curate.__all__)
    for record in ("judgment", "manifest", "certificate"):
        assert f"## {record}" in pages["reference/records.md"]
    assert "| `source` |" in pages["reference/recipe.md"]
