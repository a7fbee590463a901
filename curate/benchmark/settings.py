"""From the command line's options to methods with their parameters, and the judge's recipe."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

import orjson

from curate.adherence.config import AdherenceConfig
from curate.benchmark.methods import LLM_JUDGE, USUAL, Method, parse_methods
from curate.errors import UsageError
from curate.recipe import Recipe, load_recipe


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
    found = tuple(parse_methods(chosen, base)) if chosen.strip() else ()
    return Settings(found, recipe, are_named=methods is not None)


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
            expected="numbers of first rows between commas, as 15,50,150, or all",
        ) from error


def _load(judge: Path | None, changes: Sequence[str]) -> Recipe:
    if judge is not None:
        return load_recipe(judge, changes)
    with resources.as_file(resources.files("curate.benchmark") / "defaults.yaml") as defaults:
        try:
            return load_recipe(defaults, changes)
        except UsageError as error:
            # The user wrote an option, and no recipe: the path of ours would only mislead.
            raise UsageError(
                error.problem.replace(str(defaults), "what the options make"),
                got=error.got,
                expected=error.expected,
                fix=error.fix,
            ) from error
