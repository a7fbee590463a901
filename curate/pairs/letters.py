"""Ask the judge closed questions and read one letter each.

The letter is read from the first token where the engine gives log-probabilities, else from a reply held
to a schema. What cannot be read is a problem in words, never a guess.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from curate.engines.base import Completion, Request
from curate.engines.labels import read_labels
from curate.engines.structured import BadReply, read_object
from curate.pairs.asks import JudgeAsks
from curate.pairs.prompting import ANSWER_PREFIX, ClosedQuestion

_REPLY_TOKENS = 32


@dataclass(frozen=True, slots=True)
class Pick:
    """The judge's letter.

    Attributes:
        label: None where it could not be read.
        neutralised: strings of the data that were defused in the prompt.
        reason: why it could not be read, a code of `records.Unscored`.
        detail: the same in words.
    """

    label: str | None
    neutralised: int
    reason: str = ""
    detail: str = ""


async def ask_letters(
    questions: Sequence[ClosedQuestion], asks: JudgeAsks, min_coverage: float
) -> list[Pick]:
    """The letter of each question, all asked as siblings in one call."""
    if asks.judge_mode != "json":
        completions = await asks.judge([_label_request(question) for question in questions])
        fallback = asks.judge_mode is None and any(map(_gave_no_labels, completions))
        if not fallback:
            return [
                _pick_label(completion, question, min_coverage)
                for completion, question in zip(completions, questions, strict=True)
            ]
    completions = await asks.judge([_json_request(question) for question in questions])
    return [
        _pick_json(completion, question)
        for completion, question in zip(completions, questions, strict=True)
    ]


def _label_request(question: ClosedQuestion) -> Request:
    return Request(
        question.messages(as_json=False),
        max_tokens=1,
        prefill=ANSWER_PREFIX,
        labels=question.labels,
        purpose=question.purpose,
    )


def _json_request(question: ClosedQuestion) -> Request:
    return Request(
        question.messages(as_json=True),
        max_tokens=_REPLY_TOKENS,
        schema=question.schema,
        purpose=question.purpose,
    )


def _gave_no_labels(completion: Completion) -> bool:
    """True where the engine answered, or refused the request, without a first-token distribution."""
    if completion.fault is not None:
        return completion.fault.kind in ("bad_request", "malformed_reply")
    return not completion.first_token


def _pick_label(completion: Completion, question: ClosedQuestion, min_coverage: float) -> Pick:
    if completion.fault is not None:
        fault = completion.fault
        return Pick(None, question.neutralised, fault.reason, fault.kind)
    mass = read_labels(completion, question.labels)
    if mass.best is None or mass.coverage < min_coverage:
        detail = f"the letters hold {mass.coverage:.2f} of the mass"
        return Pick(None, question.neutralised, "low_coverage", detail)
    return Pick(mass.best, question.neutralised)


def _pick_json(completion: Completion, question: ClosedQuestion) -> Pick:
    if completion.fault is not None:
        fault = completion.fault
        return Pick(None, question.neutralised, fault.reason, fault.kind)
    reply = read_object(completion, question.schema)
    if isinstance(reply, BadReply):
        reason = "reply_cut" if reply.reason == "cut" else "bad_reply"
        return Pick(None, question.neutralised, reason, f"{reply.reason}: {reply.detail}")
    return Pick(str(reply["answer"]), question.neutralised)
