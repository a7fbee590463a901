"""Role adherence by a judge model: one question an assistant turn.

The judge of a turn sees the role, the turns before it and the turn itself, never a later one. The
prompts of a dialogue are therefore nested: each begins with all of the one before (but for its closing
fence), and they are sent together, shortest first, so that an engine with a prefix cache reads every
turn once. The question stands behind the dialogue.

Rendering and reading are pure; `score_adherence` is the one coroutine. A turn whose reply cannot be had
or read is unscored with a reason, never 0.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources

from curate.adherence.config import AdherenceConfig, resolve_output_mode
from curate.adherence.session import NoSession, aggregate
from curate.dialogue import Dialogue
from curate.engines.base import Ask, Completion, Request
from curate.engines.labels import read_labels
from curate.engines.layout import DIALOGUE_CLOSE, Trunk, render_turns, trunk
from curate.records import AdherenceScore, AdherenceTurn, JudgeIdentity, Unscored

__all__ = [
    "PROMPT_VERSION",
    "nested_trunks",
    "read_binary",
    "read_continuous",
    "resolve_output_mode",
    "score_adherence",
    "turn_request",
]

STAGE = "adherence"
LABELS = ("yes", "Yes", "YES", "no", "No", "NO")
"""Spellings asked for by name, for engines that look up exact labels; others are found in the top-k."""

_PROMPT_FILES = ("constructive", "restrictive", "question", "retry")
_THINKING = re.compile(r"<think(?:ing)?>.*?</think(?:ing)?>", re.DOTALL | re.IGNORECASE)
# Spelt out, since re.IGNORECASE would let the long s of "yeſ" pass for an s.
_YES_NO = r"([Yy][Ee][Ss]|[Nn][Oo])"
# The first word decides where the reply ends or pauses after it: "No issues found" is not a no.
_OPENING = re.compile(rf"[\W_]*{_YES_NO}\b[*_`\"')\]]*\s*(?:$|[\n.,;:!(\[\u2013\u2014])")
_CLOSING = re.compile(rf"\b{_YES_NO}[\W_]*$")
_WORD = re.compile(rf"\b{_YES_NO}\b")


@cache
def prompt(name: str) -> str:
    """Text of one prompt file."""
    return resources.files("curate.adherence").joinpath("prompts", f"{name}.md").read_text("utf-8")


def _version() -> str:
    digest = hashlib.blake2b(digest_size=4)
    for name in _PROMPT_FILES:
        digest.update(prompt(name).encode() + b"\0")
    return f"adherence-1+{digest.hexdigest()}"


PROMPT_VERSION = _version()
"""Version of the prompts and a hash of their text; part of every score's identity."""


async def score_adherence(
    dialogue: Dialogue, ask: Ask, config: AdherenceConfig, identity: JudgeIdentity
) -> AdherenceScore | Unscored:
    """Score how well every assistant turn of a dialogue keeps to its role.

    Turn 0 (assistant messages before any user message) is scored; a turn without an assistant message
    is shown in later prompts and not scored.

    Args:
        dialogue: needs a role definition and an assistant turn.
        ask: the judge. All turns are asked in one call, in order; bad replies again in further calls.
        config: `output_mode` is the resolved one, see `resolve_output_mode`.
        identity: goes into the record.

    Returns:
        The score, or `Unscored` with reason `missing_role` (`skipped` where the config says so),
        `no_assistant_turn`, `weights_mismatch`, or the reason its turns have no score (`bad_reply`,
        `reply_cut`, `low_coverage`, `no_logprobs`, `context_overflow`, `engine_error`, or `unscored_turns`
        where these differ).
    """
    if not (dialogue.role_definition or "").strip():
        skip = config.missing_role == "skip"
        detail = "the dialogue has no role definition" + (
            ", and missing_role is skip" if skip else ""
        )
        return _unscored(dialogue, "skipped" if skip else "missing_role", detail)
    turns = [turn for turn in dialogue.turns if turn.has_assistant]
    if not turns or (config.weights is not None and len(config.weights) != len(turns)):
        # Nothing the judge could say would give a session score, so it is not asked.
        refusal = aggregate([AdherenceTurn(turn=turn.number) for turn in turns], config)
        assert isinstance(refusal, NoSession)
        return _unscored(dialogue, refusal.reason, refusal.detail)
    trunks = nested_trunks(dialogue, config)
    answers, requests = await _ask_turns(trunks, ask, config)
    per_turn = tuple(
        AdherenceTurn(
            turn=turn.number,
            score=answer.score,
            adherent=answer.adherent,
            coverage=answer.coverage,
            unscored=answer.reason,
        )
        for turn, answer in zip(turns, answers, strict=True)
    )
    session = aggregate(per_turn, config)
    if isinstance(session, NoSession):
        said = next((answer.detail for answer in answers if answer.detail), "")
        detail = f"{session.detail}; {said}" if said else session.detail
        return _unscored(dialogue, session.reason, detail, requests)
    return AdherenceScore(
        dialogue_id=dialogue.id,
        content_hash=dialogue.content_hash,
        identity=identity,
        scoring_method=config.scoring_method,
        output_mode=config.output_mode,
        evaluation_granularity=config.evaluation_granularity,
        definition=config.definition,
        per_turn=per_turn,
        session_score=session.score,
        interval=session.interval,
        interval_method=session.interval_method,
        adherent=session.adherent,
        neutralised=trunks[-1].neutralised,
        requests=requests,
    )


@dataclass(frozen=True, slots=True)
class Answer:
    """What was read from one reply: a score in [0, 1], or a reason code and its particulars."""

    score: float | None = None
    adherent: bool | None = None
    coverage: float | None = None
    reason: str | None = None
    detail: str = ""


def turn_request(on: Trunk, config: AdherenceConfig, problem: str | None = None) -> Request:
    """The question about the last turn of a trunk.

    Args:
        on: the trunk that ends with this turn.
        config: says in which mode to ask.
        problem: why an earlier reply could not be read; makes this a retry.
    """
    question = prompt("question")
    if problem is not None:
        question += prompt("retry").format(problem=problem)
    continuous = config.output_mode == "continuous"
    return Request(
        messages=on.ask(question),
        max_tokens=1 if continuous else config.max_reply_tokens,
        prefill=config.answer_prefix or "",
        labels=LABELS if continuous else (),
        purpose="adherence.turn" if problem is None else "adherence.retry",
    )


def read_binary(completion: Completion) -> Answer:
    """Read a yes or a no from a reply in words.

    Thinking is dropped. The opening word decides if the reply ends or pauses after it ("YES.", "**No**, …"),
    else the closing word if the reply says nothing to the contrary ("The answer is NO."). Anything else, as
    "No issues found", can mean either and is a bad reply.
    """
    if completion.fault is not None:
        return _fault(completion)
    text = _THINKING.sub("", completion.text).strip()
    words = {word.lower() for word in _WORD.findall(text)}
    opening, closing = _OPENING.match(text), _CLOSING.search(text)
    cut = completion.finish == "length"
    if opening is not None:
        word = opening.group(1).lower()
    elif closing is not None and len(words) == 1 and not cut:
        word = closing.group(1).lower()
    elif cut:
        return Answer(reason="reply_cut", detail=f"it was cut by its token limit: {text[:80]!r}")
    else:
        return Answer(reason="bad_reply", detail=f"it is neither YES nor NO: {text[:80]!r}")
    return Answer(score=float(word == "yes"), adherent=word == "yes")


def read_continuous(completion: Completion, config: AdherenceConfig) -> Answer:
    """Read P(yes) / (P(yes) + P(no)) from the first token's distribution (the paper's equation 2).

    The mass of all spellings of each word is added by log-sum-exp. `coverage` is the share of the whole mass
    on both words; under `min_coverage`, or with neither word seen, `on_missing` decides. A 0.5 given for
    want of evidence counts as neither adherent nor not, so it never satisfies strict mode.
    """
    if completion.fault is not None:
        return _fault(completion)
    if not completion.first_token:
        return Answer(reason="no_logprobs", detail="the reply carries no log-probabilities")
    mass = read_labels(completion, ("yes", "no"), ignore_case=True)
    if not mass.logprobs or mass.coverage < config.min_coverage:
        if config.on_missing == "half":
            return Answer(score=0.5, coverage=mass.coverage)
        return Answer(
            reason="low_coverage",
            coverage=mass.coverage,
            detail=f"yes and no have {mass.coverage:.2g} of the first token's mass, "
            f"which opens with {completion.first_token[0][0]!r}; see answer_prefix and min_coverage",
        )
    score = min(1.0, mass.probabilities.get("yes", 0.0))
    return Answer(score=score, adherent=score >= config.turn_threshold, coverage=mass.coverage)


async def _ask_turns(
    trunks: list[Trunk], ask: Ask, config: AdherenceConfig
) -> tuple[list[Answer], int]:
    """Ask about every turn, then again about those whose reply cannot be read; answers in order."""
    answers: list[Answer] = [Answer()] * len(trunks)
    problems: Mapping[int, str | None] = dict.fromkeys(range(len(trunks)))
    sent = 0
    for _ in range(config.retries + 1):
        requests = [
            turn_request(trunks[index], config, problem) for index, problem in problems.items()
        ]
        sent += len(requests)
        for index, completion in zip(problems, await ask(requests), strict=True):
            answers[index] = (
                read_binary(completion)
                if config.output_mode == "binary"
                else read_continuous(completion, config)
            )
        # Only words can be put differently on being asked again; a distribution stays what it is.
        problems = {
            index: _problem(answers[index])
            for index in problems
            if answers[index].reason in ("bad_reply", "reply_cut")
        }
        if not problems:
            break
    return answers, sent


def nested_trunks(dialogue: Dialogue, config: AdherenceConfig) -> list[Trunk]:
    """The trunk that ends with each assistant turn, in order; what `layout.trunk` gives for it.

    Every turn is rendered once. Laying out each trunk by itself would render a dialogue of n turns
    n (n + 1) / 2 turns over, which costs more than all else here together.
    """
    bare = trunk(prompt(config.definition), dialogue, (), show_scenario=False)
    text, neutralised = bare.text.removesuffix(DIALOGUE_CLOSE), bare.neutralised
    trunks = []
    for turn in dialogue.turns:
        body = render_turns((turn,), show_reasoning=config.show_reasoning)
        text, neutralised = text + body.text, neutralised + body.count
        if turn.has_assistant:
            trunks.append(Trunk(text + DIALOGUE_CLOSE, neutralised))
    return trunks


def _problem(answer: Answer) -> str:
    # The reply itself is not echoed: it is untrusted text, and a small model copies what it is shown.
    return "it was too long" if answer.reason == "reply_cut" else "it was neither YES nor NO"


def _fault(completion: Completion) -> Answer:
    assert completion.fault is not None
    fault = completion.fault
    reason = "context_overflow" if fault.kind == "context_overflow" else "engine_error"
    return Answer(reason=reason, detail=f"{fault.kind}: {fault.detail}".rstrip(": "))


def _unscored(dialogue: Dialogue, reason: str, detail: str, requests: int = 0) -> Unscored:
    return Unscored(
        dialogue_id=dialogue.id,
        content_hash=dialogue.content_hash,
        stage=STAGE,
        reason=reason,
        detail=detail,
        requests=requests,
    )
