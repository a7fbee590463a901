"""Scores made elsewhere: read as methods, and written in the same shape."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import orjson

from curate.benchmark.methods import MethodScores
from curate.errors import UsageError

PREFIX = "saved:"


def read_saved_scores(path: str | Path, rows: int) -> list[MethodScores]:
    """Read `{"results": {name: {"model": …, "scores": [one a row, in order]}}}`.

    A null is an unscored row. The names get the prefix `saved:`, since what made them cannot be checked.

    Args:
        path: the file.
        rows: of the benchmark.

    Raises:
        UsageError: another shape, or another number of scores than the benchmark has rows.
    """
    try:
        results = orjson.loads(Path(path).read_bytes())["results"]
        given = {str(name): (result, list(result["scores"])) for name, result in results.items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise UsageError(
            "not a file of saved scores",
            got=f"{path}: {error!r}",
            expected='{"results": {"name": {"model": "…", "scores": [...]}}}',
        ) from error
    found = []
    for name, (result, values) in given.items():
        wrong = next((place for place, value in enumerate(values) if not _is_score(value)), None)
        if len(values) != rows or wrong is not None:
            raise UsageError(
                f"the saved scores of '{name}' do not fit the benchmark",
                got=f"{len(values)} entries"
                + ("" if wrong is None else f", entry {wrong + 1} is {values[wrong]!r}"),
                expected=f"{rows} numbers (or null), one a row in order",
            )
        found.append(
            MethodScores(
                name=PREFIX + name,
                scores=tuple(values),
                origin="recomputed from saved scores",
                model=str(result.get("model") or ""),
                detail=Path(path).name,
                reasons=tuple("null" if value is None else None for value in values),
            )
        )
    return found


def saved_scores(methods: Sequence[MethodScores], rows: int) -> dict[str, Any]:
    """The same shape to write: every score of a run, with what made it and why turns have none."""
    return {
        "description": "role adherence scores a row, in the order of the benchmark",
        "n_records": rows,
        "results": {
            method.name: {
                "model": method.model,
                "origin": method.origin,
                "detail": method.detail,
                "scores": list(method.scores),
                "unscored": list(method.reasons),
            }
            for method in methods
        },
    }


def _is_score(value: object) -> bool:
    return value is None or (
        isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    )
