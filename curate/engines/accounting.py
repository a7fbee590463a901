"""Counts of calls and tokens by purpose, and the budget that a recipe sets."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, fields
from typing import Any

from curate.engines.base import Completion, Usage
from curate.engines.config import Prices
from curate.errors import BudgetReached


@dataclass(slots=True)
class CallCounts:
    """Counts of calls and tokens of one purpose, or of several added up.

    Attributes:
        requests: requests that a stage made; each is answered by a sent call, a kept reply or the call of an equal request.
        hits: requests that were answered without a call of their own.
        sent: calls that were made, retries after a fault included.
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
        """Add the counts of `other` to these."""
        for name in _COUNTS:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.faults.update(other.faults)

    def add_call(self, completion: Completion) -> None:
        """Add the tokens, or the fault, of one finished call."""
        self.prompt_tokens += completion.usage.prompt_tokens
        self.cached_tokens += completion.usage.cached_tokens
        self.completion_tokens += completion.usage.completion_tokens
        if completion.fault is not None:
            self.faults[completion.fault.kind] += 1

    def as_dict(self) -> dict[str, Any]:
        """Return plain data for the manifest."""
        return {name: getattr(self, name) for name in _COUNTS} | {"faults": dict(self.faults)}


_COUNTS = tuple(field.name for field in fields(CallCounts) if field.name != "faults")


@dataclass(slots=True)
class Accounting:
    """Call counts by purpose (`stage.step`), which can be added up over engines and processes.

    Attributes:
        damaged: number of kept replies that could not be read and count as not received; not by purpose,
            which the response cache does not know.
    """

    purposes: dict[str, CallCounts] = field(default_factory=dict)
    damaged: int = 0

    def of(self, purpose: str) -> CallCounts:
        """Return the counts of a purpose; new, empty ones at its first use."""
        tally = self.purposes.get(purpose)
        if tally is None:
            tally = self.purposes[purpose] = CallCounts()
        return tally

    @property
    def stages(self) -> dict[str, CallCounts]:
        """Return the counts by stage, the part of a purpose before its first dot."""
        stages: dict[str, CallCounts] = {}
        for purpose, tally in self.purposes.items():
            stages.setdefault(purpose.partition(".")[0], CallCounts()).add(tally)
        return stages

    @property
    def total(self) -> CallCounts:
        """Return the sum over all purposes."""
        total = CallCounts()
        for tally in self.purposes.values():
            total.add(tally)
        return total

    def merge(self, other: Accounting) -> None:
        """Add the counts of `other` to these."""
        for purpose, tally in other.purposes.items():
            self.of(purpose).add(tally)


@dataclass(slots=True)
class Budget:
    """Limits on the calls, tokens and money of a run; None is no limit. All clients of a run share one.

    Calls are counted when they start, tokens and money when replies arrive. Calls in flight when a limit is
    reached are finished and kept, so tokens and money can exceed their limits by those calls.
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
            BudgetReached: a limit is reached; the call must not be made.
        """
        if self.calls is not None:
            _check("calls", self.used_calls, self.calls)
        if self.tokens is not None:
            _check("tokens", self.used_tokens, self.tokens)
        if self.money is not None:
            _check("money", self.used_money, self.money)
        self.used_calls += 1

    def add_usage(self, usage: Usage, prices: Prices | None) -> None:
        """Add the tokens of a reply, and their cost where prices are known."""
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
    """Return the cost of tokens; cached ones at `cached_input` where that is set."""
    cached = prices.input if prices.cached_input is None else prices.cached_input
    return (
        (usage.prompt_tokens - usage.cached_tokens) * prices.input
        + usage.cached_tokens * cached
        + usage.completion_tokens * prices.output
    ) / 1e6
