"""`Recipe`: the sections of all rooms together, and the checks that they fit each other."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from curate.adherence.config import AdherenceConfig
from curate.adherence.reference.scorer import check_scorer
from curate.engines.config import Prices
from curate.engines.keys import refuse_keys
from curate.engines.personal_data import PersonalData
from curate.errors import UsageError
from curate.export.config import ExportConfig, SalvageConfig, TurnLabelConfig
from curate.judging.config import RubricConfig
from curate.judging.factuality import FactualityConfig
from curate.judging.metrics import MetricsConfig
from curate.pairs.config import ForkConfig, NaturalConfig
from curate.recipe.sections import (
    BudgetConfig,
    ExecutorConfig,
    Models,
    ReuseConfig,
    check_budget,
    named_run,
)
from curate.records import SCORING, StageName
from curate.records.config import Config
from curate.selection.columns import (
    ADHERENCE_COLUMNS,
    EXPECTATION_ONLY,
    METRIC_PREFIX,
    REASONS_ONLY,
    STAGES_OF,
    TURNS_ONLY,
)
from curate.selection.config import SelectConfig
from curate.selection.expressions import check_condition, columns_of, parse
from curate.selection.rules import questions
from curate.sources.config import RoleFrom, SourceConfig
from curate.storage.run_folder import MANIFEST
from curate.storage.yaml_text import check_extent
from curate.trust.pair_set import PairSetConfig

_JUDGE_EXAMPLE = """write in the recipe, for instance:
    models:
      judge: {engine: openai, model: your-judge, base_url: "http://localhost:8000/v1"}
  or, for a GGUF file in this process:
      judge: {engine: llamacpp, model: /path/to/judge.gguf}"""


def _listed(value: object) -> object:
    return value if isinstance(value, (list, tuple)) else [value]


class Recipe(Config):
    """A whole run. Sections that are left out use their defaults unless their description says otherwise."""

    name: str = Field(
        pattern=r"^[\w.-]*[\w-][\w.-]*$",
        description="Name of the run folder: letters, digits, `_`, `-` and dots, but not dots alone.",
    )
    source: Annotated[tuple[SourceConfig, ...], BeforeValidator(_listed)] = Field(
        min_length=1, description="One source of dialogues, or a list of them."
    )
    mix_seed: int = Field(
        0, ge=0, description="Random seed for sampling from sources that have a `weight`."
    )
    role: str | None = Field(
        None,
        description="Role definition for dialogues that have none, in a field or a system message.",
    )
    role_from: RoleFrom = Field(
        "data",
        description="`data`: the data's role definition comes first and `role` fills gaps. `recipe`: "
        "`role` is used for all dialogues.",
    )
    scenario: str | None = Field(None, description="Scenario for dialogues that have none.")
    models: Models = Field(Models(), description="The models, by role.")
    redact: tuple[PersonalData, ...] = Field(
        (),
        description="Kinds of personal data that are removed from what is sent to hosted models.",
    )
    reuse: Annotated[ReuseConfig | None, BeforeValidator(named_run)] = Field(
        None,
        description="Run folder whose judgments are reused. With models.judge, rows that fit this recipe "
        "are copied and only the others are asked for; without it, all rows are used as they "
        "are.",
    )
    judge: RubricConfig | Literal[False] = Field(
        default_factory=RubricConfig, description="The rubric judge; false turns it off."
    )
    adherence: AdherenceConfig | Literal[False] = Field(
        default_factory=AdherenceConfig, description="Role adherence; false turns it off."
    )
    metrics: MetricsConfig | Literal[False] = Field(
        False, description="Weighted metrics of whole dialogues; off by default."
    )
    factuality: FactualityConfig | Literal[False] = Field(
        False,
        description="Factual claims of assistant turns and whether they are true; off by default.",
    )
    select: SelectConfig | Literal[False] = Field(
        default_factory=SelectConfig,
        description="Selection of the SFT set; false turns it off, and nothing is exported for SFT.",
    )
    fork: ForkConfig | Literal[False] = Field(
        False,
        description="Preference pairs forked from judged dialogues; off by default, because it calls a "
        "policy model.",
    )
    natural: NaturalConfig = Field(
        NaturalConfig(), description="Preference pairs that the data already contains."
    )
    pair_checks: PairSetConfig | Literal[False] = Field(
        default_factory=PairSetConfig,
        description="Thresholds of the checks over all pairs, which warn and never drop a pair; false "
        "turns them off.",
    )
    export: ExportConfig | Literal[False] = Field(
        default_factory=ExportConfig, description="Training files; false turns the export off."
    )
    max_unscored: float = Field(
        0.05,
        ge=0,
        le=1,
        description="Largest share of unscored rows in a stage (0-1); above it the exit code is 3. "
        "Unscored are dialogues without a score, and forks and natural pairs that the judge "
        "could not decide.",
    )
    budget: BudgetConfig = Field(BudgetConfig(), description="Limits at which the run stops.")
    executor: ExecutorConfig = Field(ExecutorConfig(), description="Where stages run.")

    @model_validator(mode="before")
    @classmethod
    def _is_bounded_and_holds_no_key(cls, data: Any) -> Any:
        check_extent(data)
        if isinstance(data, Mapping):
            refuse_keys(data, "the recipe")
        return data

    @property
    def judged_adherence(self) -> AdherenceConfig | Literal[False]:
        """Return the adherence section if a judge scores it; else False."""
        asks = self.adherence is not False and self.adherence.scoring_method == "llm_judge"
        return self.adherence if asks else False

    @property
    def compared_adherence(self) -> AdherenceConfig | Literal[False]:
        """Return the adherence section if turns are compared with references; else False."""
        return self.adherence if self.judged_adherence is False else False

    @property
    def scoring_sections(self) -> dict[StageName, Config]:
        """Return the sections of the stages in which a model scores dialogues, without those that are turned off."""
        sections = (self.judge, self.judged_adherence, self.metrics, self.factuality)
        return {name: part for name, part in zip(SCORING, sections, strict=True) if part}

    @property
    def filters_on_adherence(self) -> bool:
        """True when what is selected or forked depends on adherence scores."""
        conditions = [self.fork.where] if self.fork is not False else []
        if self.select is not False:
            if self.select.named is None:
                return True
            ranked = self.select.top.by if self.select.top is not None else ""
            conditions += [*self.select.named.values(), ranked]
        columns = (columns_of(parse(sql, "a condition")) for sql in conditions if sql)
        return any(names & ADHERENCE_COLUMNS for names in columns)

    @property
    def asks_models(self) -> bool:
        """True when a stage calls a model; without one, judgments come from `reuse` or there are none."""
        verifies = self.fork is not False or self.natural.verification is not None
        asks_for_scores = self.models.lead is not None or not self.reuse
        return verifies or (bool(self.scoring_sections) and asks_for_scores)

    @property
    def prices(self) -> dict[str, Prices | None]:
        """Return the prices of each model that the run calls, by role; None where none are given."""
        lead = self.models.lead
        if not self.asks_models or lead is None:
            return {}
        engines = self.models.judges_by_role
        if self.fork is not False:
            engines["policy"] = self.models.policy or lead
            if self.fork.guided_revision:
                engines["reviser"] = self.models.reviser or engines["policy"]
        if self.metrics is not False:
            engines["metrics"] = self.models.metrics or lead
        return {role: config.prices for role, config in engines.items()}

    @property
    def unpriced(self) -> tuple[str, ...]:
        """Return the roles that the cost leaves out, since their models have no prices."""
        return tuple(role for role, prices in self.prices.items() if prices is None)

    @property
    def reused_run(self) -> Path | None:
        """Return the run folder whose judgments are reused; None without one."""
        return None if self.reuse is None else self.reuse.run

    def checked(self) -> Recipe:
        """Return this recipe after checking that nothing it needs is missing.

        Raises:
            UsageError: something is missing or does not fit; says what to write.
        """
        if self.asks_models and self.models.lead is None:
            raise UsageError(
                f"recipe '{self.name}' names no judge, and there is no default model",
                expected="models.judge",
                fix=_JUDGE_EXAMPLE,
            )
        if self.role_from == "recipe" and not (self.role or "").strip():
            raise UsageError(
                f"recipe '{self.name}' has `role_from: recipe` but no role",
                got="role_from: recipe",
                expected="role: the role definition of every dialogue",
                fix="write `role:`, or leave out `role_from`",
            )
        if self.reuse is not None and not (self.reuse.run / MANIFEST).is_file():
            raise UsageError(
                "reuse does not name a run",
                got=self.reuse.run,
                expected="a run folder with a manifest.json",
            )
        check_budget(self.budget, self.unpriced)
        if self.compared_adherence is not False:
            check_scorer(self.compared_adherence)
        if self.fork is not False:
            self._check_fork(self.fork)
        self._check_turns()
        self._check_columns()
        return self

    def _check_fork(self, fork: ForkConfig) -> None:
        check_condition(fork.where, "fork.where")
        if self.judge is False:
            raise UsageError(
                f"recipe '{self.name}' has a section `fork` but no rubric judge",
                got="judge: false",
                expected="the rubric judge, which finds the weakest turn",
                fix="leave out `judge: false`, or the section 'fork'",
            )
        if self.models.policy is None:
            raise UsageError(
                f"recipe '{self.name}' has a section `fork` but names no policy model",
                expected="models.policy: the model that writes the resamples",
                fix="add models.policy, or leave out the section 'fork'",
            )

    def _check_columns(self) -> None:
        """Refuse a condition on a column that no stage of this recipe fills: nothing could meet it."""
        absent = self._absent_columns()
        fitted = self.judge.calibration if self.judge else None
        has_good = fitted is not None and fitted.good is not None
        conditions = {
            place: (sql, columns_of(parse(sql, place))) for place, sql in self._conditions().items()
        }
        for place, (sql, columns) in conditions.items():
            if "p_good" in columns and not has_good:
                raise UsageError(
                    f"{place} reads p_good, which needs a calibration",
                    got=sql,
                    expected="judge.calibration: a file with p_good",
                    fix="label 20 dialogues or more with verdicts or accept/reject, and run "
                    "`curate calibrate RUN GOLD`",
                )
        for place, (sql, columns) in conditions.items():
            self._check_metrics(columns, place)
            for name in sorted(columns & absent.keys()):
                raise UsageError(
                    f"{place} reads a column that this recipe does not fill",
                    got=f"{name} in {sql!r}, and the recipe says {absent[name]}",
                    expected="columns of stages that run; docs/selecting.md lists them",
                    fix=f"leave out `{absent[name]}`, or take the column out of {place}",
                )

    def _check_metrics(self, columns: frozenset[str], place: str) -> None:
        """Refuse a condition on a metric that this recipe does not score."""
        config = self.metrics
        for column in sorted(name for name in columns if name.startswith(METRIC_PREFIX)):
            known = {METRIC_PREFIX + name for name in config.chosen} if config else set()
            expected = column.endswith("_expected")
            if config and column.removesuffix("_expected") in known:
                if not expected or config.mode != "json":
                    continue
                known -= {column.removesuffix("_expected")}
            close = difflib.get_close_matches(column, known, n=1)
            raise UsageError(
                f"{place} reads a metric that this recipe does not score",
                got=f"{column}{', and metrics.mode is json' if config and expected else ''}",
                expected=f"did you mean {close[0]}?" if close else ", ".join(sorted(known)) or None,
                fix="name it in metrics.choose" if config else "add a section `metrics`",
            )

    def _conditions(self) -> dict[str, str]:
        """Return the SQL conditions of the recipe by place, such as `fork.where`."""
        conditions = {} if self.fork is False else {"fork.where": self.fork.where}
        conditions |= {
            f"{place}.where": turns.where for place, turns in self._turn_exports().items()
        }
        if self.select is not False:
            # Where no conditions are given, those of the stages that run apply; and without any stage the
            # active-learning set of the default is empty. A manifest's recipe has every default written out.
            explicit: dict[str, Any] = {"where": self.select.named or {}}
            if self.select.active == SelectConfig().active:
                explicit["active"] = None
            conditions |= questions(self.select.model_copy(update=explicit))
        return conditions

    def _turn_exports(self) -> dict[str, SalvageConfig | TurnLabelConfig]:
        """Return the sections that export turns of dialogues outside the SFT set, by place."""
        if self.export is False:
            return {}
        sections = {
            "export.salvage": self.export.salvage,
            "export.kto_turns": self.export.kto_turns,
        }
        return {place: section for place, section in sections.items() if section is not None}

    def _absent_columns(self) -> dict[str, str]:
        """Return the columns that are null for every dialogue of this recipe, with the setting that makes them so."""
        off = {
            stage: f"{stage}: false"
            for stage, section in (
                ("judge", self.judge),
                ("adherence", self.adherence),
                ("metrics", self.metrics),
                ("factuality", self.factuality),
            )
            if section is False
        }
        absent = {
            name: off[stages[0]]
            for name, stages in STAGES_OF.items()
            if stages and off.keys() >= {*stages}
        }
        if self.models.lead is None and self.reuse is not None:
            return absent  # rows are taken as another recipe made them
        if len(self.models.judges_by_role) < 2:
            absent["jury_disagreement"] = "models.judge"
        if not self.models.judges:
            absent |= dict.fromkeys(
                ("adherence_disagreement", "metrics_disagreement"), "no models.judges"
            )
        elif self.models.metrics:
            absent["metrics_disagreement"] = "models.metrics"
        plain = self.judge is not False and self.judge.mode == "json" and self.judge.samples == 1
        if plain and not self.models.judges:
            absent |= dict.fromkeys(EXPECTATION_ONLY, "judge.mode: json")
        if self.adherence is not False:
            if not self.adherence.include_reason:
                absent |= dict.fromkeys(REASONS_ONLY, "adherence.include_reason: false")
            if self.adherence.evaluation_granularity == "conversation":
                setting = "adherence.evaluation_granularity: conversation"
                absent |= dict.fromkeys(TURNS_ONLY, setting)
        return absent

    def _check_turns(self) -> None:
        """Refuse to export turns of dialogues outside the SFT set where they are not judged or selected."""
        for place, section in self._turn_exports().items():
            check_condition(section.where, f"{place}.where")
            for stage, setting in (("judge", self.judge), ("select", self.select)):
                if setting is False:
                    raise UsageError(
                        f"recipe '{self.name}' asks for {place} without the stage it needs",
                        got=f"{stage}: false",
                        expected="turns that were judged, of dialogues that went through selection",
                        fix=f"leave out `{stage}: false`, or the section '{place}'",
                    )
