"""Scores of role adherence: how well a dialogue keeps to its role."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from curate.dialogue import Frozen
from curate.records.judgment import (
    DialogueScore,
    JudgeIdentity,
    JudgeOpinion,
    NeutralisedCount,
    RequestCount,
)


class TurnReading(Frozen):
    """Scores of one turn, judged alone in a fresh context, to measure a pair's margin and the judge's noise."""

    turn: int = Field(description="Number of the turn.")
    values: dict[str, float] = Field(description="Score (1-5) by turn dimension.")
    wording: int = Field(0, description="Number of the paraphrase of the question.")


ViolationKind = Literal["scope", "tone", "constructive", "other"]
"""How a turn breaks its role: outside what it covers, in another manner, or by not doing what it demands."""


class AdherenceReason(Frozen):
    """The judge's reason for its answer, asked for after the answer."""

    text: str = Field("", description="The justification.")
    violation: ViolationKind | None = Field(
        None,
        description="Kind of the violation: `scope`: outside what the role covers; `tone`: in another "
        "manner; `constructive`: does not do what the role demands; `other`. null if there is "
        "no violation.",
    )
    role_words: str = Field(
        "",
        description="The words of the role definition that are broken, quoted exactly.",
    )
    fault: str | None = Field(
        None,
        description="Why part of the reason is missing. `not_in_role`: the quoted words are not in the "
        "role definition, so `role_words` is empty. With `bad_reply`, `reply_cut`, "
        "`context_overflow` or `engine_error` there is no reason at all.",
    )


# What an answer about one turn and one about the whole conversation have alike.
_Coverage = Annotated[
    float | None,
    Field(
        description="Continuous mode: probability (0-1) of yes and no together in the judge's first token."
    ),
]
_RawScore = Annotated[
    float | None,
    Field(description="The score before calibration (0-1), where a calibration is applied."),
]
_Imputed = Annotated[
    bool,
    Field(
        description="The score is 0.5 because yes and no had too little probability (`on_missing: half`)."
    ),
]
_Reason = Annotated[
    AdherenceReason | None,
    Field(description="The judge's reason, if `include_reason` asks for it."),
]


class AdherenceTurn(Frozen):
    """Role adherence of one assistant turn, including turn 0."""

    turn: int = Field(description="Number of the turn.")
    score: float | None = Field(
        None, ge=0, le=1, description="Role adherence, 0-1; null if unscored."
    )
    adherent: bool | None = Field(
        None, description="Whether the score reaches the threshold for turns; null if unscored."
    )
    coverage: _Coverage = None
    raw_score: _RawScore = None
    imputed: _Imputed = False
    reason: _Reason = None
    unscored: str | None = Field(None, description="Reason code, if there is no score.")


class ConversationAdherence(Frozen):
    """The one answer of `evaluation_granularity: conversation`, which the session score comes from."""

    coverage: _Coverage = None
    raw_score: _RawScore = None
    imputed: _Imputed = False
    reason: _Reason = None


class AdherenceTrend(Frozen):
    """Whether adherence changes over a dialogue. Sources of the formulas: `curate.statistics.trend`."""

    slope: float = Field(
        description="Change of the score from one turn to the next (least squares)."
    )
    interval: tuple[float, float] = Field(
        description="95 % interval of the slope, valid for any number of turns (Hoeffding)."
    )
    p_value: float = Field(
        description="Two-sided p-value of the Mann-Kendall test, exact up to 40 turns."
    )


class AdherenceScore(DialogueScore):
    """Role adherence of one dialogue. Scores are 0-1; 1 is full adherence."""

    kind: Literal["adherence"] = "adherence"
    identity: JudgeIdentity = Field(
        description="The judge or method that gave the scores, with everything that determines them."
    )
    scoring_method: str = Field(description="The recipe's `scoring_method`.")
    output_mode: Literal["binary", "continuous"] = Field(
        description="`binary`: scores are 0 or 1. `continuous`: scores are 0 to 1."
    )
    evaluation_granularity: Literal["turn", "conversation"] = Field(
        description="Whether each assistant turn was judged, or the conversation as a whole."
    )
    definition: Literal["constructive", "restrictive"] = Field(
        description="What counts as adherent, as in the recipe."
    )
    per_turn: tuple[AdherenceTurn, ...] = Field(
        description="Scores of the assistant turns in order; empty with `evaluation_granularity: "
        "conversation`."
    )
    conversation: ConversationAdherence | None = Field(
        None,
        description="The answer about the whole conversation, with `evaluation_granularity: conversation`.",
    )
    session_score: float = Field(ge=0, le=1, description="Score of the whole dialogue, 0-1.")
    interval: tuple[float, float] = Field(
        description="95 % interval of the session score: a confidence interval, or a credible one with "
        "`interval: bayesian`."
    )
    interval_method: str = Field(description="How the interval was computed.")
    adherent: bool = Field(description="Whether the dialogue counts as adherent.")
    trend: AdherenceTrend | None = Field(
        None, description="Trend of the scored turns; null for fewer than two."
    )
    turns_in_role: int | None = Field(
        None,
        description="Assistant turns before the first one that is not adherent or has no score; all of "
        "them if there is no such turn. null if the conversation was judged as a whole.",
    )
    fitted_on: int = Field(
        0, description="Number of the role's references that a distribution method was fitted on."
    )
    neutralised: NeutralisedCount = 0
    requests: RequestCount = 0
    opinions: tuple[JudgeOpinion, ...] = Field((), description="Scores of each judge of a jury.")
    disagreement: float | None = Field(
        None,
        description="Jury: mean absolute difference between two judges' scores of a turn, 0-1.",
    )

    @property
    def missing_turns(self) -> frozenset[int]:
        """Return the numbers of the assistant turns without a score."""
        return frozenset(turn.turn for turn in self.per_turn if turn.score is None)

    @property
    def scored_share(self) -> float:
        """Return the share (0-1) of the assistant turns that have a score; 1 if turns were not judged."""
        return 1 - len(self.missing_turns) / (len(self.per_turn) or 1)


class AdherencePosition(Frozen):
    """The n-th assistant turns of all dialogues that have one. Intervals are 95 %."""

    position: int = Field(description="Place of the assistant turn, counted from 1.")
    scored: int = Field(description="Number of turns with a score.")
    mean: float | None = Field(None, description="Mean score, 0-1.")
    interval: tuple[float, float] | None = Field(
        None,
        description="Wilson interval of the mean, which is conservative for scores between 0 and 1.",
    )
    at_risk: int = Field(description="Dialogues known to be in role up to here.")
    violations: int = Field(
        description="Dialogues among them that break the role here for the first time."
    )
    survival: float = Field(
        description="Share of dialogues still in role after this turn (Kaplan-Meier)."
    )
    survival_interval: tuple[float, float] = Field(
        description="Interval of `survival` (Rothman: Wilson with the effective sample size of the "
        "estimate)."
    )


class AdherenceDecay(Frozen):
    """How adherence changes with the turns, over all dialogues of a run."""

    dialogues: int = Field(description="Number of dialogues.")
    positions: tuple[AdherencePosition, ...] = Field(
        description="Figures for the first 100 assistant turns. Only longer dialogues have later turns, so"
        " means at different positions do not compare; `slope` does, because it is computed "
        "within dialogues."
    )
    slope: float | None = Field(
        None, description="Change of the score from one turn to the next within dialogues, pooled."
    )
    slope_interval: tuple[float, float] | None = Field(
        None,
        description="95 % interval of the slope (cluster-robust by dialogue, Student's t); null if the "
        "dialogues do not differ.",
    )
    median_turns_in_role: int | None = Field(
        None,
        description="Turn by which half of the dialogues have broken their role (Kaplan-Meier); null if "
        "fewer than half do.",
    )
