"""Text from elsewhere as it is shown."""

from __future__ import annotations

import io

import pytest
from rich.table import Table
from rich.text import Text

from curate.cli.console import _Console
from curate.untrusted import spreadsheet_cell, visible

HOSTILE = "\x1b[2Ja\u202egpj.exe\x9b1m\u2066b\u2028c\ufeff\x07\x7f\U000e0041"


@pytest.mark.parametrize(
    "text", ["plain [x] <b>", "a\n\tb", "שלום עולם", "👩‍👩‍👧 é ﷽", "می‌خواهم", "a\u200fb", ""]
)
def test_what_people_write_stays(text: str) -> None:
    assert visible(text) == text


def test_what_steers_is_seen() -> None:
    assert visible("\x1b[2J\u202ex") == "␛[2J<U+202E>x"
    assert visible(HOSTILE).replace("␛", "").replace("␇", "").replace("␡", "").isprintable()
    assert visible(visible(HOSTILE)) == visible(HOSTILE)


@pytest.mark.parametrize("is_terminal", [False, True])
def test_nothing_that_is_printed_steers_the_terminal(is_terminal: bool) -> None:
    file = io.StringIO()
    console = _Console(file=file, force_terminal=is_terminal, color_system=None, width=300)
    table = Table(HOSTILE, title=HOSTILE)
    table.add_row(Text(HOSTILE))
    console.print(HOSTILE, Text(HOSTILE), table)
    said = file.getvalue()
    assert said.count("<U+202E>") == 5
    assert not {"\x1b", "\u202e", "\x9b", "\u2066", "\x07"} & set(
        said.replace("\x1b[3m", "").replace("\x1b[1m", "").replace("\x1b[0m", "")
    )


@pytest.mark.parametrize("text", ["=1+1", "+1", "-cmd", "@SUM(A1)", "\t=1", "\r=1", " =1", "\n=1"])
def test_a_cell_that_a_spreadsheet_would_run_is_text(text: str) -> None:
    assert spreadsheet_cell(text) == f"'{text}"


@pytest.mark.parametrize("value", ["a=b", "[user] =1", "", None, -1, 2.5, "1-2"])
def test_other_cells_stay(value: object) -> None:
    assert spreadsheet_cell(value) == value
