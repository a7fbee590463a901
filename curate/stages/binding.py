"""Building a recipe's stages for its models."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from curate.engines.model_pool import ModelPool, ModelsByRole, Opener, open_role
from curate.errors import EngineError, UsageError
from curate.judging.calibrated_levels import (
    check_adherence,
    check_good_metrics,
)
from curate.judging.config import (
    RubricConfig,
)
from curate.recipe import Recipe
from curate.records import (
    PreferencePair,
    StageName,
)
from curate.stages.joint_stages import adherence_by, metrics_by, rubric_stage, scorers
from curate.stages.pair_stages import fork_stage, natural_stage
from curate.stages.scoring_stages import factuality_stage, persona_stage, wordless
from curate.stages.stage import Checked, Forks, Judged, Measured, Scored, Stage


@dataclass(frozen=True, slots=True)
class Stages:
    """The stages of a recipe that make rows; None for those it leaves out."""

    judge: Stage[Judged] | None = None
    persona: Stage[Judged] | None = None
    adherence: Stage[Scored] | None = None
    metrics: Stage[Measured] | None = None
    factuality: Stage[Checked] | None = None
    fork: Stage[Forks] | None = None
    natural: Stage[PreferencePair] | None = None

    def __iter__(self) -> Iterator[Stage[Any]]:
        """Iterate over the stages that are not None, in the order of a run."""
        scoring = (self.judge, self.persona, self.adherence, self.metrics, self.factuality)
        return filter(None, (*scoring, self.fork, self.natural))

    def named(self, name: StageName) -> Stage[Any] | None:
        """Return the stage with this name; None where the recipe leaves it out."""
        return next((stage for stage in self if stage.name is name), None)

    def of(self, name: StageName, fingerprint: str) -> Stage[Any]:
        """Return the stage with this name, checking that it is the same as where the run was set up.

        Args:
            fingerprint: the stage's fingerprint there.

        Raises:
            EngineError: the fingerprint differs here.
        """
        stage = {stage.name: stage for stage in self}[name]
        if stage.fingerprint != fingerprint:
            raise EngineError(
                f"the stage '{name}' of a worker differs from the run's, so their rows cannot be compared",
                got=stage.fingerprint,
                expected=fingerprint,
                fix="put the same version of curate and the same models on every machine",
            )
        return stage


def bind_stages(recipe: Recipe, models: ModelsByRole) -> Stages:
    """Return the stages of a recipe on its models, or on the facts about models that are open elsewhere.

    Raises:
        UsageError: an engine does not support what the recipe asks for, or a calibration or curve belongs to another
            judge.
    """
    judge, adherence, cascade = recipe.judge, recipe.judged_adherence, recipe.models.cascade
    judged = rubric_stage(judge, models.judges, cascade) if judge else None
    persona = None
    if judge and judge.persona_check:
        persona = persona_stage(rubric_stage(wordless(judge), models.judges, cascade))
    if judge and judged is not None and judged.judges:
        judge = judge.model_copy(update={"calibration": None})  # it is not the leading judge's
    rules = (judge or RubricConfig()).jury_rules
    several = scorers(models, cascade)
    scored = adherence_by(adherence, several, rules["adherence"]) if adherence else None
    if recipe.judge:
        check_adherence(recipe.judge.calibration, scored.identity if scored else None)
    measured = None
    if recipe.metrics:
        engines = (models.metrics,) if recipe.models.metrics else several
        measured = metrics_by(recipe.metrics, engines, rules["metrics"])
    if recipe.judge:
        check_good_metrics(recipe.judge.calibration, measured.identity if measured else None)
    checked = factuality_stage(recipe.factuality, models.judge) if recipe.factuality else None
    forked = verified = None
    if recipe.fork and judge and judged is not None:
        forked = fork_stage(
            recipe.fork, judge, judged, models, adherence, measured, recipe.factuality, cascade
        )
    if recipe.natural.verification is not None:
        verified = natural_stage(recipe.natural, judge, models, adherence, cascade)
    return Stages(judged, persona, scored, measured, checked, forked, verified)


def model_pool(recipe: Recipe, opener: Opener = open_role) -> ModelPool:
    """Return the models that a recipe names; policy and reviser only if it forks, the one for metrics only if it has some.

    Raises:
        UsageError: no judge is named.
    """
    models = recipe.models
    lead = models.lead
    if lead is None:
        raise UsageError("no judge is named", expected="models.judge")
    writers = (models.policy, models.reviser) if recipe.fork else ()
    measuring = models.metrics if recipe.metrics else None
    return ModelPool(
        lead,
        *writers,
        metrics=measuring,
        judges=models.judges_by_role,
        redact=recipe.redact,
        opener=opener,
    )
