"""Preference pairs, the checks that each went through, and the curve that decides about them."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from curate.dialogue import Frozen, Lineage, Message
from curate.records.judgment import FittedTo
from curate.records.reasons import DropReason

PairSource = Literal["resample", "revision", "natural", "none"]
"""Where the chosen side comes from; `none` where a fork was dropped before there was one."""


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
    """One kind of difference between the two sides, found by comparing their texts without a model."""

    kind: ChangeKind = Field(description="What differs.")
    removed: tuple[str, ...] = Field((), description="Only on the rejected side.")
    added: tuple[str, ...] = Field((), description="Only on the chosen side.")


class PairCheck(Frozen):
    """The readings from verifying one candidate pair, and the decision.

    Scores are the judge's means, 1-5. Log-odds are natural; positive ones favour the chosen side.
    """

    chosen_scores: dict[str, float] = Field(
        default_factory=dict, description="Score (1-5) of the chosen side by turn dimension."
    )
    rejected_scores: dict[str, float] = Field(
        default_factory=dict, description="Score (1-5) of the rejected side by turn dimension."
    )
    differences: tuple[float, ...] = Field(
        (),
        description="Mean of the three turn scores, chosen minus rejected, under each wording of the "
        "question.",
    )
    margin: float | None = Field(None, description="Mean of `differences`.")
    noise: float | None = Field(
        None,
        description="Standard error of the margin over the wordings, paired, so that effects of a wording "
        "on both sides cancel.",
    )
    log_odds_first: float | None = Field(
        None,
        description="Log-odds that the chosen side is better when it is shown first; null if only a letter"
        " was returned.",
    )
    log_odds_second: float | None = Field(None, description="The same when it is shown second.")
    preference: float | None = Field(
        None, description="Mean of both log-odds, so that the position effect cancels."
    )
    disagreement: float | None = Field(
        None,
        description="Jury: mean absolute difference between two judges' probabilities that the chosen side"
        " is better, 0-1.",
    )
    preferred_first: bool | None = Field(
        None, description="Whether the chosen side won when shown first."
    )
    preferred_second: bool | None = Field(
        None, description="Whether the chosen side won when shown second."
    )
    token_ratio: float | None = Field(
        None, description="Length in tokens, chosen divided by rejected."
    )
    probability: float | None = Field(
        None,
        description="Probability (0-1) that the chosen side is better, by the judge's curve; null without "
        "a curve.",
    )
    threshold: float | None = Field(None, description="Lowest probability of a pair that passes.")
    evidence: float | None = Field(
        None,
        description="Log-odds that decided: those of `probability`, or without a curve `preference`.",
    )
    required: float | None = Field(None, description="Lowest evidence of a pair that passes.")
    decided_by: Literal["labels", "twins", "uncalibrated", "letters", "data"] | None = Field(
        None,
        description="`labels`, `twins`: a curve fitted to these. `uncalibrated`: the preference alone, "
        "compared with the spread of the position effect. `letters`: the answers in both "
        "orders, from a judge without log-probabilities. `data`: the data's label alone, "
        "because the judge is not shown to agree with such labels.",
    )
    specifics: tuple[str, ...] = Field(
        (),
        description="Details that only the chosen side states and that were not given to the assistant.",
    )
    ungrounded: str | None = Field(
        None, description="The detail among `specifics` that the judge calls made up."
    )
    chosen_role: float | None = Field(None, description="Role adherence of the chosen side, 0-1.")
    rejected_role: float | None = Field(
        None, description="Role adherence of the rejected side, 0-1."
    )
    chosen_facts: float | None = Field(
        None,
        description="Factual precision (0-1) of the turn with the chosen side; 1 if it makes no claims.",
    )
    rejected_facts: float | None = Field(
        None,
        description="Factual precision (0-1) of the turn with the rejected side; 1 if it makes no claims.",
    )
    confirmed: bool | None = Field(
        None,
        description="With `at: earliest`: whether no turn up to this one is bad when the dialogue is "
        "judged again with the chosen side.",
    )
    neutralised: int = Field(
        0,
        description="Number of fence markers and special tokens in the data that were escaped in the "
        "comparison.",
    )
    unscored: str | None = Field(
        None, description="For a pair dropped as `unscored`: the reason code, as in `Unscored`."
    )


class LabelAgreement(Frozen):
    """How often a judge prefers the side that the data calls better, over the natural pairs it compared."""

    pairs: int = Field(description="Number of pairs compared.")
    share: float = Field(
        ge=0,
        le=1,
        description="Share of pairs where the judge prefers the side that the data calls better, 0-1.",
    )
    interval: tuple[float, float] = Field(
        description="95 % Wilson interval with the effective number of dialogues, since pairs of one "
        "dialogue are alike."
    )

    @property
    def is_shown(self) -> bool:
        """Return whether the interval lies above 0.5, that is above chance."""
        return self.interval[0] > 0.5

    @property
    def described(self) -> str:
        """Return the figure in words."""
        low, high = self.interval
        return (
            f"the judge prefers the side that the data calls better in {self.share:.0%} (95 % {low:.0%} to {high:.0%}) "
            f"of {self.pairs} natural pairs"
        )


class KindFigures(Frozen):
    """Results for one kind of known pair, by cross-validation."""

    pairs: int = Field(description="Number of pairs.")
    accepted: int = Field(description="Pairs that passed with the better side as chosen.")
    accepted_wrong: int = Field(description="Pairs that passed with the worse side as chosen.")


class PairCurve(Frozen):
    """A logistic curve from a judge's readings of two replies to the probability that one is better.

    log-odds = preference_weight * preference + margin_weight * margin. There is no intercept, so a pair with its
    sides swapped has the opposite log-odds.
    """

    kind: Literal["pair_curve"] = "pair_curve"
    identity: FittedTo
    fitted_on: Literal["labels", "twins"] = Field(
        description="`labels`: labelled pairs of the user's data. `twins`: replies with a planted flaw, "
        "which only show that coarse differences are recognised."
    )
    source: str = Field("", description="File, run or recipe that the pairs come from.")
    preference_weight: float = Field(description="Weight of the preference.")
    margin_weight: float = Field(description="Weight of the margin.")
    precision: float = Field(
        gt=0.5, lt=1, description="Required share of truly better pairs among those that pass."
    )
    threshold: float = Field(
        ge=0.5,
        lt=1,
        description="Lowest probability at which that share was reached, by cross-validation.",
    )
    pairs: int = Field(description="Number of pairs it was fitted to.")
    dialogues: int = Field(
        description="Number of dialogues that the pairs come from; cross-validation keeps the pairs of a "
        "dialogue together."
    )
    auc: float = Field(
        description="Cross-validated AUC of pairs against the same pairs with their sides swapped."
    )
    auc_interval: tuple[float, float] = Field(
        description="95 % interval of the AUC (bootstrap over dialogues)."
    )
    reached_precision: float | None = Field(
        description="Precision by cross-validation: each pair is decided with weights and a threshold "
        "fitted without its dialogue (for twins also without its kind of flaw). null if no "
        "pair passed."
    )
    precision_interval: tuple[float, float] = Field(description="95 % interval of the precision.")
    recall: float = Field(
        description="Share of truly better pairs that pass, by the same cross-validation."
    )
    recall_interval: tuple[float, float] = Field(description="95 % interval of the recall.")
    kinds: dict[str, KindFigures] = Field(
        default_factory=dict, description="Results by kind of pair."
    )
    labelled: tuple[str, ...] = Field(
        (),
        description="Ids of the run's pairs whose labels it was fitted to. They cannot certify anything "
        "that the curve decides.",
    )

    @property
    def described(self) -> str:
        """Return what the curve was fitted to and how well it does, in a few words."""
        truth = "labelled pairs" if self.fitted_on == "labels" else "planted twins"
        reached = self.reached_precision
        return (
            f"a curve fitted to {self.pairs} {truth}{f' of {self.source}' if self.source else ''}: AUC {self.auc:.2f} ({_range(self.auc_interval)}), threshold "
            f"{self.threshold:.2f}, precision {'-' if reached is None else f'{reached:.2f}'} "
            f"({_range(self.precision_interval)}), recall {self.recall:.2f} ({_range(self.recall_interval)}), "
            f"cross-validated{'' if self.fitted_on == 'labels' else ' (twins prove coarse differences only)'}"
        )


def _range(ends: tuple[float, float]) -> str:
    return f"{ends[0]:.2f} to {ends[1]:.2f}"


class PreferencePair(Frozen):
    """One preference pair: the same prompt with a chosen and a rejected assistant message.

    A pair that passed has no `drop_reason`; dropped pairs are kept with theirs.
    """

    kind: Literal["preference_pair"] = "preference_pair"
    pair_id: str = Field(description="Id of the pair.")
    dialogue_id: str = Field(description="Id of the dialogue that the pair comes from.")
    content_hash: str = Field(description="Content hash of the dialogue (32 hex digits).")
    source: PairSource = Field(
        description="Where the chosen side comes from: a reply sampled by the policy (`resample`), a "
        "revision of the original, the data (`natural`), or `none` if a fork was dropped "
        "before it had one."
    )
    basis: str = Field(
        description="What says that chosen is better: `judge`, `rank`, `label`, `reward` or `preference`."
    )
    turn: int | None = Field(
        None, description="Number of the dialogue's turn that the two sides belong to."
    )
    prompt: tuple[Message, ...] = Field(
        description="Messages before the two sides; empty for a fork that was dropped before there was a "
        "candidate (`source` none)."
    )
    tools: tuple[dict[str, Any], ...] = Field(
        (), description="Schemas of the tools that the assistant can call."
    )
    chosen: Message | None = Field(
        description="The better message; null for a fork that was dropped before there was a candidate."
    )
    rejected: Message = Field(description="The worse message.")
    drop_reason: DropReason | None = Field(
        None,
        description="None for a pair that passed. "
        + " ".join(f"`{reason}`: {reason.meaning}." for reason in DropReason),
    )
    detail: str = Field("", description="Details of the drop reason, for people.")
    confidence: float | None = Field(
        None,
        ge=0,
        le=1,
        description="Fork: probability (0-1) that its turn is bad, from the judgment's scores.",
    )
    issue: str = Field("", description="The problem that the judge found with the rejected side.")
    changes: tuple[Change, ...] = Field(
        (), description="Differences from the rejected to the chosen side."
    )
    sampling: dict[str, float] = Field(
        default_factory=dict,
        description="Sampling parameters of the chosen side, if a model wrote it.",
    )
    policy: str = Field("", description="Identity of the model that wrote the chosen side.")
    judge: str = Field("", description="Identity of the judge that verified the pair.")
    check: PairCheck | None = Field(None, description="The readings from verification.")
    lineage: Lineage | None = Field(None, description="Where the dialogue came from.")


class SetCheck(Frozen):
    """A figure over a whole set of pairs, compared with a threshold. A warning drops no pair."""

    name: str = Field(description="Name of the check.")
    figure: float | None = Field(None, description="The figure; null if the check was not run.")
    threshold: float | None = Field(None, description="The threshold from the recipe.")
    status: Literal["pass", "warn", "not_run"] = Field(description="`pass`, `warn` or `not_run`.")
    n: int = Field(0, description="Number of pairs it was measured on.")
    detail: str = Field("", description="What was measured, or why the check was not run.")


class PairSetReport(Frozen):
    """Checks over a whole set of accepted pairs, and the composition of the set."""

    pairs: int = Field(description="Number of pairs.")
    checks: tuple[SetCheck, ...] = Field((), description="The checks.")
    mixes: dict[str, dict[str, int]] = Field(
        default_factory=dict,
        description="Number of pairs by `made_by`, `basis`, `dimension` (with the largest gain), `source` "
        "(of the data), `role` and `language`; `unknown` if the data does not say.",
    )
