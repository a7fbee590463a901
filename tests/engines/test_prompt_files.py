"""Prompt files: every name is filled in or refused, and every shipped text can be filled in."""

from __future__ import annotations

import re

import jinja2
import pytest

from curate.engines.prompt_files import fill, prompt_file, prompt_sections


def test_values_go_in_as_they_are_and_a_last_newline_stays() -> None:
    assert fill("{a} {b}: #\n", a="{b} {{ c }} {% x %}", b=2) == "{b} {{ c }} {% x %} 2: #\n"


def test_a_name_without_a_value_is_an_error_and_never_stands_in_a_prompt() -> None:
    with pytest.raises(jinja2.UndefinedError, match="'dimensoin' is undefined"):
        fill("Score the {dimensoin}.", dimension="safety")


@pytest.mark.parametrize("room", ["judging", "pairs"])
def test_every_section_is_its_text_with_its_names_replaced(room: str) -> None:
    for text in prompt_sections(room, "questions").values():
        values = {name: f"<{name}>" for name in re.findall(r"{(\w+)}", text)}
        assert fill(text, **values) == re.sub(r"{(\w+)}", r"<\1>", text)


def test_what_stands_before_the_first_section_is_no_part_of_any() -> None:
    remark = prompt_file("judging", "questions").partition("\n## ")[0].strip()
    assert remark
    assert not any(remark in text for text in prompt_sections("judging", "questions").values())
