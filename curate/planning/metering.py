"""Count the tokens of expected calls, and those that prompts share."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from curate.engines.accounting import cost_of
from curate.engines.base import Request, Usage
from curate.engines.config import Prices
from curate.engines.stand_in import CHARACTERS_PER_TOKEN, Expected, plain_text
from curate.engines.tokens import PromptTokens


@dataclass(frozen=True, slots=True)
class TokenCounter:
    """Renders requests as texts, and counts the tokens of texts.

    Attributes:
        render: the text a model is given for a request.
        count: tokens of a text; additive enough for texts to be counted piece by piece.
        described: said beside every figure that rests on it.
    """

    render: Callable[[Request], str]
    count: Callable[[str], float]
    described: str


BY_CHARACTERS = TokenCounter(
    plain_text,
    lambda text: len(text) / CHARACTERS_PER_TOKEN,
    f"{CHARACTERS_PER_TOKEN:g} characters a token",
)


def token_counter(engine: object) -> TokenCounter:
    """Return a counter with the engine's own tokenizer if this process has it, else with 4 characters a token."""
    prompts = getattr(engine, "prompts", None)
    if not isinstance(prompts, PromptTokens):
        return BY_CHARACTERS
    encode = prompts.encode
    return TokenCounter(
        prompts.prompt_text, lambda text: float(len(encode(text))), "the judge's own tokenizer"
    )


class Load(NamedTuple):
    """Requests and tokens for one model; tokens may be fractions if they are estimated."""

    requests: float = 0
    prompt: float = 0
    prefilled: float = 0
    completion: float = 0

    def times(self, factor: float) -> Load:
        """Return the load that many times."""
        return Load(*(part * factor for part in self))

    def cost(self, prices: Prices | None) -> float | None:
        """Return the cost with nothing cached; None without prices."""
        usage = Usage(prompt_tokens=round(self.prompt), completion_tokens=round(self.completion))
        return None if prices is None else cost_of(usage, prices)


def sum_loads(loads: Iterable[Load]) -> Load:
    """Return the sum of the loads."""
    return Load(*map(sum, zip(*loads, Load(), strict=True)))


def shared_start(text: str, other: str) -> int:
    """Return the number of characters that two texts share from their start.

    It compares halves as a whole: `os.path.commonprefix` compares every character of a prompt in Python, which took a
    tenth of a small run's time.
    """
    low, high = 0, min(len(text), len(other))
    if text[:high] == other[:high]:
        return high
    while high - low > 1:  # the first `low` are shared, the first `high` are not
        middle = (low + high) // 2
        if text[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle
    return low


@dataclass(slots=True)
class Meter:
    """Counts the calls to one model, each after the other."""

    counter: TokenCounter
    _last: str = ""
    _pieces: list[tuple[int, float]] = field(default_factory=list)

    def load(self, calls: Iterable[Expected]) -> Load:
        """Return the load of calls that follow those counted before."""
        return sum_loads(self._load(call) for call in calls)

    def _load(self, call: Expected) -> Load:
        prompt, prefilled = self.measure(self.counter.render(call.request))
        reply = 1.0 if call.request.labels else self.counter.count(call.reply.text)
        return Load(1, prompt, prefilled, reply).times(call.share)

    def measure(self, text: str) -> tuple[float, float]:
        """Return the tokens of a prompt, and of the part that it does not share with the start of the one before it.

        The text before is kept in pieces with their counts, so that only what is new is tokenised.
        """
        shared = shared_start(text, self._last)
        self._last = text
        while self._pieces and self._pieces[-1][0] > shared:
            self._pieces.pop()
        start = self._pieces[-1][0] if self._pieces else 0
        if start < shared:
            self._pieces.append((shared, self.counter.count(text[start:shared])))
        new = self.counter.count(text[shared:])
        counted = sum(count for _, count in self._pieces)
        self._pieces.append((len(text), new))
        return counted + new, new
