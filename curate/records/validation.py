"""JSON Schemas of the records, and validation of what is read back against them.

A run folder outlives the program that wrote it: rows come back from older versions, other machines and editors.
So everything read back is validated against the schema published in `schemas/` before it becomes a record. The schema
is made from the model, never written by hand; compiled validators are cached, because a run reads millions of rows.

The recipe is not a record; its schema is added one layer up, in `curate.cli.schema`.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib.metadata import version
from typing import Any, Final, TypeVar

from jsonschema import Draft202012Validator
from jsonschema.exceptions import best_match
from pydantic import BaseModel, ValidationError

from curate import records
from curate.dialogue import Dialogue
from curate.errors import PACKAGE, CurateError, UsageError

DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"

RECORDS: Final[Mapping[str, type[BaseModel]]] = {
    "dialogue": Dialogue,
    "judgment": records.Judgment,
    "adherence": records.AdherenceScore,
    "metrics": records.MetricsScore,
    "factuality": records.FactualityScore,
    "calibration": records.Calibration,
    "pair-curve": records.PairCurve,
    "audit": records.AuditReport,
    "certificate": records.Certificate,
    "draw": records.Draw,
    "cascade-fit": records.CascadeFit,
    "decision": records.Decision,
    "preference-pair": records.PreferencePair,
    "unscored": records.Unscored,
    "quarantine": records.QuarantinedRow,
    "manifest": records.Manifest,
    "review-answer": records.ReviewAnswer,
    "agreement": records.Agreement,
    "probe": records.ProbeReport,
    "probe-outcome": records.ProbeOutcome,
}
"""The records in run folders and in the files of other commands, by the name of their schema."""

_NAMES: Final = {model: name for name, model in RECORDS.items()}

M = TypeVar("M", bound=BaseModel)


def model_schema(name: str, model: type[BaseModel]) -> dict[str, Any]:
    """Return the JSON Schema (draft 2020-12) of a model, with `$schema`, `$id` (including curate's version) and title first."""
    schema = model.model_json_schema(mode="validation")
    schema.pop("title", None)
    description = schema.pop("description", "")
    return {
        "$schema": DIALECT,
        "$id": f"urn:{PACKAGE}:{version(PACKAGE)}:schema:{name}",
        "title": name,
        "description": description,
        **schema,
    }


def validate_record(name: str, value: object) -> None:
    """Validate one decoded JSON value against the schema of a record.

    Args:
        name: a key of `RECORDS`.
        value: as `json.loads` or `orjson.loads` returns it.

    Raises:
        UsageError: no such record.
        CurateError: the value does not fit; names the place inside the value (`per_turn.0.scores`) and what is
            wrong there, so that a caller only has to add the file and the line.
    """
    if name not in RECORDS:
        raise UsageError(
            "no such record", got=repr(name), expected=f"one of: {', '.join(sorted(RECORDS))}"
        )
    validator = _validator(name)
    if validator.is_valid(value):
        return
    worst = best_match(validator.iter_errors(value))
    place, message = ("", "") if worst is None else (_place(worst.absolute_path), worst.message)
    raise _misfit(name, place, message)


def load_record(model: type[M], value: object) -> M:
    """Return a record made of one decoded JSON value, validated against its schema.

    Raises:
        CurateError: as `validate_record`; also for rules that a schema cannot express.
    """
    name = _NAMES[model]
    validate_record(name, value)
    try:
        return model.model_validate(value)
    except ValidationError as error:
        first = error.errors()[0]
        raise _misfit(name, _place(first["loc"]), first["msg"]) from error


@cache
def _validator(name: str) -> Draft202012Validator:
    return Draft202012Validator(model_schema(name, RECORDS[name]))


def _place(path: Any) -> str:
    return ".".join(str(part) for part in path)


def _misfit(name: str, place: str, message: str) -> CurateError:
    return CurateError(
        f"a stored {name} record does not match its schema",
        got=f"at {place or 'the top'}: {message[:300]}",
        expected=f"what `curate schema {name}` prints",
        fix="remove that record and run again: it is recomputed from cached replies",
    )
