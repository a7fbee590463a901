"""What an executor is given and what it gives back: one description of a stage's work for all of them.

A `WorkItem` is data (it pickles), and `StageWorker` turns it into a row wherever the models are open: in
this process or in an actor on another machine. So there is one place that binds recipe, models and
stage functions, and an executor only decides where it runs.
"""

from __future__ import annotations

import errno
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import compress
from pathlib import Path
from typing import Any, Literal, Protocol

from curate.dialogue import Dialogue, Message
from curate.engines.base import Ask, Completion, Request
from curate.errors import CurateError
from curate.models import Asks, ForkModels, ModelFacts
from curate.pairs.prefix import pair_id
from curate.recipe import Recipe
from curate.records import (
    INTERNAL_ERROR,
    AdherenceScore,
    Judgment,
    PairCheck,
    PreferencePair,
    Unscored,
)
from curate.steps import adherence_step, fork_step, judge_step, natural_step
from curate.storage.files import disk_error

_FULL = (errno.ENOSPC, errno.EDQUOT)
_DETAIL_CHARS = 500

StageName = Literal["judge", "adherence", "fork", "natural"]
Row = Judgment | AdherenceScore | Unscored | PreferencePair | list[PreferencePair]


@dataclass(frozen=True, slots=True)
class WorkItem:
    """A row that is owed.

    Attributes:
        stage: which stage owes it.
        dialogue: of which dialogue.
        judgment: of that dialogue; needed by `fork`, nothing else reads it.
        pair: to be verified, the dialogue being its prompt; needed by `natural`, nothing else reads it.
        again: the judge's kept replies about this dialogue could not be used, ask anew.
        turns: the turns that `again` is said of, the replies about the others being kept; empty: all.
    """

    stage: StageName
    dialogue: Dialogue
    judgment: Judgment | None = None
    again: bool = False
    turns: frozenset[int] = frozenset()
    pair: PreferencePair | None = None

    @property
    def key(self) -> str:
        """What the row is kept by: 32 hex digits."""
        return self.dialogue.content_hash if self.pair is None else self.pair.pair_id


class Executor(Protocol):
    """Where stage functions run."""

    @property
    def models(self) -> ModelFacts:
        """What the opened models are and can do."""
        ...

    async def run(self, items: Iterable[WorkItem], done: Callable[[WorkItem, Any], None]) -> None:
        """Make the row of every item and hand it to `done`, in order of completion.

        Items are pulled as they can be worked on, never listed. The first error stops the rest and is
        raised; what was handed to `done` before is kept.

        Raises:
            BudgetReached: calls in flight were finished and kept.
            CurateError: anything else with a name.
        """
        ...


def _ask_again_about(turns: frozenset[int], asks: Asks) -> Ask:
    """The judge's ask, past the kept replies where they score one of these turns."""

    async def ask(requests: Sequence[Request]) -> list[Completion]:
        is_again = [not turns.isdisjoint(request.turns) for request in requests]
        answers: dict[bool, Iterator[Completion]] = {}
        for again, judge in ((False, asks.judge), (True, asks.judge_again)):
            if again in is_again:
                asked = compress(requests, (one == again for one in is_again))
                answers[again] = iter(await judge(list(asked)))
        return [next(answers[again]) for again in is_again]

    return ask


class StageWorker:
    """Stage functions bound to open models; calling it makes one row.

    Raises:
        UsageError: on making it, when an engine cannot serve what the recipe asks of it.
    """

    def __init__(self, recipe: Recipe, models: ForkModels, asks: Asks) -> None:
        self._asks = asks
        self._work: dict[StageName, Callable[[WorkItem], Awaitable[Row]]] = {}
        if recipe.judge is not False:
            judged = judge_step(recipe.judge, models.judge)
            self._work["judge"] = lambda item: judged.work(item.dialogue, self._ask(item))
        if recipe.judged_adherence is not False:
            adhered = adherence_step(recipe.judged_adherence, models.judge)
            self._work["adherence"] = lambda item: adhered.work(item.dialogue, self._ask(item))
        if recipe.fork is not False and recipe.judge is not False:
            fork, _ = fork_step(recipe.fork, recipe.judge, judged, models, recipe.judged_adherence)

            async def forked(item: WorkItem) -> Row:
                if item.judgment is None:
                    raise ValueError("a fork needs the dialogue's judgment")
                policy, reviser = self._asks.policy, self._asks.reviser
                return await fork(item.dialogue, item.judgment, self._ask(item), policy, reviser)

            self._work["fork"] = forked
        if recipe.natural.verification is not None:
            verify, _ = natural_step(
                recipe.natural, recipe.judge, models.judge, recipe.judged_adherence
            )

            async def verified(item: WorkItem) -> Row:
                if item.pair is None:
                    raise ValueError("nothing to verify without a pair")
                return await verify(item.pair, item.dialogue, self._ask(item))

            self._work["natural"] = verified

    def _ask(self, item: WorkItem) -> Any:
        if not item.again:
            return self._asks.judge
        if not item.turns:
            return self._asks.judge_again
        return _ask_again_about(item.turns, self._asks)

    async def __call__(self, item: WorkItem) -> Row:
        """Make the row that is owed."""
        return await made(item, self._work[item.stage](item))


async def made(item: WorkItem, making: Awaitable[Row]) -> Row:
    """The row of an item; where a bug keeps it from being made, an unscored one that says so.

    A bug costs one dialogue, not the run, and its row is owed again by the next run (`staging.is_settled`).

    Raises:
        CurateError: what ends a run, such as a budget, a model that cannot be reached or a full disk.
    """
    try:
        return await making
    except CurateError:
        raise
    except Exception as error:  # broad on purpose
        if isinstance(error, OSError) and error.errno in _FULL:
            raise disk_error(Path(error.filename or "."), error) from error
        return _unmade(item, f"{type(error).__name__}: {error}"[:_DETAIL_CHARS])


def _unmade(item: WorkItem, detail: str) -> Row:
    check = PairCheck(unscored=INTERNAL_ERROR)
    if item.pair is not None:
        detail = f"{item.pair.detail}; {INTERNAL_ERROR}: {detail}".removeprefix("; ")
        changed = {"refusal": "unscored", "detail": detail, "check": check}
        return item.pair.model_copy(update=changed)
    dialogue = item.dialogue
    if item.stage != "fork":
        return Unscored(
            dialogue_id=dialogue.id,
            content_hash=dialogue.content_hash,
            stage=item.stage,
            reason=INTERNAL_ERROR,
            detail=detail,
        )
    rejected = Message(role="assistant")
    salt = f"{dialogue.id}/{dialogue.content_hash}/{INTERNAL_ERROR}"
    return [
        PreferencePair(
            pair_id=pair_id((), dialogue.tools, None, rejected, salt=salt),
            dialogue_id=dialogue.id,
            content_hash=dialogue.content_hash,
            source="none",
            basis="judge",
            turn=item.judgment.weakest_turn if item.judgment else None,
            prompt=(),
            tools=dialogue.tools,
            chosen=None,
            rejected=rejected,
            refusal="unscored",
            detail=f"{INTERNAL_ERROR}: {detail}",
            check=check,
            lineage=dialogue.lineage,
        )
    ]
