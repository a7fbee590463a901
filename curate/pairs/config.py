"""What a recipe may say about preference pairs; the room's two config models.

Defaults lean to dropping: a pair that is not made costs a little yield, a wrong pair trains the wrong
way. Nothing here is ever loosened to show pairs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field, model_validator

from curate.errors import UsageError
from curate.records import Certificate, PairCurve
from curate.records.calibration_file import read_certificate, read_curve
from curate.records.config import Config, MinGood


class VerifyConfig(Config):
    """When a pair passes. Forks and natural pairs are held to the same rules."""

    gone: ClassVar[Mapping[str, str]] = {
        "min_margin": "`curve`, a file that `curate calibrate` writes, says from which evidence on a pair passes",
        "fine_from": "it is `min_good` now",
    }

    wordings: int = Field(
        3,
        ge=2,
        le=4,
        description="Paraphrased questions each side is scored with, of the four the judge has; the spread"
        " of the differences over them is the judge's noise.",
    )
    curve: Annotated[
        PairCurve | None,
        BeforeValidator(read_curve, json_schema_input_type=PairCurve | str | None),
    ] = Field(
        None,
        description="File that `curate calibrate` wrote from planted twins or labelled pairs: the judge's "
        "readings become a probability that the chosen side is better, and its threshold decides. Without "
        "one the preference must exceed the spread of the position's pull, and the run says that this is "
        "not calibrated.",
    )
    noise_factor: float = Field(
        2.0,
        ge=0,
        description="A dimension may fall by at most this many standard deviations of its differences over "
        "the wordings.",
    )
    length_ratio: tuple[float, float] = Field(
        (0.8, 1.25),
        description="Token ratio chosen/rejected within which length cannot be the reason.",
    )
    length_margin_factor: float = Field(
        2.0, ge=1, description="Outside `length_ratio` the required evidence is multiplied by this."
    )
    min_good: MinGood = Field(
        default_factory=MinGood,
        description="Levels from which on a turn has no flaw: the original must lie below one of them"
        " again in the fresh context, or it is dropped as `original_was_fine`.",
    )
    min_coverage: float = Field(
        0.5,
        ge=0,
        le=1,
        description="Least share of probability mass on the letters asked for (of a comparison and of the"
        " other closed questions) where they are read from the first token; below it the answer is unscored.",
    )
    check_specifics: bool = Field(
        True,
        description="Ask the judge about numbers, names, dates, amounts, links and ids that only the chosen"
        " side has; one that nothing supports is dropped as `ungrounded_specifics`.",
    )
    check_role: bool = Field(
        True,
        description="Where the dialogue has a role and the recipe has a judge for role adherence: score both"
        " sides on it.",
    )
    max_role_fall: float = Field(
        0.1,
        ge=0,
        le=1,
        description="Most by which role adherence (0-1) may fall from the rejected to the chosen side.",
    )

    @model_validator(mode="after")
    def _has_a_length_range(self) -> VerifyConfig:
        low, high = self.length_ratio
        if not 0 < low <= 1 <= high:
            raise ValueError("length_ratio must be (low, high) with 0 < low <= 1 <= high")
        return self


class ForkConfig(VerifyConfig):
    """How pairs are forked off judged dialogues and verified."""

    where: str = Field(
        "weakest_turn IS NOT NULL",
        description="SQL condition over the score table: which dialogues are forked. It is independent"
        " of the SFT selection.",
    )
    at: Literal["weakest", "earliest"] = Field(
        "weakest",
        description="Which candidate turn is tried first. weakest: the judgment's weakest turn, then the others"
        " by confidence. earliest: by their order, and a turn must suffice: the judge says that its repair"
        " would repair the bad turns after it, and, judged again with the repaired turn in place, no turn up to"
        " it is bad. In both cases every scored turn before it must be free of flaws.",
    )
    max_forks: int = Field(
        1,
        ge=1,
        description="Most turns of a dialogue that candidates are made for; candidate turns beyond it are"
        " dropped as `over_limit`.",
    )
    min_confidence: float = Field(
        0.5,
        ge=0,
        le=1,
        description="A turn without a flaw is a candidate too where at least this share of the judge's mass on"
        " one dimension lies below the level of `min_good` (scoring mode tokens).",
    )
    tool_turns: Literal["last_text", "failed_message"] = Field(
        "last_text",
        description="Where a turn with tool calls is forked. last_text: at its last assistant text."
        " failed_message: at the message the judge names as the one that failed; where that calls a tool, the"
        " chosen side is a corrected call.",
    )
    resamples: int = Field(
        3, ge=0, le=64, description="Replies sampled from the policy at the exact prefix."
    )
    temperature: float = Field(0.8, ge=0, le=2, description="Of the resamples.")
    top_p: float = Field(0.95, gt=0, le=1, description="Of the resamples.")
    max_tokens: int = Field(
        512, ge=1, description="Bound of a reply; one that is cut by it is never used."
    )
    guided_revision: bool = Field(
        True,
        description="Also ask the reviser (temperature 0) for a minimal revision of the original, told"
        " the issue the judge found.",
    )
    early_stop: bool = Field(
        False,
        description="Ask for candidates one after the other, resamples first, and stop at the first that"
        " passes, instead of making all and taking the best. Fewer calls, and those not asked for leave no"
        " record.",
    )
    principles: tuple[str, ...] = Field(
        (),
        description="What a message must keep to, in sentences. The judge is asked which of them the original"
        " breaks, and the reviser is told to hold to them.",
    )
    certificate: Annotated[
        Certificate | None,
        BeforeValidator(read_certificate, json_schema_input_type=Certificate | str | None),
    ] = Field(
        None,
        description="File that `curate certify` wrote of pairs: those below its threshold are dropped as "
        "`below_certificate`. Refused where judge, prompts or source differ. The run says whether its pairs are those "
        "that were certified.",
    )
    prompt_reasoning: bool = Field(
        False,
        description="Keep parsed-off thinking in the prompt's assistant messages, as `reasoning_content`."
        " The policy then sees it too; turn it on only together with the same option of the export.",
    )

    @model_validator(mode="after")
    def _is_certified_as_pairs(self) -> ForkConfig:
        if self.certificate is not None and self.certificate.certified.of != "pairs":
            raise UsageError(
                "the certificate is not of pairs that forks made",
                got=f"fork.certificate of {self.certificate.certified.of}",
                expected="one that `curate certify RUN GOLD --of pairs` wrote; of dialogues: select.certificate",
            )
        return self

    @model_validator(mode="after")
    def _has_candidates(self) -> ForkConfig:
        if not self.resamples and not self.guided_revision:
            raise ValueError("with resamples 0 and no guided_revision a fork has no candidate")
        return self


NaturalBasis = Literal["preference", "rank", "label", "reward"]


class NaturalConfig(Config):
    """Pairs the data already holds: found without a model, and verified by the judge if asked to."""

    off: ClassVar[Mapping[str, Any] | None] = {"enabled": False}

    enabled: bool = True
    bases: tuple[NaturalBasis, ...] = Field(
        ("preference", "rank", "label", "reward"),
        description="What may say that one side is better: a preference label, sibling ranks, a label of"
        " siblings without ranks, or the reward of the trajectories through a message.",
    )
    pairing: Literal["best_worst", "all"] = Field(
        "best_worst",
        description="At one fork: the best sibling against the worst, or every better against every"
        " worse one.",
    )
    min_reward_gap: float = Field(
        0.5,
        gt=0,
        description="Least difference of mean reward, in the data's own unit; the default is half of a"
        " 0-1 reward.",
    )
    label: str = Field(
        "quality",
        description="Which of the messages' labels the basis `label` goes by; more is better.",
    )
    min_label_gap: float = Field(
        0.25, gt=0, description="Least difference of that label, in the data's own unit."
    )
    max_per_group: int = Field(
        8,
        ge=1,
        description="Most records one group gives, of pairs and of dropped ones each; what exceeds it is one"
        " record, `over_limit`, that says how many.",
    )
    prompt_reasoning: bool = Field(
        False, description="Keep parsed-off thinking in the prompt's assistant messages."
    )
    verify: VerifyConfig | bool = Field(
        False,
        description="Have `models.judge` verify every pair that passed the checks without a model, by the"
        " rules of forked pairs; a mapping sets their thresholds.",
    )
    may_be_fine: bool = Field(
        False,
        description="Of verified pairs: the rejected side need not have a flaw, only be worse. By default it"
        " is dropped as `original_was_fine`, as in a fork.",
    )

    @property
    def verification(self) -> VerifyConfig | None:
        """The thresholds of verification; None where it is not asked for."""
        if not self.enabled or self.verify is False:
            return None
        return VerifyConfig() if self.verify is True else self.verify
