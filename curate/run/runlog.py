"""What a run says about itself: warnings, counts and shares as they come, the manifest at the end."""

from __future__ import annotations

import platform
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Literal

from curate.engines.accounting import Accounting, Budget, Tally
from curate.recipe import Recipe
from curate.records import (
    AdherenceDecay,
    Estimate,
    FunnelStage,
    JudgeIdentity,
    LabelAgreement,
    Manifest,
    PairSetReport,
    StageCounts,
)
from curate.run.ingest import SourceReport

Status = Literal["running", "done", "failed", "budget", "unscored"]

NOT_COUNTED = frozenset(
    {
        "missing_role",
        "missing_scenario",
        "skipped",
        "no_reference",
        "no_text",
        "references_mismatch",
        "too_few_references",
    }
)
"""Reasons that are errors (or wishes) of the data, not failures of a judge: outside the unscored share."""

_VERSIONED = ("curate-dialogues", "polars", "pydantic", "xllamacpp", "aiohttp", "datasets")


@dataclass(slots=True)
class StageTally:
    """Rows of one stage in this run."""

    rows: int = 0
    reused: int = 0
    reasons: Counter[str] = field(default_factory=Counter)

    @property
    def asked(self) -> int:
        """Rows that a judge could be asked for: those that the data lets be scored."""
        return self.rows - sum(self.reasons[reason] for reason in NOT_COUNTED)

    @property
    def failed(self) -> int:
        """Of these, the ones that it could not score."""
        return self.asked - (self.rows - self.reasons.total())

    @property
    def unscored_share(self) -> float:
        """Share in [0, 1] of what was asked for that could not be scored."""
        return self.failed / self.asked if self.asked else 0.0


@dataclass(slots=True)
class RunLog:
    """Collects while a run goes on; `manifest` is a snapshot of it."""

    recipe: Recipe
    accounting: Accounting = field(default_factory=Accounting)
    budget: Budget = field(init=False)
    sources: list[SourceReport] = field(default_factory=list)
    stages: dict[str, StageTally] = field(default_factory=dict)
    fingerprints: dict[str, str] = field(default_factory=dict)
    identities: dict[str, JudgeIdentity] = field(default_factory=dict)
    unscored: set[str] = field(default_factory=set)
    levels: str = ""
    verdicts: Counter[str] = field(default_factory=Counter)
    sets: Counter[str] = field(default_factory=Counter)
    rejections: Counter[str] = field(default_factory=Counter)
    rejection_reasons: Counter[str] = field(default_factory=Counter)
    pairs: int = 0
    natural_pairs: int = 0
    label_agreement: LabelAgreement | None = None
    position_spread: float | None = None
    pair_decisions: dict[str, str] = field(default_factory=dict)
    pair_checks: dict[str, PairSetReport] = field(default_factory=dict)
    refusals: Counter[str] = field(default_factory=Counter)
    natural_refusals: Counter[str] = field(default_factory=Counter)
    funnels: dict[str, tuple[FunnelStage, ...]] = field(default_factory=dict)
    exports: dict[str, dict[str, int]] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)
    estimate: Estimate | None = None
    adherence: AdherenceDecay | None = None
    started: str = field(default_factory=lambda: _now())
    _clock: float = field(default_factory=time.monotonic)

    def __post_init__(self) -> None:
        self.budget = Budget(**self.recipe.budget.model_dump())

    def warn(self, text: str | None) -> None:
        """Keep a warning, once."""
        if text and text not in self.warnings:
            self.warnings.append(text)

    def tally(self, stage: str) -> StageTally:
        """The counter of a stage."""
        return self.stages.setdefault(stage, StageTally())

    @contextmanager
    def timed(self, stage: str) -> Iterator[None]:
        """Add the wall time of what happens within to a stage's seconds."""
        began = time.monotonic()
        try:
            yield
        finally:
            self.seconds[stage] = self.seconds.get(stage, 0.0) + time.monotonic() - began

    def shares(self) -> dict[str, float]:
        """Unscored share of each judging stage."""
        return {name: tally.unscored_share for name, tally in self.stages.items()}

    def add_row(
        self, stage: str, content_hash: str, *, verdict: str | None, reason: str | None
    ) -> None:
        """Count a row of a judging stage: its verdict, where it has one, or the reason it has no score."""
        tally = self.tally(stage)
        tally.rows += 1
        if reason is not None:
            tally.reasons[reason] += 1
            if reason != "skipped":
                self.unscored.add(content_hash)
        elif verdict is not None:
            self.verdicts[verdict] += 1

    def count_rows(self, stage: str, reasons: Iterable[str | None]) -> None:
        """Count the rows of a stage whose rows are no scores of dialogues: why each is unscored, or None."""
        tally = self.tally(stage)
        for reason in reasons:
            tally.rows += 1
            if reason is not None:
                tally.reasons[reason] += 1

    def is_over(self, max_unscored: float) -> bool:
        """Whether a stage has more unscored rows than the share allowed; each that has is warned of."""
        over = [name for name, share in self.shares().items() if share > max_unscored]
        for name in over:
            tally = self.stages[name]
            self.warn(
                f"{name}: {tally.failed} of {tally.asked} could not be scored, which is more than "
                f"`max_unscored` ({max_unscored:.0%}) allows."
            )
        return bool(over)

    def warn_about_data(self, stage: str, rows: str = "dialogues") -> None:
        """Say what the data lacks, where a stage could not score its `rows` for want of it."""
        for reason, key, skip in (
            ("missing_role", "role", "adherence.missing_role"),
            ("missing_scenario", "scenario", "judge.missing_scenario"),
        ):
            if number := self.tally(stage).reasons[reason]:
                self.warn(
                    f"{number} {rows} have no {key} and could not be scored ({stage}): write "
                    f"`{key}:` in the recipe, or `{skip}: skip`."
                )

        if number := self.tally(stage).reasons["no_reference"]:
            self.warn(
                f"{number} dialogues have turns without a reference and could not be compared ({stage}): "
                "scoring_method llm_judge needs none, and min_scored_share admits dialogues in part."
            )

    def rows(self, name: str) -> int:
        """A row count (`rows_in`, `dialogues`, …) over all sources."""
        return sum(getattr(report.tally, name) for report in self.sources)

    def manifest(self, status: Status) -> Manifest:
        """The manifest as of now."""
        total = self.accounting.total
        if damaged := self.accounting.damaged:
            self.warn(
                f"{damaged} kept replies were damaged, by the disk or a copy: they were asked for again where "
                "they were needed. All others were used."
            )
        return Manifest(
            name=self.recipe.name,
            status=status,
            started=self.started,
            finished=None if status == "running" else _now(),
            seconds=round(time.monotonic() - self._clock, 2),
            seconds_by_stage={name: round(spent, 2) for name, spent in self.seconds.items()},
            rows_in=self.rows("rows_in"),
            rows_used=self.rows("rows_used"),
            quarantined=self.rows("quarantined"),
            dialogues=self.rows("dialogues"),
            roles=self._roles(),
            not_sampled=self.rows("not_sampled"),
            unscored=len(self.unscored),
            unscored_shares=self.shares(),
            levels=self.levels,
            verdicts=dict(self.verdicts),
            selected=self.sets["sft"],
            sets=dict(self.sets),
            rejections=dict(self.rejections),
            rejection_reasons=dict(self.rejection_reasons),
            pairs=self.pairs,
            natural_pairs=self.natural_pairs,
            refused=self.refusals.total(),
            refusals=dict(self.refusals),
            natural_refusals=dict(self.natural_refusals),
            funnels=self.funnels,
            label_agreement=self.label_agreement,
            position_spread=self.position_spread,
            pair_decisions=self.pair_decisions,
            pair_checks=self.pair_checks,
            requests=total.sent,
            tokens_in=total.prompt_tokens,
            tokens_cached=total.cached_tokens,
            tokens_out=total.completion_tokens,
            cost=self.budget.used_money or None,
            unpriced=self.recipe.unpriced,
            estimate=self.estimate,
            adherence=self.adherence,
            stages=self._stage_counts(),
            exports=self.exports,
            sources=[report.as_dict() for report in self.sources],
            identities=self.identities,
            fingerprints=self.fingerprints,
            versions=_versions(),
            recipe=self.recipe.model_dump(mode="json"),
            warnings=self.warnings,
        )

    def _roles(self) -> dict[str, int]:
        """Dialogues by where their role is from, over all sources."""
        return dict(sum((report.tally.roles for report in self.sources), Counter()))

    def _stage_counts(self) -> dict[str, StageCounts]:
        asked = self.accounting.stages
        counts: dict[str, StageCounts] = {}
        for name in dict.fromkeys([*self.stages, *asked]):
            tally, usage = self.stages.get(name, StageTally()), asked.get(name, Tally())
            counts[name] = StageCounts(
                rows=tally.rows,
                reused=tally.reused,
                unscored=tally.reasons.total(),
                reasons=dict(tally.reasons),
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
    found = {"python": platform.python_version()}
    for package in _VERSIONED:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found
