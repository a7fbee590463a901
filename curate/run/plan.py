"""`curate estimate` and `--dry-run`: check all that can be checked before the first model call, and estimate the run."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import polars as pl

from curate.dialogue import Dialogue
from curate.engines.base import EngineIdentity
from curate.errors import CurateError, UsageError
from curate.executors.opening import call_on_worker
from curate.planning.doctor import examine_folder
from curate.planning.estimate import (
    SAMPLE,
    AssumedShare,
    Reservoir,
    estimate,
    estimate_left,
)
from curate.planning.rates import MeasuredRates, measure_rates, rates_of
from curate.recipe import Recipe
from curate.records import SCORING, Estimate, JudgeIdentity, Rates
from curate.run.ingest import sample_sources
from curate.run.labels.agreement_marks import current_agreement, mark_warnings
from curate.run.outputs import SCORES
from curate.run.pipeline import open_sources
from curate.run.read_back import read_manifest
from curate.run.rows_left import KeptRows, Reused, gap_warnings, reuse_gaps, taken_over_gaps
from curate.sources import Source
from curate.stages import bind_stages, model_pool
from curate.storage.stage_rows import KeyLog


@dataclass(frozen=True, slots=True)
class Assumptions:
    """Settings of an estimate.

    Attributes:
        sample: dialogues to scale up from.
        rates: tokens a second.
        rates_from: run folder to take the rates from.
        measure: ask the judge a few real questions to measure them.
        fork_share: share of the dialogues that are forked; the run's own scores tell otherwise.
    """

    sample: int = SAMPLE
    rates: Rates | None = None
    rates_from: Path | None = None
    measure: bool = False
    fork_share: float | None = None

    def __post_init__(self) -> None:
        if (self.rates is not None) + (self.rates_from is not None) + self.measure > 1:
            raise UsageError(
                "the rates come from several places",
                expected="one of --rate, --rate-from and --measure",
            )


@dataclass(frozen=True, slots=True)
class Plan:
    """The work of a run that was checked and not started.

    Attributes:
        left: the estimate of what an earlier run has not done; None without one.
        fingerprints: of the scores that would be read, by stage.
    """

    recipe: Recipe
    folder: Path
    sources: list[dict[str, Any]]
    identities: dict[str, JudgeIdentity]
    policy: EngineIdentity | None
    estimate: Estimate | None
    warnings: list[str]
    left: Estimate | None = None
    measured: MeasuredRates | None = None
    fingerprints: dict[str, str] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """Return plain data, for `--json`."""
        measured = self.measured
        return {
            "recipe": self.recipe.name,
            "folder": str(self.folder),
            "sources": self.sources,
            "judges": {
                name: identity.model_dump(mode="json") for name, identity in self.identities.items()
            },
            "policy": self.policy.model if self.policy else None,
            "estimate": self.estimate.model_dump(mode="json") if self.estimate else None,
            "left": self.left.model_dump(mode="json") if self.left else None,
            "measured": None
            if measured is None
            else {
                "calls": measured.calls,
                "prompt_tokens": measured.usage.prompt_tokens,
                "completion_tokens": measured.usage.completion_tokens,
            },
            "warnings": self.warnings,
        }


async def make_plan(
    recipe: Recipe,
    *,
    limit: int | None = None,
    out: Path | None = None,
    assumptions: Assumptions | None = None,
) -> Plan:
    """Open sources and engines, resolve modes, check the folder, estimate from a sample.

    Raises:
        UsageError, SourceError, EngineError: whatever would stop the run before its first call.
    """
    recipe = recipe.checked()
    assumed = assumptions or Assumptions()
    folder = out if out is not None else Path("runs") / recipe.name
    if not examine_folder(folder).is_writable:
        raise CurateError(
            f"cannot write {folder}",
            got="a file where a folder is needed, or no permission",
            fix="name another folder with --out",
        )
    sources = open_sources(recipe, limit)
    described, sample, dialogues = _read(recipe, sources, assumed.sample)
    plan = Plan(recipe, folder, described, {}, None, None, [])
    kept_rows = KeptRows.of(recipe, folder, dialogues)
    reused = None if recipe.reused_run is None else Reused.of(recipe.reused_run)
    if not recipe.asks_models:
        plan.warnings.extend(gap_warnings(recipe, taken_over_gaps(recipe, kept_rows, reused), None))
        return plan
    if assumed.fork_share is not None:
        kept_rows.fork_share = AssumedShare(assumed.fork_share, "as given")
    if recipe.executor.kind == "ray":
        kept_rows = kept_rows.settled()
    arguments = (
        plan,
        sample,
        kept_rows,
        reused,
        known_rates(assumed.rates, assumed.rates_from),
        assumed.measure,
    )
    plan = await call_on_worker(recipe, _with_models, *arguments)
    agreement = current_agreement(folder, plan.fingerprints)
    if agreement is not None and (folder / SCORES).is_file():
        plan.warnings.extend(mark_warnings(recipe, agreement, pl.scan_parquet(folder / SCORES)))
    return plan


async def _with_models(
    plan: Plan,
    sample: Reservoir,
    kept_rows: KeptRows,
    reused: Reused | None,
    rates: Rates | None,
    measure: bool,
) -> Plan:
    """Return the plan with what only open models tell: identities, warnings and estimates."""
    recipe = plan.recipe
    async with model_pool(recipe) as models:
        plan.warnings.extend(models.facts.warnings)
        stages = bind_stages(recipe, models)
        for stage in (stage for stage in stages if stage.name in SCORING):
            plan.identities[stage.name.value] = stage.identity
            plan.fingerprints[stage.name.value] = stage.result
            plan.warnings.extend([stage.warning] if stage.warning else [])
        measured = await measure_rates(recipe, sample.dialogues, models.judge) if measure else None
        rates = measured.rates if measured else rates
        left = None
        if not kept_rows.is_empty:
            left = estimate_left(
                recipe, sample.dialogues, sample.seen, models, kept_rows, rates=rates
            )
        gaps = reuse_gaps(recipe, models, kept_rows, reused)
        plan.warnings.extend(gap_warnings(recipe, gaps, left))
        return replace(
            plan,
            policy=models.policy.identity if recipe.fork else None,
            measured=measured,
            estimate=estimate(
                recipe,
                sample.dialogues,
                sample.seen,
                models,
                rates=rates,
                fork_share=kept_rows.fork_share,
                pair_share=kept_rows.pair_share,
            ),
            left=left,
        )


def _read(
    recipe: Recipe, sources: list[Source], size: int
) -> tuple[list[dict[str, Any]], Reservoir, pl.DataFrame]:
    """Read every row once, as the run will; return the sources' reports, the sample, and all ids and content hashes."""
    sample, ids, hashes = Reservoir(size), KeyLog(), KeyLog()

    def see(dialogue: Dialogue) -> None:
        sample.add(dialogue)
        ids.append(dialogue.id)
        hashes.append(dialogue.content_hash)

    reports = sample_sources(
        sources,
        see,
        role=recipe.role,
        scenario=recipe.scenario,
        role_from=recipe.role_from,
        mix_seed=recipe.mix_seed,
    )
    dialogues = pl.DataFrame({"id": ids.column(), "content_hash": hashes.column()})
    return [report.as_dict() for report in reports], sample, dialogues


def known_rates(rates: Rates | None, run: Path | None) -> Rates | None:
    """Return the rates, or those of an earlier run where one is named.

    Raises:
        UsageError: that run asked no model.
    """
    if run is None:
        return rates
    rates = rates_of(read_manifest(run), str(run))
    if rates is None:
        raise UsageError("the run has no rates", got=run, expected="a run that called a model")
    return rates
