"""Arguments of the API's functions: models, sections of a recipe and limits, each in any of the forms it may have."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar

from pydantic import BaseModel

from curate.engines.accounting import Accounting, Budget
from curate.engines.base import Engine
from curate.engines.config import EngineConfig
from curate.engines.model_pool import Asks, ModelPool
from curate.engines.personal_data import PersonalData
from curate.errors import UsageError
from curate.judging.cascade import CascadeRule
from curate.judging.config import RubricConfig
from curate.recipe import BudgetConfig, Recipe, check_budget, judge_roles, load_recipe
from curate.records.several_judges import JuryRule
from curate.records.validation_errors import validated

C = TypeVar("C", bound=BaseModel)

Given = Mapping[str, Any] | str | Path | None
"""A section of a recipe: a mapping, or the path of a recipe that has it; None for its defaults."""

RedactKinds = Sequence[PersonalData] | None
"""Kinds of personal data; None for those of the recipe that a model is named by."""

Bounds = BudgetConfig | Mapping[str, Any] | None
"""A recipe's section `budget`; None for that of the recipe that a model is named by."""

Model = Engine | EngineConfig | Mapping[str, Any] | str | Path
"""An open engine (which stays open), its config, or the path of a recipe that names it."""

Judges = Model | Sequence[Engine | EngineConfig | Mapping[str, Any]]
"""One judge; a list of several, which form a jury; or a mapping with `cascade`, as in a recipe's `models.judge`. All judges
of a jury score and verify; in a cascade the small judge only scores by the rubric, and the large one does the rest."""


@dataclass(frozen=True, slots=True)
class CallModels:
    """The models that a call of this API uses, and their limits."""

    pool: ModelPool
    limits: BudgetConfig
    cascade: CascadeRule | None = None

    @classmethod
    def of(
        cls, redact: RedactKinds, budget: Bounds, *, judge: Judges, **others: Model
    ) -> CallModels:
        """Return the models of a call by role.

        Redaction and budget are those of the recipes that models are named by, unless the call gives its own.
        """
        recipes = {
            str(model): load_recipe(model)
            for model in (judge, *others.values())
            if isinstance(model, str | Path)
        }
        judges, cascade = _judges(judge, recipes)
        named = {role: _model(model, role, recipes) for role, model in others.items()}
        if redact is None:
            redact = tuple(kind for recipe in recipes.values() for kind in recipe.redact)
        kinds = validated(tuple[PersonalData, ...], redact, "not kinds of personal data")
        if budget is None:
            limits = next((recipe.budget for recipe in recipes.values()), BudgetConfig())
        else:
            limits = validated(BudgetConfig, budget, "the section `budget` is not valid")
        every = {**judges, **named}
        unpriced = [role for role, model in every.items() if getattr(model, "prices", None) is None]
        check_budget(limits, unpriced)
        pool = ModelPool(
            judges["judge"],
            named.get("policy"),
            named.get("reviser"),
            judges=judges,
            redact=kinds,
        )
        return cls(pool, limits, cascade)

    @contextlib.asynccontextmanager
    async def asking(self, replies: str | Path | None) -> AsyncIterator[tuple[ModelPool, Asks]]:
        """Open the models; yield them and how they are asked."""
        cache = None if replies is None else Path(replies)
        budget = Budget(**self.limits.model_dump())
        async with self.pool as pool, pool.asking(cache, Accounting(), budget) as asks:
            yield pool, asks


def _judges(
    judge: Judges, recipes: Mapping[str, Recipe]
) -> tuple[dict[str, Engine | EngineConfig], CascadeRule | None]:
    """Return the judges by role, the leading one as `judge`, and the rule of a cascade of two."""
    if isinstance(judge, str | Path):
        models = recipes[str(judge)].models
        if models.lead is None:
            raise UsageError(f"{judge} names no models.judge", expected="models.judge")
        return dict(models.judges_by_role), models.cascade
    cascade: CascadeRule | None = None
    several: list[Model]
    if isinstance(judge, Mapping) and "cascade" in judge:
        several = list(judge["cascade"])
        rest = {key: value for key, value in judge.items() if key != "cascade"}
        cascade = validated(CascadeRule, rest, "the options of the cascade are not valid")
        if len(several) != 2:
            raise UsageError("a cascade needs two judges", got=len(several), expected="two")
    elif isinstance(judge, Sequence) and not isinstance(judge, str):
        several = list(judge)
        if len(several) < 2:
            raise UsageError(
                "a jury needs several judges", got=len(several), expected="two or more"
            )
    else:
        several = [judge]
    roles = judge_roles(len(several), is_cascade=cascade is not None)
    return {
        role: _model(one, role, recipes) for role, one in zip(roles, several, strict=True)
    }, cascade


def _model(model: Model, role: str, recipes: Mapping[str, Recipe]) -> Engine | EngineConfig:
    """Return an open engine or an engine's config; for a recipe its model of that role."""
    if isinstance(model, str | Path):
        named: EngineConfig | None = getattr(recipes[str(model)].models, role)
        if named is None:
            raise UsageError(f"{model} names no models.{role}", expected=f"models.{role}")
        return named
    if isinstance(model, Engine):
        return model
    config: EngineConfig = validated(EngineConfig, model, f"the {role} is not an engine's config")
    return config


def section(kind: type[C], value: C | Given, name: str) -> C:
    """Return a section of a recipe from any of its forms."""
    if isinstance(value, str | Path):
        named: C | Literal[False] = getattr(load_recipe(value), name)
        if named is False:
            raise UsageError(
                f"{value} has no section `{name}`", expected="a recipe with that section"
            )
        return named
    config: C = validated(
        kind, {} if value is None else value, f"the section `{name}` is not valid"
    )
    return config


def jury_rules(config: object) -> dict[str, JuryRule]:
    """Return how a jury's scores are combined: by the recipe that a section is read from, else the median."""
    judge = load_recipe(config).judge if isinstance(config, str | Path) else None
    return (judge or RubricConfig()).jury_rules
