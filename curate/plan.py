"""`--dry-run`: everything that can be checked before the first model call, and what the run will ask."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from curate.dialogue import Dialogue
from curate.engines.base import EngineIdentity
from curate.errors import CurateError
from curate.estimate import SAMPLE, Estimate, estimate
from curate.ingesting import SourceReport
from curate.models import open_models
from curate.pipeline import open_sources
from curate.recipe import Recipe
from curate.records import JudgeIdentity
from curate.sources import Source, Tally
from curate.steps import adherence_step, judge_step


@dataclass(frozen=True, slots=True)
class Plan:
    """What a run would do. Everything in it was checked; nothing was judged."""

    recipe: Recipe
    folder: Path
    sources: list[dict[str, Any]]
    identities: dict[str, JudgeIdentity]
    policy: EngineIdentity | None
    estimate: Estimate | None
    warnings: list[str]


async def make_plan(recipe: Recipe, *, limit: int | None = None, out: Path | None = None) -> Plan:
    """Open sources and engines, resolve modes, check the folder, estimate from a sample.

    Raises:
        UsageError, SourceError, EngineError: whatever would stop the run before its first call.
    """
    recipe = recipe.checked()
    folder = out if out is not None else Path("runs") / recipe.name
    _check_writable(folder)
    sources = open_sources(recipe, limit)
    described, sample, total = _read(recipe, sources)
    plan = Plan(recipe, folder, described, {}, None, None, [])
    if not recipe.asks_models:
        return plan
    async with open_models(recipe) as models:
        judged = judge_step(recipe.judge, models.judge) if recipe.judge else None
        if judged is not None:
            plan.identities["judge"] = judged.identity
        if recipe.adherence:
            step = adherence_step(recipe.adherence, models.judge)
            plan.identities["adherence"] = step.identity
            plan.warnings.extend([step.warning] if step.warning else [])
        return replace(
            plan,
            policy=models.policy.identity if recipe.fork else None,
            estimate=await estimate(recipe, sample, total, models.judge),
        )


def _read(
    recipe: Recipe, sources: list[Source]
) -> tuple[list[dict[str, Any]], list[Dialogue], int]:
    """Every row is read once, so that the plan's counts are the run's."""
    described: list[dict[str, Any]] = []
    sample: list[Dialogue] = []
    total = 0
    for source in sources:
        tally = Tally()
        for unit in source.read(role=recipe.role, scenario=recipe.scenario):
            tally.add(unit)
            sample.extend(unit.dialogues[: SAMPLE - len(sample)])
            total += len(unit.dialogues)
        described.append(SourceReport(source, tally).as_dict())
    return described, sample, total


def _check_writable(folder: Path) -> None:
    existing = folder
    while not existing.exists():
        existing = existing.parent
    if not os.access(existing, os.W_OK):
        raise CurateError(
            f"cannot write {folder}",
            got=f"no permission in {existing}",
            fix="name another folder with --out",
        )
