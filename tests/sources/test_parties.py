"""Who is the user and who the assistant, from names and how often they speak."""

from __future__ import annotations

from typing import Any

import pytest

from curate.sources.parties import guess_roles, known_role

FIRST = "who speaks first is taken for the user"
NAMES = "roles are guessed from the speakers' names"


@pytest.mark.parametrize(
    ("name", "role"),
    [
        (" User ", "user"),
        ("developer", "system"),
        ("observation", "tool"),
        ("Customer", "user"),
        ("Patient", "user"),
        ("Q", "user"),
        ("gpt", "assistant"),
        ("Doctor", "assistant"),
        ("Ann", None),
        ("", None),
    ],
)
def test_the_role_that_a_name_says(name: str, role: str | None) -> None:
    assert known_role(name) == role


def skipped(*names: str) -> str:
    return f"left out, since their names say no role: {', '.join(names)}"


@pytest.mark.parametrize(
    ("dialogues", "roles", "doubts"),
    [
        ([["user", "bot"]], {}, []),
        ([["USER", None, "Assistant"]], {}, []),
        ([["seeker", "supporter"]], {"seeker": "user", "supporter": "assistant"}, [NAMES]),
        ([["0_Wizard", "1_Apprentice"]], {"0_Wizard": "assistant", "1_Apprentice": "user"}, [NAMES]),
        ([["user", "0_Wizard"]], {"0_Wizard": "assistant"}, [NAMES]),
        ([["agent_1", "agent_2"]], {"agent_1": "user", "agent_2": "assistant"}, [FIRST]),
        ([["Ann", "Bob"], ["Bob", "Ann"], ["Bob", "Ann"]], {"Bob": "user", "Ann": "assistant"}, [FIRST]),
        ([["Ann", "Bob", "Cy", "Ann", "Bob"]], {"Ann": "user", "Bob": "assistant", "Cy": "skip"}, [FIRST, skipped("Cy")]),
        ([["user", "Ann"]], {"Ann": "assistant"}, ["'Ann' is taken for the assistant"]),
        ([["Ann", "bot"]], {"Ann": "user"}, ["'Ann' is taken for the user"]),
        ([["user", "Ann", "Ann", "Bob"]], {"Ann": "assistant", "Bob": "skip"}, [skipped("Bob"), "'Ann' is taken for the assistant"]),
        ([["user", "bot", "Ann"]], {"Ann": "skip"}, [skipped("Ann")]),
        ([["user", "system"]], {"system": "assistant"}, ["'system' is taken for the assistant"]),
        ([["system", "user", "user", "user"]], {"system": "assistant"}, ["'system' is taken for the assistant"]),
        ([["system", "user", "user", "user", "user"]], {}, []),
        ([["system", "user", "bot"]], {}, []),
        ([list("bcdefghijklm")], dict.fromkeys("defghijklm", "skip") | {"b": "user", "c": "assistant"}, [FIRST, skipped(*"defghijklm")]),
        ([], {}, []),
    ],
)  # fmt: skip
def test_roles_and_the_doubts_about_them(
    dialogues: list[list[str | None]], roles: dict[str, str], doubts: list[str]
) -> None:
    expected: dict[str, Any] = {"roles": roles} if roles else {}
    assert guess_roles(dialogues) == (expected, doubts)


def test_more_than_twelve_names_are_names_of_people() -> None:
    assert guess_roles([list("bcdefghijklmn")]) == ({"in_order": ["user", "assistant"]}, [FIRST])
