"""What the stages write. One model a record; `schemas/` is generated from these.

In the order of a run: what the rubric judge says, role adherence and what calibrates it, decisions, pairs and the
checks over them, and last what a run says of itself (`Manifest`). One catalogue, because a record is little but
its fields and their meaning, and whoever reads a run folder meets them all.

A score that could not be had is `Unscored` with a reason: a state, never a number.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any, Literal

from pydantic import Field, model_validator

from curate.dialogue import Frozen, Lineage, Message
from curate.statistics import interpolate, log_odds, sigmoid

TURN_DIMENSIONS = ("context_use", "helpfulness", "safety")
CONVERSATION_DIMENSIONS = ("coherence", "task_completion", "repair_handling")

Verdict = Literal["excellent", "good", "borderline", "poor"]
ScoringMode = Literal["json", "tokens"]
ConversationScoreValue = int | Literal["n/a"]


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


INTERNAL_ERROR = "internal_error"
"""The reason code of what a bug in curate kept from being scored."""


class Unscored(Frozen):
    """A dialogue that a stage could not score, and why. Fails every filter.

    Reason codes: `context_overflow`, `bad_reply`, `reply_cut`, `engine_error`, `no_assistant_turn`,
    `missing_role`, `missing_scenario`, `low_coverage`, `unscored_turns`, `rejected_mismatch`, `internal_error`
    (a bug, tried again by every run); of reference
    methods `no_reference`, `no_text`, `too_few_references`, `references_mismatch`.
    """

    dialogue_id: str
    content_hash: str
    stage: str
    reason: str
    detail: str = ""
    requests: int = Field(0, description="Calls made, cached ones included.")


class UnscoredTurn(Frozen):
    """A turn without a score inside a dialogue that has others."""

    turn: int
    reason: str
    detail: str = ""


class LabelReading(Frozen):
    """What a first-token distribution says about a score.

    `probabilities` are over the labels seen, renormalised; `coverage` is their share of the whole mass.
    """

    mean: float | None = Field(None, description="Expectation over the digits 1-5, n/a left out.")
    spread: float | None = Field(None, description="Standard deviation over the digits.")
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
        default_factory=dict, description="Per dimension, in scoring mode `tokens`."
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


class Judgment(Frozen):
    """The multi-turn rubric judge's record of one dialogue.

    `verdict` and `weakest_turn` are computed from the scores; what the judge itself said stands beside.
    """

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
        default_factory=dict, description="Turn number (or 'none') to probability, mode `tokens`."
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
        "`ledger_cut: turn 4`, `split: context_overflow`.",
    )
    requests: int = 0

    @property
    def missing_turns(self) -> frozenset[int]:
        """Numbers of the turns without a score."""
        return frozenset(turn.turn for turn in self.unscored_turns)

    @property
    def scored_share(self) -> float:
        """Share of the turns to be scored that have a score, 0-1."""
        return len(self.per_turn) / (len(self.per_turn) + len(self.missing_turns) or 1)


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


class CalibrationFigures(Frozen):
    """How well scores tell the labels, on turns they were not fitted to."""

    brier: float
    ece: float = Field(description="Expected calibration error, 10 bins of equal width.")
    accuracy_at_half: float
    accuracy_at_threshold: float = Field(
        description="Of the raw scores, at the threshold fitted without these turns."
    )
    brier_gain: tuple[float, float] | None = Field(
        None,
        description="How much lower the Brier score is than the raw scores': 95 % bootstrap over groups.",
    )


class JudgeCalibration(Frozen):
    """What makes one judge's scores probabilities: a curve and a threshold, fitted to labelled turns."""

    identity: JudgeIdentity = Field(description="The judge it holds for, and no other.")
    scoring_method: str
    evaluation_granularity: Literal["turn", "conversation"]
    definition: Literal["constructive", "restrictive"]
    method: Literal["platt", "isotonic"]
    threshold: float = Field(ge=0, le=1, description="Least raw score of an adherent turn.")
    slope: float | None = Field(None, description="platt: of the log-odds of the raw score.")
    intercept: float | None = None
    knots: tuple[tuple[float, float], ...] = Field(
        (), description="isotonic: (raw score, probability), straight lines between them."
    )
    turns: int = Field(description="Labelled turns it was fitted to.")
    adherent: int
    groups: int = Field(description="Dialogues (or groups of them) the turns are from.")
    figures: dict[Literal["raw", "platt", "isotonic"], CalibrationFigures] = Field(
        default_factory=dict, description="By cross-validation, dialogues kept together."
    )

    @model_validator(mode="after")
    def _has_its_curve(self) -> JudgeCalibration:
        lefts = [left for left, _ in self.knots]
        rising = bool(lefts) and all(low < high for low, high in pairwise(lefts))
        given = None not in (self.slope, self.intercept) if self.method == "platt" else rising
        if not given:
            raise ValueError("platt needs slope and intercept, isotonic knots in rising order")
        return self

    def probability(self, score: float) -> float:
        """The probability that a turn with this raw score is adherent."""
        if self.method == "platt":
            assert self.slope is not None
            assert self.intercept is not None
            return sigmoid(self.slope * log_odds(score) + self.intercept)
        return interpolate(self.knots, score)


class Kappa(Frozen):
    """Quadratic-weighted kappa with people; null where one side has a single level."""

    value: float | None = None
    interval: tuple[float, float] | None = Field(
        None, description="95 %, bootstrap over dialogues (or groups of them)."
    )


CutMethod = Literal["matched_shares", "kappa", "given_shares"]


class CutPoints(Frozen):
    """From one dimension's readings to levels 1-5, fitted to labels or to expected shares."""

    cuts: tuple[float, float, float, float] = Field(
        description="Rising, on the expectation (mode json: the digit). The level is 1 + the number of "
        "cuts that the value reaches; a cut above 5 is never reached."
    )
    na_cut: float | None = Field(
        None,
        description="Least probability of n/a at which the score is n/a; null leaves it to the judge's "
        "most likely answer.",
    )
    method: CutMethod = Field(
        description="matched_shares: the readings' quantiles at the labels' shares. kappa: highest "
        "agreement. given_shares: quantiles at shares that the user expects, without labels."
    )
    scale: str = Field("1-5", description="What the labels were put on 1-5 from, the ends first.")
    labels: int = Field(0, description="Labelled turns or conversations.")
    dialogues: int = Field(0, description="Dialogues (or groups of them) these are of.")
    before: Kappa = Field(Kappa(), description="Of the judge's most likely digits.")
    after: Kappa = Field(
        Kappa(), description="Of the levels, each cut without the dialogue it is of (5 folds)."
    )
    ceiling: float | None = Field(
        None,
        description="Krippendorff's alpha (ordinal) between the raters, where there are several.",
    )

    @model_validator(mode="after")
    def _rises(self) -> CutPoints:
        if list(self.cuts) != sorted(self.cuts):
            raise ValueError("cuts must not fall")
        return self

    def level(self, value: float) -> int:
        """The level, 1-5, of an expectation or digit."""
        return 1 + sum(cut <= value for cut in self.cuts)


class GoodModel(Frozen):
    """The probability that people find a dialogue good, from its readings: a ridge logistic regression.

    A reading that a dialogue does not have (n/a) counts as `means` has it.
    """

    features: tuple[str, ...] = Field(min_length=1)
    means: tuple[float, ...]
    scales: tuple[float, ...]
    weights: tuple[float, ...] = Field(description="Of the standardised features, in log-odds.")
    intercept: float
    adherence: JudgeIdentity | None = Field(
        None, description="Whose role adherence is among the features; null where none is."
    )
    labels: int = Field(description="Labelled dialogues.")
    good: int = Field(description="Of these, good ones.")
    auc: float | None = Field(None, description="By cross-validation.")
    brier: float = Field(description="By cross-validation.")
    brier_interval: tuple[float, float] | None = None
    brier_without: float = Field(description="Of the share of good ones, without any judge.")

    @model_validator(mode="after")
    def _is_whole(self) -> GoodModel:
        if {len(self.means), len(self.scales), len(self.weights)} != {len(self.features)}:
            raise ValueError("a mean, a scale and a weight are needed for each feature")
        return self

    def probability(self, values: Mapping[str, float | None]) -> float:
        """That a dialogue with these readings is good, 0-1."""
        parts = zip(self.features, self.means, self.scales, self.weights, strict=True)
        odds = self.intercept
        for name, mean, scale, weight in parts:
            value = values.get(name)
            odds += 0.0 if value is None else weight * (value - mean) / scale
        return sigmoid(odds)


class Calibration(Frozen):
    """The file that `curate calibrate` writes: what people's labels make of one judge's readings."""

    kind: Literal["calibration"]
    identity: JudgeIdentity | None = Field(
        None, description="The rubric judge that `levels` and `good` hold for, and no other."
    )
    levels: dict[str, CutPoints] = Field(default_factory=dict, description="By dimension.")
    good: GoodModel | None = None
    adherence: JudgeCalibration | None = None

    @model_validator(mode="after")
    def _fits_the_rubric(self) -> Calibration:
        unknown = set(self.levels) - {*TURN_DIMENSIONS, *CONVERSATION_DIMENSIONS}
        if unknown:
            raise ValueError(f"no dimension of the rubric: {', '.join(sorted(unknown))}")
        if self.identity is None and (self.levels or self.good):
            raise ValueError("levels and good hold for one judge: identity is missing")
        return self


class Collision(Frozen):
    """What a removed duplicate or a contaminated dialogue has in common with something else."""

    reason: str = Field(description="The reason code it explains.")
    other: str = Field(
        description="Id of the dialogue that is kept, or `<eval set>:<row>` of an eval text."
    )
    similarity: float = Field(
        ge=0,
        le=1,
        description="Duplicates: Jaccard of shingles, or cosine of embeddings. Contamination: share of the "
        "eval text's n-grams that the dialogue holds.",
    )
    text: str = Field("", description="Contamination: the first shared n-gram, normalised.")


class Decision(Frozen):
    """Where selection put a dialogue, and the name of every condition it failed."""

    dialogue_id: str
    content_hash: str
    sets: tuple[Literal["sft", "rejected", "review", "active"], ...]
    reasons: tuple[str, ...] = Field((), description="Names of failed conditions, or reason codes.")
    collisions: tuple[Collision, ...] = Field(
        (), description="What it collided with, where it is a duplicate or contaminated."
    )
    split: Literal["train", "validation"] | None = Field(
        None, description="Of every dialogue, where the recipe asks for a split."
    )


PairSource = Literal["resample", "revision", "natural", "none"]
"""Where the chosen side comes from; `none` where a fork was refused before there was one."""


ChangeKind = Literal[
    "tool",
    "argument",
    "url",
    "email",
    "date",
    "amount",
    "id",
    "number",
    "name",
    "negation",
    "sentence",
]


class Change(Frozen):
    """What differs between two sides in one respect, found by comparing them; no model says so."""

    kind: ChangeKind
    removed: tuple[str, ...] = Field((), description="On the rejected side only.")
    added: tuple[str, ...] = Field((), description="On the chosen side only.")


class PairCheck(Frozen):
    """What verification read of one candidate pair, and what was decided from it.

    Scores are the judge's means, 1-5. Log-odds are natural; positive ones speak for the chosen side.
    """

    chosen_scores: dict[str, float] = Field(default_factory=dict)
    rejected_scores: dict[str, float] = Field(default_factory=dict)
    differences: tuple[float, ...] = Field(
        (),
        description="Compared score (mean of the three turn scores), chosen minus rejected, under each "
        "wording of the question.",
    )
    margin: float | None = Field(None, description="Mean of the differences.")
    noise: float | None = Field(
        None,
        description="Standard error of the margin over the wordings, paired: what a wording adds to both "
        "sides cancels.",
    )
    log_odds_first: float | None = Field(
        None, description="That chosen is better, shown first; null where only a letter came back."
    )
    log_odds_second: float | None = Field(None, description="The same, shown second.")
    preference: float | None = Field(
        None, description="Mean of both log-odds: the pull of the position cancels."
    )
    preferred_first: bool | None = Field(None, description="Chosen won when shown first.")
    preferred_second: bool | None = Field(None, description="Chosen won when shown second.")
    token_ratio: float | None = Field(None, description="Length of chosen over rejected.")
    probability: float | None = Field(
        None, description="That chosen is better, by the judge's curve; null without one."
    )
    threshold: float | None = Field(None, description="Least probability of a pair that passes.")
    evidence: float | None = Field(
        None,
        description="Log-odds that decided: of `probability`, or without a curve the preference itself.",
    )
    required: float | None = Field(None, description="The evidence that was asked for.")
    decided_by: Literal["labels", "twins", "uncalibrated", "letters", "data"] | None = Field(
        None,
        description="labels, twins: a curve fitted on these. uncalibrated: the preference alone, held "
        "against the position's spread. letters: both orders, from a judge without log-probabilities. "
        "data: the data's label alone, since the judge is not shown to agree with such labels.",
    )
    specifics: tuple[str, ...] = Field(
        (),
        description="Details that only the chosen side states and nothing given to the assistant does.",
    )
    ungrounded: str | None = Field(
        None, description="The one of them that the judge calls made up."
    )
    chosen_role: float | None = Field(None, description="Role adherence of the chosen side, 0-1.")
    rejected_role: float | None = Field(
        None, description="Role adherence of the rejected side, 0-1."
    )
    confirmed: bool | None = Field(
        None,
        description="Judged again with the chosen side in place, no turn up to it is bad; asked with "
        "`at: earliest`.",
    )
    neutralised: int = Field(
        0, description="Strings in the data that were defused in the comparison."
    )
    unscored: str | None = Field(
        None, description="Of a pair refused as `unscored`: why, as the reason codes of `Unscored`."
    )


class LabelAgreement(Frozen):
    """How often a judge prefers the side that the data calls better, of natural pairs it compared."""

    pairs: int
    share: float = Field(ge=0, le=1)
    interval: tuple[float, float] = Field(description="95 %, Wilson's.")

    @property
    def is_shown(self) -> bool:
        """True where the interval lies above a coin's .5."""
        return self.interval[0] > 0.5

    @property
    def described(self) -> str:
        """The figure in words."""
        low, high = self.interval
        return (
            f"the judge prefers the side that the data calls better in {self.share:.0%} (95 % {low:.0%} to {high:.0%}) "
            f"of {self.pairs} natural pairs"
        )


class KindFigures(Frozen):
    """How one kind of known pair fared, cross-validated."""

    pairs: int
    accepted: int = Field(description="Better sides that passed.")
    accepted_wrong: int = Field(description="Worse sides that passed, the pairs turned round.")


class PairCurve(Frozen):
    """From a judge's readings of two replies to the probability that one is better.

    log-odds = preference_weight * preference + margin_weight * margin. There is no intercept, so a pair
    turned round has the opposite log-odds.
    """

    kind: Literal["pair_curve"] = "pair_curve"
    identity: JudgeIdentity = Field(description="The judge it holds for, and no other.")
    fitted_on: Literal["labels", "twins"] = Field(
        description="labels: pairs of the user's data. twins: planted flaws, which prove coarse "
        "differences only."
    )
    preference_weight: float
    margin_weight: float
    precision: float = Field(
        gt=0.5, lt=1, description="Share of truly better pairs among those that pass, as asked for."
    )
    threshold: float = Field(
        ge=0.5,
        lt=1,
        description="Least probability at which that share was reached, cross-validated.",
    )
    pairs: int = Field(description="Pairs it was fitted to.")
    dialogues: int = Field(
        description="Dialogues they are from; each kept whole in cross-validation."
    )
    auc: float = Field(description="Cross-validated, of pairs against the same pairs turned round.")
    auc_interval: tuple[float, float] = Field(description="95 %, bootstrap over dialogues.")
    reached_precision: float | None = Field(
        description="By cross-validation, each pair held against weights and a threshold fitted without its "
        "dialogue and, of twins, its kind; null where none passed."
    )
    precision_interval: tuple[float, float]
    recall: float = Field(
        description="Share of truly better pairs that pass, by the same cross-validation."
    )
    recall_interval: tuple[float, float]
    kinds: dict[str, KindFigures] = Field(default_factory=dict)

    @property
    def described(self) -> str:
        """What it was fitted on and how well it does, in a few words."""
        truth = "labelled pairs" if self.fitted_on == "labels" else "planted twins"
        reached = self.reached_precision
        return (
            f"a curve fitted to {self.pairs} {truth}: AUC {self.auc:.2f} ({_range(self.auc_interval)}), threshold "
            f"{self.threshold:.2f}, precision {'-' if reached is None else f'{reached:.2f}'} "
            f"({_range(self.precision_interval)}), recall {self.recall:.2f} ({_range(self.recall_interval)}), "
            f"cross-validated{'' if self.fitted_on == 'labels' else ' (twins prove coarse differences only)'}"
        )


def _range(ends: tuple[float, float]) -> str:
    return f"{ends[0]:.2f} to {ends[1]:.2f}"


class PreferencePair(Frozen):
    """One preference pair: the same prompt, one assistant message a side.

    `refusal` is None for a pair that passed; refused pairs are kept with their reason code:
    `identical`, `cosmetic`, `rejected_preferred` (the evidence speaks for it), `below_margin` (too little speaks
    for the chosen side), `length_only` (enough but for its other length), `order_flip` (of a judge that gives
    letters only), `other_dimension_fell` (role adherence included), `ungrounded_specifics`, `original_was_fine`, `no_text_in_turn`, `earlier_turn_bad`, `unscored`, `no_candidate`,
    `prompts_differ`, `no_reply` (a side does not end with the assistant), `speaker_marker` (a side opens
    with `Human:` or the like), `diverges_at_user`, `diverges_at_tool`, `duplicate` (of another candidate), `not_best` (another candidate of
    the fork was taken),
    `prompt_end` (not a user or tool message), `engine_error`, `empty_side`, `no_counterpart`,
    `does_not_suffice` (repairing the turn would leave another bad), `over_limit`, `contaminated` (shares text with an eval set),
    `split_leak` (held out, and nearly a training pair).
    """

    pair_id: str
    dialogue_id: str
    content_hash: str
    source: PairSource
    basis: str = Field(
        description="What says chosen is better: `judge`, `rank`, `label`, `reward`, `preference`."
    )
    turn: int | None = None
    prompt: tuple[Message, ...] = Field(
        description="Empty for a fork that was refused before there was a candidate (`source` none)."
    )
    tools: tuple[dict[str, Any], ...] = ()
    chosen: Message | None
    rejected: Message
    refusal: str | None = None
    detail: str = ""
    confidence: float | None = Field(
        None, ge=0, le=1, description="That the turn of a fork is bad, from the judgment's scores."
    )
    issue: str = Field("", description="What the judge found wrong with the rejected side.")
    changes: tuple[Change, ...] = Field((), description="From the rejected to the chosen side.")
    sampling: dict[str, float] = Field(
        default_factory=dict, description="How the chosen side was drawn, where a model wrote it."
    )
    policy: str = Field("", description="Identity of the model that wrote the chosen side.")
    judge: str = ""
    check: PairCheck | None = None
    lineage: Lineage | None = None


class SetCheck(Frozen):
    """A figure over a whole set of pairs, held against a threshold. A warning drops no row."""

    name: str
    figure: float | None = Field(None, description="None where the check was not run.")
    threshold: float | None = None
    status: Literal["pass", "warn", "not_run"]
    n: int = Field(0, description="Pairs it was measured on.")
    detail: str = Field("", description="What was found, or why the check was not run.")


class PairSetReport(Frozen):
    """The checks over a whole set of accepted pairs, and what the set is made of."""

    pairs: int
    checks: tuple[SetCheck, ...] = ()
    mixes: dict[str, dict[str, int]] = Field(
        default_factory=dict,
        description="Pairs by `made_by`, `basis`, `dimension` (that gains the most), `source` (of the "
        "data), `role` and `language`; `unknown` where the data does not say.",
    )


class FunnelStage(Frozen):
    """One stage on the way to the pairs: `entered` is the sum of what is refused and what passed."""

    name: str = Field(description="What is true of what passed.")
    unit: str = Field(description="What is counted: dialogues, turns, candidates.")
    entered: int
    refused: dict[str, int] = Field(
        default_factory=dict, description="By reason code, the commonest first."
    )
    passed: int


class QuarantinedRow(Frozen):
    """A row that could not be read, whole, with the reason code it was put aside for."""

    source: str
    file: str
    row: int
    part: str | None = None
    reason: str
    detail: str = ""
    raw: Any = None


class StageCounts(Frozen):
    """What one stage did in one run."""

    rows: int = 0
    reused: int = Field(0, description="Rows of an earlier run that were still valid.")
    unscored: int = 0
    reasons: dict[str, int] = Field(default_factory=dict, description="Why rows are unscored.")
    requests: int = 0
    requests_sent: int = Field(0, description="Of these, not answered from the reply log.")
    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0


class Rates(Frozen):
    """Tokens a second over all calls that are open at once."""

    prefill: float = Field(gt=0, description="Prompt tokens that no cache holds.")
    decode: float = Field(gt=0, description="Generated tokens.")
    source: str = Field("", description="Where they are known from.")


class StageEstimate(Frozen):
    """Expected load of a stage over the whole source."""

    requests: int
    prompt_tokens: int
    prefilled_tokens: int = Field(
        description="Prompt tokens left after each request shares its start with the one before it."
    )
    completion_tokens: int
    intervals: dict[str, tuple[int, int]] = Field(
        default_factory=dict, description="Of each of the four, 95 %, from the sample's spread."
    )


class Estimate(Frozen):
    """What a run was expected to ask of models, before it asked."""

    dialogues: int
    sampled: int = Field(description="Dialogues that the figures are scaled up from.")
    stages: dict[str, StageEstimate]
    total: StageEstimate
    rates: Rates | None = None
    seconds: float | None = Field(None, description="None where no rate is known.")
    seconds_interval: tuple[float, float] | None = None
    cost: float | None = Field(
        None,
        description="With what is shared at the price of cached input; None where no model has prices.",
    )
    cost_interval: tuple[float, float] | None = None
    cost_without_cache: float | None = Field(None, description="If no prompt token were cached.")
    unpriced: tuple[str, ...] = Field(
        (), description="Roles that `cost` leaves out, since no prices are given for their models."
    )
    assumptions: tuple[str, ...] = ()


class Manifest(Frozen):
    """What a run was and what came of it. Counts are of the whole run, requests and tokens of its last
    process: a resumed run asks only for what is missing.
    """

    name: str
    status: Literal["running", "done", "failed", "budget", "unscored"]
    started: str
    finished: str | None = None
    seconds: float = 0.0
    seconds_by_stage: dict[str, float] = Field(
        default_factory=dict, description="Wall time of each part of the run, in order."
    )
    rows_in: int = Field(0, description="Always rows_used + quarantined.")
    rows_used: int = 0
    quarantined: int = 0
    dialogues: int = 0
    not_sampled: int = Field(
        0,
        description="Dialogues that sources did not give, to keep to their weights; not in `dialogues`.",
    )
    roles: dict[str, int] = Field(
        default_factory=dict,
        description="Dialogues by where their role definition is from: `field`, `system` (message), "
        "`recipe`, or `none`.",
    )
    unscored: int = Field(0, description="Dialogues without a score in some judging stage.")
    unscored_shares: dict[str, float] = Field(
        default_factory=dict,
        description="By stage; of `fork` and `natural` the rows that gave no pair since the judge could "
        "not answer. Errors of the data left out.",
    )
    levels: str = Field(
        "",
        description="Whether verdicts go by calibrated levels, in a sentence; empty without a judge.",
    )
    verdicts: dict[str, int] = Field(default_factory=dict)
    selected: int = Field(0, description="Dialogues in the SFT set.")
    sets: dict[str, int] = Field(default_factory=dict)
    rejections: dict[str, int] = Field(
        default_factory=dict,
        description="Dialogues not selected, each by the first of its reasons: with those selected, all.",
    )
    rejection_reasons: dict[str, int] = Field(
        default_factory=dict,
        description="Dialogues not selected that have the reason at all: one counts for each it has.",
    )
    pairs: int = Field(0, description="Made and verified by the judge.")
    natural_pairs: int = Field(
        0,
        description="Held by the data itself; verified by the judge where `natural.verify` asks for it.",
    )
    refused: int = 0
    refusals: dict[str, int] = Field(default_factory=dict)
    funnels: dict[str, tuple[FunnelStage, ...]] = Field(
        default_factory=dict,
        description="From dialogues (`fork`) and from candidates in the data (`natural`) to pairs.",
    )
    natural_refusals: dict[str, int] = Field(
        default_factory=dict,
        description="Those of `refusals` that are of natural pairs: with `natural_pairs`, all found.",
    )
    label_agreement: LabelAgreement | None = Field(
        None,
        description="How often the judge prefers the side that the data calls better, of the natural pairs "
        "that it compared. Where the interval is not above .5 natural pairs are left as the data has them.",
    )
    pair_decisions: dict[str, str] = Field(
        default_factory=dict,
        description="What decided about the pairs that passed, in words and with figures, of `fork` and `natural`.",
    )
    position_spread: float | None = Field(
        None,
        description="Standard deviation of the position's pull on the log-odds of a comparison; without a "
        "curve the preference must exceed it.",
    )
    pair_checks: dict[str, PairSetReport] = Field(
        default_factory=dict,
        description="Checks over all pairs made by the judge (`judge`), held by the data (`natural`), and "
        "both together (`all`), where there are any.",
    )
    requests: int = Field(0, description="Calls sent; kept replies are not counted.")
    tokens_in: int = 0
    tokens_cached: int = Field(0, description="Of tokens_in, found in the engine's prefix cache.")
    tokens_out: int = 0
    cost: float | None = Field(None, description="In the currency of the recipe's prices.")
    unpriced: tuple[str, ...] = Field(
        (), description="Roles that `cost` leaves out, since no prices are given for their models."
    )
    estimate: Estimate | None = Field(
        None, description="What was expected at the start, for all dialogues of the run."
    )
    adherence: AdherenceDecay | None = Field(
        None, description="Role adherence by turn over all dialogues, where turns were scored."
    )
    stages: dict[str, StageCounts] = Field(default_factory=dict)
    exports: dict[str, dict[str, int]] = Field(default_factory=dict)
    sources: list[dict[str, Any]] = Field(default_factory=list)
    identities: dict[str, JudgeIdentity] = Field(default_factory=dict)
    fingerprints: dict[str, str] = Field(default_factory=dict)
    versions: dict[str, str] = Field(default_factory=dict)
    recipe: dict[str, Any] = Field(default_factory=dict, description="Resolved; never holds a key.")
    warnings: list[str] = Field(default_factory=list)
