"""Any reference method with the role definition beside the turn.

"The string is … embedded alongside the candidate response in deterministic path computations" (Fritz and Fiorenza 2026,
section "Role definition schema"). Their experiments do not do it, and no method needs to know of it: it is given
other texts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from curate.adherence.reference.cases import Case, CaseReading

if TYPE_CHECKING:
    from curate.adherence.reference.scorer import ComparisonMethod


class BesideRole:
    """Gives a method each turn's text behind its role; references stay as they are."""

    def __init__(self, method: ComparisonMethod) -> None:
        self._method = method
        self.needs_second_pass = method.needs_second_pass

    @property
    def cut(self) -> int:
        """Texts so far that a model did not read to their end; a long role takes of a turn's room."""
        return self._method.cut

    def learn(self, cases: Sequence[Case]) -> None:
        """First pass over all cases."""
        self._method.learn([_beside(case) for case in cases])

    def settle(self, cases: Sequence[Case]) -> None:
        """Second pass."""
        self._method.settle([_beside(case) for case in cases])

    def score(self, case: Case) -> CaseReading:
        """The method's score of role and turn together."""
        return self._method.score(_beside(case))

    def fitted_on(self) -> dict[str, int]:
        """As the method's own."""
        return self._method.fitted_on()

    def describe(self) -> dict[str, Any]:
        """As the method's own, and that the role stands beside."""
        return {**self._method.describe(), "role_beside": True}


def _beside(case: Case) -> Case:
    """The case with its role before the turn's text; a turn without text stays without."""
    if not case.candidate or not case.role:
        return case
    return replace(case, candidate=f"{case.role}\n\n{case.candidate}")
