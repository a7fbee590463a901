"""Parameters of the role adherence metric.

Names and defaults are those of the paper ("Role Adherence", Fritz and Fiorenza 2026, section
"Configuration Parameters"), but for `output_mode: auto`; what the paper leaves open has parameters of its own
below them.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Collection
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, field_validator, model_validator

from curate.adherence.reference_config import ReferenceConfig, ReferenceMethod
from curate.engines.base import Capability
from curate.records import JudgeCalibration, JudgeIdentity
from curate.records.calibration_file import OtherJudge, identity_fields, read_calibration
from curate.records.config import Config

OutputMode = Literal["binary", "continuous"]
Definition = Literal["constructive", "restrictive"]
Granularity = Literal["turn", "conversation"]

_DISTRIBUTIONS = frozenset({Capability.TOP_LOGPROBS, Capability.LABEL_LOGPROBS})


def _of_adherence(value: Any) -> JudgeCalibration | None:
    """Return the part about role adherence of a calibration file."""
    calibration = read_calibration(value, "adherence.calibration", "adherence")
    return None if calibration is None else calibration.adherence


class AdherenceConfig(Config):
    """How role adherence is scored. Scores lie in [0, 1]; 1 is full adherence."""

    scoring_method: Literal["llm_judge"] | ReferenceMethod = Field(
        "llm_judge",
        description="`llm_judge`: a judge model reads the role and sees every kind of violation. The other"
        " methods compare a turn with reference texts without a judge, and notice only drift "
        "from those texts.",
    )
    reference: ReferenceConfig = Field(
        default_factory=ReferenceConfig,
        description="Options of the methods other than `llm_judge`; `llm_judge` ignores them.",
    )
    output_mode: Literal["auto"] | OutputMode = Field(
        "auto",
        description="`binary`: yes or no at temperature 0, so a score of 0 or 1. `continuous`: P(yes) from"
        " the first token's distribution, 0 to 1; needs an engine with log-probabilities. "
        "`auto`: `continuous` where the engine has log-probabilities, else `binary`.",
    )
    evaluation_granularity: Granularity = Field(
        "turn",
        description="`turn`: every assistant turn is judged, with the turns before it as context. "
        "`conversation`: one question about the whole dialogue, which gives a session score "
        "and no turn scores.",
    )
    definition: Definition = Field(
        "constructive",
        description="`constructive`: a turn is adherent if it does what the role demands. `restrictive`: "
        "if it does nothing that the role excludes.",
    )
    strict_mode: bool = Field(
        False, description="A dialogue is adherent only if every assistant turn is."
    )
    threshold: float = Field(
        0.5,
        ge=0,
        le=1,
        description="Lowest session score (0-1) of an adherent dialogue; not used with `strict_mode`.",
    )
    turn_threshold: float = Field(
        0.5,
        ge=0,
        le=1,
        description="Lowest score (0-1) of an adherent turn in continuous mode. Where a calibration is "
        "applied, its threshold is used instead.",
    )
    include_reason: bool = Field(
        False,
        description="Ask for the reason of every answer in a further request, which does not change the "
        "answer: a justification and, for a violation, its kind and the words of the role that"
        " it breaks.",
    )
    interval: Literal["frequentist", "bayesian"] = Field(
        "frequentist",
        description="Method of the 95 % interval of the session score. `frequentist`: Wilson (binary mode)"
        " or bootstrap (continuous mode). `bayesian`: Beta posterior with Jeffreys' prior "
        "(binary mode) or Bayesian bootstrap (continuous mode).",
    )
    calibration: Annotated[
        JudgeCalibration | None,
        BeforeValidator(_of_adherence, json_schema_input_type=JudgeCalibration | str | None),
    ] = Field(
        None,
        description="File written by `curate calibrate`: scores become probabilities, and its threshold "
        "decides which turns are adherent. Ignored with a warning if it was made for another "
        "judge or other options.",
    )
    weights: tuple[float, ...] | None = Field(
        None,
        description="Weight of each assistant turn in the session score, in order. A dialogue with another"
        " number of assistant turns is unscored (`weights_mismatch`).",
    )
    on_missing: Literal["unscored", "half"] = Field(
        "unscored",
        description="Continuous mode, when yes and no together have less probability than `min_coverage`. "
        "`unscored`: the turn has no score. `half`: its score is 0.5, as in the paper, and it "
        "does not count as adherent.",
    )
    min_coverage: float = Field(
        0.001,
        ge=0,
        le=1,
        description="Continuous mode: lowest probability (0-1) that the first token must put on yes and no"
        " together.",
    )
    answer_prefix: str | None = Field(
        None,
        description="Text that the judge's reply is forced to start with, for models that would begin with"
        " another word. Needs an engine that can continue a given reply.",
    )
    missing_role: Literal["error", "skip"] = Field(
        "error",
        description="`error`: a dialogue without a role definition is unscored (`missing_role`) and fails "
        "filters. `skip`: it is left out (`skipped`), and conditions on adherence do not apply"
        " to it.",
    )
    min_scored_share: float | None = Field(
        None,
        gt=0,
        le=1,
        description="Share of the assistant turns (0-1) that must have a score; null: all of them.",
    )
    retries: int = Field(
        2, ge=0, le=10, description="How often an unreadable reply is asked for again."
    )
    max_reply_tokens: int = Field(
        16,
        ge=1,
        description="Longest reply in binary mode, in tokens. Raise it for a judge that thinks in its "
        "reply.",
    )
    max_reason_tokens: int = Field(
        400,
        ge=1,
        description="Longest reason, in tokens. Raise it for a judge that thinks in its reply.",
    )
    show_reasoning: bool = Field(False, description="Show the assistant's thinking to the judge.")

    @field_validator("weights")
    @classmethod
    def _weigh_something(cls, weights: tuple[float, ...] | None) -> tuple[float, ...] | None:
        if weights is None:
            return None
        if any(not math.isfinite(weight) or weight < 0 for weight in weights) or not sum(weights):
            raise ValueError("weights are finite, 0 or more, and not all 0")
        return weights

    @model_validator(mode="after")
    def _ask_for_what_there_is(self) -> AdherenceConfig:
        whole = self.evaluation_granularity == "conversation"
        if whole and self.weights is not None:
            raise ValueError(
                "weights are per turn, and evaluation_granularity conversation gives no scores of turns: "
                "leave one of the two out"
            )
        if whole and self.min_scored_share is not None:
            raise ValueError(
                "min_scored_share counts scored turns, and evaluation_granularity conversation gives "
                "none: leave one of the two out"
            )
        if self.scoring_method != "llm_judge" and (whole or self.include_reason):
            key = "evaluation_granularity conversation" if whole else "include_reason"
            raise ValueError(f"{key} needs a judge; {self.scoring_method} compares turn by turn")
        return self


def resolve_output_mode(
    config: AdherenceConfig, capabilities: Collection[Capability]
) -> tuple[OutputMode, str | None]:
    """Return the output mode an engine can serve, and a warning where the config names another.

    As in the paper, an engine without log-probabilities is asked in binary mode; `auto` leaves that to the engine,
    so it is no warning there. The caller prints the warning once and keeps it with the run; scores of the two
    modes are told apart by their identity.
    """
    warnings = []
    can_read = bool(_DISTRIBUTIONS & set(capabilities))
    mode: OutputMode
    if config.output_mode == "auto":
        mode = "continuous" if can_read else "binary"
    else:
        mode = config.output_mode
    if mode == "continuous" and not can_read:
        mode = "binary"
        warnings.append(
            "adherence: the judge's engine gives no log-probabilities, so output_mode falls back from "
            "continuous to binary; every turn is scored 0 or 1 and thresholds between mean shares of "
            "turns"
        )
    if config.answer_prefix and Capability.PREFILL not in capabilities:
        warnings.append(
            "adherence: the judge's engine cannot continue a given reply, so answer_prefix "
            f"{config.answer_prefix!r} is not used"
        )
    return mode, "\n".join(warnings) or None


def settle_calibration(
    config: AdherenceConfig, identity: JudgeIdentity
) -> tuple[AdherenceConfig, JudgeIdentity, str | None]:
    """The config with its calibration if that holds for the judge, else without; then the identity that
    stands in the records, and a warning where it does not hold.

    The identity names the calibration, since recalibrated scores do not compare with raw ones.
    """
    calibration = config.calibration
    if calibration is None:
        return config, identity, None
    options = ("scoring_method", "evaluation_granularity", "definition")
    other = OtherJudge.between(
        identity_fields(calibration.identity)
        | {name: getattr(calibration, name) for name in options},
        identity_fields(identity) | {name: getattr(config, name) for name in options},
    )
    if other is not None:
        warning = (
            "adherence: the calibration is IGNORED, since it was made for another judge or other settings of it "
            f"({other}). Scores are as the judge gives them and turn_threshold "
            f"{config.turn_threshold:g} holds; run `curate calibrate` on labelled turns for this judge."
        )
        return config.model_copy(update={"calibration": None}), identity, warning
    digest = hashlib.blake2b(calibration.model_dump_json().encode(), digest_size=4).hexdigest()
    return config, identity.calibrated(f"{calibration.method} {digest}"), None


def describe_threshold(config: AdherenceConfig, identity: JudgeIdentity) -> str:
    """Say in one sentence whether scores with this identity are yes or no by a threshold fitted to people's labels."""
    if identity != identity.uncalibrated():
        return "Role adherence goes by a threshold fitted to people's labels."
    method = "judge" if config.scoring_method == "llm_judge" else "method"
    if config.output_mode == "binary" or identity.mode == "binary":
        return (
            f"Role adherence is the {method}'s own yes or no, never calibrated; `curate calibrate` wants scores of "
            "output_mode continuous."
        )
    return (
        f"Role adherence: turn_threshold {config.turn_threshold:g} was never calibrated for this {method}. Ranks "
        "(adherence) say more than yes or no; `curate calibrate` fits a threshold to people's labels."
    )
