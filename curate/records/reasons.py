"""Reason codes of pairs that are dropped: one table with the code, where it is counted, and one sentence.

The funnel counts by it and the docs' table is held against it, so that a new reason is a new line here.
"""

from __future__ import annotations

from enum import StrEnum


class DropReason(StrEnum):
    """Why a pair, or a turn that could have been forked, is no pair to train on."""

    # The funnel's stage that drops a candidate of a fork for it; None where only turns, dialogues and pairs that the
    # data holds are dropped for it.
    stage: str | None
    # One sentence for people.
    meaning: str

    def __new__(cls, code: str, stage: str | None, meaning: str) -> DropReason:
        """Make a member: its value is the code alone."""
        member = str.__new__(cls, code)
        member._value_ = code
        member.stage = stage
        member.meaning = meaning
        return member

    # No message to choose.
    NO_CANDIDATE = "no_candidate", "made", "no message came of it that could be chosen"
    ENGINE_ERROR = "engine_error", "made", "the model that was to write the candidate failed"
    # The sides' texts.
    IDENTICAL = "identical", "differ", "both sides say the same"
    DUPLICATE = "duplicate", "differ", "another candidate of the fork, or another pair, is the same"
    COSMETIC = "cosmetic", "differ", "the sides differ in form alone"
    # What the judge says of them.
    UNGROUNDED_SPECIFICS = (
        *("ungrounded_specifics", "grounded"),
        "the chosen side states a detail that nothing supports and the rejected side does not have",
    )
    OTHER_DIMENSION_FELL = (
        *("other_dimension_fell", "worse in nothing"),
        "the chosen side is worse in a dimension, role adherence included",
    )
    UNSCORED = "unscored", "worse in nothing", "an answer that is needed could not be had"
    REJECTED_PREFERRED = "rejected_preferred", "better", "the evidence speaks for the rejected side"
    BELOW_MARGIN = "below_margin", "better", "too little speaks for the chosen side"
    LENGTH_ONLY = (
        "length_only",
        "better",
        "enough speaks for the chosen side, but for its other length",
    )
    ORDER_FLIP = (
        *("order_flip", "better"),
        "a judge that gives letters only prefers another side in the other order",
    )
    DOES_NOT_SUFFICE = (
        *("does_not_suffice", "repairs the dialogue"),
        "repairing the turn would leave another bad",
    )
    # When pairs are compared with each other and with other data.
    NOT_BEST = "not_best", "passed", "another candidate of the fork was taken"
    CONTAMINATED = "contaminated", "passed", "it shares text with an eval set"
    SPLIT_LEAK = "split_leak", "passed", "it is held out, and is nearly a training pair"
    # Where a dialogue cannot be forked.
    ORIGINAL_WAS_FINE = "original_was_fine", None, "the side to reject has no flaw"
    EARLIER_TURN_BAD = "earlier_turn_bad", None, "a turn before it is bad"
    NO_TEXT_IN_TURN = "no_text_in_turn", None, "the turn has no answer in text"
    PROMPT_END = "prompt_end", None, "the prompt does not end with a user or tool message"
    OVER_LIMIT = "over_limit", None, "more than the recipe takes of a dialogue or a group"
    # What the data holds.
    PROMPTS_DIFFER = "prompts_differ", None, "the two sides answer different prompts"
    NO_REPLY = "no_reply", None, "a side does not end with an assistant message"
    SPEAKER_MARKER = "speaker_marker", None, "a side opens with `Human:` or the like"
    EMPTY_SIDE = "empty_side", None, "a side is empty"
    NO_COUNTERPART = "no_counterpart", None, "nothing in the data answers the same prompt"
    DIVERGES_AT_USER = "diverges_at_user", None, "the dialogues part at a message of the user"
    DIVERGES_AT_TOOL = "diverges_at_tool", None, "the dialogues part at a tool's result"
