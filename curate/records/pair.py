"""Preference pairs, the checks each went through, and the curve they were decided by."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from curate.dialogue import Frozen, Lineage, Message
from curate.records.judgment import JudgeIdentity
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
    disagreement: float | None = Field(
        None,
        description="Of a jury: mean absolute difference between two judges' probabilities that chosen is better, 0-1.",
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
    chosen_facts: float | None = Field(
        None,
        description="Factual precision of the turn with the chosen side; 1 where it claims nothing.",
    )
    rejected_facts: float | None = Field(None, description="With the rejected side.")
    confirmed: bool | None = Field(
        None,
        description="Judged again with the chosen side in place, no turn up to it is bad; asked with "
        "`at: earliest`.",
    )
    neutralised: int = Field(
        0, description="Strings in the data that were defused in the comparison."
    )
    unscored: str | None = Field(
        None, description="Of a pair dropped as `unscored`: why, as the reason codes of `Unscored`."
    )


class LabelAgreement(Frozen):
    """How often a judge prefers the side that the data calls better, of natural pairs it compared."""

    pairs: int
    share: float = Field(ge=0, le=1)
    interval: tuple[float, float] = Field(
        description="95 %, Wilson's, with the effective number of dialogues: pairs of one are taken for alike."
    )

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
    source: str = Field("", description="The file, run or recipe that the pairs are of.")
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
    labelled: tuple[str, ...] = Field(
        (),
        description="Ids of a run's pairs whose labels it was fitted to: these certify nothing that it decides.",
    )

    @property
    def described(self) -> str:
        """What it was fitted on and how well it does, in a few words."""
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
    """One preference pair: the same prompt, one assistant message a side.

    A pair that passed has no `drop_reason`; dropped pairs are kept, too.
    """

    kind: Literal["preference_pair"] = "preference_pair"
    pair_id: str
    dialogue_id: str
    content_hash: str
    source: PairSource
    basis: str = Field(
        description="What says chosen is better: `judge`, `rank`, `label`, `reward`, `preference`."
    )
    turn: int | None = None
    prompt: tuple[Message, ...] = Field(
        description="Empty for a fork that was dropped before there was a candidate (`source` none)."
    )
    tools: tuple[dict[str, Any], ...] = ()
    chosen: Message | None
    rejected: Message
    drop_reason: DropReason | None = Field(
        None,
        description="None for a pair that passed. "
        + " ".join(f"`{reason}`: {reason.meaning}." for reason in DropReason),
    )
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
