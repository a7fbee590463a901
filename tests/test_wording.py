"""Numbers in sentences, and that messages use them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import pytest

from curate.wording import first_of, plural

ROOT = Path(__file__).resolve().parents[1]
NOUNS = "answers|calls|checks|dialogues|flaws|labels|messages|pairs|questions|requests|rows|turns"
BARE = re.compile(r"\{[^{}']+\} (?:" + NOUNS + r")\b")


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        (plural(1, "dialogue"), "1 dialogue"),
        (plural(0, "dialogue"), "0 dialogues"),
        (plural(2_004, "row"), "2,004 rows"),
        (plural(1, "person", "people"), "1 person"),
        (plural(3, "person", "people"), "3 people"),
    ],
)
def test_a_number_has_its_noun(said: str, expected: str) -> None:
    assert said == expected


def test_what_the_command_line_prints_has_no_bare_count() -> None:
    assert BARE.search('f"{count:,} rows"')
    found = [
        (path.name, said)
        for path in sorted((ROOT / "curate/cli").glob("*.py"))
        for said in BARE.findall(path.read_text(encoding="utf-8"))
    ]
    assert found == []


@pytest.mark.parametrize(
    ("items", "expected"),
    [
        ([], ""),
        (["a"], "a"),
        (["a", "b"], "a, b"),
        (["a", "b", "c"], "a, b and 1 more"),
        (range(1, 2005), "1, 2 and 2,002 more"),
    ],
)
def test_a_long_list_names_its_first_items_and_counts_the_rest(
    items: Sequence[object], expected: str
) -> None:
    assert first_of(items, 2) == expected
