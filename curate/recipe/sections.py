"""The sections of a recipe that belong to no other room: models, budget, executor and reuse."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Discriminator, Field, Tag, model_validator

from curate.engines.config import EngineConfig
from curate.errors import UsageError
from curate.judging.cascade import Cascade
from curate.records.config import Config


def _judge_kind(value: object) -> str:
    is_cascade = isinstance(value, Cascade) or (isinstance(value, Mapping) and "cascade" in value)
    return "Cascade" if is_cascade else "Engine"


JudgeConfig = Annotated[
    Annotated[EngineConfig, Tag("Engine")] | Annotated[Cascade, Tag("Cascade")],
    Discriminator(_judge_kind),
]
"""One judge, or a cascade of two."""


def judge_roles(count: int, *, is_cascade: bool) -> list[str]:
    """Return the roles of several judges in order; the leading one (a jury's first, a cascade's second) is `judge`."""
    if is_cascade:
        return ["small judge", "judge"]
    return ["judge", *(f"judge {at}" for at in range(2, count + 1))][:count]


class Models(Config):
    """The models, by role.

    All judges of a jury score and compare; explanations, facts and notes come from the first alone. In a cascade
    everything but the rubric's scores comes from the large judge alone.
    """

    judge: JudgeConfig | None = Field(
        None,
        description="One model; or a cascade, `cascade: [small, large]`, whose large model is asked only "
        "where the small one is in doubt.",
    )
    judges: tuple[EngineConfig, ...] = Field(
        (),
        description="A jury in place of `judge`: all models score and compare, and `judge.jury` says how "
        "their answers are combined.",
    )
    policy: EngineConfig | None = Field(
        None, description="Model that writes new replies for forks."
    )
    reviser: EngineConfig | None = Field(
        None, description="Model that revises the original reply in forks; by default the policy."
    )
    metrics: EngineConfig | None = Field(
        None,
        description="Model that scores the weighted metrics; by default the judge or the jury.",
    )

    @model_validator(mode="after")
    def _has_one_kind_of_judge(self) -> Models:
        if self.judges and self.judge is not None:
            raise ValueError("give either judge or judges, not both")
        if len(self.judges) == 1:
            raise ValueError("a jury needs two judges or more: name a single one as `judge`")
        several = list(self.judges_by_role.values())
        if any(config in several[:at] for at, config in enumerate(several)):
            raise ValueError("two of the judges are the same model; name different ones")
        return self

    @property
    def cascade(self) -> Cascade | None:
        """Return the cascade; None where the judge is not one."""
        return self.judge if isinstance(self.judge, Cascade) else None

    @property
    def lead(self) -> EngineConfig | None:
        """Return the judge for questions that only one judge answers; None where no judge is named."""
        return self.judges_by_role.get("judge")

    @property
    def judges_by_role(self) -> dict[str, EngineConfig]:
        """Return all models that score by the rubric, in order; the leading one has the role `judge`."""
        if isinstance(self.judge, Cascade):
            several: tuple[EngineConfig, ...] = self.judge.cascade
        else:
            several = self.judges or ((self.judge,) if self.judge is not None else ())
        roles = judge_roles(len(several), is_cascade=self.cascade is not None)
        return dict(zip(roles, several, strict=True))

    def of_role(self, role: str) -> EngineConfig | None:
        """Return the model of a role, or the one that stands in for it; None where there is neither."""
        known = {**self.judges_by_role, "policy": self.policy, "metrics": self.metrics or self.lead}
        return known.get(role) or self.reviser or self.policy


class BudgetConfig(Config):
    """Limits at which a run stops cleanly; a later run resumes it."""

    off: ClassVar[Mapping[str, Any] | None] = {}

    calls: int | None = Field(None, gt=0, description="Most calls sent to models.")
    tokens: int | None = Field(
        None, gt=0, description="Most prompt and completion tokens together."
    )
    money: float | None = Field(
        None, gt=0, description="Highest cost, in the currency of the engines' prices."
    )


class ExecutorConfig(Config):
    """Where stage functions run. Not part of any fingerprint: rows are the same everywhere."""

    kind: Literal["local", "ray"] = Field(
        "local", description="`local`: in this process. `ray`: in actors on a Ray cluster."
    )
    address: str | None = Field(
        None,
        description="Ray cluster to join: `auto`, or host:port. By default a cluster is started on this "
        "machine for the run.",
    )
    workers: int | None = Field(
        None,
        ge=1,
        description="Number of actors, each with its own engines; by default as many as fit.",
    )
    gpus_per_worker: float = Field(0, ge=0, description="GPUs that each actor reserves.")
    cpus_per_worker: float = Field(1, ge=0, description="CPUs that each actor reserves.")


class ReuseConfig(Config):
    """The run whose judgments are reused; in a recipe the path alone is enough."""

    run: Path = Field(description="Path of the run folder.")
    required: bool = Field(
        False,
        description="Stop with an error where a dialogue has no row in that run, instead of asking the "
        "judge.",
    )


def named_run(value: object) -> object:
    """Return the section `reuse` for a path alone; anything else unchanged."""
    return {"run": value} if isinstance(value, (str, Path)) else value


def check_budget(budget: BudgetConfig, unpriced: Sequence[str]) -> None:
    """Raise UsageError for a budget of money where a model has no prices; `unpriced` are the roles of those models."""
    if budget.money is not None and unpriced:
        raise UsageError(
            "a budget of money needs the prices of every model",
            got=f"a cost {left_out_of_cost(unpriced)}",
            expected="prices: {input: ..., output: ...} per million tokens, on each model that is called",
            fix="write them (0 for a model that costs nothing), or limit tokens or calls instead",
        )


def left_out_of_cost(roles: Sequence[str]) -> str:
    """Return what a cost leaves out, in words that follow the cost."""
    parts = " and ".join(f"the {role}'s part" for role in roles)
    return f"without {parts}: no prices given for {'it' if len(roles) == 1 else 'them'}"
