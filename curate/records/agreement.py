"""How far a run's scores agree with people: what `curate agreement` measured."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Literal

from pydantic import Field

from curate.dialogue import Frozen
from curate.records.judgment import JudgeIdentity
from curate.records.trust_report import TrustKind, TrustReport
from curate.wording import plural

GateState = Literal["pass", "fail", "not_enough_labels"]
SliceBy = Literal["language", "role", "length", "source"]


class Figure(Frozen):
    """A figure with its 95 % interval, a bootstrap over dialogues (or groups of them)."""

    value: float | None = Field(
        None, description="Null where it is not defined, as where one side has a single level."
    )
    interval: tuple[float, float] | None = Field(
        None, description="Null for fewer than 10 dialogues, which no bootstrap tells of."
    )


class LevelFigures(Frozen):
    """How the judge's levels agree with people's."""

    kappa: Figure = Field(
        description="Quadratic-weighted kappa: 1 is full agreement, 0 what chance gives."
    )
    agreement: Figure = Field(description="Share of items with the same level.")
    within_one: Figure = Field(
        description="Share at most one level apart; null where there are two levels only."
    )
    bias: Figure = Field(description="Mean level of the judge minus that of people.")


class RaterFigures(Frozen):
    """One person held against the others, as the judge is held against all."""

    rater: str
    items: int = Field(description="That at least one other person rated, too.")
    kappa: Figure = Field(description="With the mean of the others, rounded half up.")


class AlternativeRater(Frozen):
    """Judge and one person, each held against the other people who rated the same items."""

    rater: str
    items: int
    judge_share: float = Field(description="Share in which the judge is as near to the others.")
    rater_share: float = Field(description="Share in which the person is as near as the judge.")
    p_value: float = Field(description="One-sided t-test: person's share minus judge's < epsilon.")
    judge_wins: bool = Field(description="After Benjamini and Yekutieli (false discoveries 5 %).")


class AlternativeTest(Frozen):
    """The alternative annotator test (Calderon, Reichart and Dror 2025, arXiv 2501.10970)."""

    epsilon: float = Field(description="What a person's cost is worth: .2 experts, .15, .1 crowd.")
    raters: tuple[AlternativeRater, ...]
    winning_rate: float = Field(description="Share of the people whom the judge could stand for.")
    passed: bool = Field(description="The winning rate is .5 or more.")


class AgreementSlice(Frozen):
    """Kappa on a part of the labels."""

    by: SliceBy
    value: str
    labels: int
    dialogues: int
    kappa: Figure


class JuryFigures(Frozen):
    """What a jury is worth on the labels of a dimension."""

    judges: int
    items: int = Field(description="That all judges scored and people labelled.")
    correlation: float = Field(
        description="Mean over pairs of judges of the correlation of their errors: of what their scores are off "
        "the straight line through the labels."
    )
    votes: float | None = Field(
        description="k / (1 + (k - 1) correlation): so many judges with independent errors would be as good; null "
        "where their errors cancel out."
    )
    best: str = Field(description="The judge that agrees with people best.")
    best_spearman: float = Field(description="Of its scores with people's mean.")
    spearman: float = Field(description="Of the jury's.")
    gain: tuple[float, float] = Field(
        description="95 % interval of the difference, a bootstrap over dialogues."
    )
    recommended: bool = Field(description="The jury agrees better, beyond chance.")
    sentence: str


class AgreementGate(Frozen):
    """Whether a dimension may be filtered by: kappa .5 or more, shown on at least 100 dialogues."""

    state: GateState
    lower: float | None = Field(None, description="One-sided 95 % lower bound of kappa.")
    upper: float | None = Field(None, description="One-sided 95 % upper bound of kappa.")
    goes_by: Literal["levels", "mapped", "lower_of_both"] = Field(
        description="levels: those that the run has. mapped: of other scales, mapped by cross-validation. "
        "lower_of_both: of levels that were calibrated with labels of these dialogues."
    )
    more_dialogues: int | None = Field(
        None,
        description="Labelled dialogues that would settle it, as things stand; null where it is settled, or "
        "no number that can be had would.",
    )


class DimensionAgreement(Frozen):
    """One dimension of the scores held against people's labels of it."""

    labels: int = Field(description="Items that judge and people both gave a level.")
    dialogues: int = Field(description="Dialogues (or groups of them) these are of.")
    scale: str = Field(description="Of the labels, worst first.")
    compared: Literal["digits", "calibrated levels", "verdicts", "decisions"]
    levels: LevelFigures
    spearman: Figure = Field(description="Of the judge's finest reading with the people's mean.")
    kendall: Figure = Field(description="Kendall's tau-b of the same.")
    mapped: LevelFigures | None = Field(
        None,
        description="Of levels that the reading is cut into by points fitted to the labels of other dialogues "
        "(5 folds): what a calibration with these labels would come to. Null for fewer than 15 labels.",
    )
    level_names: tuple[str, ...]
    confusion: tuple[tuple[int, ...], ...] = Field(
        description="Rows: people's level; columns: the judge's; in the order of `level_names`."
    )
    mapped_confusion: tuple[tuple[int, ...], ...] | None = None
    not_applicable: dict[Literal["both", "judge_only", "people_only"], int] = Field(
        default_factory=dict,
        description="Items that one side or both call n/a; they are in no other figure.",
    )
    alpha: Figure = Field(Figure(), description="Krippendorff's, ordinal, between the people.")
    raters: tuple[RaterFigures, ...] = Field(
        (), description="Each named person against the others: what a judge can reach."
    )
    alternative: AlternativeTest | None = Field(
        None,
        description="Where three or more named people rated 30 items each; of the mapped levels where the gate "
        "goes by these, and so are the slices.",
    )
    slices: tuple[AgreementSlice, ...] = ()
    jury: JuryFigures | None = Field(
        None, description="Where the scores are a jury's, of 10 dialogues or more."
    )
    gate: AgreementGate

    @property
    def only_calibrated(self) -> bool:
        """True where it passes by levels mapped to the labels' scale, and the run has the judge's own digits."""
        passes = self.gate.state == "pass" and self.gate.goes_by == "mapped"
        return passes and self.compared == "digits"


class CorrectedShare(Frozen):
    """A share that the run reports, and what it is when the judge's errors on the labels are allowed for.

    theta = (p + q0 - 1) / (q0 + q1 - 1) with p the reported share, q1 the sensitivity, q0 the specificity
    (Rogan and Gladen 1978); interval by Lee et al., arXiv 2511.21140.
    """

    name: Literal["good dialogues", "adherent turns", "adherent dialogues"]
    reported: float = Field(ge=0, le=1)
    of: int = Field(description="What it is a share of.")
    sensitivity: float | None = Field(None, description="Of what people call good, called so.")
    people_yes: int
    specificity: float | None = Field(None, description="Of what people call bad, called so.")
    people_no: int
    people_share: float = Field(
        ge=0, le=1, description="Of the labelled items, what people call good: needs no judge."
    )
    people_interval: tuple[float, float] = Field(
        description="95 %, Wilson's, where the labelled items are a random sample of the run's."
    )
    corrected: float | None = Field(None, ge=0, le=1)
    interval: tuple[float, float] | None = Field(
        None, description="95 %, of the run's sample and of the labels; cut at 0 and 1."
    )
    beyond: bool = Field(
        False,
        description="The formula gave less than 0 or more than 1: the labels are of dialogues on which the "
        "judge errs otherwise, or too few.",
    )
    refused: str = Field("", description="Why there is no corrected share.")

    @property
    def described(self) -> str:
        """The reported share beside the corrected one, in words."""
        said = f"{self.name}: the judge says {self.reported:.0%} of {self.of:,}"
        low, high = self.people_interval
        alone = f"the labels alone, if drawn at random, {self.people_share:.0%} ({low:.0%} to {high:.0%})"
        if self.refused or self.corrected is None or self.interval is None:
            return f"{said}; {alone}; from both the share cannot be told: {self.refused}"
        low, high = self.interval
        beyond = " (the formula leaves 0 to 100 %: look at the labels)" if self.beyond else ""
        return (
            f"{said}; corrected for its errors on {plural(self.people_yes + self.people_no, 'label')} "
            f"{self.corrected:.0%} (95 % {low:.0%} to {high:.0%}){beyond}; {alone}"
        )


class Agreement(TrustReport):
    """What `curate agreement` writes: the run's scores held against people's labels."""

    kind: Literal[TrustKind.AGREEMENT] = TrustKind.AGREEMENT
    gold: str = Field(description="Where the labels are from.")
    rows: int = Field(description="Labels given.")
    unused: dict[str, int] = Field(
        default_factory=dict, description="Those that say nothing about this run, by reason."
    )
    judges: dict[str, JudgeIdentity] = Field(
        default_factory=dict, description="Whose scores these are, by stage."
    )
    dimensions: dict[str, DimensionAgreement]
    not_measured: dict[str, str] = Field(
        default_factory=dict, description="Dimensions with labels and no figure, and why."
    )
    assumed_scales: dict[str, str] = Field(
        default_factory=dict,
        description="The scale that was assumed, of dimensions whose labels do not reach both ends of 1-5.",
    )
    shares: tuple[CorrectedShare, ...] = ()

    @property
    def not_for_use(self) -> dict[str, str]:
        """Dimensions whose levels are not for filtering by as the run has them, each with why."""
        return {
            name: why_not(held)
            for name, held in self.dimensions.items()
            if held.gate.state != "pass" or held.only_calibrated
        }


def why_not(held: DimensionAgreement) -> str:
    """Why a dimension is not for use, in a few words."""
    if held.only_calibrated:
        return "its levels agree with people once they are calibrated, and here they are not"
    kappa = held.mapped if held.gate.goes_by == "mapped" and held.mapped else held.levels
    value = kappa.kappa.value
    shown = "kappa is not defined" if value is None else f"kappa {value:.2f}"
    of = f"{plural(held.labels, 'label')} of {plural(held.dialogues, 'dialogue')}"
    if held.gate.state == "fail":
        return f"{shown}, at most {held.gate.upper:.2f}, on {of}"
    more = held.gate.more_dialogues
    few = "too few labels to tell" if more is None else f"about {more:,} more would tell"
    return f"{shown} on {of}: {few}"


def agreement_sentence(
    dimensions: Mapping[str, DimensionAgreement], shares: Iterable[CorrectedShare]
) -> str:
    """Tell the findings in one plain sentence, and one for each share: what it is in truth, or why that cannot be told."""

    def named(state: str, shown: Callable[[str, DimensionAgreement], str]) -> str:
        return ", ".join(
            shown(name, held) for name, held in dimensions.items() if held.gate.state == state
        )

    def passing(name: str, held: DimensionAgreement) -> str:
        shown = f"{name} once it is calibrated" if held.only_calibrated else name
        return f"{shown} (kappa at least {held.gate.lower:.2f})"

    def failing(name: str, held: DimensionAgreement) -> str:
        mapped = " once mapped" if held.gate.goes_by == "mapped" else ""
        return f"{name} (kappa at most {held.gate.upper:.2f}{mapped})"

    def waiting(name: str, held: DimensionAgreement) -> str:
        more = held.gate.more_dialogues
        return name if more is None else f"{name} (about {plural(more, 'more dialogue')})"

    parts = []
    if passed := named("pass", passing):
        parts.append(f"the judge is shown to agree with people on {passed}")
    if failed := named("fail", failing):
        parts.append(
            f"it is shown not to on {failed}"
            if parts
            else f"the judge is shown not to agree with people on {failed}"
        )
    if open_ones := named("not_enough_labels", waiting):
        parts.append(f"there are too few labels to tell on {open_ones}")
    text = "; ".join(parts)
    told = [text, *(share.described for share in shares)]
    return " ".join(f"{one[0].upper()}{one[1:]}." for one in told)
