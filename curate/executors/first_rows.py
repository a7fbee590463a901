"""Stopping a stage early when its first rows all fail, instead of after every dialogue has been paid for.

A server that refuses every call, or a model that never answers in the required form, fails the last dialogue as it
failed the first. So if the first rows of a stage all fail for the same reason, and that reason is a model's, the run
ends with the reason and advice. Rows that no model was asked for (a missing role, a fork that is dropped on its
scores) do not count.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from curate.errors import EngineError
from curate.records import DropReason, PreferencePair, StageName, Unscored, UnscoredReason

FIRST_ROWS: Final = 50
"""Number of failed rows after which a stage is stopped."""

WHAT_HELPS: Final[Mapping[str, str]] = {
    UnscoredReason.ENGINE_ERROR: "check the server: its limits, its key, the fields it accepts (`curate doctor`); lower "
    "`in_flight` of the model for fewer calls at once",
    UnscoredReason.LOW_COVERAGE: "the model does not begin its replies with a label: try "
    "chat_template_kwargs: {enable_thinking: false} on the model, judge.thought_tokens: 256, another answer_prefix, "
    "or judge.mode: json and adherence.output_mode: binary",
    UnscoredReason.NO_LOGPROBS: "the server gives no log-probabilities: use judge.mode: json and adherence.output_mode: binary, "
    "which need none",
    UnscoredReason.BAD_REPLY: "the model does not follow the required form: try a larger one, a server that supports JSON schemas, "
    "or chat_template_kwargs: {enable_thinking: false}",
    UnscoredReason.REPLY_CUT: "replies are cut by their token limit: for a model that thinks try chat_template_kwargs: "
    "{enable_thinking: false}, a lower reasoning_effort or judge.thought_tokens: 2000; or a larger limit "
    "(docs/judging.md, docs/adherence.md)",
    UnscoredReason.CONTEXT_OVERFLOW: "prompts do not fit the model's context: set a larger `context`, or use a model that supports it",
}
"""Advice by reason code."""


class FirstRows:
    """Watches the rows of a stage as they are made.

    Args:
        keep_going: never stop the stage.
    """

    def __init__(self, stage: StageName, *, keep_going: bool = False) -> None:
        self.stage = stage
        self._reason = ""
        self._count = 0
        self._is_settled = keep_going

    def see(self, row: Any) -> None:
        """Count a row that was made.

        Raises:
            EngineError: it is the last of the first rows, and all of them failed for the same reason.
        """
        if self._is_settled:
            return
        outcome = _outcome(row)
        if outcome is None:
            return
        reason, detail = outcome
        if not reason or (self._reason and reason != self._reason):
            self._is_settled = True
            return
        self._reason = reason
        self._count += 1
        if self._count == FIRST_ROWS:
            advice = WHAT_HELPS.get(reason, "`curate show` prints the details of a dialogue")
            raise EngineError(
                f"the first {FIRST_ROWS} rows of the stage '{self.stage}' all failed for the same reason: "
                f"{reason}",
                got=f"last error: {detail[:300]}" if detail else None,
                fix=f"{advice}. Then run again with --retry unscored: replies received so far are kept. With --keep-going "
                "(keep_going=True) the stage is never stopped",
            )


def _outcome(row: Any) -> tuple[str, str] | None:
    """Return why a row failed because of a model's answer, with details; an empty reason if it did not fail.

    None if no model was asked.
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
    judged = [pair for pair in pairs if pair.check is not None or pair.source != "none"]
    if not judged:
        return None
    # A missing revision says nothing about the policy's server: there may have been nothing to fix.
    telling = [pair for pair in judged if pair.drop_reason != DropReason.NO_CANDIDATE]
    reasons = {_of_pair(pair) for pair in telling}
    return (reasons.pop(), telling[-1].detail) if len(reasons) == 1 else ("", "")


def _of_pair(pair: PreferencePair) -> str:
    if pair.check is not None and pair.check.unscored is not None:
        return pair.check.unscored
    if pair.drop_reason == "engine_error":  # from the policy or the reviser
        return UnscoredReason.ENGINE_ERROR
    return (
        UnscoredReason.INTERNAL_ERROR
        if pair.drop_reason == DropReason.UNSCORED and pair.check is None
        else ""
    )
