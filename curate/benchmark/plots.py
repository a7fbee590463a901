"""The paper's figures as pictures: class means, separation and macro F1 against n, ROC and
reliability.

matplotlib draws them with its Agg backend, so that no display is needed; it is imported where it is used.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from curate.benchmark.benchmark_run import Benchmark
from curate.benchmark.figures import MethodFigures
from curate.benchmark.methods import MethodScores
from curate.errors import UsageError, missing_extra
from curate.trust.agreement import calibration_bins, expected_calibration_error, roc_curve

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe and Ito's palette: told apart by colour-blind readers too.
_ADHERENT, _VIOLATION, _GREY = "#0072B2", "#D55E00", "#888888"
_COLOURS = (
    "#0072B2",
    "#D55E00",
    "#009E73",
    "#CC79A7",
    "#E69F00",
    "#56B4E9",
    "#000000",
    "#B2A800",
)
_STYLES = ("-", "--", ":", "-.")
_PANELS_ABREAST = 3
_NAME = 34
_FEW = 3
"""Conditions whose figures fit above their bars."""


def check_plots() -> None:
    """Refuse before anything is scored.

    Raises:
        UsageError: matplotlib is not installed.
    """
    try:
        import matplotlib  # noqa: F401
    except ImportError as error:
        refusal = missing_extra("matplotlib", "plots")
        raise UsageError(refusal.problem, fix=f"{refusal.fix}, or --no-plots") from error


def write_plots(benchmark: Benchmark, folder: Path) -> list[Path]:
    """Draw what there is to draw, as PNG files; returns their paths.

    `class_means`, `separation` and `macro_f1` (with more than one condition; the latter of methods that decide), `roc` and `reliability` (of methods whose
    scores lie in [0, 1]).
    """
    check_plots()
    drawn: dict[str, Callable[[Benchmark], Figure | None]] = {
        "class_means": _class_means,
        "separation": _separation,
        "macro_f1": _macro_f1,
        "roc": _roc,
        "reliability": _reliability,
    }
    paths = []
    for name, draw in drawn.items():
        figure = draw(benchmark)
        if figure is not None:
            path = folder / f"{name}.png"
            figure.savefig(path, dpi=150, metadata={"Software": None})
            paths.append(path)
    return paths


def _class_means(benchmark: Benchmark) -> Figure | None:
    """Draw a panel for each method, with a pair of bars for each condition."""
    names = [f.method for f in _methods(benchmark) if f.separation is not None]
    figure, panels = _panels(len(names), height=2.2)
    for panel, name in zip(panels, names, strict=False):
        rows = [f for f in _by_condition(benchmark, name) if f.separation is not None]
        places = range(len(rows))
        for shift, colour, label, values in (
            (-0.2, _ADHERENT, "adherent", [f.mean_adherent or 0.0 for f in rows]),
            (0.2, _VIOLATION, "violation", [f.mean_violation or 0.0 for f in rows]),
        ):
            at = [place + shift for place in places]
            bars = panel.bar(at, values, width=0.38, color=colour, label=label)
            if len(rows) <= _FEW:
                panel.bar_label(bars, fmt="%.2f", fontsize=7, padding=1)
        panel.set_title(_folded(name), fontsize=9)
        panel.set_xticks(list(places), [str(f.n) for f in rows])
        panel.set_xlabel("n", fontsize=8)
        low, high = panel.get_ylim()
        panel.set_ylim(min(0.0, low), max(1.12, high))
        panel.axhline(0, color="black", linewidth=0.6)
    return _finished(figure, panels, "Mean score by class")


def _separation(benchmark: Benchmark) -> Figure | None:
    label = "mean of adherent turns minus mean of violations"
    drawn = _lines(benchmark, "separation", "Separation against n", label)
    if drawn is not None:
        drawn.axes[0].axhline(0, color="black", linewidth=0.8)
    return drawn


def _macro_f1(benchmark: Benchmark) -> Figure | None:
    """Draw each point with its bootstrap interval."""
    label = "macro F1, 95 % bootstrap interval"
    drawn = _lines(benchmark, "f1_macro", "Macro F1 against n", label)
    if drawn is not None:
        drawn.axes[0].set_ylim(top=min(1.02, drawn.axes[0].get_ylim()[1]))
    return drawn


def _lines(benchmark: Benchmark, figure: str, title: str, label: str) -> Figure | None:
    """Draw a line for each method over the conditions, with intervals where there are any; None for one condition or no line."""
    names = [f.method for f in _methods(benchmark) if getattr(f, figure) is not None]
    if len(benchmark.conditions) < 2 or not names:
        return None
    drawn, axes = _single()
    sizes = [condition.n for condition in benchmark.conditions]
    for place, (name, style) in enumerate(zip(names, _line_styles(len(names)), strict=True)):
        rows = [f for f in _by_condition(benchmark, name) if getattr(f, figure) is not None]
        values = [getattr(f, figure) for f in rows]
        ends = [f.intervals.get(figure) for f in rows]
        # Side by side, so that intervals of two methods can be told apart.
        shift = 0.7 * ((place + 0.5) / len(names) - 0.5) if any(ends) else 0.0
        # An interval need not hold the point estimate, and an error bar has no negative length.
        below = [max(0.0, v - i.low) if i else 0.0 for v, i in zip(values, ends, strict=True)]
        above = [max(0.0, i.high - v) if i else 0.0 for v, i in zip(values, ends, strict=True)]
        at = [sizes.index(f.n) + shift for f in rows]
        bars: dict[str, Any] = {"yerr": [below, above], "capsize": 3} if any(ends) else {}
        axes.errorbar(at, values, label=name, marker="o", **bars, **style)
    axes.set_xticks(range(len(sizes)), [str(n) for n in sizes])
    axes.set_xlabel("turns (n)")
    axes.set_ylabel(label)
    axes.set_title(title)
    _legend(drawn, axes)
    return drawn


def _roc(benchmark: Benchmark) -> Figure | None:
    full = benchmark.full
    figure, axes = _single(width=8.4)
    grey = (
        {"color": _GREY, "linestyle": _STYLES[i % len(_STYLES)], "linewidth": 1.2}
        for i in range(len(full.baselines))
    )
    styles = [*_line_styles(len(full.methods)), *grey]
    areas = {f.method: f.auc for f in full.figures}
    for scores, style in zip((*full.methods, *full.baselines), styles, strict=True):
        values, gold = _held(benchmark, scores)
        points = roc_curve(values, gold)
        if points is None:
            continue
        xs, ys = zip(*points, strict=True)
        axes.plot(xs, ys, label=f"{scores.name} ({areas[scores.name]:.3f})", **style)
    axes.plot([0, 1], [0, 1], color="black", linewidth=0.6, linestyle=":")
    axes.set_aspect("equal")
    axes.set_xlim(-0.01, 1.01)
    axes.set_ylim(-0.01, 1.01)
    axes.set_xlabel("share of violations taken for adherent")
    axes.set_ylabel("share of adherent turns found")
    axes.set_title(f"ROC, n = {full.n}; AUC in brackets, baselines in grey")
    _legend(figure, axes)
    return figure


def _reliability(benchmark: Benchmark) -> Figure | None:
    """Draw a panel for each method: the share of adherent turns in each bin of its score, dots as large as the bin."""
    shown = []
    for scores in benchmark.full.methods:
        values, gold = _held(benchmark, scores)
        if values and min(values) >= 0 and max(values) <= 1:
            shown.append((scores.name, values, gold))
    figure, panels = _panels(len(shown), height=2.6)
    for panel, (name, values, gold) in zip(panels, shown, strict=False):
        bins = calibration_bins(values, gold)
        error = expected_calibration_error(values, gold)
        panel.plot([0, 1], [0, 1], color="black", linewidth=0.6, linestyle=":")
        points = [b.mean_score for b in bins], [b.share_positive for b in bins]
        panel.plot(*points, color=_ADHERENT, linewidth=1)
        panel.scatter(
            *points,
            s=[10 + 170 * b.count / len(values) for b in bins],
            color=_ADHERENT,
            alpha=0.7,
            clip_on=False,
        )
        panel.set_title(f"{_folded(name)}\nECE {error:.3f}", fontsize=9)
        panel.set_aspect("equal")
        panel.set_xlim(-0.03, 1.03)
        panel.set_ylim(-0.03, 1.03)
        panel.set_xlabel("score", fontsize=8)
        panel.set_ylabel("share adherent", fontsize=8)
    return _finished(
        figure, panels, f"Reliability in 10 bins, n = {benchmark.full.n}", legend=False
    )


def _methods(benchmark: Benchmark) -> list[MethodFigures]:
    full = benchmark.full
    return list(full.figures[: len(full.methods)])


def _by_condition(benchmark: Benchmark, name: str) -> list[MethodFigures]:
    return [f for condition in benchmark.conditions for f in condition.figures if f.method == name]


def _held(benchmark: Benchmark, scores: MethodScores) -> tuple[list[float], list[bool]]:
    scored = [
        (score, turn.is_adherent)
        for score, turn in zip(scores.scores, benchmark.turns[: benchmark.full.n], strict=True)
        if score is not None
    ]
    return [score for score, _ in scored], [label for _, label in scored]


def _single(width: float = 8) -> tuple[Figure, Axes]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, 5), layout="constrained")
    return figure, figure.add_subplot()


def _panels(count: int, *, height: float) -> tuple[Figure, list[Axes]]:
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    abreast = max(1, min(_PANELS_ABREAST, count))
    down = max(1, math.ceil(count / abreast))
    spaced = ConstrainedLayoutEngine(h_pad=0.08, w_pad=0.06)
    figure = Figure(figsize=(8, 0.8 + height * down), layout=spaced)
    return figure, [figure.add_subplot(down, abreast, place + 1) for place in range(count)]


def _finished(
    figure: Figure, panels: list[Axes], title: str, *, legend: bool = True
) -> Figure | None:
    if not panels:
        return None
    for panel in panels:
        panel.tick_params(labelsize=7)
        panel.spines[["top", "right"]].set_visible(False)
    figure.suptitle(title, fontsize=11)
    if legend:
        figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=2)
    return figure


def _legend(figure: Figure, axes: Axes) -> None:
    """Put the legend beside the axes; the layout leaves room for it, and long names fold, so that it is never cut off."""
    axes.spines[["top", "right"]].set_visible(False)
    handles, names = axes.get_legend_handles_labels()
    folded = [_folded(name) for name in names]
    figure.legend(handles, folded, loc="outside right center", fontsize=8, frameon=False)


def _line_styles(count: int) -> list[dict[str, Any]]:
    colours, size = _COLOURS, len(_COLOURS)
    return [
        {
            "color": colours[i % size],
            "linestyle": _STYLES[i // size % len(_STYLES)],
            "linewidth": 1.6,
        }
        for i in range(count)
    ]


def _folded(name: str) -> str:
    return textwrap.fill(name.replace(",", ", "), _NAME, break_on_hyphens=False)
