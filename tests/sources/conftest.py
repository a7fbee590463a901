"""Writes rows to a file of any kind, opens it as a source, reads it and proves its account."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from curate.dialogue import Dialogue
from curate.records import QuarantinedRow
from curate.sources import RowCounts, Source, SourceConfig, Unit, open_source
from curate.sources.config import RoleFrom


@dataclass
class Loaded:
    source: Source
    units: list[Unit]
    tally: RowCounts

    @property
    def dialogues(self) -> list[Dialogue]:
        return [dialogue for unit in self.units for dialogue in unit.dialogues]

    @property
    def quarantined(self) -> list[QuarantinedRow]:
        return [row for unit in self.units for row in unit.quarantined]

    @property
    def shape(self) -> str:
        return self.source.detection.shape


def load(
    config: SourceConfig,
    role: str | None = None,
    scenario: str | None = None,
    role_from: RoleFrom = "data",
) -> Loaded:
    source = open_source(config)
    units = list(source.read(role, scenario, role_from))
    tally = RowCounts()
    for unit in units:
        tally.add(unit)
    assert tally.rows_in == tally.rows_used + tally.quarantined
    assert sum(tally.reasons.values()) == tally.quarantined
    return Loaded(source, units, tally)


@pytest.fixture
def rows(tmp_path: Path) -> Callable[..., Loaded]:
    """Rows as JSON lines, opened with no shape given unless the test says one."""

    def run(
        *given: Any,
        role: str | None = None,
        scenario: str | None = None,
        role_from: RoleFrom = "data",
        **config: Any,
    ) -> Loaded:
        path = tmp_path / "data.jsonl"
        path.write_text("\n".join(json.dumps(row) for row in given) + "\n")
        return load(SourceConfig(path=str(path), **config), role, scenario, role_from)

    return run


def said(dialogue: Dialogue) -> list[tuple[str, str]]:
    return [(message.role, message.content) for message in dialogue.messages]
