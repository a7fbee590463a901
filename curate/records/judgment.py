"""What the rubric judge says of a dialogue."""

from __future__ import annotations

from enum import StrEnum
from typing import Any, Literal, get_args

from pydantic import Field

from curate.dialogue import Dialogue, Frozen
from curate.notebook import cell, element, judgment_parts
from curate.records.reasons import UnscoredReason

TURN_DIMENSIONS = ("context_use", "helpfulness", "safety")
CONVERSATION_DIMENSIONS = ("coherence", "task_completion", "repair_handling")

Verdict = Literal["excellent", "good", "borderline", "poor"]
VERDICTS: tuple[Verdict, ...] = tuple(reversed(get_args(Verdict)))
"""From worst to best: `verdict >= 'good'` compares in this order."""
ScoringMode = Literal["json", "tokens"]
ConversationScoreValue = int | Literal["n/a"]


class StageName(StrEnum):
    """The stages that make rows, as they are called in run folders, manifests and messages."""

    JUDGE = "judge"
    ADHERENCE = "adherence"
    PERSONA = "persona"
    METRICS = "metrics"
    FACTUALITY = "factuality"
    FORK = "fork"
    NATURAL = "natural"


ScoringStage = Literal["judge", "adherence", "metrics", "factuality"]
"""Those of them that give a dialogue scores, as the score table's columns name them."""


SCORING = (
    StageName.JUDGE,
    StageName.ADHERENCE,
    StageName.METRICS,
    StageName.FACTUALITY,
)
"""The stages whose rows are scores of dialogues; the others check the judge, and make or verify pairs."""


class JudgeIdentity(Frozen):
    """All that determines a score. Two identities never share a column without a flag."""

    engine: str
    model: str
    revision: str = ""
    quantisation: str = ""
    mode: str = Field("", description="The resolved scoring mode.")
    prompt_version: str = ""
    sampling: dict[str, Any] = Field(default_factory=dict)

    def calibrated(self, name: str) -> JudgeIdentity:
        """The identity of scores that a calibration was applied to: they do not compare with the judge's own."""
        return self.model_copy(update={"sampling": self.sampling | {_CALIBRATION: name}})

    def uncalibrated(self) -> JudgeIdentity:
        """The identity of the judge itself, whatever was made of its scores."""
        kept = {key: value for key, value in self.sampling.items() if key != _CALIBRATION}
        return self.model_copy(update={"sampling": kept})


_CALIBRATION = "calibration"
"""Key of an identity's `sampling` that names the calibration."""


class Unscored(Frozen):
    """A dialogue that a stage could not score, and why. Fails every filter."""

    kind: Literal["unscored"] = "unscored"
    dialogue_id: str
    content_hash: str
    stage: StageName
    reason: str = Field(
        description=" ".join(f"`{reason}`: {reason.meaning}." for reason in UnscoredReason)
    )
    detail: str = ""
    requests: int = Field(0, description="Calls made, cached ones included.")

    @classmethod
    def of(
        cls, dialogue: Dialogue, stage: StageName, reason: str, detail: str = "", requests: int = 0
    ) -> Unscored:
        """Why a stage has no score for a dialogue."""
        return cls(
            dialogue_id=dialogue.id,
            content_hash=dialogue.content_hash,
            stage=stage,
            reason=reason,
            detail=detail,
            requests=requests,
        )


class WholeScore(Frozen):
    """A score of a dialogue that has it in all its turns, or not at all."""

    @property
    def missing_turns(self) -> frozenset[int]:
        """Numbers of the turns without a score: none."""
        return frozenset()

    @property
    def scored_share(self) -> float:
        """Share of the turns to be scored that have a score."""
        return 1.0


class UnscoredTurn(Frozen):
    """A turn without a score inside a dialogue that has others."""

    turn: int
    reason: str
    detail: str = ""


class LabelReading(Frozen):
    """What a first-token distribution, or several sampled replies, say about a score.

    `probabilities` are over the labels seen, renormalised; `coverage` is their share of the whole mass, or the share
    of the samples that could be used.
    """

    mean: float | None = Field(None, description="Expectation over the scale, n/a left out.")
    spread: float | None = Field(None, description="Standard deviation over the scale.")
    coverage: float
    probabilities: dict[str, float] = Field(default_factory=dict)


class RubricScores(Frozen):
    """The three turn scores, 1 (worst) to 5."""

    context_use: int = Field(ge=1, le=5)
    helpfulness: int = Field(ge=1, le=5)
    safety: int = Field(ge=1, le=5)


class TurnScores(Frozen):
    """One scored assistant turn, in the card's form."""

    turn: int
    role: Literal["assistant"] = "assistant"
    scores: RubricScores = Field(description="Calibrated levels where there is a calibration.")
    digits: RubricScores | None = Field(
        None, description="What the judge said, where `scores` are calibrated levels."
    )
    issues: tuple[str, ...] = ()
    readings: dict[str, LabelReading] = Field(
        default_factory=dict, description="Per dimension, in scoring mode `tokens` or from samples."
    )


class ConversationScore(Frozen):
    """One conversation-level score, 1-5 or n/a, with a short note."""

    score: ConversationScoreValue = Field(
        description="A calibrated level where there is a calibration."
    )
    digit: ConversationScoreValue | None = Field(
        None, description="What the judge said, where `score` is a calibrated level."
    )
    note: str = ""
    reading: LabelReading | None = None


class ConversationLevel(Frozen):
    """The three conversation-level scores. Coherence is never n/a."""

    coherence: ConversationScore
    task_completion: ConversationScore
    repair_handling: ConversationScore


class WindowOpinion(Frozen):
    """What the judge said about one window of a long dialogue; evidence, not a mismatch."""

    first_turn: int
    last_turn: int
    verdict: Verdict | None = None
    weakest_turn: int | None = None


class JudgeOpinion(Frozen):
    """What one judge of several made of a dialogue: evidence beside the judgment that was made of all."""

    judge: str = Field(description="Engine, model and revision.")
    counts: bool = Field(
        True,
        description="The judgment goes by it; of a cascade that is one of the two.",
    )
    verdict: Verdict | None = Field(None, description="Null where it gave no scores.")
    weakest_turn: int | None = None
    reason: str = Field("", description="Why it gave no scores.")
    doubt: float | None = Field(
        None, description="Of a cascade's first judge: how unsure its readings are, 0-1."
    )
    scores: dict[str, float] = Field(
        default_factory=dict,
        description="Its expectations, or its digits without them, by dimension; of turn 3 by "
        "`3.helpfulness`. Of role adherence by turn, or `conversation`; of metrics by name, 0-1. What is n/a is left out.",
    )
    requests: int = 0
    prompt_tokens: int = Field(0, description="Of its replies, kept ones included.")
    cached_tokens: int = 0
    completion_tokens: int = 0


class Judgment(Frozen):
    """The multi-turn rubric judge's record of one dialogue.

    `verdict` and `weakest_turn` are computed from the scores; what the judge itself said stands beside.
    """

    kind: Literal["judgment"] = "judgment"
    dialogue_id: str
    content_hash: str
    identity: JudgeIdentity
    per_turn: tuple[TurnScores, ...]
    conversation_level: ConversationLevel
    verdict: Verdict
    judge_verdict: Verdict | None = None
    verdict_mismatch: bool | None = Field(None, description="None where the judge gave no verdict.")
    decision_basis: str = ""
    weakest_turn: int | None
    judge_weakest_turn: int | None = None
    weakest_mismatch: bool | None = None
    weakest_probabilities: dict[str, float] = Field(
        default_factory=dict,
        description="Turn number (or 'none') to probability, mode `tokens` or from samples.",
    )
    unscored_turns: tuple[UnscoredTurn, ...] = ()
    windows: tuple[WindowOpinion, ...] = ()
    overlap_disagreement: float | None = Field(
        None, description="Mean absolute difference of scores given twice by overlapping windows."
    )
    neutralised: int = Field(0, description="Strings in the data that were defused in the prompt.")
    remarks: tuple[str, ...] = Field(
        (),
        description="How this judging departed from the plain way, e.g. `text_lost: reply_cut`, "
        "`ledger_cut: turn 4`, `split: context_overflow`, `thoughts_cut: 3`, `thoughts_missing: 14`.",
    )
    requests: int = 0
    opinions: tuple[JudgeOpinion, ...] = Field(
        (), description="Of each judge that was asked, where there are several (a jury, a cascade)."
    )
    disagreement: float | None = Field(
        None,
        description="Mean absolute difference between two judges' scores, over all pairs of judges and "
        "all scores that both gave, 0-4.",
    )

    @property
    def card_form(self) -> dict[str, Any]:
        """The judgment in the judge card's own JSON form, and nothing else."""
        names = ("per_turn", "conversation_level", "verdict", "decision_basis", "weakest_turn")
        shown: dict[str, Any] = {
            "per_turn": {"__all__": {"turn", "role", "scores", "issues"}},
            "conversation_level": {name: {"score", "note"} for name in CONVERSATION_DIMENSIONS},
        }
        form = self.model_dump(mode="json", include={name: shown.get(name, True) for name in names})
        return {name: form[name] for name in names}

    def _repr_html_(self) -> str:
        title = element("h4", f"Judgment of {self.dialogue_id}")
        return cell(title, *judgment_parts(self.model_dump()))

    @property
    def missing_turns(self) -> frozenset[int]:
        """Numbers of the turns without a score."""
        return frozenset(turn.turn for turn in self.unscored_turns)

    @property
    def scored_share(self) -> float:
        """Share of the turns to be scored that have a score, 0-1."""
        return len(self.per_turn) / (len(self.per_turn) + len(self.missing_turns) or 1)
