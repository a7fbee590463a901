"""Role adherence over all dialogues of a run: how it changes with the turns, and which answers and reasons are missing.

Sums by position are all that is kept, so a run of any size is counted in one pass over its records.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from curate.records import AdherenceDecay, AdherencePosition
from curate.statistics import Z_95, student_t, wilson

POSITIONS = 100
"""Positions that are told of; behind them there is as a rule next to nothing."""

StoredTurn = Mapping[str, Any]


@dataclass(slots=True)
class _Position:
    scored: int = 0
    total: float = 0.0
    at_risk: int = 0
    violations: int = 0


@dataclass(slots=True)
class AdherenceTally:
    """Counts adherence records as they lie in a run folder.

    Attributes:
        dialogues: with scores of turns.
        imputed: answers that are 0.5 for want of evidence.
        answers: all answers with a score.
        reason_faults: reasons that are missing or quote no words of the role, by their code.
    """

    dialogues: int = 0
    imputed: int = 0
    answers: int = 0
    reason_faults: dict[str, int] = field(default_factory=dict)
    _positions: list[_Position] = field(default_factory=list)
    _slopes: list[float] = field(default_factory=lambda: [0.0] * 6)

    def add(self, record: Mapping[str, Any]) -> None:
        """Count one record, `AdherenceScore` as a mapping."""
        turns: Sequence[StoredTurn] = record["per_turn"]
        whole = record.get("conversation")
        for answer in turns if whole is None else (whole,):
            self.answers += whole is not None or answer["score"] is not None
            self.imputed += answer["imputed"]
            fault = (answer["reason"] or {}).get("fault")
            if fault is not None:
                self.reason_faults[fault] = self.reason_faults.get(fault, 0) + 1
        if turns:
            self.dialogues += 1
            self._add_positions(turns)
            self._add_slope(turns)

    def _add_positions(self, turns: Sequence[StoredTurn]) -> None:
        """Add up turns by position; a turn that is neither adherent nor not ends what is known of a dialogue."""
        while len(self._positions) < len(turns):
            self._positions.append(_Position())
        in_role = True
        for position, turn in zip(self._positions, turns, strict=False):
            if turn["score"] is not None and not turn["imputed"]:
                position.scored += 1
                position.total += turn["score"]
            in_role = in_role and turn["adherent"] is not None
            if in_role:
                position.at_risk += 1
                position.violations += not turn["adherent"]
                in_role = turn["adherent"]

    def _add_slope(self, turns: Sequence[StoredTurn]) -> None:
        points = [
            (place, turn["score"])
            for place, turn in enumerate(turns)
            if turn["score"] is not None and not turn["imputed"]
        ]
        if len(points) < 2:
            return
        centre = sum(place for place, _ in points) / len(points)
        spread = sum((place - centre) ** 2 for place, _ in points)
        moved = sum((place - centre) * score for place, score in points)
        for at, term in enumerate(
            (1, moved, spread, moved * moved, moved * spread, spread * spread)
        ):
            self._slopes[at] += term

    def decay(self) -> AdherenceDecay | None:
        """Summarise the scores by turn; None where none was scored."""
        if not self.dialogues:
            return None
        positions = self._survival()
        slope, interval = self._slope()
        return AdherenceDecay(
            dialogues=self.dialogues,
            positions=tuple(positions[:POSITIONS]),
            slope=slope,
            slope_interval=interval,
            median_turns_in_role=next((p.position for p in positions if p.survival <= 0.5), None),
        )

    def _survival(self) -> list[AdherencePosition]:
        """Kaplan-Meier (1958) with Greenwood's variance, as Rothman's interval (1978): Wilson's, with the
        number of dialogues that would give that variance without censoring.
        """
        positions: list[AdherencePosition] = []
        survival, variance, at_risk = 1.0, 0.0, 0
        for position, counts in enumerate(self._positions, start=1):
            at_risk = counts.at_risk or at_risk
            if counts.violations:
                survivors = counts.at_risk - counts.violations
                survival *= survivors / counts.at_risk
                variance += counts.violations / (counts.at_risk * survivors) if survivors else 0.0
            spread = survival * survival * variance
            n = survival * (1 - survival) / spread if spread else at_risk
            mean = counts.total / counts.scored if counts.scored else None
            positions.append(
                AdherencePosition(
                    position=position,
                    scored=counts.scored,
                    mean=mean,
                    interval=None if mean is None else wilson(mean, counts.scored),
                    at_risk=counts.at_risk,
                    violations=counts.violations,
                    survival=survival,
                    survival_interval=wilson(survival, max(n, 1), Z_95),
                )
            )
        return positions

    def _slope(self) -> tuple[float | None, tuple[float, float] | None]:
        """Return the slope within dialogues (each its own level), and its interval by the spread between them."""
        count, moved, spread, moved2, both, spread2 = self._slopes
        if not count:
            return None, None
        slope = moved / spread
        residual = moved2 - 2 * slope * both + slope * slope * spread2
        if count < 2 or residual <= 1e-12 * spread2:
            return slope, None  # where dialogues do not differ, there is no spread to go by
        error = math.sqrt(count / (count - 1) * residual) / spread
        half = student_t(count - 1) * error
        return slope, (slope - half, slope + half)

    def warnings(self) -> list[str]:
        """Return warnings about imputed answers and missing reasons."""
        messages = []
        if self.imputed:
            messages.append(
                f"adherence: {self.imputed} of {self.answers} answers are 0.5 for lack of evidence "
                "(on_missing: half): the judge opened with neither yes nor no. See answer_prefix, or leave "
                "them unscored."
            )
        if self.reason_faults:
            listed = ", ".join(f"{code} {n}" for code, n in sorted(self.reason_faults.items()))
            messages.append(
                f"adherence: {sum(self.reason_faults.values())} of {self.answers} reasons are missing, or "
                f"quote words that are not in the role ({listed}); the scores beside them stand."
            )
        return messages
