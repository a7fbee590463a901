"""The rubric judge's record of a dialogue, and the records that all judging stages share."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any, Literal, get_args

from pydantic import Field

from curate.dialogue import Dialogue, Frozen
from curate.notebook import cell, element, judgment_parts
from curate.records.reasons import UnscoredReason

TURN_DIMENSIONS = ("context_use", "helpfulness", "safety")
CONVERSATION_DIMENSIONS = ("coherence", "task_completion", "repair_handling")

Verdict = Literal["excellent", "good", "borderline", "poor"]
VERDICTS: tuple[Verdict, ...] = tuple(reversed(get_args(Verdict)))
"""From worst to best: `verdict >= 'good'` compares in this order."""
GOOD_VERDICTS: frozenset[Verdict] = frozenset(("good", "excellent"))
ScoringMode = Literal["json", "tokens"]
ConversationScoreValue = int | Literal["n/a"]
RequestCount = Annotated[
    int, Field(description="Model calls made, including those answered from the cache.")
]
NeutralisedCount = Annotated[
    int,
    Field(
        description="Number of fence markers and special tokens in the data that were escaped in the prompt."
    ),
]


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
    """Everything that determines a score. Scores with different identities do not compare."""

    engine: str = Field(description="Engine that ran the model.")
    model: str = Field(description="Name of the model.")
    revision: str = Field("", description="Revision of the model, such as a commit on the Hub.")
    quantisation: str = Field("", description="Quantisation of the weights.")
    mode: str = Field(
        "",
        description="Scoring mode that was used: `json` or `tokens`; for role adherence `binary` or "
        "`continuous`.",
    )
    prompt_version: str = Field("", description="Version of the prompts.")
    sampling: dict[str, Any] = Field(
        default_factory=dict,
        description="Sampling parameters and other options that change scores.",
    )

    def calibrated(self, name: str) -> JudgeIdentity:
        """Return the identity of scores after a calibration; they do not compare with the judge's own."""
        return self.model_copy(update={"sampling": self.sampling | {_CALIBRATION: name}})

    def uncalibrated(self) -> JudgeIdentity:
        """Return the identity of the judge itself, without a calibration."""
        sampling = {key: value for key, value in self.sampling.items() if key != _CALIBRATION}
        return self.model_copy(update={"sampling": sampling})


FittedTo = Annotated[
    JudgeIdentity, Field(description="The judge it was fitted to; it holds for no other.")
]
_CALIBRATION = "calibration"
"""Key of an identity's `sampling` that names the calibration."""


class DialogueRow(Frozen):
    """A stage's row about one dialogue: its scores, or that it has none."""

    kind: str
    dialogue_id: str = Field(description="Id of the dialogue.")
    content_hash: str = Field(description="Content hash of the dialogue (32 hex digits).")


class Unscored(DialogueRow):
    """A dialogue that a stage could not score, with the reason. It fails every filter."""

    kind: Literal["unscored"] = "unscored"
    stage: StageName = Field(description="The stage that could not score it.")
    reason: str = Field(
        description=" ".join(f"`{reason}`: {reason.meaning}." for reason in UnscoredReason)
    )
    detail: str = Field("", description="Details for people, such as the error.")
    requests: RequestCount = 0

    @classmethod
    def of(
        cls,
        about: Dialogue | DialogueRow,
        stage: StageName,
        reason: str,
        detail: str = "",
        requests: int = 0,
    ) -> Unscored:
        """Return the record of a dialogue that a stage could not score, given itself or another row about it."""
        return cls(
            dialogue_id=about.id if isinstance(about, Dialogue) else about.dialogue_id,
            content_hash=about.content_hash,
            stage=stage,
            reason=reason,
            detail=detail,
            requests=requests,
        )


def unscored_reason(record: Mapping[str, Any]) -> str | None:
    """Return why a stored row of a scoring stage has no score; None where it has one."""
    reason: str | None = record["reason"] if record["kind"] == "unscored" else None
    return reason


class DialogueScore(DialogueRow):
    """A stage's scores of one dialogue; all its turns are covered unless a kind of score says otherwise."""

    identity: JudgeIdentity = Field(
        description="The judge that gave the scores, with everything that determines them."
    )

    @property
    def missing_turns(self) -> frozenset[int]:
        """Return the numbers of the turns without a score."""
        return frozenset()

    @property
    def scored_share(self) -> float:
        """Return the share (0-1) of the assistant turns that have a score."""
        return 1.0


class UnscoredTurn(Frozen):
    """A turn without a score in a dialogue that has others."""

    turn: int = Field(description="Number of the turn.")
    reason: str = Field(description="Reason code, as in `Unscored`.")
    detail: str = Field("", description="Details for people, such as the error.")


class LabelReading(Frozen):
    """A score's distribution over its labels, from the first token's probabilities or from several sampled replies."""

    mean: float | None = Field(None, description="Expected value on the scale, without n/a.")
    spread: float | None = Field(None, description="Standard deviation on the scale, without n/a.")
    coverage: float = Field(
        description="Probability (0-1) of the labels together before renormalising, or the share of the "
        "samples that could be used."
    )
    probabilities: dict[str, float] = Field(
        default_factory=dict, description="Probability of each label seen; they sum to 1."
    )


class RubricScores(Frozen):
    """The three turn scores, 1 (worst) to 5 (best)."""

    context_use: int = Field(ge=1, le=5, description="Use of the context, 1-5.")
    helpfulness: int = Field(ge=1, le=5, description="Helpfulness, 1-5.")
    safety: int = Field(ge=1, le=5, description="Safety, 1-5.")


class TurnScores(Frozen):
    """Scores of one assistant turn, in the judge card's form."""

    turn: int = Field(description="Number of the turn.")
    role: Literal["assistant"] = Field("assistant", description="Always `assistant`.")
    scores: RubricScores = Field(
        description="The scores, 1-5; calibrated levels if there is a calibration."
    )
    digits: RubricScores | None = Field(
        None, description="The judge's own scores, if `scores` are calibrated levels."
    )
    issues: tuple[str, ...] = Field((), description="Problems that the judge found in the turn.")
    readings: dict[str, LabelReading] = Field(
        default_factory=dict,
        description="Distribution by dimension, in scoring mode `tokens` or from samples.",
    )


class ConversationScore(Frozen):
    """One score of the whole conversation, 1-5 or n/a, with a short note."""

    score: ConversationScoreValue = Field(
        description="The score; a calibrated level if there is a calibration."
    )
    digit: ConversationScoreValue | None = Field(
        None, description="The judge's own score, if `score` is a calibrated level."
    )
    note: str = Field("", description="The judge's note about the score.")
    reading: LabelReading | None = Field(
        None, description="Distribution of the score, in scoring mode `tokens` or from samples."
    )


class ConversationLevel(Frozen):
    """The three scores of the whole conversation. Coherence is never n/a."""

    coherence: ConversationScore = Field(description="Coherence over the turns.")
    task_completion: ConversationScore = Field(description="Whether the user's task was completed.")
    repair_handling: ConversationScore = Field(
        description="How misunderstandings and errors were repaired."
    )


class WindowOpinion(Frozen):
    """The judge's verdict on one window of a long dialogue. The dialogue's verdict follows from all scores."""

    first_turn: int = Field(description="First turn of the window.")
    last_turn: int = Field(description="Last turn of the window.")
    verdict: Verdict | None = Field(None, description="The judge's verdict on the window.")
    weakest_turn: int | None = Field(
        None, description="The turn of the window that the judge calls the weakest."
    )


class JudgeOpinion(Frozen):
    """The scores of one judge of a jury or cascade, kept beside the combined judgment."""

    judge: str = Field(description="Engine, model and revision.")
    counts: bool = Field(
        True,
        description="Whether the judgment uses this judge's scores; in a cascade only one of the two "
        "counts.",
    )
    verdict: Verdict | None = Field(
        None, description="Verdict by the rule from this judge's scores; null if it gave none."
    )
    weakest_turn: int | None = Field(None, description="Weakest turn by this judge's scores.")
    reason: str = Field("", description="Reason code, if it gave no scores.")
    doubt: float | None = Field(
        None, description="First judge of a cascade: how unsure it is, 0-1."
    )
    scores: dict[str, float] = Field(
        default_factory=dict,
        description="This judge's expectations (or digits, if there are none) by name: a dimension; "
        "`3.helpfulness` for turn 3; for role adherence the turn or `conversation`; a metric, "
        "scaled to 0-1. n/a is left out.",
    )
    requests: RequestCount = 0
    prompt_tokens: int = Field(
        0, description="Prompt tokens of its replies, including cached replies."
    )
    cached_tokens: int = Field(0, description="Prompt tokens found in the engine's prefix cache.")
    completion_tokens: int = Field(0, description="Tokens generated.")


class Judgment(DialogueScore):
    """The rubric judge's record of one dialogue.

    `verdict` and `weakest_turn` are computed from the scores; the judge's own answers are in `judge_verdict` and
    `judge_weakest_turn`.
    """

    kind: Literal["judgment"] = "judgment"
    per_turn: tuple[TurnScores, ...] = Field(description="Scores of the assistant turns in order.")
    conversation_level: ConversationLevel = Field(description="Scores of the whole conversation.")
    verdict: Verdict = Field(description="Verdict by the verdict rule from the scores.")
    judge_verdict: Verdict | None = Field(None, description="Verdict that the judge gave itself.")
    verdict_mismatch: bool | None = Field(
        None, description="Whether the two verdicts differ; null if the judge gave none."
    )
    decision_basis: str = Field("", description="The judge's explanation of the verdict.")
    weakest_turn: int | None = Field(
        description="Weakest turn by the scores; null if every turn is without a flaw."
    )
    judge_weakest_turn: int | None = Field(
        None, description="The turn that the judge calls the weakest."
    )
    weakest_mismatch: bool | None = Field(
        None, description="Whether the two weakest turns differ; null if the judge named none."
    )
    weakest_probabilities: dict[str, float] = Field(
        default_factory=dict,
        description="Probability of each turn number (or `none`) to be the weakest, in scoring mode "
        "`tokens` or from samples.",
    )
    unscored_turns: tuple[UnscoredTurn, ...] = Field((), description="Turns without a score.")
    windows: tuple[WindowOpinion, ...] = Field(
        (), description="The judge's verdicts on the windows of a long dialogue."
    )
    overlap_disagreement: float | None = Field(
        None,
        description="Mean absolute difference (0-4) between scores of the same turn in overlapping windows.",
    )
    neutralised: NeutralisedCount = 0
    remarks: tuple[str, ...] = Field(
        (),
        description="Deviations from the usual way of judging, e.g. `text_lost: reply_cut`, `ledger_cut: "
        "turn 4`, `split: context_overflow`, `thoughts_cut: 3`, `thoughts_missing: 14`.",
    )
    requests: RequestCount = 0
    opinions: tuple[JudgeOpinion, ...] = Field(
        (), description="Scores of each judge, if there are several (a jury, a cascade)."
    )
    disagreement: float | None = Field(
        None,
        description="Mean absolute difference (0-4) between two judges' scores, over all pairs of judges "
        "and all scores that both gave.",
    )

    @property
    def card_form(self) -> dict[str, Any]:
        """Return the judgment in the judge card's JSON form."""
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
        """Return the numbers of the turns without a score."""
        return frozenset(turn.turn for turn in self.unscored_turns)

    @property
    def scored_share(self) -> float:
        """Return the share (0-1) of the assistant turns that have a score."""
        return len(self.per_turn) / (len(self.per_turn) + len(self.missing_turns) or 1)
