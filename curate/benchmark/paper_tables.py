"""The paper's tables as data, and as Markdown. A terminal shows the same data its own way."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from curate.benchmark.baselines import DESCRIPTIONS
from curate.benchmark.benchmark_run import Benchmark
from curate.benchmark.figures import COLUMNS, MethodFigures, result_row
from curate.trust.agreement import Interval

_KINDS_ABREAST = 5
"""Kinds of violation side by side in 80 columns."""


@dataclass(frozen=True, slots=True)
class Table:
    """Cells as text; the first column holds names, the others figures unless `texts` names them."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str = ""
    texts: frozenset[str] = frozenset()


def tables_of(benchmark: Benchmark) -> list[Table]:
    """Return every table of a benchmark, in the paper's order; one without rows is left out."""
    tables = [
        _baselines(benchmark),
        _continuous(benchmark),
        _binary(benchmark),
        _bootstrap(benchmark),
        _probabilities(benchmark),
        *_by_kind(benchmark, "AUC of adherent turns against each kind of violation", "auc"),
        *_by_kind(benchmark, "Mean score by kind of turn", "mean"),
        _unified(benchmark),
        _verdicts(benchmark),
    ]
    return [table for table in tables if table.rows]


def as_markdown(table: Table) -> str:
    """Return one table with its title and note."""
    left = {table.columns[0], *table.texts}
    lines = [
        f"## {table.title}",
        "",
        _line(table.columns),
        _line([":---" if column in left else "---:" for column in table.columns]),
        *map(_line, table.rows),
    ]
    return "\n".join([*lines, *(["", table.note] if table.note else []), ""])


def as_csv(benchmark: Benchmark) -> str:
    """Return `results.csv`: every method and baseline on every condition; a figure that is not defined is empty."""
    sink = io.StringIO()
    writer = csv.DictWriter(sink, COLUMNS, lineterminator="\n")
    writer.writeheader()
    for figures in _ordered(benchmark):
        row = result_row(figures)
        writer.writerow({key: _exact(value) for key, value in row.items()})
    return sink.getvalue()


def number(value: float | None, *, signed: bool = False) -> str:
    """Return a number with three decimals and without a leading zero; empty where there is no figure."""
    if value is None:
        return ""
    text = f"{value:+.3f}" if signed else f"{value:.3f}"
    return text.replace("0.", ".", 1) if text.lstrip("+-").startswith("0.") else text


def between(interval: Interval | None, *, signed: bool = False) -> str:
    """Return an interval in brackets; empty where there is none."""
    if interval is None:
        return ""
    return f"[{number(interval.low, signed=signed)}, {number(interval.high, signed=signed)}]"


def _baselines(benchmark: Benchmark) -> Table:
    sizes = [condition.n for condition in benchmark.conditions]
    areas = {
        (figures.method, condition.n): figures.auc
        for condition in benchmark.conditions
        for figures in condition.figures
    }
    rows = [
        (name, *(number(areas[name, n]) for n in sizes), description)
        for name, description in DESCRIPTIONS.items()
    ]
    return Table(
        "What needs no understanding: AUC",
        ("baseline", *(f"n={n}" for n in sizes), "what it reads"),
        tuple(rows),
        "A method's figure means little where one of these is as high.",
        frozenset({"what it reads"}),
    )


Show = Callable[[MethodFigures], str]


def _shows(*names: str) -> dict[str, Show]:
    """Make columns that show, of a method, a figure by its name, or with brackets its interval; `heading:name`."""
    shown: dict[str, Show] = {"method": lambda row: row.method, "n": lambda row: str(row.n)}
    for column in names:
        heading, _, name = column.rpartition(":")
        shown[heading or name] = partial(_shown, name)
    return shown


def _shown(name: str, row: MethodFigures) -> str:
    if name.startswith("["):
        return between(row.intervals.get(name.strip("[]")))
    value = getattr(row, name)
    return str(value) if name == "unscored" else number(value, signed=name == "separation")


def _of_methods(
    benchmark: Benchmark,
    title: str,
    shown: Mapping[str, Show],
    note: str,
    has: Callable[[MethodFigures], bool],
) -> Table:
    """Return a table of the methods that have such figures, each by rising n."""
    rows = (
        tuple(show(figures) for show in shown.values())
        for figures in _ordered(benchmark, methods_only=True)
        if has(figures)
    )
    return Table(title, tuple(shown), tuple(rows), note)


def _continuous(benchmark: Benchmark) -> Table:
    return _of_methods(
        benchmark,
        "Continuous methods",
        _shows(
            *("adh.:mean_adherent", "viol.:mean_violation", "sep.:separation"),
            *("AUC:auc", "95 %:[auc]", "AP:ap", "unsc.:unscored"),
        ),
        "adh., viol.: mean score of adherent turns and of violations; sep.: their difference; unsc.: turns "
        "without a score, which count in no figure.",
        lambda figures: not figures.binary,
    )


def _binary(benchmark: Benchmark) -> Table:
    cut = benchmark.threshold
    rule = "" if cut is None else f"Scores of at least {cut:g} are adherent. "
    return _of_methods(
        benchmark,
        "Binary decisions",
        _shows(
            *("F1 adh.:f1_adherent", "F1 viol.:f1_violation", "macro F1:f1_macro", "kappa"),
            *("acc.:accuracy", "95 %:[accuracy]", "unsc.:unscored"),
        ),
        f"{rule}acc.: accuracy, the share of right decisions.",
        lambda figures: figures.f1_macro is not None,
    )


def _bootstrap(benchmark: Benchmark) -> Table:
    return _of_methods(
        benchmark,
        "Binary decisions: bootstrap intervals",
        _shows(
            *("macro F1:[f1_macro]", "F1 adherent:[f1_adherent]"),
            *("F1 violation:[f1_violation]", "kappa:[kappa]"),
        ),
        "95 % percentile intervals, 1,000 resamples of the turns, seed 42.",
        lambda figures: "f1_macro" in figures.intervals,
    )


def _probabilities(benchmark: Benchmark) -> Table:
    return _of_methods(
        benchmark,
        "Scores taken as probabilities",
        _shows("Brier:brier", "95 %:[brier]", "ECE:ece"),
        "Brier: mean squared distance from the label (0 is perfect, a score of .5 everywhere has .25); ECE: "
        "calibration error in 10 bins. Of scores between 0 and 1 only; a method that ranks well can be far off.",
        lambda figures: figures.brier is not None,
    )


def _by_kind(benchmark: Benchmark, title: str, figure: str) -> list[Table]:
    full = benchmark.full
    kinds = list(dict.fromkeys(kind for figures in full.figures for kind in figures.by_kind))
    if figure == "auc":
        kinds = kinds[1:]
    tables = []
    for start in range(0, len(kinds), _KINDS_ABREAST):
        part = kinds[start : start + _KINDS_ABREAST]
        rows = tuple(
            (
                figures.method,
                *(
                    number(getattr(figures.by_kind[kind], figure))
                    if kind in figures.by_kind
                    else ""
                    for kind in part
                ),
            )
            for figures in full.figures
            if figure == "auc" or figures.method in full.method_names
        )
        tables.append(Table(f"{title} (n = {full.n})", ("method", *part), rows))
    return tables


def _unified(benchmark: Benchmark) -> Table:
    full = benchmark.full
    ranked = sorted(
        (figures for figures in full.figures if figures.auc is not None),
        key=lambda figures: -(figures.auc or 0.0),
    )
    origins = {scores.name: scores for scores in (*full.methods, *full.baselines)}
    rows = [
        (
            figures.method,
            number(figures.auc),
            between(figures.intervals.get("auc")),
            ({True: "yes", False: "no", None: ""}[origins[figures.method].needs_references]),
            origins[figures.method].origin,
        )
        for figures in ranked
    ]
    return Table(
        f"All on one scale: AUC (n = {full.n})",
        ("method", "AUC", "95 %", "refs.", "scores"),
        tuple(rows),
        "refs.: it needs references of what would have been right.",
        frozenset({"scores", "refs."}),
    )


def _verdicts(benchmark: Benchmark) -> Table:
    rows = [
        (
            verdict.method if verdict.is_best else "",
            number(verdict.method_auc) if verdict.is_best else "",
            f"{verdict.baseline} {number(verdict.baseline_auc)}",
            number(verdict.difference, signed=True),
            between(verdict.interval, signed=True),
            verdict.sentence,
        )
        for verdict in benchmark.full.verdicts
    ]
    first = [verdict for verdict in benchmark.full.verdicts if verdict.is_best]
    ahead = sum(verdict.beats for verdict in first)
    note = (
        f"{ahead} of {len(first)} beat the best baseline. Difference of AUCs with its 95 % interval, from the same 1,000 resamples for both. The best "
        "baseline is chosen on these rows; where that is the row's position, the best that reads the turn "
        "stands below it."
    )
    return Table(
        f"Does it beat the best baseline? (n = {benchmark.full.n})",
        ("method", "AUC", "baseline", "diff.", "95 %", "verdict"),
        tuple(rows),
        note,
        frozenset({"baseline", "verdict"}),
    )


def _ordered(benchmark: Benchmark, *, methods_only: bool = False) -> list[MethodFigures]:
    """Return the rows method by method, each by rising n."""
    by_name = [{f.method: f for f in condition.figures} for condition in benchmark.conditions]
    full = benchmark.full
    names: Sequence[str] = full.method_names if methods_only else list(by_name[-1])
    return [figures[name] for name in names for figures in by_name]


def _exact(value: object) -> object:
    if value is None:
        return ""
    return f"{value:.6f}" if isinstance(value, float) else value


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
