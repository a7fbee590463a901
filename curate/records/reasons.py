"""Reason codes, a table each: why a row is no dialogue, why there is no score, and why a pair is dropped.

Schemas, funnel, shares and warnings are made from them, and the docs' tables are held against them: a new reason is a
new line here.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Self


class Reason(StrEnum):
    """A reason code: its value, where it belongs, and one sentence for people."""

    place: str | None
    meaning: str

    def __new__(cls, code: str, place: str | None, meaning: str) -> Self:
        """Make a member: its value is the code alone."""
        member = str.__new__(cls, code)
        member._value_ = code
        member.place = place
        member.meaning = meaning
        return member


class QuarantineReason(Reason):
    """Why a row, or a part of one, could not be read."""

    BROKEN_JSON = "broken_json", None, "the line, or the rest of the file, is not JSON"
    BROKEN_FILE = (
        "broken_file",
        None,
        "the file ends early or is corrupt from here on (compressed data, a bad table)",
    )
    BAD_ENCODING = (
        "bad_encoding",
        None,
        "the bytes are not in the source's encoding (UTF-8 unless set)",
    )
    NOT_AN_OBJECT = "not_an_object", None, "the row is neither an object nor a list of messages"
    SHAPE_MISMATCH = "shape_mismatch", None, "the row has another shape than its file"
    MISSING_FIELD = "missing_field", None, "a field that the shape needs is missing"
    NO_MATCH = "no_match", None, "the file that is joined has no row of this id, or several"
    BAD_TYPE = "bad_type", None, "a field holds another type than the shape has there"
    UNKNOWN_ROLE = "unknown_role", None, "a message's role is none we know"
    UNKNOWN_PART = "unknown_part", None, "a content part is of a type we do not know"
    MEDIA = "media", None, "the row has images, audio or video"
    EMPTY = "empty", None, "there are no messages, or no assistant message with text or a tool call"
    EMPTY_USER = (
        "empty_user",
        None,
        "a user message is empty or white space (oasst: with all below it)",
    )
    NO_ASSISTANT = (
        "no_assistant",
        None,
        "no assistant message (oasst: none after this message on its path)",
    )
    DELETED = "deleted", None, "the message is marked as deleted (oasst)"
    DUPLICATE_MESSAGE = (
        "duplicate_message",
        None,
        "another message of the file has the same id (oasst)",
    )
    MISSING_PARENT = (
        "missing_parent",
        None,
        "the message hangs on one that is missing or could not be read (oasst)",
    )
    INCOMPLETE_CONVERSATION = (
        "incomplete_conversation",
        None,
        "another row of the same conversation could not be read",
    )
    OVER_CAP = "over_cap", None, "this part of the last row would exceed the source's `cap`"
    UNREADABLE = "unreadable", None, "nothing above fits; the detail has the error"


class UnscoredReason(Reason):
    """Why a stage has no score for a dialogue or a turn."""

    # Its place is what it lies with; "data": the dialogue lacks what the stage needs, or the recipe leaves it out;
    # outside the unscored share.

    CONTEXT_OVERFLOW = "context_overflow", "model", "a prompt does not fit the model's context"
    BAD_REPLY = "bad_reply", "model", "the reply is not what was asked for"
    REPLY_CUT = "reply_cut", "model", "the reply was cut by its token limit"
    LOW_COVERAGE = "low_coverage", "model", "the labels hold too little of the first token's mass"
    NO_LOGPROBS = "no_logprobs", "model", "the reply carries no log-probabilities"
    ENGINE_ERROR = "engine_error", "model", "the call failed; the detail has the kind of fault"
    UNSCORED_TURNS = "unscored_turns", "model", "turns have no score, for different reasons"
    REJECTED_MISMATCH = (
        *("rejected_mismatch", "model"),
        "the judge's verdict is not that of its scores, and `on_mismatch` is `reject`",
    )
    INTERNAL_ERROR = "internal_error", "curate", "a bug in curate; every run tries again"
    NO_ASSISTANT_TURN = "no_assistant_turn", "dialogue", "there is no assistant turn to score"
    WEIGHTS_MISMATCH = (
        "weights_mismatch",
        "dialogue",
        "the weights do not fit the turns with a score",
    )
    SKIPPED = "skipped", "data", "the recipe leaves the stage out for such a dialogue"
    MISSING_ROLE = "missing_role", "data", "the dialogue has no role"
    MISSING_SCENARIO = "missing_scenario", "data", "the dialogue has no scenario"
    NOTHING_APPLIES = "nothing_applies", "data", "no metric applies to the dialogue"
    NO_REFERENCE = "no_reference", "data", "a turn has no reference"
    NO_TEXT = "no_text", "data", "a turn has no text to compare"
    TOO_FEW_REFERENCES = (
        "too_few_references",
        "data",
        "a method needs more references than there are",
    )
    REFERENCES_MISMATCH = (
        *("references_mismatch", "data"),
        "the dialogue has not as many references as assistant turns",
    )


class DropReason(Reason):
    """Why a pair, or a turn that could have been forked, is no pair to train on."""

    # Its place is the funnel's stage that drops a candidate of a fork for it; None where only turns, dialogues and
    # pairs that the data holds are dropped for it.

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
    BELOW_CERTIFICATE = (
        *("below_certificate", "passed"),
        "its score is below the threshold that the recipe's certificate holds for",
    )
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
