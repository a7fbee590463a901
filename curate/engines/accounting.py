"""What was asked and what it cost: counts a purpose, and the limit a recipe sets."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, fields
from typing import Any

from curate.engines.base import Completion, Usage
from curate.engines.config import Prices
from curate.errors import BudgetReached


@dataclass(slots=True)
class CallCounts:
    """Counts of one purpose, or of several added up.

    Attributes:
        requests: asked by a stage; each is answered by a sent call, a kept reply or another's call.
        hits: requests answered without a call of their own.
        sent: calls made, repeats after a fault included.
        prompt_tokens, cached_tokens, completion_tokens: of sent calls, as the engine reports them;
            cached ones are part of the prompt's.
        faults: calls that gave no reply, by kind.
    """

    requests: int = 0
    hits: int = 0
    sent: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0
    faults: Counter[str] = field(default_factory=Counter)

    def add(self, other: CallCounts) -> None:
        """Add another's counts to these."""
        for name in _COUNTS:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.faults.update(other.faults)

    def add_call(self, completion: Completion) -> None:
        """Count one call that came back, with a reply or a fault."""
        self.prompt_tokens += completion.usage.prompt_tokens
        self.cached_tokens += completion.usage.cached_tokens
        self.completion_tokens += completion.usage.completion_tokens
        if completion.fault is not None:
            self.faults[completion.fault.kind] += 1

    def as_dict(self) -> dict[str, Any]:
        """Plain data, for the manifest."""
        return {name: getattr(self, name) for name in _COUNTS} | {"faults": dict(self.faults)}


_COUNTS = tuple(field.name for field in fields(CallCounts) if field.name != "faults")


@dataclass(slots=True)
class Accounting:
    """Tallies by purpose (`stage.step`); mutable, and adds up over engines and processes.

    Attributes:
        damaged: kept replies that could not be read and were taken for never received; not by purpose,
            since the response cache does not know it.
    """

    purposes: dict[str, CallCounts] = field(default_factory=dict)
    damaged: int = 0

    def of(self, purpose: str) -> CallCounts:
        """The tally of one purpose, made when it is not there yet."""
        tally = self.purposes.get(purpose)
        if tally is None:
            tally = self.purposes[purpose] = CallCounts()
        return tally

    @property
    def stages(self) -> dict[str, CallCounts]:
        """Tallies by stage: the part of the purpose before its first dot."""
        stages: dict[str, CallCounts] = {}
        for purpose, tally in self.purposes.items():
            stages.setdefault(purpose.partition(".")[0], CallCounts()).add(tally)
        return stages

    @property
    def total(self) -> CallCounts:
        """All purposes added up."""
        total = CallCounts()
        for tally in self.purposes.values():
            total.add(tally)
        return total

    def merge(self, other: Accounting) -> None:
        """Add another's tallies to these."""
        for purpose, tally in other.purposes.items():
            self.of(purpose).add(tally)


@dataclass(slots=True)
class Budget:
    """A limit on what a run may use; None is no limit. Share one among the askers of a run.

    Calls are counted as they start, tokens and money as replies arrive: calls already in flight when a
    limit is met are finished and kept, so those two can be passed by what was in flight.
    """

    calls: int | None = None
    tokens: int | None = None
    money: float | None = None
    used_calls: int = 0
    used_tokens: int = 0
    used_money: float = 0.0

    def start_call(self) -> None:
        """Take a call from the budget.

        Raises:
            BudgetReached: a limit is used up; no call is to be made.
        """
        if self.calls is not None:
            _check("calls", self.used_calls, self.calls)
        if self.tokens is not None:
            _check("tokens", self.used_tokens, self.tokens)
        if self.money is not None:
            _check("money", self.used_money, self.money)
        self.used_calls += 1

    def add_usage(self, usage: Usage, prices: Prices | None) -> None:
        """Count what a reply used."""
        self.used_tokens += usage.prompt_tokens + usage.completion_tokens
        if prices is not None:
            self.used_money += cost_of(usage, prices)


def _check(name: str, used: float, limit: float) -> None:
    if used >= limit:
        raise BudgetReached(
            f"the budget of {name} is used up",
            got=f"{used:g} used",
            expected=f"less than {limit:g}",
            fix="raise `budget` and run again; everything received so far is kept",
        )


def cost_of(usage: Usage, prices: Prices) -> float:
    """Money for some tokens; cached ones at their own price where there is one."""
    cached = prices.input if prices.cached_input is None else prices.cached_input
    return (
        (usage.prompt_tokens - usage.cached_tokens) * prices.input
        + usage.cached_tokens * cached
        + usage.completion_tokens * prices.output
    ) / 1e6
