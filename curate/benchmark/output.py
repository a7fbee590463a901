"""What a benchmark leaves in its folder."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import orjson

from curate.benchmark.benchmark_run import Benchmark
from curate.benchmark.methods import MethodScores
from curate.benchmark.paper_tables import as_csv, as_markdown, tables_of
from curate.benchmark.saved import saved_scores
from curate.errors import CurateError, UsageError


def prepare_folder(folder: Path) -> None:
    """Make the folder before anything is scored.

    Raises:
        UsageError: it cannot be made.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(
            "the folder of the results cannot be made", got=str(error), fix="--out names another"
        ) from error


def write_benchmark(found: Benchmark, folder: Path, title: str) -> list[Path]:
    """Write `tables.md`, `results.csv` and `scores.json`; returns their paths.

    `scores.json` has every score of the largest condition in the shape that is read as saved scores.

    Raises:
        CurateError: the folder cannot be written.
    """
    full = found.full
    scores = saved_scores((*full.methods, *full.baselines), full.n)
    contents = {
        "tables.md": _markdown(found, title).encode(),
        "results.csv": as_csv(found).encode(),
        "scores.json": orjson.dumps(scores, option=orjson.OPT_INDENT_2) + b"\n",
    }
    paths = []
    try:
        for name, content in contents.items():
            (folder / name).write_bytes(content)
            paths.append(folder / name)
    except OSError as error:
        raise CurateError("the results cannot be written", got=str(error)) from error
    return paths


def summary(found: Benchmark) -> str:
    """How many turns of which kind the largest condition has."""
    counts = Counter(turn.label for turn in found.turns[: found.full.n])
    kinds = ", ".join(f"{count} {label}" for label, count in counts.most_common())
    roles = len({turn.case.role for turn in found.turns[: found.full.n]})
    return f"{found.full.n} of {len(found.turns)} turns, {roles} role{'s' * (roles != 1)}: {kinds}"


def origin(scores: MethodScores) -> str:
    """Where a method's scores come from, what made them, and how many turns have none."""
    unscored = ", ".join(f"{count} {reason}" for reason, count in scores.unscored.most_common())
    parts = (
        scores.origin,
        scores.model,
        scores.detail,
        f"unscored: {unscored}" if unscored else "",
    )
    return "; ".join(filter(None, parts))


def by_reason(not_run: Mapping[str, str]) -> dict[str, list[str]]:
    """Methods that could not run, together where one reason stopped them."""
    found: dict[str, list[str]] = {}
    for name, why in not_run.items():
        found.setdefault(why, []).append(name)
    return found


def _markdown(found: Benchmark, title: str) -> str:
    lines = [f"# Role adherence on {title}", "", f"{summary(found)}.", ""]
    lines += [f"- `{scores.name}`: {origin(scores)}" for scores in found.full.methods]
    lines += [
        f"- {', '.join(f'`{name}`' for name in names)}: not run. {_flat(why)}"
        for why, names in by_reason(found.not_run).items()
    ]
    lines += [f"- Warning: {warning}" for warning in found.warnings]
    return "\n".join([*lines, "", *map(as_markdown, tables_of(found))])


def _flat(text: str) -> str:
    return "; ".join(line.strip() for line in text.splitlines())
