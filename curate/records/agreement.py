"""Agreement of a run's scores with people's labels, as `curate agreement` measures it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal

from pydantic import Field

from curate.dialogue import Frozen
from curate.records.judgment import JudgeIdentity
from curate.records.trust_report import TrustKind, TrustReport
from curate.wording import plural

GateState = Literal["pass", "fail", "not_enough_labels"]
SliceBy = Literal["language", "role", "length", "source"]


class Figure(Frozen):
    """A figure with its 95 % interval (bootstrap over dialogues, or groups of them)."""

    value: float | None = Field(
        None,
        description="The figure; null if it is not defined, for example because one side has a single "
        "level.",
    )
    interval: tuple[float, float] | None = Field(
        None,
        description="95 % interval; null for fewer than 10 dialogues, too few for a bootstrap.",
    )


class LevelFigures(Frozen):
    """Agreement of the judge's levels with people's."""

    kappa: Figure = Field(description="Quadratic-weighted kappa: 1 is full agreement, 0 is chance.")
    agreement: Figure = Field(description="Share of items with the same level.")
    within_one: Figure = Field(
        description="Share of items at most one level apart; null if there are only two levels."
    )
    bias: Figure = Field(description="Mean level of the judge minus the mean level of people.")


class RaterFigures(Frozen):
    """Agreement of one person with the other people, for comparison with the judge's."""

    rater: str = Field(description="Name of the person.")
    items: int = Field(description="Items that at least one other person rated too.")
    kappa: Figure = Field(
        description="Quadratic-weighted kappa with the mean of the others, rounded half up."
    )


class AlternativeRater(Frozen):
    """The judge and one person, each compared with the other people who rated the same items."""

    rater: str = Field(description="Name of the person.")
    items: int = Field(description="Number of items.")
    judge_share: float = Field(
        description="Share of items on which the judge is at least as near to the others as the person."
    )
    rater_share: float = Field(
        description="Share of items on which the person is at least as near to the others as the judge."
    )
    p_value: float = Field(
        description="One-sided t-test that the person's share minus the judge's is below epsilon."
    )
    judge_wins: bool = Field(
        description="Whether the test rejects, after the Benjamini-Yekutieli correction (false discovery "
        "rate 5 %)."
    )


class AlternativeTest(Frozen):
    """The alternative annotator test (Calderon, Reichart and Dror 2025, arXiv 2501.10970)."""

    epsilon: float = Field(
        description="Advantage that a person must have to be worth their cost: 0.2 for experts, 0.15, 0.1 "
        "for crowd workers."
    )
    raters: tuple[AlternativeRater, ...] = Field(description="The comparison with each person.")
    winning_rate: float = Field(description="Share of the people whom the judge could replace.")
    passed: bool = Field(description="Whether the winning rate is 0.5 or more.")


class AgreementSlice(Frozen):
    """Kappa on a part of the labels."""

    by: SliceBy = Field(description="What the labels are divided by.")
    value: str = Field(description="Value that the labels of this part share.")
    labels: int = Field(description="Number of labels.")
    dialogues: int = Field(description="Number of dialogues.")
    kappa: Figure = Field(description="Quadratic-weighted kappa on this part.")


class JuryFigures(Frozen):
    """Whether a jury agrees with people better than its best judge, on the labels of one dimension."""

    judges: int = Field(description="Number of judges.")
    items: int = Field(description="Items that all judges scored and people labelled.")
    correlation: float = Field(
        description="Mean correlation of two judges' errors; an error is the residual of a linear fit of "
        "the scores to the labels."
    )
    votes: float | None = Field(
        description="k / (1 + (k - 1) correlation): the number of judges with independent errors that "
        "would be as good; null if the errors cancel out."
    )
    best: str = Field(description="The judge that agrees with people best.")
    best_spearman: float = Field(
        description="Spearman correlation of its scores with people's mean."
    )
    spearman: float = Field(
        description="Spearman correlation of the jury's scores with people's mean."
    )
    gain: tuple[float, float] = Field(
        description="95 % interval of the difference of the two (bootstrap over dialogues)."
    )
    recommended: bool = Field(
        description="Whether the jury agrees better than its best judge beyond chance."
    )
    sentence: str = Field(description="The finding in one sentence.")


class AgreementGate(Frozen):
    """Whether a dimension may be used as a filter: kappa of 0.5 or more, shown on at least 100 dialogues."""

    state: GateState = Field(
        description="`pass`: kappa is shown to be 0.5 or more. `fail`: shown to be less. "
        "`not_enough_labels`: not decided."
    )
    lower: float | None = Field(None, description="One-sided 95 % lower bound of kappa.")
    upper: float | None = Field(None, description="One-sided 95 % upper bound of kappa.")
    goes_by: Literal["levels", "mapped", "lower_of_both"] = Field(
        description="Levels that kappa was computed on. `levels`: the run's own. `mapped`: the judge's "
        "readings mapped to the labels' scale by cross-validation. `lower_of_both`: the lower "
        "of the two, if the run's levels were calibrated with labels of these dialogues."
    )
    more_dialogues: int | None = Field(
        None,
        description="About how many more labelled dialogues would decide it; null if it is decided or no "
        "reasonable number would.",
    )


class DimensionAgreement(Frozen):
    """Agreement of one dimension of the scores with people's labels."""

    labels: int = Field(description="Items that both the judge and people gave a level.")
    dialogues: int = Field(
        description="Number of dialogues (or groups of them) that these items come from."
    )
    scale: str = Field(description="Scale of the labels, worst level first.")
    compared: Literal["digits", "calibrated levels", "verdicts", "decisions"] = Field(
        description="What of the judge is compared with the labels."
    )
    levels: LevelFigures = Field(description="Agreement of the run's levels.")
    spearman: Figure = Field(
        description="Spearman correlation of the judge's expectation (or level, if there is none) with "
        "people's mean."
    )
    kendall: Figure = Field(description="Kendall's tau-b of the same.")
    mapped: LevelFigures | None = Field(
        None,
        description="Agreement of levels cut from the judge's readings at points fitted to the labels of "
        "other dialogues (5 folds): what a calibration with these labels would reach. null for"
        " fewer than 15 labels.",
    )
    level_names: tuple[str, ...] = Field(
        description="Names of the levels, in the order of the confusion matrices."
    )
    confusion: tuple[tuple[int, ...], ...] = Field(
        description="Confusion matrix of the run's levels: rows are people's level, columns the judge's."
    )
    mapped_confusion: tuple[tuple[int, ...], ...] | None = Field(
        None, description="Confusion matrix of the mapped levels."
    )
    not_applicable: dict[Literal["both", "judge_only", "people_only"], int] = Field(
        default_factory=dict,
        description="Items that one side or both call n/a; they are left out of all other figures.",
    )
    alpha: Figure = Field(
        Figure(), description="Krippendorff's alpha (ordinal) between the people."
    )
    raters: tuple[RaterFigures, ...] = Field(
        (), description="Agreement of each named person with the others: what a judge can reach."
    )
    alternative: AlternativeTest | None = Field(
        None,
        description="Alternative annotator test, if at least three named people rated 30 items each. Like "
        "the slices it uses the mapped levels if the gate does.",
    )
    slices: tuple[AgreementSlice, ...] = Field((), description="Kappa on parts of the labels.")
    jury: JuryFigures | None = Field(
        None,
        description="Figures of the jury, if the scores are a jury's, with labels of at least 10 dialogues.",
    )
    gate: AgreementGate = Field(description="Whether this dimension may be used as a filter.")

    @property
    def only_calibrated(self) -> bool:
        """Return whether the gate passes by mapped levels but the run has the judge's own, uncalibrated digits."""
        passes = self.gate.state == "pass" and self.gate.goes_by == "mapped"
        return passes and self.compared == "digits"

    @property
    def why_not(self) -> str:
        """Return in a few words why the dimension may not be used as a filter."""
        if self.only_calibrated:
            return "its levels agree with people once they are calibrated, and here they are not"
        levels = self.mapped if self.gate.goes_by == "mapped" and self.mapped else self.levels
        value = levels.kappa.value
        kappa = "kappa is not defined" if value is None else f"kappa {value:.2f}"
        of = f"{plural(self.labels, 'label')} of {plural(self.dialogues, 'dialogue')}"
        if self.gate.state == "fail":
            return f"{kappa}, at most {self.gate.upper:.2f}, on {of}"
        more = self.gate.more_dialogues
        few = "too few labels to tell" if more is None else f"about {more:,} more would tell"
        return f"{kappa} on {of}: {few}"


class CorrectedShare(Frozen):
    """A share that the run reports, and its value corrected for the judge's errors on the labels.

    theta = (p + q0 - 1) / (q0 + q1 - 1) with p the reported share, q1 the sensitivity, q0 the specificity
    (Rogan and Gladen 1978); interval by Lee et al., arXiv 2511.21140.
    """

    name: Literal["good dialogues", "adherent turns", "adherent dialogues"] = Field(
        description="What the share is about."
    )
    reported: float = Field(ge=0, le=1, description="Share that the run reports, 0-1.")
    of: int = Field(description="Number of dialogues or turns that it is a share of.")
    sensitivity: float | None = Field(
        None, description="Share (0-1) of what people call good that the judge calls good."
    )
    people_yes: int = Field(description="Labelled items that people call good.")
    specificity: float | None = Field(
        None, description="Share (0-1) of what people call bad that the judge calls bad."
    )
    people_no: int = Field(description="Labelled items that people call bad.")
    people_share: float = Field(
        ge=0,
        le=1,
        description="Share of the labelled items that people call good; independent of the judge.",
    )
    people_interval: tuple[float, float] = Field(
        description="95 % Wilson interval of `people_share`, if the labelled items are a random sample of "
        "the run's."
    )
    corrected: float | None = Field(
        None, ge=0, le=1, description="The corrected share, 0-1; null if it cannot be computed."
    )
    interval: tuple[float, float] | None = Field(
        None,
        description="95 % interval of the corrected share, for the sampling of both the run and the "
        "labels; cut at 0 and 1.",
    )
    beyond: bool = Field(
        False,
        description="The formula gave less than 0 or more than 1: the labels come from dialogues on which "
        "the judge errs differently, or there are too few.",
    )
    refused: str = Field("", description="Why there is no corrected share.")

    @property
    def described(self) -> str:
        """Return the reported and the corrected share in words."""
        reported = f"{self.name}: the judge says {self.reported:.0%} of {self.of:,}"
        low, high = self.people_interval
        alone = f"the labels alone, if drawn at random, {self.people_share:.0%} ({low:.0%} to {high:.0%})"
        if self.refused or self.corrected is None or self.interval is None:
            return f"{reported}; {alone}; from both the share cannot be told: {self.refused}"
        low, high = self.interval
        beyond = " (the formula leaves 0 to 100 %: look at the labels)" if self.beyond else ""
        return (
            f"{reported}; corrected for its errors on {plural(self.people_yes + self.people_no, 'label')} "
            f"{self.corrected:.0%} (95 % {low:.0%} to {high:.0%}){beyond}; {alone}"
        )


class Agreement(TrustReport):
    """Agreement of a run's scores with people's labels, as written by `curate agreement`."""

    kind: Literal[TrustKind.AGREEMENT] = TrustKind.AGREEMENT
    gold: str = Field(description="Where the labels come from.")
    rows: int = Field(description="Number of labels given.")
    raters: str = Field(
        "skilled", description="Kind of people who gave them: experts, skilled or crowd."
    )
    scales: dict[str, str] = Field(
        default_factory=dict,
        description="Scales of the labels that were named, by dimension or `*`.",
    )
    hold_out: float = Field(0, description="Share of the labelled dialogues that was left out.")
    unused: dict[str, int] = Field(
        default_factory=dict, description="Labels that could not be used for this run, by reason."
    )
    judges: dict[str, JudgeIdentity] = Field(
        default_factory=dict, description="The judge of each stage whose scores were compared."
    )
    dimensions: dict[str, DimensionAgreement] = Field(description="Agreement by dimension.")
    not_measured: dict[str, str] = Field(
        default_factory=dict,
        description="Dimensions that have labels but no figure, with the reason.",
    )
    assumed_scales: dict[str, str] = Field(
        default_factory=dict,
        description="Scale assumed for dimensions whose labels do not reach both ends of 1-5.",
    )
    shares: tuple[CorrectedShare, ...] = Field(
        (), description="Shares that the run reports, corrected for the judge's errors."
    )

    @property
    def not_for_use(self) -> dict[str, str]:
        """Return the dimensions that may not be used as filters as the run has them, with the reason."""
        return {
            name: dimension.why_not
            for name, dimension in self.dimensions.items()
            if dimension.gate.state != "pass" or dimension.only_calibrated
        }


def agreement_sentence(
    dimensions: Mapping[str, DimensionAgreement], shares: Iterable[CorrectedShare]
) -> str:
    """Return the findings as one sentence, and one more for each corrected share."""

    def named(state: GateState) -> str:
        return ", ".join(
            _with_kappa(name, dimension)
            for name, dimension in dimensions.items()
            if dimension.gate.state == state
        )

    parts = []
    if passed := named("pass"):
        parts.append(f"the judge is shown to agree with people on {passed}")
    if failed := named("fail"):
        parts.append(
            f"it is shown not to on {failed}"
            if parts
            else f"the judge is shown not to agree with people on {failed}"
        )
    if open_ones := named("not_enough_labels"):
        parts.append(f"there are too few labels to tell on {open_ones}")
    text = "; ".join(parts)
    sentences = [text, *(share.described for share in shares)]
    return " ".join(f"{one[0].upper()}{one[1:]}." for one in sentences)


def _with_kappa(name: str, dimension: DimensionAgreement) -> str:
    """Return a dimension's name with the bound of kappa that decided about it, or with the labels it lacks."""
    gate = dimension.gate
    if gate.state == "pass":
        calibrated = " once it is calibrated" if dimension.only_calibrated else ""
        return f"{name}{calibrated} (kappa at least {gate.lower:.2f})"
    if gate.state == "fail":
        mapped = " once mapped" if gate.goes_by == "mapped" else ""
        return f"{name} (kappa at most {gate.upper:.2f}{mapped})"
    more = gate.more_dialogues
    return name if more is None else f"{name} (about {plural(more, 'more dialogue')})"
