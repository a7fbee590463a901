"""What is said of how well a dialogue keeps to its role."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from curate.dialogue import Frozen
from curate.records.judgment import JudgeIdentity, JudgeOpinion


class TurnReading(Frozen):
    """One turn scored alone in a fresh context, to measure a pair's margin and the judge's noise."""

    turn: int
    values: dict[str, float] = Field(description="Per turn dimension, 1-5.")
    wording: int = Field(0, description="Number of the paraphrase of the question.")


ViolationKind = Literal["scope", "tone", "constructive", "other"]
"""How a turn breaks its role: outside what it covers, in another manner, by not doing what it demands."""


class AdherenceReason(Frozen):
    """What the judge said about its answer, asked for after the answer was given."""

    text: str = Field("", description="The justification.")
    violation: ViolationKind | None = Field(
        None, description="Kind of the violation; null where the answer was that there is none."
    )
    role_words: str = Field(
        "",
        description="The words of the role definition that are broken, word for word as the judge saw it.",
    )
    fault: str | None = Field(
        None,
        description="What is missing, and why: `not_in_role` (no words, since those quoted do not stand in "
        "the role), else there is no reason: `bad_reply`, `reply_cut`, `context_overflow`, `engine_error`.",
    )


class AdherenceTurn(Frozen):
    """Role adherence of one assistant turn (turn 0 included). `score` is None where unscored."""

    turn: int
    score: float | None = Field(None, ge=0, le=1)
    adherent: bool | None = None
    coverage: float | None = Field(None, description="Mass on yes and no, continuous mode.")
    raw_score: float | None = Field(
        None, description="The score before recalibration, where a calibration is applied."
    )
    imputed: bool = Field(
        False, description="The score is 0.5 for want of evidence (`on_missing: half`)."
    )
    reason: AdherenceReason | None = Field(None, description="Where `include_reason` asks for it.")
    unscored: str | None = Field(None, description="Reason code where there is no score.")


class ConversationAdherence(Frozen):
    """The one answer of `evaluation_granularity: conversation`, beside the session score it gives."""

    coverage: float | None = None
    raw_score: float | None = None
    imputed: bool = False
    reason: AdherenceReason | None = None


class AdherenceTrend(Frozen):
    """Does adherence change over a dialogue? Sources of the formulas: `curate.statistics.trend`."""

    slope: float = Field(
        description="Least squares, change of the score from one turn to the next."
    )
    interval: tuple[float, float] = Field(
        description="95 % interval of the slope, for any number of turns (Hoeffding)."
    )
    p_value: float = Field(description="Mann-Kendall test, exact up to 40 turns, both directions.")


class AdherenceScore(Frozen):
    """Role adherence of one dialogue. Scores lie in [0, 1]; 1 is full adherence."""

    kind: Literal["adherence"] = "adherence"
    dialogue_id: str
    content_hash: str
    identity: JudgeIdentity
    scoring_method: str
    output_mode: Literal["binary", "continuous"]
    evaluation_granularity: Literal["turn", "conversation"]
    definition: Literal["constructive", "restrictive"]
    per_turn: tuple[AdherenceTurn, ...] = Field(
        description="Assistant turns in order; empty where the conversation was asked about as a whole."
    )
    conversation: ConversationAdherence | None = Field(
        None, description="Where the conversation was asked about as a whole."
    )
    session_score: float = Field(ge=0, le=1)
    interval: tuple[float, float] = Field(
        description="95 % interval of the session score: of confidence, or credible where the recipe asks "
        "for `interval: bayesian`."
    )
    interval_method: str
    adherent: bool
    trend: AdherenceTrend | None = Field(
        None, description="Of the scored turns; null for fewer than two."
    )
    turns_in_role: int | None = Field(
        None,
        description="Assistant turns before the first that is not adherent, or of which that is not known; "
        "all of them where there is none. Null where turns were not asked about.",
    )
    fitted_on: int = Field(
        0, description="References of the role that a distribution method was fitted on."
    )
    neutralised: int = 0
    requests: int = 0
    opinions: tuple[JudgeOpinion, ...] = Field((), description="Of each judge of a jury.")
    disagreement: float | None = Field(
        None, description="Mean absolute difference between two judges' scores of a turn, 0-1."
    )

    @property
    def missing_turns(self) -> frozenset[int]:
        """Numbers of the assistant turns without a score."""
        return frozenset(turn.turn for turn in self.per_turn if turn.score is None)

    @property
    def scored_share(self) -> float:
        """Share of the turns to be scored that have a score, 0-1; 1 where turns were not asked about."""
        return 1 - len(self.missing_turns) / (len(self.per_turn) or 1)


class AdherencePosition(Frozen):
    """The n-th assistant turns of all dialogues that have one. Intervals are of 95 %."""

    position: int = Field(description="Counts assistant turns from 1.")
    scored: int
    mean: float | None = Field(None, description="Mean score, 0-1.")
    interval: tuple[float, float] | None = Field(
        None, description="Of the mean: Wilson's, which is wide for scores between 0 and 1."
    )
    at_risk: int = Field(description="Dialogues known to be in role up to here.")
    violations: int = Field(description="Of these, those that break it here for the first time.")
    survival: float = Field(description="Share still in role after this turn (Kaplan-Meier).")
    survival_interval: tuple[float, float] = Field(
        description="Rothman's: Wilson's with the effective sample size of the estimate."
    )


class AdherenceDecay(Frozen):
    """How adherence changes with the turns, over all dialogues of a run."""

    dialogues: int
    positions: tuple[AdherencePosition, ...] = Field(
        description="The first 100. Later ones are of longer dialogues only, so their means do not compare; "
        "`slope` does, since it is taken within dialogues."
    )
    slope: float | None = Field(
        None, description="Change of the score from one turn to the next within dialogues, pooled."
    )
    slope_interval: tuple[float, float] | None = Field(
        None,
        description="95 %, by the spread between dialogues (cluster-robust, Student's t); null where they "
        "do not differ.",
    )
    median_turns_in_role: int | None = Field(
        None,
        description="The turn by which half of the dialogues have broken their role (Kaplan-Meier); null "
        "where fewer do.",
    )
