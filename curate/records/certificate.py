"""The certificate that a sample of labels gives for a set, and the draw that the labels come from."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from curate.dialogue import Frozen
from curate.records.judgment import JudgeIdentity
from curate.records.trust_report import TrustKind, TrustReport

CertificateTest = Literal["audit", "anytime", "threshold"]
DrawPurpose = Literal["certify", "agreement", "calibrate"]


class DrawStratum(Frozen):
    """A part of the set that was drawn from; each of its members was drawn with probability drawn / size."""

    name: str = Field(
        description="Name: the lowest to highest score of the part, or the value of a column of words."
    )
    size: int = Field(description="Number of members.")
    drawn: int = Field(description="Number of members drawn.")


class Draw(Frozen):
    """The items that people were asked to label, recorded with the run as `trust/draws/<id>.json`.

    Beside it is a Parquet table of everything that could have been drawn: `unit` (dialogue or pair id), `stratum`, its
    place in the random order and whether it was drawn.
    """

    kind: Literal["draw"] = "draw"
    id: str = Field(description="Id of the draw.")
    made: str = Field(description="Time in UTC, ISO 8601.")
    run: str = Field(description="Name of the run.")
    purpose: DrawPurpose = Field(description="What the labels are for.")
    of: str = Field(
        description="What was drawn from: sft, scored, all, pairs, natural_pairs or an SQL condition."
    )
    by: str | None = Field(
        None, description="Column whose values form the strata; null: one stratum."
    )
    seed: int = Field(description="Random seed.")
    strata: tuple[DrawStratum, ...] = Field(description="The strata.")
    sizes: tuple[int, ...] = Field(
        description="Number of labels asked for; several numbers if the draw was enlarged later. Each stratum gives at "
        "least one, so more may be drawn: see `strata`."
    )


class CertifiedSet(Frozen):
    """The set that a certificate is about."""

    of: str = Field(description="What the set was taken from; values as in `Draw.of`.")
    rule: str = Field("", description="SQL condition that its members meet; empty: all of it.")
    column: str | None = Field(None, description="Score that a certified threshold applies to.")
    threshold: float | None = Field(None, description="Lowest score of the members.")
    size: int = Field(description="Number of members, without `apart`.")
    apart: int = Field(
        0,
        description="Members whose labels were used to fit the judge's calibration or to choose its "
        "prompts; the certificate does not cover them.",
    )
    fingerprint: str = Field(description="Hash of the members' content.")


class LabelCounts(Frozen):
    """The labels that a certificate is based on."""

    origin: Literal["draw", "all", "unknown"] = Field(
        description="`draw`: from a draw recorded with the run. `all`: every member has a label, so "
        "nothing was drawn. `unknown`: the certificate holds only if the labels were drawn at "
        "random."
    )
    draw: str | None = Field(None, description="Id of the draw.")
    drawn: int = Field(description="Members that were to be labelled.")
    labelled: int = Field(description="Members with a label.")
    missing: int = Field(0, description="Members drawn but not labelled; they count as bad.")
    bad: int = Field(description="Bad members, including the missing ones.")
    unused: dict[str, int] = Field(
        default_factory=dict, description="Rows of labels that were not used, by reason."
    )
    hold_out: float = Field(
        0.0,
        ge=0,
        lt=1,
        description="Share (0-1) of the labelled dialogues that were not used to choose prompts; the "
        "others are set apart.",
    )
    rule: str | None = Field(
        None, description="What counts as bad, as given by `--bad`; null: the default."
    )
    fingerprint: str = Field("", description="Hash of the file of labels.")


class ThresholdStep(Frozen):
    """A threshold that was tested, strictest first."""

    threshold: float = Field(description="Lowest score of the dialogues kept.")
    kept: int = Field(description="Dialogues kept by it.")
    labelled: int = Field(description="Number of these with a label.")
    bad: int = Field(description="Number of these that are bad.")
    p_value: float = Field(description="p-value of the test.")
    passed: bool = Field(description="Whether the test passed.")


class Certificate(TrustReport):
    """What labels prove about a set, or that they do not. It states the guarantee P1 of `docs/trust.md`."""

    kind: Literal[TrustKind.CERTIFICATE, TrustKind.PAIR_CERTIFICATE] = Field(
        description="Kind of the report."
    )
    issued: bool = Field(description="Whether the labels prove it; false: there is no certificate.")
    run: str = Field(description="Name of the run.")
    promise: Literal["P1"] = Field(
        "P1",
        description="P1: with probability of at least `confidence` over the random draw of the labels, the"
        " share of bad members of the certified set is at most `risk`.",
    )
    test: CertificateTest = Field(
        description="Test that was used: `audit` of a fixed set, `anytime` for a growing number of labels,"
        " or `threshold` on a score."
    )
    bad: str = Field(description="What counts as bad, in the user's words.")
    risk: float = Field(gt=0, lt=1, description="Highest allowed share of bad members, 0-1.")
    confidence: float = Field(
        gt=0.5,
        lt=1,
        description="Confidence of this test. With earlier attempts the guarantee is weaker: see "
        "`joint_confidence`.",
    )
    certified: CertifiedSet = Field(description="The set that the certificate is about.")
    labels: LabelCounts = Field(description="The labels it is based on.")
    p_value: float | None = Field(None, description="p-value of the test; null for `anytime`.")
    evidence: float | None = Field(None, description="e-value of the test `anytime`.")
    bound: float = Field(
        description="Upper bound of the share of bad members (0-1) that these labels give with this "
        "confidence."
    )
    steps: tuple[ThresholdStep, ...] = Field((), description="Thresholds that were tested.")
    more_labels: int | None = Field(
        None,
        description="Labels that would be enough if bad members came at the rate seen; null if no number "
        "would.",
    )
    earlier_attempts: int = Field(
        0,
        description="Other tests about the same meaning of bad that were made before, each with its own "
        "chance of being wrong.",
    )
    identities: dict[str, JudgeIdentity] = Field(
        default_factory=dict, description="The judges whose scores define the set, by stage."
    )
    source: str = Field(description="Hash of the content of all dialogues of the run.")

    @property
    def joint_confidence(self) -> float:
        """Return the confidence (0-1) that this answer and all earlier ones are right (Bonferroni)."""
        return max(0.0, 1 - (1 + self.earlier_attempts) * (1 - self.confidence))

    @property
    def is_spent(self) -> bool:
        """Whether so many questions were asked that one of the answers is likely to be wrong."""
        return self.joint_confidence <= 0.5 + 1e-9

    @model_validator(mode="after")
    def _has_its_threshold(self) -> Certificate:
        if self.test == "threshold" and self.issued and self.certified.threshold is None:
            raise ValueError("a certified threshold is missing")
        return self
