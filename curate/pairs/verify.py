"""Verification: is the chosen side better by more than the judge's own noise?

Both sides are scored on the same truncated dialogue, in contexts that hold neither the other side nor
the first judgment, once per paraphrase of the question. The formulas:

- compared score of a side under wording w: mean of context_use, helpfulness and safety;
- margin = mean over wordings of the compared score, chosen minus rejected;
- noise = sqrt(s_chosen^2 + s_rejected^2), with s the sample standard deviation (n - 1) of a side's
  compared score over the wordings: the spread of the difference if only one wording had been asked. It
  is not divided by sqrt(n), because paraphrases of one question are no independent draws;
- required margin = max(min_margin, noise_factor * noise), times length_margin_factor where the token
  ratio lies outside length_ratio;
- no dimension's mean may fall by more than that dimension's own noise, same formula.

Then the judge compares the two side by side in both orders and must prefer the chosen one twice.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

from curate.dialogue import Dialogue, Message
from curate.engines.base import Completion, Request
from curate.engines.labels import read_labels
from curate.engines.structured import BadReply, read_object
from curate.pairs.asks import ForkAsks
from curate.pairs.config import ForkConfig
from curate.pairs.prompting import ANSWER_PREFIX, CHOICE_SCHEMA, LABELS, Comparison, comparison
from curate.records import TURN_DIMENSIONS, PairCheck, TurnReading, Unscored

_EPSILON = 1e-9
"""Slack for sums of floats, so that a margin of exactly the required size passes."""
_CHOICE_TOKENS = 32


@dataclass(frozen=True, slots=True)
class SideScores:
    """One side's scores over the wordings, 1-5.

    Attributes:
        means, spreads: per dimension; the spread is the sample standard deviation over wordings.
        compared, spread: the same of the compared score.
    """

    means: dict[str, float]
    spreads: dict[str, float]
    compared: float
    spread: float


def summarise(readings: Sequence[TurnReading]) -> SideScores:
    """Means and spreads of at least two readings of one side."""
    compared = [fmean(reading.values[name] for name in TURN_DIMENSIONS) for reading in readings]
    values = {name: [reading.values[name] for reading in readings] for name in TURN_DIMENSIONS}
    return SideScores(
        means={name: fmean(column) for name, column in values.items()},
        spreads={name: stdev(column) for name, column in values.items()},
        compared=fmean(compared),
        spread=stdev(compared),
    )


async def score_side(
    part: Dialogue, turn: int, asks: ForkAsks, wordings: int
) -> SideScores | Unscored:
    """Score the last turn of a truncated dialogue under every wording; Unscored if any is."""
    readings: list[TurnReading] = []
    for wording in range(wordings):
        reading = await asks.score_turn(part, turn, wording)
        if isinstance(reading, Unscored):
            return reading
        readings.append(reading)
    return summarise(readings)


@dataclass(frozen=True, slots=True)
class Finding:
    """What a check found: the figures so far, and the refusal where there is one."""

    check: PairCheck
    refusal: str | None = None
    detail: str = ""


def weigh(
    chosen: SideScores, rejected: SideScores, token_ratio: float, config: ForkConfig
) -> Finding:
    """Hold the margin, the dimensions and the length against the rules; pure.

    Refusals, in this order: `below_margin`, `other_dimension_fell`, `length_only`.
    """
    margin = chosen.compared - rejected.compared
    noise = math.hypot(chosen.spread, rejected.spread)
    required = max(config.min_margin, config.noise_factor * noise)
    low, high = config.length_ratio
    within_length = low <= token_ratio <= high
    asked = required if within_length else required * config.length_margin_factor
    check = PairCheck(
        chosen_scores=chosen.means,
        rejected_scores=rejected.means,
        margin=margin,
        noise=noise,
        required=asked,
        token_ratio=token_ratio,
    )
    if margin <= 0 or margin < required - _EPSILON:
        return Finding(
            check,
            "below_margin",
            f"margin {margin:.2f}, required {required:.2f}, noise {noise:.2f}",
        )
    for name in TURN_DIMENSIONS:
        fall = rejected.means[name] - chosen.means[name]
        allowed = math.hypot(chosen.spreads[name], rejected.spreads[name])
        if fall > allowed + _EPSILON:
            detail = f"{name} falls by {fall:.2f}, its noise is {allowed:.2f}"
            return Finding(check, "other_dimension_fell", detail)
    if margin < asked - _EPSILON:
        detail = f"token ratio {token_ratio:.2f}: margin {margin:.2f}, required {asked:.2f}"
        return Finding(check, "length_only", detail)
    return Finding(check)


async def compare_orders(
    prompt: Dialogue,
    chosen: Message,
    rejected: Message,
    check: PairCheck,
    asks: ForkAsks,
    config: ForkConfig,
) -> Finding:
    """Let the judge choose between the two, each shown first once.

    Returns the check with `preferred_first` and `preferred_second` filled in. Refusals: `order_flip`
    when the answer hangs on the order, `rejected_preferred` when both go against the pair, `unscored`
    when one cannot be read.
    """
    orders = ((chosen, rejected), (rejected, chosen))
    wanted = LABELS  # the chosen side is A in the first order and B in the second
    picks = await _picks(prompt, orders, asks, config)
    preferred = [
        pick.label == label if pick.label else None
        for pick, label in zip(picks, wanted, strict=True)
    ]
    check = check.model_copy(
        update={
            "preferred_first": preferred[0],
            "preferred_second": preferred[1],
            "neutralised": picks[0].neutralised,
        }
    )
    problems = [pick.problem for pick in picks if pick.problem]
    if problems:
        return Finding(check, "unscored", f"comparison: {problems[0]}")
    if all(preferred):
        return Finding(check)
    if any(preferred):
        shown = "first" if preferred[0] else "second"
        return Finding(check, "order_flip", f"chosen is preferred only when shown {shown}")
    return Finding(check, "rejected_preferred", "the judge prefers the original in both orders")


@dataclass(frozen=True, slots=True)
class _Pick:
    label: str | None
    neutralised: int
    problem: str = ""


async def _picks(
    prompt: Dialogue,
    orders: Sequence[tuple[Message, Message]],
    asks: ForkAsks,
    config: ForkConfig,
) -> list[_Pick]:
    """The judge's letter in each order, both orders asked as siblings."""
    if asks.judge_mode != "json":
        questions = [comparison(prompt, *order, as_json=False) for order in orders]
        completions = await asks.judge([_label_request(question) for question in questions])
        fallback = asks.judge_mode is None and any(map(_gave_no_labels, completions))
        if not fallback:
            return [
                _pick_label(completion, question, config.min_coverage)
                for completion, question in zip(completions, questions, strict=True)
            ]
    questions = [comparison(prompt, *order, as_json=True) for order in orders]
    completions = await asks.judge([_json_request(question) for question in questions])
    return [
        _pick_json(completion, question)
        for completion, question in zip(completions, questions, strict=True)
    ]


def _label_request(question: Comparison) -> Request:
    return Request(
        question.messages,
        max_tokens=1,
        prefill=ANSWER_PREFIX,
        labels=LABELS,
        purpose="pairs.compare",
    )


def _json_request(question: Comparison) -> Request:
    return Request(
        question.messages, max_tokens=_CHOICE_TOKENS, schema=CHOICE_SCHEMA, purpose="pairs.compare"
    )


def _gave_no_labels(completion: Completion) -> bool:
    """True where the engine answered, or refused the request, without a first-token distribution."""
    if completion.fault is not None:
        return completion.fault.kind == "bad_request"
    return not completion.first_token


def _pick_label(completion: Completion, question: Comparison, min_coverage: float) -> _Pick:
    if completion.fault is not None:
        return _Pick(None, question.neutralised, completion.fault.kind)
    mass = read_labels(completion, LABELS)
    if mass.best is None or mass.coverage < min_coverage:
        problem = f"coverage of A and B is {mass.coverage:.2f}"
        return _Pick(None, question.neutralised, problem)
    return _Pick(mass.best, question.neutralised)


def _pick_json(completion: Completion, question: Comparison) -> _Pick:
    if completion.fault is not None:
        return _Pick(None, question.neutralised, completion.fault.kind)
    reply = read_object(completion, CHOICE_SCHEMA)
    if isinstance(reply, BadReply):
        return _Pick(None, question.neutralised, f"{reply.reason}: {reply.detail}")
    return _Pick(str(reply["better"]), question.neutralised)
