"""A cascade: a small judge scores every dialogue, a large one only those that the small one is not sure of.

Which of the two decides follows from the small judge's readings of the dialogue and a threshold, and from nothing
else: a dialogue's judgment is the same whatever run it is part of. A share of the dialogues that the small judge
is sure of is shown to the large one all the same, drawn by their hash: what the cascade loses is measured on them,
and does not change their judgment.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Annotated

from pydantic import BeforeValidator, Field, model_validator

from curate.engines.config import EngineConfig
from curate.errors import UsageError
from curate.judging.opinions import Juror, with_opinions
from curate.records import CascadeFit, Doubt, JudgeIdentity, Judgment, ScoringMode, Unscored
from curate.records.calibration_file import check_same_judge, identity_fields, read_cascade_fit
from curate.records.config import Config
from curate.records.readings import all_readings, mean_spread


class CascadeRule(Config):
    """The rule by which a cascade asks its large judge."""

    doubt: Doubt = Field(
        "spread",
        description="Measure of the small judge's doubt, 0-1. `spread`: mean standard deviation of its "
        "score distributions, divided by 2. `margin`: 1 minus the mean lead of the most likely"
        " level over the next.",
    )
    threshold: float | None = Field(
        None,
        ge=0,
        le=1,
        description="The large judge is asked where the doubt is above this value. Without it and without "
        "`fit` it is asked about every dialogue; a threshold can then be fitted to that run.",
    )
    fit: Annotated[
        CascadeFit | None,
        BeforeValidator(read_cascade_fit, json_schema_input_type=CascadeFit | str | None),
    ] = Field(
        None,
        description="File written by `curate calibrate RUN --cascade`, which holds the threshold. Refused "
        "for other judges.",
    )
    check: float = Field(
        0.05,
        ge=0,
        le=1,
        description="Share of the dialogues (0-1) that both judges score even though the small one is "
        "sure, to measure what the cascade loses.",
    )

    @model_validator(mode="after")
    def _has_one_threshold(self) -> CascadeRule:
        if self.fit is not None and self.threshold is not None:
            raise ValueError("give either threshold or fit, not both")
        return self

    @property
    def asked_doubt(self) -> Doubt:
        """The measure of doubt: the one that the fit was made with, where there is a fit."""
        return self.doubt if self.fit is None else self.fit.doubt

    @property
    def highest_sure(self) -> float | None:
        """The doubt up to which the small judge decides; None where the large one decides all."""
        return self.threshold if self.fit is None else self.fit.threshold

    def is_sure(self, doubt: float | None) -> bool:
        """True when the small judge, whose doubt is given, decides; never where its doubt is None (unknown)."""
        highest = self.highest_sure
        return highest is not None and doubt is not None and doubt <= highest

    def is_checked(self, content_hash: str) -> bool:
        """True when a dialogue that the small judge is sure of is shown to both; its hash decides."""
        return int(content_hash[-12:], 16) < self.check * 16**12

    @property
    def expected_share(self) -> float:
        """Share of the dialogues that the large judge is expected to be asked about; all where no fit tells."""
        if self.fit is None:
            return 1.0
        escalated = 1 - self.fit.kept / self.fit.dialogues
        return escalated + (1 - escalated) * self.check


class Cascade(CascadeRule):
    """A small judge, and a large one that is asked where the small one is not sure."""

    cascade: tuple[EngineConfig, EngineConfig] = Field(
        description="The small judge, the large one."
    )


def check_cascade(
    config: CascadeRule, mode: ScoringMode | None, samples: int, judges: Sequence[JudgeIdentity]
) -> None:
    """Refuse a cascade that could not tell when to ask its second judge, before any model is asked.

    Args:
        mode, samples: how the first judge scores.
        judges: both, as they score here.

    Raises:
        UsageError: the first judge has no readings; the fit is of other judges.
    """
    if mode == "json" and samples == 1:
        raise UsageError(
            "the first judge of a cascade gives no readings, so it is not known when it is unsure",
            got="one JSON reply per call",
            expected="log-probabilities (judge.mode: tokens), or several samples",
            fix="use an engine that gives log-probabilities, or set judge.samples: 5",
        )
    if config.fit is None:
        return
    for fitted, here in zip(config.fit.judges, judges, strict=True):
        fix = "fit it with these judges: curate calibrate RUN --cascade"
        check_same_judge(identity_fields(fitted), identity_fields(here), "models.judge.fit", fix)


def doubt_of(judgment: Judgment, how: Doubt) -> float | None:
    """Return how unsure a judge's readings are, 0-1; None where it has none (mode json without samples)."""
    if how == "spread":
        return mean_spread(judgment)
    leads = []
    for reading in all_readings(judgment):
        first, second = [*sorted(reading.probabilities.values(), reverse=True), 0.0, 0.0][:2]
        leads.append(first - second)
    return 1 - math.fsum(leads) / len(leads) if leads else None


async def judge_by_cascade(
    small: Juror[Judgment],
    large: Juror[Judgment],
    config: CascadeRule,
    identity: JudgeIdentity,
    *,
    content_hash: str,
) -> Judgment | Unscored:
    """Return the small judge's record of a dialogue, or the large one's, under the cascade's identity.

    Unscored where the one that decides gives no scores: an unsure judge does not stand in for the other.
    """
    first = await small()
    doubt = doubt_of(first.row, config.asked_doubt) if isinstance(first.row, Judgment) else None
    is_sure = config.is_sure(doubt)
    if is_sure and not config.is_checked(content_hash):
        opinions = [first.opinion(doubt=doubt)]
        decided, requests = first, first.used.requests
    else:
        second = await large()
        opinions = [first.opinion(counts=is_sure, doubt=doubt), second.opinion(counts=not is_sure)]
        decided = first if is_sure else second
        requests = first.used.requests + second.used.requests
    if isinstance(decided.row, Unscored):
        return decided.named(decided.row, requests)
    return with_opinions(decided.row, opinions, identity, requests)
