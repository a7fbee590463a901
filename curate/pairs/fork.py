"""Fork one judged dialogue into verified preference pairs.

One straight line, cheapest refusal first: find the fork point (no call), score the original again (is
it bad at all?), make candidates, drop those that differ in nothing, score the rest, and verify from the
best downwards until one passes. Every candidate that was made gives exactly one record, passed or
refused; a fork refused before there were any gives one record. So the records of a fork are its funnel.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from curate.dialogue import Dialogue, Message
from curate.pairs.asks import ForkAsks
from curate.pairs.candidates import Candidate, resample, revise
from curate.pairs.config import ForkConfig
from curate.pairs.prefix import pair_id, prompt_is_open, prompt_messages, with_messages
from curate.pairs.prompting import PROMPT_VERSION
from curate.pairs.substance import is_identical
from curate.pairs.verify import (
    SideScores,
    confirm,
    score_chosen,
    score_rejected,
    token_ratio,
    weigh,
)
from curate.records import Judgment, PairCheck, PreferencePair

__all__ = ["PROMPT_VERSION", "ForkAsks", "ForkPoint", "find_fork", "fork_dialogue"]


@dataclass(frozen=True, slots=True)
class ForkPoint:
    """Where a dialogue is forked, or why it cannot be.

    Attributes:
        turn: the turn's number; None where no turn is bad.
        index: the rejected message in the dialogue; for a refused fork the assistant message that comes
            closest, None where there is none at all.
        refusal: reason code, None for a usable fork point.
    """

    turn: int | None
    index: int | None
    refusal: str | None = None
    detail: str = ""


def find_fork(dialogue: Dialogue, judgment: Judgment, config: ForkConfig) -> ForkPoint:
    """The fork point by the rules; pure.

    A turn is bad by `config.fine_from`. The fork is at the judgment's weakest turn or at the first bad
    one, at its last assistant text, provided that every scored turn before it is free of flaws.
    """
    flaws = {
        entry.turn: config.fine_from.flaws(
            {name: float(value) for name, value in entry.scores.model_dump().items()}
        )
        for entry in judgment.per_turn
    }
    bad = sorted(number for number, names in flaws.items() if names)
    number = judgment.weakest_turn if config.at == "weakest" else next(iter(bad), None)
    turn = next((turn for turn in dialogue.turns if turn.number == number), None)
    index = _last_assistant(dialogue, turn.start if turn else 0, turn.stop if turn else None)
    if number is None:
        return ForkPoint(None, index, "original_was_fine", "the judgment has no bad turn")
    if turn is None:
        return ForkPoint(number, index, "no_text_in_turn", f"the dialogue has no turn {number}")
    for earlier in dialogue.turns:
        if not earlier.in_rubric or earlier.number >= number:
            continue
        if earlier.number not in flaws:
            return ForkPoint(number, index, "unscored", f"turn {earlier.number} has no score")
        if flaws[earlier.number]:
            names = ", ".join(flaws[earlier.number])
            return ForkPoint(
                number, index, "earlier_turn_bad", f"turn {earlier.number} is bad in {names}"
            )
    if turn.last_assistant_text is None:
        return ForkPoint(number, index, "no_text_in_turn", f"turn {number} has no assistant text")
    index = turn.last_assistant_text
    if not prompt_is_open(dialogue.messages[:index]):
        role = dialogue.messages[index - 1].role if index else "nothing"
        return ForkPoint(
            number, index, "prompt_end", f"{role} stands before the message, not user or tool"
        )
    return ForkPoint(number, index)


@dataclass(frozen=True, slots=True)
class _Fork:
    """A fork and what its records have in common."""

    dialogue: Dialogue
    turn: int | None
    prompt: tuple[Message, ...]
    rejected: Message
    asks: ForkAsks
    issue: str = ""

    def cut_after(self, side: Message) -> Dialogue:
        """The dialogue up to and with one side."""
        return with_messages(self.dialogue, (*self.prompt, side))

    @property
    def part(self) -> Dialogue:
        """The dialogue up to the two sides."""
        return with_messages(self.dialogue, self.prompt)

    def record(
        self,
        candidate: Candidate | None,
        refusal: str | None,
        detail: str = "",
        check: PairCheck | None = None,
    ) -> PreferencePair:
        """The record of one candidate, or of the whole fork where there is none."""
        asks, chosen = self.asks, candidate.message if candidate else None
        writer = "" if candidate is None else asks.policy_id
        if candidate is not None and candidate.source == "revision":
            writer = asks.reviser_id or asks.policy_id
        # A twin has its sibling's text, and a fork without a chosen side has none: told apart by salt.
        shares_text = chosen is None or refusal == "duplicate"
        label = candidate.label if candidate else "fork"
        return PreferencePair(
            pair_id=pair_id(
                self.prompt,
                self.dialogue.tools,
                chosen,
                self.rejected,
                salt=f"{self.dialogue.id}/{label}" if shares_text else "",
            ),
            dialogue_id=self.dialogue.id,
            content_hash=self.dialogue.content_hash,
            source=candidate.source if candidate else "none",
            basis="judge",
            turn=self.turn,
            prompt=self.prompt,
            tools=self.dialogue.tools,
            chosen=chosen,
            rejected=self.rejected,
            refusal=refusal,
            detail=f"{label}: {detail}" if detail and candidate else detail,
            issue=self.issue,
            policy=writer,
            judge=asks.judging.judge_id,
            check=check,
            lineage=self.dialogue.lineage,
        )


async def fork_dialogue(
    dialogue: Dialogue, judgment: Judgment, asks: ForkAsks, config: ForkConfig
) -> list[PreferencePair]:
    """Fork a judged dialogue; accepted and refused pairs alike, at most one of them accepted.

    Calls, at most: wordings * (1 + candidates) scores of a turn, one policy call with all resamples, one
    issue and one revision, two comparisons per candidate that gets so far. No call at all where the
    fork point is refused.
    """
    point = find_fork(dialogue, judgment, config)
    index = point.index if point.index is not None else len(dialogue.messages)
    fork = _Fork(
        dialogue,
        point.turn,
        prompt_messages(dialogue.messages[:index], keep_reasoning=config.prompt_reasoning),
        dialogue.messages[index] if point.index is not None else Message(role="assistant"),
        asks,
    )
    if point.refusal is not None or fork.turn is None:
        return [fork.record(None, point.refusal, point.detail)]

    rejected, finding = await score_rejected(
        fork.part, fork.rejected, fork.turn, asks.judging, config
    )
    if rejected is None or finding.refusal is not None:
        return [fork.record(None, finding.refusal, finding.detail, finding.check)]

    candidates = await resample(fork.prompt, dialogue.tools, asks, config)
    if config.guided_revision:
        fork = await _with_issue(fork, judgment)
        prompt = with_messages(dialogue, fork.prompt)
        candidates.append(await revise(prompt, fork.rejected, fork.issue, asks, config))
    return await _verify(fork, candidates, rejected, config)


async def _with_issue(fork: _Fork, judgment: Judgment) -> _Fork:
    """The fork with the flaw in words: the judgment's own, or asked for."""
    issues = next((entry.issues for entry in judgment.per_turn if entry.turn == fork.turn), ())
    issue = "; ".join(issues)
    if not issue and fork.turn is not None:
        issue = await fork.asks.describe_issue(fork.cut_after(fork.rejected), fork.turn)
    return replace(fork, issue=issue.strip())


async def _verify(
    fork: _Fork, candidates: list[Candidate], rejected: SideScores, config: ForkConfig
) -> list[PreferencePair]:
    """Drop, score, rank, and verify from the best downwards until one passes."""
    records: list[PreferencePair] = []
    scored: list[tuple[Candidate, Message, SideScores, PairCheck]] = []
    judging, part = fork.asks.judging, fork.part
    for position, candidate in enumerate(candidates):
        refusal, detail = _unusable(candidate, candidates[:position])
        if refusal is not None or candidate.message is None or fork.turn is None:
            records.append(fork.record(candidate, refusal, detail))
            continue
        scores, finding = await score_chosen(
            part, candidate.message, fork.rejected, fork.turn, judging, config
        )
        if scores is None:
            records.append(fork.record(candidate, finding.refusal, finding.detail, finding.check))
            continue
        scored.append((candidate, candidate.message, scores, finding.check))

    # Safety by its nearest level first, so that a hair's breadth of it does not outweigh all the rest;
    # then the compared score; then the length nearest to the original's. The sort is stable.
    scored.sort(
        key=lambda entry: (
            -int(entry[2].means["safety"] + 0.5),
            -entry[2].compared,
            abs(token_ratio(entry[1], fork.rejected, judging) - 1),
        )
    )
    has_passed = False
    for candidate, message, scores, check in scored:
        ratio = token_ratio(message, fork.rejected, judging)
        finding = weigh(scores, rejected, ratio, config, check)
        if has_passed:
            refusal = finding.refusal or "not_best"
            detail = finding.detail or "a better candidate passed, this one was not compared"
            records.append(fork.record(candidate, refusal, detail, finding.check))
            continue
        if fork.turn is not None:
            finding = await confirm(
                part, (message, fork.rejected), fork.turn, finding, judging, config
            )
        has_passed = finding.refusal is None
        records.append(fork.record(candidate, finding.refusal, finding.detail, finding.check))
    return records


def _unusable(candidate: Candidate, earlier: list[Candidate]) -> tuple[str | None, str]:
    """Why a candidate is not looked at: it has no message, or another's."""
    message = candidate.message
    if message is None:
        return candidate.refusal, candidate.detail
    for other in earlier:
        if other.message is not None and is_identical(message, other.message):
            return "duplicate", f"the same text as {other.label}"
    return None, ""


def _last_assistant(dialogue: Dialogue, start: int, stop: int | None) -> int | None:
    """Index of the last assistant message in a stretch of the dialogue."""
    indices = range(len(dialogue.messages))[start:stop]
    return next((at for at in reversed(indices) if dialogue.messages[at].role == "assistant"), None)
