"""Whether a calibration holds for the judge of a run.

A curve fitted to one judge says nothing about another, nor about the same judge asked in another way. So it
is applied where everything that determines a score is the same, and else ignored, loudly.
"""

from __future__ import annotations

import hashlib

from curate.adherence.config import AdherenceConfig
from curate.records import JudgeIdentity
from curate.records.calibration_file import OtherJudge, described


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
    asked = ("scoring_method", "evaluation_granularity", "definition")
    other = OtherJudge.between(
        described(calibration.identity) | {name: getattr(calibration, name) for name in asked},
        described(identity) | {name: getattr(config, name) for name in asked},
    )
    if other is not None:
        warning = (
            "adherence: the calibration is IGNORED, since it was made for another judge or way of asking "
            f"({other}). Scores are as the judge gives them and turn_threshold "
            f"{config.turn_threshold:g} holds; run `curate calibrate` on labelled turns for this judge."
        )
        return config.model_copy(update={"calibration": None}), identity, warning
    digest = hashlib.blake2b(calibration.model_dump_json().encode(), digest_size=4).hexdigest()
    return config, identity.calibrated(f"{calibration.method} {digest}"), None


def describe_threshold(config: AdherenceConfig, identity: JudgeIdentity) -> str:
    """One sentence: whether scores with this identity are yes or no by a threshold fitted to people's labels."""
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
