"""The ledger: a running summary of turns that the judge is no longer shown.

The judge model writes it itself, step by step: the ledger of turns 1..j comes from the ledger of turns
1..i and the turns between, asked on the same trunk on which those turns were scored, so it costs one
short question and its own text. It is bounded; a small model fills text until its limit, so a ledger
that was cut is kept up to its last whole line, says so to its reader and leaves a remark in the record.
"""

from __future__ import annotations

from collections.abc import Sequence

from curate.dialogue import Turn, split_thinking
from curate.engines.base import Request
from curate.judging.session import Failure, Page, Session, fault_of
from curate.records import UnscoredReason

CUT_MARK = "(The ledger was cut here.)"
_TOKENS_A_WORD = 2  # A cautious ratio, so that a model that obeys the word limit is not cut.


class Ledger:
    """The ledger of one dialogue, growing from its start.

    Attributes:
        text: what stands in it; None before anything does.
        covered: how many turns (from the dialogue's first) it speaks of.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self.text: str | None = None
        self.covered = 0

    async def cover(self, stop: int, *, shown_stop: int | None = None) -> Failure | None:
        """Grow the ledger to speak of the turns before index `stop`.

        Args:
            stop: index into `dialogue.turns`.
            shown_stop: index after the last turn of the trunk that was asked before, which starts where
                this ledger ends; showing the same turns again makes the engine's cache hit.

        Returns:
            None where it does now, else why not.
        """
        turns = self._session.dialogue.turns
        step = self._session.config.window_turns
        while self.covered < stop:
            # Reuse the last trunk where there is one, else take as many turns as a window has.
            end = stop if shown_stop is not None else min(stop, self.covered + step)
            failure = await self._add(
                turns[self.covered : end], turns[self.covered : shown_stop or end]
            )
            if failure is not None:
                return failure
        return None

    async def _add(self, turns: Sequence[Turn], shown_turns: Sequence[Turn]) -> Failure | None:
        completion = await self._session.ask_with_retries(self._request(turns, shown_turns))
        fault = fault_of(completion)
        if fault is None:
            text = split_thinking(completion.text)[0].strip()
            if not text:
                return Failure(
                    UnscoredReason.BAD_REPLY,
                    f"the ledger of turns up to {turns[-1].number} was empty",
                )
            self.text = self._read(text, turns, cut=completion.finish == "length")
            self.covered += len(turns)
            return None
        if not fault.is_overflow:
            return fault
        if len(shown_turns) > len(turns):
            return await self._add(turns, turns)
        if len(turns) > 1:
            middle = (len(turns) + 1) // 2
            first = await self._add(turns[:middle], turns[:middle])
            return first or await self._add(turns[middle:], turns[middle:])
        number = turns[0].number
        self._session.remark(f"ledger_gap: turn {number}")
        self.text = "\n".join(
            filter(None, [self.text, f"(Turn {number} was too long to be read.)"])
        )
        self.covered += 1
        return None

    def _request(self, turns: Sequence[Turn], shown_turns: Sequence[Turn]) -> Request:
        session = self._session
        previous = session.texts.question("ledger.previous") if self.text else ""
        question = session.texts.question(
            "ledger",
            turn=turns[-1].number,
            previous=previous,
            words=session.config.ledger_max_tokens // _TOKENS_A_WORD,
        )
        return Request(
            session.trunk(Page(tuple(shown_turns), self.text)),
            question,
            max_tokens=session.config.ledger_max_tokens,
            purpose="judge.ledger",
        )

    def _read(self, text: str, turns: Sequence[Turn], *, cut: bool) -> str:
        if not cut:
            return text
        self._session.remark(f"ledger_cut: turn {turns[-1].number}")
        whole = text[: text.rfind("\n")] if "\n" in text else text
        return f"{whole}\n{CUT_MARK}"
