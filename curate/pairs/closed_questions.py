"""Ask the judge closed questions and read how likely each answer is.

A judge has a taste for a letter and for a place, so the likeliest letter of one order says little. Where the
engine gives log-probabilities a question is asked with every option at every place once, and the
log-probabilities of each meaning are averaged: whatever a letter or a place adds to them, it adds to all meanings
alike. Else one letter comes from a reply held to a schema. What cannot be read is a problem in words, never a
guess.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean

from curate.engines.base import Completion, Request
from curate.engines.label_mass import LETTER_PREFIX, logsumexp, read_label_mass
from curate.engines.structured import BadReply, read_object
from curate.pairs.judge_functions import JudgeAsks
from curate.pairs.pair_prompts import ClosedQuestion
from curate.records import UnscoredReason

_REPLY_TOKENS = 32
_LEAST_SHARE = 1e-6
"""Taken for what is left where the listed tokens sum to 1, as far as an engine's digits tell."""


@dataclass(frozen=True, slots=True)
class Pick:
    """The judge's letter.

    Attributes:
        label: the likeliest letter; None where none could be read.
        logprobs: by letter, over the letters alone, all of them; of one that the engine did not list the most it
            can be. Empty where only a letter came back.
        neutralised: strings of the data that were defused in the prompt.
        reason: why it could not be read, a code of `records.Unscored`.
    """

    label: str | None
    neutralised: int
    reason: str = ""
    detail: str = ""
    logprobs: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Choice:
    """The judge's likelihood of each meaning of a question's options, its position bias averaged out.

    Attributes:
        probabilities: by meaning, in the options' order, summing to 1; empty where the answer could not be read.
        reason: why it could not, a code of `records.Unscored`.
    """

    probabilities: dict[str, float]
    reason: str = ""
    detail: str = ""

    @property
    def best(self) -> str | None:
        """The likeliest meaning, ties to the last option: the one by which nothing is wrong."""
        return max(reversed(self.probabilities), key=self.probabilities.__getitem__, default=None)


async def ask_choice(
    orders: Sequence[ClosedQuestion], asks: JudgeAsks, min_coverage: float
) -> Choice:
    """Return the judge's choice, of one question in several orders of its options, asked as siblings.

    The mean of the log-probabilities of each meaning, normalised. A judge that gives letters only is asked the
    first order. Of a jury the mean of the judges' probabilities.
    """
    if asks.jury:
        choices = [await ask_choice(orders, judge, min_coverage) for judge in asks.jury]
        unread = next((choice for choice in choices if choice.best is None), None)
        return unread or Choice(
            {
                meaning: fmean(choice.probabilities[meaning] for choice in choices)
                for meaning in orders[0].meanings
            }
        )
    picks = await ask_letters(orders, asks, min_coverage, by_schema=orders[:1])
    missed = next((pick for pick in picks if pick.label is None), None)
    if missed is not None:
        return Choice({}, missed.reason, missed.detail)
    if not picks[0].logprobs:
        meanings = dict(zip(orders[0].labels, orders[0].meanings, strict=True))
        chosen = meanings[picks[0].label or ""]
        return Choice({meaning: float(meaning == chosen) for meaning in orders[0].meanings})
    means = {
        meaning: fmean(
            pick.logprobs[question.labels[question.meanings.index(meaning)]]
            for question, pick in zip(orders, picks, strict=True)
        )
        for meaning in orders[0].meanings
    }
    total = logsumexp(list(means.values()))
    return Choice({meaning: math.exp(value - total) for meaning, value in means.items()})


async def ask_letters(
    questions: Sequence[ClosedQuestion],
    asks: JudgeAsks,
    min_coverage: float,
    *,
    by_schema: Sequence[ClosedQuestion] | None = None,
) -> list[Pick]:
    """Return the letter of each question by one judge, all asked as siblings in one call.

    Args:
        by_schema: what to ask instead where letters come from replies held to a schema.
    """
    completions: list[Completion] = []
    if asks.judge_mode != "json":
        completions = await asks.judge(list(map(letter_request, questions)))
    # Where the mode is open the engine may turn out to give no log-probabilities.
    if completions and (asks.judge_mode or not any(map(_gave_no_labels, completions))):
        return [
            _pick_label(completion, question, min_coverage)
            for completion, question in zip(completions, questions, strict=True)
        ]
    questions = questions if by_schema is None else by_schema
    completions = await asks.judge([_schema_request(question) for question in questions])
    return [
        _pick_json(completion, question)
        for completion, question in zip(completions, questions, strict=True)
    ]


def letter_request(question: ClosedQuestion) -> Request:
    """Return the request that reads a question's letter from the first token."""
    return Request(
        question.trunk,
        question.question(as_json=False),
        max_tokens=1,
        prefill=LETTER_PREFIX,
        labels=question.labels,
        purpose=question.purpose,
    )


def _schema_request(question: ClosedQuestion) -> Request:
    return Request(
        question.trunk,
        question.question(as_json=True),
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
    mass = read_label_mass(completion, question.labels)
    if mass.best is None or mass.coverage < min_coverage:
        detail = f"the letters hold {mass.coverage:.2f} of the mass"
        return Pick(None, question.neutralised, UnscoredReason.LOW_COVERAGE, detail)
    unseen = _most_of_the_unlisted(completion)
    logprobs = {label: mass.logprobs.get(label, unseen) for label in question.labels}
    total = logsumexp(list(logprobs.values()))
    shares = {label: value - total for label, value in logprobs.items()}
    return Pick(mass.best, question.neutralised, logprobs=shares)


def _most_of_the_unlisted(completion: Completion) -> float:
    """The most that the log-probability of a token can be that the engine did not list: no more than the
    least that it listed, nor than the mass that is left."""
    listed = [value for _, value in completion.first_token if value > -math.inf]
    remaining = 1 - sum(math.exp(value) for value in listed)
    return min(*listed, math.log(max(remaining, _LEAST_SHARE)))


def _pick_json(completion: Completion, question: ClosedQuestion) -> Pick:
    if completion.fault is not None:
        fault = completion.fault
        return Pick(None, question.neutralised, fault.reason, fault.kind)
    reply = read_object(completion, question.schema)
    if isinstance(reply, BadReply):
        reason = UnscoredReason.REPLY_CUT if reply.reason == "cut" else UnscoredReason.BAD_REPLY
        return Pick(None, question.neutralised, reason, f"{reply.reason}: {reply.detail}")
    return Pick(str(reply["answer"]), question.neutralised)
