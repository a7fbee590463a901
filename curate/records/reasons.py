"""Reason codes, one table each: why a row is quarantined, why there is no score, and why a pair is dropped.

Schemas, funnel, shares and warnings are made from these tables, and tests compare the docs with them: a new reason
is a new line here.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Self


class Reason(StrEnum):
    """A reason code: its value, the place it belongs to, and one sentence for people."""

    place: str | None
    meaning: str

    def __new__(cls, code: str, place: str | None, meaning: str) -> Self:
        """Make a member whose value is the code alone."""
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
    TOO_LONG = (
        "too_long",
        None,
        "the row has more than 64 MiB (a file that is one object: 256 MiB); of an array or of CSV, nothing after it is read",
    )
    NOT_AN_OBJECT = "not_an_object", None, "the row is neither an object nor a list of messages"
    SHAPE_MISMATCH = "shape_mismatch", None, "the row's shape differs from that of its file"
    MISSING_FIELD = "missing_field", None, "a field that the shape needs is missing"
    NO_MATCH = "no_match", None, "the joined file has no row with this id, or several"
    BAD_TYPE = "bad_type", None, "a field has a type that the shape does not allow"
    UNKNOWN_ROLE = "unknown_role", None, "a message has an unknown role"
    UNKNOWN_PART = "unknown_part", None, "a content part has an unknown type"
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
        "the message's parent is missing or could not be read (oasst)",
    )
    INCOMPLETE_CONVERSATION = (
        "incomplete_conversation",
        None,
        "another row of the same conversation could not be read",
    )
    OVER_CAP = "over_cap", None, "this part of the last row would exceed the source's `cap`"
    UNREADABLE = "unreadable", None, "any other error; see the detail"


class UnscoredReason(Reason):
    """Why a stage has no score for a dialogue or a turn."""

    # `place` is the cause. "data": the dialogue lacks what the stage needs, or the recipe skips it; such rows do not
    # count in the unscored share.

    CONTEXT_OVERFLOW = "context_overflow", "model", "a prompt does not fit the model's context"
    BAD_REPLY = "bad_reply", "model", "the reply does not have the required form"
    REPLY_CUT = "reply_cut", "model", "the reply was cut by its token limit"
    LOW_COVERAGE = (
        "low_coverage",
        "model",
        "the labels have too little probability in the first token",
    )
    NO_LOGPROBS = "no_logprobs", "model", "the reply has no log-probabilities"
    ENGINE_ERROR = "engine_error", "model", "the call failed; the detail names the error"
    UNSCORED_TURNS = "unscored_turns", "model", "turns without a score, for different reasons"
    REJECTED_MISMATCH = (
        *("rejected_mismatch", "model"),
        "the judge's verdict differs from that of its scores, and `on_mismatch` is `reject`",
    )
    INTERNAL_ERROR = "internal_error", "curate", "a bug in curate; the next run tries again"
    NO_ASSISTANT_TURN = "no_assistant_turn", "dialogue", "there is no assistant turn to score"
    WEIGHTS_MISMATCH = (
        "weights_mismatch",
        "dialogue",
        "the weights do not match the scored turns (another number, or all 0)",
    )
    SKIPPED = "skipped", "data", "the recipe skips the stage for dialogues like this"
    MISSING_ROLE = "missing_role", "data", "the dialogue has no role"
    MISSING_SCENARIO = "missing_scenario", "data", "the dialogue has no scenario"
    NOTHING_APPLIES = "nothing_applies", "data", "no metric applies to the dialogue"
    NO_REFERENCE = "no_reference", "data", "a turn has no reference"
    NO_TEXT = "no_text", "data", "a turn has no text to compare"
    TOO_FEW_REFERENCES = (
        "too_few_references",
        "data",
        "the method needs more references",
    )
    REFERENCES_MISMATCH = (
        *("references_mismatch", "data"),
        "the numbers of references and assistant turns differ",
    )


class DropReason(Reason):
    """Why a pair, or a turn that could have been forked, does not become a training pair."""

    # `place` is the funnel's stage that drops a candidate of a fork for this reason; None for reasons to drop turns,
    # dialogues and natural pairs.

    # No usable candidate.
    NO_CANDIDATE = "no_candidate", "made", "no usable message was generated"
    ENGINE_ERROR = "engine_error", "made", "the call to the model that writes candidates failed"
    # The sides' texts.
    IDENTICAL = "identical", "differ", "both sides say the same"
    DUPLICATE = "duplicate", "differ", "the same as another candidate of the fork, or another pair"
    COSMETIC = "cosmetic", "differ", "the sides differ only in form"
    # The judge's answers about them.
    UNGROUNDED_SPECIFICS = (
        *("ungrounded_specifics", "grounded"),
        "the chosen side states an unsupported detail that the rejected side does not have",
    )
    OTHER_DIMENSION_FELL = (
        *("other_dimension_fell", "worse in nothing"),
        "the chosen side is worse in a dimension, role adherence included",
    )
    UNSCORED = "unscored", "worse in nothing", "the judge gave no usable answer to a question"
    REJECTED_PREFERRED = "rejected_preferred", "better", "the evidence favours the rejected side"
    BELOW_MARGIN = "below_margin", "better", "too little evidence for the chosen side"
    LENGTH_ONLY = (
        "length_only",
        "better",
        "too little evidence for the chosen side, given how much its length differs",
    )
    ORDER_FLIP = (
        *("order_flip", "better"),
        "a judge without log-probabilities prefers the other side in the other order",
    )
    DOES_NOT_SUFFICE = (
        *("does_not_suffice", "repairs the dialogue"),
        "repairing the turn would leave another turn bad",
    )
    # Comparison with other pairs and other data.
    NOT_BEST = "not_best", "passed", "another candidate of the fork was better"
    CONTAMINATED = "contaminated", "passed", "shares text with an eval set"
    BELOW_CERTIFICATE = (
        *("below_certificate", "passed"),
        "the score is below the threshold of the recipe's certificate",
    )
    SPLIT_LEAK = (
        "split_leak",
        "passed",
        "nearly the same as a training pair, but on the validation side",
    )
    # Dialogues and turns that cannot be forked.
    ORIGINAL_WAS_FINE = "original_was_fine", None, "the original has no flaw"
    EARLIER_TURN_BAD = "earlier_turn_bad", None, "an earlier turn is bad"
    NO_TEXT_IN_TURN = "no_text_in_turn", None, "the turn has no answer in text"
    PROMPT_END = "prompt_end", None, "the prompt does not end with a user or tool message"
    OVER_LIMIT = "over_limit", None, "more than the recipe takes from a dialogue or group"
    # Natural pairs.
    PROMPTS_DIFFER = "prompts_differ", None, "the two sides answer different prompts"
    NO_REPLY = "no_reply", None, "a side does not end with an assistant message"
    SPEAKER_MARKER = "speaker_marker", None, "a side starts with a speaker's name such as `Human:`"
    EMPTY_SIDE = "empty_side", None, "a side is empty"
    NO_COUNTERPART = "no_counterpart", None, "nothing else in the data answers the same prompt"
    DIVERGES_AT_USER = "diverges_at_user", None, "the dialogues first differ in a user message"
    DIVERGES_AT_TOOL = "diverges_at_tool", None, "the dialogues first differ in a tool's result"
