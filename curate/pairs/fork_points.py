"""Fork points of a dialogue: its candidate turns, each with a confidence, and the message that failed.

The turns come from the judgment, and from poor metrics where there are some; what is asked about them (does repairing one repair the rest, which
of its messages failed) is asked by `questions` when their turn comes.

Confidence, in [0, 1], that a turn is bad:
- of one dimension, the share of the judge's mass on the digits below the level of `min_good`; where there is no
  distribution (scoring mode json), how far the score lies below it, (least - score) / (least - 1), least being that level;
- of a turn, the highest of its dimensions;
- where the judge gave a distribution over the weakest turn, the mean of that and the turn's share there
  over the largest share of any turn.
It orders the candidates and is kept on their records; nothing passes or fails by it but a turn without a
flaw, which is a candidate from `min_confidence` on.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from curate.dialogue import Dialogue, Message, Turn
from curate.pairs.config import ForkConfig
from curate.pairs.pair_prompts import MAX_OPTIONS
from curate.pairs.prefix import prompt_is_open
from curate.records import TURN_DIMENSIONS, DropReason, Judgment, LabelReading, TurnScores


@dataclass(frozen=True, slots=True)
class ForkPoint:
    """A candidate turn, or why a dialogue or a turn cannot be forked.

    Attributes:
        turn: the turn's number; None where no turn is a candidate.
        index: the rejected message in the dialogue; of a dropped turn the assistant message that comes
            closest, None where there is none at all.
        confidence: that the turn is bad.
        drop_reason: reason code, None for a usable fork point.
    """

    turn: int | None
    index: int | None
    confidence: float | None = None
    drop_reason: DropReason | None = None
    detail: str = ""


def find_forks(
    dialogue: Dialogue, judgment: Judgment, config: ForkConfig, faults: Collection[int] = ()
) -> list[ForkPoint]:
    """Return the candidate turns in the order in which they are tried; pure.

    Candidates are the judgment's weakest turn, every turn with a flaw by `config.min_good`, and those that
    the judge's distributions make doubtful; and those of its turns in which `faults` were found otherwise. Each comes once, used or dropped (`earlier_turn_bad`,
    `unscored`, `no_text_in_turn`, `prompt_end`); a dialogue without any gives one dropped point without a
    turn (`original_was_fine`).
    """
    flaws = flaws_by_turn(judgment, config)
    sure = _confidences(judgment, config)
    numbers = {
        entry.turn
        for entry in judgment.per_turn
        if flaws[entry.turn]
        or entry.turn in faults
        or _doubt(entry, config) >= config.min_confidence
    }
    if judgment.weakest_turn is not None:
        numbers.add(judgment.weakest_turn)
    if not numbers:
        index = _last_assistant(dialogue, 0, None)
        return [
            ForkPoint(
                None, index, None, DropReason.ORIGINAL_WAS_FINE, "the judgment has no bad turn"
            )
        ]
    if config.at == "earliest":
        ordered = sorted(numbers)
    else:
        ordered = sorted(
            numbers,
            key=lambda number: (number != judgment.weakest_turn, -sure.get(number, 0.0), number),
        )
    return [_point(dialogue, number, flaws, sure.get(number), config) for number in ordered]


def flaws_by_turn(judgment: Judgment, config: ForkConfig) -> dict[int, list[str]]:
    """Return the dimensions in which each scored turn has a flaw."""
    return {
        entry.turn: config.min_good.flaws(
            {name: float(value) for name, value in entry.scores.model_dump().items()}
        )
        for entry in judgment.per_turn
    }


def _point(
    dialogue: Dialogue,
    number: int,
    flaws: Mapping[int, list[str]],
    confidence: float | None,
    config: ForkConfig,
) -> ForkPoint:
    """Return the fork point of a candidate turn, at its last text, where every turn before it is fine."""
    turn = next((turn for turn in dialogue.turns if turn.number == number), None)
    index = _last_assistant(dialogue, turn.start if turn else 0, turn.stop if turn else None)

    def dropped(code: DropReason, detail: str) -> ForkPoint:
        return ForkPoint(number, index, confidence, code, detail)

    if turn is None:
        return dropped(DropReason.NO_TEXT_IN_TURN, f"the dialogue has no turn {number}")
    for earlier in dialogue.turns:
        if not earlier.in_rubric or earlier.number >= number:
            continue
        if earlier.number not in flaws:
            return dropped(DropReason.UNSCORED, f"turn {earlier.number} has no score")
        if flaws[earlier.number]:
            names = ", ".join(flaws[earlier.number])
            return dropped(DropReason.EARLIER_TURN_BAD, f"turn {earlier.number} is bad in {names}")
    if config.tool_turns == "failed_message" and failure_options(turn):
        return ForkPoint(number, index, confidence)  # the judge is to name the message
    return at_message(dialogue, ForkPoint(number, turn.last_assistant_text, confidence))


def at_message(dialogue: Dialogue, point: ForkPoint) -> ForkPoint:
    """Return the point itself, or dropped where no message is at its index or no open prompt before it."""
    index = point.index
    if index is None:
        turn = next((turn for turn in dialogue.turns if turn.number == point.turn), None)
        closest = _last_assistant(dialogue, turn.start, turn.stop) if turn else None
        detail = f"turn {point.turn} has no assistant text"
        return ForkPoint(point.turn, closest, point.confidence, DropReason.NO_TEXT_IN_TURN, detail)
    if not prompt_is_open(dialogue.messages[:index]):
        role = dialogue.messages[index - 1].role if index else "nothing"
        detail = f"{role} stands before the message, not user or tool"
        return ForkPoint(point.turn, index, point.confidence, DropReason.PROMPT_END, detail)
    return point


@dataclass(frozen=True, slots=True)
class FailedMessage:
    """One answer to the question which message of a turn failed.

    Attributes:
        index: the message in the dialogue.
        meaning: as the judge is shown it.
        issue: how the message failed, in words for a reviser.
    """

    index: int
    meaning: str
    issue: str


def failure_options(turn: Turn) -> dict[str, FailedMessage]:
    """List what may have failed in a turn with tool calls, by a key each; empty where there is nothing to ask.

    A call can be of the wrong tool or have a wrong argument, a text can read a result wrongly or be wrong
    otherwise. Where that gives more answers than a question may have the messages are told apart only; a turn
    with more messages than that is not asked about.
    """
    messages = assistant_messages(turn)
    if not any(message.tool_calls for _, message in messages):
        return {}
    fine = list(_ways(turn, messages))
    coarse = [
        FailedMessage(index, f"message {at}", "") for at, (index, _) in enumerate(messages, start=1)
    ]
    for failures in (fine, coarse):
        if len(failures) <= MAX_OPTIONS:
            return {str(at): failure for at, failure in enumerate(failures, start=1)}
    return {}


def assistant_messages(turn: Turn) -> list[tuple[int, Message]]:
    """Return the turn's assistant messages with their index in the dialogue."""
    return [
        (turn.start + offset, message)
        for offset, message in enumerate(turn.messages)
        if message.role == "assistant"
    ]


def _ways(turn: Turn, messages: Sequence[tuple[int, Message]]) -> Iterator[FailedMessage]:
    for at, (index, message) in enumerate(messages, start=1):
        if message.tool_calls:
            yield FailedMessage(
                index,
                f"message {at}: it calls the wrong tool, or calls one where it should not",
                "the wrong tool is called",
            )
            yield FailedMessage(
                index,
                f"message {at}: it calls the right tool with a wrong argument",
                "an argument of the call is wrong",
            )
            continue
        if any(before.role == "tool" for before in turn.messages[: index - turn.start]):
            yield FailedMessage(
                index,
                f"message {at}: it reads a tool's result wrongly",
                "a tool's result is read wrongly",
            )
        yield FailedMessage(index, f"message {at}: what it says is wrong in another way", "")


def _confidences(judgment: Judgment, config: ForkConfig) -> dict[int, float]:
    weakest = {
        int(key): share for key, share in judgment.weakest_probabilities.items() if key != "none"
    }
    top = max(weakest.values(), default=0.0)
    sure: dict[int, float] = {}
    for entry in judgment.per_turn:
        low = max(
            _below(getattr(entry.scores, name), entry.readings.get(name), level)
            for name, level in _levels(config)
        )
        share = weakest.get(entry.turn, 0.0) / top if top > 0 else None
        sure[entry.turn] = low if share is None else (low + share) / 2
    return sure


def _doubt(entry: TurnScores, config: ForkConfig) -> float:
    """Return the largest share of the judge's mass below a level of `min_good`; 0 without distributions."""
    return max(
        (
            _below(0, reading, level)
            for name, level in _levels(config)
            if (reading := entry.readings.get(name)) is not None and reading.probabilities
        ),
        default=0.0,
    )


def _levels(config: ForkConfig) -> list[tuple[str, int]]:
    return [(name, getattr(config.min_good, name)) for name in TURN_DIMENSIONS]


def _below(score: int, reading: LabelReading | None, level: int) -> float:
    if reading is not None and reading.probabilities:
        digits = {key: share for key, share in reading.probabilities.items() if key.isdigit()}
        total = sum(digits.values())
        low = sum(share for key, share in digits.items() if int(key) < level)
        return min(1.0, low / total) if total > 0 else 0.0
    return max(0, level - score) / (level - 1) if level > 1 else 0.0


def _last_assistant(dialogue: Dialogue, start: int, stop: int | None) -> int | None:
    """Return the index of the last assistant message in a stretch of the dialogue."""
    indices = range(len(dialogue.messages))[start:stop]
    return next((at for at in reversed(indices) if dialogue.messages[at].role == "assistant"), None)
