"""Which methods are asked for, with which parameters, and what each came to on a condition.

A method is written as in a recipe's `scoring_method`, with parameters of its own in brackets where several
variants stand side by side: `cosine,knn[pool=turn],llm_judge[output_mode=continuous]`.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

from pydantic import BaseModel, ValidationError

from curate.adherence.config import AdherenceConfig
from curate.adherence.reference.config import ReferenceConfig, ReferenceMethod
from curate.errors import UsageError
from curate.storage.yaml_text import parse_yaml

LLM_JUDGE = "llm_judge"
METHODS: tuple[str, ...] = (LLM_JUDGE, *get_args(ReferenceMethod))
USUAL = ("cosine", "knn", "mahalanobis", "pca_mahalanobis", "kl", "rouge", "bleu")
"""Reference methods that are run where none is named: all but those that need a large model of their own."""

Origin = Literal["run here", "recomputed from saved scores", "baseline"]

_METHOD = re.compile(r"\s*([A-Za-z_]+)\s*(?:\[([^\]]*)\])?\s*")
_BETWEEN = re.compile(r",(?![^\[]*\])")


@dataclass(frozen=True, slots=True)
class Method:
    """A method asked for: its name in the tables, and its parameters."""

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
        """How many turns have no score, by reason."""
        return Counter(reason for reason in self.reasons if reason is not None)

    def first(self, n: int) -> MethodScores:
        """The same of the first n turns."""
        return replace(self, scores=self.scores[:n], reasons=self.reasons[:n])


def parse_methods(text: str, base: AdherenceConfig) -> list[Method]:
    """Read `--methods`.

    Args:
        text: names with parameters in brackets, between commas.
        base: parameters that a method does not set itself.

    Raises:
        UsageError: an unknown method, key or value; says which there are.
    """
    found = []
    for part in _BETWEEN.split(text):
        match = _METHOD.fullmatch(part)
        if match is None or match.group(1) not in METHODS:
            raise UsageError(
                "no such method",
                got=part.strip() or "nothing between two commas",
                expected=f"of {', '.join(METHODS)}, as name or name[key=value,key=value]",
            )
        name, given = match.group(1), _parameters(match.group(2) or "", part)
        found.append(Method(part.strip(), _configured(name, given, base)))
    return found


def _parameters(text: str, where: str) -> dict[str, Any]:
    given = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        key, sign, value = part.partition("=")
        if not sign:
            raise UsageError(
                "a parameter has no value", got=where.strip(), expected="name[key=value]"
            )
        try:
            given[key.strip()] = parse_yaml(value)
        except ValueError as error:
            raise UsageError(f"the value of {key} cannot be read", got=value) from error
    return given


def _configured(name: str, given: dict[str, Any], base: AdherenceConfig) -> AdherenceConfig:
    judged = name == LLM_JUDGE
    model: type[BaseModel] = AdherenceConfig if judged else ReferenceConfig
    known = [key for key in model.model_fields if key not in ("scoring_method", "reference")]
    for key in given:
        if key not in known:
            raise UsageError(f"{name} has no parameter '{key}'", expected=f"of {', '.join(known)}")
    data = base.model_dump() | {"scoring_method": name}
    data |= given if judged else {"reference": data["reference"] | given}
    try:
        return AdherenceConfig.model_validate(data)
    except ValidationError as error:
        first = error.errors()[0]
        raise UsageError(
            f"a parameter of {name} is wrong",
            got=f"{'.'.join(map(str, first['loc']))} = {first.get('input')!r}",
            expected=first["msg"],
        ) from error
