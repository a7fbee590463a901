"""Factuality over a run: counts as rows come, the report at the end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from curate.records.factuality import FactualityReport


@dataclass(slots=True)
class FactualityTally:
    """Counts rows of the stage."""

    dialogues: int = 0
    with_claims: int = 0
    total: float = 0.0
    labels: Counter[str] = field(default_factory=Counter)
    evidence: Counter[str] = field(default_factory=Counter)

    def add(self, record: Mapping[str, Any]) -> None:
        """Count a scored row, as it is stored."""
        self.dialogues += 1
        if record["precision"] is not None:
            self.with_claims += 1
            self.total += record["precision"]
        for turn in record["per_turn"]:
            self.labels.update(claim["label"] for claim in turn["claims"])
            self.evidence.update(
                claim["evidence"] for claim in turn["claims"] if claim["evidence"] is not None
            )

    def report(self) -> FactualityReport:
        """Return the counts of all rows added."""
        return FactualityReport(
            dialogues=self.dialogues,
            without_claims=self.dialogues - self.with_claims,
            mean_precision=self.total / self.with_claims if self.with_claims else None,
            labels=dict(self.labels.most_common()),
            evidence=dict(self.evidence.most_common()),
        )
