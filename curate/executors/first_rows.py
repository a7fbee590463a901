"""A stage that comes to nothing is stopped at its start, not after every dialogue has been paid for.

A server that refuses every call, or a model that never answers in the form asked for, fails the last dialogue as
it failed the first. So where the first rows of a stage are all without a result, for one and the same
reason that lies with a model, the run ends with that reason and what helps. Rows that no model was
asked for (a missing role, a fork that is dropped on its scores) say nothing, either way.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from curate.errors import EngineError
from curate.records import DropReason, PreferencePair, StageName, Unscored, UnscoredReason

FIRST_ROWS: Final = 50
"""After so many rows, all without a result for one reason, a stage is given up."""

WHAT_HELPS: Final[Mapping[str, str]] = {
    UnscoredReason.ENGINE_ERROR: "look at the server: its limits, its key, the fields it takes (`curate doctor`); fewer calls "
    "at once are `in_flight` of the model",
    UnscoredReason.LOW_COVERAGE: "the model begins its replies with something else than the labels: "
    "chat_template_kwargs: {enable_thinking: false} on the model, judge.thought_tokens: 256, another answer_prefix, "
    "or judge.mode: json and adherence.output_mode: binary",
    UnscoredReason.NO_LOGPROBS: "the server gives no log-probabilities: judge.mode: json and adherence.output_mode: binary "
    "need none",
    UnscoredReason.BAD_REPLY: "the model does not keep to the form: a larger one, a server that binds replies to a JSON schema, "
    "or chat_template_kwargs: {enable_thinking: false}",
    UnscoredReason.REPLY_CUT: "replies are cut by their token limit: on a model that thinks chat_template_kwargs: "
    "{enable_thinking: false}, a lower reasoning_effort or judge.thought_tokens: 2000; or a larger limit "
    "(docs/judging.md, docs/adherence.md)",
    UnscoredReason.CONTEXT_OVERFLOW: "prompts do not fit the model's context: a larger `context`, or a model that has it",
}
"""By the reason for which a model's answer cannot be used."""


class FirstRows:
    """Watches the rows of a stage as they are made.

    Args:
        keep_going: never give up.
    """

    def __init__(self, stage: StageName, *, keep_going: bool = False) -> None:
        self.stage = stage
        self._reason = ""
        self._count = 0
        self._is_settled = keep_going

    def see(self, row: Any) -> None:
        """Take note of a row that was made.

        Raises:
            EngineError: it is the last of the first rows, and all came to nothing for one reason.
        """
        if self._is_settled:
            return
        found = _outcome(row)
        if found is None:
            return
        reason, detail = found
        if not reason or (self._reason and reason != self._reason):
            self._is_settled = True
            return
        self._reason = reason
        self._count += 1
        if self._count == FIRST_ROWS:
            advice = WHAT_HELPS.get(reason, "`curate show` prints what became of one dialogue")
            raise EngineError(
                f"the first {FIRST_ROWS} rows of the stage '{self.stage}' all came to nothing for one reason: "
                f"{reason}",
                got=f"lastly: {detail[:300]}" if detail else None,
                fix=f"{advice}. Then run again with --retry unscored: what was received is kept. --keep-going "
                "(keep_going=True) goes through all rows all the same",
            )


def _outcome(row: Any) -> tuple[str, str] | None:
    """Why a row came to nothing for want of a model's answer, and the details; an empty reason where it did not.

    None where no model was asked for it.
    """
    if isinstance(row, Unscored):
        was_asked = row.requests > 0 or row.reason == UnscoredReason.INTERNAL_ERROR
        return (row.reason, row.detail) if was_asked else None
    if isinstance(row, PreferencePair):
        return _of_pairs([row])
    if isinstance(row, Sequence):
        return _of_pairs([pair for pair in row if isinstance(pair, PreferencePair)])
    return "", ""


def _of_pairs(pairs: Sequence[PreferencePair]) -> tuple[str, str] | None:
    asked = [pair for pair in pairs if pair.check is not None or pair.source != "none"]
    if not asked:
        return None
    # A revision that was not written because nothing is to be fixed tells nothing of the policy's server.
    told = [pair for pair in asked if pair.drop_reason != DropReason.NO_CANDIDATE]
    reasons = {_of_pair(pair) for pair in told}
    return (reasons.pop(), told[-1].detail) if len(reasons) == 1 else ("", "")


def _of_pair(pair: PreferencePair) -> str:
    if pair.check is not None and pair.check.unscored is not None:
        return pair.check.unscored
    if pair.drop_reason == "engine_error":  # of who writes candidates: the policy, the reviser
        return UnscoredReason.ENGINE_ERROR
    return (
        UnscoredReason.INTERNAL_ERROR
        if pair.drop_reason == DropReason.UNSCORED and pair.check is None
        else ""
    )
