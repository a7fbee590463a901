"""A stage that asks no model: its step is run here, in this process, one dialogue after the other."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from curate.engines.base import Completion, Request
from curate.executors.local import for_each
from curate.executors.work import WorkItem, made
from curate.steps import Step


class Runner(Protocol):
    """What a stage needs of an executor."""

    async def run(self, items: Iterable[WorkItem], done: Callable[[WorkItem, Any], None]) -> None:
        """As `work.Executor.run`."""
        ...


@dataclass(frozen=True, slots=True)
class ComparingExecutor:
    """Runs a step that asks nobody. The models it uses itself were open when the step was made."""

    step: Step[Any]

    async def run(self, items: Iterable[WorkItem], done: Callable[[WorkItem, Any], None]) -> None:
        """As `work.Executor.run`."""

        async def work(item: WorkItem) -> Any:
            return await made(item, self.step.work(item.dialogue, _ask_nobody))

        await for_each(items, work, done, open_at_once=1)


async def _ask_nobody(requests: Sequence[Request]) -> list[Completion]:
    raise AssertionError(f"a step that asks nobody made {len(requests)} requests")
