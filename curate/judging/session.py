"""The types that both scoring modes share: the questions of one prompt, and the reading of its reply.

A `Scope` says what one trunk is asked for, a `PageReading` holds what was read, a `Failure` why nothing
was. `Session` is one dialogue being judged: it counts requests and gathers remarks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from curate.dialogue import Dialogue, Turn, split_thinking
from curate.engines.base import Ask, Completion, Request
from curate.engines.layout import Trunk, nested, trunk
from curate.engines.structured import only_object
from curate.engines.thinking import ask_with_thoughts
from curate.errors import UsageError
from curate.judging.config import RubricConfig
from curate.judging.rubric_prompts import RubricTexts, resolve_texts
from curate.judging.verdict import rule_verdict
from curate.records import (
    ConversationLevel,
    StageName,
    TurnScores,
    Unscored,
    UnscoredReason,
    UnscoredTurn,
    Verdict,
)

STAGE: Final = StageName.JUDGE


@dataclass(frozen=True, slots=True)
class Page:
    """The part of a dialogue that a prompt shows.

    Attributes:
        ledger: what is known of the turns before them; None where there are none.
    """

    turns: tuple[Turn, ...]
    ledger: str | None = None


@dataclass(frozen=True, slots=True)
class Scope:
    """The questions about one page.

    Attributes:
        turns: numbers of the turns to score.
        weakest: turns to choose the weakest from; empty where that is not asked.
        scored_before: turns scored before, whose scores the verdict must agree with.
        is_final: True where the verdict is the record's, so that a mismatch may be asked again.
    """

    turns: tuple[int, ...] = ()
    conversation: bool = False
    verdict: bool = False
    weakest: tuple[int, ...] = ()
    scored_before: tuple[TurnScores, ...] = ()
    is_final: bool = False


@dataclass(frozen=True, slots=True)
class PageReading:
    """The answers read from one page; those not asked for, or not readable, are None or empty.

    Attributes:
        turns: scored turns, ascending.
        unscored: turns asked for whose scores could not be read.
        conversation: None where not asked, or where one of the three could not be read.
        weakest: the judge's own; meaningful where `has_weakest`.
        has_weakest: the judge was asked for the weakest turn, and the answer could be read.
        weakest_probabilities: turn number or `none` to probability.
        basis: decision basis, one sentence.
    """

    turns: tuple[TurnScores, ...] = ()
    unscored: tuple[UnscoredTurn, ...] = ()
    conversation: ConversationLevel | None = None
    conversation_fault: Failure | None = None
    verdict: Verdict | None = None
    weakest: int | None = None
    has_weakest: bool = False
    weakest_probabilities: dict[str, float] = field(default_factory=dict)
    basis: str = ""


@dataclass(frozen=True, slots=True)
class Failure:
    """The reason why something could not be read; `reason` is a reason code of `Unscored`."""

    reason: str
    detail: str = ""

    @property
    def is_overflow(self) -> bool:
        """True when a shorter prompt might succeed."""
        return self.reason == UnscoredReason.CONTEXT_OVERFLOW

    def unscored(self, dialogue: Dialogue, stage: StageName, requests: int = 0) -> Unscored:
        """Return the record of a dialogue that a stage could not score, after so many requests."""
        return Unscored.of(dialogue, stage, self.reason, self.detail, requests)


class BadReplyError(ValueError):
    """A reply that is not what was asked for; the message tells the judge what to fix."""


CUT_REPLY = "it was longer than allowed; write the object only"
"""The problem of a reply that was cut at its limit, as the judge reads it when it is asked again."""


def reply_object(text: str) -> dict[str, Any]:
    """Return the one object of a reply, without its thinking and the prose around it.

    Raises:
        BadReplyError: there is none.
    """
    try:
        return only_object(split_thinking(text)[0])
    except ValueError as error:
        raise BadReplyError(str(error)) from error


def mismatch_of(reading: PageReading, scope: Scope) -> Verdict | None:
    """Return the verdict that the scores give, where the judge's own is the record's and differs; else None."""
    scored = (*scope.scored_before, *reading.turns)
    if not scope.is_final or reading.verdict is None or reading.conversation is None or not scored:
        return None
    by_rule = rule_verdict(scored, reading.conversation)
    return None if by_rule == reading.verdict else by_rule


def fault_of(completion: Completion) -> Failure | None:
    """Return the failure a completion stands for, or None where there is a reply (which may be cut)."""
    fault = completion.fault
    if fault is not None:
        is_overflow = fault.reason == UnscoredReason.CONTEXT_OVERFLOW
        detail = fault.detail if is_overflow else f"{fault.kind}: {fault.detail}".rstrip(": ")
        return Failure(fault.reason, detail)
    if completion.finish == "error":
        return Failure(
            UnscoredReason.ENGINE_ERROR, "the engine reported an error without saying which"
        )
    return None


@dataclass(slots=True)
class Session:
    """One dialogue being judged. Made by `open_session`."""

    dialogue: Dialogue
    config: RubricConfig
    texts: RubricTexts
    ask_model: Ask
    requests: int = 0
    thoughts: Counter[str] = field(default_factory=Counter)
    remarks: list[str] = field(default_factory=list)

    async def ask(self, requests: Sequence[Request]) -> list[Completion]:
        """Ask and count, with the room to think that the config gives."""
        if not self.config.thought_tokens:
            return await self._send(requests)
        completions, counts = await ask_with_thoughts(
            self._send, requests, self.config.thought_tokens
        )
        self.thoughts.update(counts)
        return completions

    async def _send(self, requests: Sequence[Request]) -> list[Completion]:
        self.requests += len(requests)
        return await self.ask_model(requests)

    async def ask_with_retries(self, request: Request) -> Completion:
        """Ask again, up to `retries` times, while the reply is empty; the last one is returned."""
        for sample in range(self.config.retries + 1):
            (completion,) = await self.ask([replace(request, sample=sample)])
            if fault_of(completion) is not None or split_thinking(completion.text)[0].strip():
                break
        return completion

    def trunk(self, page: Page) -> Trunk:
        """Return the shared start of every question about a page."""
        return trunk(
            self.texts.rubric,
            self.dialogue,
            page.turns,
            ledger=page.ledger,
            show_reasoning=self.config.show_reasoning,
        )

    def nested_trunks(self, page: Page) -> dict[int, Trunk]:
        """Return, by the number of each of a page's turns, the shared start of questions that end with it."""
        trunks = nested(
            self.trunk(replace(page, turns=())),
            page.turns,
            show_reasoning=self.config.show_reasoning,
        )
        return {turn.number: part for turn, part in zip(page.turns, trunks, strict=True)}

    def remark(self, text: str) -> None:
        """Note, once, something a reader of the record should know."""
        if text not in self.remarks:
            self.remarks.append(text)

    def unscored(self, failure: Failure) -> Unscored:
        """Return the record of a dialogue that could not be judged."""
        return failure.unscored(self.dialogue, STAGE, self.requests)


def open_session(dialogue: Dialogue, ask: Ask, config: RubricConfig) -> Session:
    """Begin with a dialogue.

    Raises:
        UsageError: the config's scoring mode is still `auto`.
    """
    if config.mode == "auto":
        raise UsageError(
            "the scoring mode is not resolved", got="auto", fix="call resolve_mode before a run"
        )
    return Session(dialogue, config, resolve_texts(config), ask)


def refuse(dialogue: Dialogue, config: RubricConfig) -> Failure | None:
    """Return why a dialogue cannot be judged at all, before any call; None where it can."""
    if not any(turn.in_rubric for turn in dialogue.turns):
        return Failure(
            UnscoredReason.NO_ASSISTANT_TURN, "no turn has both a user and an assistant message"
        )
    if config.missing_scenario == "error" and not (dialogue.scenario or "").strip():
        return Failure(
            UnscoredReason.MISSING_SCENARIO,
            "set the recipe's `scenario`, or judge.missing_scenario: skip",
        )
    return None


def shared_reason(unscored: Sequence[UnscoredTurn], turns_to_score: int) -> Failure:
    """Return why a dialogue with unscored turns is unscored: their reason where they share one."""
    reasons = {turn.reason for turn in unscored}
    reason = reasons.pop() if len(reasons) == 1 else UnscoredReason.UNSCORED_TURNS
    details = "; ".join(f"turn {turn.turn}: {turn.detail or turn.reason}" for turn in unscored[:5])
    return Failure(reason, f"{len(unscored)} of {turns_to_score} turns unscored: {details}")


def clip_words(text: str, words: int) -> str:
    """Cut a text to at most `words` words on one line; an ellipsis marks what was left out."""
    parts = text.split()
    return " ".join(parts) if len(parts) <= words else " ".join(parts[:words]) + " …"
