"""Pictures for a dataset card, as SVG: the Hub shows a file of the repository as an image, and no package is needed.

An SVG that is shown as an image runs nothing and loads nothing. The ground is white, so that it can be read on a dark page.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from curate.notebook import element

_WIDTH = 720
_STYLE = (
    "text{font:12px system-ui,sans-serif;fill:#1b1f27}.name{font-weight:600}.small{font-size:10px}.soft{fill:#545c69}.all{fill:#b9c6dc}.part{fill:#2f6fd0}"
    ".line{stroke:#d5d9e0}.zero{stroke:#9b2c1b;stroke-dasharray:4 3}.ends{stroke:#2f6fd0;stroke-width:3}"
    ".dot{fill:#2f6fd0}.band{fill:#2f6fd0;opacity:.18}.curve{fill:none;stroke:#2f6fd0;stroke-width:2}"
)


@dataclass(frozen=True, slots=True)
class Panel:
    """Counts by class: of all, and of a part of them."""

    title: str
    labels: Sequence[str]
    counts: Sequence[int]
    part: Sequence[int]


@dataclass(frozen=True, slots=True)
class FigureBar:
    """A figure with the ends of its interval, if any; `against` is the value it is compared with."""

    name: str
    value: float
    ends: tuple[float, float] | None = None
    against: float | None = None


def _svg(title: str, height: float, *parts: Markup) -> str:
    ground = element("rect", width="100%", height="100%", fill="#ffffff")
    heading = _text(12, 20, title, class_="name")
    inside = element("style", Markup(_STYLE)) + ground + heading + Markup("").join(parts)
    return str(
        element(
            "svg",
            element("title", title),
            inside,
            xmlns="http://www.w3.org/2000/svg",
            viewBox=f"0 0 {_WIDTH} {height:g}",
            width=str(_WIDTH),
            height=f"{height:g}",
            role="img",
        )
    )


def _text(x: float, y: float, text: str, anchor: str = "start", **attributes: str) -> Markup:
    return element("text", text, x=f"{x:g}", y=f"{y:g}", text_anchor=anchor, **attributes)


def distributions(title: str, panels: Sequence[Panel], key: tuple[str, str]) -> str:
    """Draw bars by class, three panels in a row: light bars for all, dark ones within them for the part.

    Args:
        title: of the picture.
        panels: what is shown; classes of one panel share a scale.
        key: what all and the part are.
    """
    wide, high, tall = _WIDTH / 3, 130, 80
    parts = []
    for at, panel in enumerate(panels):
        left, top = 12 + (at % 3) * wide, 48 + (at // 3) * high
        most = max((*panel.counts, 1))
        step = (wide - 24) / len(panel.counts)
        parts.append(_text(left, top, panel.title))
        base = top + 8 + tall
        for place, label in enumerate(panel.labels):
            x = left + place * step
            for classes, number in (("all", panel.counts[place]), ("part", panel.part[place])):
                size = tall * number / most
                bar = {"x": x, "y": base - size, "width": step - 2, "height": size}
                parts.append(
                    element("rect", class_=classes, **{name: f"{v:.1f}" for name, v in bar.items()})
                )
            parts.append(_text(x + step / 2 - 1, base + 14, label, "middle", class_="soft"))
    bottom = 48 + -(-len(panels) // 3) * high
    for at, (classes, name) in enumerate(zip(("all", "part"), key, strict=True)):
        x = 12 + at * 160
        box = {"x": f"{x}", "y": f"{bottom - 4}", "width": "12", "height": "12"}
        parts += [element("rect", class_=classes, **box), _text(x + 18, bottom + 6, name)]
    return _svg(title, bottom + 20, *parts)


def intervals(title: str, rows: Sequence[FigureBar], low: float, high: float, note: str) -> str:
    """Draw an interval as a line with a dot at each figure; the value it is compared with is a broken line.

    Args:
        title: of the picture.
        rows: the figures, from above.
        low, high: ends of the axis; they are moved out where a figure lies beyond.
        note: what the broken line is.
    """
    shown = [one for row in rows for one in (row.value, *(row.ends or ()))]
    low, high = min(low, *shown), max(high, *shown)
    left, right, step, top = 240, _WIDTH - 110, 24, 40

    def x(value: float) -> float:
        return left + (right - left) * (value - low) / (high - low)

    bottom = top + step * len(rows)
    parts = []
    for tick in (low, (low + high) / 2, high):
        parts += [
            _line(x(tick), top - 6, x(tick), bottom),
            _text(x(tick), bottom + 16, f"{tick:.2f}", "middle", class_="soft"),
        ]
    for at, row in enumerate(rows):
        y = top + step * at + step / 2
        parts.append(_text(left - 10, y + 4, row.name, "end"))
        if row.against is not None:
            parts.append(_line(x(row.against), y - 10, x(row.against), y + 10, "zero"))
        text = f"{row.value:.2f}"
        if row.ends is not None:
            parts.append(_line(x(row.ends[0]), y, x(row.ends[1]), y, "ends"))
            text += f" ({row.ends[0]:.2f} to {row.ends[1]:.2f})"
        parts.append(element("circle", cx=f"{x(row.value):.1f}", cy=f"{y:g}", r="4", class_="dot"))
        parts.append(_text(right + 6, y + 4, text, class_="small"))
    return _svg(title, bottom + 44, *parts, _text(12, bottom + 36, note, class_="soft"))


def curve(
    title: str, points: Sequence[tuple[int, float, tuple[float, float] | None]], below: str
) -> str:
    """Draw values from 0 to 1 by place, with the band of their intervals.

    Args:
        title: of the picture.
        points: place, value and ends of each, at least two.
        below: what the places are.
    """
    left, right, top, bottom = 50, _WIDTH - 20, 36, 200
    first, last = points[0][0], points[-1][0]

    def at(place: float, value: float) -> str:
        x = left + (right - left) * (place - first) / (last - first)
        return f"{x:.1f},{bottom - (bottom - top) * value:.1f}"

    parts = []
    for level in (0.0, 0.5, 1.0):
        y = bottom - (bottom - top) * level
        parts += [
            _line(left, y, right, y),
            _text(left - 8, y + 4, f"{level:g}", "end", class_="soft"),
        ]
    banded = [(place, ends) for place, _, ends in points if ends is not None]
    ways = [*((p, e[1]) for p, e in banded), *((p, e[0]) for p, e in reversed(banded))]
    parts.append(element("polygon", class_="band", points=" ".join(at(p, v) for p, v in ways)))
    line = " ".join(at(place, value) for place, value, _ in points)
    parts.append(element("polyline", class_="curve", points=line))
    for x, anchor, text in (
        (left, "start", str(first)),
        (right, "end", str(last)),
        ((left + right) / 2, "middle", below),
    ):
        parts.append(_text(x, bottom + 18, text, anchor, class_="soft"))
    return _svg(title, bottom + 30, *parts)


def _line(x1: float, y1: float, x2: float, y2: float, classes: str = "line") -> Markup:
    ends = {"x1": x1, "y1": y1, "x2": x2, "y2": y2}
    return element("line", class_=classes, **{name: f"{value:.1f}" for name, value in ends.items()})
