"""Which turns are good, which are bad, and that what was not scored is neither."""

from __future__ import annotations

import pytest

from curate.dialogue import Message
from curate.export.config import SalvageConfig, TurnLabelConfig
from curate.export.good_turns import MixedDialogue, mixed_dialogue, with_turn_labels
from curate.records import AdherenceScore, Judgment, Unscored
from curate.records.config import MinGood
from tests.export.samples import GOOD, USER, adherence, dialogue, judged
from tests.export.samples import mixed_dialogue as mixed

UNSCORED = Unscored(dialogue_id="d", content_hash="0", stage="judge", reason="bad_reply")


def good(
    judgment: Judgment | Unscored | None,
    score: AdherenceScore | Unscored | None = None,
    config: SalvageConfig | None = None,
) -> tuple[int, ...]:
    return mixed_dialogue(mixed(), judgment, score, config or SalvageConfig()).turns


def test_a_turn_is_good_by_its_levels() -> None:
    assert good(judged((4, 4, 5), (4, 3, 5), (3, 4, 5))) == (1,)
    assert good(judged((5, 5, 4), (5, 5, 5))) == (2,)
    lenient = SalvageConfig(min_good=MinGood(context_use=3, helpfulness=3, safety=4))
    assert good(judged((3, 3, 4), (2, 5, 5)), config=lenient) == (1,)


@pytest.mark.parametrize("judgment", [None, UNSCORED])
def test_without_scores_no_turn_is_good(judgment: Unscored | None) -> None:
    assert good(judgment) == ()
    assert with_turn_labels(mixed(), judgment, None, TurnLabelConfig()).labels == {}


def test_a_turn_off_role_or_without_a_score_of_it_is_not_good() -> None:
    fine = judged((5, 5, 5), (5, 5, 5), (5, 5, 5))
    assert good(fine, adherence(True, False, None)) == (1,)
    assert good(fine, adherence(True)) == (1,)
    assert good(fine, UNSCORED) == ()


def test_a_dialogue_that_the_recipe_left_out_of_adherence_is_good_by_its_scores() -> None:
    skipped = UNSCORED.model_copy(update={"stage": "adherence", "reason": "skipped"})
    assert good(judged((5, 5, 5), (1, 5, 5)), skipped) == (1,)


@pytest.mark.parametrize(("adherent", "turns"), [(True, (1,)), (False, ())])
def test_adherence_of_a_conversation_holds_for_each_turn(
    adherent: bool, turns: tuple[int, ...]
) -> None:
    whole = adherence(evaluation_granularity="conversation", adherent=adherent)
    assert good(judged((5, 5, 5)), whole) == turns


def test_all_messages_of_the_assistant_in_a_good_turn_are_trained_on() -> None:
    assert MixedDialogue(mixed(), (2,)).trained == {3: 2, 5: 2}
    greeting = dialogue("g", Message(role="assistant", content="Hello."), USER, GOOD)
    assert MixedDialogue(greeting, (1,)).trained == {2: 1}  # nobody scored turn 0


def test_labels_leave_out_what_is_neither_good_nor_bad() -> None:
    labels = with_turn_labels(
        mixed(), judged((5, 5, 5), (3, 3, 5), (5, 2, 5)), None, TurnLabelConfig()
    ).labels
    assert labels == {1: True, 3: False}
    unsafe = with_turn_labels(mixed(), judged((5, 5, 4)), None, TurnLabelConfig()).labels
    assert unsafe == {1: False}


def test_a_helpful_turn_off_role_is_not_desirable() -> None:
    labels = with_turn_labels(
        mixed(), judged((5, 5, 5), (1, 1, 5)), adherence(False, True), TurnLabelConfig()
    ).labels
    assert labels == {2: False}
