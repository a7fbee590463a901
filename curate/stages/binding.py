"""A recipe's stages on its models, or on what is known of models that are open elsewhere."""

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
    """The stages of a recipe that ask models; None where it leaves one out."""

    judge: Stage[Judged] | None = None
    persona: Stage[Judged] | None = None
    adherence: Stage[Scored] | None = None
    metrics: Stage[Measured] | None = None
    factuality: Stage[Checked] | None = None
    fork: Stage[Forks] | None = None
    natural: Stage[PreferencePair] | None = None

    def __iter__(self) -> Iterator[Stage[Any]]:
        """Those there are, in the order of a run."""
        scoring = (self.judge, self.persona, self.adherence, self.metrics, self.factuality)
        return filter(None, (*scoring, self.fork, self.natural))

    def of(self, name: StageName, fingerprint: str) -> Stage[Any]:
        """The stage of a name, as it was bound elsewhere.

        Args:
            fingerprint: of that stage there.

        Raises:
            EngineError: it has another one here.
        """
        stage = {stage.name: stage for stage in self}[name]
        if stage.fingerprint != fingerprint:
            raise EngineError(
                f"the stage '{name}' of a worker is not the run's; their rows would not compare",
                got=stage.fingerprint,
                expected=fingerprint,
                fix="put the same version of curate and the same models on every machine",
            )
        return stage


def bind_stages(recipe: Recipe, models: ModelsByRole) -> Stages:
    """The stages of a recipe on its models, or on what is known of models that are open elsewhere.

    Raises:
        UsageError: an engine cannot serve what the recipe asks of it, or a calibration or a curve is another judge's.
    """
    judge, adherence, cascade = recipe.judge, recipe.judged_adherence, recipe.models.cascade
    judged = rubric_stage(judge, models.judges, cascade) if judge else None
    persona = None
    if judge and judge.persona_check:
        persona = persona_stage(rubric_stage(wordless(judge), models.judges, cascade))
    if judge and judged is not None and judged.judges:
        judge = judge.model_copy(update={"calibration": None})  # which is not the lead judge's
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
    """The models that a recipe names; the policy's and the reviser's only where it forks, that of metrics where it
    has some.

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
