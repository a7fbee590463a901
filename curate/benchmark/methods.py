"""The methods of a benchmark with their parameters, and their scores on a condition.

A method is written as in a recipe's `scoring_method`, with parameters of its own in brackets where several
variants stand side by side: `cosine,knn[pool=turn],llm_judge[output_mode=continuous]`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib import resources
from pathlib import Path
from typing import Any, Literal, get_args

import orjson
from pydantic import BaseModel, ValidationError

from curate.adherence.config import AdherenceConfig
from curate.adherence.reference_config import ON_VECTORS, ON_WORDS, ReferenceConfig, ReferenceMethod
from curate.errors import UsageError
from curate.recipe import Recipe, load_recipe
from curate.storage.yaml_text import parse_yaml

LLM_JUDGE = "llm_judge"
METHODS: tuple[str, ...] = (LLM_JUDGE, *get_args(ReferenceMethod))
USUAL = (*ON_VECTORS, *ON_WORDS)
"""Reference methods that are run where none is named: all but those that need a large model of their own."""

Origin = Literal["run here", "recomputed from saved scores", "baseline"]

_METHOD = re.compile(r"\s*([A-Za-z_]+)\s*(?:\[([^\]]*)\]\s*)?")
_IN_BRACKETS = re.compile(r"\[[^\[\]]*\]")


@dataclass(frozen=True, slots=True)
class Method:
    """A method to run: its name in the tables, and its parameters."""

    name: str
    config: AdherenceConfig

    @property
    def is_judge(self) -> bool:
        """True where a model is asked; the others compare with references."""
        return self.config.scoring_method == LLM_JUDGE


@dataclass(frozen=True, slots=True)
class MethodScores:
    """A method's scores on a condition.

    Attributes:
        name: in the tables.
        scores: one a turn, None where unscored.
        origin: where they come from.
        needs_references: it reads a turn's references; None where that is not known.
        model: what scored.
        detail: what else a reader must know: mode, prompt, parameters.
        reasons: why a turn has no score, one a turn, None where it has one.
    """

    name: str
    scores: tuple[float | None, ...]
    origin: Origin
    needs_references: bool | None = None
    model: str = ""
    detail: str = ""
    reasons: tuple[str | None, ...] = ()

    @property
    def unscored(self) -> Counter[str]:
        """Number of turns without a score, by reason."""
        return Counter(reason for reason in self.reasons if reason is not None)

    def first(self, n: int) -> MethodScores:
        """Return the same method for the first n turns."""
        return replace(self, scores=self.scores[:n], reasons=self.reasons[:n])


def parse_methods(text: str, base: AdherenceConfig) -> list[Method]:
    """Read `--methods`.

    Args:
        text: names with parameters in brackets, between commas.
        base: parameters that a method does not set itself.

    Raises:
        UsageError: an unknown method, key or value; says which there are.
    """
    methods = []
    for part in _apart(text):
        match = _METHOD.fullmatch(part)
        if match is None or match.group(1) not in METHODS:
            raise UsageError(
                "no such method",
                got=part.strip() or "nothing between two commas",
                expected=f"one of {', '.join(METHODS)}, as name or name[key=value,key=value]",
            )
        name, settings = match.group(1), _parameters(match.group(2) or "", part)
        methods.append(Method(part.strip(), _configured(name, settings, base)))
    return methods


def _apart(text: str) -> list[str]:
    """Return the parts between commas, but for those in brackets."""
    hidden = _IN_BRACKETS.sub(lambda match: match[0].replace(",", "\0"), text)
    return [part.replace("\0", ",") for part in hidden.split(",")]


def _parameters(text: str, where: str) -> dict[str, Any]:
    parameters = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        key, sign, value = part.partition("=")
        if not sign:
            raise UsageError(
                "a parameter has no value", got=where.strip(), expected="name[key=value]"
            )
        try:
            parameters[key.strip()] = parse_yaml(value)
        except ValueError as error:
            raise UsageError(
                f"the value of {key} cannot be read",
                got=value,
                expected="a number, true, false or null",
            ) from error
    return parameters


def _configured(name: str, settings: dict[str, Any], base: AdherenceConfig) -> AdherenceConfig:
    judged = name == LLM_JUDGE
    model: type[BaseModel] = AdherenceConfig if judged else ReferenceConfig
    known = [key for key in model.model_fields if key not in ("scoring_method", "reference")]
    for key in settings:
        if key not in known:
            raise UsageError(
                f"{name} has no parameter '{key}'", expected=f"one of {', '.join(known)}"
            )
    data = base.model_dump() | {"scoring_method": name}
    data |= settings if judged else {"reference": data["reference"] | settings}
    try:
        return AdherenceConfig.model_validate(data)
    except ValidationError as error:
        first = error.errors()[0]
        raise UsageError(
            f"a parameter of {name} is wrong",
            got=f"{'.'.join(map(str, first['loc']))} = {first.get('input')!r}",
            expected=first["msg"],
        ) from error


@dataclass(frozen=True, slots=True)
class Settings:
    """Methods with their parameters, and a recipe whose source is the benchmark.

    Attributes:
        methods: in the order asked for.
        recipe: the judge's, or the defaults where none is named; how the file is read stands in `source`.
        are_named: the user chose the methods; the usual ones otherwise.
    """

    methods: tuple[Method, ...]
    recipe: Recipe
    are_named: bool


def load_settings(
    path: str,
    methods: str | None,
    *,
    shape: str = "auto",
    judge: Path | None = None,
    overrides: Sequence[str] = (),
    encoder: str | None = None,
) -> Settings:
    """Read the judge's recipe, apply overrides to it, and give every method its parameters.

    `pool` of kNN is `role` here unless it is said, since that is what the paper's experiments did; a run's
    default is `turn`.

    Args:
        path: file, folder, glob or Hub id of the benchmark; a judge's recipe keeps its own source to itself.
        methods: as in `--methods`; None for the usual ones, and the judge where one is named.
        shape: of the benchmark; `source.mapping` and the like are overrides.
        judge: recipe whose `models.judge` and `adherence` are taken.
        overrides: `key.path=value`, keys as in a recipe.
        encoder: short for `adherence.reference.encoder`.

    Raises:
        UsageError: as in `load_recipe` and `parse_methods`.
    """
    source = orjson.dumps({"path": path, "shape": shape}).decode()
    changes = [f"source={source}", *overrides]
    if encoder is not None:
        changes.append(f"adherence.reference.encoder={orjson.dumps(encoder).decode()}")
    recipe = _load(judge, changes)
    base = recipe.adherence if recipe.adherence is not False else AdherenceConfig()
    if "pool" not in base.reference.model_fields_set:
        reference = base.reference.model_copy(update={"pool": "role"})
        base = base.model_copy(update={"reference": reference})
    usual = (*USUAL, *((LLM_JUDGE,) if recipe.models.lead is not None else ()))
    chosen = ",".join(usual) if methods is None else methods
    parsed = tuple(parse_methods(chosen, base)) if chosen.strip() else ()
    return Settings(parsed, recipe, are_named=methods is not None)


def parse_conditions(text: str | None, rows: int) -> tuple[int, ...] | None:
    """Read `--conditions`: numbers between commas, `all` for all rows.

    Raises:
        UsageError: something else.
    """
    if text is None:
        return None
    try:
        return tuple(rows if part.strip() == "all" else int(part) for part in text.split(","))
    except ValueError as error:
        raise UsageError(
            "the conditions cannot be read",
            got=text,
            expected="numbers of first rows, separated by commas, such as 15,50,150, or all",
        ) from error


def _load(judge: Path | None, changes: Sequence[str]) -> Recipe:
    if judge is not None:
        return load_recipe(judge, changes)
    with resources.as_file(resources.files("curate.benchmark") / "defaults.yaml") as defaults:
        try:
            return load_recipe(defaults, changes)
        except UsageError as error:
            # The user wrote an option and no recipe, so the path of the built-in recipe would mislead.
            raise UsageError(
                error.problem.replace(str(defaults), "the recipe from these options"),
                got=error.got,
                expected=error.expected,
                fix=error.fix,
            ) from error
