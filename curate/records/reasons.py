"""Reason codes, one table each: why a row is quarantined, why there is no score, and why a pair is dropped.

Schemas, funnel, shares and warnings are made from these tables, and tests compare the docs with them: a new reason
is a new line here.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Self


class Reason(StrEnum):
    """A reason code: its value, one sentence for people, and the place it belongs to where it has one."""

    meaning: str
    place: str | None

    def __new__(cls, code: str, meaning: str, place: str | None = None) -> Self:
        """Make a member whose value is the code alone."""
        member = str.__new__(cls, code)
        member._value_ = code
        member.meaning = meaning
        member.place = place
        return member


class QuarantineReason(Reason):
    """Why a row, or a part of one, could not be read."""

    BROKEN_JSON = "broken_json", "the line, or the rest of the file, is not JSON"
    BROKEN_FILE = (
        "broken_file",
        "the file ends early or is corrupt from here on (compressed data, a bad table)",
    )
    BAD_ENCODING = "bad_encoding", "the bytes are not in the source's encoding (UTF-8 unless set)"
    TOO_LONG = (
        "too_long",
        "the row has more than 64 MiB (a file that is one object: 256 MiB); of an array or of CSV, nothing after it is read",
    )
    NOT_AN_OBJECT = "not_an_object", "the row is neither an object nor a list of messages"
    SHAPE_MISMATCH = "shape_mismatch", "the row's shape differs from that of its file"
    MISSING_FIELD = "missing_field", "a field that the shape needs is missing"
    NO_MATCH = "no_match", "the joined file has no row with this id, or several"
    BAD_TYPE = "bad_type", "a field has a type that the shape does not allow"
    UNKNOWN_ROLE = "unknown_role", "a message has an unknown role"
    UNKNOWN_PART = "unknown_part", "a content part has an unknown type"
    MEDIA = "media", "the row has images, audio or video"
    EMPTY = "empty", "there are no messages, or no assistant message with text or a tool call"
    EMPTY_USER = "empty_user", "a user message is empty or white space (oasst: with all below it)"
    NO_ASSISTANT = (
        "no_assistant",
        "no assistant message (oasst: none after this message on its path)",
    )
    DELETED = "deleted", "the message is marked as deleted (oasst)"
    DUPLICATE_MESSAGE = "duplicate_message", "another message of the file has the same id (oasst)"
    MISSING_PARENT = (
        "missing_parent",
        "the message's parent is missing or could not be read (oasst)",
    )
    INCOMPLETE_CONVERSATION = (
        "incomplete_conversation",
        "another row of the same conversation could not be read",
    )
    OVER_CAP = "over_cap", "this part of the last row would exceed the source's `cap`"
    UNREADABLE = "unreadable", "any other error; see the detail"


class UnscoredReason(Reason):
    """Why a stage has no score for a dialogue or a turn."""

    # `place` is the cause. "data": the dialogue lacks what the stage needs, or the recipe skips it; such rows do not
    # count in the unscored share.

    CONTEXT_OVERFLOW = "context_overflow", "a prompt does not fit the model's context", "model"
    BAD_REPLY = "bad_reply", "the reply does not have the required form", "model"
    REPLY_CUT = "reply_cut", "the reply was cut by its token limit", "model"
    LOW_COVERAGE = (
        "low_coverage",
        "the labels have too little probability in the first token",
        "model",
    )
    NO_LOGPROBS = "no_logprobs", "the reply has no log-probabilities", "model"
    ENGINE_ERROR = "engine_error", "the call failed; the detail names the error", "model"
    UNSCORED_TURNS = "unscored_turns", "turns without a score, for different reasons", "model"
    REJECTED_MISMATCH = (
        "rejected_mismatch",
        "the judge's verdict differs from that of its scores, and `on_mismatch` is `reject`",
        "model",
    )
    INTERNAL_ERROR = "internal_error", "a bug in curate; the next run tries again", "curate"
    NO_ASSISTANT_TURN = "no_assistant_turn", "there is no assistant turn to score", "dialogue"
    WEIGHTS_MISMATCH = (
        "weights_mismatch",
        "the weights do not match the scored turns (another number, or all 0)",
        "dialogue",
    )
    SKIPPED = "skipped", "the recipe skips the stage for dialogues like this", "data"
    MISSING_ROLE = "missing_role", "the dialogue has no role", "data"
    MISSING_SCENARIO = "missing_scenario", "the dialogue has no scenario", "data"
    NOTHING_APPLIES = "nothing_applies", "no metric applies to the dialogue", "data"
    NO_REFERENCE = "no_reference", "a turn has no reference", "data"
    NO_TEXT = "no_text", "a turn has no text to compare", "data"
    TOO_FEW_REFERENCES = "too_few_references", "the method needs more references", "data"
    REFERENCES_MISMATCH = (
        "references_mismatch",
        "the numbers of references and assistant turns differ",
        "data",
    )


class DropReason(Reason):
    """Why a pair, or a turn that could have been forked, does not become a training pair."""

    # `place` is the funnel's stage that drops a candidate of a fork for this reason; None for reasons to drop turns,
    # dialogues and natural pairs.

    # No usable candidate.
    NO_CANDIDATE = "no_candidate", "no usable message was generated", "made"
    ENGINE_ERROR = "engine_error", "the call to the model that writes candidates failed", "made"
    # The sides' texts.
    IDENTICAL = "identical", "both sides say the same", "differ"
    DUPLICATE = "duplicate", "the same as another candidate of the fork, or another pair", "differ"
    COSMETIC = "cosmetic", "the sides differ only in form", "differ"
    # The judge's answers about them.
    UNGROUNDED_SPECIFICS = (
        "ungrounded_specifics",
        "the chosen side states an unsupported detail that the rejected side does not have",
        "grounded",
    )
    OTHER_DIMENSION_FELL = (
        "other_dimension_fell",
        "the chosen side is worse in a dimension, role adherence included",
        "worse in nothing",
    )
    UNSCORED = "unscored", "the judge gave no usable answer to a question", "worse in nothing"
    REJECTED_PREFERRED = "rejected_preferred", "the evidence favours the rejected side", "better"
    BELOW_MARGIN = "below_margin", "too little evidence for the chosen side", "better"
    LENGTH_ONLY = (
        "length_only",
        "too little evidence for the chosen side, given how much its length differs",
        "better",
    )
    ORDER_FLIP = (
        "order_flip",
        "a judge without log-probabilities prefers the other side in the other order",
        "better",
    )
    DOES_NOT_SUFFICE = (
        "does_not_suffice",
        "repairing the turn would leave another turn bad",
        "repairs the dialogue",
    )
    # Comparison with other pairs and other data.
    NOT_BEST = "not_best", "another candidate of the fork was better", "passed"
    CONTAMINATED = "contaminated", "shares text with an eval set", "passed"
    BELOW_CERTIFICATE = (
        "below_certificate",
        "the score is below the threshold of the recipe's certificate",
        "passed",
    )
    SPLIT_LEAK = (
        "split_leak",
        "nearly the same as a training pair, but on the validation side",
        "passed",
    )
    # Dialogues and turns that cannot be forked.
    ORIGINAL_WAS_FINE = "original_was_fine", "the original has no flaw"
    EARLIER_TURN_BAD = "earlier_turn_bad", "an earlier turn is bad"
    NO_TEXT_IN_TURN = "no_text_in_turn", "the turn has no answer in text"
    PROMPT_END = "prompt_end", "the prompt does not end with a user or tool message"
    OVER_LIMIT = "over_limit", "more than the recipe takes from a dialogue or group"
    # Natural pairs.
    PROMPTS_DIFFER = "prompts_differ", "the two sides answer different prompts"
    NO_REPLY = "no_reply", "a side does not end with an assistant message"
    SPEAKER_MARKER = "speaker_marker", "a side starts with a speaker's name such as `Human:`"
    EMPTY_SIDE = "empty_side", "a side is empty"
    NO_COUNTERPART = "no_counterpart", "nothing else in the data answers the same prompt"
    DIVERGES_AT_USER = "diverges_at_user", "the dialogues first differ in a user message"
    DIVERGES_AT_TOOL = "diverges_at_tool", "the dialogues first differ in a tool's result"
