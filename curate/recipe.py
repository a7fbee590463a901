"""The recipe: one YAML file with the sources, the models, what is kept and what is written.

Every room owns its own config model; this module composes them, fills in `extends` and applies `--set` overrides.
Errors about single keys are worded in `curate.records.validation_errors`.
"""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Discriminator, Field, Tag, model_validator

from curate.adherence.config import AdherenceConfig
from curate.adherence.reference.scorer import check as check_method
from curate.engines.config import EngineConfig, Prices
from curate.engines.keys import refuse_keys
from curate.engines.personal_data import PersonalData
from curate.errors import UsageError
from curate.export.config import ExportConfig
from curate.judging.cascade import Cascade
from curate.judging.config import RubricConfig
from curate.judging.factuality import FactualityConfig
from curate.judging.metrics import MetricsConfig
from curate.pairs.config import ForkConfig, NaturalConfig
from curate.records.config import Config
from curate.records.validation_errors import validated
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
from curate.sources.pushed_recipe import (
    check_files,
    check_servers,
    fetch_pushed,
    is_pushed,
)
from curate.storage.yaml_text import check_extent, parse_yaml
from curate.trust.pair_set import PairSetConfig

_JUDGE_EXAMPLE = """write in the recipe, for instance:
    models:
      judge: {engine: openai, model: your-judge, base_url: "http://localhost:8000/v1"}
  or, for a GGUF file in this process:
      judge: {engine: llamacpp, model: /path/to/judge.gguf}"""

_EXTENDED = 20


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


def _listed(value: object) -> object:
    return value if isinstance(value, (list, tuple)) else [value]


class ReuseConfig(Config):
    """The run whose judgments are reused; in a recipe the path alone is enough."""

    run: Path = Field(description="Path of the run folder.")
    required: bool = Field(
        False,
        description="Stop with an error where a dialogue has no row in that run, instead of asking the "
        "judge.",
    )


def _named_run(value: object) -> object:
    return {"run": value} if isinstance(value, (str, Path)) else value


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
    reuse: Annotated[ReuseConfig | None, BeforeValidator(_named_run)] = Field(
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
    def filters_on_adherence(self) -> bool:
        """True when what is selected or forked depends on adherence scores."""
        conditions = [self.fork.where] if self.fork is not False else []
        if self.select is not False:
            if self.select.named is None:
                return True
            ranked = self.select.top.by if self.select.top is not None else ""
            conditions += [*self.select.named.values(), ranked]
        read = (columns_of(parse(sql, "a condition")) for sql in conditions if sql)
        return any(names & ADHERENCE_COLUMNS for names in read)

    @property
    def asks_models(self) -> bool:
        """True when a stage calls a model; without one, judgments come from `reuse` or there are none."""
        sections = (self.judge, self.judged_adherence, self.metrics, self.factuality)
        scores = any(section is not False for section in sections)
        verifies = self.fork is not False or self.natural.verification is not None
        return verifies or (scores and (self.models.lead is not None or not self.reuse))

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
        if self.reuse is not None and not (self.reuse.run / "manifest.json").is_file():
            raise UsageError(
                "reuse does not name a run",
                got=self.reuse.run,
                expected="a run folder with a manifest.json",
            )
        check_budget(self.budget, self.unpriced)
        if self.compared_adherence is not False:
            check_method(self.compared_adherence)
        if self.fork is not False:
            check_condition(self.fork.where, "fork.where")
        if self.fork is not False and self.judge is False:
            raise UsageError(
                f"recipe '{self.name}' has a section fork but no rubric judge",
                got="judge: false",
                expected="the rubric judge, which finds the weakest turn",
                fix="leave out `judge: false`, or the section 'fork'",
            )
        if self.fork is not False and self.models.policy is None:
            raise UsageError(
                f"recipe '{self.name}' has a section fork but names no policy model",
                expected="models.policy: the model that writes the resamples",
                fix="add models.policy, or leave out the section 'fork'",
            )
        self._check_turns()
        self._check_columns()
        return self

    def _check_columns(self) -> None:
        """Refuse a condition on a column that no stage of this recipe fills: nothing could meet it."""
        absent = self._absent_columns()
        fitted = self.judge.calibration if self.judge else None
        has_good = fitted is not None and fitted.good is not None
        for place, sql in self._asked().items():
            if "p_good" in columns_of(parse(sql, place)) and not has_good:
                raise UsageError(
                    f"{place} reads p_good, which needs a calibration",
                    got=sql,
                    expected="judge.calibration: a file with p_good",
                    fix="label 20 dialogues or more with verdicts or accept/reject, and run "
                    "`curate calibrate RUN GOLD`",
                )
        for place, sql in self._asked().items():
            self._check_metrics(columns_of(parse(sql, place)), place)
            for name in sorted(columns_of(parse(sql, place)) & absent.keys()):
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

    def _asked(self) -> dict[str, str]:
        """Return the SQL conditions of the recipe by place, such as `fork.where`."""
        conditions = {} if self.fork is False else {"fork.where": self.fork.where}
        if self.export is not False:
            turns = {
                "export.salvage": self.export.salvage,
                "export.kto_turns": self.export.kto_turns,
            }
            conditions |= {f"{place}.where": turn.where for place, turn in turns.items() if turn}
        if self.select is not False:
            # Where no conditions are given, those of the stages that run apply; and without any stage the
            # active-learning set of the default is empty.
            explicit: dict[str, Any] = {"where": self.select.named or {}}
            if "active" not in self.select.model_fields_set:
                explicit["active"] = None
            conditions |= questions(self.select.model_copy(update=explicit))
        return conditions

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
        if self.export is False:
            return
        sections = {
            "export.salvage": self.export.salvage,
            "export.kto_turns": self.export.kto_turns,
        }
        for place, section in sections.items():
            if section is None:
                continue
            check_condition(section.where, f"{place}.where")
            for stage, setting in (("judge", self.judge), ("select", self.select)):
                if setting is False:
                    raise UsageError(
                        f"recipe '{self.name}' asks for {place} without the stage it needs",
                        got=f"{stage}: false",
                        expected="turns that were judged, of dialogues that went through selection",
                        fix=f"leave out `{stage}: false`, or the section '{place}'",
                    )


def check_budget(budget: BudgetConfig, unpriced: Sequence[str]) -> None:
    """Raise UsageError for a budget of money where a model has no prices; `unpriced` are the roles of those models."""
    if budget.money is not None and unpriced:
        raise UsageError(
            "a budget of money needs the prices of every model",
            got=f"a cost {left_out_of_cost(unpriced)}",
            expected="prices: {input: ..., output: ...} per million tokens, on each model that is asked",
            fix="write them (0 for a model that costs nothing), or bound tokens or calls instead",
        )


def left_out_of_cost(roles: Sequence[str]) -> str:
    """Return what a cost leaves out, in words that follow the cost."""
    parts = " and ".join(f"the {role}'s part" for role in roles)
    return f"without {parts}: no prices given for {'it' if len(roles) == 1 else 'them'}"


def load_recipe(
    path: str | Path, overrides: Sequence[str] = (), *, without: Sequence[tuple[str, ...]] = ()
) -> Recipe:
    """Read a recipe file, the files it extends, and `key.path=value` overrides (values are YAML).

    Args:
        path: the recipe file, or `hf://owner/name`: a dataset on the Hub that curate pushed.
        overrides: values that replace those of the file.
        without: keys to leave out, such as `("fork", "curve")`, for files that are not written yet.

    Raises:
        UsageError: file missing, broken YAML, unknown keys, wrong values; says which and why.
    """
    named, path = path, fetch_pushed(path) if is_pushed(path) else Path(path)
    data = _read(path, seen=())
    for override in overrides:
        _apply(data, override, path.parent)
    if is_pushed(named):
        check_servers(data, named)
    for keys in without:
        _drop(data, keys)
    if data.get("name") is None:
        data["name"] = re.sub(r"[^\w.-]+", "-", path.stem)
    recipe = parse_recipe(data, where=str(named))
    if is_pushed(named):
        check_files(recipe.source, named)
    return recipe


def parse_recipe(data: Recipe | Mapping[str, Any], where: str = "the recipe") -> Recipe:
    """Validate a recipe given as a mapping; errors as in `load_recipe`."""
    recipe: Recipe = validated(Recipe, data, f"{where} is not a valid recipe")
    return recipe


def as_recipe(recipe: Recipe | Mapping[str, Any] | str | Path) -> Recipe:
    """Return a recipe given as a `Recipe`, a mapping or the path of its file; errors as in `load_recipe`."""
    return load_recipe(recipe) if isinstance(recipe, str | Path) else parse_recipe(recipe)


def parse_source(data: Mapping[str, Any]) -> SourceConfig:
    """Validate one source given as a mapping, such as from a command's options; errors as in `load_recipe`."""
    source: SourceConfig = validated(SourceConfig, data, "the source options are not valid")
    return source


def _read(path: Path, seen: tuple[Path, ...]) -> dict[str, Any]:
    if not path.is_file():
        raise UsageError(
            "no such recipe",
            got=path,
            expected="a YAML file",
            fix="check the path; `curate init` writes a recipe for your data",
        )
    if path.resolve() in seen:
        raise UsageError(
            "recipes extend each other in a circle",
            got=" > ".join(map(str, seen)),
            fix="take `extends` out of one of them",
        )
    if len(seen) > _EXTENDED:
        raise UsageError(
            "too many recipes extend each other",
            got=f"more than {_EXTENDED} files",
            fix="write what they share into one that all extend",
        )
    try:
        data = parse_yaml(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise UsageError(
            f"{path} is not a YAML file", got=str(error), fix="correct the line that is named"
        ) from error
    if not isinstance(data, dict):
        kind = {list: "a list", type(None): "an empty file"}.get(type(data), "a text")
        raise UsageError(
            f"{path} is not a recipe",
            got=kind,
            expected="a mapping of keys such as source and models",
        )
    for keys in PATH_KEYS:
        _anchor(data, keys, path.parent)
    base = data.pop("extends", None)
    if base is None:
        return data
    inherited = _read(path.parent / str(base), (*seen, path.resolve()))
    inherited.pop("name", None)
    return _merge(inherited, data)


PATH_KEYS: tuple[tuple[str, ...], ...] = (
    ("source", "path"),
    ("source", "mapping", "join", "path"),
    ("reuse", "run"),
    ("reuse",),
    ("judge", "prompt_file"),
    ("judge", "calibration"),
    ("adherence", "calibration"),
    ("models", "judge", "fit"),
    *(("models", role, "replies") for role in ("judge", "policy", "reviser", "metrics")),
    ("metrics", "calibration"),
    ("adherence", "reference", "baseline"),
    ("select", "decontaminate", "path"),
    ("select", "certificate"),
    ("fork", "curve"),
    ("fork", "certificate"),
    ("natural", "verify", "curve"),
)
"""Keys whose relative paths are looked for beside the recipe first; lists on the way have any length.

Models are not among them: what `model` and `tokenizer` say may as well be an id on the Hub or a name on a server.
"""


def _anchor(value: Any, keys: Sequence[str], folder: Path) -> Any:
    """Return the value with the paths at `keys` below it resolved against a recipe's folder."""
    if isinstance(value, list):
        return [_anchor(inner, keys, folder) for inner in value]
    if not keys:
        return _anchored(value, folder)
    if isinstance(value, dict) and keys[0] in value:
        value[keys[0]] = _anchor(value[keys[0]], keys[1:], folder)
    return value


def _anchored(path: Any, folder: Path) -> Any:
    """Return a relative path as one in the recipe's folder if it exists there, else unchanged."""
    if not isinstance(path, str) or Path(path).is_absolute():
        return path
    beside = str(folder / path)
    return beside if os.path.exists(beside) else path  # false, too, for what no file can be called


def _merge(base: dict[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Return `base` with the values of `over`.

    Mappings merge key by key at any depth; anything else is replaced, and so is an engine or cascade. A null is kept:
    its meaning is up to `config.Config`.
    """
    merged = dict(base)
    for key, value in over.items():
        both = isinstance(value, dict) and isinstance(merged.get(key), dict)
        is_named = isinstance(value, dict) and value.keys() & {"engine", "cascade"}
        merged[key] = _merge(merged[key], value) if both and not is_named else value
    return merged


def _drop(data: Any, keys: Sequence[str]) -> None:
    for key in keys[:-1]:
        data = data.get(key) if isinstance(data, dict) else None
    if isinstance(data, dict):
        data.pop(keys[-1], None)


def _apply(data: dict[str, Any], override: str, folder: Path) -> None:
    key, sign, text = override.partition("=")
    if not sign or not key:
        raise UsageError("an override has no value", got=override, expected="--set key.path=value")
    try:
        value = parse_yaml(text)
    except ValueError as error:
        raise UsageError(
            f"the value of --set {key} is not YAML",
            got=text,
            fix="put it in quotes, as --set 'key=\"a: b\"'",
        ) from error
    named = tuple(part for part in key.split(".") if not part.isdigit())
    for keys in PATH_KEYS:
        if keys[: len(named)] == named:
            value = _anchor(value, keys[len(named) :], folder)
    at: Any = data
    *parents, last = key.split(".")
    for index, parent in enumerate(parents):
        if isinstance(at, list):
            at = at[_index(at, parent, override)]
        else:
            if not isinstance(at.get(parent), (dict, list)):
                at[parent] = {}
            at = at[parent]
        # `--set source.path=X` on a recipe with several sources names the one source of this run
        if (
            index == 0
            and parent == "source"
            and isinstance(at, list)
            and not ((parents[1] if len(parents) > 1 else last).isdigit())
        ):
            data["source"] = at = {}
    if isinstance(at, list):
        at[_index(at, last, override)] = value
    else:
        at[last] = value


def _index(values: list[Any], text: str, override: str) -> int:
    if not text.isdigit() or int(text) >= len(values):
        raise UsageError(
            "an override names an element that does not exist",
            got=override,
            expected=f"an index from 0 to {len(values) - 1}",
        )
    return int(text)
