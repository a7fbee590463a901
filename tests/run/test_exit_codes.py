"""What a run exits with, which scripts go by."""

from __future__ import annotations

import pytest

from curate.run.exit_codes import of_run


@pytest.mark.parametrize(
    ("status", "code"),
    [("done", 0), ("unscored", 3), ("stopped", 1), ("failed", 1), ("running", 1)],
)
def test_the_code_follows_the_status_in_the_manifest(status: str, code: int) -> None:
    assert of_run(status) == code
