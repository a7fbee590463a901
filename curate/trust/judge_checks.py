"""Checks of a run's rubric judge against itself: what its own scores say about how far to trust it.

Records stream through; sums are all that is kept of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import comb
from typing import Any

from curate.records import JudgeChecks, Rate, WindowSeams
from curate.wording import plural


@dataclass(slots=True)
class _Count:
    count: int = 0
    of: int = 0

    def add(self, happened: bool | None) -> None:
        self.of += happened is not None
        self.count += happened is True

    @property
    def rate(self) -> Rate:
        return Rate(count=self.count, of=self.of)


@dataclass(slots=True)
class _SeamCounts:
    dialogues: int = 0
    turns: int = 0
    comparisons: int = 0
    total: float = 0.0


@dataclass(slots=True)
class JudgeTally:
    """Counts the rubric judge's records as they lie in a run folder; those that are unscored say nothing here.

    Attributes:
        judged: records with scores.
    """

    judged: int = 0
    _verdict: _Count = field(default_factory=_Count)
    _weakest: _Count = field(default_factory=_Count)
    _seams: dict[int, _SeamCounts] = field(default_factory=dict)

    def add(self, record: Mapping[str, Any]) -> None:
        """Count one record, `Judgment` or `Unscored` as a mapping."""
        if record["kind"] != "judgment":
            return
        self.judged += 1
        self._verdict.add(record["verdict_mismatch"])
        self._weakest.add(record["weakest_mismatch"])
        if record["overlap_disagreement"] is not None:
            self._add_seams(record)

    def _add_seams(self, record: Mapping[str, Any]) -> None:
        numbers = [turn["turn"] for turn in record["per_turn"]]
        spans = [(window["first_turn"], window["last_turn"]) for window in record["windows"]]
        size = max(sum(first <= turn <= last for turn in numbers) for first, last in spans)
        times = [sum(first <= turn <= last for first, last in spans) for turn in numbers]
        seams = self._seams.setdefault(size, _SeamCounts())
        # A dialogue's figure is the mean over every two windows that scored a turn.
        comparisons = sum(comb(number, 2) for number in times)
        seams.dialogues += 1
        seams.turns += sum(number > 1 for number in times)
        seams.comparisons += comparisons
        seams.total += comparisons * record["overlap_disagreement"]

    def report(self) -> JudgeChecks | None:
        """Return the counts; None where nothing was scored."""
        if not self.judged:
            return None
        return JudgeChecks(
            verdict_mismatch=self._verdict.rate,
            weakest_mismatch=self._weakest.rate,
            window_seams=tuple(
                WindowSeams(
                    window_turns=size,
                    dialogues=seams.dialogues,
                    turns=seams.turns,
                    difference=seams.total / seams.comparisons,
                )
                for size, seams in sorted(self._seams.items())
                if seams.comparisons
            ),
        )


def checks_in_words(checks: JudgeChecks) -> list[str]:
    """Return the counts in words, a line each, for whoever reads a summary or a card."""
    lines = []
    if checks.verdict_mismatch.of:
        lines.append(
            f"the judge's verdict is another than its scores give: {checks.verdict_mismatch.described} dialogues"
        )
    if checks.weakest_mismatch.of:
        lines.append(
            f"the judge's weakest turn is another than its scores give: {checks.weakest_mismatch.described} dialogues"
        )
    lines += [
        f"windows of {plural(seams.window_turns, 'turn')}: the {plural(seams.turns, 'turn')} scored twice, of {seams.dialogues:,} "
        f"dialogues, differ by {seams.difference:.2f} on average"
        for seams in checks.window_seams
    ]
    return lines
