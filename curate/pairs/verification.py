"""Verification: how likely is it that the chosen side is better, by all that the judge says of both?

Both sides are scored on the same truncated dialogue, in contexts that hold neither the other side nor the
first judgment, once per paraphrase of the question; then they are shown side by side in both orders. The
formulas:

- compared score of a side under wording w: mean of context_use, helpfulness and safety;
- d_w = compared score under w, chosen minus rejected; margin = mean of d_w, noise = its standard error. Paired,
  since what a wording adds to one side it adds to the other;
- preference = mean over both orders of the log-odds that chosen is better, in which the pull of a position
  cancels;
- with a curve (`curate calibrate`): evidence = log-odds of the probability that chosen is better, by a
  logistic of preference and margin; required = log-odds of the curve's threshold;
- without: evidence = the preference; what is required, the spread of the position's pull over the run, is known
  when all pairs are there (`settle`);
- times length_margin_factor where the token ratio lies outside length_ratio;
- no dimension may fall, in the mean over wordings, by more than noise_factor times the standard deviation of its
  own differences.

`verify_sides` is the whole of it for two given messages: the texts (no call), the scores, both orders side by
side, details that only the chosen side states, role adherence. Forks call its parts, cheapest first, because the
best of several candidates is found between the comparison and the role.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import fmean, stdev

from curate.dialogue import Dialogue, Message
from curate.pairs.closed_questions import Pick, ask_choice, ask_letters
from curate.pairs.config import VerifyConfig
from curate.pairs.judge_functions import JudgeAsks
from curate.pairs.pair_prompts import (
    COMPARED,
    NONE,
    comparison,
    specifics_questions,
)
from curate.pairs.prefix import said_text, with_messages
from curate.pairs.specifics import unsupported
from curate.pairs.substance import is_cosmetic, is_identical
from curate.records import (
    TURN_DIMENSIONS,
    AdherenceTurn,
    DropReason,
    PairCheck,
    TurnReading,
    Unscored,
    UnscoredReason,
)
from curate.records.several_judges import JuryRule, of_several
from curate.statistics import log_odds, sigmoid

_TOKEN = re.compile(r"[\u3040-\u30ff\u4e00-\u9fff\uac00-\ud7af]|[^\W_]+|[^\w\s]|_")
_EPSILON = 1e-9
"""Slack for sums of floats, so that a margin of exactly the required size passes."""
_NOTHING = PairCheck()
_DETAILS_AT_ONCE = 5
"""Details asked about in one question: it is asked in as many orders as it has options."""


@dataclass(frozen=True, slots=True)
class Sides:
    """Two messages that are compared as the next one of a dialogue.

    Attributes:
        prompt: the dialogue with exactly the prompt's messages (see `prefix.with_messages`); its role,
            evidence and tools are looked at too.
        turn: number of the turn that both are part of.
    """

    prompt: Dialogue
    chosen: Message
    rejected: Message
    turn: int

    @property
    def parts(self) -> tuple[Dialogue, Dialogue]:
        """The dialogue up to and with the chosen side, and with the rejected one."""
        return cut_after(self.prompt, self.chosen), cut_after(self.prompt, self.rejected)


@dataclass(frozen=True, slots=True)
class SideScores:
    """One side's scores, 1-5 by dimension, under each wording of the question."""

    wordings: tuple[dict[str, float], ...]

    @property
    def means(self) -> dict[str, float]:
        """Per dimension, over the wordings."""
        return {name: fmean(values[name] for values in self.wordings) for name in TURN_DIMENSIONS}

    @property
    def compared(self) -> tuple[float, ...]:
        """The mean of the three dimensions, by wording."""
        return tuple(fmean(values[name] for name in TURN_DIMENSIONS) for values in self.wordings)


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
    return SideScores(tuple(reading.values for reading in readings))


@dataclass(frozen=True, slots=True)
class CheckOutcome:
    """The result of a check: the figures so far, and the drop reason where there is one."""

    check: PairCheck
    drop_reason: DropReason | None = None
    detail: str = ""


def unscored_check(check: PairCheck, reason: str, detail: str) -> CheckOutcome:
    """Return the finding where the judge could not answer; `reason` is a code of `records.Unscored`."""
    return CheckOutcome(check.model_copy(update={"unscored": reason}), DropReason.UNSCORED, detail)


def weigh(
    chosen: SideScores,
    rejected: SideScores,
    token_ratio: float,
    config: VerifyConfig,
    so_far: PairCheck = _NOTHING,
) -> CheckOutcome:
    """Hold the scores of both sides against each other; pure.

    `so_far` holds the figures of earlier checks; these are added to it. Drop reason: `other_dimension_fell`.
    """
    differences = tuple(
        ours - theirs for ours, theirs in zip(chosen.compared, rejected.compared, strict=True)
    )
    check = so_far.model_copy(
        update={
            "chosen_scores": chosen.means,
            "rejected_scores": rejected.means,
            "differences": differences,
            "margin": fmean(differences),
            "noise": stdev(differences) / math.sqrt(len(differences)),
            "token_ratio": token_ratio,
        }
    )
    for name in TURN_DIMENSIONS:
        falls = [
            theirs[name] - ours[name]
            for ours, theirs in zip(chosen.wordings, rejected.wordings, strict=True)
        ]
        fall, allowed = fmean(falls), config.noise_factor * stdev(falls)
        if fall > allowed + _EPSILON:
            detail = f"{name} falls by {fall:.2f}, its noise is {allowed:.2f}"
            return CheckOutcome(check, DropReason.OTHER_DIMENSION_FELL, detail)
    return CheckOutcome(check)


def decide_check(check: PairCheck, config: VerifyConfig) -> CheckOutcome:
    """Decide by the readings of a check that holds margin and preference; pure.

    Drop reasons: `rejected_preferred` where the evidence does not speak for the chosen side, `below_margin` where it
    does by too little, `length_only` where it is enough but for the length; of letters alone `order_flip` where
    the orders contradict each other, and `below_margin` where the scores do not agree with them. Without a curve
    a pair that the preference speaks for is left open, `decided_by: uncalibrated`, for `settle`.
    """
    curve, preference, margin = config.curve, check.preference, check.margin or 0.0
    if preference is None:
        return _decide_by_letters(check)
    if curve is None:
        check = check.model_copy(update={"evidence": preference, "decided_by": "uncalibrated"})
        return hold(check, config, 0.0)
    evidence = curve.preference_weight * preference + curve.margin_weight * margin
    check = check.model_copy(
        update={
            "evidence": evidence,
            "probability": sigmoid(evidence),
            "threshold": curve.threshold,
            "decided_by": curve.fitted_on,
        }
    )
    return hold(check, config, log_odds(curve.threshold))


def hold(check: PairCheck, config: VerifyConfig, required: float) -> CheckOutcome:
    """Hold the evidence of a check against what is required of it, more of it at another length; pure."""
    evidence = check.evidence or 0.0
    low, high = config.length_ratio
    ratio = check.token_ratio or 1.0
    needed = required if low <= ratio <= high else required * config.length_margin_factor
    check = check.model_copy(update={"required": needed})
    if evidence <= 0:
        return CheckOutcome(
            check, DropReason.REJECTED_PREFERRED, f"evidence {evidence:.2f}, above 0 required"
        )
    if evidence < required - _EPSILON:
        return CheckOutcome(
            check, DropReason.BELOW_MARGIN, f"evidence {evidence:.2f}, required {required:.2f}"
        )
    if evidence < needed - _EPSILON:
        detail = f"token ratio {ratio:.2f}: evidence {evidence:.2f}, required {needed:.2f}"
        return CheckOutcome(check, DropReason.LENGTH_ONLY, detail)
    return CheckOutcome(check)


def _decide_by_letters(check: PairCheck) -> CheckOutcome:
    check = check.model_copy(update={"decided_by": "letters"})
    preferred = (check.preferred_first, check.preferred_second)
    if not any(preferred):
        return CheckOutcome(
            check, DropReason.REJECTED_PREFERRED, "the judge prefers the original in both orders"
        )
    if not all(preferred):
        place = "first" if check.preferred_first else "second"
        return CheckOutcome(
            check, DropReason.ORDER_FLIP, f"chosen is preferred only when shown {place}"
        )
    if (check.margin or 0.0) <= 0:
        return CheckOutcome(check, DropReason.BELOW_MARGIN, f"margin {check.margin or 0.0:.2f}")
    return CheckOutcome(check)


async def compare_orders(
    sides: Sides, check: PairCheck, asks: JudgeAsks, config: VerifyConfig
) -> CheckOutcome:
    """Let the judge choose between the two, each shown first once.

    Returns the check with what it said in both orders, of a jury with what its judges come to. Drop reason: `unscored`
    when one cannot be read.
    """
    if asks.jury:
        each = [await compare_orders(sides, check, judge, config) for judge in asks.jury]
        unread_by = next((outcome for outcome in each if outcome.drop_reason is not None), None)
        return unread_by or CheckOutcome(
            joint_preference([outcome.check for outcome in each], asks.rule)
        )
    chosen, rejected = sides.chosen, sides.rejected
    orders = ((chosen, rejected), (rejected, chosen))
    questions = [comparison(sides.prompt, *order) for order in orders]
    picks = await ask_letters(questions, asks, config.min_coverage)
    # chosen is A first, B second
    preferred = [
        pick.label == label if pick.label else None
        for pick, label in zip(picks, COMPARED, strict=True)
    ]
    odds = [_log_odds(pick, label) for pick, label in zip(picks, COMPARED, strict=True)]
    first, second = odds
    check = check.model_copy(
        update={
            "preferred_first": preferred[0],
            "preferred_second": preferred[1],
            "log_odds_first": first,
            "log_odds_second": second,
            "preference": None if first is None or second is None else (first + second) / 2,
            "neutralised": picks[0].neutralised,
        }
    )
    unread = next((pick for pick in picks if pick.label is None), None)
    if unread is not None:
        return unscored_check(check, unread.reason, f"comparison: {unread.detail}")
    return CheckOutcome(check)


def joint_preference(checks: Sequence[PairCheck], rule: JuryRule) -> PairCheck:
    """Join what several judges prefer; pure.

    Log-odds by the rule where all give them; else both letters count, of which more than half of the judges must say
    chosen, by `minimum` all.
    """

    def odds(values: Sequence[float | None]) -> float | None:
        values_given = [value for value in values if value is not None]
        return of_several(values_given, rule) if len(values_given) == len(values) else None

    def preferred(answers: Sequence[bool | None]) -> bool:
        return all(answers) if rule == "minimum" else 2 * sum(map(bool, answers)) > len(answers)

    shares = [
        sigmoid(check.preference)
        if check.preference is not None
        else fmean(map(float, (check.preferred_first or False, check.preferred_second or False)))
        for check in checks
    ]
    return checks[0].model_copy(
        update={
            "preferred_first": preferred([check.preferred_first for check in checks]),
            "preferred_second": preferred([check.preferred_second for check in checks]),
            "log_odds_first": odds([check.log_odds_first for check in checks]),
            "log_odds_second": odds([check.log_odds_second for check in checks]),
            "preference": odds([check.preference for check in checks]),
            "disagreement": fmean(abs(share - other) for share, other in combinations(shares, 2)),
        }
    )


def _log_odds(pick: Pick, label: str) -> float | None:
    """Return the log-odds that the side under this letter is better, of a pick between two; None where only a letter is known."""
    if not pick.logprobs:
        return None
    (other,) = (letter for letter in COMPARED if letter != label)
    return pick.logprobs[label] - pick.logprobs[other]


async def check_specifics(
    sides: Sides, check: PairCheck, asks: JudgeAsks, config: VerifyConfig
) -> CheckOutcome:
    """Ask the judge about details that only the chosen side states, where there are any.

    What the rejected side states too, made up or not, makes the chosen one no worse. Drop reasons:
    `ungrounded_specifics`; `unscored` where an answer cannot be read.
    """
    prompt, chosen = sides.prompt, sides.chosen
    details = unsupported(prompt, chosen, sides.rejected) if config.check_specifics else []
    if not details:
        return CheckOutcome(check)
    check = check.model_copy(update={"specifics": tuple(details)})
    for at in range(0, len(details), _DETAILS_AT_ONCE):
        questions = specifics_questions(prompt, chosen, details[at : at + _DETAILS_AT_ONCE])
        choice = await ask_choice(questions, asks, config.min_coverage)
        if choice.best is None:
            return unscored_check(check, choice.reason, f"details: {choice.detail}")
        if choice.best != NONE:
            check = check.model_copy(update={"ungrounded": choice.best})
            detail = f"nothing supports {choice.best!r}"
            return CheckOutcome(check, DropReason.UNGROUNDED_SPECIFICS, detail)
    return CheckOutcome(check)


async def check_role_and_facts(
    sides: Sides, check: PairCheck, asks: JudgeAsks, config: VerifyConfig
) -> CheckOutcome:
    """Hold the role adherence of both sides against each other, then their factual precision.

    The role is passed over where the dialogue has none or the run no judge for it, facts where the run does not look
    at them. Drop reasons: `other_dimension_fell`; `unscored` where a side has no score.
    """
    if asks.score_role is not None and config.check_role and sides.prompt.role_definition:
        scores: list[float] = []
        for part in sides.parts:
            scored: AdherenceTurn = await asks.score_role(part, sides.turn)
            if scored.score is None:
                reason = scored.unscored or ""
                return unscored_check(check, reason, f"role adherence: {reason}")
            scores.append(scored.score)
        chosen, rejected = scores
        check = check.model_copy(update={"chosen_role": chosen, "rejected_role": rejected})
        if rejected - chosen > config.max_role_fall + _EPSILON:
            detail = f"role adherence falls from {rejected:.2f} to {chosen:.2f}"
            return CheckOutcome(check, DropReason.OTHER_DIMENSION_FELL, detail)
    return await _check_facts(sides, check, asks)


async def _check_facts(sides: Sides, check: PairCheck, asks: JudgeAsks) -> CheckOutcome:
    """Require of the chosen side no less precision; one that claims nothing claims nothing wrong, and has 1."""
    if asks.score_facts is None:
        return CheckOutcome(check)
    values: list[float] = []
    for part in sides.parts:
        claims = await asks.score_facts(part, sides.turn)
        if isinstance(claims, Unscored):
            return unscored_check(
                check, claims.reason, f"facts: {claims.reason} {claims.detail}".strip()
            )
        values.append(1.0 if claims.precision is None else claims.precision)
    chosen, rejected = values
    check = check.model_copy(update={"chosen_facts": chosen, "rejected_facts": rejected})
    if chosen < rejected - _EPSILON:
        detail = f"factual precision falls from {rejected:.2f} to {chosen:.2f}"
        return CheckOutcome(check, DropReason.OTHER_DIMENSION_FELL, detail)
    return CheckOutcome(check)


def check_texts(chosen: Message, rejected: Message) -> CheckOutcome:
    """Drop what differs in nothing, `identical` or `cosmetic`; no model calls."""
    if is_identical(chosen, rejected):
        return CheckOutcome(PairCheck(), DropReason.IDENTICAL, "the same text as the rejected side")
    if is_cosmetic(chosen, rejected):
        return CheckOutcome(
            PairCheck(), DropReason.COSMETIC, "nothing of substance differs from the rejected side"
        )
    return CheckOutcome(PairCheck())


async def score_rejected(
    prompt: Dialogue, rejected: Message, turn: int, asks: JudgeAsks, config: VerifyConfig
) -> tuple[SideScores | None, CheckOutcome]:
    """Score the rejected side in a fresh context.

    Returns its scores, None where there are none, and the finding: `unscored`, `original_was_fine` where it
    has no flaw by `config.min_good` (by calibrated levels where there are any), or no drop reason.
    """
    part = cut_after(prompt, rejected)
    if not any(scored_turn.number == turn and scored_turn.in_rubric for scored_turn in part.turns):
        detail = f"the rubric does not score turn {turn}"
        return None, unscored_check(PairCheck(), UnscoredReason.NO_ASSISTANT_TURN, detail)
    scores = await score_side(part, turn, asks, config.wordings)
    if isinstance(scores, Unscored):
        detail = f"original: {scores.reason} {scores.detail}".strip()
        return None, unscored_check(PairCheck(), scores.reason, detail)
    check = PairCheck(rejected_scores=scores.means)
    levels = {
        name: asks.levels[name].level(mean) if name in asks.levels else mean
        for name, mean in scores.means.items()
    }
    if not config.min_good.flaws(levels):
        return scores, CheckOutcome(
            check, DropReason.ORIGINAL_WAS_FINE, "no flaw in a fresh context"
        )
    return scores, CheckOutcome(check)


async def score_chosen(
    sides: Sides, check: PairCheck, asks: JudgeAsks, config: VerifyConfig
) -> tuple[SideScores | None, CheckOutcome]:
    """Score the chosen side; None and `unscored` where it has no scores."""
    scores = await score_side(sides.parts[0], sides.turn, asks, config.wordings)
    if isinstance(scores, Unscored):
        detail = f"{scores.reason} {scores.detail}".strip()
        return None, unscored_check(check, scores.reason, detail)
    return scores, CheckOutcome(check)


async def verify_sides(
    sides: Sides, asks: JudgeAsks, config: VerifyConfig, *, may_be_fine: bool = False
) -> CheckOutcome:
    """Verify that the chosen side is better than the rejected one.

    Args:
        may_be_fine: the rejected side need not have a flaw, only be worse.

    Returns:
        The figures, as far as it got, and the reason code where the pair is dropped: `identical`,
        `cosmetic`, `ungrounded_specifics`, `original_was_fine`, `other_dimension_fell`, `rejected_preferred`,
        `below_margin`, `length_only`, `order_flip` or `unscored`.

    Calls, at most: 2 * wordings scores of a turn, two comparisons, six questions for every five new details and
    two scores of role adherence. None where the texts decide.
    """
    finding = check_texts(sides.chosen, sides.rejected)
    if finding.drop_reason is not None:
        return finding
    rejected_scores, original = await score_rejected(
        sides.prompt, sides.rejected, sides.turn, asks, config
    )
    if rejected_scores is None:
        return original
    scores, finding = await score_chosen(sides, original.check, asks, config)
    if scores is None:
        return finding
    ratio = token_ratio(sides.chosen, sides.rejected)
    weighed = weigh(scores, rejected_scores, ratio, config, original.check)
    # Both orders are asked whatever the scores say: how far the judge agrees with pairs that the data labels
    # is measured on all of them.
    compared = await compare_orders(sides, weighed.check, asks, config)
    if compared.drop_reason is not None:
        return compared
    decided = decide_check(compared.check, config)
    for step in (original, weighed, decided):
        if step.drop_reason is not None and not (may_be_fine and step is original):
            return CheckOutcome(decided.check, step.drop_reason, step.detail)
    finding = await check_specifics(sides, decided.check, asks, config)
    if finding.drop_reason is None:
        finding = await check_role_and_facts(sides, finding.check, asks, config)
    return finding


def cut_after(prompt: Dialogue, side: Message) -> Dialogue:
    """Return the dialogue up to and with one side."""
    return with_messages(prompt, (*prompt.messages, side))


def token_ratio(chosen: Message, rejected: Message) -> float:
    """Return the length of the chosen over that of the rejected side, tool calls included.

    Counted are words, punctuation marks and, in scripts without spaces, characters: good enough for the ratio
    of two texts in one language, where a tokenizer's own factor cancels.
    """
    first, second = (len(_TOKEN.findall(said_text(side))) for side in (chosen, rejected))
    return first / max(1, second)
