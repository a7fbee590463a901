"""The judge of facts: one dialogue in, one `FactualityScore` or `Unscored` out.

A turn (or part of a long one) is one call, whose reply is a list of claims. A reply that cannot be used, one that quotes
words which do not stand in the turn included, is asked again with the reason; what stays unusable leaves the dialogue
unscored, since claims that were not read would count as none.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any, Final

from curate.dialogue import Dialogue, Turn
from curate.engines.bad_replies import ask_until_read
from curate.engines.base import Ask, Completion, Request
from curate.engines.layout import Trunk
from curate.engines.structured import BadReply, read_object
from curate.errors import UsageError
from curate.judging.factuality.config import FactualityConfig
from curate.judging.factuality.prompting import (
    evidence_of,
    request,
    said_in,
    schema,
    split,
    trunks,
)
from curate.judging.session import Failure, clip_words, fault_of
from curate.records import JudgeIdentity, StageName, Unscored, UnscoredReason
from curate.records.factuality import Evidence, FactualClaim, FactualityScore, TurnClaims

STAGE: Final = StageName.FACTUALITY
_FACTUAL = ("true", "false", "unverifiable")


async def score_factuality(
    dialogue: Dialogue, ask: Ask, config: FactualityConfig, identity: JudgeIdentity
) -> FactualityScore | Unscored:
    """Label the claims of every assistant turn with text, those before the first user message included.

    Args:
        dialogue: with an assistant message.

    Returns:
        The claims; or `Unscored` with reason no_assistant_turn, context_overflow, bad_reply, reply_cut or engine_error.
    """
    turns = [turn for turn in dialogue.turns if turn.has_assistant]
    if not turns:
        failure = Failure(UnscoredReason.NO_ASSISTANT_TURN, "there is nothing to check")
        return failure.unscored(dialogue, STAGE)
    trunk_of = trunks(dialogue, config)
    per_turn: list[TurnClaims] = []
    requests = 0
    for turn in turns:
        outcome, calls = await _ask_turn(dialogue, turn, trunk_of[turn.number], ask, config)
        requests += calls
        if isinstance(outcome, Failure):
            failure = Failure(outcome.reason, f"turn {turn.number}: {outcome.detail}".rstrip(": "))
            return failure.unscored(dialogue, STAGE, requests)
        per_turn.append(outcome)
    return FactualityScore(
        dialogue_id=dialogue.id,
        content_hash=dialogue.content_hash,
        identity=identity,
        per_turn=tuple(per_turn),
        precision=precision(claim for turn in per_turn for claim in turn.claims),
        neutralised=trunk_of[dialogue.turns[-1].number].neutralised,
        requests=requests,
    )


async def claims_of_turn(
    dialogue: Dialogue, number: int, ask: Ask, config: FactualityConfig
) -> TurnClaims | Unscored:
    """Return the claims of one turn, the dialogue shown up to it.

    Raises:
        UsageError: the dialogue has no such turn with an assistant message.
    """
    turns = {turn.number: turn for turn in dialogue.turns if turn.has_assistant}
    if number not in turns:
        raise UsageError(
            f"dialogue {dialogue.id} has no turn {number}", expected=f"one of {[*turns]}"
        )
    trunk = trunks(dialogue, config)[number]
    outcome, requests = await _ask_turn(dialogue, turns[number], trunk, ask, config)
    return outcome.unscored(dialogue, STAGE, requests) if isinstance(outcome, Failure) else outcome


def precision(claims: Iterable[FactualClaim]) -> float | None:
    """True claims over those that are true, false or unverifiable; None without any."""
    labels = [claim.label for claim in claims if claim.label in _FACTUAL]
    return labels.count("true") / len(labels) if labels else None


async def _ask_turn(
    dialogue: Dialogue, turn: Turn, trunk: Trunk, ask: Ask, config: FactualityConfig
) -> tuple[TurnClaims | Failure, int]:
    """Return the claims of a turn, and the number of calls made."""
    text, requests = said_in(turn), 0
    evidence = evidence_of(dialogue, turn)
    parts = split(text, config.part_words)
    claims: list[FactualClaim] = []
    for part in parts:
        outcome, calls = await _ask_part(
            trunk, turn.number, part, len(parts) == 1, ask, config, evidence
        )
        requests += calls
        if isinstance(outcome, Failure):
            return outcome, requests
        claims += outcome
    turn_claims = TurnClaims(
        turn=turn.number, claims=tuple(claims), parts=len(parts), precision=precision(claims)
    )
    return turn_claims, requests


async def _ask_part(
    trunk: Trunk,
    turn: int,
    part: str,
    is_whole: bool,
    ask: Ask,
    config: FactualityConfig,
    evidence: Sequence[Evidence],
) -> tuple[list[FactualClaim] | Failure, int]:
    def ask_for(_: str, problem: str | None) -> Request:
        return request(trunk, turn, None if is_whole else part, config, evidence, problem=problem)

    def read(_: str, completion: Completion) -> tuple[list[FactualClaim] | Failure, str | None]:
        if (fault := fault_of(completion)) is not None:
            return fault, None
        reply = read_object(completion, schema(config, evidence))
        if isinstance(reply, BadReply):
            was_cut = reply.reason == "cut"
            reason = UnscoredReason.REPLY_CUT if was_cut else UnscoredReason.BAD_REPLY
            return Failure(reason, reply.detail), reply.detail
        claims, problem = read_claims(reply["claims"], part)
        if problem is None:
            return claims, None
        return Failure(UnscoredReason.BAD_REPLY, problem), problem

    outcomes, requests = await ask_until_read([part], ask_for, read, ask, config.retries)
    return outcomes[part], requests


def read_claims(
    entries: Iterable[dict[str, Any]], text: str
) -> tuple[list[FactualClaim], str | None]:
    """Return the claims of a reply in the order they stand in the text, each once; or why they cannot be used."""
    by_words: dict[str, tuple[int, FactualClaim]] = {}
    flat = _flat(text)
    for claim in entries:
        words = _flat(claim["words"])
        at = flat.find(words) if words else -1
        if at < 0:
            return [], f"{clip_words(claim['words'], 12)!r} does not stand in the assistant's text"
        evidence = None if claim["label"] == "not_factual" else claim["evidence"]
        factual_claim = FactualClaim(
            words=" ".join(claim["words"].split()), label=claim["label"], evidence=evidence
        )
        by_words.setdefault(words, (at, factual_claim))
    return [
        factual_claim for _, factual_claim in sorted(by_words.values(), key=lambda one: one[0])
    ], None


def _flat(text: str) -> str:
    """Remove what a copy may change: case, white space, quotation marks and markup at the ends."""
    text = re.sub(r"[*_`]+", "", text).translate(_QUOTES)
    return " ".join(text.casefold().split()).strip("\"' .…")


_QUOTES = str.maketrans({"’": "'", "‘": "'", "“": '"', "”": '"'})
