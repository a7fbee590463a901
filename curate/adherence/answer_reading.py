"""Read an answer or a reason from a judge's reply: pure functions that never guess.

A reply that cannot be read is a reason code, not a score; so is a call that failed.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from curate.adherence.adherence_prompts import reason_schema
from curate.adherence.config import AdherenceConfig
from curate.adherence.session_score import held_to_threshold
from curate.dialogue import split_thinking
from curate.engines.base import Completion
from curate.engines.label_mass import read_label_mass
from curate.engines.structured import BadReply, read_object
from curate.records import AdherenceReason, UnscoredReason

_OPENS_THINKING = re.compile(r"\s*(<think|<\|channel|\[THINK)", re.IGNORECASE)
# Spelt out, since re.IGNORECASE would let the long s of "yeſ" pass for an s.
_YES_NO = r"([Yy][Ee][Ss]|[Nn][Oo])"
# The first word decides where the reply ends or pauses after it: "No issues found" is not a no.
_OPENING = re.compile(rf"[\W_]*{_YES_NO}\b[*_`\"')\]]*\s*(?:$|[\n.,;:!(\[\u2013\u2014])")
_CLOSING = re.compile(rf"\b{_YES_NO}[\W_]*$")
_WORD = re.compile(rf"\b{_YES_NO}\b")
_QUOTES = " \n\t\"'`“”„‘’«»"
_QUOTE_PATTERN = f"[{_QUOTES.strip()}]"
_ANY_QUOTE = re.compile(_QUOTE_PATTERN)


@dataclass(frozen=True, slots=True)
class AdherenceAnswer:
    """The answer read from one reply: a score in [0, 1], or a reason code and details.

    Attributes:
        raw_score: the score before recalibration, where there was one.
        imputed: the score is 0.5 for want of evidence.
    """

    score: float | None = None
    adherent: bool | None = None
    coverage: float | None = None
    raw_score: float | None = None
    imputed: bool = False
    reason: str | None = None
    detail: str = ""


def read_answer(completion: Completion, config: AdherenceConfig) -> AdherenceAnswer:
    """Read a reply in the config's output mode, recalibrated where the config holds a calibration."""
    if config.output_mode == "binary":
        return read_binary(completion)
    return read_continuous(completion, config)


def read_binary(completion: Completion) -> AdherenceAnswer:
    """Read a yes or a no from a reply in words.

    Thinking is dropped. The opening word decides if the reply ends or pauses after it ("YES.", "**No**, …"),
    else the closing word if the reply says nothing to the contrary ("The answer is NO."). Anything else, as
    "No issues found", can mean either and is a bad reply.
    """
    if completion.fault is not None:
        return _fault(completion)
    text = split_thinking(completion.text)[0].strip()
    words = {word.lower() for word in _WORD.findall(text)}
    opening, closing = _OPENING.match(text), _CLOSING.search(text)
    cut = completion.finish == "length"
    if opening is not None:
        word = opening.group(1).lower()
    elif closing is not None and len(words) == 1 and not cut:
        word = closing.group(1).lower()
    elif cut:
        return AdherenceAnswer(
            reason=UnscoredReason.REPLY_CUT, detail=f"it was cut by its token limit: {text[:80]!r}"
        )
    else:
        return AdherenceAnswer(
            reason=UnscoredReason.BAD_REPLY, detail=f"it is neither YES nor NO: {text[:80]!r}"
        )
    return AdherenceAnswer(score=float(word == "yes"), adherent=word == "yes")


def read_continuous(completion: Completion, config: AdherenceConfig) -> AdherenceAnswer:
    """Read P(yes) / (P(yes) + P(no)) from the first token's distribution (the paper's equation 2).

    The mass of all spellings of each word is added by log-sum-exp. `coverage` is the share of the whole mass
    on both words; under `min_coverage`, or with neither word seen, `on_missing` decides. A 0.5 given for
    want of evidence is marked `imputed` and counts as neither adherent nor not, so it never satisfies strict
    mode.
    """
    if completion.fault is not None:
        return _fault(completion)
    if not completion.first_token:
        return AdherenceAnswer(
            reason=UnscoredReason.NO_LOGPROBS, detail="the reply carries no log-probabilities"
        )
    mass = read_label_mass(completion, ("yes", "no"), ignore_case=True)
    if not mass.logprobs or mass.coverage < config.min_coverage:
        if config.on_missing == "half":
            return AdherenceAnswer(score=0.5, coverage=mass.coverage, imputed=True)
        opening = completion.first_token[0][0]
        advice = (
            "it thinks before it answers; switch that off in the engine's section "
            "(chat_template_kwargs: {enable_thinking: false}), or set answer_prefix"
            if _OPENS_THINKING.match(opening)
            else "see answer_prefix and min_coverage"
        )
        return AdherenceAnswer(
            reason=UnscoredReason.LOW_COVERAGE,
            coverage=mass.coverage,
            detail=f"yes and no have {mass.coverage:.2g} of the first token's mass, "
            f"which opens with {opening!r}; {advice}",
        )
    score = min(1.0, mass.probabilities.get("yes", 0.0))
    return AdherenceAnswer(coverage=mass.coverage, **held_to_threshold(score, config))


def read_reason(
    completion: Completion, config: AdherenceConfig, *, adherent: bool, role: str
) -> tuple[AdherenceReason, str | None]:
    """Read the reason of an answer as far as that can be done, and what to tell the judge if it is asked again.

    Args:
        role: the role definition as the judge was shown it; quoted words must stand in it, see
            `passage`. Nothing is repaired.
    """
    if completion.fault is not None:
        return AdherenceReason(fault=_fault(completion).reason), None
    schema = reason_schema(config, adherent=adherent)
    value = read_object(replace(completion, text=split_thinking(completion.text)[0]), schema)
    if isinstance(value, BadReply):
        fault = "reply_cut" if value.reason == "cut" else "bad_reply"
        # The reply itself is not echoed: it is untrusted text, and a small model copies what it is shown.
        return AdherenceReason(fault=fault), _PROBLEMS[value.reason]
    text = str(value["reason"]).strip()
    if adherent:
        return AdherenceReason(text=text), None
    violation, quoted = value["violation"], str(value["role_words"])
    words = passage(quoted, role)
    # Of another kind of violation the role may not hold any words.
    if words is None and not (violation == "other" and not quoted.strip(_QUOTES)):
        problem = "role_words were no passage of the role definition, word for word"
        return AdherenceReason(text=text, violation=violation, fault="not_in_role"), problem
    return AdherenceReason(text=text, violation=violation, role_words=words or ""), None


_PROBLEMS = {
    "cut": "it was too long",
    "not_json": "it was not one JSON object",
    "schema": "it did not have the keys and values of the form",
}


def passage(quoted: str, text: str) -> str | None:
    """Return the passage of `text` that `quoted` repeats, as it stands there; None where there is none.

    It begins and ends with whole words, so that a letter or two do not pass for a quotation. Case and the form
    of quotation marks within it are not looked at: a judge that begins in the middle of a sentence, or writes
    JSON, changes them.
    """
    words = quoted.strip(_QUOTES).split()
    if not words:
        return None
    pattern = r"\s+".join(_ANY_QUOTE.sub(_QUOTE_PATTERN, re.escape(word)) for word in words)
    match = re.search(rf"(?<!\w){pattern}(?!\w)", text, re.IGNORECASE)
    return match.group(0) if match else None


def _fault(completion: Completion) -> AdherenceAnswer:
    assert completion.fault is not None
    fault = completion.fault
    return AdherenceAnswer(reason=fault.reason, detail=f"{fault.kind}: {fault.detail}".rstrip(": "))
