"""Prompt files: read from the `prompts` folder of a room, split into sections, and filled in.

A file is one text, or sections (`## name`, then text) after an optional remark that no model is shown. `{name}` is
a placeholder. Each placeholder needs a value, so a misspelt name is an error and never part of a prompt. Values are
inserted as they are, braces included. jinja2 is imported when the first text is filled in.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache, lru_cache
from importlib import resources
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jinja2 import Environment, Template


@cache
def prompt_file(room: str, name: str) -> str:
    """Return the text of `prompts/<name>.md` of a room (`judging`, `adherence`, `pairs`, `engines`)."""
    path = resources.files(f"curate.{room}") / "prompts" / f"{name}.md"
    return path.read_text(encoding="utf-8")


@cache
def prompt_sections(room: str, name: str) -> Mapping[str, str]:
    """Return the sections of a prompt file by name, stripped."""
    parts = re.split(r"^## (.+)\n", prompt_file(room, name), flags=re.MULTILINE)[1:]
    return {name.strip(): body.strip() for name, body in zip(parts[::2], parts[1::2], strict=True)}


def fill(text: str, **values: object) -> str:
    """Return a prompt text with each `{name}` replaced by its value.

    Raises:
        jinja2.UndefinedError: a placeholder has no value.
    """
    return _filled(text, tuple((name, str(value)) for name, value in values.items()))


@lru_cache(maxsize=1024)
def _filled(text: str, values: tuple[tuple[str, str], ...]) -> str:
    """Cached, since the question about turn 3 is the same for every dialogue."""
    return _template(text).render(values)


@cache
def _template(text: str) -> Template:
    return _environment().from_string(text)


@cache
def _environment() -> Environment:
    from jinja2 import Environment, StrictUndefined

    return Environment(
        variable_start_string="{",
        variable_end_string="}",
        undefined=StrictUndefined,
        keep_trailing_newline=True,
    )
