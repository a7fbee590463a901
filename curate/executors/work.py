"""What an executor is given and what it gives back."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol, TypeVar

from curate.engines.pool import ModelFacts
from curate.stages import Row, Stage, WorkItem

R = TypeVar("R", bound=Row)


class Runner(Protocol):
    """Where the rows of a stage are made."""

    async def run(
        self, stage: Stage[R], items: Iterable[WorkItem], done: Callable[[WorkItem, R], None]
    ) -> None:
        """Make the row of every item and hand it to `done`, in order of completion.

        Items are pulled as they can be worked on, never listed. The first error stops the rest and is
        raised; what was handed to `done` before is kept.

        Args:
            stage: as it is bound here. Whoever has bound it anew elsewhere refuses one of another fingerprint.

        Raises:
            BudgetReached: calls in flight were finished and kept.
            CurateError: anything else with a name.
        """
        ...


class Executor(Runner, Protocol):
    """Where models are open."""

    @property
    def models(self) -> ModelFacts:
        """What the opened models are and can do."""
        ...
