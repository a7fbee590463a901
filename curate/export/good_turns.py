"""Good and bad turns of a judged dialogue; a turn in between is neither."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from curate.dialogue import Dialogue
from curate.export.config import SalvageConfig, TurnLabelConfig
from curate.records import TURN_DIMENSIONS, AdherenceScore, Judgment, Unscored

_SKIPPED = "skipped"
"""Reason of a dialogue that the recipe leaves out of a stage; its turns still count as good."""


@dataclass(frozen=True, slots=True)
class MixedDialogue:
    """A dialogue outside the SFT set, and its good turns.

    Attributes:
        dialogue: the dialogue.
        turns: numbers of the good turns, ascending.
    """

    dialogue: Dialogue
    turns: tuple[int, ...]

    @property
    def trained(self) -> dict[int, int]:
        """Turn numbers by index of each assistant message in a good turn."""
        return {
            index: turn.number
            for turn in self.dialogue.turns
            if turn.number in self.turns
            for index in range(turn.start, turn.stop)
            if self.dialogue.messages[index].role == "assistant"
        }


@dataclass(frozen=True, slots=True)
class LabelledTurns:
    """A judged dialogue with its good and its bad turns.

    Attributes:
        dialogue: the dialogue.
        labels: True (desirable) or False by turn number, ascending.
    """

    dialogue: Dialogue
    labels: dict[int, bool]


MaybeJudged = Judgment | Unscored | None
MaybeScored = AdherenceScore | Unscored | None


def mixed_dialogue(
    dialogue: Dialogue, judged: MaybeJudged, scored: MaybeScored, config: SalvageConfig
) -> MixedDialogue:
    """Return the dialogue with its good turns.

    Args:
        dialogue: the dialogue.
        judged: the judge's record; without scores no turn is good.
        scored: the record of role adherence; None if the run does not score it.
        config: thresholds of a good turn.
    """
    good = [
        number
        for number, values in _scores(judged)
        if not config.min_good.flaws(values) and _in_role(scored, number)
    ]
    return MixedDialogue(dialogue, tuple(sorted(good)))


def with_turn_labels(
    dialogue: Dialogue, judged: MaybeJudged, scored: MaybeScored, config: TurnLabelConfig
) -> LabelledTurns:
    """Return the dialogue with its good and bad turns; arguments as for `mixed_dialogue`."""
    worst: dict[str, int] = config.max_bad.model_dump()
    labels = {}
    for number, values in _scores(judged):
        if any(values[name] <= worst[name] for name in TURN_DIMENSIONS):
            labels[number] = False
        elif not config.min_good.flaws(values) and _in_role(scored, number):
            labels[number] = True
    return LabelledTurns(dialogue, dict(sorted(labels.items())))


def _scores(judged: MaybeJudged) -> Iterator[tuple[int, dict[str, int]]]:
    if isinstance(judged, Judgment):
        for turn in judged.per_turn:
            yield turn.turn, turn.scores.model_dump()


def _in_role(scored: MaybeScored, number: int) -> bool:
    """Return True if a turn is in role by role adherence; a turn that it could not score is not."""
    if scored is None:
        return True
    if isinstance(scored, Unscored):
        return scored.reason == _SKIPPED
    if scored.evaluation_granularity == "conversation":
        return scored.adherent
    return any(turn.turn == number and turn.adherent is True for turn in scored.per_turn)
