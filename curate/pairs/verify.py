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

`verify_sides` is the whole of it for two given messages, cheapest evidence first: the texts (no call),
details that only the chosen side states (at most one call where there are any), the scores, both orders
side by side, role adherence. Forks call its parts, because the best of several candidates is found between
the scores and the comparison.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

from curate.dialogue import Dialogue, Message
from curate.pairs.asks import JudgeAsks
from curate.pairs.config import VerifyConfig
from curate.pairs.letters import ask_letters
from curate.pairs.prefix import with_messages
from curate.pairs.prompting import (
    COMPARED,
    NONE_LETTER,
    OPTION_LETTERS,
    comparison,
    specifics_question,
)
from curate.pairs.specifics import unsupported
from curate.pairs.substance import is_cosmetic, is_identical
from curate.pairs.wire import said_text
from curate.records import TURN_DIMENSIONS, AdherenceTurn, PairCheck, TurnReading, Unscored

_TOKEN = re.compile(r"[\u3040-\u30ff\u4e00-\u9fff\uac00-\ud7af]|[^\W_]+|[^\w\s]|_")
_EPSILON = 1e-9
"""Slack for sums of floats, so that a margin of exactly the required size passes."""
_NOTHING = PairCheck()


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
    part: Dialogue, turn: int, asks: JudgeAsks, wordings: int
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


def unscored(check: PairCheck, reason: str, detail: str) -> Finding:
    """The finding where the judge could not answer; `reason` is a code of `records.Unscored`."""
    return Finding(check.model_copy(update={"unscored": reason}), "unscored", detail)


def weigh(
    chosen: SideScores,
    rejected: SideScores,
    token_ratio: float,
    config: VerifyConfig,
    known: PairCheck = _NOTHING,
) -> Finding:
    """Hold the margin, the dimensions and the length against the rules; pure.

    `known` is what was found before; the figures are added to it. Refusals, in this order: `below_margin`, `other_dimension_fell`, `length_only`.
    """
    margin = chosen.compared - rejected.compared
    noise = math.hypot(chosen.spread, rejected.spread)
    required = max(config.min_margin, config.noise_factor * noise)
    low, high = config.length_ratio
    within_length = low <= token_ratio <= high
    asked = required if within_length else required * config.length_margin_factor
    check = known.model_copy(
        update={
            "chosen_scores": chosen.means,
            "rejected_scores": rejected.means,
            "margin": margin,
            "noise": noise,
            "required": asked,
            "token_ratio": token_ratio,
        }
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
    asks: JudgeAsks,
    config: VerifyConfig,
) -> Finding:
    """Let the judge choose between the two, each shown first once.

    Returns the check with `preferred_first` and `preferred_second` filled in. Refusals: `order_flip`
    when the answer hangs on the order, `rejected_preferred` when both go against the pair, `unscored`
    when one cannot be read.
    """
    orders = ((chosen, rejected), (rejected, chosen))
    questions = [comparison(prompt, *order) for order in orders]
    picks = await ask_letters(questions, asks, config.min_coverage)
    preferred = [
        pick.label == label if pick.label else None
        for pick, label in zip(picks, COMPARED, strict=True)  # chosen is A first, B second
    ]
    check = check.model_copy(
        update={
            "preferred_first": preferred[0],
            "preferred_second": preferred[1],
            "neutralised": picks[0].neutralised,
        }
    )
    unread = next((pick for pick in picks if pick.label is None), None)
    if unread is not None:
        return unscored(check, unread.reason, f"comparison: {unread.detail}")
    if all(preferred):
        return Finding(check)
    if any(preferred):
        shown = "first" if preferred[0] else "second"
        return Finding(check, "order_flip", f"chosen is preferred only when shown {shown}")
    return Finding(check, "rejected_preferred", "the judge prefers the original in both orders")


async def check_specifics(
    prompt: Dialogue,
    chosen: Message,
    rejected: Message,
    check: PairCheck,
    asks: JudgeAsks,
    config: VerifyConfig,
) -> Finding:
    """Ask the judge about details that only the chosen side states, where there are any.

    What the rejected side states too, made up or not, makes the chosen one no worse. Refusals:
    `ungrounded_specifics`; `unscored` where an answer cannot be read.
    """
    details = unsupported(prompt, chosen, rejected) if config.check_specifics else []
    if not details:
        return Finding(check)
    check = check.model_copy(update={"specifics": tuple(details)})
    size = len(OPTION_LETTERS)
    asked = [details[at : at + size] for at in range(0, len(details), size)]
    questions = [specifics_question(prompt, chosen, some) for some in asked]
    for some, pick in zip(
        asked, await ask_letters(questions, asks, config.min_coverage), strict=True
    ):
        if pick.label is None:
            return unscored(check, pick.reason, f"details: {pick.detail}")
        if pick.label != NONE_LETTER:
            found = some[OPTION_LETTERS.index(pick.label)]
            check = check.model_copy(update={"ungrounded": found})
            return Finding(check, "ungrounded_specifics", f"nothing supports {found!r}")
    return Finding(check)


async def check_role(
    prompt: Dialogue,
    sides: tuple[Message, Message],
    turn: int,
    check: PairCheck,
    asks: JudgeAsks,
    config: VerifyConfig,
) -> Finding:
    """Hold the role adherence of both sides (chosen, rejected) against each other.

    Passed over where the dialogue has no role or the run no judge for it. Refusals:
    `other_dimension_fell`; `unscored` where a side has no score.
    """
    if asks.score_role is None or not config.check_role or not prompt.role_definition:
        return Finding(check)
    scores: list[float] = []
    for side in sides:
        scored: AdherenceTurn = await asks.score_role(cut_after(prompt, side), turn)
        if scored.score is None:
            reason = scored.unscored or ""
            return unscored(check, reason, f"role adherence: {reason}")
        scores.append(scored.score)
    chosen, rejected = scores
    check = check.model_copy(update={"chosen_role": chosen, "rejected_role": rejected})
    if rejected - chosen > config.max_role_fall + _EPSILON:
        detail = f"role adherence falls from {rejected:.2f} to {chosen:.2f}"
        return Finding(check, "other_dimension_fell", detail)
    return Finding(check)


def check_texts(chosen: Message, rejected: Message) -> Finding:
    """Refuse what differs in nothing, `identical` or `cosmetic`; no model is asked."""
    if is_identical(chosen, rejected):
        return Finding(PairCheck(), "identical", "the same text as the rejected side")
    if is_cosmetic(chosen, rejected):
        return Finding(
            PairCheck(), "cosmetic", "nothing of substance differs from the rejected side"
        )
    return Finding(PairCheck())


async def score_rejected(
    prompt: Dialogue, rejected: Message, turn: int, asks: JudgeAsks, config: VerifyConfig
) -> tuple[SideScores | None, Finding]:
    """Score the rejected side in a fresh context.

    Returns its scores, None where there are none, and the finding: `unscored`, `original_was_fine` where it
    has no flaw by `config.fine_from`, or no refusal.
    """
    part = cut_after(prompt, rejected)
    if not any(found.number == turn and found.in_rubric for found in part.turns):
        detail = f"the rubric does not score turn {turn}"
        return None, unscored(PairCheck(), "no_assistant_turn", detail)
    scores = await score_side(part, turn, asks, config.wordings)
    if isinstance(scores, Unscored):
        detail = f"original: {scores.reason} {scores.detail}".strip()
        return None, unscored(PairCheck(), scores.reason, detail)
    check = PairCheck(rejected_scores=scores.means)
    if not config.fine_from.flaws(scores.means):
        return scores, Finding(check, "original_was_fine", "no flaw in a fresh context")
    return scores, Finding(check)


async def score_chosen(
    prompt: Dialogue,
    chosen: Message,
    rejected: Message,
    turn: int,
    asks: JudgeAsks,
    config: VerifyConfig,
) -> tuple[SideScores | None, Finding]:
    """Of a chosen side whose text `check_texts` let pass: its details, then its scores.

    Returns the scores to weigh, None where it is refused: as `check_specifics`, or `unscored`.
    """
    finding = await check_specifics(prompt, chosen, rejected, PairCheck(), asks, config)
    if finding.refusal is not None:
        return None, finding
    scores = await score_side(cut_after(prompt, chosen), turn, asks, config.wordings)
    if isinstance(scores, Unscored):
        detail = f"{scores.reason} {scores.detail}".strip()
        return None, unscored(finding.check, scores.reason, detail)
    return scores, finding


async def confirm(
    prompt: Dialogue,
    sides: tuple[Message, Message],
    turn: int,
    weighed: Finding,
    asks: JudgeAsks,
    config: VerifyConfig,
) -> Finding:
    """The last part, for sides (chosen, rejected) that were weighed: both orders, then the role."""
    finding = weighed
    if finding.refusal is None:
        finding = await compare_orders(prompt, *sides, finding.check, asks, config)
    if finding.refusal is None:
        finding = await check_role(prompt, sides, turn, finding.check, asks, config)
    return finding


async def verify_sides(
    prompt: Dialogue,
    chosen: Message,
    rejected: Message,
    turn: int,
    asks: JudgeAsks,
    config: VerifyConfig,
    *,
    may_be_fine: bool = False,
) -> Finding:
    """Verify that `chosen` is better than `rejected` as the next message of a dialogue.

    Args:
        prompt: the dialogue with exactly the prompt's messages (see `prefix.with_messages`); its role,
            evidence and tools are looked at too.
        turn: number of the turn that both sides are part of.
        may_be_fine: the rejected side need not have a flaw, only be worse.

    Returns:
        The figures, as far as it got, and the reason code where the pair is refused: `identical`,
        `cosmetic`, `ungrounded_specifics`, `original_was_fine`, `below_margin`, `other_dimension_fell`,
        `length_only`, `order_flip`, `rejected_preferred` or `unscored`.

    Calls, at most: 2 * wordings scores of a turn, one question for each 25 new details, two comparisons
    and two scores of role adherence. None where the texts decide.
    """
    finding = check_texts(chosen, rejected)
    if finding.refusal is not None:
        return finding
    rejected_scores, finding = await score_rejected(prompt, rejected, turn, asks, config)
    is_excused = may_be_fine and finding.refusal == "original_was_fine"
    if rejected_scores is None or (finding.refusal is not None and not is_excused):
        return finding
    scores, finding = await score_chosen(prompt, chosen, rejected, turn, asks, config)
    if scores is None:
        return finding
    ratio = token_ratio(chosen, rejected)
    weighed = weigh(scores, rejected_scores, ratio, config, finding.check)
    return await confirm(prompt, (chosen, rejected), turn, weighed, asks, config)


def cut_after(prompt: Dialogue, side: Message) -> Dialogue:
    """The dialogue up to and with one side."""
    return with_messages(prompt, (*prompt.messages, side))


def token_ratio(chosen: Message, rejected: Message) -> float:
    """Length of the chosen over that of the rejected side, tool calls included.

    Counted are words, punctuation marks and, in scripts without spaces, characters: good enough for the ratio
    of two texts in one language, where a tokenizer's own factor cancels.
    """
    first, second = (len(_TOKEN.findall(said_text(side))) for side in (chosen, rejected))
    return first / max(1, second)
