"""Windows over a long dialogue: which turns are scored together, and how the scores are put together.

Pure functions. A long dialogue scored in one call gets flat scores towards its end; short overlapping
windows do not, and the turns scored twice tell how steady the judge is.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations

from curate.judging.config import RubricConfig
from curate.records import (
    CONVERSATION_DIMENSIONS,
    TURN_DIMENSIONS,
    ConversationLevel,
    ConversationScore,
    LabelReading,
    RubricScores,
    TurnScores,
)

MIN_WINDOW, MAX_WINDOW = 4, 6


@dataclass(frozen=True, slots=True)
class Window:
    """Numbers of the turns scored together, ascending."""

    turns: tuple[int, ...]


def plan_windows(
    numbers: Sequence[int], config: RubricConfig, *, max_turns: int | None = None
) -> list[Window]:
    """Cut a dialogue's scored turns into windows.

    Up to `max_turns` turns (the config's, unless given) make one window. More are cut into windows of
    4 to 6 turns that differ by at most one in length, as near to `window_turns` as that allows, each
    sharing `overlap` turns with the next. Where no such cut exists (7 turns, no overlap), windows of
    4 turns are spread evenly and overlap by more.

    Args:
        numbers: numbers of the scored turns, ascending.
        config: gives `max_turns`, `window_turns`, `overlap`.
        max_turns: instead of the config's.
    """
    count, overlap = len(numbers), config.overlap
    if count <= (config.max_turns if max_turns is None else max_turns) or count <= MIN_WINDOW:
        return [Window(tuple(numbers))]
    fits: list[tuple[float, int]] = []
    for parts in range(1, count + 1):
        total = count + overlap * (parts - 1)
        if total // parts >= MIN_WINDOW and -(-total // parts) <= MAX_WINDOW:
            fits.append((abs(total / parts - config.window_turns), parts))
    if not fits:
        return _spread(numbers, overlap)
    parts = min(fits)[1]
    small, larger = divmod(count + overlap * (parts - 1), parts)
    windows, start = [], 0
    for index in range(parts):
        size = small + (index < larger)
        windows.append(Window(tuple(numbers[start : start + size])))
        start += size - overlap
    return windows


def _spread(numbers: Sequence[int], overlap: int) -> list[Window]:
    """Return windows of 4, evenly spread, that overlap by at least `overlap`."""
    last = len(numbers) - MIN_WINDOW
    steps = -(-last // (MIN_WINDOW - overlap))
    starts = [round(index * last / steps) for index in range(steps + 1)]
    return [Window(tuple(numbers[start : start + MIN_WINDOW])) for start in starts]


def halves(window: Window) -> list[Window]:
    """Cut a window of two turns or more in two, without overlap."""
    middle = (len(window.turns) + 1) // 2
    return [Window(window.turns[:middle]), Window(window.turns[middle:])]


@dataclass(frozen=True, slots=True)
class Stitched:
    """Scores of all windows put together.

    Attributes:
        per_turn: each turn once, ascending.
        disagreement: mean absolute difference between scores given to the same turn and dimension by
            different windows; None where no turn was scored twice.
    """

    per_turn: tuple[TurnScores, ...]
    disagreement: float | None


def stitch(windows: Iterable[Sequence[TurnScores]]) -> Stitched:
    """Put windows together: a turn scored more than once takes the minimum of each score."""
    by_turn: dict[int, list[TurnScores]] = {}
    for window in windows:
        for scores in window:
            by_turn.setdefault(scores.turn, []).append(scores)
    differences = [
        abs(getattr(first.scores, name) - getattr(second.scores, name))
        for opinions in by_turn.values()
        for first, second in combinations(opinions, 2)
        for name in TURN_DIMENSIONS
    ]
    return Stitched(
        tuple(_lowest(by_turn[number]) for number in sorted(by_turn)),
        sum(differences) / len(differences) if differences else None,
    )


def _lowest(opinions: Sequence[TurnScores]) -> TurnScores:
    if len(opinions) == 1:
        return opinions[0]
    values: dict[str, int] = {}
    readings: dict[str, LabelReading] = {}
    for name in TURN_DIMENSIONS:
        # Of equal digits the one with the lower expectation, so that both stay the same opinion's.
        lowest = min(opinions, key=lambda one: (getattr(one.scores, name), _mean(one, name)))
        values[name] = getattr(lowest.scores, name)
        if name in lowest.readings:
            readings[name] = lowest.readings[name]
    issues = tuple(dict.fromkeys(issue for one in opinions for issue in one.issues))
    return TurnScores(
        turn=opinions[0].turn, scores=RubricScores(**values), issues=issues, readings=readings
    )


def _mean(scores: TurnScores, name: str) -> float:
    reading = scores.readings.get(name)
    return reading.mean if reading is not None and reading.mean is not None else 0.0


def lowest_conversation(windows: Sequence[ConversationLevel]) -> ConversationLevel:
    """Return the card's plain aggregation: the minimum over windows; n/a only where every window says so."""

    def lowest(scores: Sequence[ConversationScore]) -> ConversationScore:
        numbers = [score for score in scores if isinstance(score.score, int)]
        return min(numbers, key=lambda score: score.score) if numbers else scores[0]

    return ConversationLevel(
        **{
            name: lowest([getattr(window, name) for window in windows])
            for name in CONVERSATION_DIMENSIONS
        }
    )
