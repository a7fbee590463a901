"""What a sample of labels proves of a set: the certificate, and the draw that the labels are of."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from curate.dialogue import Frozen
from curate.records.judgment import JudgeIdentity
from curate.records.trust_report import TrustKind, TrustReport

CertificateTest = Literal["audit", "anytime", "threshold"]
DrawPurpose = Literal["certify", "agreement", "calibrate"]


class DrawStratum(Frozen):
    """A part of what was drawn from: each of its members had the chance drawn / size."""

    name: str = Field(
        description="Of a score's part its lowest to highest score; of a column of words the word."
    )
    size: int
    drawn: int


class Draw(Frozen):
    """What people were asked to label, recorded with the run: `trust/draws/<id>.json`.

    Beside it lies a Parquet table of everything that could have been drawn: `unit` (dialogue or pair id), `stratum`, its
    place in the random order and whether it was drawn.
    """

    kind: Literal["draw"] = "draw"
    id: str
    made: str = Field(description="When, ISO 8601 in UTC.")
    run: str = Field(description="Name of the run.")
    purpose: DrawPurpose
    of: str = Field(
        description="What was drawn from: sft, scored, all, pairs, natural_pairs or an SQL condition."
    )
    by: str | None = Field(None, description="Column whose parts are the strata.")
    seed: int
    strata: tuple[DrawStratum, ...]
    sizes: tuple[int, ...] = Field(
        description="How many were drawn; more than one number where the draw was made larger later."
    )


class CertifiedSet(Frozen):
    """What a certificate speaks of."""

    of: str = Field(description="What it was taken from: as `Draw.of`.")
    rule: str = Field(
        "", description="The SQL condition that takes it from there; empty: all of it."
    )
    column: str | None = Field(None, description="Of a certified threshold: the score.")
    threshold: float | None = Field(None, description="Members have at least this score.")
    size: int = Field(description="Members, without those set apart.")
    apart: int = Field(
        0,
        description="Members whose labels fitted the judge's calibration or chose its prompts; nothing is promised of these.",
    )
    fingerprint: str = Field(description="Hash of the members' content.")


class LabelCounts(Frozen):
    """The labels that a certificate rests on."""

    origin: Literal["draw", "all", "unknown"] = Field(
        description="draw: of a draw that is recorded with the run. all: every member has a label, so none had to be "
        "drawn. unknown: the certificate holds only if they were drawn at random."
    )
    draw: str | None = None
    drawn: int = Field(description="Members that were to be labelled.")
    labelled: int
    missing: int = Field(0, description="Drawn and not labelled: counted as bad.")
    bad: int = Field(description="With the missing ones.")
    unused: dict[str, int] = Field(default_factory=dict, description="Rows not used, by reason.")
    hold_out: float = Field(
        0.0,
        ge=0,
        lt=1,
        description="Share of the labelled dialogues that were kept from choosing prompts; the others are set apart.",
    )
    rule: str | None = Field(
        None, description="What counts as bad, as `--bad` gave it; null: by default."
    )
    fingerprint: str = Field("", description="Hash of the file of labels.")


class ThresholdStep(Frozen):
    """A threshold that was asked, strict ones first."""

    threshold: float
    kept: int
    labelled: int
    bad: int
    p_value: float
    passed: bool


class Certificate(TrustReport):
    """What labels prove of a set, or that they do not. Its promise is P1: see `docs/trust.md`."""

    kind: Literal[TrustKind.CERTIFICATE, TrustKind.PAIR_CERTIFICATE]
    issued: bool = Field(description="False: these labels cannot show it.")
    run: str
    promise: Literal["P1"] = Field(
        "P1",
        description="In at most a share 1 - confidence of such cases is more than `risk` of the set bad; chance is "
        "in the draw of the labels.",
    )
    test: CertificateTest
    bad: str = Field(description="What counts as bad, as the user said it.")
    risk: float = Field(gt=0, lt=1)
    confidence: float = Field(
        gt=0.5,
        lt=1,
        description="Of the test. With earlier questions less is promised: `joint_confidence`.",
    )
    certified: CertifiedSet
    labels: LabelCounts
    p_value: float | None = Field(None, description="Of the test; null for `anytime`.")
    evidence: float | None = Field(None, description="Of `anytime`: the e-value.")
    bound: float = Field(
        description="The share of bad ones that is not exceeded with this confidence, of these labels."
    )
    steps: tuple[ThresholdStep, ...] = ()
    more_labels: int | None = Field(
        None,
        description="Labels that would do if bad ones came at the rate seen; null: no number would.",
    )
    earlier_attempts: int = Field(
        0,
        description="Other questions asked about what is bad in that sense before, each with a chance to be wrong.",
    )
    identities: dict[str, JudgeIdentity] = Field(
        default_factory=dict, description="Whose scores it goes by, by stage."
    )
    source: str = Field(description="Hash of the content of all dialogues of the run.")

    @property
    def joint_confidence(self) -> float:
        """How sure it is that no answer is wrong, this one's and those of the questions before, 0-1 (Bonferroni)."""
        return max(0.0, 1 - (1 + self.earlier_attempts) * (1 - self.confidence))

    @model_validator(mode="after")
    def _has_its_threshold(self) -> Certificate:
        if self.test == "threshold" and self.issued and self.certified.threshold is None:
            raise ValueError("a certified threshold is missing")
        return self
