"""The warnings and counts that a run writes into its manifest."""

from __future__ import annotations

import pytest

from curate.recipe import parse_recipe
from curate.run.runlog import RunLog


@pytest.mark.parametrize(
    ("damaged", "warnings"),
    [
        (0, ()),
        (1, ("Damaged by the disk or a copy: 1 kept reply, asked for again where needed. All others were used.",)),
        (2, ("Damaged by the disk or a copy: 2 kept replies, asked for again where needed. All others were used.",)),
    ],
)  # fmt: skip
def test_damaged_replies_are_counted_in_a_warning(damaged: int, warnings: tuple[str, ...]) -> None:
    log = RunLog(parse_recipe({"name": "r", "source": {"path": "x"}}))
    log.accounting.damaged = damaged
    log.manifest("running")
    assert tuple(log.manifest("done").warnings) == warnings  # once, however often it is written
