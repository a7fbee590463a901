from __future__ import annotations

import pytest

from curate.errors import first_line


@pytest.mark.parametrize(
    ("message", "line"),
    [
        ("no such file", "OSError: no such file"),
        ("\n  Pages follow:\n\n1. …", "OSError: Pages follow:"),
        ("", "OSError"),
        (" \n ", "OSError"),
    ],
)
def test_a_librarys_error_is_quoted_in_one_line(message: str, line: str) -> None:
    assert first_line(OSError(message)) == line
