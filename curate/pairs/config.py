"""The sections `fork` and `natural` of a recipe.

Defaults lean to dropping: a pair that is not made costs a little yield, a wrong pair trains the wrong way. No
option is ever loosened to get more pairs.
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
    """When a pair passes. The rules are the same for forks and natural pairs."""

    gone: ClassVar[Mapping[str, str]] = {
        "min_margin": "use `curve`, a file written by `curate calibrate`, which holds the threshold",
        "fine_from": "use `min_good`",
    }

    wordings: int = Field(
        3,
        ge=2,
        le=4,
        description="Paraphrases of the question that each side is scored with, of the four that the judge"
        " has. The spread of the score differences over them is the judge's noise.",
    )
    curve: Annotated[
        PairCurve | None,
        BeforeValidator(read_curve, json_schema_input_type=PairCurve | str | None),
    ] = Field(
        None,
        description="File written by `curate calibrate` from planted twins or labelled pairs: the judge's "
        "readings become a probability that the chosen side is better, and the file's "
        "threshold decides. Without it the preference must exceed the spread of the position "
        "effect, and the run reports that pairs are not calibrated.",
    )
    noise_factor: float = Field(
        2.0,
        ge=0,
        description="A dimension may fall from the rejected to the chosen side by at most this many "
        "standard deviations of its differences over the wordings.",
    )
    length_ratio: tuple[float, float] = Field(
        (0.8, 1.25),
        description="Range of the ratio of lengths in tokens, chosen over rejected, in which length counts"
        " as similar.",
    )
    length_margin_factor: float = Field(
        2.0,
        ge=1,
        description="Outside `length_ratio` the required evidence is multiplied by this factor.",
    )
    min_good: MinGood = Field(
        default_factory=MinGood,
        description="Lowest levels (1-5) of a turn without a flaw, by dimension. Scored again in a fresh "
        "context, the original must lie below one of them, or the pair is dropped as "
        "`original_was_fine`.",
    )
    min_coverage: float = Field(
        0.5,
        ge=0,
        le=1,
        description="Lowest probability (0-1) that the answer letters must have together where answers are"
        " read from the first token; below it the answer is unscored. Holds for comparisons "
        "and the other closed questions.",
    )
    check_specifics: bool = Field(
        True,
        description="Ask the judge about numbers, names, dates, amounts, links and ids that only the "
        "chosen side has. If one is not supported by the dialogue, the pair is dropped as "
        "`ungrounded_specifics`.",
    )
    check_role: bool = Field(
        True,
        description="Score both sides on role adherence, where the dialogue has a role and the recipe has "
        "a judge for role adherence.",
    )
    max_role_fall: float = Field(
        0.1,
        ge=0,
        le=1,
        description="Largest fall of role adherence (0-1) from the rejected to the chosen side.",
    )

    @model_validator(mode="after")
    def _has_a_length_range(self) -> VerifyConfig:
        low, high = self.length_ratio
        if not 0 < low <= 1 <= high:
            raise ValueError("length_ratio must be (low, high) with 0 < low <= 1 <= high")
        return self


class ForkConfig(VerifyConfig):
    """How pairs are made from judged dialogues by forking at a bad turn, and verified."""

    where: str = Field(
        "weakest_turn IS NOT NULL",
        description="SQL condition over the score table: which dialogues are forked. Independent of the "
        "SFT selection.",
    )
    at: Literal["weakest", "earliest"] = Field(
        "weakest",
        description="Which candidate turn is tried first. `weakest`: the judgment's weakest turn, then the"
        " others by confidence. `earliest`: in order, and one turn must be enough: the judge "
        "says that repairing it would also repair the bad turns after it, and when the "
        "dialogue is judged again with the repaired turn, no turn up to it is bad. In both "
        "cases every scored turn before it must be without a flaw.",
    )
    max_forks: int = Field(
        1,
        ge=1,
        description="Most turns of a dialogue that are forked; further candidate turns are dropped as "
        "`over_limit`.",
    )
    min_confidence: float = Field(
        0.5,
        ge=0,
        le=1,
        description="A turn without a flaw is still a candidate if at least this share (0-1) of the "
        "judge's probability on one dimension lies below the level of `min_good` (scoring mode"
        " tokens).",
    )
    tool_turns: Literal["last_text", "failed_message"] = Field(
        "last_text",
        description="Where a turn with tool calls is forked. `last_text`: at its last assistant text. "
        "`failed_message`: at the message that the judge names as the one that failed; if that"
        " message calls a tool, the chosen side is a corrected call.",
    )
    resamples: int = Field(
        3, ge=0, le=64, description="Replies sampled from the policy model after the same prefix."
    )
    temperature: float = Field(
        0.8, ge=0, le=2, description="Sampling temperature of the resamples."
    )
    top_p: float = Field(0.95, gt=0, le=1, description="Nucleus sampling (top-p) of the resamples.")
    max_tokens: int = Field(
        512,
        ge=1,
        description="Longest reply in tokens; a reply cut off at this length is never used.",
    )
    guided_revision: bool = Field(
        True,
        description="Also ask the reviser (temperature 0) for a minimal revision of the original, given "
        "the issue that the judge found.",
    )
    early_stop: bool = Field(
        False,
        description="Ask for candidates one after the other, resamples first, and stop at the first that "
        "passes, instead of making all and taking the best. Makes fewer calls; candidates that"
        " were not asked for leave no record.",
    )
    principles: tuple[str, ...] = Field(
        (),
        description="Rules that an assistant message must follow, one sentence each. The judge is asked "
        "which of them the original breaks, and the reviser is told to follow them.",
    )
    certificate: Annotated[
        Certificate | None,
        BeforeValidator(read_certificate, json_schema_input_type=Certificate | str | None),
    ] = Field(
        None,
        description="File written by `curate certify --of pairs`: pairs below its threshold are dropped as"
        " `below_certificate`. Refused where judge, prompts or source differ. The run reports "
        "whether its pairs are the certified ones.",
    )
    prompt_reasoning: bool = Field(
        False,
        description="Keep the assistant's thinking in the prompt, as `reasoning_content`. The policy then "
        "sees it too; turn it on only together with `export.keep_reasoning`.",
    )

    @model_validator(mode="after")
    def _is_certified_as_pairs(self) -> ForkConfig:
        if self.certificate is not None and self.certificate.certified.of != "pairs":
            raise UsageError(
                "the certificate is not for pairs made by forks",
                got=f"a certificate of {self.certificate.certified.of} in fork.certificate",
                expected="a file written by `curate certify RUN GOLD --of pairs`; one for dialogues goes into select.certificate",
            )
        return self

    @model_validator(mode="after")
    def _has_candidates(self) -> ForkConfig:
        if not self.resamples and not self.guided_revision:
            raise ValueError(
                "a fork needs candidates: set resamples above 0 or guided_revision to true"
            )
        return self


NaturalBasis = Literal["preference", "rank", "label", "reward"]


class NaturalConfig(Config):
    """Pairs that the data already contains: found without a model, and verified by the judge if `verify` asks for it."""

    off: ClassVar[Mapping[str, Any] | None] = {"enabled": False}

    enabled: bool = Field(True, description="Whether natural pairs are looked for.")
    bases: tuple[NaturalBasis, ...] = Field(
        ("preference", "rank", "label", "reward"),
        description="What may say that one side is better: `preference`: a preference label; `rank`: the "
        "ranks of siblings; `label`: a label of siblings without ranks; `reward`: the mean "
        "reward of the trajectories through a message.",
    )
    pairing: Literal["best_worst", "all"] = Field(
        "best_worst",
        description="Pairs at one fork. `best_worst`: the best sibling against the worst. `all`: every "
        "better sibling against every worse one.",
    )
    min_reward_gap: float = Field(
        0.5,
        gt=0,
        description="Smallest difference of mean reward, in the data's own unit; the default is half of a "
        "0-1 reward.",
    )
    label: str = Field(
        "quality",
        description="Name of the message label that the basis `label` uses; higher is better.",
    )
    min_label_gap: float = Field(
        0.25, gt=0, description="Smallest difference of that label, in the data's own unit."
    )
    max_per_group: int = Field(
        8,
        ge=1,
        description="Most pairs, and most dropped pairs, that one group gives. One record `over_limit` "
        "says how many more there were.",
    )
    prompt_reasoning: bool = Field(
        False, description="Keep the assistant's thinking in the prompt, as `reasoning_content`."
    )
    verify: VerifyConfig | bool = Field(
        False,
        description="Have `models.judge` verify every pair that passed the checks without a model, by the "
        "rules for forked pairs. A mapping sets the thresholds.",
    )
    may_be_fine: bool = Field(
        False,
        description="For verified pairs: the rejected side need not have a flaw, only be worse. By default"
        " such a pair is dropped as `original_was_fine`, as in a fork.",
    )

    @property
    def verification(self) -> VerifyConfig | None:
        """Return the thresholds of verification; None where it is off."""
        if not self.enabled or self.verify is False:
            return None
        return VerifyConfig() if self.verify is True else self.verify
