"""The files that a benchmark writes into its folder."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import orjson

from curate.benchmark.benchmark_run import Benchmark
from curate.benchmark.methods import MethodScores
from curate.benchmark.paper_tables import as_csv, as_markdown, tables_of
from curate.errors import CurateError, UsageError, first_line
from curate.wording import plural


def prepare_folder(folder: Path) -> None:
    """Make the folder before anything is scored.

    Raises:
        UsageError: it cannot be made.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(
            "the folder for the results cannot be created",
            got=str(error),
            fix="name another one with --out",
        ) from error


def write_benchmark(benchmark: Benchmark, folder: Path, title: str) -> list[Path]:
    """Write `tables.md`, `results.csv` and `scores.json`; returns their paths.

    `scores.json` has every score of the largest condition in the shape that is read as saved scores.

    Raises:
        CurateError: the folder cannot be written.
    """
    full = benchmark.full
    scores = saved_scores((*full.methods, *full.baselines), full.n)
    contents = {
        "tables.md": _markdown(benchmark, title).encode(),
        "results.csv": as_csv(benchmark).encode(),
        "scores.json": orjson.dumps(scores, option=orjson.OPT_INDENT_2) + b"\n",
    }
    paths = []
    try:
        for name, content in contents.items():
            (folder / name).write_bytes(content)
            paths.append(folder / name)
    except OSError as error:
        raise CurateError(
            "the results cannot be written",
            got=str(error),
            fix="name another folder with --out, or free some space",
        ) from error
    return paths


def summary(benchmark: Benchmark) -> str:
    """Count the turns of each kind in the largest condition."""
    counts = Counter(turn.label for turn in benchmark.turns[: benchmark.full.n])
    kinds = ", ".join(f"{count} {label}" for label, count in counts.most_common())
    roles = len({turn.case.role for turn in benchmark.turns[: benchmark.full.n]})
    return f"{benchmark.full.n} of {plural(len(benchmark.turns), 'turn')}, {plural(roles, 'role')}: {kinds}"


def origin(scores: MethodScores) -> str:
    """Describe where a method's scores come from, what made them, and how many turns have none."""
    unscored = ", ".join(f"{count} {reason}" for reason, count in scores.unscored.most_common())
    parts = (
        scores.origin,
        scores.model,
        scores.detail,
        f"unscored: {unscored}" if unscored else "",
    )
    return "; ".join(filter(None, parts))


def by_reason(not_run: Mapping[str, str]) -> dict[str, list[str]]:
    """Return the methods that could not run, together where one reason stopped them."""
    names_by_reason: dict[str, list[str]] = {}
    for name, why in not_run.items():
        names_by_reason.setdefault(why, []).append(name)
    return names_by_reason


def _markdown(benchmark: Benchmark, title: str) -> str:
    lines = [f"# Role adherence on {title}", "", f"{summary(benchmark)}.", ""]
    lines += [f"- `{scores.name}`: {origin(scores)}" for scores in benchmark.full.methods]
    lines += [
        f"- {', '.join(f'`{name}`' for name in names)}: not run. {('; '.join(line.strip() for line in why.splitlines()))}"
        for why, names in by_reason(benchmark.not_run).items()
    ]
    lines += [f"- Warning: {warning}" for warning in benchmark.warnings]
    return "\n".join([*lines, "", *map(as_markdown, tables_of(benchmark))])


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
        results_of = {
            str(name): (result, list(result["scores"])) for name, result in results.items()
        }
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise UsageError(
            "not a file of saved scores",
            got=f"{path}: {first_line(error)}",
            expected='{"results": {"name": {"model": "…", "scores": [...]}}}',
        ) from error
    methods = []
    for name, (result, values) in results_of.items():
        wrong = next((place for place, value in enumerate(values) if not _is_score(value)), None)
        if len(values) != rows or wrong is not None:
            raise UsageError(
                f"the saved scores of '{name}' do not fit the benchmark",
                got=plural(len(values), "value")
                + ("" if wrong is None else f", value {wrong + 1} is {values[wrong]!r}"),
                expected=f"{rows} numbers (or null), one per row, in order",
            )
        methods.append(
            MethodScores(
                name=PREFIX + name,
                scores=tuple(values),
                origin="recomputed from saved scores",
                model=str(result.get("model") or ""),
                detail=Path(path).name,
                reasons=tuple("null" if value is None else None for value in values),
            )
        )
    return methods


def saved_scores(methods: Sequence[MethodScores], rows: int) -> dict[str, Any]:
    """Return every score of a run as `read_saved_scores` reads it, with its method's settings and why turns have none."""
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
