"""The opinions of several judges about a dialogue, kept beside the judgment that joins them."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Generic, TypeVar

from curate.engines.base import Ask, Completion, Request
from curate.judging.metrics.catalogue import HIGHEST
from curate.records import (
    CONVERSATION_DIMENSIONS,
    TURN_DIMENSIONS,
    AdherenceScore,
    JudgeIdentity,
    JudgeOpinion,
    Judgment,
    MetricsScore,
    Unscored,
)
from curate.records.readings import conversation_value, metric_value, turn_value

OpinionRecord = TypeVar("OpinionRecord", Judgment, AdherenceScore, MetricsScore)


@dataclass(slots=True)
class Metered:
    """An `Ask` that adds up what its replies used; kept replies count as they did when they were received."""

    ask: Ask
    requests: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0

    async def __call__(self, requests: Sequence[Request]) -> list[Completion]:
        """Ask."""
        replies = await self.ask(requests)
        self.requests += len(replies)
        for reply in replies:
            self.prompt_tokens += reply.usage.prompt_tokens
            self.cached_tokens += reply.usage.cached_tokens
            self.completion_tokens += reply.usage.completion_tokens
        return replies


@dataclass(frozen=True, slots=True)
class MeteredRecord(Generic[OpinionRecord]):
    """A judge's own record of a dialogue, and what it took.

    Attributes:
        judge: engine, model and revision.
        used: by the replies it rests on.
    """

    judge: str
    row: OpinionRecord | Unscored
    used: Metered

    def opinion(self, *, counts: bool = True, doubt: float | None = None) -> JudgeOpinion:
        """Return the evidence that is kept of a record."""
        row, used = self.row, self.used
        return JudgeOpinion(
            judge=self.judge,
            counts=counts,
            verdict=row.verdict if isinstance(row, Judgment) else None,
            weakest_turn=row.weakest_turn if isinstance(row, Judgment) else None,
            reason=row.reason if isinstance(row, Unscored) else "",
            doubt=doubt,
            scores={} if isinstance(row, Unscored) else scores_of(row),
            requests=used.requests,
            prompt_tokens=used.prompt_tokens,
            cached_tokens=used.cached_tokens,
            completion_tokens=used.completion_tokens,
        )

    def named(self, row: Unscored, requests: int) -> Unscored:
        """Return a judge's `Unscored`, naming the judge, as the row of all of them."""
        detail = f"{self.judge}: {row.detail}" if row.detail else self.judge
        return row.model_copy(update={"detail": detail, "requests": requests})


Juror = Callable[[], Awaitable[MeteredRecord[OpinionRecord]]]
"""A judge as a jury or a cascade asks it."""


def short_name(judge: str) -> str:
    """Return a judge's name for a sentence: without the folders of a model on this machine, which are private."""
    return judge.rpartition("/")[2]


def scores_of(record: Judgment | AdherenceScore | MetricsScore) -> dict[str, float]:
    """Return a record's expectations, or digits where there are none, by the names of `JudgeOpinion.scores`."""
    if isinstance(record, MetricsScore):
        values = {metric.name: (metric_value(metric), metric.scale) for metric in record.metrics}
        return {name: at / HIGHEST[scale] for name, (at, scale) in values.items() if at is not None}
    if isinstance(record, AdherenceScore):
        if record.conversation is not None:
            return {"conversation": record.session_score}
        return {str(turn.turn): turn.score for turn in record.per_turn if turn.score is not None}
    level = record.conversation_level
    whole = {name: conversation_value(getattr(level, name)) for name in CONVERSATION_DIMENSIONS}
    turns = {
        f"{turn.turn}.{name}": turn_value(turn, name)
        for turn in record.per_turn
        for name in TURN_DIMENSIONS
    }
    return {name: value for name, value in whole.items() if value is not None} | turns


def disagreement(opinions: Sequence[JudgeOpinion]) -> float | None:
    """Return the mean absolute difference of judges' scores, over all pairs of judges and the scores both gave.

    In levels, 0-4; of role adherence and metrics 0-1. None where no two judges scored.
    """
    differences = [
        abs(one.scores[name] - other.scores[name])
        for one, other in combinations(opinions, 2)
        for name in one.scores.keys() & other.scores.keys()
    ]
    return math.fsum(differences) / len(differences) if differences else None


def together(
    records: Sequence[MeteredRecord[OpinionRecord]],
    combine: Callable[[Sequence[OpinionRecord]], OpinionRecord | Unscored],
    identity: JudgeIdentity,
) -> OpinionRecord | Unscored:
    """Join several judges' records, their opinions beside; unscored where one judge could not score."""
    requests = sum(each.used.requests for each in records)
    rows: list[OpinionRecord] = []
    for each in records:
        if isinstance(each.row, Unscored):
            return each.named(each.row, requests)
        rows.append(each.row)
    row = combine(rows)
    if isinstance(row, Unscored):
        return row.model_copy(update={"requests": requests})
    return with_opinions(row, [each.opinion() for each in records], identity, requests)


def with_opinions(
    row: OpinionRecord, opinions: Sequence[JudgeOpinion], identity: JudgeIdentity, requests: int
) -> OpinionRecord:
    """Return a record of several judges under their joint identity, with the opinions of each beside it."""
    return row.model_copy(
        update={
            "identity": identity,
            "requests": requests,
            "opinions": tuple(opinions),
            "disagreement": disagreement(opinions),
        }
    )
