"""The log of a run: it collects warnings, counts and shares while the run goes on, and makes the manifest."""

from __future__ import annotations

import platform
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal

from curate.engines.accounting import Accounting, Budget, CallCounts
from curate.errors import installed_version
from curate.recipe import Recipe
from curate.records import (
    EngineRecord,
    Estimate,
    JudgeIdentity,
    Manifest,
    PairsReport,
    ReviewReport,
    SelectionReport,
    SourcesReport,
    StageCounts,
    StageName,
    UnscoredReason,
)
from curate.wording import plural

Status = Literal["running", "done", "failed", "budget", "unscored"]

NOT_COUNTED = frozenset(reason for reason in UnscoredReason if reason.place == "data")
"""Reasons that come from the data (errors or wishes), not from a judge that failed: outside the unscored share."""

_VERSIONED = ("curate-dialogues", "polars", "pydantic", "xllamacpp", "aiohttp", "datasets")


@dataclass(slots=True)
class StageReport:
    """The results of a stage in this run.

    Attributes:
        fingerprint: of its rows as others read them.
        identity: who made them; None where the rows are not scores of dialogues, and name their judge themselves.
        rows: how many there are, of this run's dialogues or pairs.
        reused: how many of them were there before.
        reasons: why rows are unscored, by code.
        figures: fields of the manifest that the stage fills in, by name.
    """

    fingerprint: str = ""
    identity: JudgeIdentity | None = None
    rows: int = 0
    reused: int = 0
    reasons: Counter[str] = field(default_factory=Counter)
    figures: dict[str, Any] = field(default_factory=dict)

    def count(self, reasons: Iterable[str | None]) -> None:
        """Count rows, each by the reason why it is unscored, or None."""
        for reason in reasons:
            self.rows += 1
            if reason is not None:
                self.reasons[reason] += 1

    @property
    def asked(self) -> int:
        """Number of rows that a judge could be asked for, since their data can be scored."""
        return self.rows - sum(self.reasons[reason] for reason in NOT_COUNTED)

    @property
    def failed(self) -> int:
        """Number of those rows that the judge could not score."""
        return self.asked - (self.rows - self.reasons.total())

    @property
    def unscored_share(self) -> float:
        """Share of the rows asked for that could not be scored, 0-1."""
        return self.failed / self.asked if self.asked else 0.0


@dataclass(slots=True)
class RunLog:
    """Collects what a run reports while it goes on; `manifest` gives a snapshot.

    Attributes:
        parts: reports of the parts of the run that make no rows of a stage, each when it has ended.
        stages: reports of the stages.
        unscored: content hashes of the dialogues without a score in some stage.
        exports: rows of each exported file, by trainer.
        sets: hashes of the sets that were made: `select` of the SFT set, `pairs`, `natural_pairs`.
        engines: the models that are asked, by role.
        seconds: wall time by stage or part.
    """

    recipe: Recipe
    accounting: Accounting = field(default_factory=Accounting)
    budget: Budget = field(init=False)
    parts: list[SourcesReport | SelectionReport | PairsReport] = field(default_factory=list)
    stages: dict[StageName, StageReport] = field(default_factory=dict)
    unscored: set[str] = field(default_factory=set)
    exports: dict[str, dict[str, int]] = field(default_factory=dict)
    sets: dict[str, str] = field(default_factory=dict)
    engines: dict[str, EngineRecord] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)
    estimate: Estimate | None = None
    review: ReviewReport | None = None
    started: str = field(default_factory=lambda: _now())
    _clock: float = field(default_factory=time.monotonic)

    def __post_init__(self) -> None:
        self.budget = Budget(**self.recipe.budget.model_dump())

    def warn(self, text: str | None) -> None:
        """Keep a warning, once."""
        if text and text not in self.warnings:
            self.warnings.append(text)

    @property
    def fingerprints(self) -> dict[str, str]:
        """Fingerprints of the stages' rows and of the sets, so far."""
        stages = {name.value: report.fingerprint for name, report in self.stages.items()}
        return stages | self.sets

    def stage(self, name: StageName) -> StageReport:
        """Return the report of a stage; an empty one where it has none yet."""
        return self.stages.setdefault(name, StageReport())

    @contextmanager
    def timed(self, stage: str) -> Iterator[None]:
        """Add the wall time of the block to a stage's seconds."""
        began = time.monotonic()
        try:
            yield
        finally:
            self.seconds[stage] = self.seconds.get(stage, 0.0) + time.monotonic() - began

    def is_over(self, max_unscored: float) -> bool:
        """Return whether a stage has more unscored rows than allowed; warn of each that has."""
        over = {
            name: report
            for name, report in self.stages.items()
            if report.unscored_share > max_unscored
        }
        for name, report in over.items():
            self.warn(
                f"{name}: {report.failed} of {report.asked} could not be scored, which is more than "
                f"`max_unscored` ({max_unscored:.0%}) allows."
            )
        return bool(over)

    def warn_about_data(self, stage: StageName, row: str = "dialogue") -> None:
        """Warn of what the data lacks, where a stage could not score rows without it; `row` is their name in the warning."""
        for reason, key, skip in (
            (UnscoredReason.MISSING_ROLE, "role", "adherence.missing_role"),
            (UnscoredReason.MISSING_SCENARIO, "scenario", "judge.missing_scenario"),
        ):
            if number := self.stage(stage).reasons[reason]:
                self.warn(
                    f"{plural(number, row)} without a {key} could not be scored ({stage}): write "
                    f"`{key}:` in the recipe, or `{skip}: skip`."
                )

        if number := self.stage(stage).reasons[UnscoredReason.NO_REFERENCE]:
            self.warn(
                f"{plural(number, 'dialogue')} with turns without a reference could not be compared ({stage}): "
                "scoring_method llm_judge needs none, and min_scored_share admits dialogues in part."
            )

    def manifest(self, status: Status) -> Manifest:
        """Return the manifest as of now."""
        total = self.accounting.total
        if damaged := self.accounting.damaged:
            self.warn(
                f"Damaged by the disk or a copy: {plural(damaged, 'kept reply', 'kept replies')}, asked for again where "
                "needed. All others were used."
            )
        figures: dict[str, Any] = {}
        for part in self.parts:
            figures |= {name: getattr(part, name) for name in type(part).model_fields}
        for report in self.stages.values():
            figures |= report.figures
        return Manifest(
            name=self.recipe.name,
            status=status,
            started=self.started,
            # The clock may have been set back meanwhile; a run never ends before it began.
            finished=None if status == "running" else max(self.started, _now()),
            seconds=round(time.monotonic() - self._clock, 2),
            seconds_by_stage={str(name): round(spent, 2) for name, spent in self.seconds.items()},
            unscored=len(self.unscored),
            unscored_shares={
                name.value: report.unscored_share for name, report in self.stages.items()
            },
            requests=total.sent,
            tokens_in=total.prompt_tokens,
            tokens_cached=total.cached_tokens,
            tokens_out=total.completion_tokens,
            cost=self.budget.used_money or None,
            unpriced=self.recipe.unpriced,
            estimate=self.estimate,
            stages=self._stage_counts(),
            exports=self.exports,
            review=self.review,
            identities={
                name.value: report.identity
                for name, report in self.stages.items()
                if report.identity is not None
            },
            engines=self.engines,
            fingerprints=self.fingerprints,
            versions=_versions(),
            recipe=self.recipe.model_dump(mode="json"),
            warnings=self.warnings,
            **figures,
        )

    def _stage_counts(self) -> dict[str, StageCounts]:
        calls = self.accounting.stages
        stages: Mapping[str, StageReport] = {
            name.value: report for name, report in self.stages.items()
        }
        counts: dict[str, StageCounts] = {}
        for name in dict.fromkeys([*stages, *calls]):
            report, usage = stages.get(name, StageReport()), calls.get(name, CallCounts())
            counts[name] = StageCounts(
                rows=report.rows,
                reused=report.reused,
                unscored=report.reasons.total(),
                reasons=dict(report.reasons),
                requests=usage.requests,
                requests_sent=usage.sent,
                prompt_tokens=usage.prompt_tokens,
                cached_tokens=usage.cached_tokens,
                completion_tokens=usage.completion_tokens,
            )
        return counts


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def _versions() -> dict[str, Any]:
    versions = {package: installed_version(package) for package in _VERSIONED}
    installed = {package: text for package, text in versions.items() if text is not None}
    return {"python": platform.python_version()} | installed
